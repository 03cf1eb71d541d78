"""LSTM layers with projection and clipping."""

import functools
from typing import List, Optional, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import linear

from elmo_plugin.bilm.interception import are_plain
from elmo_plugin.bilm.simd.library import unit_of_modules
from elmo_plugin.bilm.simd.lstm import PanelLayer, run_panel_layers
from elmo_plugin.bilm.simd.training import run_with_gradients
from elmo_plugin.bilm.steps import (
    CellOptions,
    LayerInput,
    LayerOutput,
    LSTMTensors,
    PreparedLayer,
    run_loop,
)


class ProjectedLSTM(torch.nn.Module):
    """
    An LSTM layer with projection and clipping, over packed sequences, in bilm-tf's arithmetic:

    `c = clip(sigmoid(f + 1) * c + sigmoid(i) * tanh(g))` and `h = clip((sigmoid(o) * tanh(c)) W_P)`.

    It knows no direction: a backward layer is given reversed sequences. Under autocast, matrices are
    multiplied in autocast's type; everything else is in the type of the weights.

    # Parameters

    input_dim : `int`
        Width of the inputs.
    cell_size : `int`
        Width of the memory cell.
    projection_dim : `int`
        Width of the state. Equal to `cell_size`: no projection and no `proj_clip`, as in bilm-tf.
    options : `CellOptions`
    """

    def __init__(
        self, input_dim: int, cell_size: int, projection_dim: int, options: CellOptions
    ) -> None:
        super().__init__()
        self.input_dim = input_dim
        self.cell_size = cell_size
        self.projection_dim = projection_dim
        self.options = options
        # Gates in TensorFlow's order, as in weight files: i, g, f, o (torch's: i, f, g, o). Columns: input
        # first, then the previous state.
        self.gate_weight = Parameter(torch.empty(4 * cell_size, input_dim + projection_dim))
        self.gate_bias = Parameter(torch.empty(4 * cell_size))
        self.projection: Optional[Parameter] = None
        if cell_size != projection_dim:
            self.projection = Parameter(torch.empty(projection_dim, cell_size))
        # TensorFlow's initial values: Glorot uniform, biases 0. It has one matrix for inputs and states, so
        # one fan-in and fan-out.
        torch.nn.init.xavier_uniform_(self.gate_weight)
        torch.nn.init.zeros_(self.gate_bias)
        if self.projection is not None:
            torch.nn.init.xavier_uniform_(self.projection)

    def tensors(self) -> LSTMTensors:
        """Return the tensors of a pass, with gradients if these are on."""
        # TensorFlow adds 1 to the bias of the forget gate at run time; the stored bias is the file's.
        ones = self.gate_bias.new_ones(self.cell_size)
        forget_bias = torch.nn.functional.pad(ones, (2 * self.cell_size, self.cell_size))
        return LSTMTensors(
            self.gate_weight,
            self.gate_bias + forget_bias,
            self.projection,
            self.options,
        )

    def forward(
        self, inputs: Tensor, step_sizes: List[int], state: Tensor, cell: Tensor
    ) -> LayerOutput:
        """Run one direction. The arguments are the fields of a `LayerInput`: hooks see tensors."""
        return _run_plain_layers([self], [LayerInput(inputs, step_sizes, state, cell)])[0]


def run_directions(
    layers: Sequence[ProjectedLSTM], layer_inputs: Sequence[LayerInput]
) -> List[LayerOutput]:
    """Run layers that do not depend on each other, such as those of the two directions."""
    if not are_plain([(layer, ProjectedLSTM) for layer in layers]):
        # A layer with hooks, or an adapter in its place, has to be called.
        return [LayerOutput(*layer(*given)) for layer, given in zip(layers, layer_inputs)]
    return _run_plain_layers(layers, layer_inputs)


def _run_plain_layers(
    layers: Sequence[ProjectedLSTM], layer_inputs: Sequence[LayerInput]
) -> List[LayerOutput]:
    """Run layers by the C++ library where it is compiled for the processor, else by torch's operations."""
    tensors = [layer.tensors() for layer in layers]
    weights = [layer.weight for layer in tensors]
    layer_inputs = [
        LayerInput(inputs.to(weight), step_sizes, state.to(weight), cell.to(weight))
        for weight, (inputs, step_sizes, state, cell) in zip(weights, layer_inputs)
    ]
    like = weights[0]
    device_type, product_type = like.device.type, like.dtype
    if torch.is_autocast_enabled(device_type):
        product_type = torch.get_autocast_dtype(device_type)
    unit = unit_of_modules(like, product_type)
    if unit is None or any(weight.dtype != torch.float32 for weight in weights):
        prepared = [
            PreparedLayer.of(layer, lambda weight: functools.partial(linear, weight=weight))
            for layer in tensors
        ]
        return [run_loop(layer, given) for layer, given in zip(prepared, layer_inputs)]
    precision = str(product_type).removeprefix("torch.")
    # Autocast's own casts do not reach tensors that are written to.
    with torch.autocast(device_type, enabled=False):
        if torch.is_grad_enabled() and any(map(_requires_gradients, tensors, layer_inputs)):
            return run_with_gradients(tensors, layer_inputs, precision, unit)
        panels = [PanelLayer(layer, precision, unit) for layer in tensors]
        return run_panel_layers(panels, layer_inputs)


def _requires_gradients(layer: LSTMTensors, given: LayerInput) -> bool:
    # Inputs of a frozen layer do if a hook trains an adapter of the layer before it.
    tensors = (layer.weight, layer.bias, layer.projection, given.inputs, given.state, given.cell)
    return any(tensor is not None and tensor.requires_grad for tensor in tensors)
