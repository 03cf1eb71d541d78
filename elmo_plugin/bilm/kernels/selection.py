"""Which kernel runs, and in which precision."""

import functools
import logging
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar

import torch
from torch import Tensor

from elmo_plugin.bilm.character_encoder import CharacterEncoder
from elmo_plugin.bilm.characters import batch_to_ids
from elmo_plugin.bilm.kernels.lstm_kernel import PRECISIONS, LSTMKernel
from elmo_plugin.bilm.kernels.onednn_kernel import OneDNNKernel
from elmo_plugin.bilm.kernels.reference_kernel import ReferenceKernel
from elmo_plugin.bilm.kernels.simd_kernel import SIMDKernel
from elmo_plugin.bilm.kernels.triton_kernel import TritonKernel
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.lstm_steps import LSTMRun
from elmo_plugin.bilm.options import BiLMOptions
from elmo_plugin.bilm.processor import has_bfloat16_products, processor_features
from elmo_plugin.bilm.simd.library import best_unit
from elmo_plugin.errors import ConfigurationError

logger = logging.getLogger(__name__)

Module = TypeVar("Module", bound=torch.nn.Module)

AUTO = "auto"

REFERENCE = ReferenceKernel()

# Fastest first.
KERNELS: Tuple[LSTMKernel, ...] = (SIMDKernel(), OneDNNKernel(), TritonKernel(), REFERENCE)

KERNEL_NAMES = (AUTO, *(kernel.name for kernel in KERNELS))

# Names of earlier versions, in configs and archives.
_EARLIER_NAMES = {"avx512": "simd"}

# How far the first step on a device may be from the reference, for values of about 1. Wide enough for TF32.
_FIRST_STEP_TOLERANCES = {"float32": 0.01, "bfloat16": 0.05, "int8": 0.05}


# Of the character encoder that kernels are tried on. Its highway is large enough for kernels that leave small
# matrices to torch.
_FIRST_ENCODER = BiLMOptions(
    filters=((1, 420), (3, 300)),
    num_highway=1,
    character_embedding_dim=16,
    cell_size=96,
    projection_dim=96,
)


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
    if current_name(name) not in KERNEL_NAMES:
        raise ConfigurationError(f"kernel is '{name}', expected one of: {', '.join(KERNEL_NAMES)}.")
    for kernel in KERNELS:
        if kernel.name == current_name(name):
            choose_kernel(name, precision, torch.device(kernel.device_type))


def choose_kernel(
    name: str, precision: str, device: torch.device, dtype: torch.dtype = torch.float32
) -> LSTMKernel:
    """
    Return the kernel of that name, or for `auto` the fastest that runs in that precision on that device with
    weights of that type. A kernel that has not run there before in this process is first compared with the
    reference, over a few small steps; if it fails or differs, a warning says so and it is not used.

    # Raises

    `ConfigurationError` if the named one does not run there.
    """
    name = current_name(name)
    reasons: Dict[str, str] = {}
    for kernel in _preferred(precision):
        if name not in (AUTO, kernel.name):
            continue
        reason = _unsupported_reason(kernel, precision, device, dtype)
        if reason is None:
            return kernel
        reasons[kernel.name] = reason
    raise ConfigurationError(
        f"kernel is '{name}', but {reasons[name]}. Use 'auto', which takes the fastest that runs here."
    )


def current_name(name: str) -> str:
    """Return the name that a kernel has now, of one that it had in an earlier version."""
    return _EARLIER_NAMES.get(name, name)


def choose_precision(
    name: str, precision: str, device: torch.device, dtype: torch.dtype = torch.float32
) -> str:
    """
    Return the precision to run in with the kernel `name` or `auto`: the given one, or `float32` if no kernel
    is faster in the given one on that device. A warning says so once. A named kernel runs as it was asked
    to, with a warning if that is slow.

    # Raises

    As `choose_kernel`.
    """
    kernel = choose_kernel(name, precision, device, dtype)
    # The other kernels run a precision only where the processor or GPU has instructions for it.
    if precision == "float32" or kernel is not REFERENCE:
        return precision
    if precision == "bfloat16" and has_bfloat16_products(device):
        return precision
    if name != AUTO:
        _warn_once(
            f"The {name} kernel is slower in {precision} than in float32 on this {device.type}."
        )
        return precision
    reasons = [
        f"{kernel.name}: {_unsupported_reason(kernel, precision, device, dtype)}"
        for kernel in KERNELS
        if kernel is not REFERENCE and kernel.device_type == device.type
    ]
    _warn_once(
        f"precision is '{precision}', but float32 is faster on this {device.type}, so the biLM runs in "
        f"float32 ({'; '.join(reasons) or 'no kernel is made for it'})."
    )
    return "float32"


def _preferred(precision: str) -> Tuple[LSTMKernel, ...]:
    # oneDNN multiplies bfloat16 in AMX's tiles, several times as fast as vectors can. On x86-64 processors
    # before AVX2 it knows instructions that the simd kernel does not.
    if (precision == "bfloat16" and "amx_bf16" in processor_features()) or best_unit() == "plain":
        return tuple(sorted(KERNELS, key=lambda kernel: kernel.name != OneDNNKernel.name))
    return KERNELS


def _unsupported_reason(
    kernel: LSTMKernel, precision: str, device: torch.device, dtype: torch.dtype
) -> Optional[str]:
    reason = kernel.why_not(precision, device, dtype)
    if reason is None and kernel is not REFERENCE:
        reason = _first_step_failure(kernel, precision, device)
    return reason


@functools.cache
def _first_step_failure(kernel: LSTMKernel, precision: str, device: torch.device) -> Optional[str]:
    """Return what is wrong with a kernel's first steps on a device; `None` if they equal the reference's."""
    try:
        results, expected = (_first_steps(one, precision, device) for one in (kernel, REFERENCE))
        differences = [(a - b).abs().max() for a, b in zip(results, expected)]
        # Not by Python's max(), which can lose NaN.
        difference = float(torch.stack(differences).max())
        if difference < _FIRST_STEP_TOLERANCES[precision]:
            return None
        failure = f"its first steps differ from the reference's by {difference:.2g}"
    except (MemoryError, torch.cuda.OutOfMemoryError):
        raise
    # Whatever it is: there is another kernel.
    except Exception as error:
        failure = f"its first steps failed with {type(error).__name__}: {error}"
    logger.warning(
        "The %s kernel is not used in %s on %s: %s.", kernel.name, precision, device, failure
    )
    return failure


@torch.no_grad()
def _first_steps(kernel: LSTMKernel, precision: str, device: torch.device) -> List[Tensor]:
    """Run both directions of a small layer, and a character encoder, on the same numbers for all kernels."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def of_normal(module_class: Callable[..., Module], *args: Any, **kwargs: Any) -> Module:
        with torch.device("meta"):
            module = module_class(*args, **kwargs)
        module.to_empty(device="cpu")
        for parameter in module.parameters():
            parameter.copy_(normal(*parameter.shape) * parameter.size(-1) ** -0.5)
        return module.to(device)

    # Neither depends on what the program has set for new tensors and products, nor draws its random numbers.
    with torch.device("cpu"), torch.autocast(device.type, enabled=False):
        layers, runs = [], []
        for _ in range(2):
            # Several blocks of cells and states, not all of them full, for kernels that read in blocks.
            layers.append(of_normal(ProjectedLSTM, 96, 288, 96, cell_clip=1.0, proj_clip=0.5))
            # The largest block of rows, a smaller one, and a single row.
            step_sizes = [65, 3, 1]
            state, cell = normal(65, 96).to(device), normal(65, 288).to(device)
            runs.append(LSTMRun(normal(69, 96).to(device), step_sizes, state, cell))
        outcomes = kernel.run([kernel.prepare(layer, precision) for layer in layers], runs)
        encoder = of_normal(CharacterEncoder, _FIRST_ENCODER)
        words = batch_to_ids([["a", "few", "words", "of", "several", "lengths"]])[0].to(device)
        vectors = kernel.prepare_encoder(encoder, precision)(words)
        return [vectors, *(tensor for outcome in outcomes for tensor in outcome)]


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning("%s (Said once.)", message)
