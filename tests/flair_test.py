"""Embeddings of flair; skipped where flair is not installed, as in this project's own environment."""

from pathlib import Path
from typing import Any, Callable, List

import numpy
import pytest
import torch

from elmo_plugin import ElmoEmbedder
from elmo_plugin.errors import ConfigurationError
from tests.conftest import BiLMFiles
from tests.markdown_blocks import code_blocks

flair = pytest.importorskip("flair", reason="flair (elmo_plugin[flair]) is not installed")

from flair.data import Corpus, Dictionary, Sentence  # noqa: E402
from flair.datasets import FlairDatapointDataset  # noqa: E402
from flair.embeddings import StackedEmbeddings  # noqa: E402
from flair.models import SequenceTagger  # noqa: E402
from flair.trainers import ModelTrainer  # noqa: E402

from elmo_plugin_flair import ElmoEmbeddings  # noqa: E402

TAGGED = [
    ("The bank lent money .", "DET NOUN VERB NOUN PUNCT"),
    ("It rained .", "PRON VERB PUNCT"),
    ("They sat on the bank .", "PRON VERB ADP DET NOUN PUNCT"),
]


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flair, "device", torch.device("cpu"))
    flair.set_seed(0)


def sentences() -> List[Sentence]:
    """With a tag on each token."""
    tagged = []
    for text, tags in TAGGED:
        sentence = Sentence(text.split())
        for token, tag in zip(sentence, tags.split()):
            token.add_label("pos", tag)
        tagged.append(sentence)
    return tagged


def tagger(embeddings: Any) -> SequenceTagger:
    tags = Dictionary(add_unk=False)
    for tag in sorted({tag for _, tags_of_one in TAGGED for tag in tags_of_one.split()}):
        tags.add_item(tag)
    return SequenceTagger(
        embeddings=embeddings, tag_dictionary=tags, tag_type="pos", use_crf=False, use_rnn=False
    )


def tags_of(model: SequenceTagger) -> List[str]:
    predicted = [Sentence(text.split()) for text, _ in TAGGED]
    model.predict(predicted)
    return [" ".join(token.tag for token in sentence) for sentence in predicted]


@pytest.mark.parametrize("layers", ["mix", "average", "top", "all"])
def test_vectors_are_those_of_the_layers(bilm_files: BiLMFiles, layers: str) -> None:
    embeddings = ElmoEmbeddings(*bilm_files, layers=layers)
    embedded = sentences()
    embeddings.embed(embedded)
    for sentence in embedded:
        expected = ElmoEmbedder(*bilm_files).embed_sentence([token.text for token in sentence])
        found = torch.stack([token.embedding for token in sentence]).detach().numpy()
        assert found.shape == (len(sentence), embeddings.embedding_length)
        rows = {
            "mix": expected.mean(axis=0),
            "average": expected.mean(axis=0),
            "top": expected[-1],
            "all": numpy.concatenate(list(expected), axis=1),
        }
        numpy.testing.assert_allclose(found, rows[layers], rtol=0, atol=1e-5)
    # Flair may keep those that stay the same.
    assert embeddings.static_embeddings == (layers != "mix")


def test_a_trained_tagger_is_saved_with_its_mix_and_without_the_bilm(
    bilm_files: BiLMFiles, tmp_path: Path
) -> None:
    model = tagger(ElmoEmbeddings(*bilm_files))
    before = model.forward_loss(sentences())[0].item()
    data = FlairDatapointDataset(sentences())
    ModelTrainer(model, Corpus(train=data, dev=data, test=data)).train(
        tmp_path / "run", learning_rate=0.2, mini_batch_size=3, max_epochs=30
    )
    assert model.forward_loss(sentences())[0].item() < 0.8 * before
    assert model.embeddings.mix.mix.gamma.item() != 1
    names = [name for name in model.state_dict() if name.startswith("embeddings.")]
    assert sorted(names) == [
        "embeddings.mix._extra_state",
        "embeddings.mix.mix.gamma",
        *(f"embeddings.mix.mix.scalar_parameters.{number}" for number in range(3)),
    ]
    model.save(tmp_path / "saved.pt")
    loaded = SequenceTagger.load(tmp_path / "saved.pt")
    assert tags_of(loaded) == tags_of(model)
    assert torch.equal(loaded.embeddings.mix.mix.gamma, model.embeddings.mix.mix.gamma)


def test_it_is_stacked_with_others(bilm_files: BiLMFiles) -> None:
    stacked = StackedEmbeddings([ElmoEmbeddings(*bilm_files), ElmoEmbeddings(*bilm_files, "top")])
    embedded = sentences()
    stacked.embed(embedded)
    assert embedded[0][0].embedding.shape == (24,)


def test_another_bilm_under_the_same_name_is_an_error(
    write_bilm: Callable[..., BiLMFiles], tmp_path: Path
) -> None:
    tagger(ElmoEmbeddings(*write_bilm())).save(tmp_path / "saved.pt")
    write_bilm(seed=1)
    with pytest.raises(ConfigurationError, match="the biLM that this model was trained with"):
        SequenceTagger.load(tmp_path / "saved.pt")


def test_unknown_layers(bilm_files: BiLMFiles) -> None:
    with pytest.raises(ConfigurationError, match="'last', expected one of"):
        ElmoEmbeddings(*bilm_files, layers="last")


def test_the_documented_snippet(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[1] / "docs" / "outside_allennlp.md"
    (snippet,) = code_blocks(page.read_text(encoding="utf-8"), "py")
    exec(compile(snippet.text, str(page), "exec"), {})
    assert capsys.readouterr().out == "bank torch.Size([256])\n"
