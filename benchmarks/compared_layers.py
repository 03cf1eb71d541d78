"""AllenNLP's and torch's parts of a biLM with the weights of ours, behind one interface, to be timed."""

import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Callable, List, Optional, Sequence, Tuple

import torch
from allennlp.modules.elmo import _ElmoCharacterEncoder
from allennlp.modules.elmo_lstm import ElmoLstm
from allennlp.modules.lstm_cell_with_projection import LstmCellWithProjection
from torch import Tensor
from torch.nn import Module, ModuleList

from elmo_plugin import BiLM
from elmo_plugin.bilm.checkpoints import with_swapped_gates
from elmo_plugin.bilm.lstm import ProjectedLSTM, State
from elmo_plugin.pretraining import BiLMTrainingModel


class AllenNLPLayer(Module):
    """A cell of AllenNLP's `ElmoLstm` with the weights of a `ProjectedLSTM`, called like it."""

    def __init__(self, layer: ProjectedLSTM) -> None:
        super().__init__()
        self.cell = LstmCellWithProjection(
            layer.input_dim,
            layer.projection_dim,
            layer.cell_size,
            memory_cell_clip_value=layer.cell_clip,
            state_projection_clip_value=layer.proj_clip,
        )
        copy_weights(layer, self.cell)

    def forward(
        self, inputs: Tensor, step_sizes: List[int], initial_state: Optional[State] = None
    ) -> Tuple[Tensor, State]:
        num_steps, num_rows = len(step_sizes), step_sizes[0]
        if initial_state is not None:
            initial_state = (initial_state[0].unsqueeze(0), initial_state[1].unsqueeze(0))
        windows = inputs.view(num_steps, num_rows, -1).transpose(0, 1)
        outputs, (state, cell) = self.cell(windows, [num_steps] * num_rows, initial_state)
        return outputs.transpose(0, 1).flatten(0, 1), (state.squeeze(0), cell.squeeze(0))


class TorchLayer(Module):
    """torch's LSTM with the weights of a `ProjectedLSTM`, called like it; it does not clip."""

    def __init__(self, layer: ProjectedLSTM) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(layer.input_dim, layer.cell_size, proj_size=layer.projection_dim)
        self.lstm.load_state_dict(
            {
                "weight_ih_l0": with_swapped_gates(layer.gate_weight[:, : layer.input_dim]),
                "weight_hh_l0": with_swapped_gates(layer.gate_weight[:, layer.input_dim :]),
                "bias_ih_l0": with_swapped_gates(layer.gate_bias + layer.forget_bias),
                "bias_hh_l0": torch.zeros_like(layer.gate_bias),
                "weight_hr_l0": layer.projection,
            }
        )

    def forward(
        self, inputs: Tensor, step_sizes: List[int], initial_state: Optional[State] = None
    ) -> Tuple[Tensor, State]:
        if initial_state is not None:
            initial_state = (initial_state[0].unsqueeze(0), initial_state[1].unsqueeze(0))
        windows = inputs.view(len(step_sizes), step_sizes[0], -1)
        outputs, (state, cell) = self.lstm(windows, initial_state)
        return outputs.flatten(0, 1), (state.squeeze(0), cell.squeeze(0))


class OtherBiLM(BiLM):
    """A biLM whose layers are of another kind."""

    def run_layers(
        self,
        inputs: Sequence[Tensor],
        step_sizes: List[int],
        initial_states: Optional[Sequence[State]] = None,
        drop: Optional[Callable[[Tensor], Tensor]] = None,
    ) -> Tuple[List[Tuple[Tensor, Tensor]], List[State]]:
        outputs: List[Tuple[Tensor, Tensor]] = []
        final_states: List[State] = []
        for number, both in enumerate(zip(self.forward_layers, self.backward_layers)):
            if drop is not None:
                inputs = [drop(vectors) for vectors in inputs]
            tops = []
            for layer, vectors in zip(both, inputs):
                state = None if initial_states is None else initial_states[len(final_states)]
                top, final_state = layer(vectors, step_sizes, state)
                tops.append(top if number == 0 else top + vectors)
                final_states.append(final_state)
            outputs.append((tops[0], tops[1]))
            inputs = outputs[-1]
        return outputs, final_states


class Stacks(Module):
    """The LSTM layers of a biLM over windows `(rows, steps, width)`, run as BiLMTrainingModel runs them."""

    def __init__(self, bilm: BiLM) -> None:
        super().__init__()
        self.bilm = bilm
        self._states: Optional[List[State]] = None

    def forward(self, windows: Tensor) -> Tensor:
        """The top outputs of both directions, `(rows, steps, 2 * width)`."""
        num_rows, num_steps, _ = windows.shape
        # (steps * rows, width) each
        inputs = [stream.transpose(0, 1).flatten(0, 1) for stream in (windows, windows.flip(1))]
        layers, states = self.bilm.run_layers(inputs, [num_rows] * num_steps, self._states)
        self._states = [(state.detach(), cell.detach()) for state, cell in states]
        tops = [top.view(num_steps, num_rows, -1).transpose(0, 1) for top in layers[-1]]
        return torch.cat([tops[0], tops[1].flip(1)], dim=2)


class ElmoLstmStacks(Module):
    """AllenNLP's `ElmoLstm` with the weights of a biLM, called like `Stacks`. It carries states itself."""

    def __init__(self, bilm: BiLM) -> None:
        super().__init__()
        options = bilm.options
        self.elmo_lstm = ElmoLstm(
            input_size=options.projection_dim,
            hidden_size=options.projection_dim,
            cell_size=options.cell_size,
            num_layers=options.num_layers,
            requires_grad=True,
            memory_cell_clip_value=options.cell_clip,
            state_projection_clip_value=options.proj_clip,
        ).requires_grad_(True)
        cells = [*self.elmo_lstm.forward_layers, *self.elmo_lstm.backward_layers]
        for layer, cell in zip([*bilm.forward_layers, *bilm.backward_layers], cells):
            copy_weights(layer, cell)

    def forward(self, windows: Tensor) -> Tensor:
        mask = torch.ones(windows.shape[:2], dtype=torch.bool, device=windows.device)
        return self.elmo_lstm(windows, mask)[-1]


class EncodingEveryWord(BiLMTrainingModel):
    """A training model whose character encoder is AllenNLP's and encodes all words, as in its `Elmo`."""

    def _encode(self, words: Tensor) -> Tensor:
        # As one sentence; AllenNLP's encoder puts its marks around it.
        encoded = self.bilm.character_encoder(words.long().unsqueeze(0))["token_embedding"]
        return encoded[0, 1:-1]


def with_allennlp_encoder(model: BiLMTrainingModel, bilm: BiLM) -> BiLMTrainingModel:
    """The same model, with AllenNLP's character encoder, of the weights of `bilm`."""
    with TemporaryDirectory() as folder:
        options_path, weight_path = Path(folder, "options.json"), Path(folder, "weights.hdf5")
        bilm.save(options_path, weight_path)
        model.bilm.character_encoder = _ElmoCharacterEncoder(
            str(options_path), str(weight_path), requires_grad=True
        )
    model.__class__ = EncodingEveryWord
    return model


def copy_weights(layer: ProjectedLSTM, cell: LstmCellWithProjection) -> None:
    """AllenNLP's gates stand in torch's order, and its bias includes what ours adds for the forget gate."""
    cell.load_state_dict(
        {
            "input_linearity.weight": with_swapped_gates(layer.gate_weight[:, : layer.input_dim]),
            "state_linearity.weight": with_swapped_gates(layer.gate_weight[:, layer.input_dim :]),
            "state_linearity.bias": with_swapped_gates(layer.gate_bias + layer.forget_bias),
            "state_projection.weight": layer.projection,
        }
    )


def with_layers(bilm: BiLM, layer_class: Callable[..., Module]) -> BiLM:
    """A copy of a biLM with layers of another kind, of the same weights."""
    bilm = copy.deepcopy(bilm)
    bilm.__class__ = OtherBiLM
    bilm.forward_layers = ModuleList(layer_class(layer) for layer in bilm.forward_layers)
    bilm.backward_layers = ModuleList(layer_class(layer) for layer in bilm.backward_layers)
    return bilm
