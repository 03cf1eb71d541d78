"""Both directions of a layer together on NVIDIA GPUs, in two launches a step."""

import functools
import importlib.metadata
import logging
import subprocess
from typing import Any, List, NamedTuple, Optional, Sequence

import torch
from torch import Tensor

from elmo_plugin.bilm.factors import Factor, PlainFactor
from elmo_plugin.bilm.kernels.lstm_kernel import FactorKernel
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.lstm_steps import LSTMRun, Outcome, blocks_of_steps

logger = logging.getLogger(__name__)

# Of each direction, products of inputs are kept for about this many tokens: in float32 64 MiB at 4 x 4096
# gates.
TOKENS_PER_BLOCK = 1024

# Tests pass on it. Earlier ones do not compile a product of few rows in float32.
OLDEST_TRITON = (3, 6)

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class TritonLayer(NamedTuple):
    """A layer with matrices in the type that they are multiplied in; in float32, views of parameters."""

    input_weight: Tensor  # (4 * cell_size, input_dim)
    state_weight: Tensor  # (4 * cell_size, state_dim)
    projection: Optional[Tensor]  # (state_dim, cell_size)
    bias: Tensor  # (4 * cell_size,), what is added to the forget gate included
    cell_clip: Optional[float]
    proj_clip: Optional[float]


class TritonKernel(FactorKernel):
    """
    The products of inputs are made before the loop over time, a block of steps at once. Then a step of both
    directions is two launches: one makes gates, cells and hidden values, the other projects them. From step
    to step nothing allocates memory or waits for the GPU.

    What bounds a step is that it reads all weights for states, 84 MB of float32 or 42 of bfloat16 in the
    original's shape, for one sentence as for many; with many, in float32, its multiplications, which are not
    rounded to TF32. (Those of inputs are torch's: `torch.backends.cuda.matmul.allow_tf32` says if they are.)

    The loop is not captured as a CUDA graph: each shape of a batch would need a graph of its own, and hardly
    two batches of text have the same. Triton compiles what it needs when it first needs it, some seconds in
    all, and keeps it on disk for later processes.

    `bfloat16` rounds weights, rows and the products of inputs; sums, cells and states are float32.

    Tested in Triton's interpreter, and compiled for compute capabilities 8.0 and 9.0. It has not run on a GPU
    yet: none was at hand.
    """

    name = "triton"
    device_type = "cuda"

    def why_not(self, precision: str, device: torch.device, dtype: torch.dtype) -> Optional[str]:
        if precision not in _TYPES:
            return f"it has no {precision}"
        if device.type != self.device_type:
            return f"it runs on NVIDIA GPUs, not on {device.type}"
        if dtype != torch.float32:
            return f"it needs float32 weights, and these are {str(dtype).removeprefix('torch.')}"
        return _what_is_missing(device)

    def factor(self, weight: Tensor, precision: str) -> Factor:
        return PlainFactor(weight.to(_TYPES[precision]))

    def prepare(self, layer: ProjectedLSTM, precision: str) -> TritonLayer:
        dtype = _TYPES[precision]
        projection = layer.projection
        return TritonLayer(
            layer.gate_weight.detach()[:, : layer.input_dim].to(dtype),
            layer.gate_weight.detach()[:, layer.input_dim :].to(dtype),
            None if projection is None else projection.detach().to(dtype),
            (layer.gate_bias + layer.forget_bias).detach(),
            layer.cell_clip,
            layer.proj_clip,
        )

    def run(self, layers: Sequence[TritonLayer], runs: Sequence[LSTMRun]) -> List[Outcome]:
        jobs = [_Job(*job) for job in zip(layers, runs)]
        num_together = 2 if all(_form(job) == _form(jobs[0]) for job in jobs) else 1
        outcomes: List[Outcome] = []
        # Triton launches on the current device.
        with torch.cuda.device_of(runs[0].inputs):
            for start in range(0, len(jobs), num_together):
                outcomes += _run_together(jobs[start : start + num_together])
        return outcomes


class _Job(NamedTuple):
    layer: TritonLayer
    run: LSTMRun


class _Buffers(NamedTuple):
    """What the directions read and write."""

    products: Tensor  # (num_directions, tokens of a block, 4 * cell_size)
    bias: Tensor  # (num_directions, 4 * cell_size)
    state: Tensor  # (num_directions, num_sequences, state_dim)
    cell: Tensor  # (num_directions, num_sequences, cell_size)
    hidden: (
        Tensor  # like the cell, in the type that is multiplied in; without projection the outputs
    )
    outputs: Tensor  # (num_directions, num_tokens, state_dim)


def triton_problem() -> Optional[str]:
    """Return why the installed Triton, if any, cannot run the kernel, as a clause; `None` if it can."""
    try:
        found = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return "Triton is not installed (torch's builds for NVIDIA GPUs bring it on Linux)"
    oldest = ".".join(map(str, OLDEST_TRITON))
    if tuple(int(part) for part in found.split(".")[:2]) < OLDEST_TRITON:
        return f"it needs Triton {oldest} or later, and this is {found}; install a newer torch"
    return None


def _what_is_missing(device: torch.device) -> Optional[str]:
    """Why Triton's kernels cannot run on a GPU here; `None` if they can."""
    problem = triton_problem()
    if problem is not None:
        return problem
    if not torch.cuda.is_available() or torch.version.hip is not None:
        return "torch finds no NVIDIA GPU here"
    capability = torch.cuda.get_device_capability(device)
    if capability < (8, 0):
        return f"it needs compute capability 8.0, and this GPU has {capability[0]}.{capability[1]}"
    return _why_triton_does_not_start()


@functools.lru_cache(maxsize=1)
def _why_triton_does_not_start() -> Optional[str]:
    from triton.runtime import driver

    try:
        # Builds a small library when it is asked for the first time on a machine.
        driver.active.get_current_target()
    except (AssertionError, OSError, RuntimeError, subprocess.CalledProcessError) as error:
        reason = (
            f"Triton does not start here, which takes a C compiler and Python's headers ({error})"
        )
        # A GPU is left to a slower kernel then, which should not go unnoticed.
        logger.warning("The triton kernel cannot be used: %s.", reason)
        return reason
    return None


def _form(job: _Job) -> Any:
    """What must be equal for LSTMs to run together."""
    layer, (inputs, step_sizes, state, _) = job
    layout = [(part.shape, part.stride()) if isinstance(part, Tensor) else part for part in layer]
    return layout, inputs.shape, step_sizes, state.shape


def _run_together(jobs: Sequence[_Job]) -> List[Outcome]:
    """Run one LSTM, or two of the same form."""
    # Here, since Triton need not be installed.
    from elmo_plugin.bilm.kernels import triton_steps

    layers = [job.layer for job in jobs]
    blocks = blocks_of_steps(jobs[0].run.step_sizes, TOKENS_PER_BLOCK)
    buffers = _new_buffers(jobs, max(sum(sizes) for sizes in blocks))
    products, bias, state, cell, hidden, outputs = buffers
    state_weights = [layer.state_weight for layer in layers]
    projections = [layer.projection for layer in layers if layer.projection is not None]
    write_hidden = triton_steps.hidden_writer(
        products, bias, state, cell, hidden, state_weights, layers[0].cell_clip
    )
    if projections:
        write_state = triton_steps.state_writer(
            hidden, state, outputs, projections, layers[0].proj_clip
        )
    token = 0
    for sizes in blocks:
        block = slice(token, token + sum(sizes))
        for (layer, run), own_products in zip(jobs, products):
            inputs = run.inputs[block].to(products.dtype)
            torch.mm(inputs, layer.input_weight.t(), out=own_products[: inputs.size(0)])
        for size in sizes:
            if projections:
                write_hidden(size, token - block.start, 0)
                write_state(size, token)
            else:
                write_hidden(size, token - block.start, token)
                state[:, :size].copy_(outputs[:, token : token + size])
            token += size
    return list(zip(outputs, state, cell))


def _new_buffers(jobs: Sequence[_Job], tokens_per_block: int) -> _Buffers:
    runs = [job.run for job in jobs]
    layer, inputs = jobs[0].layer, runs[0].inputs
    # Copies, which are written to. Rows of sequences that have ended stay as they are.
    state = torch.stack([run.state for run in runs])
    cell = torch.stack([run.cell for run in runs])
    dtype = layer.state_weight.dtype
    outputs = inputs.new_empty(len(jobs), inputs.size(0), state.size(2))
    return _Buffers(
        inputs.new_empty(len(jobs), tokens_per_block, 4 * cell.size(2), dtype=dtype),
        torch.stack([job.layer.bias for job in jobs]),
        state,
        cell,
        outputs if layer.projection is None else torch.empty_like(cell, dtype=dtype),
        outputs,
    )
