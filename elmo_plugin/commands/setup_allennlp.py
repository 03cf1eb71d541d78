"""`elmo setup-allennlp`: install AllenNLP without its outdated dependencies, and check that it works."""

import argparse
import importlib.metadata
import shlex
import subprocess
import sys
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import List, Optional

from elmo_plugin.arguments import add_options, option, options_from
from elmo_plugin.compat.environment import REQUIREMENTS
from elmo_plugin.errors import ConfigurationError

PACKAGE, EXTRA = "elmo-plugin", "allennlp"
# Not that of importlib.util: asked for pip, it takes setuptools' distutils from the rest of the process.
find_spec = PathFinder.find_spec

_DESCRIPTION = """\
example:
  pip install "elmo-plugin[allennlp]"    # what the code of AllenNLP imports
  %(prog)s                    # AllenNLP itself

Install AllenNLP into the environment of this Python, and check that it can be imported. Its metadata
asks for versions that contradict those on which its code runs today (torch<1.13 has no build for this
Python), so it is installed without dependencies. If a package that it needs is missing, nothing is
installed.
"""


@dataclass(frozen=True)
class SetupOptions:
    """What to do."""

    dry_run: bool = option("print the command that installs AllenNLP, and do nothing", False)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = _DESCRIPTION
    add_options(parser, SetupOptions)


def run(args: argparse.Namespace) -> None:
    """Install AllenNLP and check it, or print the command."""
    command = install_command()
    if options_from(SetupOptions, args).dry_run:
        print(shlex.join(command))
        return
    problems = missing_packages()
    if problems:
        raise ConfigurationError(
            f"AllenNLP's code needs packages that are not here ({'; '.join(problems)}), so nothing was "
            f'installed. Run: pip install "{PACKAGE}[{EXTRA}]"'
        )
    if find_spec("pip") is None:
        raise ConfigurationError(
            f"{sys.executable} has no pip. Install AllenNLP by your own tool, without dependencies, for "
            f"instance: uv {shlex.join(command[2:])}"
        )
    print(shlex.join(command), flush=True)
    if subprocess.run(command, check=False).returncode != 0:
        raise ConfigurationError("pip failed; its message is above. Nothing was changed.")
    # In a new process: this one may have looked for AllenNLP before it was there.
    check = subprocess.run(
        [sys.executable, "-c", "import elmo_plugin.plugin"],
        capture_output=True,
        text=True,
        check=False,
    )
    if check.returncode != 0:
        message = check.stderr.strip().rpartition("Error: ")[2]
        raise ConfigurationError(f"AllenNLP is installed, but cannot be imported: {message}")
    versions = (
        f"{requirement.package} {importlib.metadata.version(requirement.package)}"
        for requirement in REQUIREMENTS
    )
    print(f"AllenNLP works here: {', '.join(versions)}.")


def install_command() -> List[str]:
    """Return the command that installs AllenNLP into the environment of this Python."""
    (requirement,) = (each for each in REQUIREMENTS if each.package == "allennlp")
    return [sys.executable, "-m", *shlex.split(requirement.command)]


def missing_packages(extra: str = EXTRA) -> List[str]:
    """Return what an extra of this package asks for, and is missing or has another version."""
    try:
        from packaging.requirements import Requirement
    except ImportError:
        return ["packaging"]
    missing = []
    for line in importlib.metadata.requires(PACKAGE) or ():
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.name == PACKAGE:
            for included in requirement.extras:
                missing += missing_packages(included)
            continue
        found = _version(requirement.name)
        # A nightly build of a version in range is in range.
        if found is None or not requirement.specifier.contains(found, prereleases=True):
            missing.append(f"{requirement.name}{requirement.specifier}, found {found or 'none'}")
    return list(dict.fromkeys(missing))


def _version(package: str) -> Optional[str]:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
