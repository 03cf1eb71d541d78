"""A `FrozenBiLM` gives what its biLM gives, and nothing changes it."""

import copy
import os
import pickle
import random
import re
import shutil
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Callable, Dict

import pytest
import torch
from torch import Tensor

from elmo_plugin import BiLM, Elmo, FrozenBiLM, batch_to_ids
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.batch import CarriedStates
from elmo_plugin.bilm.bilm import Output, run_stack
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.options import CharacterEncoderOptions
from elmo_plugin.bilm.runners import PRECISIONS
from elmo_plugin.bilm.simd.library import ABI_VERSION, best_unit
from elmo_plugin.bilm.steps import CellOptions, LayerOutput
from elmo_plugin.bilm.weights import WeightFile
from elmo_plugin.errors import ConfigurationError
from tests.bilm.conftest import skip_without_library
from tests.closeness import assert_close
from tests.conftest import SCALE, SENTENCES, TINY_OPTIONS, BiLMFiles, randomize, terms_of

CHARACTER_IDS = batch_to_ids(SENTENCES)

TERMS = terms_of(9)

Make = Callable[..., FrozenBiLM]


def activations(bilm: Any, character_ids: Tensor = CHARACTER_IDS, **arguments: Any) -> Tensor:
    return torch.stack(bilm(character_ids, **arguments)["activations"])


@pytest.fixture
def make(request: pytest.FixtureRequest, bilm_files: BiLMFiles) -> Make:
    """From files, or as `BOTH_WAYS` says. Both give the same to the bit."""

    def make(**settings: Any) -> FrozenBiLM:
        if getattr(request, "param", "from_files") == "from_files":
            return FrozenBiLM.from_files(*bilm_files, **settings)
        return BiLM.from_files(*bilm_files).freeze(**settings)

    return make


BOTH_WAYS = pytest.mark.parametrize("make", ["from_files", "freeze"], indirect=True)


@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_it_gives_what_the_bilm_gives(kernel: str, make: Make, bilm_files: BiLMFiles) -> None:
    expected = BiLM.from_files(*bilm_files)(CHARACTER_IDS)
    frozen = make(kernel=kernel)
    assert (frozen.num_layers, frozen.get_output_dim()) == (3, 12)
    for _ in range(2):
        output = frozen(CHARACTER_IDS)
        assert torch.equal(output["mask"], expected["mask"])
        for ours, theirs in zip(output["activations"], expected["activations"], strict=True):
            assert_close(ours, theirs, TERMS, SCALE)


@pytest.mark.parametrize("kernel", ["auto", "reference"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_files_and_bilms_give_the_same_to_the_bit(
    precision: str, kernel: str, bilm_files: BiLMFiles
) -> None:
    settings = {"precision": precision, "kernel": kernel}
    from_files = FrozenBiLM.from_files(*bilm_files, **settings)
    frozen = BiLM.from_files(*bilm_files).freeze(**settings)
    assert from_files.precision == frozen.precision
    assert from_files.weights_sha256 == frozen.weights_sha256
    assert torch.equal(activations(from_files), activations(frozen))


@pytest.mark.parametrize("cell_size", [20, 6])
@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_one_matrix_of_the_lstms_is_in_memory_at_a_time(
    kernel: str, cell_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside what is packed."""
    bilm = randomize(BiLM(replace(TINY_OPTIONS, cell_size=cell_size)))
    files = tmp_path / "options.json", tmp_path / "weights.hdf5"
    bilm.save(*files)
    read, matrices = WeightFile.read, []

    def watched(self: WeightFile, *arguments: Any) -> Tensor:
        assert not any(matrix() is not None for matrix in matrices)
        tensor = read(self, *arguments)
        if "_layers" in arguments[1] and tensor.dim() == 2:
            matrices.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(WeightFile, "read", watched)
    frozen = FrozenBiLM.from_files(*files, kernel=kernel, precision="int8")
    # Of two layers in two directions: for inputs, for states, and the projection where cells are wider.
    assert len(matrices) == 4 * (3 if cell_size > 6 else 2)
    expected = bilm.requires_grad_(False).freeze(kernel=kernel, precision="int8")
    assert torch.equal(activations(frozen), activations(expected))


@pytest.mark.parametrize("keep_sentences", [False, True])
def test_carried_states_go_in_and_come_out(
    keep_sentences: bool, make: Make, bilm_files: BiLMFiles
) -> None:
    stateful, frozen, states = BiLM.from_files(*bilm_files, stateful=True), make(), CarriedStates()
    stateless = activations(frozen)
    for batch in (SENTENCES, SENTENCES[:2], SENTENCES):
        ids = batch_to_ids(batch)
        # With states no sentence is kept: in other states it has other activations.
        ours = activations(frozen, ids, states=states, keep_sentences=keep_sentences)
        assert_close(ours, activations(stateful, ids), TERMS, SCALE)
    assert torch.equal(activations(frozen), stateless)


def test_results_are_ordinary_tensors_that_belong_to_the_caller(make: Make) -> None:
    frozen = make()
    expected = activations(frozen)
    for keep_sentences in (False, True, True):
        with torch.inference_mode():
            layers = frozen(CHARACTER_IDS, keep_sentences=keep_sentences)["activations"]
        for layer in layers:
            assert not layer.is_inference()
            layer.zero_()
    assert torch.equal(activations(frozen), expected)


class TestNothingChangesIt:
    @pytest.mark.parametrize("kernel", ["auto", "reference"])
    def test_not_its_bilm(self, kernel: str, bilm_files: BiLMFiles) -> None:
        bilm = BiLM.from_files(*bilm_files)
        frozen = bilm.freeze(kernel=kernel, word_cache_size=0)
        expected = activations(frozen)
        for parameter in bilm.parameters():
            parameter.data.fill_(torch.nan)
        assert torch.equal(activations(frozen), expected)

    @pytest.mark.parametrize("change", ["another model", "shorter", "deleted"])
    @pytest.mark.parametrize("is_frozen", [True, False])
    def test_not_its_file(
        self, is_frozen: bool, change: str, write_bilm: Callable[..., BiLMFiles]
    ) -> None:
        files = write_bilm(seed=1, name="this")
        settings = {"word_cache_size": 0} if is_frozen else {}
        bilm = (FrozenBiLM if is_frozen else BiLM).from_files(*files, **settings)
        expected = activations(bilm)
        if change == "another model":
            shutil.copyfile(write_bilm(seed=2, name="other").weight_file, files.weight_file)
        elif change == "shorter":
            os.truncate(files.weight_file, 1000)
        else:
            os.remove(files.weight_file)
        assert torch.equal(activations(bilm), expected)

    @BOTH_WAYS
    @pytest.mark.parametrize("kernel", ["auto", "reference"])
    def test_modes_of_torch_do_not_reach_it(self, kernel: str, make: Make) -> None:
        expected = activations(make(kernel=kernel))
        torch.set_default_dtype(torch.float64)
        try:
            with torch.device("meta"), torch.autocast("cpu", dtype=torch.bfloat16):
                assert torch.equal(activations(make(kernel=kernel)), expected)
        finally:
            torch.set_default_dtype(torch.float32)

    def test_threads_share_it(self, make: Make) -> None:
        frozen, expected = make(word_cache_size=7), activations(make())

        def read(seed: int) -> None:
            draw = random.Random(seed)
            for _ in range(50):
                rows = draw.sample(range(len(SENTENCES)), 3)
                ours = activations(frozen, CHARACTER_IDS[rows], keep_sentences=seed % 2 == 0)
                # Of words and sequences in any company.
                assert_close(ours, expected[:, rows], TERMS, SCALE)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(read, range(4)))


class TestCopies:
    def test_a_copy_is_the_object(self, make: Make) -> None:
        frozen = make()
        assert copy.deepcopy(frozen) is frozen
        assert copy.copy(frozen) is frozen

    @pytest.mark.parametrize("precision", PRECISIONS)
    @pytest.mark.parametrize("kernel", ["auto", "reference"])
    def test_a_pickle_gives_the_same_and_changes_nothing(
        self, kernel: str, precision: str, make: Make
    ) -> None:
        frozen = make(kernel=kernel, precision=precision, word_cache_size=0)
        expected = activations(frozen)
        assert torch.equal(activations(pickle.loads(pickle.dumps(frozen))), expected)
        # Moves the numbers of tensors into shared memory.
        ForkingPickler.dumps(frozen)
        assert torch.equal(activations(frozen), expected)

    @pytest.mark.parametrize("kernel", ["auto", "reference"])
    def test_a_snapshot_of_a_bilm_that_trains_has_no_gradients(
        self, kernel: str, bilm_files: BiLMFiles
    ) -> None:
        frozen = BiLM.from_files(*bilm_files).requires_grad_().freeze(kernel=kernel)
        ForkingPickler.dumps(frozen)  # refuses results of autograd
        inputs = torch.zeros(2, frozen.options.projection_dim)
        outputs, _ = run_stack(frozen.options, frozen.layers, [inputs, inputs], [1, 1])
        assert not any(half.requires_grad for layer in outputs for half in layer)

    def test_a_pickle_for_another_processor_is_refused(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        skip_without_library(best_unit())
        pickled = pickle.dumps(make(kernel="simd"))
        monkeypatch.setattr(
            "elmo_plugin.bilm.runners.simd_runner.unsupported_reason", lambda unit: "it is old"
        )
        with pytest.raises(ConfigurationError, match=r"packed on another machine .*: it is old"):
            pickle.loads(pickled)
        monkeypatch.setattr("elmo_plugin.bilm.runners.simd_runner.ABI_VERSION", ABI_VERSION + 1)
        with pytest.raises(ConfigurationError, match="packed by another version of elmo_plugin"):
            pickle.loads(pickled)


@pytest.mark.parametrize("precision, size", [("float32", 4), ("bfloat16", 2), ("int8", 1)])
def test_weights_are_held_once(precision: str, size: int) -> None:
    # Widths of whole panels, so that only what is not a weight is added to them.
    encoder = CharacterEncoderOptions(filters=((1, 128), (3, 384)), num_highway=1)
    options = BiLMOptions(encoder, cell_size=512, projection_dim=128)
    bilm = BiLM(options)
    matrices = [
        parameter
        for name, parameter in bilm.named_parameters()
        if parameter.dim() == 2 and "embedding" not in name
    ]
    num_weights = sum(parameter.numel() for parameter in bilm.parameters())
    num_lowered = sum(matrix.numel() for matrix in matrices)
    skip_without_library(best_unit())
    frozen = bilm.freeze(precision=precision, kernel="simd", word_cache_size=0)
    # Embeddings, convolutions and biases are float32 in every precision.
    limit = size * num_lowered + 4 * (num_weights - num_lowered)
    # In int8 an output has a scale and a sum of its weights, of inputs and of states.
    limit += 2 * (4 + 4) * sum(map(len, matrices))
    # A pickle names its tensors: panels, bias, scales and sums.
    limit += 4 * len(pickle.dumps(torch.empty(0))) * len(list(bilm.parameters()))
    assert len(pickle.dumps(frozen)) < limit


class TestErrors:
    @BOTH_WAYS
    @pytest.mark.parametrize(
        "settings, message",
        [
            ({"precision": "float8"}, "precision is 'float8', expected one of float32"),
            ({"kernel": "fastest"}, "kernel is 'fastest', expected one of auto, simd, triton"),
            (
                {"kernel": "triton", "precision": "int8"},
                "kernel is 'triton', but it has no int8. Use 'auto'",
            ),
            ({"word_cache_size": -1}, "word_cache_size is -1, expected a number of words"),
            ({"word_cache_size": 2.5}, r"word_cache_size is 2\.5, expected a number of words"),
            ({"sentence_cache_mb": float("nan")}, "sentence_cache_mb is nan, expected a number"),
            ({"presicion": "int8"}, "ELMo has no argument 'presicion'. Those of inference are"),
        ],
        ids=str,
    )
    def test_of_settings(self, settings: Dict[str, Any], message: str, make: Make) -> None:
        with pytest.raises(ConfigurationError, match=message):
            make(**settings)

    def test_of_the_device(self, bilm_files: BiLMFiles) -> None:
        with pytest.raises(
            ConfigurationError, match="device is 'xpu', which torch cannot use here"
        ):
            FrozenBiLM.from_files(*bilm_files, device="xpu")

    @pytest.mark.parametrize(
        "kind", ["forward_pre", "forward", "full_backward_pre", "full_backward"]
    )
    def test_of_hooks(self, kind: str, bilm_files: BiLMFiles) -> None:
        bilm = BiLM.from_files(*bilm_files)
        of_process = getattr(torch.nn.modules.module, f"register_module_{kind}_hook")
        of_layer = getattr(bilm.forward_layers[0], f"register_{kind}_hook")
        for register, place in ((of_process, "it"), (of_layer, r"its forward_layers\.0")):
            message = f"hooks or another forward run at {place}\\."
            with register(print), pytest.raises(ConfigurationError, match=message):
                bilm.freeze()

    def test_of_bilms_whose_weights_do_not_say_all(self, bilm_files: BiLMFiles) -> None:
        def replace_projection(bilm: BiLM, module: torch.nn.Module) -> None:
            bilm.character_encoder.projection = module

        for change, message in [
            (
                lambda bilm: replace_projection(bilm, torch.nn.Identity()),
                "its character_encoder.projection is of class Identity, and Linear by its options",
            ),
            (
                lambda bilm: bilm.add_module("adapter", torch.nn.Identity()),
                "modules in it were added or removed",
            ),
            (
                lambda bilm: setattr(bilm.backward_layers[1], "options", CellOptions(3.0, 0.1)),
                "its backward_layers.1.options is CellOptions(cell_clip=3.0, proj_clip=0.1), and ",
            ),
            (
                lambda bilm: setattr(bilm.character_encoder, "activation", "sigmoid"),
                "its character_encoder.activation is sigmoid, and relu by its options",
            ),
            (
                lambda bilm: setattr(bilm, "scale", torch.ones(3)),
                "it has an attribute 'scale', which may change what it computes",
            ),
            (
                lambda bilm: bilm.register_parameter("scale", torch.nn.Parameter(torch.ones(1))),
                "parameters in it were added or removed",
            ),
            (lambda bilm: bilm.double(), "its parameters are not all float32 on one device"),
            (lambda bilm: bilm.backward_layers.half(), "its parameters are not all float32"),
        ]:
            bilm = BiLM.from_files(*bilm_files)
            change(bilm)
            with pytest.raises(ConfigurationError, match=re.escape(message)):
                bilm.freeze()
        # Of the same class and sizes, its weights do say all.
        bilm = BiLM.from_files(*bilm_files)
        replace_projection(bilm, torch.nn.Linear(24, 6))
        assert_close(activations(bilm.freeze()), activations(bilm), TERMS, SCALE)


class Doubled(BiLM):
    """Computes something else than `BiLM`."""

    def forward(self, *arguments: Any, **keywords: Any) -> Output:
        output = super().forward(*arguments, **keywords)
        return {**output, "activations": [2 * layer for layer in output["activations"]]}


class ScaledLSTM(ProjectedLSTM):
    """The same for a layer."""

    def forward(self, *arguments: Any, **keywords: Any) -> LayerOutput:
        outputs, *states = super().forward(*arguments, **keywords)
        return LayerOutput(2 * outputs, *states)


class TestDerivedClasses:
    """A runner repeats the arithmetic of `BiLM`, not that of a class derived from it."""

    def test_of_bilm(self, bilm_files: BiLMFiles) -> None:
        bilm = Doubled.from_files(*bilm_files)
        with pytest.raises(ConfigurationError, match="it is of class Doubled, and BiLM by its"):
            bilm.freeze()
        check_elmo_runs(bilm)

    def test_of_a_layer(self, bilm_files: BiLMFiles) -> None:
        bilm = BiLM.from_files(*bilm_files)
        for layer in (bilm.forward_layers[-1], bilm.backward_layers[-1]):
            layer.__class__ = ScaledLSTM
        with pytest.raises(ConfigurationError, match=r"its \w+_layers\.1 is of class ScaledLSTM"):
            bilm.freeze()
        check_elmo_runs(bilm)


def check_elmo_runs(bilm: BiLM) -> None:
    """`Elmo` gives the last layer that the biLM gives, which is not that of a plain one."""
    is_word = (CHARACTER_IDS > 0).any(dim=-1, keepdim=True)
    expected = bilm(CHARACTER_IDS)["activations"][-1][:, 1:-1] * is_word
    elmo = Elmo(None, None, module=bilm, scalar_mix_parameters=[-9e10, -9e10, 1.0]).eval()
    assert elmo.snapshot is None
    found = elmo(CHARACTER_IDS)["elmo_representations"][0]
    assert torch.equal(found, expected)
    assert float(found.abs().max()) > 0.1
