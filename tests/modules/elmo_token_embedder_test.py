import inspect
import zipfile
from pathlib import Path

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.modules import TokenEmbedder
from allennlp.modules.token_embedders import ElmoTokenEmbedder as AllenNlpElmoTokenEmbedder

from elmo_plugin import ElmoTokenEmbedder, batch_to_ids
from tests.conftest import SENTENCES, BiLMFiles


def test_every_argument_of_allennlps_embedder_is_there_with_its_default() -> None:
    theirs = inspect.signature(AllenNlpElmoTokenEmbedder.__init__).parameters
    ours = inspect.signature(ElmoTokenEmbedder.__init__).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    for name, parameter in theirs.items():
        assert ours[name].default == parameter.default, name


@pytest.mark.parametrize("projection_dim", [None, 5])
def test_vectors_equal_those_of_allennlp(projection_dim: int, bilm_files: BiLMFiles) -> None:
    params = {**bilm_files._asdict(), "dropout": 0.0, "projection_dim": projection_dim}
    ours = TokenEmbedder.from_params(Params({"type": "elmo", **params}))
    theirs = TokenEmbedder.from_params(Params({"type": "elmo_token_embedder", **params}))
    ours.load_state_dict(theirs.state_dict())
    theirs._elmo._elmo_lstm._elmo_lstm.stateful = False
    character_ids = batch_to_ids(SENTENCES)
    vectors = ours(character_ids)
    assert ours.get_output_dim() == theirs.get_output_dim() == vectors.size(-1)
    assert torch.allclose(vectors, theirs(character_ids), atol=1e-5)
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
    assert torch.allclose(by_words, embedder(character_ids), atol=1e-6)


def test_the_elmo_inside_is_public(bilm_files: BiLMFiles) -> None:
    embedder = ElmoTokenEmbedder(*bilm_files, stateful=True, word_cache_size=3, requires_grad=True)
    assert embedder.elmo.bilm.stateful
    assert embedder.elmo.bilm.word_cache.capacity == 3
    assert not embedder.elmo.bilm.is_frozen


def test_a_zip_needs_no_options_file(
    bilm_files: BiLMFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allennlp.common.file_utils.CACHE_DIRECTORY", str(tmp_path / "cache"))
    name = str(tmp_path / "model.zip")
    with zipfile.ZipFile(name, "w") as archive:
        archive.write(bilm_files.options_file, "options.json")
        archive.write(bilm_files.weight_file, "weights.hdf5")
    character_ids = batch_to_ids(SENTENCES)
    from_zip = ElmoTokenEmbedder(weight_file=name, dropout=0.0)
    from_files = ElmoTokenEmbedder(*bilm_files, dropout=0.0)
    assert torch.equal(from_zip(character_ids), from_files(character_ids))


class TestBadConfig:
    def test_a_misspelt_argument_is_refused(self, bilm_files: BiLMFiles) -> None:
        with pytest.raises(ConfigurationError, match="droput"):
            TokenEmbedder.from_params(
                Params({"type": "elmo", **bilm_files._asdict(), "droput": 0.1})
            )

    def test_a_vocabulary_and_a_namespace_are_refused(self, bilm_files: BiLMFiles) -> None:
        with pytest.raises(
            ConfigurationError, match="vocab_to_cache or namespace_to_cache, not both"
        ):
            ElmoTokenEmbedder(*bilm_files, vocab_to_cache=["a"], namespace_to_cache="tokens")

    def test_a_namespace_without_a_vocabulary_is_refused(self, bilm_files: BiLMFiles) -> None:
        with pytest.raises(ConfigurationError, match="'tokens', but there is no vocabulary"):
            ElmoTokenEmbedder(*bilm_files, namespace_to_cache="tokens")

    def test_an_unknown_namespace_is_refused_with_those_there_are(
        self, bilm_files: BiLMFiles
    ) -> None:
        vocab = Vocabulary({"labels": {"O": 1}})
        with pytest.raises(
            ConfigurationError, match="expected a namespace of the vocabulary: labels"
        ):
            ElmoTokenEmbedder(*bilm_files, namespace_to_cache="tokens", vocab=vocab)
