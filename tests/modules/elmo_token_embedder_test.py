import inspect
import pickle
from typing import Optional

import pytest
import torch
from allennlp.common import Params
from allennlp.data import Token, Vocabulary
from allennlp.data.fields import TextField
from allennlp.data.token_indexers import TokenIndexer
from allennlp.modules import TokenEmbedder
from allennlp.modules.token_embedders import ElmoTokenEmbedder as AllenNlpElmoTokenEmbedder

from elmo_plugin import ElmoTokenEmbedder, batch_to_ids
from elmo_plugin.bilm.model_files import ORIGINAL_MODEL
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.elmo_token_embedder import ElmoCharacterIdsIndexer
from tests.closeness import assert_accurate, assert_close
from tests.conftest import (
    SENTENCES,
    BiLMFiles,
    terms_of,
)


def test_every_argument_of_allennlps_embedder_exists_with_its_default() -> None:
    theirs = inspect.signature(AllenNlpElmoTokenEmbedder.__init__).parameters
    ours = inspect.signature(ElmoTokenEmbedder.__init__).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    for name, parameter in theirs.items():
        if name in ("options_file", "weight_file"):
            assert parameter.default.startswith(ORIGINAL_MODEL)
            assert ours[name].default is None  # without both it is the original model, too
        else:
            assert ours[name].default == parameter.default, name


def test_arguments_of_elmo_reach_it(bilm_files: BiLMFiles) -> None:
    names = ("do_layer_norm", "requires_grad", "stateful", "top_layer_only")
    elmo = ElmoTokenEmbedder(*bilm_files, dropout=0.25, **dict.fromkeys(names, True)).elmo
    [mix] = elmo.scalar_mixes
    assert (elmo.dropout.p, mix.do_layer_norm, mix.trainable) == (0.25, True, False)
    assert elmo.bilm.stateful and not elmo.bilm.is_frozen
    [mix] = ElmoTokenEmbedder(*bilm_files, scalar_mix_parameters=[1, 2, 3]).elmo.scalar_mixes
    assert [weight.item() for weight in mix.scalar_parameters] == [1, 2, 3]


@pytest.mark.parametrize("projection_dim", [None, 0, 5])
def test_vectors_equal_those_of_allennlp(
    projection_dim: Optional[int], bilm_files: BiLMFiles
) -> None:
    params = {**bilm_files._asdict(), "dropout": 0.0, "projection_dim": projection_dim}
    ours = TokenEmbedder.from_params(Params({"type": "elmo", **params}))
    theirs = TokenEmbedder.from_params(Params({"type": "elmo_token_embedder", **params}))
    ours.load_state_dict(theirs.state_dict())
    theirs._elmo._elmo_lstm._elmo_lstm.stateful = False
    character_ids = batch_to_ids(SENTENCES)
    vectors = ours(character_ids)
    assert ours.get_output_dim() == theirs.get_output_dim() == vectors.size(-1)
    assert_accurate(vectors, theirs(character_ids))
    wrapped = ours(character_ids.unsqueeze(1))
    assert torch.equal(wrapped.squeeze(1), vectors)


def test_a_namespace_of_the_vocabulary_is_cached(bilm_files: BiLMFiles) -> None:
    vocab = Vocabulary()
    word_ids = torch.tensor([[vocab.add_token_to_namespace(word, "tokens") for word in "abc"]])
    embedder = TokenEmbedder.from_params(
        Params(
            {"type": "elmo", **bilm_files._asdict(), "dropout": 0.0, "namespace_to_cache": "tokens"}
        ),
        vocab=vocab,
    )
    character_ids = batch_to_ids([list("abc")])
    by_words = embedder(torch.ones_like(character_ids), word_ids)
    assert_close(by_words, embedder(character_ids), terms_of(5) + 3)  # and the mix


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"droput": 0.1}, "ELMo has no argument 'droput'"),
        (
            {"vocab_to_cache": ["a"], "namespace_to_cache": "tokens"},
            "vocab_to_cache or namespace_to_cache, not both",
        ),
        ({"namespace_to_cache": "tokens"}, "expected a namespace of the vocabulary: labels"),
        # The vectors would be shifted by one beside the mask and other embedders.
        (
            {"keep_sentence_boundaries": True},
            "keep_sentence_boundaries is given, expected it left out",
        ),
    ],
    ids=["misspelled", "both", "unknown namespace", "sentence marks"],
)
def test_wrong_arguments(arguments: dict, message: str, bilm_files: BiLMFiles) -> None:
    params = Params({"type": "elmo", **bilm_files._asdict(), **arguments})
    with pytest.raises(ConfigurationError, match=message):
        TokenEmbedder.from_params(params, vocab=Vocabulary({"labels": {"O": 1}}))


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("tokens_to_add", [None, {"@start@": 7, "the": 9}])
def test_the_indexer_gives_the_ids_of_elmo_characters(tokens_to_add: dict, padding: int) -> None:
    for sentence in [*SENTENCES, ["@start@", "the"]]:
        tokens, found = [Token(word) for word in sentence], []
        for name in ("elmo_character_ids", "elmo_characters"):
            indexer = TokenIndexer.by_name(name)(tokens_to_add=tokens_to_add)
            indices = indexer.tokens_to_indices(tokens, Vocabulary())
            length = indexer.get_padding_lengths(indices)["elmo_tokens"]
            wanted = {"elmo_tokens": length + padding}
            found.append((length, indexer.as_padded_tensor_dict(indices, wanted)["elmo_tokens"]))
        (our_length, ours), (their_length, theirs) = found
        assert our_length == their_length
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs.view_as(ours))


def test_tokens_of_a_word_share_their_character_ids() -> None:
    indexers = [ElmoCharacterIdsIndexer(), ElmoCharacterIdsIndexer()]
    tokens = [Token("rain"), Token("rain"), Token("Rain")]
    first, other = (
        indexer.tokens_to_indices(tokens, Vocabulary())["elmo_tokens"] for indexer in indexers
    )
    assert first[0] is first[1] is other[0] and first[0] is not first[2]
    with pytest.raises(ValueError, match="read-only"):
        first[0][0] = 1
    field = TextField(tokens, {"elmo": indexers[0]})
    field.index(Vocabulary())
    assert TextField(tokens, {"elmo": indexers[1]}).token_indexers == field.token_indexers
    copy = pickle.loads(pickle.dumps(field))
    tensors = [
        one.as_tensor(one.get_padding_lengths())["elmo"]["elmo_tokens"] for one in (field, copy)
    ]
    assert torch.equal(*tensors) and torch.equal(tensors[0][0], batch_to_ids([["rain"]])[0, 0])
