"""The spaCy pipeline component `elmo`, added by its name as users do."""

import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, List

import numpy
import pytest
import spacy
import torch
from spacy.language import Language
from spacy.tokens import Doc, DocBin

from elmo_plugin import BiLM, ElmoEmbedder
from elmo_plugin.embedding import spacy_component
from elmo_plugin.embedding.spacy_component import add_vector_hooks
from elmo_plugin.errors import ConfigurationError
from tests.conftest import BiLMFiles

TEXT = "The bank of the river. My  bank\nhas the money."
TEXTS = [TEXT, "", "Hi", " \n\n\t", "naïve 日本語 .", "The bank of the river ."]
# To batch otherwise changes sums in their last digits.
TOLERANCE = {"rtol": 0, "atol": 1e-5}


def pipeline(files: BiLMFiles, sentencizer: bool = False, **config: Any) -> Language:
    nlp = spacy.blank("en")
    if sentencizer:
        nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmo", config={**files._asdict(), **config})
    return nlp


def words(doc: Doc) -> List[str]:
    return [token.text for token in doc]


def layers_of(files: BiLMFiles, sentence: List[str]) -> numpy.ndarray:
    """`(num_layers, num_tokens, dim)`."""
    return ElmoEmbedder(*files).embed_sentence(sentence)


@pytest.mark.slow
def test_spacy_finds_the_component_without_an_import_of_the_package(tmp_path: Path) -> None:
    program = (
        "import spacy, sys\n"
        "nlp = spacy.blank('en')\n"
        "assert 'allennlp' not in sys.modules  # those who use no ELMo do not wait for it\n"
        "nlp.add_pipe('elmo', config={'options_file': 'elmo_mini'})\n"
        "doc = nlp('The bank of the river and the bank with the money.')\n"
        "print(doc.tensor.shape, 0.0 < doc[1].similarity(doc[7]) < 0.999)\n"
    )
    # In another folder: metadata of a build in the checkout would come before those of the installation.
    outcome = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert outcome.stdout == "(12, 256) True\n", outcome.stderr


@pytest.mark.parametrize(
    "config, weights",
    [
        ({}, [1 / 3, 1 / 3, 1 / 3]),
        ({"layers": "top"}, [0, 0, 1]),
        ({"mix_weights": [0.0, numpy.log(2.0), 0.0], "gamma": 3.0}, [0.75, 1.5, 0.75]),
        ({"sentencizer": True, "by_sentence": False}, [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_the_tensor_is_the_chosen_sum_of_layers_of_the_doc(
    bilm_files: BiLMFiles, config: Any, weights: List[float]
) -> None:
    doc = pipeline(bilm_files, **config)(TEXT)
    expected = numpy.tensordot(weights, layers_of(bilm_files, words(doc)), axes=1)
    assert doc.tensor.dtype == numpy.float32
    numpy.testing.assert_allclose(doc.tensor, expected, **TOLERANCE)
    assert doc._.elmo_layers is None


def test_all_gives_every_layer_and_their_mean_as_the_tensor(bilm_files: BiLMFiles) -> None:
    doc = pipeline(bilm_files, sentencizer=True, layers="all")(TEXT)
    assert [len(sentence) for sentence in doc.sents] == [6, 8]  # each embedded by itself
    assert doc._.elmo_layers.shape == (3, len(doc), 12)
    expected = [layers_of(bilm_files, [token.text for token in sentence]) for sentence in doc.sents]
    numpy.testing.assert_allclose(
        doc._.elmo_layers, numpy.concatenate(expected, axis=1), **TOLERANCE
    )
    numpy.testing.assert_allclose(doc.tensor, doc._.elmo_layers.mean(axis=0), **TOLERANCE)


def test_white_space_tokens_are_words_of_these_characters(bilm_files: BiLMFiles) -> None:
    doc = pipeline(bilm_files)("a   b\n\nc")
    assert words(doc) == ["a", "  ", "b", "\n\n", "c"]
    expected = layers_of(bilm_files, ["a", "  ", "b", "\n\n", "c"]).mean(axis=0)
    numpy.testing.assert_allclose(doc.tensor, expected, **TOLERANCE)
    # Neither padding nor each other.
    others = pipeline(bilm_files)(Doc(doc.vocab, ["a", "\t", "b", " ", "c"]))
    assert len(others.tensor) == 5
    for position in (1, 3):
        assert not numpy.allclose(doc.tensor[position], others.tensor[position], atol=1e-3)


def test_an_empty_doc_has_no_rows_and_a_zero_vector(bilm_files: BiLMFiles) -> None:
    for sentencizer in (False, True):
        nlp = pipeline(bilm_files, sentencizer, layers="all")
        doc = nlp("")
        assert doc.tensor.shape == (0, 12)
        assert doc._.elmo_layers.shape == (3, 0, 12)
        assert not doc.has_vector
        assert doc.vector_norm == 0.0
        assert numpy.array_equal(doc.vector, numpy.zeros(12))
        assert doc.similarity(nlp("Hi")) == 0.0


def test_vectors_of_tokens_spans_and_docs_come_from_the_tensor(bilm_files: BiLMFiles) -> None:
    nlp = pipeline(bilm_files)
    # Word vectors of the pipeline would come first, but for the hooks.
    nlp.vocab.set_vector("bank", numpy.ones(300, dtype=numpy.float32))
    doc = nlp(TEXT)
    for token in doc:
        assert numpy.array_equal(token.vector, doc.tensor[token.i])
        assert token.has_vector
        assert token.vector_norm == pytest.approx(numpy.linalg.norm(token.vector), rel=1e-6)
    span = doc[2:5]
    for tokens, rows in ((span, doc.tensor[2:5]), (doc, doc.tensor)):
        assert tokens.has_vector
        numpy.testing.assert_allclose(tokens.vector, rows.mean(axis=0), **TOLERANCE)
        assert tokens.vector_norm == pytest.approx(numpy.linalg.norm(tokens.vector), rel=1e-6)
    copied = span.as_doc()
    numpy.testing.assert_allclose(copied[0].vector, doc[2].vector)


def test_similarity_is_the_cosine_also_of_equal_words(bilm_files: BiLMFiles) -> None:
    nlp = pipeline(bilm_files)
    doc = nlp(TEXT)
    banks = [token for token in doc if token.text == "bank"]
    expected = numpy.dot(banks[0].vector, banks[1].vector) / (
        banks[0].vector_norm * banks[1].vector_norm
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # spaCy's own warns where there are no word vectors
        assert banks[0].similarity(banks[1]) == pytest.approx(expected, abs=1e-6)
        assert banks[0].similarity(banks[1]) < 0.9999
        assert banks[0].similarity(banks[0]) == pytest.approx(1.0)
        for tokens in (doc, doc[1:3], doc[0]):
            for others in (nlp("Hi there"), doc[3:6], doc[2]):
                expected = numpy.dot(tokens.vector, others.vector) / (
                    numpy.linalg.norm(tokens.vector) * numpy.linalg.norm(others.vector)
                )
                assert tokens.similarity(others) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("config", [{}, {"batch_size": 2}, {"batch_size": None, "batch_tokens": 9}])
def test_pipe_equals_single_calls_in_order(bilm_files: BiLMFiles, config: Any) -> None:
    nlp = pipeline(bilm_files, sentencizer=True, layers="all", **config)
    for docs_at_once in (1, 2, 100):
        docs = list(nlp.pipe(TEXTS, batch_size=docs_at_once))
        assert [doc.text for doc in docs] == TEXTS
        for doc in docs:
            alone = nlp(doc.text)
            numpy.testing.assert_allclose(doc.tensor, alone.tensor, **TOLERANCE)
            numpy.testing.assert_allclose(doc._.elmo_layers, alone._.elmo_layers, **TOLERANCE)


def test_pipe_reads_at_most_one_batch_ahead(bilm_files: BiLMFiles) -> None:
    nlp = pipeline(bilm_files)
    read: List[Doc] = []

    def stream() -> Any:
        while True:
            read.append(nlp.make_doc("An endless stream"))
            yield read[-1]

    docs = nlp.get_pipe("elmo").pipe(stream(), batch_size=3)
    assert next(docs) is read[0]
    assert len(read) == 3


def test_a_saved_pipeline_needs_no_other_files(
    write_bilm: Callable[..., BiLMFiles], tmp_path: Path
) -> None:
    files = write_bilm(name="gone")
    nlp = pipeline(files, layers="all", mix_weights=[1.0, 0.0, 2.0], gamma=0.5)
    expected = nlp(TEXT)
    nlp.to_disk(tmp_path / "saved")
    for file in files:
        Path(file).unlink()
    assert sorted(path.name for path in (tmp_path / "saved" / "elmo").iterdir()) == [
        "options.json",
        "weights.hdf5",
    ]
    shutil.move(tmp_path / "saved", tmp_path / "moved")
    loaded = spacy.load(tmp_path / "moved")
    numpy.testing.assert_array_equal(loaded(TEXT).tensor, expected.tensor)
    numpy.testing.assert_array_equal(loaded(TEXT)._.elmo_layers, expected._.elmo_layers)
    # Also over the files that it has open, and from a pipeline that was loaded.
    loaded.to_disk(tmp_path / "moved")
    numpy.testing.assert_array_equal(loaded(TEXT).tensor, expected.tensor)
    again = spacy.load(tmp_path / "moved")
    numpy.testing.assert_array_equal(again(TEXT).tensor, expected.tensor)


@pytest.mark.parametrize("change", ["rename", "source"])
def test_a_saved_pipeline_with_a_renamed_component_needs_no_other_files(
    write_bilm: Callable[..., BiLMFiles], tmp_path: Path, change: str
) -> None:
    files = write_bilm(name="gone")
    nlp = pipeline(files)
    if change == "rename":
        nlp.rename_pipe("elmo", "vectors")
    else:
        source, nlp = nlp, spacy.blank("en")
        nlp.add_pipe("sentencizer")
        nlp.add_pipe("elmo", source=source)
    expected = nlp(TEXT)
    nlp.to_disk(tmp_path / "saved")
    for file in files:
        Path(file).unlink()
    loaded = spacy.load(tmp_path / "saved")
    assert loaded.pipe_names == nlp.pipe_names
    numpy.testing.assert_array_equal(loaded(TEXT).tensor, expected.tensor)


def test_loading_reads_the_weights_once(
    bilm_files: BiLMFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline(bilm_files).to_disk(tmp_path / "saved")
    read: List[Any] = []
    from_files = BiLM.from_files

    def counted(options_file: Any, weight_file: Any, **settings: Any) -> Any:
        read.append(weight_file)
        return from_files(options_file, weight_file, **settings)

    monkeypatch.setattr(BiLM, "from_files", counted)
    spacy.load(tmp_path / "saved")("Hi")
    assert read == [tmp_path / "saved" / "elmo" / "weights.hdf5"]


def test_a_component_that_was_not_saved_is_made_from_the_files_of_its_config(
    bilm_files: BiLMFiles,
) -> None:
    nlp = pipeline(bilm_files)
    component = type(nlp).from_config(nlp.config, meta=nlp.meta).get_pipe("elmo")
    doc = component(nlp.make_doc(TEXT))
    numpy.testing.assert_array_equal(doc.tensor, nlp(TEXT).tensor)


def test_from_bytes_loads_the_weights_of_another_pipeline(
    write_bilm: Callable[..., BiLMFiles],
) -> None:
    nlp = pipeline(write_bilm(name="first"))
    other = pipeline(write_bilm(seed=1, name="second"))
    assert not numpy.allclose(other(TEXT).tensor, nlp(TEXT).tensor, atol=1e-3)
    other.from_bytes(nlp.to_bytes())
    numpy.testing.assert_allclose(other(TEXT).tensor, nlp(TEXT).tensor, **TOLERANCE)


def test_a_doc_from_bytes_has_its_vectors_and_hooks_can_be_added_again(
    bilm_files: BiLMFiles,
) -> None:
    nlp = pipeline(bilm_files, layers="all")
    doc = nlp(TEXT)
    with pytest.warns(UserWarning, match="W109"):
        content = doc.to_bytes()
    read = Doc(nlp.vocab).from_bytes(content)
    assert read.user_token_hooks == {}
    kept = next(iter(DocBin(docs=[doc], store_user_data=True).get_docs(nlp.vocab)))
    numpy.testing.assert_array_equal(kept._.elmo_layers, doc._.elmo_layers)
    numpy.testing.assert_array_equal(read.tensor, doc.tensor)
    numpy.testing.assert_array_equal(read._.elmo_layers, doc._.elmo_layers)
    numpy.testing.assert_array_equal(read[1].vector, doc[1].vector)
    add_vector_hooks(read)
    assert read[1].similarity(read[8]) == doc[1].similarity(doc[8])


def test_component_and_docs_can_be_pickled(bilm_files: BiLMFiles) -> None:
    nlp = pipeline(bilm_files)
    doc = nlp(TEXT)
    component = pickle.loads(pickle.dumps(nlp.get_pipe("elmo")))
    numpy.testing.assert_array_equal(component(nlp.make_doc(TEXT)).tensor, doc.tensor)
    assert pickle.loads(pickle.dumps(doc))[1].similarity(doc[1]) == pytest.approx(1.0)


def test_several_processes_give_the_vectors_of_one(bilm_files: BiLMFiles) -> None:
    nlp = pipeline(bilm_files, sentencizer=True, layers="all")
    expected = list(nlp.pipe(TEXTS))
    found = list(nlp.pipe(TEXTS, n_process=2, batch_size=2))
    for doc, alone in zip(found, expected, strict=True):
        numpy.testing.assert_allclose(doc.tensor, alone.tensor, **TOLERANCE)
        numpy.testing.assert_allclose(doc._.elmo_layers, alone._.elmo_layers, **TOLERANCE)
        for token in doc:
            numpy.testing.assert_allclose(token.vector, doc.tensor[token.i])


# Long enough for torch to use its threads.
MANY_THREADS_THEN_SEVERAL_PROCESSES = """
import numpy, spacy, sys, torch

torch.set_num_threads(2)
nlp = spacy.blank("en")
nlp.add_pipe("elmo", config={"options_file": "elmo_mini", "kernel": sys.argv[1]})
texts = [f"The bank of the river and the money in bank number {number} ." for number in range(128)]
expected = list(nlp.pipe(texts))
found = list(nlp.pipe(texts, n_process=2, batch_size=64))
for doc, alone in zip(found, expected, strict=True):
    numpy.testing.assert_allclose(doc.tensor, alone.tensor, rtol=0, atol=1e-5)
print(len(found), torch.get_num_threads())
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="Processes are not forked here.")
@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_several_processes_do_not_wait_for_threads_of_the_parent(
    kernel: str, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", MANY_THREADS_THEN_SEVERAL_PROCESSES, kernel],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        # With its own processes, which are those that wait.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail("nlp.pipe with n_process=2 did not end within two minutes.")
    # This process keeps its threads.
    assert output == "128 2\n", errors


def test_torch_uses_one_thread_in_a_forked_process_unless_told_otherwise_there(
    bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nlp = pipeline(bilm_files)
    torch.set_num_threads(2)
    try:
        nlp("Hi")
        assert torch.get_num_threads() == 2
        # As if this were another.
        monkeypatch.setattr(spacy_component, "IMPORTING_PROCESS", 0)
        with caplog.at_level(logging.INFO):
            nlp("Hi")
        assert torch.get_num_threads() == 1
        assert f"Process {os.getpid()} was forked: torch uses one thread in it." in caplog.text
        torch.set_num_threads(2)
        nlp("Hi")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
        spacy_component._use_one_thread.cache_clear()


def test_a_gpu_in_several_processes_is_an_error(bilm_files: BiLMFiles) -> None:
    nlp = pipeline(bilm_files)
    # Where there may be none: the check comes before it is used.
    component = nlp.get_pipe("elmo")
    component.options = replace(component.options, cuda_device=0)
    with pytest.raises(ValueError, match="elmo has cuda_device 0, but runs in a forked process"):
        list(nlp.pipe(TEXTS, n_process=2))


def test_a_gpu_can_be_used_where_the_component_was_made_or_unpickled(
    bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    nlp = pipeline(bilm_files)
    component = nlp.get_pipe("elmo")
    component.options = replace(component.options, cuda_device=0)
    assert len(component(nlp.make_doc("Hi")).tensor) == 1
    own_process = os.getpid()
    # As if what follows were in another.
    monkeypatch.setattr(os, "getpid", lambda: own_process + 1)
    with pytest.raises(ConfigurationError, match=r"set_start_method\("):
        component(nlp.make_doc("Hi"))
    copied = pickle.loads(pickle.dumps(component))
    assert len(copied(nlp.make_doc("Hi")).tensor) == 1


@pytest.mark.parametrize(
    "config, message",
    [
        ({"layers": "average"}, "layers is 'average', expected one of mix, top, all"),
        ({"layers": "top", "gamma": 2.0}, "mixes nothing"),
        ({"layers": "top", "mix_weights": [0.0, 0.0, 0.0]}, "mixes nothing"),
        ({"mix_weights": [1.0, 2.0]}, "mix_weights has 2 values .* expected 3"),
        ({"mix_weights": [1.0, 2.0, "3"]}, "mix_weights is .* expected numbers"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": None}, "batch_size and batch_tokens are None"),
        ({"batch_tokens": -1}, "batch_tokens is -1"),
        ({"cuda_device": 99}, "cuda_device is 99"),
        ({"precision": "float8"}, "float8"),
        ({"kernel": "fastest"}, "fastest"),
        ({"options_file": "nowhere.json"}, "cannot find nowhere.json"),
        ({"options_file": None, "weight_file": None}, "expected the options"),
    ],
)
def test_a_wrong_value_is_an_error_when_the_component_is_added(
    bilm_files: BiLMFiles, config: Any, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        pipeline(bilm_files, **config)


@pytest.mark.parametrize("config", [{"layer": "top"}, {"options_file": 3}, {"by_sentence": "no"}])
def test_unknown_names_and_wrong_types_are_errors_of_spacy(
    bilm_files: BiLMFiles, config: Any
) -> None:
    with pytest.raises(ValueError, match=next(iter(config))):
        pipeline(bilm_files, **config)


def test_other_files_under_the_name_of_an_earlier_component_are_checked(
    bilm_files: BiLMFiles,
) -> None:
    nlp = pipeline(bilm_files)
    nlp.remove_pipe("elmo")
    with pytest.raises(ConfigurationError, match="cannot find nowhere"):
        nlp.add_pipe("elmo", config={"options_file": "nowhere.json", "weight_file": "nowhere"})
