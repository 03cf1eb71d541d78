"""`elmo report pos`: how well a linear classifier finds parts of speech in a layer (the paper's table 6)."""

import logging
import os
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import numpy
import pandas
from numpy.random import default_rng
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from elmo_plugin.arguments import option
from elmo_plugin.bilm import BiLM
from elmo_plugin.embedding import ElmoEmbedder
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining.starting_point import load_start
from elmo_plugin.report.probes import (
    LEVELS,
    Probe,
    ProbeOptions,
    embed_sentences,
    layer_table,
    named_layers,
    write_layers,
)
from elmo_plugin.report.tables import Report, check_option
from elmo_plugin.tasks.conll import Conll2012Sentence, read_conll_2012

ACCURACY, UNSEEN = "accuracy", "accuracy on unseen words"

PROBE = Probe(
    name="pos",
    title="Parts of speech by layer",
    baseline="most frequent tag of the word",
    measures={
        ACCURACY: ("accuracy (%)", "std"),
        UNSEEN: ("unseen words (%)", "unseen std"),
    },
    compared=ACCURACY,
)
_NOTES = (
    "Accuracy of the tags in the test data, by a linear classifier; unseen words are words that are not in "
    "the training data. Each seed draws its training sentences. C: the inverse strength of regularization "
    "that each seed chose on held-out sentences.",
    "Paper: Peters et al. 2018, table 6: 97.3 for layer 1 and 96.8 for layer 2, by a linear classifier on "
    "the Wall Street Journal part of the Penn Treebank, with a larger biLM and other text. These two figures "
    "are from a summary by others, not from the paper itself. (CoVe's two layers: 93.3 and 92.8.)",
)
_HELD_OUT_SHARE = 0.1  # of the training sentences, to choose the regularization
_MIN_TRAIN_SENTENCES = 10  # so that one is held out
_MAX_ITERATIONS = 500
# Larger than scikit-learn's default, which takes twice the time; accuracy differs by about 0.1 points.
_TOLERANCE = 3e-4

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PosOptions(ProbeOptions):
    """
    What does each layer know about parts of speech? Fits a linear classifier to the vectors of each layer
    of a biLM, to the mean of all layers, and to a biLM with random weights: the paper's table 6.

    FILE is CoNLL-2012, or a folder of *.gold_conll files: its fifth column is the part of speech.

    example:
      elmo report pos --model elmo_mini -s results \\
          --train data/srl/train.gold_conll --test data/srl/test.gold_conll

    Writes pos (.md, .csv, .json, .png, .svg), and pos-differences with the differences of each pair of
    layers.
    """

    train: Sequence[str] = option("training data", metavar="FILE")
    test: Sequence[str] = option("test data", metavar="FILE")
    max_train_sentences: int = option(
        "number of training sentences that each seed draws, if there are more; the vectors of all are "
        "held in memory",
        3000,
        metavar="N",
    )
    strengths: Sequence[float] = option(
        "inverse strengths of L2 regularization, scikit-learn's C; the best on a tenth of the training "
        "sentences, which is held out, is used",
        (0.01, 0.1, 1.0),
        metavar="C",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        are_strengths = bool(self.strengths) and all(strength > 0 for strength in self.strengths)
        expected = "one or more positive numbers"
        check_option("--strengths", list(self.strengths), are_strengths, expected)


def read_tagged(paths: Sequence[str]) -> List[Conll2012Sentence]:
    """
    Read the sentences of CoNLL-2012 files, or of folders of them. Raises an error if all words have the same
    part of speech, as in files whose column was not filled.
    """
    documents = [document for path in paths for document in read_conll_2012(path)]
    sentences = [sentence for document in documents for sentence in document.sentences()]
    tags = set(_words_and_tags(sentences)[1])
    if len(tags) < 2:
        raise ConfigurationError(
            f"{', '.join(paths)}: the fifth column holds only {' '.join(tags)}, expected two or more parts "
            "of speech. Give files that have them."
        )
    return sentences


def _files_of(sentences: Sequence[Conll2012Sentence]) -> Set[str]:
    return {os.path.realpath(sentence.place.file_path) for sentence in sentences}


def _words_and_tags(sentences: Sequence[Conll2012Sentence]) -> Tuple[numpy.ndarray, numpy.ndarray]:
    """Return the words of all sentences and their parts of speech, each `(num_words,)`."""
    words = [word for sentence in sentences for word in sentence.words]
    tags = [tag for sentence in sentences for tag in sentence.parts_of_speech]
    return numpy.array(words), numpy.array(tags)


def frequent_tags(
    words: numpy.ndarray, training_words: numpy.ndarray, training_tags: numpy.ndarray
) -> numpy.ndarray:
    """
    Return the baseline for each word: its most frequent tag in the training data, and for an unseen word the
    most frequent tag overall. Ties go to the first tag by name.
    """
    tags = pandas.Series(training_tags)
    tag_of = tags.groupby(training_words).agg(lambda tags: tags.mode()[0])
    return pandas.Series(words).map(tag_of).fillna(tags.mode()[0]).to_numpy(str)


def fit_probe(
    vectors: numpy.ndarray,
    tags: numpy.ndarray,
    held_out_vectors: numpy.ndarray,
    held_out_tags: numpy.ndarray,
    strengths: Sequence[float],
) -> Pipeline:
    """
    Fit a multinomial logistic regression to vectors, `(num_words, dim)`, and tags for each strength C, the
    weight of the sum of the losses against half the sum of the squared weights. Return the one with the best
    accuracy on the held-out words; ties go to the smallest C. Each dimension is first scaled to mean 0 and
    variance 1 in the training data, so that the scale of a layer does not change its regularization.
    """
    probes = [
        make_pipeline(
            StandardScaler(),
            LogisticRegression(C=strength, max_iter=_MAX_ITERATIONS, tol=_TOLERANCE),
        ).fit(vectors, tags)
        for strength in sorted(strengths)
    ]
    return max(probes, key=lambda probe: probe.score(held_out_vectors, held_out_tags))


def compare_tags(options: PosOptions) -> Report:
    """Measure how well a linear classifier finds parts of speech in each layer, and write the report."""
    sentences, test = read_tagged(options.train), read_tagged(options.test)
    both = sorted(_files_of(sentences) & _files_of(test))
    if both:
        raise ConfigurationError(
            f"--train and --test: {both[0]} is in both, expected other files in each. Leave it out of one."
        )
    num_chosen = min(len(sentences), options.max_train_sentences)
    if num_chosen < _MIN_TRAIN_SENTENCES:
        raise ConfigurationError(
            f"{', '.join(options.train)}: found {num_chosen} training sentences, expected at least "
            f"{_MIN_TRAIN_SENTENCES}, and thousands for reliable scores. Give more text, or a larger "
            "--max-train-sentences."
        )
    training = {
        seed: [sentences[row] for row in default_rng(seed).permutation(len(sentences))[:num_chosen]]
        for seed in options.seeds
    }
    bilm = load_start(options.model).bilm
    scores = _measure(options, bilm, training, test)
    table = layer_table(PROBE, scores)
    strengths = scores.pop("C").groupby(level=LEVELS[:2], sort=False)
    table["C"] = strengths.agg(lambda values: ", ".join(f"{c:g}" for c in values.dropna()))
    settings = {
        "classifier": "scikit-learn's LogisticRegression on dimensions of mean 0 and variance 1, "
        f"tol={_TOLERANCE}",
        "sentences": {"training": num_chosen, "test": len(test)},
    }
    return write_layers(PROBE, options, bilm, scores, table, _NOTES, **settings)


def _measure(
    options: PosOptions,
    bilm: BiLM,
    training: Dict[int, List[Conll2012Sentence]],
    test: List[Conll2012Sentence],
) -> pandas.DataFrame:
    """
    Return the measures and the C of the classifier, in rows of `LEVELS`. Of the training sentences of each
    seed, the first are held out to choose C.
    """
    test_words, test_tags = _words_and_tags(test)
    rows: List[List[Any]] = []

    def add_row(
        vectors: str, layer: str, seed: int, tags: numpy.ndarray, strength: Optional[float]
    ) -> None:
        is_right = tags == test_tags
        is_unseen = ~numpy.isin(test_words, known_words[seed])
        unseen = 100 * is_right[is_unseen].mean() if is_unseen.any() else numpy.nan
        rows.append([vectors, layer, seed, 100 * is_right.mean(), unseen, strength])

    known_words = {}
    for seed, sentences in training.items():
        num_held_out = round(_HELD_OUT_SHARE * len(sentences))
        known_words[seed], known_tags = _words_and_tags(sentences[num_held_out:])
        tags = frequent_tags(test_words, known_words[seed], known_tags)
        add_row(PROBE.baseline, "", seed, tags, None)
    for name, seeds, embedder in options.embedders(bilm):
        test_layers = dict(_embed_layers(embedder, test, "test data"))
        for seed in seeds:
            _, tags = _words_and_tags(training[seed])
            first = len(tags) - len(known_words[seed])  # of those that are not held out
            for layer, vectors in _embed_layers(embedder, training[seed], "training data"):
                probe = fit_probe(
                    vectors[first:], tags[first:], vectors[:first], tags[:first], options.strengths
                )
                logger.info("Seed %d, layer %s: C = %g", seed, layer, probe[-1].C)
                add_row(name, layer, seed, probe.predict(test_layers[layer]), probe[-1].C)
    columns = [*LEVELS, *PROBE.measures, "C"]
    return pandas.DataFrame(rows, columns=columns).set_index(LEVELS)


def _embed_layers(
    embedder: ElmoEmbedder, sentences: Sequence[Conll2012Sentence], description: str
) -> Iterator[Tuple[str, numpy.ndarray]]:
    """Return the vectors of all words by layer, each `(num_words, dim)`."""
    words = [sentence.words for sentence in sentences]
    return named_layers(
        numpy.concatenate(list(embed_sentences(embedder, words, description)), axis=1)
    )
