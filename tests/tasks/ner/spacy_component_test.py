"""The spaCy pipeline component `elmo_ner`, added by its name as users do."""

import pickle
import shutil
from pathlib import Path
from typing import Any, List, Tuple

import numpy
import pytest
import spacy
import torch
from allennlp.models import load_archive
from allennlp.predictors import Predictor
from spacy.language import Language
from spacy.tokens import Doc, Span

from elmo_plugin import BiLM
from elmo_plugin.errors import ConfigurationError
from tests.tasks.task_testing import FIXTURES, overfitted_archive

TEXT = "Mary Smith visited New York. The storm passed."
TEXTS = [TEXT, "", "Rain", " \n\n\t", "Peter flew from Paris\nto  São  \n Paulo."]
# To batch otherwise changes sums in their last digits.
TOLERANCE = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a tagger with ELMo at input and output, which knows its eight sentences by heart."""
    experiment = FIXTURES / "ner" / "tiny" / "experiment_elmo.jsonnet"
    return overfitted_archive(experiment, tmp_path_factory.mktemp("tagger"))


def pipeline(archive_file: Path, **config: Any) -> Language:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmo_ner", config={"archive": str(archive_file), **config})
    return nlp


def entities(doc: Doc) -> List[Tuple[str, str]]:
    return [(entity.text, entity.label_) for entity in doc.ents]


def test_entities_and_vectors_come_from_one_pass(
    tagger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nlp = pipeline(tagger)
    passes: List[Any] = []
    forward = BiLM.forward
    monkeypatch.setattr(
        BiLM, "forward", lambda bilm, *inputs: passes.append(inputs) or forward(bilm, *inputs)
    )
    doc = nlp(TEXT)
    assert len(passes) == 1
    assert entities(doc) == [("Mary Smith", "PER"), ("New York", "LOC")]
    assert doc.has_annotation("ENT_IOB")
    assert [token.ent_iob_ for token in doc] == ["B", "I", "O", "B", "I", *"OOOOO"]
    # The mix that the tagger reads, of each sentence by itself.
    archive = load_archive(tagger)
    predictor = Predictor.from_archive(archive)
    read: List[torch.Tensor] = []
    archive.model.text_encoder.elmo.elmo.register_forward_hook(
        lambda elmo, inputs, output: read.append(output["elmo_representations"][0])
    )
    for words in (
        ["Mary", "Smith", "visited", "New", "York", "."],
        ["The", "storm", "passed", "."],
    ):
        predictor.predict_tokens(words)
    expected = numpy.concatenate([representations[0].numpy() for representations in read])
    numpy.testing.assert_allclose(doc.tensor, expected, **TOLERANCE)
    assert numpy.array_equal(doc[3].vector, doc.tensor[3])
    assert -1.0 < doc[1].similarity(doc[6]) < 0.9999


def test_white_space_is_not_read(tagger: Path) -> None:
    nlp = pipeline(tagger)
    doc = nlp("Mary \n Smith visited New\n\nYork.  ")
    words = nlp("Mary Smith visited New York.")
    assert entities(doc) == [("Mary \n Smith", "PER"), ("New\n\nYork", "LOC")]
    is_word = [not token.is_space for token in doc]
    numpy.testing.assert_allclose(doc.tensor[is_word], words.tensor, **TOLERANCE)
    assert not doc.tensor[[not word for word in is_word]].any()
    for text in ("", " \n\n\t"):
        doc = nlp(text)
        assert doc.ents == ()
        assert doc.tensor.shape == (len(doc), words.tensor.shape[1])


def test_entities_are_replaced(tagger: Path) -> None:
    nlp = pipeline(tagger)
    doc = nlp.make_doc(TEXT)
    doc.ents = [Span(doc, 0, 1, "GIVEN"), Span(doc, 7, 8, "GIVEN")]
    assert entities(nlp(doc)) == [("Mary Smith", "PER"), ("New York", "LOC")]


@pytest.mark.parametrize("config", [{}, {"batch_size": 2}, {"by_sentence": False}])
def test_pipe_equals_single_calls_in_order(tagger: Path, config: Any) -> None:
    nlp = pipeline(tagger, **config)
    for docs_at_once in (1, 2, 100):
        docs = list(nlp.pipe(TEXTS, batch_size=docs_at_once))
        assert [doc.text for doc in docs] == TEXTS
        for doc in docs:
            alone = nlp(doc.text)
            assert entities(doc) == entities(alone)
            numpy.testing.assert_allclose(doc.tensor, alone.tensor, **TOLERANCE)


def test_several_processes_give_the_entities_of_one(tagger: Path) -> None:
    nlp = pipeline(tagger)
    expected = [entities(doc) for doc in nlp.pipe(TEXTS)]
    assert [entities(doc) for doc in nlp.pipe(TEXTS, n_process=2, batch_size=2)] == expected


def test_a_saved_pipeline_needs_no_other_files(tagger: Path, tmp_path: Path) -> None:
    copied = shutil.copy(tagger, tmp_path / "gone.tar.gz")
    nlp = pipeline(copied)
    expected = nlp(TEXT)
    nlp.to_disk(tmp_path / "saved")
    Path(copied).unlink()
    shutil.move(tmp_path / "saved", tmp_path / "moved")
    loaded = spacy.load(tmp_path / "moved")
    for again in (loaded, pipeline(tagger).from_bytes(loaded.to_bytes())):
        doc = again(TEXT)
        assert entities(doc) == entities(expected)
        numpy.testing.assert_allclose(doc.tensor, expected.tensor, **TOLERANCE)
    # Over the files that it was loaded from.
    loaded.to_disk(tmp_path / "moved")
    assert entities(spacy.load(tmp_path / "moved")(TEXT)) == entities(expected)


def test_the_component_can_be_pickled(tagger: Path) -> None:
    nlp = pipeline(tagger)
    component = pickle.loads(pickle.dumps(nlp.get_pipe("elmo_ner")))
    assert entities(component(nlp.make_doc(TEXT))) == entities(nlp(TEXT))


def test_a_tagger_without_elmo_sets_entities_only(tmp_path: Path) -> None:
    nlp = pipeline(overfitted_archive(FIXTURES / "ner" / "tiny" / "experiment.jsonnet", tmp_path))
    doc = nlp(TEXT)
    assert entities(doc) == [("Mary Smith", "PER"), ("New York", "LOC")]
    assert len(doc.tensor) == 0


@pytest.mark.parametrize(
    "config, message",
    [
        (
            {"archive": "no_such_tagger"},
            "^no_such_tagger: no such file or folder, expected an arch",
        ),
        ({"archive": "no/such.tar.gz"}, r"no/such\.tar\.gz: cannot be loaded as an archive"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"cuda_device": 99}, "cuda_device is 99"),
    ],
)
def test_a_wrong_value_is_an_error_when_the_component_is_added(
    tagger: Path, config: Any, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        pipeline(tagger, **config)


def test_an_archive_of_another_task_is_an_error(tmp_path: Path) -> None:
    archive_file = overfitted_archive(
        FIXTURES / "sst" / "tiny" / "experiment.jsonnet", tmp_path, num_steps=1
    )
    with pytest.raises(ConfigurationError, match=r"holds a model of type elmo_sst, expected elmo_"):
        pipeline(archive_file)


@pytest.mark.parametrize("config", [{"archiv": "x"}, {"batch_size": "many"}])
def test_unknown_names_and_wrong_types_are_errors_of_spacy(tagger: Path, config: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(config))):
        pipeline(tagger, **config)
