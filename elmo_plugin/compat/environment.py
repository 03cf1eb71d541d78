"""The packages that AllenNLP 2.10.1 needs, and a check of the installed ones."""

import importlib
import importlib.metadata
from dataclasses import dataclass
from typing import Callable, Optional

# AllenNLP and torch are not imported here: this module must load when they are missing or broken.

# Without dependencies: its metadata asks for a torch that has no build for this Python.
INSTALL_ALLENNLP = "pip install --no-deps allennlp==2.10.1"
# A published pair; torchvision works only with the torch that it was built for.
INSTALL_TORCH_PAIR = "pip install torch==2.12.1 torchvision==0.27.1"


@dataclass(frozen=True)
class Requirement:
    """A required package, its versions, and the command that installs one of them."""

    package: str
    versions: str
    command: str


REQUIREMENTS = (
    Requirement("torch", ">=2.4", INSTALL_TORCH_PAIR),
    # Upper bounds: AllenNLP imports `transformers.AdamW` and `huggingface_hub.Repository`, gone later.
    Requirement("transformers", ">=4.40,<4.50", "pip install transformers==4.49.0"),
    Requirement("huggingface-hub", "<1", "pip install huggingface-hub==0.36.2"),
    Requirement("allennlp", "==2.10.1", INSTALL_ALLENNLP),
)


def _import_torchvision() -> None:
    importlib.import_module("torchvision")


def check_environment(
    version_of: Callable[[str], str] = importlib.metadata.version,
    import_torchvision: Callable[[], None] = _import_torchvision,
) -> None:
    """
    Check that the packages which AllenNLP needs are installed, in versions that it works with.

    Called before AllenNLP is imported, because its own errors would not say what to do.

    # Parameters

    version_of : `Callable[[str], str]`
        Returns the installed version of a package, or raises `PackageNotFoundError`.
    import_torchvision : `Callable[[], None]`
        Imports torchvision. Called only when nothing else is wrong.

    # Raises

    `ImportError` that names all packages that are missing or have a wrong version: what was found, what was
    expected, and the command that installs it.
    """
    problems = [
        problem
        for problem in (_version_problem(requirement, version_of) for requirement in REQUIREMENTS)
        if problem is not None
    ]
    if not problems:
        problem = _torchvision_problem(version_of, import_torchvision)
        problems = [] if problem is None else [problem]
    if problems:
        raise ImportError("elmo_plugin cannot run in this environment:\n" + "\n".join(problems))


def _version_problem(requirement: Requirement, version_of: Callable[[str], str]) -> Optional[str]:
    # Not at the top: `elmo` loads this module where packaging is not installed.
    from packaging.specifiers import SpecifierSet

    found = _version_or_absence(requirement.package, version_of)
    # prereleases=True: a nightly build of a version in range is in range.
    if found is not None and SpecifierSet(requirement.versions).contains(found, prereleases=True):
        return None
    return (
        f"- {requirement.package}: found {found or 'none'}, expected {requirement.versions}. "
        f"Run: {requirement.command}"
    )


def _torchvision_problem(
    version_of: Callable[[str], str], import_torchvision: Callable[[], None]
) -> Optional[str]:
    # Importing is the only sure test. Versions can agree and builds not: a CPU-only torch beside a
    # CUDA torchvision of the same release fails on import, and AllenNLP imports torchvision always.
    try:
        import_torchvision()
    except (ImportError, OSError, RuntimeError) as error:
        found = _version_or_absence("torchvision", version_of)
        torch_version = version_of("torch")
        if found is None:
            return (
                f"- torchvision: found none, expected the one that fits torch {torch_version}. "
                f"Run: {INSTALL_TORCH_PAIR}"
            )
        return (
            f"- torchvision: found {found}, which fails on import beside torch {torch_version} "
            f"({error}), expected the build published together with that torch. "
            f"Run: pip uninstall --yes torch torchvision && {INSTALL_TORCH_PAIR}"
        )
    return None


def _version_or_absence(package: str, version_of: Callable[[str], str]) -> Optional[str]:
    try:
        return version_of(package)
    except importlib.metadata.PackageNotFoundError:
        return None
