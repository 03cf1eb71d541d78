"""The packages that AllenNLP 2.10.1 needs, a check of the installed ones, and imports of them."""

import gc
import importlib.metadata
from contextlib import contextmanager
from typing import Iterator, Optional

from elmo_plugin.errors import needing

# AllenNLP and torch are not imported here: this module must load when they are missing or broken.

# Without dependencies: its metadata asks for a torch that has no build for this Python.
INSTALL_ALLENNLP = "pip install --no-deps allennlp==2.10.1"
# A published pair; torchvision works only with the torch that it was built for.
INSTALL_TORCH_PAIR = "pip install torch==2.12.1 torchvision==0.27.1"

# For each package, the versions that AllenNLP works with, and the command that installs one of them.
REQUIREMENTS = {
    # The patches are for a `torch.load` that by default refuses other values than tensors.
    "torch": (">=2.6", INSTALL_TORCH_PAIR),
    # Upper bounds: AllenNLP imports `transformers.AdamW` and `huggingface_hub.Repository`, gone later.
    "transformers": (">=4.40,<4.50", "pip install transformers==4.49.0"),
    "huggingface-hub": ("<1", "pip install huggingface-hub==0.36.2"),
    "allennlp": ("==2.10.1", INSTALL_ALLENNLP),
}


def check_environment() -> None:
    """
    Check that the packages which AllenNLP needs are installed, in versions that it works with. Raises an
    `ImportError` that names each one that is missing or wrong: what was found, what was expected, and the
    command that installs it. AllenNLP's own errors, if it were imported first, would not say what to do.
    """
    # Not at the top: `elmo` loads this module where packaging is not installed.
    try:
        from packaging.specifiers import SpecifierSet
    except ImportError as error:
        raise ImportError(
            f"elmo_plugin cannot run in this environment: {error}. Run: "
            f'pip install "elmo-plugin[allennlp]" && {INSTALL_ALLENNLP}'
        ) from error

    problems = []
    for package, (versions, command) in REQUIREMENTS.items():
        found = _version(package)
        # prereleases=True: a nightly build of a version in range is in range.
        if found is None or not SpecifierSet(versions).contains(found, prereleases=True):
            problems.append(
                f"- {package}: found {found or 'none'}, expected {versions}. Run: {command}"
            )
    if not problems:
        # Importing is the only sure test. Versions can agree and builds not: a CPU-only torch beside a
        # CUDA torchvision of the same release fails on import, and AllenNLP imports torchvision always.
        try:
            import torchvision  # noqa: F401
        except (ImportError, OSError, RuntimeError) as error:
            problems.append(
                f"- torchvision: found {_version('torchvision') or 'none'}, which cannot be imported beside "
                f"torch {_version('torch')} ({error}), expected the build published with that torch. "
                f"Run: pip uninstall --yes torch torchvision && {INSTALL_TORCH_PAIR}"
            )
    if problems:
        raise ImportError("elmo_plugin cannot run in this environment:\n" + "\n".join(problems))


@contextmanager
def needing_allennlp(what: str) -> Iterator[None]:
    """Do as `needing` does for a command or option that needs AllenNLP."""
    need, advice = f"{what} needs AllenNLP", f" && {INSTALL_ALLENNLP}"
    with without_collection(), needing(need, "elmo-plugin[allennlp]", advice):
        yield


@contextmanager
def without_collection() -> Iterator[None]:
    """
    For imports of large libraries. They make hundreds of thousands of objects that stay, and Python would
    look for garbage among them again and again: a sixth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _version(package: str) -> Optional[str]:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
