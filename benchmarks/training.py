"""
Compare a training step of a biLM with our LSTM layers, in float32 and, where the processor has products of
bfloat16, in those, with the same biLM on AllenNLP's LSTM cells and on torch's `nn.LSTM`, from the same
weights, in one process; and with the time that its products of matrices would take alone.

    python benchmarks/training.py
"""

import argparse
import copy
import itertools
import string
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from allennlp.data import Vocabulary
from allennlp.modules.elmo import _ElmoCharacterEncoder
from allennlp.modules.lstm_cell_with_projection import LstmCellWithProjection
from measurement import (
    PEAK_SIZES,
    Run,
    Table,
    peak_product,
    peak_speed,
    run_benchmark,
    spread_note,
    time_in_turns,
)
from torch import Tensor
from torch.nn import Module, ModuleList
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from elmo_plugin import BiLM, batch_to_ids
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.allennlp_names import with_swapped_gates
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.options import CharacterEncoderOptions
from elmo_plugin.bilm.processor import has_bfloat16_products
from elmo_plugin.bilm.steps import LayerInput, LayerOutput, RunLayer, State
from elmo_plugin.pretraining import BiLMTrainingModel, SampledSoftmax
from elmo_plugin.pretraining.recovery import keep_freed_memory

OURS, OURS_BFLOAT16 = "elmo_plugin, float32", "elmo_plugin, bfloat16"
ALLENNLP, TORCH = "AllenNLP's LSTM cells", "torch's nn.LSTM(proj_size), which cannot clip"
ALLENNLP_ENCODER = "AllenNLP's LSTM cells and character encoder"
PRECISION_OF = {OURS: "float32", OURS_BFLOAT16: "bfloat16"}

ROWS, STEPS = 128, 20
TOLERANCE = 1e-4
NUM_BATCHES = 8  # different ones, read in a circle
DROPOUT = 0.1
# With bilm-tf's 0.2, training on made-up words diverges, and exponentials of such logits take ten times as
# long.
LEARNING_RATE = 0.002


class Shape(NamedTuple):
    """Sizes of a biLM, words that its softmax samples, words of its vocabulary."""

    options: BiLMOptions
    num_samples: int
    num_words: int


MINI_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 128))
MINI = BiLMOptions(
    CharacterEncoderOptions(filters=MINI_FILTERS, num_highway=1), cell_size=512, projection_dim=128
)
SMALL = BiLMOptions(CharacterEncoderOptions(num_highway=1), cell_size=1024, projection_dim=128)
SHAPES = {
    "mini (2 layers of 512 cells, projected to 128)": Shape(MINI, 2048, 20_000),
    "small (2 layers of 1024 cells, projected to 128)": Shape(SMALL, 8192, 50_000),
}


def main(argv: Optional[List[str]] = None) -> None:
    run_benchmark(__doc__, ("device", "threads", "rounds", "seconds"), tables, argv)


def tables(settings: argparse.Namespace) -> Iterator[Table]:
    """Yield a table for each shape: times of a step."""
    # float32 means float32 to all: by default cuDNN, nn.LSTM's kernel, would round to TF32.
    torch.backends.cudnn.allow_tf32 = False
    device = torch.device(settings.device)
    if device.type == "cpu":
        keep_freed_memory()  # as `elmo pretrain` does
    for name, shape in SHAPES.items():
        torch.manual_seed(0)
        steps = model_steps(shape, device)
        # Of the contender whose products are all torch's, which can count those.
        with FlopCounterMode(display=False) as operations:
            steps[ALLENNLP]()
        peaks = {
            f"peak {contender}": peak_product(precision, device)
            for contender, precision in PRECISION_OF.items()
            if contender in steps
        }
        measured = time_in_turns(name, {**steps, **peaks}, settings.rounds, settings.seconds)
        baseline = measured[ALLENNLP].median
        rows = []
        for contender in steps:
            median = measured[contender].median
            row = {
                "contender": contender,
                "ms": round(1000 * median, 1),
                "words/s": round(ROWS * STEPS / median),
                "times AllenNLP's": round(baseline / median, 2),
            }
            if contender in PRECISION_OF:
                peak = peak_speed(measured[f"peak {contender}"], device)
                row["products alone, ms"] = round(1000 * operations.get_total_flops() / peak, 1)
            rows.append(row)
        yield Table(
            f"Training, {name}",
            rows,
            f"A step on {ROWS} rows of {STEPS} words: character encoder, LSTMs, dropout, sampled softmax "
            f"({shape.num_samples:,} of {shape.num_words:,} words), backward and Adagrad, on made-up words "
            "as frequent as Zipf's law has it. Contenders differ in their LSTM layers alone, except the "
            "last, whose character encoder is AllenNLP's too and encodes a word each time. Products alone: "
            "those of LSTMs, softmax and highway layers at the speed of the fastest torch.mm of two "
            f"{PEAK_SIZES[device.type]} x {PEAK_SIZES[device.type]} matrices. "
            + spread_note(list(measured.values())),
        )


def model_steps(shape: Shape, device: torch.device) -> Dict[str, Run]:
    """
    Return each contender's step, after the check that the losses agree. AllenNLP's layers are the cells of
    its `ElmoLstm`, which as a whole has no dropout between layers and reads the same words both ways.
    """
    softmax = SampledSoftmax(
        shape.num_words, shape.options.projection_dim, shape.num_samples, sparse_gradients=True
    )
    ours = BiLMTrainingModel(Vocabulary(), BiLM(shape.options), softmax, DROPOUT)
    names = [OURS, ALLENNLP, TORCH, ALLENNLP_ENCODER]
    if has_bfloat16_products(device):
        names.insert(1, OURS_BFLOAT16)
    contenders = {name: copy.deepcopy(ours) for name in names}
    if OURS_BFLOAT16 in contenders:
        contenders[OURS_BFLOAT16].precision = "bfloat16"
    contenders[TORCH].bilm = with_layers(ours.bilm, torch_layer)
    for name in (ALLENNLP, ALLENNLP_ENCODER):
        contenders[name].bilm = with_layers(ours.bilm, AllenNLPLayer)
    set_allennlp_encoder(contenders[ALLENNLP_ENCODER], ours.bilm)
    batches = random_batches(shape.num_words, device)

    def new_step(model: BiLMTrainingModel) -> Run:
        optimizer = torch.optim.Adagrad(
            model.parameters(), lr=LEARNING_RATE, initial_accumulator_value=1.0
        )
        turns = itertools.cycle(batches)

        def step() -> None:
            model(**next(turns))["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    for model in contenders.values():
        model.to(device)
    for seed, batch in enumerate(batches[:2]):
        losses = []
        for name in (OURS, ALLENNLP, ALLENNLP_ENCODER):
            torch.manual_seed(seed)  # the same dropout and the same sampled words
            losses.append(contenders[name](**batch)["loss"] / STEPS)
        assert_close(losses[0], losses[1], atol=TOLERANCE, rtol=0)
        assert_close(losses[0], losses[2], atol=TOLERANCE, rtol=0)
    return {name: new_step(model) for name, model in contenders.items()}


def random_batches(num_words: int, device: torch.device) -> List[Dict[str, Any]]:
    """Return arguments of BiLMTrainingModel: made-up words, each as frequent as the softmax expects."""
    letters = torch.randint(len(string.ascii_lowercase), (num_words, 12))
    lengths = torch.randint(1, 13, (num_words,))
    words = [
        "".join(string.ascii_lowercase[letter] for letter in word[:length])
        for word, length in zip(letters.tolist(), lengths.tolist())
    ]
    spelled = batch_to_ids([words])[0].to(device)  # (num_words, 50)
    batches: List[Dict[str, Any]] = []
    for _ in range(NUM_BATCHES):
        uniform = torch.rand(ROWS, STEPS + 1, dtype=torch.float64)
        text = ((num_words + 1) ** uniform - 1).long().clamp_max(num_words - 1).to(device)
        batch: Dict[str, Any] = {"lengths": [STEPS] * ROWS}
        for direction, stream in (("forward", text), ("backward", text.flip(1))):
            batch[f"{direction}_inputs"] = spelled[stream[:, :-1]]
            batch[f"{direction}_targets"] = stream[:, 1:]
        batches.append(batch)
    return batches


class AllenNLPLayer(Module):
    """A cell of AllenNLP's `ElmoLstm` with the weights of a `ProjectedLSTM`, called like one."""

    def __init__(self, layer: ProjectedLSTM) -> None:
        super().__init__()
        self.cell = LstmCellWithProjection(
            layer.input_dim,
            layer.projection_dim,
            layer.cell_size,
            memory_cell_clip_value=layer.options.cell_clip,
            state_projection_clip_value=layer.options.proj_clip,
        )
        copy_weights(layer, self.cell)

    def forward(self, windows: Tensor, state: Optional[State] = None) -> Tuple[Tensor, State]:
        num_steps, num_rows, _ = windows.shape
        outputs, state = self.cell(windows.transpose(0, 1), [num_steps] * num_rows, state)
        return outputs.transpose(0, 1), state


def torch_layer(layer: ProjectedLSTM) -> torch.nn.LSTM:
    """Return torch's LSTM with the weights of a `ProjectedLSTM`; it does not clip."""
    lstm = torch.nn.LSTM(layer.input_dim, layer.cell_size, proj_size=layer.projection_dim)
    lstm.load_state_dict(
        {
            "weight_ih_l0": with_swapped_gates(layer.gate_weight[:, : layer.input_dim]),
            "weight_hh_l0": with_swapped_gates(layer.gate_weight[:, layer.input_dim :]),
            "bias_ih_l0": with_swapped_gates(layer.tensors().bias),
            "bias_hh_l0": torch.zeros_like(layer.gate_bias),
            "weight_hr_l0": layer.projection,
        }
    )
    return lstm


class OtherBiLM(BiLM):
    """A biLM whose layers are of another library."""

    @property
    def layers(self) -> Sequence[RunLayer]:
        return [partial(run_rows, both) for both in zip(self.forward_layers, self.backward_layers)]


def run_rows(layers: Sequence[Module], layer_inputs: Sequence[LayerInput]) -> List[LayerOutput]:
    """Run layers that read rows of one length: (steps, rows, width), and states (1, rows, ...)."""
    outputs = []
    for layer, (inputs, step_sizes, state, cell) in zip(layers, layer_inputs):
        rows = inputs.view(len(step_sizes), step_sizes[0], -1)
        top, (state, cell) = layer(rows, (state.unsqueeze(0), cell.unsqueeze(0)))
        outputs.append(LayerOutput(top.flatten(0, 1), state.squeeze(0), cell.squeeze(0)))
    return outputs


def with_layers(bilm: BiLM, new_layer: Callable[..., Module]) -> BiLM:
    """Return a copy of a biLM with layers of another library, of the same weights."""
    bilm = copy.deepcopy(bilm)
    bilm.__class__ = OtherBiLM
    bilm.forward_layers = ModuleList(new_layer(layer) for layer in bilm.forward_layers)
    bilm.backward_layers = ModuleList(new_layer(layer) for layer in bilm.backward_layers)
    return bilm


def copy_weights(layer: ProjectedLSTM, cell: LstmCellWithProjection) -> None:
    """Copy our weights. AllenNLP's gates are in torch's order, and its bias includes our forget bias."""
    cell.load_state_dict(
        {
            "input_linearity.weight": with_swapped_gates(layer.gate_weight[:, : layer.input_dim]),
            "state_linearity.weight": with_swapped_gates(layer.gate_weight[:, layer.input_dim :]),
            "state_linearity.bias": with_swapped_gates(layer.tensors().bias),
            "state_projection.weight": layer.projection,
        }
    )


class EncodingEveryWord(BiLMTrainingModel):
    """A training model whose character encoder is AllenNLP's and encodes all words, as in its `Elmo`."""

    def _encode(self, words: Tensor) -> Tensor:
        # As one sentence; AllenNLP's encoder puts its marks around it.
        encoded = self.bilm.character_encoder(words.long().unsqueeze(0))["token_embedding"]
        return encoded[0, 1:-1]


def set_allennlp_encoder(model: BiLMTrainingModel, bilm: BiLM) -> None:
    """Give a model AllenNLP's character encoder, with the weights of a biLM."""
    with TemporaryDirectory() as folder:
        files = f"{folder}/options.json", f"{folder}/weights.hdf5"
        bilm.save(*files)
        encoder = _ElmoCharacterEncoder(*files, requires_grad=True)
    model.bilm.character_encoder = encoder
    model.__class__ = EncodingEveryWord


if __name__ == "__main__":
    main()
