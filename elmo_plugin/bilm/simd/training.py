"""LSTM layers in C++ with gradients: lstm.h forward, lstm_backward.h backward."""

import ctypes
import itertools
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from elmo_plugin.bilm.simd.library import CMatrix, c_matrix, in_panels, pointer
from elmo_plugin.bilm.simd.lstm import CTrace, PanelLayer, call, clips, run_layers
from elmo_plugin.bilm.steps import LSTMTensors, Outcome, Run


class Products(NamedTuple):
    """How matrices are multiplied: in `dtype`, float32 or bfloat16, by the library of the vector unit."""

    dtype: torch.dtype
    unit: str

    @property
    def precision(self) -> str:
        """The name of the type."""
        return str(self.dtype).removeprefix("torch.")


def run_with_gradients(
    layers: Sequence[LSTMTensors], runs: Sequence[Run], products: Products
) -> List[Outcome]:
    """Run layers that do not depend on each other. Autograd follows it."""
    jobs = [_Job.of(layer, run) for layer, run in zip(layers, runs)]
    settings = [
        _Settings(run.step_sizes, layer.cell_clip, layer.proj_clip, products)
        for layer, run in zip(layers, runs)
    ]
    flat = _LSTMs.apply(settings, *itertools.chain(*jobs))
    return [Outcome(*flat[start : start + 3]) for start in range(0, len(flat), 3)]


class _Settings(NamedTuple):
    """What a pass of a layer depends on beside tensors."""

    step_sizes: List[int]
    cell_clip: Optional[float]
    proj_clip: Optional[float]
    products: Products


class _Job(NamedTuple):
    """A layer and what it reads, as the tensors that may need gradients; see `LSTMTensors` and `Run`."""

    inputs: Tensor
    weight: Tensor
    bias: Tensor
    projection: Optional[Tensor]
    state: Tensor
    cell: Tensor

    @classmethod
    def of(cls, layer: LSTMTensors, run: Run) -> "_Job":
        return cls(run.inputs, layer.weight, layer.bias, layer.projection, run.state, run.cell)

    def layer(self, settings: _Settings) -> LSTMTensors:
        return LSTMTensors(
            self.weight, self.bias, self.projection, settings.cell_clip, settings.proj_clip
        )


class _Trace(NamedTuple):
    """What the forward pass computes for every token and the backward pass needs."""

    gates: Tensor  # (num_tokens, 4 * cell_size), after sigmoid and tanh
    cells: Tensor  # (num_tokens, cell_size), clipped
    tanh_cells: Tensor  # (num_tokens, cell_size)
    hidden: (
        Tensor  # (num_tokens, cell_size), before the projection; the outputs where there is none
    )
    outputs: Tensor  # (num_tokens, state_dim)


class _LSTMs(torch.autograd.Function):
    """Several layers at once, each given as the fields of a `_Job`."""

    @staticmethod
    def forward(
        ctx: Any, settings: List[_Settings], *tensors: Optional[Tensor]
    ) -> Tuple[Tensor, ...]:
        jobs = _grouped(tensors, _Job)
        layers = [job.layer(setting) for job, setting in zip(jobs, settings)]
        products = settings[0].products
        traces = [_new_trace(layer, len(job.inputs)) for layer, job in zip(layers, jobs)]
        outcomes = run_layers(
            [PanelLayer.of(layer, products.precision, products.unit) for layer in layers],
            [
                Run(job.inputs, setting.step_sizes, job.state, job.cell)
                for job, setting in zip(jobs, settings)
            ],
            [CTrace(*map(pointer, trace)) for trace in traces],
        )
        saved = [
            # Without a projection, hidden values are the outputs.
            (*[*trace, outcome.outputs][:4], outcome.outputs)
            for trace, outcome in zip(traces, outcomes)
        ]
        ctx.settings = settings
        ctx.save_for_backward(*tensors, *itertools.chain(*saved))
        return tuple(itertools.chain(*outcomes))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tuple[Optional[Tensor], ...]:
        # Read once: tensors that were recomputed for this pass can be read only once.
        tensors = ctx.saved_tensors
        num_tensors = len(_Job._fields) * len(ctx.settings)
        passes = [
            _BackwardPass(*parts)
            for parts in zip(
                ctx.settings,
                _grouped(tensors[:num_tensors], _Job),
                _grouped(tensors[num_tensors:], _Trace),
                _grouped(gradients, Outcome),
                ctx.needs_input_grad[1 :: len(_Job._fields)],
            )
        ]
        return (None, *itertools.chain(*_run_backward(passes)))


class _BackwardPass(NamedTuple):
    settings: _Settings
    job: _Job
    trace: _Trace
    gradients: Outcome  # of what the forward pass gave
    needs_input_gradient: bool


def _new_trace(layer: LSTMTensors, num_tokens: int) -> List[Tensor]:
    """Return gates, cells, tanh of cells and, with a projection, hidden values, to be written."""
    widths = [4 * layer.cell_size, layer.cell_size, layer.cell_size]
    if layer.projection is not None:
        widths.append(layer.cell_size)
    return [layer.weight.new_empty(num_tokens, width) for width in widths]


def _run_backward(passes: Sequence[_BackwardPass]) -> List[_Job]:
    """Return the gradients of the tensors of each job: steps in C++, one product for each weight."""
    products = passes[0].settings.products
    structs, kept_alive, results = [], [], []
    for settings, job, trace, gradients, _ in passes:
        layer = job.layer(settings)
        weight, projection = layer.weight.detach(), layer.projection
        state_panels = in_panels(
            weight[:, layer.input_dim :].t()[None], products.precision, products.unit
        )
        projection_panels = None
        if projection is not None:
            projection_panels = in_panels(
                projection.detach().t()[None], products.precision, products.unit
            )
        # Copies: the pass turns the gradients of what the layer gave into those of what it read.
        of_outputs, of_state, of_cell = (
            gradient.clone(memory_format=torch.contiguous_format) for gradient in gradients
        )
        of_gates = torch.empty_like(trace.gates)
        step_sizes = torch.tensor(settings.step_sizes, dtype=torch.long, device="cpu")
        first_cells = job.cell.contiguous()
        kept_alive.append((state_panels, projection_panels, step_sizes, first_cells))
        structs.append(
            (
                _CBackwardLayer(
                    c_matrix(state_panels),
                    c_matrix(projection_panels),
                    layer.cell_size,
                    layer.state_dim,
                    *clips(layer),
                ),
                _CBackwardSequences(
                    pointer(step_sizes, torch.long),
                    len(step_sizes),
                    CTrace(*map(pointer, (trace.gates, trace.cells, trace.tanh_cells))),
                    pointer(trace.outputs),
                    pointer(first_cells, shape=of_cell.shape),
                    pointer(of_outputs, shape=trace.outputs.shape),
                    pointer(of_state, shape=job.state.shape),
                    pointer(of_cell, shape=job.cell.shape),
                    pointer(of_gates),
                ),
            )
        )
        results.append((layer, of_gates, of_outputs, of_state, of_cell))
    num_steps = len(passes[0].settings.step_sizes)
    rows_per_step = len(passes[0].trace.outputs) / num_steps
    call("run_layers_backward", structs, rows_per_step, *kept_alive[0][:2])
    return [_gradients(one, *result, products.dtype) for one, result in zip(passes, results)]


def _gradients(
    one: _BackwardPass,
    layer: LSTMTensors,
    of_gates: Tensor,
    of_projected: Tensor,
    of_state: Tensor,
    of_cell: Tensor,
    dtype: torch.dtype,
) -> Any:
    """Return the gradients of a job's tensors from those of its gates and of what left its projection."""

    def product(left: Tensor, right: Tensor) -> Tensor:
        return torch.mm(left.to(dtype), right.to(dtype)).float()

    starts = itertools.accumulate([0, *one.settings.step_sizes])
    outputs = one.trace.outputs
    # What each step read: (num_tokens, state_dim)
    states = torch.cat(
        [
            one.job.state,
            *(
                outputs[start : start + size]
                for start, size in zip(starts, one.settings.step_sizes[1:])
            ),
        ]
    )
    read = torch.cat([one.job.inputs, states], dim=1)
    return _Job(
        product(of_gates, layer.weight[:, : layer.input_dim]) if one.needs_input_gradient else None,  # type: ignore[arg-type]
        product(of_gates.t(), read),
        of_gates.sum(dim=0),
        None if layer.projection is None else product(of_projected.t(), one.trace.hidden),
        of_state,
        of_cell,
    )


def _grouped(tensors: Sequence[Any], group: Any) -> List[Any]:
    """Cut a sequence into groups of the fields of `group`, a `NamedTuple`."""
    size = len(group._fields)
    return [group(*tensors[start : start + size]) for start in range(0, len(tensors), size)]


class _CBackwardLayer(ctypes.Structure):
    _fields_ = [
        ("state_weight", CMatrix),
        ("projection", CMatrix),
        ("cell_size", ctypes.c_int64),
        ("state_dim", ctypes.c_int64),
        ("cell_clip", ctypes.c_float),
        ("proj_clip", ctypes.c_float),
    ]


class _CBackwardSequences(ctypes.Structure):
    _fields_ = [
        ("step_sizes", ctypes.c_void_p),
        ("num_steps", ctypes.c_int64),
        ("trace", CTrace),
        ("outputs", ctypes.c_void_p),
        ("first_cells", ctypes.c_void_p),
        ("output_gradients", ctypes.c_void_p),
        ("state_gradients", ctypes.c_void_p),
        ("cell_gradients", ctypes.c_void_p),
        ("gate_gradients", ctypes.c_void_p),
    ]
