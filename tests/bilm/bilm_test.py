import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from elmo_plugin import BiLM, FrozenBiLM, batch_to_ids
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.allennlp_names import translate_allennlp_bilm
from elmo_plugin.bilm.batch import CarriedStates
from elmo_plugin.bilm.bilm import run_stack
from elmo_plugin.bilm.options import MAX_SIZE, CharacterEncoderOptions
from elmo_plugin.bilm.simd.library import unit_of_modules
from elmo_plugin.errors import ConfigurationError
from tests.bilm.slow_bilm import SlowBiLM
from tests.closeness import assert_accurate, assert_close
from tests.conftest import (
    SCALE,
    SENTENCES,
    TINY_OPTIONS,
    BiLMFiles,
    allennlp_elmo,
    randomize,
    roundings_of,
    terms_of,
    with_encoder,
)

WriteBiLM = Callable[..., BiLMFiles]

TERMS = terms_of(9)  # of the longest sentence

# Shapes that AllenNLP can load (it requires skip connections), each varying something.
SHAPES = {
    "tiny": TINY_OPTIONS,
    "tanh": with_encoder(TINY_OPTIONS, activation="tanh"),
    "no highway": with_encoder(TINY_OPTIONS, num_highway=0),
    "three highways": with_encoder(TINY_OPTIONS, num_highway=3),
    "one layer": replace(TINY_OPTIONS, num_lstm_layers=1),
    "three layers": replace(TINY_OPTIONS, num_lstm_layers=3),
    "no clips": replace(TINY_OPTIONS, cell_clip=None, proj_clip=None),
    "tight clips": replace(TINY_OPTIONS, cell_clip=0.3, proj_clip=0.1),
    "one wide filter": with_encoder(TINY_OPTIONS, filters=((50, 5),)),
    "filters in any order": with_encoder(TINY_OPTIONS, filters=((7, 3), (1, 2), (7, 2))),
    "fixture of bilm-tf": BiLMOptions(
        CharacterEncoderOptions("relu", 4, ((1, 4), (2, 8), (3, 16), (4, 32), (5, 64))),
        cell_size=64,
        projection_dim=16,
    ),
}  # fmt: skip


def allennlp_bilm(files: BiLMFiles, **kwargs: Any) -> torch.nn.Module:
    return allennlp_elmo(files, 1, **kwargs)._elmo_lstm


def slow_activations(files: BiLMFiles, batches: List[List[List[str]]]) -> List[List[Tensor]]:
    """Activations of the slow loop for each sentence of each batch, rows carrying their states."""
    slow_bilm = SlowBiLM(*files)
    states: Dict[int, Any] = {}
    return [
        [
            torch.from_numpy(slow_bilm.activations(sentence, states.setdefault(row, {})))
            for row, sentence in enumerate(batch)
        ]
        for batch in batches
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_equal_those_of_allennlp(shape: str, write_bilm: WriteBiLM) -> None:
    # Moderate weights: the accuracy is absolute, and gradients grow with the weights.
    assert_equal_to_allennlp(write_bilm(SHAPES[shape], scale=0.2))


@pytest.mark.slow
def test_the_official_shape_equals_allennlp(
    write_bilm: WriteBiLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    # AllenNLP's initial values, which those of the file replace, take most of the time.
    monkeypatch.setattr(
        "allennlp.modules.lstm_cell_with_projection.block_orthogonal", lambda *_: None
    )
    last_layer = assert_equal_to_allennlp(write_bilm(BiLMOptions(), scale=0.02))
    assert float(last_layer.abs().max()) > 0.01


def assert_equal_to_allennlp(files: BiLMFiles) -> Tensor:
    """Compare activations, also of a frozen biLM, and gradients. Return the last layer."""
    character_ids = batch_to_ids(SENTENCES)
    ours = BiLM.from_files(*files).requires_grad_(True)
    theirs = allennlp_bilm(files, requires_grad=True)
    found, expected = ours(character_ids), theirs(character_ids)
    for output in (found, BiLM.from_files(*files)(character_ids)):
        assert torch.equal(output["mask"], expected["mask"])
        assert_accurate(output["activations"], expected["activations"])
    for output in (found, expected):
        activations = torch.stack(output["activations"])
        weights = torch.linspace(-1, 1, activations.numel()).view_as(activations)
        (activations * weights).mean().backward()
    their_gradients = {name: p.grad for name, p in theirs.named_parameters()}
    for name in their_gradients:
        if name.endswith("state_linearity.bias"):
            # The translation takes the forget bias of 1 away from values; gradients have none.
            their_gradients[name].chunk(4)[1].add_(1.0)
    translate_allennlp_bilm(ours, their_gradients, "")
    our_gradients = {name: p.grad for name, p in ours.named_parameters()}
    assert our_gradients.keys() == their_gradients.keys()
    for name, gradient in our_gradients.items():
        assert_accurate(gradient, their_gradients[name])
        # Where no word exceeds 0 before a relu, there is no gradient.
        assert gradient.any() or name.startswith("character_encoder."), name
    return found["activations"][-1].detach()


@pytest.mark.parametrize(
    "options",
    [
        replace(TINY_OPTIONS, use_skip_connections=skip, num_lstm_layers=layers, cell_clip=clip)
        for skip, layers, clip in itertools.product([True, False], [1, 3], [None, 0.3])
    ]
    + [
        replace(TINY_OPTIONS, cell_size=6),  # no state projection
        with_encoder(TINY_OPTIONS, filters=((2, 6),)),  # no token projection
    ],
    ids=str,
)
def test_values_equal_those_of_a_slow_loop(options: BiLMOptions, write_bilm: WriteBiLM) -> None:
    files = write_bilm(options)
    output = BiLM.from_files(*files)(batch_to_ids(SENTENCES))
    for row, expected in enumerate(slow_activations(files, [SENTENCES])[0]):
        ours = torch.stack(output["activations"])[:, row]
        length = expected.size(1)
        assert_accurate(ours[:, :length].double(), expected)
        assert not ours[:, length:].any()


def test_stateful_batches_equal_a_slow_loop_that_carries_states(write_bilm: WriteBiLM) -> None:
    # Moderate weights: the accuracy is absolute.
    files = write_bilm(scale=0.2)
    # Growing and shrinking batches, with an empty row; and rows of one sentence that have other states.
    batches = [SENTENCES[:2], SENTENCES, SENTENCES[3:4], SENTENCES[1:4], SENTENCES[:1] * 3]
    bilm = BiLM.from_files(*files, stateful=True)
    for batch, expected in zip(batches, slow_activations(files, batches), strict=True):
        activations = torch.stack(bilm(batch_to_ids(batch))["activations"])
        for row, row_expected in enumerate(expected):
            ours = activations[:, row, : row_expected.size(1)]
            assert_accurate(ours.double(), row_expected)


def test_carried_states_follow_a_cast(bilm_files: BiLMFiles) -> None:
    bilm = BiLM.from_files(*bilm_files, stateful=True)
    single = BiLM.from_files(*bilm_files, stateful=True)
    for batch in (SENTENCES, SENTENCES[:2], SENTENCES):
        expected = single(batch_to_ids(batch))["activations"]
        ours = bilm(batch_to_ids(batch))["activations"]
        bilm.double()
        assert_close(torch.stack(ours).float(), torch.stack(expected), TERMS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_carried_states_are_not_rounded_under_autocast(
    dtype: torch.dtype, bilm_files: BiLMFiles
) -> None:
    bilm = BiLM.from_files(*bilm_files, stateful=True)
    starts: List[Any] = []
    bilm.forward_layers[0].register_forward_pre_hook(
        lambda module, inputs: starts.append(inputs[2:])
    )
    character_ids = batch_to_ids(SENTENCES[:1])
    with torch.autocast("cpu", dtype=dtype):
        bilm(character_ids)
        assert bilm.carried_states.states is not None
        kept = bilm.carried_states.states[0]
        bilm(character_ids)
    assert all(torch.equal(start, before) for start, before in zip(starts[1], kept, strict=True))


def test_carried_states_do_not_hold_on_to_the_graph_of_earlier_batches() -> None:
    bilm = BiLM(TINY_OPTIONS, stateful=True)
    for _ in range(2):  # the second backward pass would fail
        bilm(batch_to_ids(SENTENCES))["activations"][-1].sum().backward()


words = st.text(max_size=12)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(sentences=st.lists(st.lists(words, max_size=6), min_size=1, max_size=5), data=st.data())
def test_padding_batch_order_and_company_change_nothing(
    sentences: List[List[str]], data: st.DataObject
) -> None:
    bilm = randomize(BiLM(TINY_OPTIONS)).requires_grad_(False)
    order = data.draw(st.permutations(range(len(sentences))))
    character_ids = batch_to_ids([sentences[row] for row in order])
    padded = torch.nn.functional.pad(character_ids, (0, 0, 0, data.draw(st.integers(0, 3))))
    together = torch.stack(bilm(padded)["activations"])
    for row, original in enumerate(order):
        alone = torch.stack(bilm(batch_to_ids([sentences[original]]))["activations"])
        length = len(sentences[original]) + 2
        assert_close(together[:, row, :length], alone[:, 0, :length], TERMS)
        assert not together[:, row, length:].any()


def test_a_sentence_that_stands_in_a_batch_several_times_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: List[List[int]] = []

    def record(options: Any, layers: Any, inputs: Any, step_sizes: List[int], *others: Any) -> Any:
        read.append(step_sizes)
        return run_stack(options, layers, inputs, step_sizes, *others)

    monkeypatch.setattr("elmo_plugin.bilm.bilm.run_stack", record)
    bilm = randomize(BiLM(TINY_OPTIONS))
    sentences = [["a", "b"], ["c"], ["a", "b"], ["a", "b", "c"], ["c"], []]
    output = bilm(batch_to_ids(sentences))
    # 4 different ones, marks included: 5, 4, 3 and 2 steps.
    assert read == [[4, 4, 3, 2, 1]]
    assert output["mask"].sum(dim=1).tolist() == [4, 3, 4, 5, 3, 2]
    layers = torch.stack(output["activations"])
    weights = torch.rand_like(layers)
    singly = torch.zeros_like(layers)
    for row, sentence in enumerate(sentences):
        alone = torch.stack(bilm(batch_to_ids([sentence]))["activations"])
        singly[:, row, : len(sentence) + 2] = alone[:, 0]
    assert_close(layers, singly, TERMS)
    parameters = list(bilm.parameters())
    together = torch.autograd.grad((layers * weights).sum(), parameters)
    expected = torch.autograd.grad((singly * weights).sum(), parameters)
    for gradient, expected_gradient in zip(together, expected, strict=True):
        # Forwards, backwards, and over 21 words.
        assert_close(gradient, expected_gradient, 2 * TERMS + 21)


@pytest.mark.parametrize("kind", ["stateless", "stateful", "frozen"])
def test_a_batch_without_rows_gives_activations_without_rows(
    kind: str, bilm_files: BiLMFiles
) -> None:
    bilm = BiLM.from_files(*bilm_files, stateful=kind == "stateful")
    output = (bilm.freeze() if kind == "frozen" else bilm)(torch.zeros(0, 4, 50, dtype=torch.long))
    assert [tuple(layer.shape) for layer in output["activations"]] == [(0, 6, 12)] * 3
    assert output["mask"].shape == (0, 6)
    assert bilm.carried_states.num_rows == 0


class TestFrozen:
    def test_from_files_it_is_frozen_and_a_new_one_is_trainable(
        self, bilm_files: BiLMFiles
    ) -> None:
        for bilm, is_frozen in ((BiLM.from_files(*bilm_files), True), (BiLM(TINY_OPTIONS), False)):
            assert bilm.is_frozen == is_frozen
            for layer in bilm(batch_to_ids(SENTENCES))["activations"]:
                assert layer.requires_grad != is_frozen

    @pytest.mark.parametrize("name", ["character_encoder", "forward_layers.0", "backward_layers.1"])
    def test_what_a_hook_applies_has_the_gradient_that_it_has_in_a_trained_one(
        self, name: str, bilm_files: BiLMFiles
    ) -> None:
        gradients = []
        for is_trained in (False, True):
            bilm = BiLM.from_files(*bilm_files).requires_grad_(is_trained)
            factor = torch.ones((), requires_grad=True)

            def scaled(module: Any, inputs: Any, output: Any, factor: Tensor = factor) -> Any:
                if isinstance(output, Tensor):
                    return output * factor
                return output._replace(outputs=output.outputs * factor)

            bilm.get_submodule(name).register_forward_hook(scaled)
            activations = torch.stack(bilm(batch_to_ids(SENTENCES))["activations"])
            activations.square().sum().backward()
            gradients.append(factor.grad)
            assert all((parameter.grad is None) != is_trained for parameter in bilm.parameters())
        assert gradients[0] is not None and gradients[0] != 0
        # The same operations.
        assert torch.equal(gradients[0], gradients[1])

    def test_words_are_encoded_once(
        self, bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bilm = BiLM.from_files(*bilm_files)
        encoded: List[int] = []
        encode = bilm.character_encoder.forward
        monkeypatch.setattr(
            bilm.character_encoder,
            "forward",
            lambda types: (encoded.append(len(types)), encode(types))[1],
        )
        bilm(batch_to_ids([["a", "b", "a"], ["b"]]))
        bilm(batch_to_ids([["a", "c", "c"]]))
        # a, b and the two marks; then a, c and the two marks: nothing is kept.
        assert encoded == [4, 4]

    def test_autocast_says_in_what_to_multiply(self, bilm_files: BiLMFiles) -> None:
        bilm = BiLM.from_files(*bilm_files)
        character_ids = batch_to_ids(SENTENCES)
        expected = bilm(character_ids)["activations"]
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast("cpu", dtype=dtype):
                low = bilm(character_ids)["activations"]
            found, exact = torch.stack(low).float(), torch.stack(expected)
            assert not torch.equal(found, exact)
            assert_close(found, exact, TERMS, SCALE, dtype, roundings_of(9))


@pytest.mark.parametrize("source", ["ours", "allennlp"])
def test_the_tensors_of_a_state_dict_become_the_parameters(
    source: str, bilm_files: BiLMFiles
) -> None:
    expected = BiLM.from_files(*bilm_files)
    state_dict = (expected if source == "ours" else allennlp_bilm(bilm_files)).state_dict()
    bilm = BiLM.from_state_dict(expected.options, state_dict)
    assert bilm.is_frozen
    assert state_dict.keys() == expected.state_dict().keys()
    for name, parameter in bilm.named_parameters():
        assert parameter.is_set_to(state_dict[name])
        # AllenNLP adds 1 to the forget bias, and we subtract it.
        assert_close(parameter, expected.get_parameter(name), 2, SCALE)


def wrong_ids(place: Any, value: int) -> Tensor:
    character_ids = batch_to_ids(SENTENCES)
    character_ids[place] = value
    return character_ids


@pytest.mark.parametrize(
    "character_ids, message",
    [
        (torch.ones(4, 50, dtype=torch.long), r"expected \(batch_size, timesteps, 50\)"),
        (torch.ones(2, 3, 49, dtype=torch.long), r"expected \(batch_size, timesteps, 50\)"),
        (torch.ones(0, 49, dtype=torch.long), r"expected \(batch_size, timesteps, 50\)"),
        (torch.ones(0, 3, 49, dtype=torch.long), r"has shape \(0, 3, 49\), expected"),
        (torch.tensor(1), r"has shape \(\), expected"),
        (torch.ones(1, 2, 50), "has type torch.float32, expected integers"),
        (wrong_ids((3, 1, 4), -1), r"character_ids\[3, 1, 4\] is -1, expected 0 .* 261"),
        (wrong_ids((3, 1, 4), 262), r"character_ids\[3, 1, 4\] is 262, expected 0 .* 261"),
        (wrong_ids((3, 1), 0), "Row 3 has padding .* at step 1 before a word"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
@pytest.mark.parametrize("make", [BiLM.from_files, FrozenBiLM.from_files], ids=["BiLM", "frozen"])
def test_wrong_input_is_refused(
    make: Any, character_ids: Tensor, message: str, bilm_files: BiLMFiles
) -> None:
    with pytest.raises(ValueError, match=message):
        make(*bilm_files)(character_ids)


def test_sizes_beyond_memory_are_found_before_they_are_allocated(write_bilm: WriteBiLM) -> None:
    files = write_bilm()
    options = json.loads(Path(files.options_file).read_text())
    options["lstm"].update(dim=MAX_SIZE, projection_dim=MAX_SIZE - 1)
    Path(files.options_file).write_text(json.dumps(options))
    with pytest.raises(ConfigurationError, match=r"has shape .* belong to the same model"):
        BiLM.from_files(*files)


def test_short_integer_character_ids_are_accepted(bilm_files: BiLMFiles) -> None:
    bilm = BiLM.from_files(*bilm_files)
    character_ids = batch_to_ids(SENTENCES)
    assert torch.equal(
        bilm(character_ids.short())["activations"][-1], bilm(character_ids)["activations"][-1]
    )


@pytest.mark.parametrize("part", ["character_encoder", "lstms"])
def test_a_second_derivative_is_computed_by_torch_and_refused_by_cpp(
    part: str, bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    bilm = BiLM.from_files(*bilm_files).requires_grad_()
    character_ids = batch_to_ids(SENTENCES)
    encoder = bilm.character_encoder

    def second_derivative() -> Tensor:
        if part == "lstms":
            outputs = torch.stack(bilm(character_ids)["activations"])
            first = encoder.projection.weight
        else:
            outputs = encoder(character_ids[0])
            first = encoder.character_embedding.weight
        (gradient,) = torch.autograd.grad(outputs.square().sum(), first, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), encoder.projection.weight)[0]

    if unit_of_modules(encoder.projection.weight) is not None:
        with pytest.raises(RuntimeError, match="ELMO_CPU_CAPABILITY=default"):
            second_derivative()
    monkeypatch.setenv("ELMO_CPU_CAPABILITY", "default")
    found = second_derivative()
    bilm.double()
    assert_accurate(found / found.abs().max(), (second_derivative() / found.abs().max()).float())


def test_a_row_that_has_diverged_can_be_reset() -> None:
    states = CarriedStates()
    states.states = [(torch.tensor([[torch.nan], [2.0]]), torch.tensor([[torch.inf], [3.0]]))]
    states.reset(torch.tensor([True, False]))
    ((state, cell),) = states.states
    assert (state.tolist(), cell.tolist()) == ([[0.0], [2.0]], [[0.0], [3.0]])
