"""What runs a frozen biLM."""

from elmo_plugin.bilm.runners.runner import Runner
from elmo_plugin.bilm.runners.settings import (
    AUTO,
    KERNELS,
    PRECISIONS,
    InferenceSettings,
    choose_runner,
)

__all__ = ["AUTO", "KERNELS", "PRECISIONS", "InferenceSettings", "Runner", "choose_runner"]
