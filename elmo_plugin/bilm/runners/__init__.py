"""Which runner a frozen biLM gets, and in which precision it runs."""

import logging
from typing import Callable, Dict, Iterator, Tuple, Type

import torch

from elmo_plugin.bilm.processor import has_bfloat16_products
from elmo_plugin.bilm.runners.reference_runner import ReferenceRunner
from elmo_plugin.bilm.runners.runner import Runner
from elmo_plugin.bilm.runners.simd_runner import SIMDRunner
from elmo_plugin.bilm.runners.triton_runner import TritonRunner
from elmo_plugin.bilm.simd.library import best_unit
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.warn_once import warn_once

__all__ = ["AUTO", "KERNELS", "PRECISIONS", "Runner", "check_kernel", "choose_runner"]

logger = logging.getLogger(__name__)

PRECISIONS = ("float32", "bfloat16", "int8")

AUTO = "auto"

_RUNNERS: Dict[str, Type[Runner]] = {
    runner.name: runner for runner in (SIMDRunner, TritonRunner, ReferenceRunner)
}

KERNELS = (AUTO, *_RUNNERS)

Prepare = Callable[[Iterator[torch.nn.Module], str], Runner]


def check_kernel(kernel: str, precision: str) -> None:
    """
    # Raises

    `ConfigurationError` if there is no such kernel or precision, or if that kernel cannot run in that
    precision on this machine: on its processor, or on its GPU if it is made for GPUs.
    """
    if precision not in PRECISIONS:
        raise ConfigurationError(
            f"precision is '{precision}', expected one of: {', '.join(PRECISIONS)}."
        )
    if kernel not in KERNELS:
        raise ConfigurationError(f"kernel is '{kernel}', expected one of: {', '.join(KERNELS)}.")
    choose_runner(kernel, precision, torch.device("cuda" if kernel == "triton" else "cpu"))


def choose_runner(kernel: str, precision: str, device: torch.device) -> Tuple[Prepare, str]:
    """
    Return what makes the runner of that name, or for `auto` the faster of `simd` and `reference` that runs on
    the device; and the precision to run in: the given one, or `float32` if that is faster with every runner
    that `auto` chooses from. A warning says so once. A named kernel runs as it is asked to, with a warning if
    that is slow.

    # Raises

    `ConfigurationError` if the named one does not run there.
    """
    name = kernel
    if kernel == AUTO:
        reason = SIMDRunner.unsupported_reason(precision, device)
        # torch's own products know more instructions than the plain unit.
        name = "simd" if reason is None and best_unit() != "plain" else "reference"
    runner = _RUNNERS[name]
    reason = runner.unsupported_reason(precision, device)
    if reason is not None:
        raise ConfigurationError(
            f"kernel is '{kernel}', but {reason}. Use 'auto', which takes the fastest that runs here."
        )
    is_slow = name == "reference" and precision != "float32"
    if is_slow and not (precision == "bfloat16" and has_bfloat16_products(device)):
        if kernel == AUTO:
            warn_once(
                logger,
                f"precision is '{precision}', but float32 is faster on this {device.type}, so the biLM runs "
                "in float32.",
            )
            return runner.prepare, "float32"
        warn_once(
            logger,
            f"The {name} kernel is slower in {precision} than in float32 on this {device.type}.",
        )
    return runner.prepare, precision
