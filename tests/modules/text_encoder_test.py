import json
from typing import Any, Dict, Optional

import pytest
import torch
from allennlp.common import Params
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.modules.seq2seq_encoders import LstmSeq2SeqEncoder, PassThroughEncoder

from elmo_plugin import Elmo, TextEncoder, batch_to_ids
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.text_encoder import EncoderStack, PlacedElmo
from tests.closeness import assert_close, assert_share
from tests.conftest import SENTENCES, BiLMFiles

WORD_DIM, ELMO_DIM, HIDDEN = 5, 12, 4

ENCODERS: Dict[str, Any] = {
    "lstm": {"type": "lstm", "hidden_size": HIDDEN, "bidirectional": True},
    "pass_through": {"type": "pass_through"},
    "pytorch_transformer": {
        "type": "pytorch_transformer",
        "num_layers": 1,
        "feedforward_hidden_dim": 8,
        "num_attention_heads": 1,
    },
    "elmo_stack": {
        "type": "elmo_stack",
        "encoders": [
            {
                "type": "elmo_feedforward",
                "feedforward": {"num_layers": 1, "hidden_dims": 7, "activations": "relu"},
            },
            {"type": "lstm", "hidden_size": HIDDEN, "bidirectional": True},
        ],
    },
}


def text_fields() -> TextFieldTensors:
    longest = max(len(sentence) for sentence in SENTENCES)
    words = torch.zeros(len(SENTENCES), longest, dtype=torch.long)
    for row, sentence in enumerate(SENTENCES):
        words[row, : len(sentence)] = torch.arange(2, 2 + len(sentence))
    return {"tokens": {"tokens": words}, "elmo": {"elmo_tokens": batch_to_ids(SENTENCES)}}


def build(
    files: BiLMFiles,
    placement: Optional[str] = "both",
    encoder: Any = ENCODERS["lstm"],
    elmo: Optional[Dict[str, Any]] = None,
    **more: Any,
) -> TextEncoder:
    params: Dict[str, Any] = {
        "text_field_embedder": {
            "token_embedders": {"tokens": {"type": "embedding", "embedding_dim": WORD_DIM}}
        },
        "encoder": encoder,
        **more,
    }
    if placement is not None:
        params["elmo"] = {"placement": placement, **files._asdict(), "dropout": 0.0, **(elmo or {})}
    vocab = Vocabulary()
    for word in range(20):
        vocab.add_token_to_namespace(f"word{word}", "tokens")
    return TextEncoder.from_params(Params(json.loads(json.dumps(params))), vocab=vocab)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize(
    "placement, at_input, at_output",
    [("none", 0, 0), ("input", 1, 0), ("output", 0, 1), ("both", 1, 1), (None, 0, 0)],
)
def test_one_word_moves_elmo_and_dimensions_follow(
    placement: str, at_input: int, at_output: int, encoder: str, bilm_files: BiLMFiles
) -> None:
    text_encoder = build(bilm_files, placement, ENCODERS[encoder])
    assert text_encoder.get_input_dim() == WORD_DIM + at_input * ELMO_DIM
    rnn_dim = text_encoder.encoder.get_output_dim()
    assert text_encoder.get_output_dim() == rnn_dim + at_output * ELMO_DIM
    tokens = text_fields()
    if placement is None:
        del tokens["elmo"]
    encoded = text_encoder(tokens)
    assert encoded.mask.tolist() == (text_fields()["tokens"]["tokens"] > 0).tolist()
    assert encoded.embedded.shape == (5, 7, text_encoder.get_input_dim())
    assert encoded.contextualized.shape == (5, 7, text_encoder.get_output_dim())


def test_vectors_equal_those_of_the_separate_parts(bilm_files: BiLMFiles) -> None:
    text_encoder = build(bilm_files, "both").eval()
    input_mix, output_mix = text_encoder.elmo.elmo.scalar_mixes
    input_mix.gamma.data.fill_(2.0)
    output_mix.gamma.data.fill_(3.0)
    tokens = text_fields()
    mixed = Elmo(*bilm_files, 1, dropout=0.0)(tokens["elmo"]["elmo_tokens"])
    representation = mixed["elmo_representations"][0]
    words = text_encoder.text_field_embedder({"tokens": tokens["tokens"]})
    embedded = torch.cat([words, 2 * representation], dim=-1)
    hidden = text_encoder.encoder(embedded, mixed["mask"])
    encoded = text_encoder(tokens)
    # The same activations, mixed: a softmax and a sum of three.
    mix_terms = 3 + 3
    assert_close(encoded.embedded, embedded, mix_terms)
    expected = torch.cat([hidden, 3 * representation], dim=-1)
    # And the gates of the encoder's 7 steps.
    terms = mix_terms + 7 * (WORD_DIM + ELMO_DIM + HIDDEN)
    assert_close(encoded.contextualized, expected, terms)


def test_without_a_place_neither_files_nor_other_arguments_are_read() -> None:
    files = BiLMFiles("no/options.json", "no/weights.hdf5")
    text_encoder = build(files, "none", elmo={"no_such_argument": 1})
    assert text_encoder(text_fields()).contextualized.shape == (5, 7, 2 * HIDDEN)


def test_features_are_appended_to_what_the_task_rnn_reads(bilm_files: BiLMFiles) -> None:
    text_encoder = build(bilm_files, "input", feature_dim=2)
    features = torch.rand(5, 7, 2)
    embedded = text_encoder(text_fields(), features=features).embedded
    assert torch.equal(embedded[..., -2:], features)
    with pytest.raises(
        ConfigurationError, match=r"text_encoder\.feature_dim is 2, but the model gives no"
    ):
        text_encoder(text_fields())
    with pytest.raises(
        ConfigurationError, match="feature_dim is 0, but the model gives features of width 2"
    ):
        build(bilm_files, "input")(text_fields(), features=features)


def test_dropout_of_a_stack_is_variational_and_between_its_encoders() -> None:
    torch.manual_seed(0)
    # Without a mask `pass_through` gives what it reads.
    stack = EncoderStack([PassThroughEncoder(50) for _ in range(3)], 50, dropout=0.5)
    units = stack(torch.ones(2, 7, 50))
    # Dropped at the inputs of the second and the third, not of the first; one draw for each unit.
    assert_share(units[:, 0] == 0, 0.75)
    assert set(units.unique().tolist()) == {0.0, 4.0}
    assert torch.equal(units, units[:, :1].expand_as(units))
    assert not torch.equal(units[0], units[1])
    assert torch.equal(stack.eval()(torch.ones(2, 7, 50)), torch.ones(2, 7, 50))
    alone = EncoderStack([PassThroughEncoder(50)], 50, dropout=0.5)
    assert torch.equal(alone(torch.ones(2, 7, 50)), torch.ones(2, 7, 50))


def test_no_encoder_of_a_stack_reads_padding() -> None:
    torch.manual_seed(0)
    # Of 3 to 2 * 2 to 2 * 2 units. The backward direction would start in the padding.
    lstms = [LstmSeq2SeqEncoder(size, 2, bidirectional=True) for size in (3, 4)]
    stack = EncoderStack(lstms, 3)
    padded, mask = torch.randn(1, 5, 3), torch.arange(5) < 2
    outputs = stack(padded, mask.unsqueeze(0))[:, :2]
    expected = stack(padded[:, :2], mask[:2].unsqueeze(0))
    assert_close(outputs, expected, terms=2 * (3 + 2) + 2 * (4 + 2), scale=1.0)


def test_each_place_of_elmo_can_have_its_own_dropout(bilm_files: BiLMFiles) -> None:
    torch.manual_seed(0)
    elmo = {"dropout": {"input": 0.0, "output": 0.5}}
    text_encoder = build(bilm_files, "both", {"type": "pass_through"}, elmo=elmo)
    encoded = text_encoder.train()(text_fields())
    real = encoded.mask
    assert (encoded.embedded[real][:, WORD_DIM:] != 0).all()
    dropped = encoded.contextualized[real][:, -ELMO_DIM:]
    assert_share(dropped == 0, 0.5)
    kept = dropped != 0
    # Both mixes have their first weights.
    assert torch.equal(dropped[kept], 2 * encoded.embedded[real][:, WORD_DIM:][kept])
    encoded = text_encoder.eval()(text_fields())
    assert torch.equal(
        encoded.embedded[real][:, WORD_DIM:], encoded.contextualized[real][:, -ELMO_DIM:]
    )


def test_a_given_mask_is_used(bilm_files: BiLMFiles) -> None:
    text_encoder = build(bilm_files, "input")
    mask = torch.zeros(5, 7, dtype=torch.bool)
    mask[:, :2] = True
    encoded = text_encoder(text_fields(), mask=mask)
    assert encoded.mask is mask
    assert not encoded.contextualized[:, 2:].any()


def test_another_name_of_the_indexer(bilm_files: BiLMFiles) -> None:
    tokens = text_fields()
    tokens["characters"] = tokens.pop("elmo")
    encoded = build(bilm_files, "both", elmo={"indexer": "characters"})(tokens)
    assert encoded.embedded.size(-1) == WORD_DIM + ELMO_DIM


class TestBadConfig:
    @pytest.mark.parametrize(
        "elmo, message",
        [
            ({"placement": "BOTH"}, "placement is 'BOTH', expected one of none, input, output, b"),
            ({"dropout": 1.5}, r"elmo\.dropout is 1\.5, expected a number from 0 to 1, or one for"),
            ({"dropout": {"input": 0.5}}, r"elmo\.dropout is {'input': 0\.5}, expected a number"),
            (
                {"dropout": {"input": 0.5, "output": -0.1}},
                r"elmo\.dropout is .*, expected a number",
            ),
            ({"placment": "input"}, "ELMo has no argument 'placment'"),
            *(
                ({key: None}, f"ELMo's {key} is given, expected it left out")
                for key in (
                    "num_output_representations",
                    "keep_sentence_boundaries",
                    "vocab_to_cache",
                    "module",
                )
            ),
        ],
    )
    def test_a_wrong_value_or_key_of_elmo_is_an_error(
        self, elmo: Dict[str, Any], message: str, bilm_files: BiLMFiles
    ) -> None:
        with pytest.raises(ConfigurationError, match=message):
            build(bilm_files, elmo=elmo)

    def test_text_is_no_dropout(self) -> None:
        with pytest.raises(ConfigurationError, match=r"elmo\.dropout is '0\.5', expected a number"):
            PlacedElmo(dropout="0.5")  # type: ignore[arg-type]

    @pytest.mark.parametrize("reads", ["tokens", "elmo"])
    def test_a_reader_without_elmo_characters_is_named(
        self, reads: str, bilm_files: BiLMFiles
    ) -> None:
        with pytest.raises(
            ConfigurationError,
            match=r"reads the indexer 'elmo', expected of type 'elmo_character_ids', but the reader has "
            rf"{reads} \(tokens\)\. Put",
        ):
            build(bilm_files, "output")({reads: text_fields()["tokens"]})

    def test_a_stack_without_encoders_is_an_error(self, bilm_files: BiLMFiles) -> None:
        with pytest.raises(ConfigurationError, match=r"elmo_stack\.encoders is empty"):
            build(bilm_files, "input", {"type": "elmo_stack", "encoders": []})

    def test_a_wrong_input_size_is_named(self, bilm_files: BiLMFiles) -> None:
        encoder = {"type": "lstm", "input_size": 100, "hidden_size": 3}
        message = "embedded text must match task RNN input, but got 17 and 100"
        with pytest.raises(ConfigurationError, match=message):
            build(bilm_files, "input", encoder)

    @pytest.mark.parametrize("placement", ["output", "none", None])
    def test_no_input_is_an_error(self, placement: str, bilm_files: BiLMFiles) -> None:
        with pytest.raises(ConfigurationError, match="The task RNN has no input"):
            build(bilm_files, placement, text_field_embedder=None)


@pytest.mark.parametrize("is_variational", [False, True])
def test_dropout_applies_to_what_the_task_rnn_reads_in_training(
    is_variational: bool, bilm_files: BiLMFiles
) -> None:
    torch.manual_seed(0)
    text_encoder = build(
        *(bilm_files, "none", {"type": "pass_through"}),
        dropout=0.5,
        variational_dropout=is_variational,
    )
    drawn = []
    for _ in range(10):
        read = text_encoder(text_fields())
        is_dropped = read.contextualized == 0  # (batch_size, timesteps, WORD_DIM)
        is_kept = ~is_dropped
        assert torch.equal(read.contextualized[is_kept], 2 * read.embedded[is_kept])
        # One draw for each unit of a sentence, or of each word. A sentence without words has none.
        has_words = read.mask.any(dim=1)
        drawn.append(is_dropped[has_words, 0] if is_variational else is_dropped[read.mask])
        assert bool((is_dropped[0] == is_dropped[0, :1]).all()) is is_variational
    assert_share(torch.cat([draws.flatten() for draws in drawn]), 0.5)
    encoded = text_encoder.eval()(text_fields())
    assert torch.equal(encoded.contextualized, encoded.embedded * encoded.mask.unsqueeze(-1))
