"""What a biLM remembers of its weights is never used after they changed."""

import copy
import io
import logging
import multiprocessing
import pickle
import random
import threading
from typing import Any, Callable, Dict, List

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from elmo_plugin import BiLM, Elmo, batch_to_ids
from elmo_plugin.bilm.frozen import WordTypeCache
from elmo_plugin.bilm.kernels import KERNEL_NAMES, choose_kernel
from elmo_plugin.bilm.lstm import Packing
from elmo_plugin.errors import ConfigurationError
from tests.conftest import TINY_OPTIONS, BiLMFiles, of_allennlp, randomize

CHARACTER_IDS = batch_to_ids([["The", "naïve", "日本語"], ["the"], [], ["The", "x" * 80]])

# The fused ones and AllenNLP's change parameters without raising their `_version`.
OPTIMIZERS: Dict[str, Callable[[BiLM], torch.optim.Optimizer]] = {
    "Adam": lambda bilm: torch.optim.Adam(bilm.parameters(), lr=0.1),
    "fused Adam": lambda bilm: torch.optim.Adam(bilm.parameters(), lr=0.1, fused=True),
    "fused Adagrad": lambda bilm: torch.optim.Adagrad(bilm.parameters(), lr=0.1, fused=True),
    "DenseSparseAdam": lambda bilm: of_allennlp("training.optimizers.DenseSparseAdam")(
        list(bilm.named_parameters()), lr=0.1
    ),
}


def activations(bilm: BiLM) -> Tensor:
    return torch.stack(bilm(CHARACTER_IDS)["activations"])


def assert_up_to_date(bilm: BiLM) -> None:
    """It gives what a new biLM of the same weights gives."""
    fresh = BiLM(bilm.options, kernel="reference").requires_grad_(False)
    fresh.load_state_dict(bilm.state_dict())
    assert torch.allclose(activations(bilm), activations(fresh), atol=1e-5)


def num_remembered(bilm: BiLM) -> int:
    return len(bilm.word_cache) + len(bilm.sentence_cache) + bilm._frozen.num_prepared


@pytest.fixture(params=[0, 1], ids=["words", "words and sentences"])
def bilm(request: pytest.FixtureRequest, bilm_files: BiLMFiles) -> BiLM:
    """Frozen, and has run."""
    bilm = BiLM.from_files(*bilm_files, sentence_cache_mb=request.param)
    activations(bilm)
    assert num_remembered(bilm) > 2 * TINY_OPTIONS.num_layers
    return bilm


def run_parts(bilm: BiLM) -> Tensor:
    """Train as a model does that never calls the biLM itself, such as the one for pretraining."""
    words = CHARACTER_IDS[(CHARACTER_IDS > 0).any(dim=2)]
    packing = Packing.from_lengths(torch.tensor([len(words)]), len(words))
    vectors = bilm.character_encoder(words)
    layers, _ = bilm.run_layers([vectors, vectors], packing.step_sizes)
    return torch.cat(layers[-1], dim=1)


def run_modules(bilm: BiLM) -> Tensor:
    """As `run_parts`, not even through `run_layers`."""
    words = CHARACTER_IDS[(CHARACTER_IDS > 0).any(dim=2)]
    vectors = bilm.character_encoder(words)
    for layer in [*bilm.forward_layers, *bilm.backward_layers]:
        vectors, _ = layer(vectors, [1] * len(words))
    return vectors


@pytest.mark.parametrize("run", [activations, run_parts, run_modules])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("zeroed", ["before freezing", "never"])
def test_trained_and_frozen_again(
    zeroed: str, optimizer: str, run: Callable[[BiLM], Tensor], bilm: BiLM
) -> None:
    before = activations(bilm)
    steps = OPTIMIZERS[optimizer](bilm)
    for _ in range(2):
        bilm.requires_grad_(True)
        run(bilm).pow(2).sum().backward()
        steps.step()
        if zeroed == "before freezing":
            steps.zero_grad()
        bilm.requires_grad_(False)
        assert_up_to_date(bilm)
    assert float((activations(bilm) - before).abs().max()) > 0.01


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_after_freezing(optimizer: str, bilm: BiLM) -> None:
    """Optimizers apply gradients also to parameters that no longer require them."""
    steps = OPTIMIZERS[optimizer](bilm)
    bilm.requires_grad_(True)
    activations(bilm).pow(2).sum().backward()
    bilm.requires_grad_(False)
    activations(bilm)
    steps.step()
    assert_up_to_date(bilm)


class TestTrainableInEvalMode:
    """A fine-tuned biLM predicts as fast as a frozen one."""

    @pytest.fixture
    def fine_tuned(self, bilm: BiLM) -> BiLM:
        return bilm.requires_grad_(True).eval()

    def test_it_remembers_words_and_prepared_weights(self, fine_tuned: BiLM) -> None:
        for _ in range(2):
            with torch.no_grad():
                activations(fine_tuned)
            # With the character encoder.
            assert fine_tuned._frozen.num_prepared == 2 * TINY_OPTIONS.num_layers + 1
            assert len(fine_tuned.word_cache) > 0
        assert fine_tuned.word_cache.hit_rate > 0 or len(fine_tuned.sentence_cache) > 0
        with torch.no_grad():
            assert_up_to_date(fine_tuned)

    @pytest.mark.parametrize("mode", ["train mode", "gradients on"])
    def test_in_another_mode_it_remembers_nothing(self, mode: str, fine_tuned: BiLM) -> None:
        fine_tuned.train(mode == "train mode")
        with torch.set_grad_enabled(mode == "gradients on"):
            activations(fine_tuned)
        assert num_remembered(fine_tuned) == 0

    @pytest.mark.parametrize("when", ["before backward", "before step", "after step"])
    @pytest.mark.parametrize("optimizer", OPTIMIZERS)
    def test_prediction_in_the_middle_of_a_step(
        self, optimizer: str, when: str, fine_tuned: BiLM
    ) -> None:
        steps = OPTIMIZERS[optimizer](fine_tuned)
        for _ in range(2):
            loss = activations(fine_tuned).pow(2).sum()
            for moment in ("before backward", "before step", "after step"):
                if moment == when:
                    with torch.no_grad():
                        assert_up_to_date(fine_tuned)
                if moment == "before backward":
                    loss.backward()
                elif moment == "before step":
                    steps.step()
            steps.zero_grad()
        with torch.no_grad():
            assert_up_to_date(fine_tuned)

    def test_moving_averages(self, fine_tuned: BiLM) -> None:
        """AllenNLP swaps them in for validation through `parameter.data`."""
        average = of_allennlp("training.moving_average.ExponentialMovingAverage")(
            fine_tuned.named_parameters()
        )
        steps = torch.optim.SGD(fine_tuned.parameters(), lr=0.1)
        activations(fine_tuned).pow(2).mean().backward()
        steps.step()
        average.apply(1)
        with torch.no_grad():
            average.assign_average_value()
            assert_up_to_date(fine_tuned)
            average.restore()
            assert_up_to_date(fine_tuned)


class TestWritesWhileFrozen:
    def test_in_place(self, bilm: BiLM) -> None:
        for name, parameter in bilm.named_parameters():
            before = activations(bilm)
            with torch.no_grad():
                parameter.mul_(0.9)
            assert_up_to_date(bilm)
            assert not torch.equal(activations(bilm), before), name

    @pytest.mark.parametrize("how", ["from_files", "load_state_dict"])
    def test_to_a_bilm_made_in_inference_mode(self, how: str, bilm_files: BiLMFiles) -> None:
        with torch.inference_mode():
            if how == "from_files":
                bilm = BiLM.from_files(*bilm_files)
            else:
                bilm = randomize(BiLM(TINY_OPTIONS)).requires_grad_(False)
            activations(bilm)
            assert num_remembered(bilm) > 0
            for parameter in bilm.parameters():
                parameter.mul_(0.9)
            assert_up_to_date(bilm)

    def test_to_a_bilm_moved_in_inference_mode(
        self, bilm: BiLM, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Its parameters have no version."""
        with torch.inference_mode():
            bilm.double().float()
            for _ in range(2):
                for parameter in bilm.parameters():
                    parameter.mul_(0.9)
                assert_up_to_date(bilm)
        messages = [record.getMessage() for record in caplog.records]
        assert sum("been moved or cast in inference mode" in text for text in messages) == 1

    def test_through_data_it_takes_clear_caches(self, bilm: BiLM) -> None:
        """What the docstring says: such writes go unnoticed."""
        for parameter in bilm.parameters():
            parameter.data.mul_(0.9)
        bilm.clear_caches()
        assert_up_to_date(bilm)

    def test_a_parameter_that_was_replaced(self, bilm: BiLM) -> None:
        layer = bilm.forward_layers[0]
        for _ in range(5):
            value = 1.5 * layer.gate_weight.detach()
            # Freed memory is given out again first.
            del layer.gate_weight
            layer.gate_weight = torch.nn.Parameter(value, requires_grad=False)
            assert_up_to_date(bilm)

    @pytest.mark.parametrize("assign", [True, False])
    def test_load_state_dict(self, assign: bool, bilm: BiLM) -> None:
        other = randomize(BiLM(TINY_OPTIONS), seed=7).requires_grad_(False)
        bilm.load_state_dict(other.state_dict(), assign=assign)
        assert torch.allclose(activations(bilm), activations(other), atol=1e-5)

    def test_weights_of_a_functional_call(self, bilm: BiLM) -> None:
        before = activations(bilm)
        doubled = {name: 2 * parameter for name, parameter in bilm.named_parameters()}
        other = copy.deepcopy(bilm)
        other.load_state_dict(doubled)
        theirs = torch.func.functional_call(bilm, doubled, CHARACTER_IDS)["activations"]
        assert torch.allclose(torch.stack(theirs), activations(other), atol=1e-5)
        assert torch.equal(activations(bilm), before)


def test_it_remembers_while_a_task_model_is_trained(bilm_files: BiLMFiles) -> None:
    """The usual case: the biLM is frozen, and what stands above it learns, in train mode."""
    bilm = BiLM.from_files(*bilm_files)
    activations(bilm)
    linear = torch.nn.Linear(bilm.get_output_dim(), 2)
    steps = torch.optim.Adam([*bilm.parameters(), *linear.parameters()], fused=True)
    prepared: List[int] = []
    for _ in range(2):
        linear(bilm.train()(CHARACTER_IDS)["activations"][-1]).sum().backward()
        steps.step()
        prepared.append(id(bilm._frozen._prepared["forward_layers.0"]))
    assert prepared[0] == prepared[1]
    assert bilm.word_cache.hit_rate == pytest.approx(2 / 3)


def _send_activations(bilm: BiLM, queue: Any) -> None:
    torch.set_num_threads(1)
    queue.put(activations(bilm).numpy())


@pytest.mark.usefixtures("interpreted_triton")
# Triton's interpreter computes in numpy, which says that sigmoid(-100) is 0 by way of infinity.
@pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")
class TestEachKernel:
    @pytest.fixture(
        params=[
            # Triton's interpreter is slow.
            pytest.param(name, marks=[pytest.mark.slow] if name == "triton" else [])
            for name in KERNEL_NAMES
            if name != "auto"
        ]
    )
    def bilm(self, request: pytest.FixtureRequest, bilm_files: BiLMFiles) -> BiLM:
        try:
            choose_kernel(request.param, "float32", torch.device("cpu"))
        except ConfigurationError as error:
            pytest.skip(str(error))
        bilm = BiLM.from_files(*bilm_files, kernel=request.param)
        activations(bilm)
        return bilm

    def test_weights_are_prepared_once(self, bilm: BiLM, monkeypatch: pytest.MonkeyPatch) -> None:
        kernel = choose_kernel(bilm.kernel, bilm.precision, torch.device("cpu"))
        prepared: List[Any] = []
        prepare = kernel.prepare

        def counted(layer: Any, precision: str) -> Any:
            prepared.append(layer)
            return prepare(layer, precision)

        monkeypatch.setattr(kernel, "prepare", counted)
        for _ in range(3):
            activations(bilm)
        assert prepared == []
        bilm.clear_caches()
        for _ in range(3):
            activations(bilm)
        assert len(prepared) == 2 * TINY_OPTIONS.num_layers

    def test_weights_of_one_layer_written_in_place(self, bilm: BiLM) -> None:
        for name in ("gate_weight", "gate_bias", "projection"):
            before = activations(bilm)
            with torch.no_grad():
                getattr(bilm.backward_layers[1], name).mul_(1.5)
            assert_up_to_date(bilm)
            assert not torch.equal(activations(bilm), before)

    def test_to_another_type_and_back(self, bilm: BiLM) -> None:
        expected = activations(bilm)
        if bilm.kernel == "reference":
            assert torch.allclose(activations(bilm.double()).float(), expected, atol=1e-5)
        bilm.double()
        with torch.no_grad():
            bilm.forward_layers[0].gate_bias.add_(0.5)
        bilm.float()
        assert_up_to_date(bilm)
        assert not torch.allclose(activations(bilm), expected, atol=1e-3)

    @pytest.mark.parametrize(
        "copied",
        [copy.deepcopy, lambda bilm: pickle.loads(pickle.dumps(bilm))],
        ids=["copy", "pickle"],
    )
    def test_copies_are_independent(self, bilm: BiLM, copied: Callable[[BiLM], BiLM]) -> None:
        expected = activations(bilm)
        other = copied(bilm)
        assert num_remembered(other) == 0
        assert torch.equal(activations(other), expected)
        with torch.no_grad():
            other.forward_layers[0].gate_weight.mul_(2)
        assert_up_to_date(other)
        assert torch.equal(activations(bilm), expected)

    def test_forked_workers(self, bilm: BiLM) -> None:
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        worker = context.Process(target=_send_activations, args=(bilm, queue))
        worker.start()
        theirs = torch.from_numpy(queue.get(timeout=120))
        worker.join()
        # BLAS adds in another order where memory is aligned in another way.
        assert torch.allclose(theirs, activations(bilm), atol=1e-5)


def test_what_is_saved_does_not_hold_prepared_weights(bilm: BiLM) -> None:
    sizes = []
    for is_prepared in (True, False):
        if not is_prepared:
            bilm.clear_caches()
        buffer = io.BytesIO()
        torch.save(bilm, buffer)
        sizes.append(buffer.tell())
    assert sizes[0] == sizes[1]


def test_a_trainable_bilm_has_no_low_precision(bilm_files: BiLMFiles) -> None:
    bilm = BiLM.from_files(*bilm_files, precision="bfloat16")
    bilm.forward_layers[0].requires_grad_(True)
    for context in (torch.enable_grad, torch.no_grad):
        with (
            context(),
            pytest.raises(RuntimeError, match="precision is bfloat16, which is for frozen"),
        ):
            bilm(CHARACTER_IDS)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_autocast_does_not_change_what_precision_says(
    precision: str, bilm_files: BiLMFiles
) -> None:
    bilm = BiLM.from_files(*bilm_files, precision=precision)
    expected = activations(bilm)
    bilm.clear_caches()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(activations(bilm), expected)


class TestSentenceCache:
    SENTENCES = [
        ["The", "naïve", "日本語"],
        ["the"],
        [],
        ["The", "x" * 80],
        ["the"],
        ["One", "more"],
    ]

    @pytest.fixture
    def num_read(self, monkeypatch: pytest.MonkeyPatch) -> List[int]:
        """How many rows the LSTMs have read in each pass."""
        run_layers, num_read = BiLM._run_layers, []

        def counted(bilm: BiLM, inputs: Any, step_sizes: List[int], *arguments: Any) -> Any:
            num_read.append(step_sizes[0])
            return run_layers(bilm, inputs, step_sizes, *arguments)

        monkeypatch.setattr(BiLM, "_run_layers", counted)
        return num_read

    def remembering(self, bilm_files: BiLMFiles, **settings: Any) -> BiLM:
        return BiLM.from_files(*bilm_files, **{"sentence_cache_mb": 1, **settings})

    def assert_right(self, bilm: BiLM, bilm_files: BiLMFiles, *rows: int) -> None:
        characters = batch_to_ids([self.SENTENCES[row] for row in rows])
        expected = BiLM.from_files(*bilm_files)(characters)
        found = bilm(characters)
        assert torch.equal(found["mask"], expected["mask"])
        assert len(found["activations"]) == bilm.num_layers
        for one, other in zip(found["activations"], expected["activations"]):
            assert torch.allclose(one, other, atol=1e-6)

    @pytest.mark.parametrize("megabytes", [0.001, 0.003, 1])
    def test_any_sequence_of_batches_gives_what_the_bilm_gives(
        self, megabytes: float, bilm_files: BiLMFiles
    ) -> None:
        bilm = self.remembering(bilm_files, sentence_cache_mb=megabytes)
        draw = random.Random(0)
        for _ in range(30):
            rows = draw.choices(range(len(self.SENTENCES)), k=draw.randint(1, 6))
            self.assert_right(bilm, bilm_files, *rows)

    def test_a_known_sentence_is_not_read_again(
        self, bilm_files: BiLMFiles, num_read: List[int]
    ) -> None:
        bilm = self.remembering(bilm_files)
        for rows in ([0, 1], [1, 0], [0, 3, 3, 1, 5]):
            bilm(batch_to_ids([self.SENTENCES[row] for row in rows]))
        assert num_read == [2, 2]
        assert len(bilm.sentence_cache) == 4

    def test_evaluation_between_epochs_is_remembered_prediction_is_not(
        self, bilm_files: BiLMFiles
    ) -> None:
        bilm = self.remembering(bilm_files).eval()
        activations(bilm)
        assert len(bilm.sentence_cache) == 0
        bilm.train()(batch_to_ids([["one"]]))
        with torch.no_grad():
            activations(bilm.eval())
        assert len(bilm.sentence_cache) == 5

    def test_it_holds_what_came_first_and_says_when_it_is_full(
        self, bilm_files: BiLMFiles, num_read: List[int], caplog: pytest.LogCaptureFixture
    ) -> None:
        # A token takes 3 layers of 2 * 4 floats, or so, and 100 bytes of characters.
        per_token = 4 * 3 * 2 * TINY_OPTIONS.projection_dim + 100
        bilm = self.remembering(bilm_files, sentence_cache_mb=4 * per_token / 1e6)
        with caplog.at_level(logging.INFO, "elmo_plugin.bilm.frozen"):
            for _ in range(2):
                for words in (["a", "b"], ["c", "d"], ["e"]):
                    bilm(batch_to_ids([words]))
        assert num_read == [1, 1, 1, 1, 1]
        messages = [text for text in caplog.messages if "sentence cache is full" in text]
        assert len(messages) == 1
        assert "MB hold 1 sentences" in messages[0]
        assert "raise sentence_cache_mb" in messages[0]

    def test_the_mix_above_it_learns_as_without_it(self, bilm_files: BiLMFiles) -> None:
        gradients = []
        for megabytes in (0, 1):
            elmo = Elmo(*map(str, bilm_files), 1, dropout=0.0, sentence_cache_mb=megabytes)
            for _ in range(2):
                elmo.zero_grad()
                elmo(CHARACTER_IDS)["elmo_representations"][0].square().sum().backward()
            gradients.append(torch.stack([p.grad for p in elmo.scalar_mixes[0].parameters()]))
            assert len(elmo.bilm.sentence_cache) == 4 * megabytes
        assert torch.allclose(*gradients)

    @pytest.mark.parametrize("why_not", ["stateful", "trainable", "cached vocabulary", "0 MB"])
    def test_where_it_cannot_know_it_remembers_nothing(
        self, why_not: str, bilm_files: BiLMFiles
    ) -> None:
        bilm = self.remembering(
            bilm_files,
            stateful=why_not == "stateful",
            sentence_cache_mb=0 if why_not == "0 MB" else 1,
        )
        bilm.requires_grad_(why_not == "trainable")
        if why_not == "cached vocabulary":
            bilm.cache_vocabulary(["", "the"])
        for _ in range(2):
            bilm(batch_to_ids([["the"]]), torch.tensor([[1]]))
        assert len(bilm.sentence_cache) == 0

    def test_what_inference_mode_makes_is_not_used_outside(self, bilm_files: BiLMFiles) -> None:
        elmo = Elmo(*map(str, bilm_files), 1, dropout=0.0)
        with torch.inference_mode():
            elmo(CHARACTER_IDS)
        elmo(CHARACTER_IDS)["elmo_representations"][0].sum().backward()

    def test_what_it_gives_can_be_written_to(self, bilm_files: BiLMFiles) -> None:
        bilm = self.remembering(bilm_files)
        for _ in range(3):
            for layer in bilm(batch_to_ids([self.SENTENCES[0]]))["activations"]:
                layer.zero_()
        self.assert_right(bilm, bilm_files, 0)

    def test_a_negative_size_is_refused(self, bilm_files: BiLMFiles) -> None:
        with pytest.raises(ConfigurationError, match="sentence_cache_mb is -1, expected 0"):
            self.remembering(bilm_files, sentence_cache_mb=-1)


class CountingEncoder:
    """Doubles characters, and remembers which words it was asked for."""

    def __init__(self) -> None:
        self.calls: List[List[int]] = []

    def __call__(self, types: Tensor) -> Tensor:
        self.calls.append(types[:, 0].tolist())
        return 2.0 * types


def types_of(*words: int) -> Tensor:
    return torch.tensor([[word, word + 1] for word in words])


batches_of_words = st.lists(
    st.lists(st.integers(0, 30), min_size=1, max_size=12, unique=True), max_size=12
)


@given(capacity=st.integers(0, 8), batches=batches_of_words)
def test_any_sequence_of_batches_gives_what_the_encoder_gives(
    capacity: int, batches: List[List[int]]
) -> None:
    cache, encoder = WordTypeCache(capacity), CountingEncoder()
    for words in batches:
        types = types_of(*words)
        assert torch.equal(cache.encode(types, encoder, version=0), 2.0 * types)
        assert len(cache) <= capacity


def test_only_unknown_words_are_encoded() -> None:
    cache, encoder = WordTypeCache(10), CountingEncoder()
    for words in ([1, 2], [2, 3], [3, 1]):
        cache.encode(types_of(*words), encoder, version=0)
    assert encoder.calls == [[1, 2], [3]]
    assert (cache.num_hits, cache.num_lookups) == (3, 6)
    assert cache.hit_rate == 0.5


def test_the_least_recently_used_word_goes_first() -> None:
    cache, encoder = WordTypeCache(2), CountingEncoder()
    for word in (1, 2, 1, 3, 1, 2):  # 3 drops 2
        cache.encode(types_of(word), encoder, version=0)
    assert encoder.calls == [[1], [2], [3], [2]]


def test_the_table_grows_up_to_the_capacity() -> None:
    cache, encoder = WordTypeCache(5000), CountingEncoder()
    for start in range(0, 6000, 500):
        words = range(start, start + 500)
        assert torch.equal(cache.encode(types_of(*words), encoder, 0), 2.0 * types_of(*words))
    assert len(cache) == 5000
    cache.encode(types_of(5999), encoder, version=0)
    assert len(encoder.calls) == 12


def test_threads_share_a_small_cache_without_mixing_words_up() -> None:
    cache = WordTypeCache(3)
    wrong: List[int] = []

    def use(start: int) -> None:
        for word in range(start, start + 300):
            types = types_of(word % 7, word % 7 + 100)
            if not torch.equal(cache.encode(types, CountingEncoder(), version=0), 2.0 * types):
                wrong.append(word)

    threads = [threading.Thread(target=use, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_hit_rate_is_logged_after_1_10_100_and_every_1000_batches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = WordTypeCache(10)
    with caplog.at_level(logging.INFO):
        for _ in range(2000):
            cache.encode(types_of(1, 2), CountingEncoder(), version=0)
    assert [record.getMessage() for record in caplog.records] == [
        "Word-type cache: hit rate 0.0% of 2 word types in 1 batches; holds 2 types, room for 10.",
        "Word-type cache: hit rate 90.0% of 20 word types in 10 batches; holds 2 types, room for 10.",
        "Word-type cache: hit rate 99.0% of 200 word types in 100 batches; holds 2 types, room for 10.",
        "Word-type cache: hit rate 99.9% of 2,000 word types in 1,000 batches; holds 2 types, "
        "room for 10.",
        "Word-type cache: hit rate 100.0% of 4,000 word types in 2,000 batches; holds 2 types, "
        "room for 10.",
    ]


def test_a_negative_capacity_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="word_cache_size is -1, expected 0"):
        WordTypeCache(-1)
