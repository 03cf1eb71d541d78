"""ELMo in spaCy: the component `elmo` and the layer `elmo_plugin.Elmo.v1`, added by name as users do."""

import os
import signal
import subprocess
import sys
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy
import pytest
import spacy
import torch
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from thinc.api import fix_random_seed

from elmo_plugin import BiLM, ElmoEmbedder
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.integrations.spacy import TrainedMix, add_vector_hooks
from tests.closeness import assert_accurate, assert_close
from tests.conftest import TINY_OPTIONS, BiLMFiles

# With tokens of white space.
TEXT = "The bank of the river. My  bank\nhas the money."
TEXTS = [TEXT, "", "Hi", " \n\n\t", "naïve 日本語 .", "The bank of the river ."]


def pipeline(files: BiLMFiles, sentencizer: bool = False, **config: Any) -> Language:
    nlp = spacy.blank("en")
    if sentencizer:
        nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmo", config={**files._asdict(), **config})
    return nlp


def words(tokens: Any) -> List[str]:
    return [token.text for token in tokens]


def layers_of(files: BiLMFiles, sentence: List[str]) -> numpy.ndarray:
    """`(num_layers, num_tokens, dim)`."""
    return ElmoEmbedder(*files).embed_sentence(sentence)


# The component.


@pytest.mark.parametrize(
    "config, weights",
    [
        ({}, [1 / 3, 1 / 3, 1 / 3]),
        ({"layers": "top"}, [0, 0, 1]),
        ({"scalar_mix_parameters": [0.0, numpy.log(2.0), 0]}, [0.25, 0.5, 0.25]),
    ],
)
def test_the_tensor_is_the_chosen_sum_of_layers_of_the_doc(
    bilm_files: BiLMFiles, config: Any, weights: List[float]
) -> None:
    doc = pipeline(bilm_files, **config)(TEXT)
    assert {" ", "\n"} < set(words(doc))
    expected = numpy.tensordot(weights, layers_of(bilm_files, words(doc)), axes=1)
    assert doc.tensor.dtype == numpy.float32
    assert_accurate(doc.tensor, expected)
    assert doc._.elmo_layers is None


def test_all_gives_every_layer_and_their_mean_as_the_tensor(bilm_files: BiLMFiles) -> None:
    doc = pipeline(bilm_files, sentencizer=True, layers="all")(TEXT)
    assert [len(sentence) for sentence in doc.sents] == [6, 8]  # each embedded separately
    expected = [layers_of(bilm_files, words(sentence)) for sentence in doc.sents]
    assert_accurate(doc._.elmo_layers, numpy.concatenate(expected, axis=1))
    assert_accurate(doc.tensor, doc._.elmo_layers.mean(axis=0))


@pytest.mark.parametrize("sentencizer", [False, True])
def test_an_empty_doc_has_no_rows_and_a_zero_vector(
    bilm_files: BiLMFiles, sentencizer: bool
) -> None:
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
    doc = nlp.make_doc(TEXT)
    assert doc.vector_norm > 0  # which spaCy keeps
    nlp.get_pipe("elmo")(doc)
    for tokens, rows in ((doc[2:5], doc.tensor[2:5]), (doc, doc.tensor), (doc[2], doc.tensor[2:3])):
        assert tokens.has_vector
        assert_close(tokens.vector, rows.mean(axis=0), terms=len(rows))
        norm = numpy.linalg.norm(tokens.vector)
        assert_close(tokens.vector_norm, norm, terms=12, dtype="float32")


def test_similarity_is_the_cosine_also_of_equal_words(bilm_files: BiLMFiles) -> None:
    nlp = pipeline(bilm_files)
    doc = nlp(TEXT)
    banks = [token for token in doc if token.text == "bank"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # spaCy's function warns where there are no word vectors
        assert banks[0].similarity(banks[1]) < 0.9999
        for tokens in (doc, doc[1:3], doc[0], banks[0]):
            for others in (nlp("Hi there"), doc[3:6], doc[2], banks[0], banks[1]):
                expected = numpy.dot(tokens.vector, others.vector) / (
                    numpy.linalg.norm(tokens.vector) * numpy.linalg.norm(others.vector)
                )
                # A dot product of 12 numbers, and two norms, in relation to the product of the norms.
                similarity = tokens.similarity(others)
                assert_close(similarity, expected, terms=3 * 12, scale=1.0, dtype="float32")
        assert doc.similarity(nlp.make_doc("Hi there")) == 0.0  # without vectors


@pytest.mark.parametrize(
    "settings",
    [{"batch_size": 1}, {"batch_size": 2}, {"batch_size": 100}, {"batch_size": 2, "n_process": 2}],
    ids=str,
)
def test_pipe_equals_single_calls_in_order(bilm_files: BiLMFiles, settings: Any) -> None:
    nlp = pipeline(bilm_files, sentencizer=True, layers="all", batch_size=2)
    docs = list(nlp.pipe(TEXTS, **settings))
    assert [doc.text for doc in docs] == TEXTS
    for doc in docs:
        alone = nlp(doc.text)
        assert_accurate(doc._.elmo_layers, alone._.elmo_layers)
        assert_accurate(doc.tensor, alone.tensor)
        for token in doc:
            assert_accurate(token.vector, alone.tensor[token.i])


def test_a_saved_pipeline_reads_the_files_of_its_config_again(
    bilm_files: BiLMFiles, tmp_path: Path
) -> None:
    nlp = pipeline(bilm_files, layers="all", scalar_mix_parameters=[1.0, 0.0, 2.0])
    expected = nlp(TEXT)
    nlp.to_disk(tmp_path / "saved")
    config = {"components": {"elmo": {"layers": "top", "scalar_mix_parameters": None}}}
    loaded, changed = (spacy.load(tmp_path / "saved", config=c) for c in ({}, config))
    assert_accurate(loaded(TEXT).tensor, expected.tensor)
    assert_accurate(changed(TEXT).tensor, expected._.elmo_layers[-1])


def test_a_doc_from_bytes_has_its_vectors_and_hooks_can_be_added_again(
    bilm_files: BiLMFiles,
) -> None:
    nlp = pipeline(bilm_files, layers="all")
    doc = nlp(TEXT)
    with pytest.warns(UserWarning, match="W109"):
        read = Doc(nlp.vocab).from_bytes(doc.to_bytes())
    assert read.user_token_hooks == {}
    kept = next(iter(DocBin(docs=[doc], store_user_data=True).get_docs(nlp.vocab)))
    for copy in (read, kept):
        numpy.testing.assert_array_equal(copy._.elmo_layers, doc._.elmo_layers)
    numpy.testing.assert_array_equal(read[1].vector, doc[1].vector)
    add_vector_hooks(read)
    assert_close(
        read[1].similarity(read[8]), doc[1].similarity(doc[8]), 3 * 12, 1.0, dtype="float32"
    )


# Long enough for torch to use its threads.
MANY_THREADS_THEN_SEVERAL_PROCESSES = """
import numpy, spacy, sys, torch

torch.set_num_threads(2)
for kernel in ("auto", "reference"):
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"options_file": "elmo_mini", "kernel": kernel})
    texts = [f"The bank of the river and the money in bank number {number} ." for number in range(128)]
    expected = list(nlp.pipe(texts))
    found = list(nlp.pipe(texts, n_process=2, batch_size=64))
    for doc, alone in zip(found, expected, strict=True):
        numpy.testing.assert_allclose(doc.tensor, alone.tensor, rtol=0, atol=1e-5)
    print(len(found), torch.get_num_threads())
"""


@pytest.mark.slow
def test_several_processes_do_not_wait_for_threads_of_the_parent(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", MANY_THREADS_THEN_SEVERAL_PROCESSES],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,  # where no build of the checkout hides the installation
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with its processes, which are those that wait
    assert output == 2 * "128 2\n", errors  # the parent keeps its threads


# The layer.

TAGGED = {
    "The bank lent money .": "DET NOUN VERB NOUN PUNCT",
    "It rained .": "PRON VERB PUNCT",
    "They sat on the bank .": "PRON VERB ADP DET NOUN PUNCT",
}


def tagger(files: BiLMFiles, **options: Any) -> Language:
    layer = {"@architectures": "elmo_plugin.Elmo.v1", **files._asdict(), "width": 16, **options}
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 16}
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", config={"model": layer})
    nlp.add_pipe(
        "tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": listener}}
    )
    return nlp


def tagged_examples(nlp: Language) -> List[Example]:
    return [
        Example.from_dict(Doc(nlp.vocab, text.split()), {"tags": tags.split()})
        for text, tags in TAGGED.items()
    ]


def train(nlp: Language, examples: List[Example], num_epochs: int, drop: float = 0) -> List[float]:
    """Train, and return the losses of the component that learns from labels."""
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.02
    losses: List[float] = []
    for _ in range(num_epochs):
        losses_of_epoch: Dict[str, float] = {}
        nlp.update(examples, sgd=optimizer, losses=losses_of_epoch, drop=drop)
        losses.append(losses_of_epoch[nlp.pipe_names[-1]])
    return losses


def trained_mix(nlp: Language) -> TrainedMix:
    (module,) = (
        shim._model for node in nlp.get_pipe("tok2vec").model.walk() for shim in node.shims
    )
    return module


def test_a_tagger_learns_through_the_mix(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    fix_random_seed(0)
    nlp = tagger(bilm_files)
    losses = train(nlp, tagged_examples(nlp), 30, drop=0.1)
    assert losses[-1] < losses[0]
    mix = trained_mix(nlp).mix
    assert abs(mix.gamma.item() - 1) > 0.01
    assert mix.normalized_weights.max() - mix.normalized_weights.min() > 0.01

    docs = [nlp(text) for text in TAGGED]
    assert [doc.tensor.shape for doc in docs] == [(5, 16), (3, 16), (6, 16)]
    nlp.to_disk(tmp_path / "saved")
    saved = (tmp_path / "saved" / "tok2vec" / "model").read_bytes()
    for parameter in BiLM.from_files(*bilm_files).parameters():
        assert parameter.detach().numpy().tobytes() not in saved
    loaded = spacy.load(tmp_path / "saved")
    for doc in docs:
        again = loaded(doc.text)
        assert_accurate(again.tensor, doc.tensor)
        assert [token.tag_ for token in again] == [token.tag_ for token in doc]
    # A copy of the layer in the component that uses it.
    loaded.replace_listeners("tok2vec", "tagger", ["model.tok2vec"])
    loaded.remove_pipe("tok2vec")
    assert [token.tag_ for token in loaded(docs[0].text)] == [token.tag_ for token in docs[0]]


@pytest.mark.parametrize("cache_mb, num_read_again", [(250, 0), (0, 6)])
def test_training_reads_a_sentence_once_if_there_is_a_cache(
    cache_mb: float, num_read_again: int, bilm_files: BiLMFiles, shapes_run: list
) -> None:
    nlp = tagger(bilm_files, sentence_cache_mb=cache_mb)
    model = nlp.get_pipe("tok2vec").model
    docs = [Doc(nlp.vocab, text.split()) for text in [*TAGGED, *TAGGED]]
    # Prediction keeps none.
    expected = model.predict(docs)
    for num_expected in (6, num_read_again):
        shapes_run.clear()
        vectors, _ = model.begin_update(docs)
        assert sum(num_sentences for num_sentences, *_ in shapes_run) == num_expected
        for of_doc, expected_of_doc in zip(vectors, expected, strict=True):
            assert_accurate(of_doc, expected_of_doc)
    # Evaluation between the epochs reads its sentences again, too.
    shapes_run.clear()
    model.predict(docs)
    assert sum(num_sentences for num_sentences, *_ in shapes_run) == num_read_again


def test_without_a_projection_it_starts_as_the_mean_of_the_layers(bilm_files: BiLMFiles) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    model = {"@architectures": "elmo_plugin.Elmo.v1", **bilm_files._asdict()}
    nlp.add_pipe("tok2vec", config={"model": model})
    nlp.initialize()
    docs = list(nlp.pipe(["It rained. We slept.", "", "Hi"]))
    for doc, sentences in zip(docs, ([["It", "rained", "."], ["We", "slept", "."]], [], [["Hi"]])):
        vectors = [layers_of(bilm_files, sentence).mean(axis=0) for sentence in sentences]
        expected = numpy.concatenate([numpy.zeros((0, 12)), *vectors])
        assert_accurate(doc.tensor, expected)


def test_gradients_are_those_of_torch(bilm_files: BiLMFiles) -> None:
    nlp = tagger(bilm_files)
    docs = [Doc(nlp.vocab, text.split()) for text in TAGGED] + [Doc(nlp.vocab)]
    vectors, backprop = nlp.get_pipe("tok2vec").model.begin_update(docs)
    generator = numpy.random.default_rng(0)
    factors = [generator.normal(size=rows.shape).astype("float32") for rows in vectors]
    backprop(factors)
    mix = trained_mix(nlp)
    found = [parameter.grad.clone() for parameter in mix.parameters()]
    mix.zero_grad()
    layers = torch.from_numpy(  # (3, 14, 12)
        numpy.concatenate([layers_of(bilm_files, words(doc)) for doc in docs], axis=1)
    )
    (mix(layers) * torch.from_numpy(numpy.concatenate(factors))).sum().backward()
    assert len(found) == 3 + 1 + 2
    for gradient, parameter in zip(found, mix.parameters(), strict=True):
        # Over three layers of 12 numbers, 16 outputs and 14 words.
        assert_close(gradient, parameter.grad, terms=3 * 12 + 16 + 14)


@pytest.mark.parametrize(
    "options, seed", [(TINY_OPTIONS, 1), (replace(TINY_OPTIONS, cell_clip=0.1), 0)]
)
def test_another_bilm_under_the_same_name_is_an_error(
    write_bilm: Callable[..., BiLMFiles], tmp_path: Path, options: Any, seed: int
) -> None:
    nlp = tagger(write_bilm())
    nlp.initialize(lambda: tagged_examples(nlp))
    nlp.to_disk(tmp_path / "saved")
    write_bilm(options, seed)
    with pytest.raises(
        ConfigurationError, match=r"expected \w+: the biLM that this model was trained with"
    ):
        spacy.load(tmp_path / "saved")


@pytest.mark.parametrize(
    "make, options, message",
    [
        (pipeline, {"layers": "average"}, "layers is 'average', expected one of mix, top, all"),
        (pipeline, {"layers": "top", "scalar_mix_parameters": [0.0, 0.0, 0.0]}, "does not use"),
        (pipeline, {"scalar_mix_parameters": [1.0, 2.0]}, "scalar_mix_parameters is .*, expec"),
        (pipeline, {"batch_size": 0}, "batch_size is 0"),
        (pipeline, {"kernel": "fastest"}, "fastest"),
        (pipeline, {"options_file": "nowhere.json"}, "cannot find nowhere.json"),
        (pipeline, {"options_file": None, "weight_file": None}, "No model is named, expected one"),
        # Errors of spaCy: an unknown name, and wrong types.
        (pipeline, {"layer": "top"}, "layer"),
        (pipeline, {"batch_size": "many"}, "batch_size"),
        (tagger, {"batch_size": 0}, "batch_size is 0"),
        (tagger, {"width": 0}, "width is 0, expected a positive whole number"),
        (tagger, {"sentence_cache_mb": -1}, "sentence_cache_mb is -1"),
        (tagger, {"options_file": "missing.json"}, "cannot find missing.json"),
        (tagger, {"options_file": None, "weight_file": None}, "No model is named, expected one"),
        (tagger, {"mix_weights": [1.0]}, "mix_weights"),
    ],
)
def test_a_wrong_option_is_an_error_when_the_component_or_layer_is_made(
    make: Callable[..., Language], options: Dict[str, Any], message: str, bilm_files: BiLMFiles
) -> None:
    with pytest.raises(ValueError, match=message):
        make(bilm_files, **options)
