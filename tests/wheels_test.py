"""
The source archive and the wheels hold what they must, and a wheel is enough in an environment that has only
its dependencies.
"""

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email import message_from_string
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Sequence, Set

import numpy
import pytest

from elmo_plugin import ElmoEmbedder, __version__
from elmo_plugin.bilm.simd.library import VECTOR_UNITS
from tests.closeness import assert_accurate

packaging = pytest.importorskip("packaging.requirements")

ROOT = Path(__file__).parents[1]
MACHINE = platform.machine()
PUBLISHED = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "LICENSES.md")
ARM_COMPILER = shutil.which("aarch64-linux-gnu-g++")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("g++") is None or sys.platform != "linux", reason="needs g++ and Linux"
    ),
]

Build = Callable[..., Path]

SNIPPET = """
import importlib.util, sys
import numpy
import elmo_plugin
from elmo_plugin import ElmoEmbedder

assert elmo_plugin.__file__.startswith(sys.prefix), elmo_plugin.__file__
assert importlib.util.find_spec("allennlp") is None
vectors = ElmoEmbedder("elmo_mini", kernel="simd").embed_sentence(["Hello", "world"])
numpy.save("vectors.npy", vectors)
"""

# A compiler that does not know some flags, for which each warning is an error. Most of the time would be the
# optimization of libraries that these tests hardly run.
COMPILER = """\
#!/bin/sh
for flag in "$@"; do
  case "$flag" in {unknown}) echo "error: unrecognized command-line option '$flag'" >&2; exit 1 ;; esac
done
exec {compiler} "$@" -O0 -Werror
"""


def call_backend(hook: str, folder: Path, source: Path, **variables: str) -> Path:
    """Build as tools do, with the setuptools of this environment; return the file that was made."""
    program = f"from setuptools import build_meta; build_meta.{hook}({str(folder)!r})"
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=source,
        env={**os.environ, **variables},
        check=True,
        capture_output=True,
        timeout=1200,
    )
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def build_wheel(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build a wheel for a machine from the source archive, in whose folder other files may be `present`."""
    checkout = tmp_path_factory.mktemp("checkout")
    # Pretrained models that no test of wheels reads are left out: 50 MB.
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "*_small")
    shutil.copytree(ROOT / "elmo_plugin", checkout / "elmo_plugin", ignore=ignored)
    for name in PUBLISHED:
        shutil.copy(ROOT / name, checkout)
    archive = call_backend(
        "build_sdist", tmp_path_factory.mktemp("sdist"), checkout, ELMO_BUILD_MACHINE="none"
    )

    def build(
        machine: str,
        compiler: str = "g++",
        unknown: str = "-mno-such-flag",
        hook: str = "build_wheel",
        present: Iterable[str] = (),
    ) -> Path:
        folder = tmp_path_factory.mktemp("build")
        script = folder / "compiler"
        script.write_text(COMPILER.format(compiler=compiler, unknown=unknown))
        script.chmod(0o755)
        with tarfile.open(archive) as files:
            files.extractall(folder / "source")
        (source,) = (folder / "source").iterdir()
        for name in present:
            (source / name).touch()
        (folder / "wheel").mkdir()
        return call_backend(
            hook,
            folder / "wheel",
            source,
            ELMO_BUILD_MACHINE=machine,
            CC=str(script),
            CXX=str(script),
            LDCXXSHARED=f"{script} -shared",
        )

    return build


@pytest.fixture(scope="module")
def wheel(build_wheel: Build) -> Path:
    return build_wheel(MACHINE)


def libraries_in(wheel: Path) -> Set[str]:
    with zipfile.ZipFile(wheel) as files:
        return {name for name in files.namelist() if name.endswith(".so")}


def libraries_for(machine: str, lacking: Sequence[str] = ()) -> Set[str]:
    units = {unit.name for unit in VECTOR_UNITS if machine in unit.machines} - {*lacking}
    return {f"elmo_plugin/bilm/simd/_{unit}.so" for unit in units}


def metadata_of(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as files:
        name = f"elmo_plugin-{__version__}.dist-info/METADATA"
        return message_from_string(files.read(name).decode())


def installed_closure(requirements: List[str]) -> Iterator[str]:
    """Yield the installed packages that these requirements ask for, and what those ask for."""
    left, seen = list(requirements), set()
    while left:
        requirement = packaging.Requirement(left.pop())
        if requirement.name in seen:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            seen.add(requirement.name)
            yield requirement.name
            left += importlib.metadata.requires(requirement.name) or ()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a git checkout")
def test_the_source_archive_has_the_tests_and_all_that_they_read(tmp_path: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    tracked = {name for name in listed.stdout.strip("\0").split("\0") if (ROOT / name).exists()}
    for name in tracked:
        target = tmp_path / "checkout" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(ROOT / name)
    (tmp_path / "sdist").mkdir()
    archive = call_backend(
        "build_sdist", tmp_path / "sdist", tmp_path / "checkout", ELMO_BUILD_MACHINE="none"
    )
    with tarfile.open(archive) as files:
        names = {
            name.partition("/")[2] for name in files.getnames() if not files.getmember(name).isdir()
        }
    # A link to a folder of the package becomes a folder.
    links = {name for name in tracked if (ROOT / name).is_symlink()}
    assert all(any(name.startswith(f"{link}/") for name in names) for link in links)
    missing = tracked - names - links
    of_the_repository = (".github/ISSUE", ".gitignore", ".pre-commit-config.yaml")
    assert [name for name in missing if not name.startswith(of_the_repository)] == []
    of_links = tuple(f"{link}/" for link in links)
    generated = {
        name
        for name in names - tracked
        if ".egg-info/" not in name and not name.startswith(of_links)
    }
    assert generated == {"PKG-INFO", "setup.cfg"}


def test_the_wheel_of_a_machine_has_all_of_its_libraries(wheel: Path) -> None:
    assert wheel.name == f"elmo_plugin-{__version__}-py3-none-linux_{MACHINE}.whl"
    assert libraries_in(wheel) == libraries_for(MACHINE)
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
    assert "elmo_plugin/pretrained/elmo_mini/weights.hdf5" in names
    assert not [name for name in names if name.endswith((".h", ".cpp")) or "test" in name]


def test_the_wheel_without_libraries_is_for_every_platform(build_wheel: Build, wheel: Path) -> None:
    pure = build_wheel("none")
    assert pure.name == f"elmo_plugin-{__version__}-py3-none-any.whl"
    assert libraries_in(pure) == set()
    assert metadata_of(pure).as_string() == metadata_of(wheel).as_string()


def test_a_library_that_cannot_be_compiled_is_an_error_in_a_wheel_to_publish(
    build_wheel: Build,
) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        build_wheel(MACHINE, unknown="-*")  # of any: all are compiled at once


@pytest.mark.parametrize(
    "unknown, lacking",
    [
        (
            "-mavx512f|-march=armv8.2-a+dotprod",
            ["amx", "avx512_bf16", "avx512_vnni", "avx512", "neon_dotprod"],
        ),
        ("-*", [unit.name for unit in VECTOR_UNITS]),
    ],
)
def test_an_installation_by_an_older_compiler_lacks_what_it_cannot_compile(
    unknown: str, lacking: List[str], build_wheel: Build
) -> None:
    wheel = build_wheel("", unknown=unknown)
    assert libraries_in(wheel) == libraries_for(MACHINE, lacking)


def test_an_editable_installation_has_no_library_of_an_older_source(build_wheel: Build) -> None:
    libraries = libraries_for(MACHINE)
    wheel = build_wheel("", unknown="-*", hook="build_editable", present=libraries)
    (simd,) = wheel.parents[1].glob("source/*/elmo_plugin/bilm/simd")
    assert (simd / "simd.cpp").exists()
    assert list(simd.glob("*.so")) == []


def test_it_runs_in_an_environment_of_its_dependencies(wheel: Path, tmp_path: Path) -> None:
    """The environment has no AllenNLP; the installed packages of the dependencies are linked into it."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    (site_packages,) = environment.glob("lib/python*/site-packages")
    dependencies = tmp_path / "dependencies"
    dependencies.mkdir()
    for package in installed_closure(metadata_of(wheel).get_all("Requires-Dist")):
        for file in importlib.metadata.files(package) or ():
            link = dependencies / file.parts[0]
            if file.parts[0] != ".." and not link.exists():
                link.symlink_to(Path(str(file.locate())).parents[len(file.parts) - 1] / link.name)
    (site_packages / "dependencies.pth").write_text(f"{dependencies}\n")
    # In another folder: pip would take the project's `.egg-info` for an installation.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: Any) -> str:
        process = subprocess.run(
            list(map(str, command)),
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert process.returncode == 0, process.stderr
        return process.stdout

    run(
        sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel
    )
    elmo = environment / "bin" / "elmo"
    assert re.search(r"^elmo_mini +biLM ", run(elmo, "models"), re.MULTILINE)
    run(python, "-c", SNIPPET)
    expected = ElmoEmbedder("elmo_mini", kernel="reference").embed_sentence(["Hello", "world"])
    assert_accurate(numpy.load(tmp_path / "vectors.npy"), expected)
    (tmp_path / "in.txt").write_text("Hello world\n")
    printed = run(elmo, "embed", "in.txt", "out.npy", "--top", "--model", "elmo_mini")
    assert printed.startswith("out.npy: 1 sentences, 2 tokens")


@pytest.mark.skipif(
    MACHINE != "x86_64" or ARM_COMPILER is None,
    reason="needs x86-64 and aarch64-linux-gnu-g++",
)
def test_a_wheel_for_arm_is_cross_compiled(build_wheel: Build) -> None:
    wheel = build_wheel("aarch64", str(ARM_COMPILER))
    assert wheel.name == f"elmo_plugin-{__version__}-py3-none-linux_aarch64.whl"
    assert libraries_in(wheel) == libraries_for("aarch64")
