import copy
import gc
import inspect
import weakref
from dataclasses import replace
from typing import Any, Dict

import h5py
import pytest
import torch

from elmo_plugin import BiLM, Elmo, FrozenBiLM, batch_to_ids
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.errors import ConfigurationError
from tests.closeness import assert_accurate, assert_close, assert_share
from tests.conftest import (
    SCALE,
    SENTENCES,
    TINY_OPTIONS,
    BiLMFiles,
    allennlp_elmo,
    of_allennlp,
    roundings_of,
    terms_of,
    with_encoder,
)

VOCABULARY = ["@@PADDING@@", "the", "naïve", "日本語"]

ARGUMENTS: Dict[str, Dict[str, Any]] = {
    "defaults": {},
    "layer norm": {"do_layer_norm": True},
    "kept boundaries": {"keep_sentence_boundaries": True},
    "kept boundaries and layer norm": {"keep_sentence_boundaries": True, "do_layer_norm": True},
    "fixed mix": {"scalar_mix_parameters": [0.5, -1.0, 2.0]},
    "one layer": {"scalar_mix_parameters": [-9e10, 1, -9e10]},
    "cached words": {"vocab_to_cache": VOCABULARY},
    "fine-tuning": {"requires_grad": True},
}


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_result_equals_that_of_allennlp(arguments: str, bilm_files: BiLMFiles) -> None:
    keywords = ARGUMENTS[arguments]
    character_ids = batch_to_ids(SENTENCES)
    ours = Elmo(*bilm_files, 2, dropout=0.0, **keywords)
    theirs = allennlp_elmo(bilm_files, 2, dropout=0.0, **keywords)
    for elmo in (ours, theirs):
        elmo.scalar_mix_1.gamma.data.fill_(0.7)
        elmo.scalar_mix_1.scalar_parameters[2].data.fill_(1.5)
    result, expected = ours(character_ids), theirs(character_ids)
    assert result.keys() == expected.keys()
    assert torch.equal(result["mask"], expected["mask"])
    representations = result["elmo_representations"], expected["elmo_representations"]
    assert_accurate(*representations)
    for ours_tensor, their_tensor in zip(*representations):
        assert ours_tensor.requires_grad == their_tensor.requires_grad


def test_word_inputs_give_the_same_as_in_allennlp(bilm_files: BiLMFiles) -> None:
    # AllenNLP takes a cached word for padding if its vector has no positive number.
    with h5py.File(bilm_files.weight_file, "a") as file:
        file["CNN_proj/b_proj"][0] = 5.0
    word_ids = torch.tensor([[[1, 2, 3], [3, 0, 0]]])  # wrapped: (1, 2, 3)
    character_ids = batch_to_ids([VOCABULARY[1:], VOCABULARY[3:]]).unsqueeze(0)
    ours = Elmo(*bilm_files, 1, dropout=0.0, vocab_to_cache=VOCABULARY)
    theirs = allennlp_elmo(bilm_files, 1, dropout=0.0, vocab_to_cache=VOCABULARY)
    # Both read no characters beside words.
    result = ours(torch.ones_like(character_ids), word_ids)
    expected = theirs(torch.ones_like(character_ids), word_ids)
    assert torch.equal(result["mask"], expected["mask"])
    representation = result["elmo_representations"][0]
    assert representation.shape == (1, 2, 3, 12)
    assert_accurate(representation, expected["elmo_representations"][0])


@pytest.mark.parametrize("keep_sentence_boundaries", [False, True])
def test_wrapped_inputs_keep_their_dimensions(
    keep_sentence_boundaries: bool, bilm_files: BiLMFiles
) -> None:
    elmo = Elmo(*bilm_files, 1, dropout=0.0, keep_sentence_boundaries=keep_sentence_boundaries)
    character_ids = batch_to_ids(SENTENCES[:4])
    flat = elmo(character_ids)
    wrapped = elmo(character_ids.view(2, 1, 2, *character_ids.shape[1:]))
    timesteps = character_ids.size(1) + 2 * keep_sentence_boundaries
    assert wrapped["mask"].shape == (2, 1, 2, timesteps)
    assert wrapped["elmo_representations"][0].shape == (2, 1, 2, timesteps, 12)
    assert torch.equal(wrapped["mask"].flatten(0, 2), flat["mask"])
    assert torch.equal(
        wrapped["elmo_representations"][0].flatten(0, 2), flat["elmo_representations"][0]
    )


def test_several_mixes_take_one_pass_of_the_bilm(bilm_files: BiLMFiles, shapes_run: list) -> None:
    output = Elmo(*bilm_files, 3)(batch_to_ids(SENTENCES))
    assert len(output["elmo_representations"]) == 3
    assert len(shapes_run) == 1


def test_dropout_has_its_rate_and_its_scale_in_training_and_else_none(
    bilm_files: BiLMFiles,
) -> None:
    torch.manual_seed(0)
    elmo, without = (Elmo(*bilm_files, 1, dropout=rate) for rate in (0.25, 0.0))
    character_ids = batch_to_ids(SENTENCES)
    full, dropped, expected = (
        one.train(is_training)(character_ids)["elmo_representations"][0]
        for one, is_training in ((elmo, False), (elmo, True), (without, False))
    )
    assert torch.equal(full, expected)
    is_kept = dropped != 0
    assert_close(dropped[is_kept], full[is_kept] / 0.75, terms_of(9) + 3, SCALE / 0.75)
    assert_share(~is_kept[full != 0], 0.25)


def test_only_mixes_are_trained_unless_the_bilm_is_fine_tuned(bilm_files: BiLMFiles) -> None:
    frozen = Elmo(*bilm_files, 1)
    trained = {name for name, p in frozen.named_parameters() if p.requires_grad}
    assert trained == {"scalar_mix_0.gamma"} | {
        f"scalar_mix_0.scalar_parameters.{layer}" for layer in range(3)
    }
    fine_tuned = Elmo(*bilm_files, 1, requires_grad=True)
    assert all(parameter.requires_grad for parameter in fine_tuned.parameters())


def test_the_first_arguments_are_those_of_allennlp_in_order() -> None:
    theirs = inspect.signature(of_allennlp("modules.elmo.Elmo").__init__).parameters
    ours = inspect.signature(Elmo.__init__).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    # One name is enough for both files.
    new_defaults = {"weight_file": None, "num_output_representations": 1}
    for name, parameter in theirs.items():
        assert ours[name].default == new_defaults.get(name, parameter.default), name


def test_built_from_a_config(bilm_files: BiLMFiles) -> None:
    settings = {**bilm_files._asdict(), "num_output_representations": 2, "dropout": 0.1}
    params = of_allennlp("common.Params")(settings)
    elmo = Elmo.from_params(params)
    assert elmo.get_output_dim() == 12
    assert elmo.dropout.p == 0.1


def test_allennlps_own_bilm_in_place_of_files(bilm_files: BiLMFiles) -> None:
    character_ids = batch_to_ids(SENTENCES)
    theirs = allennlp_elmo(bilm_files, 1, dropout=0.0)
    elmo = Elmo(None, None, 1, dropout=0.0, module=theirs._elmo_lstm)
    expected = theirs(character_ids)["elmo_representations"][0]
    # The same activations, mixed: a softmax and a sum of three.
    ours = elmo(character_ids)["elmo_representations"][0]
    layers = torch.stack(theirs._elmo_lstm(character_ids)["activations"])
    assert_close(ours, expected, terms=3 + 3, scale=float(layers.abs().max()))


def test_stateful_it_equals_allennlp_until_states_are_reset(bilm_files: BiLMFiles) -> None:
    ours = Elmo(*bilm_files, 1, dropout=0.0, stateful=True)
    theirs = allennlp_elmo(bilm_files, 1, dropout=0.0, stateful=True)
    representations = []
    for batch in (SENTENCES, SENTENCES[:2], SENTENCES):
        character_ids = batch_to_ids(batch)
        representations.append(ours(character_ids)["elmo_representations"][0])
        expected = theirs(character_ids)["elmo_representations"][0]
        assert_accurate(representations[-1], expected)
    ours.reset_states()
    again = ours(character_ids)["elmo_representations"][0]
    # The same batch from the same states.
    assert torch.equal(again, representations[0])
    assert not torch.equal(again, representations[-1])


def test_states_of_allennlps_own_bilm_are_reset(bilm_files: BiLMFiles) -> None:
    module = allennlp_elmo(bilm_files, 1, stateful=True)._elmo_lstm
    elmo = Elmo(None, None, 1, dropout=0.0, module=module)
    character_ids = batch_to_ids(SENTENCES)
    first, second = (elmo(character_ids)["elmo_representations"][0] for _ in range(2))
    elmo.reset_states()
    again = elmo(character_ids)["elmo_representations"][0]
    assert torch.equal(again, first)
    assert not torch.equal(again, second)


def test_the_top_layer_only_is_the_last_layer_times_a_trainable_gamma(
    bilm_files: BiLMFiles,
) -> None:
    elmo = Elmo(*bilm_files, 1, dropout=0.0, top_layer_only=True)
    elmo.scalar_mix_0.gamma.data.fill_(2.0)
    character_ids = batch_to_ids(SENTENCES)
    top = elmo.bilm(character_ids)["activations"][-1]
    representation = elmo(character_ids)["elmo_representations"][0]
    # The snapshot beside the modules, and the mix.
    assert_close(representation[0], 2 * top[0, 1:-1], terms_of(9) + 3)
    trained = {name for name, p in elmo.named_parameters() if p.requires_grad}
    assert trained == {"scalar_mix_0.gamma"}


@pytest.mark.parametrize(
    "inputs, found",
    [([["a"]], "type list"), (torch.ones(4, 50, dtype=torch.long), r"shape \(4, 50\)")],
)
def test_what_are_no_character_ids_is_named(inputs: Any, found: str, bilm_files: BiLMFiles) -> None:
    with pytest.raises(ValueError, match=f"got character ids of {found}, expected a tensor"):
        Elmo(*bilm_files, 1)(inputs)


class TestStateDict:
    def test_one_from_files_and_one_with_a_module_give_the_same_and_exchange_theirs(
        self, bilm_files: BiLMFiles
    ) -> None:
        from_files = Elmo(*bilm_files, 1, dropout=0.0)
        with_module = Elmo(None, None, 1, dropout=0.0, module=BiLM.from_files(*bilm_files))
        with_module.load_state_dict(from_files.state_dict())
        from_files.load_state_dict(with_module.state_dict())
        ours, expected = (
            elmo(batch_to_ids(SENTENCES))["elmo_representations"][0]
            for elmo in (with_module, from_files)
        )
        assert torch.equal(ours, expected)

    @pytest.mark.parametrize("arguments", [{}, {"vocab_to_cache": VOCABULARY}])
    def test_that_of_allennlp_loads(
        self, arguments: dict, bilm_files: BiLMFiles, write_bilm: Any
    ) -> None:
        other_files = write_bilm(seed=1, name="other")
        theirs = allennlp_elmo(other_files, 2, dropout=0.0, **arguments)
        theirs.scalar_mix_1.scalar_parameters[0].data.fill_(2.0)
        ours = Elmo(*bilm_files, 2, dropout=0.0, **arguments)
        ours.load_state_dict(theirs.state_dict())
        character_ids = batch_to_ids(SENTENCES)
        result, expected = ours(character_ids), theirs(character_ids)
        assert_accurate(result["elmo_representations"], expected["elmo_representations"])

    def test_allennlps_own_bilm_keeps_its_vectors_of_words(self, bilm_files: BiLMFiles) -> None:
        def elmo() -> Elmo:
            theirs = allennlp_elmo(bilm_files, 1, vocab_to_cache=VOCABULARY)
            module = theirs._elmo_lstm
            return Elmo(None, None, 1, module=module, vocab_to_cache=VOCABULARY)

        trained, loaded = elmo(), elmo()
        vectors = "_elmo_lstm._word_embedding.weight"
        with torch.no_grad():
            trained.get_parameter(vectors).add_(1.0)
        loaded.load_state_dict(trained.state_dict())
        assert torch.equal(loaded.get_parameter(vectors), trained.get_parameter(vectors))

    @pytest.mark.parametrize("assign", [False, True])
    def test_it_fills_one_on_the_meta_device_which_then_has_the_same(
        self, assign: bool, bilm_files: BiLMFiles
    ) -> None:
        elmo = Elmo(*bilm_files, 1)
        expected = copy.deepcopy(elmo.state_dict())
        elmo.to("meta")
        if not assign:
            elmo.to_empty(device="cpu")
        elmo.load_state_dict(expected, assign=assign)
        found = elmo.state_dict()
        assert all(torch.equal(found[name], value) for name, value in expected.items())

    def test_that_of_a_differently_named_biLM_loads(
        self, bilm_files: BiLMFiles, write_bilm: Any
    ) -> None:
        other = Elmo(*write_bilm(seed=1, name="a_much_longer_name"), 1)
        ours = Elmo(*bilm_files, 1)
        ours.load_state_dict(other.state_dict())
        assert torch.equal(
            ours.bilm.forward_layers[0].gate_weight, other.bilm.forward_layers[0].gate_weight
        )

    @pytest.mark.parametrize(
        "options, message",
        [
            (
                replace(TINY_OPTIONS, cell_clip=0.05),
                r"cell_clip 0\.05, expected 3\.0, as the biLM of the archive",
            ),
            (with_encoder(TINY_OPTIONS, activation="tanh"), "encoder .*'tanh'.* expected .*'relu'"),
        ],
    )
    def test_that_of_a_biLM_with_other_options_is_refused(
        self, options: BiLMOptions, message: str, bilm_files: BiLMFiles, write_bilm: Any
    ) -> None:
        elmo = Elmo(*write_bilm(options, name="other"), 1)
        with pytest.raises(ConfigurationError, match=message):
            elmo.load_state_dict(Elmo(*bilm_files, 1).state_dict())


NO_FILES = {"options_file": None, "weight_file": None}


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"dropout": -0.1}, "dropout is -0.1, expected a number from 0 to 1"),
        ({"dropout": 1.5}, "dropout is 1.5, expected a number from 0 to 1"),
        ({"dropout": "0.5"}, "dropout is '0.5', expected a number"),
        ({"num_output_representations": 0}, "num_output_representations is 0"),
        ({"num_output_representations": "2"}, "num_output_representations is '2', expected a p"),
        ({"top_layer_only": "false"}, "top_layer_only is 'false', expected true or false"),
        ({"vocab_to_cache": []}, "vocab_to_cache is an empty list"),
        ({"requires_grad": True, "precision": "int8"}, "precision is 'int8' with requires_grad"),
        ({"top_layer_only": True, "scalar_mix_parameters": [0, 0, 1]}, "both set the weights"),
        ({"module": torch.nn.Identity()}, "given both a module and files"),
        ({"module": torch.nn.Identity(), "stateful": True}, "given a module and stateful"),
        (
            {"module": torch.nn.Identity(), **NO_FILES, "precision": "int8"},
            "given a module that is no BiLM, and precision",
        ),
        (NO_FILES, "No model is named, expected one: elmo_m"),
    ],
    ids=str,
)
def test_arguments_that_cannot_be(
    arguments: Dict[str, Any], message: str, bilm_files: BiLMFiles
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Elmo(**{**bilm_files._asdict(), "num_output_representations": 1, **arguments})


def test_settings_of_inference_reach_the_snapshot(
    bilm_files: BiLMFiles, caplog: pytest.LogCaptureFixture
) -> None:
    exact = Elmo(*bilm_files, 1, dropout=0.0)
    for precision in ("bfloat16", "int8"):
        elmo = Elmo(*bilm_files, 1, dropout=0.0, precision=precision, kernel="reference")
        with caplog.at_level("INFO", "elmo_plugin.bilm.snapshot"):
            ours = elmo(batch_to_ids(SENTENCES))["elmo_representations"][0]
        assert f"runs in {precision} on the reference kernel (cpu)" in caplog.text
        theirs = exact(batch_to_ids(SENTENCES))["elmo_representations"][0]
        assert not torch.equal(ours, theirs)
        steps = max(map(len, SENTENCES)) + 2
        assert_close(ours, theirs, terms_of(steps) + 3, SCALE, precision, roundings_of(steps))


class TestOnlyASnapshot:
    """An `Elmo` without the weights of a `BiLM`."""

    def test_it_gives_the_same(self, bilm_files: BiLMFiles) -> None:
        character_ids = batch_to_ids(SENTENCES)
        elmo = Elmo(*bilm_files, 1, dropout=0.0)
        expected = elmo(character_ids)["elmo_representations"][0]
        given = Elmo(None, None, 1, dropout=0.0, module=FrozenBiLM.from_files(*bilm_files))
        elmo.keep_only_snapshot()
        with pytest.raises(ConfigurationError, match=r"keep_only_snapshot.*cannot be saved"):
            torch.nn.ModuleList([elmo]).state_dict()
        for one in (elmo, given):
            # The same kernel and weights.
            assert torch.equal(one(character_ids)["elmo_representations"][0], expected)
            assert not [name for name, _ in one.named_parameters() if "_elmo_lstm" in name]

    def test_the_memory_of_the_bilm_is_free(self, bilm_files: BiLMFiles) -> None:
        elmo = Elmo(*bilm_files, 1)
        weights = [weakref.ref(parameter) for parameter in elmo.bilm.parameters()]
        elmo.keep_only_snapshot()
        gc.collect()
        assert all(weight() is None for weight in weights)

    @pytest.mark.parametrize("arguments", [{"requires_grad": True}, {"stateful": True}], ids=str)
    def test_where_none_can_run_the_modules_stay(
        self, arguments: Dict[str, Any], bilm_files: BiLMFiles
    ) -> None:
        elmo = Elmo(*bilm_files, 1, **arguments)
        elmo.keep_only_snapshot()
        assert isinstance(elmo.bilm, BiLM)


class TestWordInputs:
    WORD_IDS = torch.tensor([[1, 2, 3], [3, 0, 0]])
    CHARACTER_IDS = batch_to_ids([VOCABULARY[1:], ["日本語"]])

    @pytest.fixture
    def elmo(self, bilm_files: BiLMFiles) -> Elmo:
        return Elmo(*bilm_files, 1, dropout=0.0, vocab_to_cache=VOCABULARY)

    def test_with_indices_beyond_the_vocabulary_characters_are_read(self, elmo: Elmo) -> None:
        expected = elmo(self.CHARACTER_IDS)["elmo_representations"][0]
        ours = elmo(self.CHARACTER_IDS, self.WORD_IDS + 1)["elmo_representations"][0]
        assert torch.equal(ours, expected)

    def test_without_a_vocabulary_they_are_ignored_with_one_warning(
        self, bilm_files: BiLMFiles, caplog: pytest.LogCaptureFixture
    ) -> None:
        elmo = Elmo(*bilm_files, 1, dropout=0.0)
        expected = elmo(self.CHARACTER_IDS)["elmo_representations"][0]
        for _ in range(2):
            ours = elmo(self.CHARACTER_IDS, self.WORD_IDS)["elmo_representations"][0]
            assert torch.equal(ours, expected)
        assert caplog.text.count("word_inputs is given without vocab_to_cache") == 1

    def test_the_vocabulary_is_no_tensor_that_a_state_dict_must_fill(self, elmo: Elmo) -> None:
        expected = elmo(self.CHARACTER_IDS, self.WORD_IDS)["elmo_representations"][0]
        state_dict = copy.deepcopy(elmo.state_dict())
        elmo.to("meta").to_empty(device="cpu").load_state_dict(state_dict)
        ours = elmo(self.CHARACTER_IDS, self.WORD_IDS)["elmo_representations"][0]
        assert torch.equal(ours, expected)

    def test_of_a_batch_without_words(self, elmo: Elmo) -> None:
        empty = torch.zeros(2, 0, dtype=torch.long)
        output = elmo(torch.zeros(2, 0, 50, dtype=torch.long), empty)
        assert output["elmo_representations"][0].shape == (2, 0, 12)

    @pytest.mark.parametrize(
        "word_ids, message",
        [
            (WORD_IDS - 2, "word_inputs holds -2, expected 0 .* or the index of a word"),
            (WORD_IDS[:, :2], r"word_inputs has shape \(2, 2\), expected .* \(2, 3\)"),
            (WORD_IDS.flatten(), r"word_inputs has shape \(6,\), expected .* \(2, 3\)"),
            (WORD_IDS[0, 0], r"word_inputs has shape \(\), expected .* \(2, 3\)"),
            (WORD_IDS.float(), "word_inputs has type torch.float32, expected integers"),
            # torch would read these as masks.
            (WORD_IDS.bool(), "word_inputs has type torch.bool, expected integers"),
            (WORD_IDS.byte(), "word_inputs has type torch.uint8, expected integers"),
        ],
        ids=["negative", "width", "flat", "scalar", "float32", "bool", "uint8"],
    )
    def test_that_are_wrong_are_refused(
        self, word_ids: torch.Tensor, message: str, elmo: Elmo
    ) -> None:
        with pytest.raises(ValueError, match=message):
            elmo(self.CHARACTER_IDS, word_ids)

    def test_trained_vectors_of_allennlps_vocabulary_are_refused(
        self, elmo: Elmo, bilm_files: BiLMFiles
    ) -> None:
        theirs = allennlp_elmo(bilm_files, 1, vocab_to_cache=VOCABULARY, requires_grad=True)
        elmo.load_state_dict(theirs.state_dict())
        vectors = theirs._elmo_lstm._word_embedding.weight.detach()
        for other in (1.1 * vectors, torch.nan * vectors, vectors.repeat(2, 1), vectors[:, :3]):
            state_dict = {**theirs.state_dict(), "_elmo_lstm._word_embedding.weight": other}
            with pytest.raises(ConfigurationError, match="vectors of the cached vocabulary that"):
                elmo.load_state_dict(state_dict)


class NumberMask(torch.nn.Module):
    """Gives a mask of numbers, as AllenNLP 1 did."""

    num_layers = 1

    def get_output_dim(self) -> int:
        return 2

    def forward(self, character_ids: torch.Tensor, word_ids: Any) -> Dict[str, Any]:
        mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
        return {"activations": [torch.ones(2, 4, 2)], "mask": mask}


def test_a_mask_of_numbers_is_read_as_booleans() -> None:
    elmo = Elmo(None, None, 1, dropout=0.0, module=NumberMask())
    elmo.reset_states()  # without effect: it has none
    output = elmo(torch.ones(2, 2, 50, dtype=torch.long))
    assert output["mask"].tolist() == [[True, True], [False, False]]
    assert output["elmo_representations"][0][:, :, 0].tolist() == [[1, 1], [0, 0]]
