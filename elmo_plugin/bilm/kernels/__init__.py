"""Ways to run a frozen biLM: one reference, and faster ones that equal it."""

from elmo_plugin.bilm.kernels.lstm_kernel import PRECISIONS, LSTMKernel
from elmo_plugin.bilm.kernels.selection import (
    AUTO,
    KERNEL_NAMES,
    check_kernel,
    choose_kernel,
    choose_precision,
)

__all__ = [
    "AUTO",
    "KERNEL_NAMES",
    "PRECISIONS",
    "LSTMKernel",
    "check_kernel",
    "choose_kernel",
    "choose_precision",
]
