"""The settings of inference, and the runner that they ask for."""

import logging
from dataclasses import dataclass, fields
from typing import Any, Dict, Mapping, Tuple, Type

import torch

from elmo_plugin.bilm.processor import has_bfloat16_products
from elmo_plugin.bilm.runners.reference_runner import ReferenceRunner
from elmo_plugin.bilm.runners.runner import Runner
from elmo_plugin.bilm.runners.simd_runner import SIMDRunner
from elmo_plugin.bilm.runners.triton_runner import TritonRunner
from elmo_plugin.errors import ConfigurationError, check_choice, warn_once

logger = logging.getLogger(__name__)

PRECISIONS = ("float32", "bfloat16", "int8")

AUTO = "auto"

# The fastest first. The last runs everywhere.
_RUNNERS: Dict[str, Type[Runner]] = {
    runner.name: runner for runner in (SIMDRunner, TritonRunner, ReferenceRunner)
}

KERNELS = (AUTO, *_RUNNERS)


@dataclass(frozen=True)
class InferenceSettings:
    """
    How a frozen biLM runs.

    # Parameters

    precision : `str`, optional (default = `"float32"`)
        The type in which matrices are multiplied: `float32`, `bfloat16` or `int8`. Products are summed in
        float32 (of int8, in 32-bit integers). In bfloat16, `reference` then rounds each product to bfloat16,
        and `triton` the products of inputs. Cells, states and the convolutions of characters are float32.
        PERFORMANCE.md has the error of each.
    kernel : `str`, optional (default = `"auto"`)
        What runs the layers: `simd` (C++ for CPUs), `triton` (NVIDIA GPUs), `reference` (operations of torch,
        everywhere), or the fastest that runs on the device.
    word_cache_size : `int`, optional (default = 50,000)
        Number of distinct words whose vectors are kept; 0 for none. 50,000 words of the paper's model take
        150 MB.
    sentence_cache_mb : `float`, optional (default = 250)
        On a CPU, MB of memory for the activations of sentences that training reads again in each epoch; 0 for
        none. A token of the paper's model takes 12 kB, one of `elmo_mini` 3 kB. An `Elmo` that has
        only run in `eval` mode keeps none.

    # Raises

    `ConfigurationError` for an unknown precision or kernel, a kernel that this machine lacks, and a negative
    size.
    """

    precision: str = "float32"
    kernel: str = AUTO
    word_cache_size: int = 50_000
    sentence_cache_mb: float = 250

    def __post_init__(self) -> None:
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("kernel", self.kernel, KERNELS)
        if self.kernel not in (AUTO, "reference"):
            # Whether this machine can run that kernel at all: on its processor, or on its GPU.
            device = torch.device("cuda" if self.kernel == "triton" else "cpu")
            choose_runner(self.kernel, self.precision, device)
        for name, kinds, unit in (
            ("word_cache_size", int, "a number of words"),
            ("sentence_cache_mb", (int, float), "a number of MB"),
        ):
            size = getattr(self, name)
            if isinstance(size, bool) or not isinstance(size, kinds) or not size >= 0:
                raise ConfigurationError(f"{name} is {size!r}, expected {unit}, or 0 for no cache.")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "InferenceSettings":
        """
        Check the keywords of a caller or the keys of a config.

        # Raises

        `ConfigurationError` for an unknown one, too.
        """
        names = [field.name for field in fields(cls)]
        unknown = [name for name in values if name not in names]
        if unknown:
            raise ConfigurationError(
                f"ELMo has no argument '{unknown[0]}'. Those of inference are {', '.join(names)}. Correct "
                "the name, or leave it out."
            )
        return cls(**values)


def choose_runner(kernel: str, precision: str, device: torch.device) -> Tuple[Type[Runner], str]:
    """
    Return the runner of that name, or for `auto` the fastest that runs on the device; and the precision to
    run in: the given one, or for `auto` `float32` if that is faster. A warning says so once. A named kernel
    runs as asked, with a warning if that is slow.

    # Raises

    `ConfigurationError` if the named kernel does not run there.
    """
    if kernel == AUTO:
        runner = next(
            one for one in _RUNNERS.values() if one.unsupported_reason(precision, device) is None
        )
    else:
        runner = _RUNNERS[kernel]
        reason = runner.unsupported_reason(precision, device)
        if reason is not None:
            raise ConfigurationError(
                f"kernel is '{kernel}', but {reason}. Use 'auto', which takes the fastest that runs here."
            )
    # On GPUs it launches many small operations, which take as long in any precision.
    is_fast = precision == "bfloat16" and device.type == "cpu" and has_bfloat16_products()
    if runner is ReferenceRunner and precision != "float32" and not is_fast:
        if kernel == AUTO:
            warn_once(
                logger,
                f"precision is '{precision}', but float32 is faster on this {device.type}, so the biLM runs "
                "in float32.",
            )
            return choose_runner(AUTO, "float32", device)
        warn_once(
            logger,
            f"The {kernel} kernel is slower in {precision} than in float32 on this {device.type}.",
        )
    return runner, precision
