"""Sentence vectors in scikit-learn's pipelines."""

import pickle
from pathlib import Path
from typing import Any

import numpy
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

from elmo_plugin import BiLM, ElmoEmbedder
from elmo_plugin.embedding.layers import POOLS, pool_tokens
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.integrations.sklearn import ElmoSentenceVectors
from tests.closeness import assert_accurate
from tests.conftest import BiLMFiles

SENTENCES = [
    "It rained .",
    "",
    ["The", "naïve", "bank"],
    "They sat on the bank of the river .",
    ("It", "rained", "."),
]
TEXTS = ["It rained .", "He slept .", "We won !", "She ran !", "It froze .", "You won !"]


@pytest.mark.parametrize("layer", [0, numpy.int64(2), -1, "average"])
@pytest.mark.parametrize("pool", POOLS)
def test_rows_are_the_pooled_layer_of_each_sentence(
    bilm_files: BiLMFiles, layer: Any, pool: str
) -> None:
    vectorizer = ElmoSentenceVectors(*bilm_files, layer=layer, pool=pool, batch_size=2)
    vectors = vectorizer.fit_transform(SENTENCES)
    assert (vectors.shape, vectors.dtype) == ((5, 12), numpy.float32)
    numpy.testing.assert_array_equal(vectors[1], 0)
    assert vectorizer.transform([]).shape == (0, 12)
    layers = ElmoEmbedder(*bilm_files).embed_sentence(["It", "rained", "."])  # (3, 3, 12)
    rows = layers.mean(axis=0) if layer == "average" else layers[layer]
    for row in (vectors[0], vectors[4]):
        assert_accurate(row, pool_tokens(rows, pool))


def test_columns_of_data_frames_and_named_features(bilm_files: BiLMFiles) -> None:
    pandas = pytest.importorskip("pandas")
    vectorizer = ElmoSentenceVectors(*bilm_files).set_output(transform="pandas")
    frame = pandas.DataFrame({"text": TEXTS}, index=range(10, 16))
    features = vectorizer.fit_transform(frame["text"])
    assert list(features.columns) == [f"elmosentencevectors{number}" for number in range(12)]
    assert list(features.index) == list(frame.index)
    assert list(vectorizer.get_feature_names_out()) == list(features.columns)
    expected = ElmoSentenceVectors(*bilm_files).transform(numpy.array(TEXTS))
    assert_accurate(features.to_numpy(), expected)


def test_spacy_splits_raw_text(bilm_files: BiLMFiles) -> None:
    raw = ElmoSentenceVectors(*bilm_files, tokenizer="spacy").transform(["It  rained."])
    split = ElmoSentenceVectors(*bilm_files).transform(["It rained ."])
    assert_accurate(raw, split)


def test_it_is_searched_and_cached_in_a_pipeline(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    pipeline = make_pipeline(
        ElmoSentenceVectors(*bilm_files), LogisticRegression(), memory=str(tmp_path)
    )
    labels = [text.endswith("!") for text in TEXTS]
    grid = {
        "elmosentencevectors__layer": [0, "average"],
        "elmosentencevectors__pool": ["mean", "max"],
    }
    search = GridSearchCV(pipeline, grid, cv=2).fit(TEXTS, labels)
    assert search.predict(TEXTS).tolist() == labels
    assert len(search.cv_results_["params"]) == 4


def test_copies_and_pickles_hold_no_weights(bilm_files: BiLMFiles) -> None:
    fitted = ElmoSentenceVectors(*bilm_files, layer=1).fit(TEXTS)
    vectors = fitted.transform(TEXTS)
    content = pickle.dumps(fitted)
    # The weights alone would take as much, even in int8.
    assert len(content) < sum(one.numel() for one in BiLM.from_files(*bilm_files).parameters())
    for copy in (clone(fitted), pickle.loads(content)):
        assert copy.get_params() == fitted.get_params()
        assert_accurate(copy.transform(TEXTS), vectors)
    assert len(pickle.loads(content).get_feature_names_out()) == 12


def test_arguments_that_are_set_later_count(bilm_files: BiLMFiles) -> None:
    vectorizer = ElmoSentenceVectors(*bilm_files).fit()
    vectors = vectorizer.set_params(layer=0).transform(TEXTS)
    expected = ElmoSentenceVectors(*bilm_files, layer=0).transform(TEXTS)
    assert_accurate(vectors, expected)
    vectorizer.set_params(options_file="elmo_mini", weight_file=None)
    assert vectorizer.transform(["Hi"]).shape == (1, 256)


def test_scikit_learns_checks() -> None:
    """It runs none by itself on transformers of text: these are the ones that need no numbers."""
    for check in ("cloneable", "repr"):
        getattr(estimator_checks, f"check_estimator_{check}")(
            "vectors", ElmoSentenceVectors("elmo_mini")
        )
    for check in ("no_attributes_set_in_init", "parameters_default_constructible", "set_params"):
        vectorizer = ElmoSentenceVectors("elmo_mini")
        getattr(estimator_checks, f"check_{check}")("ElmoSentenceVectors", vectorizer)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"layer": 3}, "layer: found 3, expected a number from 0 .* to 2"),
        ({"layer": True}, "layer: found True, expected a number from 0 .* to 2"),
        ({"layer": "all"}, "layer: found all"),
        ({"pool": "sum"}, "pool is 'sum', expected one of mean, max, first-last"),
        ({"pool": None}, "pool is 'None', expected one of mean, max, first-last"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"tokenizer": "nltk"}, "tokenizer is 'nltk', expected one of whitespace, spacy"),
        ({"options_file": "missing.json"}, "cannot find missing.json"),
        ({"weight_file": None}, "json: one file, expected both files of a model"),
        ({"options_file": None, "weight_file": None}, "No model is named, expected one: elmo_mini"),
    ],
)
def test_wrong_arguments(bilm_files: BiLMFiles, arguments: Any, message: str) -> None:
    vectorizer = ElmoSentenceVectors(*bilm_files).set_params(**arguments)
    for call in (vectorizer.fit, vectorizer.transform):
        with pytest.raises(ConfigurationError, match=message):
            call(TEXTS)


@pytest.mark.parametrize(
    "sentences, message",
    [
        ("It rained .", "X is str of 0 dimensions, expected a sequence of sentences"),
        (numpy.array([["It rained ."]]), "X is ndarray of 2 dimensions"),
        (["It", None], "Sentence 1 is None"),
        ([["It", 3]], "Token 1 of sentence 0 is 3"),
    ],
)
def test_wrong_sentences(bilm_files: BiLMFiles, sentences: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ElmoSentenceVectors(*bilm_files).fit_transform(sentences)
