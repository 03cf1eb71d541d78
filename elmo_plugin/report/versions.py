"""What a result was made with."""

import platform
from importlib.metadata import version
from typing import Dict

import torch

from elmo_plugin import __version__


def versions() -> Dict[str, str]:
    """The versions that results may depend on, for the settings of a table."""
    return {
        "elmo_plugin": __version__,
        "allennlp": version("allennlp"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
