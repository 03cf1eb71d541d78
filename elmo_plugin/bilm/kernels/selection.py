"""Which kernel runs."""

import logging
from typing import Tuple

import torch
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.kernels.avx512_kernel import AVX512Kernel
from elmo_plugin.bilm.kernels.lstm_kernel import PRECISIONS, LSTMKernel
from elmo_plugin.bilm.kernels.onednn_kernel import OneDNNKernel
from elmo_plugin.bilm.kernels.reference_kernel import ReferenceKernel
from elmo_plugin.bilm.kernels.triton_kernel import TritonKernel

logger = logging.getLogger(__name__)

AUTO = "auto"

# Fastest first.
_KERNELS: Tuple[LSTMKernel, ...] = (
    AVX512Kernel(),
    OneDNNKernel(),
    TritonKernel(),
    ReferenceKernel(),
)

KERNEL_NAMES = (AUTO, *(kernel.name for kernel in _KERNELS))


def check_kernel(name: str, precision: str) -> None:
    """
    # Raises

    `ConfigurationError` if there is no such kernel or precision, or if that kernel cannot run in that
    precision on this machine: on its processor, or on its GPU if it is made for GPUs.
    """
    if precision not in PRECISIONS:
        raise ConfigurationError(
            f"precision is '{precision}', expected one of: {', '.join(PRECISIONS)}."
        )
    if name not in KERNEL_NAMES:
        raise ConfigurationError(f"kernel is '{name}', expected one of: {', '.join(KERNEL_NAMES)}.")
    for kernel in _KERNELS:
        if kernel.name == name:
            choose_kernel(name, precision, torch.device(kernel.device_type))


def choose_kernel(
    name: str, precision: str, device: torch.device, dtype: torch.dtype = torch.float32
) -> LSTMKernel:
    """
    The kernel of that name, or for `auto` the fastest that runs in that precision on that device with
    weights of that type.

    # Raises

    `ConfigurationError` if the named one does not run there.
    """
    reasons = {}
    for kernel in _preferred(precision):
        if name not in (AUTO, kernel.name):
            continue
        reason = kernel.why_not(precision, device, dtype)
        if reason is None:
            return kernel
        reasons[kernel.name] = reason
    raise ConfigurationError(
        f"kernel is '{name}', but {reasons[name]}. Use 'auto', which takes the fastest that runs here."
    )


def _preferred(precision: str) -> Tuple[LSTMKernel, ...]:
    # oneDNN multiplies bfloat16 in AMX's tiles, several times as fast as vectors can.
    if precision == "bfloat16" and torch.cpu.get_capabilities().get("amx_tile"):
        return tuple(sorted(_KERNELS, key=lambda kernel: kernel.name != OneDNNKernel.name))
    return _KERNELS
