"""Both directions of a layer together on NVIDIA GPUs, in two launches a step."""

import functools
import importlib.metadata
import subprocess
from typing import Iterable, List, Optional, Sequence

import torch
from torch import Tensor

from elmo_plugin.bilm.runners.reference_runner import encoder_in_torch
from elmo_plugin.bilm.runners.runner import Runner, frozen_encoder
from elmo_plugin.bilm.steps import (
    LayerInput,
    LayerOutput,
    LSTMTensors,
    PreparedLayer,
    blocks_of_steps,
)

# Products of inputs are kept for about this many tokens of each direction: in float32 64 MiB at 4 x 4096
# gates.
TOKENS_PER_BLOCK = 1024

# Earlier ones do not compile a product of few rows in float32.
OLDEST_TRITON = (3, 6)

_PRECISIONS = ("float32", "bfloat16")


class TritonRunner(Runner):
    """
    Inputs are multiplied before the loop over time, a block of steps at once. Then a step of both directions
    is two launches: one computes gates, cells and hidden values, the other projects them. From step to step
    nothing allocates memory or waits for the GPU.

    A step of the original's shape reads 84 MB of weights for states in float32, or 42 in bfloat16, for one
    sentence or many. float32 is multiplied as three products of TF32, whose sum is as exact as float32.
    (Products of inputs are torch's: see `torch.backends.cuda.matmul.allow_tf32`.)

    `bfloat16` rounds weights, rows and the products of inputs; sums, cells and states are float32.

    Triton compiles functions when they are first called, some seconds in all, and keeps them on disk. The
    loop is not captured as a CUDA graph, which would be needed for each shape of a batch.
    """

    name = "triton"
    device_type = "cuda"

    @classmethod
    def unsupported_reason(cls, precision: str, device: torch.device) -> Optional[str]:
        if precision not in _PRECISIONS:
            return f"it has no {precision}"
        if device.type != cls.device_type:
            return f"it runs on NVIDIA GPUs, not on {device.type}"
        return _gpu_problem(device)

    @classmethod
    def prepare(
        cls, encoder: torch.nn.Module, layers: Iterable[LSTMTensors], precision: str
    ) -> "TritonRunner":
        encode = frozen_encoder(encoder, lambda one: encoder_in_torch(one, precision))

        def copied(weight: Tensor) -> Tensor:
            dtype = getattr(torch, precision)
            return weight.detach().to(dtype, copy=True, memory_format=torch.contiguous_format)

        prepared = [PreparedLayer.of(layer, copied) for layer in layers]
        return cls(encode, prepared, _run_together)


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


def _gpu_problem(device: torch.device) -> Optional[str]:
    """Return why Triton's kernels cannot run on a GPU here; `None` if they can."""
    problem = triton_problem()
    if problem is not None:
        return problem
    if not torch.cuda.is_available() or torch.version.hip is not None:
        return "torch finds no NVIDIA GPU here"
    capability = torch.cuda.get_device_capability(device)
    if capability < (8, 0):
        return f"it needs compute capability 8.0, and this GPU has {capability[0]}.{capability[1]}"
    return _start_problem()


@functools.cache
def _start_problem() -> Optional[str]:
    from triton.runtime import driver

    try:
        # Compiles a small library when it is first called on a machine.
        driver.active.get_current_target()
    except (AssertionError, OSError, RuntimeError, subprocess.CalledProcessError) as error:
        return (
            f"Triton does not start here, which takes a C compiler and Python's headers ({error})"
        )
    return None


def _run_together(
    layers: Sequence[PreparedLayer], layer_inputs: List[LayerInput]
) -> List[LayerOutput]:
    """Run both directions of a layer, which have the same sizes."""
    # Not at the top: it imports Triton, which takes time.
    from elmo_plugin.bilm.runners import triton_steps

    like = layer_inputs[0].inputs
    state_weights = [layer.for_states for layer in layers]
    projections = [layer.projection for layer in layers if layer.projection is not None]
    # What is multiplied has the type of the weights.
    dtype = state_weights[0].dtype
    blocks = blocks_of_steps(layer_inputs[0].step_sizes, TOKENS_PER_BLOCK)
    tokens_per_block = max(sum(sizes) for sizes in blocks)
    # What the kernels read and write, `(num_directions, ...)`. State and cell are copies, written to except
    # in rows of sequences that have ended.
    bias = torch.stack([layer.bias for layer in layers])  # (..., 4 * cell_size)
    state = torch.stack([given.state for given in layer_inputs])  # (..., num_sequences, state_dim)
    cell = torch.stack([given.cell for given in layer_inputs])  # (..., num_sequences, cell_size)
    products = like.new_empty(len(layer_inputs), tokens_per_block, bias.size(1), dtype=dtype)
    outputs = like.new_empty(len(layer_inputs), like.size(0), state.size(2))
    # Without a projection, hidden values are the outputs.
    hidden = torch.empty_like(cell, dtype=dtype) if projections else outputs
    cell_clip, proj_clip = layers[0].options
    write_hidden = triton_steps.hidden_launcher(
        products, bias, state, cell, hidden, state_weights, cell_clip
    )
    if projections:
        write_state = triton_steps.state_launcher(hidden, state, outputs, projections, proj_clip)
    token = 0
    with torch.cuda.device_of(like):  # Triton launches on the current device.
        for sizes in blocks:
            block = slice(token, token + sum(sizes))
            for layer, given, own_products in zip(layers, layer_inputs, products):
                inputs = given.inputs[block].to(products.dtype)
                torch.mm(inputs, layer.for_inputs.t(), out=own_products[: inputs.size(0)])
            for size in sizes:
                if projections:
                    write_hidden(size, token - block.start, 0)
                    write_state(size, token)
                else:
                    write_hidden(size, token - block.start, token)
                    state[:, :size].copy_(outputs[:, token : token + size])
                token += size
    return [LayerOutput(*tensors) for tensors in zip(outputs, state, cell)]
