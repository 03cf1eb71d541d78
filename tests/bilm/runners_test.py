"""Every kernel against the reference, and the reference against the arithmetic that it stands for."""

import copy
import functools
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Callable, Iterable, List, Optional, Tuple, TypeVar

import pytest
import torch
from torch import Tensor

from elmo_plugin.bilm import threads
from elmo_plugin.bilm.batch import Packing
from elmo_plugin.bilm.character_encoder import CharacterEncoder
from elmo_plugin.bilm.characters import batch_to_ids
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.options import MAX_SIZE, CharacterEncoderOptions
from elmo_plugin.bilm.runners import PRECISIONS, Runner, choose_runner
from elmo_plugin.bilm.runners.reference_runner import ReferenceRunner
from elmo_plugin.bilm.runners.simd_runner import SIMDRunner
from elmo_plugin.bilm.runners.triton_runner import TritonRunner
from elmo_plugin.bilm.simd import lstm as simd_lstm
from elmo_plugin.bilm.simd import panels
from elmo_plugin.bilm.simd.library import VECTOR_UNITS, best_unit, missing_features
from elmo_plugin.bilm.steps import CellOptions, LayerInput, LayerOutput, State
from elmo_plugin.errors import ConfigurationError
from tests.bilm.conftest import skip_without_library
from tests.closeness import assert_close

CPU = torch.device("cpu")
Module = TypeVar("Module", bound=torch.nn.Module)

pytestmark = [
    pytest.mark.usefixtures("interpreted_triton"),
    # Triton's interpreter computes in numpy, which says that sigmoid(-100) is 0 by way of infinity.
    pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning"),
]


# Those of other kinds of processor are left out; those that this processor lacks are skipped.
UNITS = [unit.name for unit in VECTOR_UNITS if missing_features(unit) is not None]

KERNELS = ["reference", "triton", *UNITS]


def prepared(name: str, precision: str, encoder: torch.nn.Module, *layers: ProjectedLSTM) -> Runner:
    """Return a runner of an encoder, forward layers and backward layers."""
    tensors = [layer.tensors() for layer in layers]
    if name in UNITS:
        skip_without_library(name)
        return SIMDRunner.prepare(encoder, tensors, precision, name)
    runner = ReferenceRunner if name == "reference" else TritonRunner
    reason = runner.unsupported_reason(precision, CPU)
    if reason is not None:
        pytest.skip(reason)
    return runner.prepare(encoder, tensors, precision)


CASES = [
    (name, precision)
    for name in KERNELS
    for precision in PRECISIONS
    if name != "reference" and (name, precision) != ("triton", "int8")
]
SIMD_CASES = [(unit, precision) for unit in UNITS for precision in PRECISIONS]

# Widths that fill vectors and panels, and widths that do not.
SHAPES = [(64, 64, 32), (7, 10, 6), (5, 33, 70), (16, 12, 12)]

ALL_TILES_OF_ROWS = list(range(1, 14))
ONE_LONG_AMONG_SHORT_ONES = [15, 1, 2, 1, 1, 3]
FORMS = [(shape, ALL_TILES_OF_ROWS) for shape in SHAPES] + [
    ((5, 33, 70), lengths) for lengths in ([1], [9], [4] * 7, ONE_LONG_AMONG_SHORT_ONES)
]


def new_layer(
    shape: Tuple[int, int, int], clip: Optional[float] = 0.6, seed: int = 0
) -> ProjectedLSTM:
    torch.manual_seed(seed)
    layer = ProjectedLSTM(*shape, CellOptions(clip, clip and clip / 2))
    torch.nn.init.normal_(layer.gate_weight, std=shape[0] ** -0.5)
    torch.nn.init.normal_(layer.gate_bias)
    return layer.requires_grad_(False)


def inputs_of(lengths: List[int], dim: int) -> Tuple[Tensor, List[int]]:
    generator = torch.Generator().manual_seed(1)
    packing = Packing.from_lengths(torch.tensor(lengths), max(lengths))
    return torch.randn(sum(lengths), dim, generator=generator), packing.step_sizes


def new_layer_input(
    layer: ProjectedLSTM, inputs: Tensor, step_sizes: List[int], state: Optional[State] = None
) -> LayerInput:
    """From zeros if there is no state."""
    zeros = [inputs.new_zeros(step_sizes[0], n) for n in (layer.projection_dim, layer.cell_size)]
    return LayerInput(inputs, step_sizes, *(state or zeros))


def layer_runner(name: str, precision: str, layer: ProjectedLSTM) -> Runner:
    """Return a runner of a layer, for both directions."""
    return prepared(name, precision, new_encoder("relu"), layer, layer)


def run(
    name: str,
    precision: str,
    layer: ProjectedLSTM,
    inputs: Tensor,
    step_sizes: List[int],
    state: Optional[State] = None,
) -> LayerOutput:
    layer_input = new_layer_input(layer, inputs, step_sizes, state)
    return layer_runner(name, precision, layer).layers[0]([layer_input, layer_input])[1]


def assert_outcomes_are_close(
    ours: Iterable[Tensor],
    theirs: Iterable[Tensor],
    layer: ProjectedLSTM,
    step_sizes: List[int],
    products: str,
) -> None:
    """Compare outputs and states of two kernels; `products` is the precision of their products."""
    # Each step sums over inputs and states for the gates, and over cells for the projection.
    terms = len(step_sizes) * (layer.input_dim + layer.projection_dim + layer.cell_size)
    for own, their in zip(ours, theirs, strict=True):
        # What a cell sums are products of gates, up to 1 before it is clipped. Sums for gates may be
        # larger, but a relative error e of a sum x changes the gate by e * x * sigmoid'(x) < e / 4, and
        # by less than e / 2 through tanh.
        scale = max(1.0, float(their.nan_to_num(0, 0, 0).abs().max()))
        # Each step rounds what both its products multiply.
        roundings = 2 * len(step_sizes)
        assert_close(own, their, terms, scale, products, roundings, equal_nan=True)


def for_reference(name: str, precision: str, module: Module) -> Tuple[Module, str]:
    """Return what the reference runs in a kernel's place, and the precision of the kernel's products."""
    if precision != "bfloat16" or name not in UNITS or name in ("amx", "avx512_bf16"):
        return module, precision
    # These have no products of bfloat16: weights are rounded, and rows are not.
    module = copy.deepcopy(module)
    for part in module.modules():
        if isinstance(part, (ProjectedLSTM, torch.nn.Linear)):
            for parameter in part.parameters():
                if parameter.dim() == 2:
                    parameter.copy_(parameter.bfloat16())
    return module, "float32"


def assert_equal_to_the_reference(
    name: str,
    precision: str,
    layer: ProjectedLSTM,
    lengths: List[int],
    state: Optional[State] = None,
) -> None:
    inputs, step_sizes = inputs_of(lengths, layer.input_dim)
    results = run(name, precision, layer, inputs, step_sizes, state)
    rounded, products = for_reference(name, precision, layer)
    expected = run("reference", products, rounded, inputs, step_sizes, state)
    assert_outcomes_are_close(results, expected, layer, step_sizes, products)
    assert float(expected[0].abs().max()) > 0.02


@pytest.mark.parametrize("shape, lengths", FORMS, ids=str)
@pytest.mark.parametrize("name, precision", CASES)
def test_lengths_and_widths(
    name: str, precision: str, shape: Tuple[int, int, int], lengths: List[int]
) -> None:
    if name == "triton" and lengths == ALL_TILES_OF_ROWS:
        lengths = [3, 1, 2]  # tiles are those of C++; triton_runner_test.py has its numbers of rows
    assert_equal_to_the_reference(name, precision, new_layer(shape), lengths)


@pytest.mark.parametrize("clip", [None, 0.05, 3.0])
@pytest.mark.parametrize("name, precision", CASES)
def test_clips(name: str, precision: str, clip: Optional[float]) -> None:
    layer = new_layer((32, 48, 24), clip)
    torch.nn.init.normal_(layer.gate_weight, std=1.0)
    assert_equal_to_the_reference(name, precision, layer, [5, 3, 8])


@pytest.mark.parametrize("name, precision", CASES)
def test_initial_states_are_read_and_not_written_to(name: str, precision: str) -> None:
    layer = new_layer((32, 48, 24))
    torch.manual_seed(2)
    state = (torch.randn(3, 24), torch.randn(3, 48))
    before = [tensor.clone() for tensor in state]
    assert_equal_to_the_reference(name, precision, layer, [5, 3, 8], state)
    assert all(torch.equal(tensor, old) for tensor, old in zip(state, before, strict=True))


@pytest.fixture
def set_threads_of_small_work(
    same_threads_afterwards: None, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], None]:
    """Sets the number of threads, which then divide whatever small work there is."""
    monkeypatch.setattr(threads, "MULTIPLICATIONS_PER_THREAD", 1)
    monkeypatch.setattr(threads, "is_crowded", lambda: False)
    monkeypatch.setattr(simd_lstm, "MULTIPLICATIONS_PER_STEP", 1)
    return torch.set_num_threads


@pytest.mark.parametrize("unit, precision", SIMD_CASES)
def test_threads_and_blocks_change_nothing(
    unit: str,
    precision: str,
    set_threads_of_small_work: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = new_layer((64, 80, 96))
    inputs, step_sizes = inputs_of([9, 4, 7, 1, 9, 9, 2], 64)
    expected = run(unit, precision, layer, inputs, step_sizes)
    runner, layer_input = (
        layer_runner(unit, precision, layer),
        new_layer_input(layer, inputs, step_sizes),
    )
    for num_threads, tokens, bytes_side_by_side in [
        *[(num_threads, tokens, 0) for num_threads in (2, 3, 5) for tokens in (1, 8, 1000)],
        *[(num_threads, 256, 10**9) for num_threads in (2, 3, 5)],
    ]:
        set_threads_of_small_work(num_threads)
        monkeypatch.setattr(simd_lstm, "TOKENS_PER_BLOCK", tokens)
        monkeypatch.setattr(simd_lstm, "BYTES_SIDE_BY_SIDE", bytes_side_by_side)
        for ours in runner.layers[0]([layer_input] * 2):
            assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("unit, precision", SIMD_CASES)
def test_blocks_that_are_packed_together_change_nothing(
    unit: str, precision: str, shape: Tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = new_layer(shape)
    inputs, step_sizes = inputs_of([3, 2], shape[0])
    expected = run(unit, precision, layer, inputs, step_sizes)
    monkeypatch.setattr(panels, "WEIGHTS_PER_BLOCK", 1)
    ours = run(unit, precision, layer, inputs, step_sizes)
    assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))


THREADS = """
import multiprocessing, os, torch
from elmo_plugin import BiLM, ElmoEmbedder, FrozenBiLM, batch_to_ids
from elmo_plugin.embedding.scoring import SentenceScorer
torch.set_num_threads(3)
# So many that torch's own operations use threads.
words = batch_to_ids([[f"word{row}"] * 40 for row in range(100)])
frozen = FrozenBiLM.from_files("elmo_mini", kernel="simd")
expected = frozen(words)["activations"][-1]
bilm = BiLM.from_files("elmo_mini")
reference = FrozenBiLM.from_files("elmo_mini", kernel="reference")
def is_right(snapshot):
    return torch.equal(snapshot(words)["activations"][-1], expected)
def run():
    snapshots = [frozen, FrozenBiLM.from_files("elmo_mini", kernel="simd"), bilm.freeze(kernel="simd")]
    assert all(map(is_right, snapshots))
    # Nearly all of their work is torch's.
    assert torch.equal(reference(words)["activations"][-1], in_one_thread)
    embedder, sentence = ElmoEmbedder.from_bilm(frozen), ["word"] * 1000
    assert embedder.embed_sentence(sentence).shape == (3, 1000, 256)
    assert embedder.batch_to_embeddings([sentence])[0].shape == (1, 3, 1000, 256)
    score = SentenceScorer.from_files("elmo_mini").score_sentence(sentence[:100])
    assert len(score.forward) == 101
    os._exit(0)
torch.set_num_threads(1)
assert is_right(FrozenBiLM.from_files("elmo_mini", kernel="simd"))
in_one_thread = reference(words)["activations"][-1]
torch.set_num_threads(3)
reference(words)
child = multiprocessing.get_context("fork").Process(target=run)
child.start()
child.join(60)
assert child.exitcode == 0, child.exitcode
"""


@pytest.mark.parametrize("limit", ["", "2"], ids=["no_limit", "limit"])
def test_threads_that_are_limited_or_gone(limit: str) -> None:
    skip_without_library(best_unit())
    environment = {**os.environ, **({"OMP_THREAD_LIMIT": limit} if limit else {})}
    subprocess.run([sys.executable, "-c", THREADS], env=environment, check=True, timeout=120)


def test_torch_and_simd_share_threads() -> None:
    assert all(threads.openmp_functions()) == ("OpenMP" in torch.__config__.parallel_info())


SHARING = """
import ctypes
import torch
from elmo_plugin.bilm.threads import openmp_functions
torch.set_num_threads(3)
max_threads = ctypes.cast(openmp_functions()[1], ctypes.CFUNCTYPE(ctypes.c_int))
assert max_threads() == 3
torch.set_num_threads(2)
assert max_threads() == 2
"""


def test_torch_and_simd_share_threads_of_a_preloaded_library(tmp_path: Path) -> None:
    """Operations of torch then run in its threads, not in those of the library that torch brings."""
    found = sorted(Path(torch.__file__).parent.parent.glob("torch*/**/libgomp*.so*"))
    if not found:
        pytest.skip("torch brings no libgomp.")
    # The loader would not load a second library of the same name.
    name = found[0].name.encode()
    preloaded = tmp_path / "preloaded.so"
    preloaded.write_bytes(found[0].read_bytes().replace(name, name.replace(b"gomp", b"gomq")))
    environment = {**os.environ, "LD_PRELOAD": str(preloaded)}
    subprocess.run([sys.executable, "-c", SHARING], env=environment, check=True, timeout=120)


@pytest.mark.parametrize(
    "sizes, num_steps, num_rows",
    [
        ((64, 80, 96), 8, 13),
        # More rows than a tile, a group of AMX, and a pass have; more depth than a block has: with AVX-512 in
        # float32, and with the units and types of the largest blocks.
        ((2100, 20, 20), 2, 5),
        ((530, 540, 530), 2, 17),
        ((530, 540, 530), 2, 250),
    ],
)
@pytest.mark.parametrize("unit, precision", SIMD_CASES)
def test_the_vectors_of_a_sequence_are_the_same_to_the_bit_in_any_batch(
    unit: str, precision: str, sizes: Tuple[int, int, int], num_steps: int, num_rows: int
) -> None:
    layer = new_layer(sizes)
    inputs, step_sizes = inputs_of([num_steps] * num_rows, sizes[0])
    run_both = layer_runner(unit, precision, layer).layers[0]
    together = run_both([new_layer_input(layer, inputs, step_sizes)] * 2)[1].outputs
    for row in range(num_rows):
        sequence = new_layer_input(layer, inputs[row::num_rows], [1] * num_steps)
        alone = run_both([sequence] * 2)[1].outputs
        assert torch.equal(alone, together.view(num_steps, num_rows, -1)[:, row])


@pytest.mark.parametrize("number", [math.nan, math.inf], ids=str)
@pytest.mark.parametrize("where", ["inputs", "gate_weight", "projection", "gate_bias"])
@pytest.mark.parametrize("name, precision", CASES)
def test_what_is_not_finite_passes_as_in_the_reference(
    name: str, precision: str, where: str, number: float
) -> None:
    # The first number stands in a full vector, the last one does not.
    for place in (0, -1):
        layer = new_layer((37, 50, 27))
        inputs, step_sizes = inputs_of([3, 3], 37)
        tensor = inputs if where == "inputs" else getattr(layer, where)
        tensor[place].flatten()[place].fill_(math.copysign(number, place))  # -inf in the last place
        ours = run(name, precision, layer, inputs, step_sizes)
        rounded, products = for_reference(name, precision, layer)
        theirs = run("reference", products, rounded, inputs, step_sizes)
        assert_outcomes_are_close(ours, theirs, layer, step_sizes, products)
        assert bool(theirs[0].isnan().any()) or math.isinf(number)


@pytest.mark.parametrize("name, precision", CASES)
def test_rows_of_tiny_numbers_are_not_taken_for_infinite(name: str, precision: str) -> None:
    layer = new_layer((32, 48, 24))
    inputs, step_sizes = inputs_of([3, 3], 32)
    ours = run(name, precision, layer, 1e-42 * inputs, step_sizes)
    # Numbers too small to change a sum: the same sums, of states only.
    zeros = run(name, precision, layer, 0 * inputs, step_sizes)
    assert_outcomes_are_close(ours, zeros, layer, step_sizes, "float32")


@pytest.mark.parametrize("unit", UNITS)
@torch.no_grad()
def test_the_largest_products_of_the_widest_matrix_do_not_overflow_in_int8(unit: str) -> None:
    layer = ProjectedLSTM(1, MAX_SIZE, 1, CellOptions(None, None))
    # Hidden values and weights of the projection have one magnitude, and the same sign.
    signs = torch.ones(MAX_SIZE)
    signs[1::2] = -1
    torch.nn.init.zeros_(layer.gate_weight)
    open_gate, large = torch.full_like(signs, 100), 100 * signs
    layer.gate_bias.copy_(torch.cat([open_gate, large, open_gate, open_gate]))
    assert layer.projection is not None
    layer.projection.copy_(signs)
    output = run(unit, "int8", layer, torch.zeros(1, 1), [1])[0]
    assert float(output) == pytest.approx(MAX_SIZE * math.tanh(1), rel=1e-4)


# Filters that fill vectors and panels, and that do not; windows that are longer than words.
ENCODERS = {
    "relu": (CharacterEncoderOptions(filters=((1, 64), (3, 64))), 64),
    "tanh": (CharacterEncoderOptions("tanh", 5, ((2, 7), (4, 33), (50, 3)), num_highway=1), 21),
    "neither highways nor a projection": (
        CharacterEncoderOptions(filters=((1, 4), (7, 30)), num_highway=0),
        34,
    ),
}
WORDS = ["a", "words", "<S>", "x" * 47, "y" * 60, "", "ελληνικά", *"abcdefg"]


def new_encoder(form: str, seed: int = 0) -> CharacterEncoder:
    torch.manual_seed(seed)
    encoder = CharacterEncoder(*ENCODERS[form]).requires_grad_(False)
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=parameter.size(-1) ** -0.5)
    return encoder


@pytest.mark.parametrize("form", ENCODERS)
@pytest.mark.parametrize("name, precision", CASES)
@torch.no_grad()  # else the C++ library encodes in both
def test_character_encoders(name: str, precision: str, form: str) -> None:
    encoder = new_encoder(form)
    words = batch_to_ids([WORDS])[0]
    rounded, products = for_reference(name, precision, encoder)
    expected = prepared("reference", products, rounded).encode(words)
    encode = prepared(name, precision, encoder).encode
    # The widest window of characters, then a sum over all filters for each highway and for the projection.
    terms = sum(parameter.shape[-1] for parameter in encoder.parameters() if parameter.dim() == 2)
    terms += max(convolution.weight[0].numel() for convolution in encoder.convolutions)
    # What the convolutions, both matrices of a highway, and the projection multiply.
    roundings = sum(
        isinstance(module, (torch.nn.Conv1d, torch.nn.Linear)) for module in encoder.modules()
    )
    assert_close(encode(words), expected, terms, dtype=products, roundings=roundings)
    assert encode(words[:0]).shape == (0, encoder(words).size(1))
    assert float(expected.abs().max()) > 0.1


@pytest.mark.parametrize("unit, precision", SIMD_CASES)
def test_threads_and_other_words_do_not_change_the_vector_of_a_word(
    unit: str, precision: str, set_threads_of_small_work: Callable[[int], None]
) -> None:
    encoder = prepared(unit, precision, new_encoder("tanh")).encode
    words = batch_to_ids([[f"{word}{number}" for word in WORDS for number in range(40)]])[0]
    expected = torch.cat([encoder(words[row : row + 1]) for row in range(len(words))])
    for num_threads in (1, 2, 3):
        set_threads_of_small_work(num_threads)
        assert torch.equal(encoder(words), expected)


@pytest.mark.parametrize("where", ["character_embedding", "convolutions.0", "projection"])
@pytest.mark.parametrize("unit, precision", SIMD_CASES)
@torch.no_grad()  # else the C++ library encodes in both
def test_a_character_encoder_passes_nan_on_as_the_reference_does(
    unit: str, precision: str, where: str
) -> None:
    encoder = new_encoder("tanh")
    encoder.get_submodule(where).weight[20 if where == "character_embedding" else 0].fill_(math.nan)
    words = batch_to_ids([["a", "b\x13", "c"]])[0]
    ours = prepared(unit, precision, encoder).encode(words)
    expected = encoder(words)
    assert torch.equal(ours.isnan(), expected.isnan())
    assert bool(ours[1].isnan().any())
    # Its first word does not have the character of that embedding.
    assert bool(ours[0].isnan().any()) == (where != "character_embedding")


def test_out_of_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = new_layer((32, 48, 24))
    layer_input = LayerInput(torch.zeros(1, 32), [2**50], torch.zeros(1, 24), torch.zeros(1, 48))
    runner = layer_runner(UNITS[-1], "float32", layer)
    # Without the check that the inputs have that many tokens.
    monkeypatch.setattr(simd_lstm, "addresses", lambda *tensors: [None] * len(tensors))
    with pytest.raises(MemoryError, match="Take smaller batches"):
        runner.layers[0]([layer_input, layer_input])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda tensor: tensor.double(),
        lambda tensor: tensor.bfloat16(),
        lambda tensor: tensor.to("meta"),
        lambda tensor: tensor[:, 1:],
        lambda tensor: tensor[1:],
    ],
    ids=["float64", "bfloat16", "device", "width", "rows"],
)
def test_other_tensors_than_expected_are_refused(wrong: Callable[[Tensor], Tensor]) -> None:
    layer = new_layer((32, 48, 24))
    runner = layer_runner(UNITS[-1], "float32", layer)
    layer_input = new_layer_input(layer, *inputs_of([3, 2], 32))
    for field in ("inputs", "state", "cell"):
        changed = layer_input._replace(**{field: wrong(getattr(layer_input, field))})
        with pytest.raises(ValueError, match="The simd kernel was given a tensor"):
            runner.layers[0]([layer_input, changed])


def rounded_to_eight_bits(rows: Tensor, pairs: bool = False) -> Tensor:
    """With 127 for the largest magnitude; of pairs of neighbors with the same sign, of their sum."""
    largest = rows.abs().amax(dim=1, keepdim=True)
    if pairs:
        sums = (rows[:, 0::2] + rows[:, 1::2]).abs().amax(dim=1, keepdim=True)
        largest = torch.maximum(largest, sums)
    return torch.round(rows / largest * 127) * largest / 127


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_reference_rounds_weights_and_rows_and_nothing_else(precision: str) -> None:
    """One step, by hand: from there on, rounded numbers are rounded again."""
    layer = new_layer((16, 24, 12), clip=None)
    torch.manual_seed(3)
    inputs, state, cell = torch.randn(3, 16), torch.randn(3, 12), torch.randn(3, 24)
    lowered = {
        "float32": lambda tensor: tensor,
        "bfloat16": lambda tensor: tensor.bfloat16().float(),
        "int8": rounded_to_eight_bits,
    }[precision]
    assert layer.projection is not None
    input_weight, state_weight = layer.gate_weight.split([16, 12], dim=1)
    lowered_weight = lowered
    if precision == "int8":
        lowered_weight = functools.partial(rounded_to_eight_bits, pairs=True)
    gates = lowered(inputs) @ lowered_weight(input_weight).t()
    gates = gates + lowered(state) @ lowered_weight(state_weight).t()
    i, g, f, o = (gates + layer.gate_bias).chunk(4, dim=1)
    expected_cell = torch.sigmoid(f + 1) * cell + torch.sigmoid(i) * torch.tanh(g)
    hidden = torch.sigmoid(o) * torch.tanh(expected_cell)
    expected = lowered(hidden) @ lowered_weight(layer.projection).t()
    ours, _, our_cell = run("reference", precision, layer, inputs, [3], (state, cell))
    assert_close(our_cell, expected_cell, terms=16 + 12, dtype=precision)
    assert_close(ours, expected, terms=16 + 12 + 24, dtype=precision)
    if precision != "float32":
        exact = run("reference", "float32", layer, inputs, [3], (state, cell))[0]
        assert not torch.equal(ours, exact)


class TestChoice:
    def test_a_device_that_a_kernel_is_not_made_for_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="it runs on CPUs, not on meta"):
            choose_runner("simd", "float32", torch.device("meta"))

    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_auto_takes_simd_on_cpus_that_have_a_vector_unit(self, precision: str) -> None:
        skip_without_library(best_unit())
        assert choose_runner("auto", precision, CPU) == (SIMDRunner, precision)

    def test_where_a_precision_is_slow_auto_runs_float32_and_says_so_once(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        # Whatever the machine: another processor has no such unit.
        for runner in (SIMDRunner, TritonRunner):
            monkeypatch.setattr(runner, "unsupported_reason", lambda *arguments: "it is not here")
        # A GPU has products of bfloat16, but the reference kernel gains nothing by them.
        assert choose_runner("auto", "bfloat16", torch.device("cuda")) == (
            ReferenceRunner,
            "float32",
        )
        for is_fast in (True, False):
            monkeypatch.setattr(
                "elmo_plugin.bilm.runners.settings.has_bfloat16_products",
                lambda is_fast=is_fast: is_fast,
            )
            precision = "bfloat16" if is_fast else "float32"
            assert choose_runner("auto", "bfloat16", CPU) == (ReferenceRunner, precision)
        for _ in range(2):
            assert choose_runner("auto", "int8", CPU) == (ReferenceRunner, "float32")
        assert caplog.text.count("precision is 'int8', but float32 is faster on this cpu") == 1
        assert choose_runner("reference", "int8", CPU)[1] == "int8"
        assert "The reference kernel is slower in int8" in caplog.text
