"""Ways to run the LSTM layers of a frozen biLM: one reference, and faster ones that equal it."""

from elmo_plugin.bilm.kernels.lstm_kernel import PRECISIONS, LSTMKernel
from elmo_plugin.bilm.kernels.packed_folder import PackedFolder
from elmo_plugin.bilm.kernels.packed_weights import PackedWeights
from elmo_plugin.bilm.kernels.selection import AUTO, KERNEL_NAMES, check_kernel, choose_kernel

__all__ = [
    "AUTO",
    "KERNEL_NAMES",
    "PRECISIONS",
    "LSTMKernel",
    "PackedFolder",
    "PackedWeights",
    "check_kernel",
    "choose_kernel",
]
