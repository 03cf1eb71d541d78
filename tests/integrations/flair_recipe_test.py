"""The recipe for flair in docs/outside_allennlp.md; skipped where flair is not installed."""

from pathlib import Path
from typing import Any, Dict, List

import numpy
import pytest
import torch

from elmo_plugin import ElmoEmbedder
from tests.conftest import BiLMFiles
from tests.markdown_blocks import code_blocks

flair = pytest.importorskip("flair", reason="flair is not installed")

from flair.data import Corpus, Dictionary, Sentence  # noqa: E402
from flair.datasets import FlairDatapointDataset  # noqa: E402
from flair.embeddings import StackedEmbeddings  # noqa: E402
from flair.models import SequenceTagger  # noqa: E402
from flair.trainers import ModelTrainer  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "outside_allennlp.md"
# Documented, of sentences in any batch: `ElmoEmbedder`.
BATCH_ACCURACY = 1e-5
TAGGED = {"The bank lent money .": "DET NOUN VERB NOUN PUNCT", "It rained .": "PRON VERB PUNCT"}


@pytest.fixture
def embeddings(bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(flair, "device", torch.device("cpu"))
    flair.set_seed(0)
    (recipe,) = code_blocks(PAGE.read_text(encoding="utf-8"), "py")
    names: Dict[str, Any] = {"__name__": "recipe"}
    exec(compile(recipe.text, str(PAGE), "exec"), names)
    return names["ElmoEmbeddings"](**bilm_files._asdict())


def tagged_sentence(text: str) -> Sentence:
    sentence = Sentence(text.split())
    for token, tag in zip(sentence, TAGGED[text].split()):
        token.add_label("pos", tag)
    return sentence


def tags_of(model: SequenceTagger) -> List[str]:
    sentences = [Sentence(text.split()) for text in TAGGED]
    model.predict(sentences)
    return [token.tag for sentence in sentences for token in sentence]


def test_vectors_are_the_mean_of_the_layers(embeddings: Any, bilm_files: BiLMFiles) -> None:
    sentences = [Sentence(text.split()) for text in TAGGED]
    embeddings.embed(sentences)
    for sentence in sentences:
        layers = ElmoEmbedder(*bilm_files).embed_sentence([token.text for token in sentence])
        vectors = torch.stack([token.embedding for token in sentence]).numpy()
        assert vectors.shape == (len(sentence), embeddings.embedding_length)
        numpy.testing.assert_allclose(vectors, layers.mean(axis=0), rtol=0, atol=BATCH_ACCURACY)


def test_a_tagger_is_trained_and_saved_without_the_bilm(embeddings: Any, tmp_path: Path) -> None:
    tags = Dictionary(add_unk=False)
    for tag in " ".join(TAGGED.values()).split():
        tags.add_item(tag)
    model = SequenceTagger(
        embeddings=StackedEmbeddings([embeddings]),
        tag_dictionary=tags,
        tag_type="pos",
        use_crf=False,
        use_rnn=False,
        dropout=0.0,
        locked_dropout=0.0,
        word_dropout=0.0,
    )
    sentences = [tagged_sentence(text) for text in TAGGED]
    before = model.forward_loss(sentences)[0].item()
    data = FlairDatapointDataset(sentences)
    ModelTrainer(model, Corpus(train=data, dev=data, test=data)).train(
        tmp_path / "run", learning_rate=0.2, mini_batch_size=2, max_epochs=30
    )
    assert model.forward_loss(sentences)[0].item() < 0.8 * before
    assert not any("bilm" in name for name in model.state_dict())
    model.save(tmp_path / "saved.pt")
    assert tags_of(SequenceTagger.load(tmp_path / "saved.pt")) == tags_of(model)
