"""LSTM layers in C++: lstm.h."""

import ctypes
import math
from typing import Any, Dict, List, Optional, Sequence

import torch

from elmo_plugin.bilm.simd.library import addresses, c_fields, call
from elmo_plugin.bilm.simd.panels import CMatrix, PanelMatrix, c_matrix, in_panels
from elmo_plugin.bilm.steps import LayerInput, LayerOutput, LSTMTensors
from elmo_plugin.bilm.threads import num_threads_for

# Products of inputs are kept for at least this many tokens: 4 MiB at 4 x 4096 gates. With fewer, weights are
# read too often; with more, the products leave the processor's caches.
TOKENS_PER_BLOCK = 64

# Minimum for each of several threads of a layer. With fewer, they wait for each other longer than they
# compute.
MULTIPLICATIONS_PER_STEP = 500_000

# Layers whose steps read up to this many bytes of weights run side by side, a thread each, as threads of one
# layer have to wait for each other at each step. Larger layers would compete for the processor's cache.
BYTES_SIDE_BY_SIDE = 4 * 1024**2


class PanelLayer:
    """
    An LSTM layer packed for a vector unit. It shares no memory with the layer that it was made from.

    # Attributes

    input_weight : `PanelMatrix`
        A panel holds the gates i, g, f and o of the same cells. With the bias.
    state_weight : `PanelMatrix`
        As `input_weight`, without bias.
    projection : `PanelMatrix`, optional
    sizes : `Dict[str, float]`
        Widths and clips, as `CLayer` names them.
    """

    def __init__(self, layer: LSTMTensors, precision: str, unit: str) -> None:
        matrices = layer.matrices()
        bias = layer.bias.chunk(4)
        self.input_weight = in_panels(next(matrices).chunk(4), precision, unit, bias)
        self.state_weight = in_panels(next(matrices).chunk(4), precision, unit)
        self.projection = None
        if layer.projection is not None:
            self.projection = in_panels([next(matrices)], precision, unit)
        self.sizes = c_sizes(layer)

    def struct(self) -> "CLayer":
        """Return what C++ reads, see `c_matrix`."""
        return CLayer(
            c_matrix(self.input_weight),
            c_matrix(self.state_weight),
            c_matrix(self.projection),
            **self.sizes,
        )


def run_panel_layers(
    layers: Sequence[PanelLayer],
    layer_inputs: Sequence[LayerInput],
    traces: "Optional[Sequence[CTrace]]" = None,
) -> List[LayerOutput]:
    """
    Run layers that do not depend on each other, of the same sizes, vector unit and precision. `traces` are
    written to for a backward pass.
    """
    layer_outputs, structs, sequences, kept_alive = [], [], [], []
    for number, (layer, given) in enumerate(zip(layers, layer_inputs)):
        struct, num_sequences = layer.struct(), given.step_sizes[0]
        inputs = given.inputs.contiguous()
        # Copies, which are written to.
        state = given.state.clone(memory_format=torch.contiguous_format)
        cell = given.cell.clone(memory_format=torch.contiguous_format)
        outputs = inputs.new_empty(inputs.size(0), struct.state_dim)
        layer_outputs.append(LayerOutput(outputs, state, cell))
        kept_alive.append(inputs)
        structs.append(struct)
        num_tokens = sum(given.step_sizes)
        sequences.append(
            CSequences(
                *addresses(
                    (inputs, (num_tokens, struct.input_dim)),
                    (outputs, (num_tokens, struct.state_dim)),
                    (state, (num_sequences, struct.state_dim)),
                    (cell, (num_sequences, struct.cell_size)),
                ),
                (ctypes.c_int64 * len(given.step_sizes))(*given.step_sizes),
                len(given.step_sizes),
                TOKENS_PER_BLOCK,
                CTrace() if traces is None else traces[number],
            )
        )
    first = layers[0]
    call_for_layers(
        "run_panel_layers",
        structs,
        sequences,
        layer_inputs[0],
        first.state_weight,
        first.projection,
    )
    return layer_outputs


def call_for_layers(
    function: str,
    layers: Sequence[ctypes.Structure],
    sequences: Sequence[Any],
    given: LayerInput,
    state_weight: PanelMatrix,
    projection: Optional[PanelMatrix],
) -> None:
    """
    Call a function of the library, in threads.

    # Parameters

    layers, sequences : `Sequence[ctypes.Structure]`
        The arguments of the function.
    given : `LayerInput`
        What one layer reads. The others have sequences of the same lengths.
    state_weight, projection : `PanelMatrix`
        What each step of that layer multiplies by. Those of the others have the same sizes.
    """
    element_size = state_weight.panels.element_size()
    bytes_per_step = state_weight.panels.nbytes + (projection.panels.nbytes if projection else 0)
    num_tokens, num_steps = given.inputs.size(0), len(given.step_sizes)
    multiplications = num_tokens * bytes_per_step / element_size
    most = num_threads_for(len(layers) * multiplications)
    per_layer = max(1, min(most, int(multiplications / num_steps / MULTIPLICATIONS_PER_STEP)))
    num_threads = per_layer
    if bytes_per_step <= BYTES_SIDE_BY_SIDE:
        layers_at_a_time = min(len(layers), most)
        per_layer = min(per_layer, most // layers_at_a_time)
        num_threads = layers_at_a_time * per_layer
    call(
        state_weight.unit,
        function,
        element_size,
        (type(layers[0]) * len(layers))(*layers),
        (type(sequences[0]) * len(sequences))(*sequences),
        len(layers),
        num_threads,
        per_layer,
    )


def c_sizes(layer: LSTMTensors) -> Dict[str, float]:
    """Return widths and clips as `CLayer` names them; a clip is infinite where nothing is clipped."""
    cell_clip, proj_clip = (math.inf if clip is None else clip for clip in layer.options)
    return {
        "input_dim": layer.input_dim,
        "cell_size": layer.cell_size,
        "state_dim": layer.state_dim,
        "cell_clip": cell_clip,
        "proj_clip": proj_clip,
    }


class CLayer(ctypes.Structure):
    _fields_ = [
        *c_fields(CMatrix, "input_weight state_weight projection"),
        *c_fields(ctypes.c_int64, "input_dim cell_size state_dim"),
        *c_fields(ctypes.c_float, "cell_clip proj_clip"),
    ]


class CTrace(ctypes.Structure):
    """What a forward pass keeps of every token for the backward pass."""

    _fields_ = c_fields(ctypes.c_void_p, "values hidden")


class CSequences(ctypes.Structure):
    _fields_ = [
        *c_fields(ctypes.c_void_p, "inputs outputs states cells"),
        ("step_sizes", ctypes.POINTER(ctypes.c_int64)),
        *c_fields(ctypes.c_int64, "num_steps tokens_per_block"),
        ("trace", CTrace),
    ]
