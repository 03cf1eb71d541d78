"""
The C++ of every vector unit and precision, against float64 operations that round weights and rows as the
precision says: a layer of LSTMs with its gradients, and an encoder of words.
"""

import copy
import functools
from pathlib import Path
from random import Random
from typing import Any, Callable, List, Tuple, cast

import torch
from torch import Tensor

from attacks.models import choose_code
from attacks.trials import Attack, Trial, check
from elmo_plugin.bilm import threads
from elmo_plugin.bilm.batch import Packing
from elmo_plugin.bilm.character_encoder import CharacterEncoder
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.options import ACTIVATIONS, CharacterEncoderOptions
from elmo_plugin.bilm.runners.settings import PRECISIONS
from elmo_plugin.bilm.runners.simd_runner import SIMDRunner
from elmo_plugin.bilm.simd import library
from elmo_plugin.bilm.simd import lstm as simd_lstm
from elmo_plugin.bilm.simd.training import run_with_gradients
from elmo_plugin.bilm.steps import (
    CellOptions,
    LayerInput,
    LayerOutput,
    LSTMTensors,
    PreparedLayer,
    run_loop,
)
from tests.closeness import assert_close, largest_difference

# Some fill vectors, panels and tiles, others do not; the last ones are longer than a block of weights.
WIDTHS = [1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 70, 129, 260, 530]
# A word or a row of states may be rounded to another integer than in float64, where it lies between the two
# within float32's error: about 2.5e-5 of all numbers. A fault is in all rows, or in the last of a tile.
ROUNDED_ALIKE = 0.5


def choose_settings(random: Random) -> Tuple[str, str]:
    """
    Return a vector unit and a precision. Small work is divided among threads, and into blocks, as large work
    is.
    """
    choose_code(random)
    threads.MULTIPLICATIONS_PER_THREAD = random.choice([1, 1_000_000])
    threads.CROWD_FACTOR = 1
    simd_lstm.MULTIPLICATIONS_PER_STEP = random.choice([1, 500_000])
    simd_lstm.BYTES_SIDE_BY_SIDE = random.choice([0, 4 * 1024**2])
    simd_lstm.TOKENS_PER_BLOCK = random.choice([1, 8, 64, 1000])
    torch.set_num_threads(random.choice([1, 2, 3]))
    torch.manual_seed(random.randrange(2**31))
    return cast(str, library.best_unit()), random.choice(PRECISIONS)


def rounded_product(weight: Tensor, precision: str, unit: str) -> Callable[[Tensor], Tensor]:
    """Return what multiplies rows by a weight, both float64, as a precision rounds them on a vector unit."""
    if precision == "int8":
        return functools.partial(
            _int8_product, *_integers(weight.float(), _largest_of_pairs(weight))
        )
    if precision == "float32":
        return lambda rows: rows @ weight.t()
    weight = weight.bfloat16().double()
    if unit not in ("amx", "avx512_bf16"):
        # No products of bfloat16: rows are not rounded.
        return lambda rows: rows @ weight.t()
    return lambda rows: rows.float().bfloat16().double() @ weight.t()


def _largest_of_pairs(weight: Tensor) -> Tensor:
    """Return the largest magnitude of each row, and of sums of its neighbors 0 and 1, 2 and 3, ..."""
    pairs = torch.nn.functional.pad(weight.float(), (0, weight.size(1) % 2)).unflatten(1, (-1, 2))
    return torch.cat([pairs.flatten(1), pairs.sum(dim=2)], dim=1).abs().amax(dim=1)


def _integers(rows: Tensor, largest: Tensor) -> Tuple[Tensor, Tensor]:
    """Return integers of float32 rows, of which 127 stands for `largest`, and what 1 stands for."""
    factors = torch.where(largest > 0, 127.0, 0.0) / torch.where(largest > 0, largest, 1.0)
    return (rows * factors.unsqueeze(1)).round().double(), (largest.double() / 127).unsqueeze(1)


def _int8_product(weight: Tensor, weight_scale: Tensor, rows: Tensor) -> Tensor:
    rows = rows.float()
    integers, scale = _integers(rows, rows.abs().amax(dim=1))
    return (integers @ weight.t()) * scale * weight_scale.t()


def compare(
    found: Tensor, expected: Tensor, terms: int, roundings: int, scale: float, precision: str
) -> None:
    """Compare rows: many to the last places of float32, all within the error of the precision."""
    assert_close(found, expected, terms, scale, precision, roundings)
    if len(found) >= 8:
        limit = largest_difference(torch.float32, terms, scale)
        are_alike = ((found - expected).abs() <= limit).flatten(1).all(dim=1)
        check(
            f"most rows equal to float32's places, found {int(are_alike.sum())} of {len(found)}",
            float(are_alike.double().mean()) >= ROUNDED_ALIKE,
        )


def layers(folder: Path) -> Trial:
    """Layers of LSTMs in both directions, from any state, and in float32 their gradients."""

    def trial(random: Random) -> None:
        unit, precision = choose_settings(random)
        input_dim, cell_size, state_dim = random.choices(WIDTHS, k=3)
        both, runs = [], []
        clips = [random.choice([None, 0.2, 3.0]) for _ in range(2)]
        lengths = [
            random.choice([1, 1, 2, 4])
            for _ in range(random.choice([1, 2, 5, 6, 7, 8, 13, 17, 40, 40, 250]))
        ]
        sizes = Packing.from_lengths(torch.tensor(lengths), max(lengths)).step_sizes
        for _ in range(2):
            layer = ProjectedLSTM(input_dim, cell_size, state_dim, CellOptions(*clips))
            with torch.no_grad():
                layer.gate_weight.normal_(
                    std=random.choice([0.5, 1, 2]) * (input_dim + state_dim) ** -0.5
                )
                layer.gate_bias.normal_()
            both.append(layer.tensors())
            inputs = torch.randn(sum(lengths), input_dim, requires_grad=True)
            states = [
                torch.randn(len(lengths), width, requires_grad=True)
                for width in (state_dim, cell_size)
            ]
            runs.append(LayerInput(inputs, sizes, *states))
        exact = [_in_float64(layer, run) for layer, run in zip(both, runs)]
        expected = [
            run_loop(
                PreparedLayer.of(layer, lambda weight: rounded_product(weight, precision, unit)),
                run,
            )
            for layer, run in exact
        ]
        # Sums of gates that are larger change a gate by less than their relative error.
        terms = len(sizes) * (input_dim + state_dim + cell_size)
        scale = max(
            3.0, max(float(one.detach().abs().max()) for outcome in expected for one in outcome)
        )
        with torch.no_grad():
            panels = [simd_lstm.PanelLayer(layer, precision, unit) for layer in both]
            outcomes = simd_lstm.run_panel_layers(panels, runs)
            for found, own in zip(outcomes, expected):
                # Of the longest sequences, whose states come first, each row depends on the steps before it.
                for ours, theirs in zip(found, own):
                    compare(ours, theirs, terms, 2 * len(sizes), scale, precision)
        if precision == "float32" and len(lengths) < 100:
            compare_gradients(
                run_with_gradients(both, runs, precision, unit), expected, both, runs, exact, terms
            )

    return trial


def _in_float64(layer: LSTMTensors, run: LayerInput) -> Tuple[LSTMTensors, LayerInput]:
    """Return copies that collect gradients of their own."""

    def copied(value: Any) -> Any:
        is_tensor = isinstance(value, Tensor)
        return value.detach().double().requires_grad_() if is_tensor else value

    return (
        LSTMTensors(*(copied(value) for value in vars(layer).values())),
        LayerInput(*(copied(value) for value in run)),
    )


def compare_gradients(
    found: List[LayerOutput],
    expected: List[LayerOutput],
    layers: List[LSTMTensors],
    runs: List[LayerInput],
    exact: List[Tuple[LSTMTensors, LayerInput]],
    terms: int,
) -> None:
    """Compare gradients of weights, inputs and first states with those of torch in float64."""
    factors = [[torch.randn(one.shape) for one in outcome] for outcome in expected]

    def gradients(
        outcomes: List[LayerOutput], read: List[Tuple[LSTMTensors, LayerInput]]
    ) -> List[Any]:
        loss = torch.stack(
            [
                (one.double() * factor).sum()
                for outcome, some in zip(outcomes, factors)
                for one, factor in zip(outcome, some)
            ]
        ).sum()
        tensors = [
            tensor
            for layer, run in read
            for tensor in (
                *(layer.weight, layer.bias, layer.projection),
                *(run.inputs, run.state, run.cell),
            )
            if tensor is not None
        ]
        return list(torch.autograd.grad(loss, tensors))

    ours, theirs = gradients(found, list(zip(layers, runs))), gradients(expected, exact)
    num_tokens = len(runs[0].inputs)
    for own, their in zip(ours, theirs):
        # Sums over tokens of what later steps have summed.
        scale = 3 * max(1.0, float(their.abs().max()))
        if layers[0].options == (None, None):
            assert_close(own, their, num_tokens * terms, scale, "float32")
        else:
            # Of a cell within float32's error of a clip, the gradient may be that of either side.
            limit = largest_difference(torch.float32, num_tokens * terms, scale)
            share = float(((own - their).abs() <= limit).double().mean())
            check(f"nearly all gradients near, found {share:.3f} of them", share >= 0.9)


class Rounded(torch.nn.Module):
    """A linear layer in float64 that rounds as a precision does."""

    def __init__(self, linear: torch.nn.Linear, precision: str, unit: str) -> None:
        super().__init__()
        self._product, self._bias = rounded_product(linear.weight, precision, unit), linear.bias

    def forward(self, rows: Tensor) -> Tensor:
        return self._product(rows) + self._bias


def encoders(folder: Path) -> Trial:
    """Vectors of words, which may be any character ids."""

    def trial(random: Random) -> None:
        unit, precision = choose_settings(random)
        options = CharacterEncoderOptions(
            random.choice(ACTIVATIONS),
            random.choice([1, 4, 16, 17, 40]),
            tuple(
                (random.randint(1, 50), random.choice(WIDTHS)) for _ in range(random.randint(1, 4))
            ),
            random.randint(0, 3),
        )
        output_dim = random.choice([*WIDTHS, options.num_filters])
        encoder = CharacterEncoder(options, output_dim).requires_grad_(False)
        for parameter in encoder.parameters():
            fan_in = parameter[0].numel() if parameter.dim() > 1 else 1
            parameter.normal_(std=random.choice([0.5, 1, 1.5]) * fan_in**-0.5)
        words = torch.randint(0, 262, (random.choice([1, 3, 6, 20, 20, 20, 260]), 50))
        for word in words:
            word[random.randint(0, 50) :] = random.choice([261, random.randint(0, 261)])
        exact = copy.deepcopy(encoder).double()
        for name, module in list(exact.named_modules()):
            if isinstance(module, torch.nn.Linear):
                owner, _, attribute = name.rpartition(".")
                setattr(exact.get_submodule(owner), attribute, Rounded(module, precision, unit))
        largest = [1.0]
        for module in exact.modules():
            module.register_forward_hook(
                lambda module, inputs, output: largest.append(float(output.abs().max()))
            )
        expected = exact(words)
        found = SIMDRunner.prepare(encoder, [], precision, unit).encode(words)
        widest = max(width for width, _ in options.filters) * options.character_embedding_dim
        num_products = options.num_highway + 1
        # A gate of a highway multiplies what it passes: each of them may double an error.
        scale = max(largest) * 2**options.num_highway
        terms = widest + num_products * options.num_filters
        compare(found, expected, terms, 2 * num_products, scale, precision)

    return trial


ATTACKS = [
    Attack("layers", "vectors and gradients of the C++ are exact in each precision", layers),
    Attack("encoders", "vectors of words are exact in each precision", encoders),
]
