"""
Install what is in dist/ into empty environments, and run there what docs/start.md shows of the core.

    make release-check                                             # all
    make release-check OPTIONS="--python 3.11 --torch newest"      # one

uv makes the environments. It downloads a Python that the machine lacks; one that cannot be had is skipped,
and named at the end. The exit status is 1 if anything failed, or nothing was checked.

torch is large: UV_TORCH_BACKEND=cpu chooses its builds for CPUs.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, List, Tuple

from tests.markdown_blocks import code_blocks

REPOSITORY = Path(__file__).parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
TORCHES = ("oldest", "newest")
UV = str(Path(sys.executable).with_name("uv"))
WITHOUT_LIBRARIES = "The simd kernel cannot be used"


class CheckError(Exception):
    """What went wrong, with the output of the command."""


class SkippedError(Exception):
    """Why a Python cannot be had."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--python",
        action="append",
        metavar="VERSION",
        help=f"a version of Python, such as 3.11; may be repeated (default: {', '.join(PYTHONS)})",
    )
    parser.add_argument(
        "--torch",
        action="append",
        metavar="oldest|newest|VERSION",
        help="oldest takes the oldest torch, numpy, h5py, tqdm and filelock that pyproject.toml allows and "
        "the Python has; newest the newest ones; may be repeated (default: oldest, newest)",
    )
    arguments = parser.parse_args()
    pythons, torches = arguments.python or PYTHONS, arguments.torch or TORCHES
    archives = archives_for(platform.machine(), REPOSITORY / "dist")
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    results = []
    for python in pythons:
        for torch in torches:
            print(f"Python {python}, {torch} torch:", flush=True)
            try:
                versions = check(python, torch, archives)
                outcome, detail = "passed", versions
            except SkippedError as reason:
                outcome, detail = "skipped", str(reason)
            except CheckError as error:
                outcome, detail = "failed", str(error)
                print(detail, file=sys.stderr)
            counts[outcome] += 1
            results.append(f"{outcome}: Python {python}, {torch} torch: {detail.splitlines()[0]}")
    print("\n".join(["", *results]))
    if counts["failed"] or not counts["passed"]:
        sys.exit(1)


def archives_for(machine: str, folder: Path) -> List[Path]:
    """Return the wheel of this machine, the one without libraries, and the source archive."""
    archives = []
    for pattern in (f"*_{machine}.whl", "*-any.whl", "*.tar.gz"):
        found = sorted(folder.glob(pattern))
        if len(found) != 1:
            sys.exit(f"{folder} has {len(found)} files {pattern}, expected one. Run `make wheels`.")
        archives += found
    return archives


def check(python: str, torch: str, archives: List[Path]) -> str:
    """Check each archive in an environment with that Python and torch; return the versions that it has."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "environment"
        variables = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        }
        variables["PATH"] = f"{environment / 'bin'}{os.pathsep}{variables['PATH']}"
        try:
            run([UV, "venv", "--quiet", "--python", python, str(environment)], folder, variables)
        except CheckError as error:
            raise SkippedError(
                f"no Python {python}: {str(error).splitlines()[-1].strip()}"
            ) from error
        install = [UV, "pip", "install", "--quiet", "--python", str(environment / "bin" / "python")]
        dependencies = [
            "--requirements",
            str(REPOSITORY / "pyproject.toml"),
            "--only-binary",
            ":all:",
        ]
        if torch == "oldest":
            dependencies += ["--resolution", "lowest-direct"]
        elif torch != "newest":
            dependencies += [f"torch=={torch}"]
        run([*install, *dependencies], folder, variables)
        for archive in archives:
            run([*install, "--no-deps", "--reinstall", str(archive)], folder, variables)
            with tempfile.TemporaryDirectory(dir=folder) as working_folder:
                check_installed(archive, working_folder, variables)
            print(f"  {archive.name} runs docs/start.md", flush=True)
        listed = run([*install[:2], "list", *install[4:], "--format", "freeze"], folder, variables)
        return " ".join(re.findall(r"^(?:torch|numpy|h5py)==\S+", listed, flags=re.MULTILINE))


def check_installed(archive: Path, folder: str, variables: Dict[str, str]) -> None:
    """
    Run the commands of docs/start.md, and compare what they print with the page.

    # Raises

    `CheckError` if they fail, print anything else, or warn of missing libraries where none are missing (or do
    not where they are).
    """
    script, printed = core_of_start_page()
    output = run(["bash", "-euc", script], folder, variables)
    if printed not in output:
        raise CheckError(
            f"{archive.name}: docs/start.md shows\n{printed}but was printed:\n{output}"
        )
    is_pure = archive.name.endswith("-any.whl")
    if (WITHOUT_LIBRARIES in output) != is_pure:
        expected = "a" if is_pure else "no"
        raise CheckError(
            f"{archive.name}: expected {expected} warning of missing libraries:\n{output}"
        )


def core_of_start_page() -> Tuple[str, str]:
    """Return the commands and snippets that need no AllenNLP, as one script, and what they print."""
    page = (REPOSITORY / "docs" / "start.md").read_text(encoding="utf-8")
    core = page.partition("\n## Names in sentences\n")[0]
    script = ""
    for block in code_blocks(core, "bash", "python"):
        is_python = block.language == "python"
        script += f"python - <<'SNIPPET'\n{block.text}SNIPPET\n" if is_python else block.text
    return script, "".join(block.text for block in code_blocks(core, "text"))


def run(command: List[str], folder: str, variables: Dict[str, str]) -> str:
    """Return what a command writes; `CheckError` if it fails."""
    process = subprocess.run(
        command,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if process.returncode != 0:
        name = " ".join([Path(command[0]).name, *command[1:3]]).partition("\n")[0]
        raise CheckError(f"{name} ... failed:\n{process.stdout.strip()}")
    return process.stdout


if __name__ == "__main__":
    main()
