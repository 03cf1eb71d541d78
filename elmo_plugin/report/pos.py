"""`elmo report pos`: how well a linear classifier finds parts of speech in a layer (the paper's table 6)."""

import logging
import warnings
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, DefaultDict, Dict, List, NamedTuple, Sequence, Tuple

import numpy
from more_itertools import chunked
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from elmo_plugin.arguments import option
from elmo_plugin.bilm import BiLM
from elmo_plugin.embedding import ElmoEmbedder
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.figures import draw_layers
from elmo_plugin.report.probes import (
    RANDOM_WEIGHTS,
    SEED_NOTE,
    ProbeOptions,
    add_paper,
    differences_part,
    embed_sentences,
    layer_table,
    load_bilm,
    named_layers,
)
from elmo_plugin.report.tables import Part, Report, check_option, write_report
from elmo_plugin.tasks.conll import Conll2012Sentence, read_conll_2012

if TYPE_CHECKING:  # --include-package imports every module, also where pandas is not installed
    import pandas

MOST_FREQUENT = "most frequent tag of the word"
ACCURACY, UNSEEN = "accuracy", "accuracy on unseen words"

# Table 6: accuracy on the test part of the Wall Street Journal. Of a biLM with two LSTM layers.
_PAPER = {"1": 97.3, "2": 96.8}
_NOTES = (
    "Accuracy of the tags in the test part; unseen words are words that are not in the training part. "
    "Each seed draws its training sentences. C: the inverse strength of regularization that each seed chose "
    f"on held-out sentences. {SEED_NOTE}",
    "Paper: Peters et al. 2018, table 6: a linear classifier on the Wall Street Journal part of the Penn "
    "Treebank, with a larger biLM and other text. Its two figures are from a summary by others, not from "
    "the paper itself. (CoVe's two layers: 93.3 and 92.8.)",
)
_HELD_OUT_SHARE = 0.1  # of the training sentences, to choose the regularization
_MIN_TRAIN_SENTENCES = 10  # so that one is held out
_TEST_BLOCK = 512  # sentences whose vectors are held together
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
      elmo report pos --train data/srl/train.gold_conll --test data/srl/test.gold_conll -s results

    Writes pos (.md, .csv, .json, .png, .svg), and pos-differences with the differences of each pair of
    layers.
    """

    train: Sequence[str] = option("the training part", metavar="FILE")
    test: Sequence[str] = option("the test part", metavar="FILE")
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

    def check(self) -> None:
        super().check()
        both = ", ".join(sorted(set(self.train) & set(self.test)))
        check_option("--train and --test", f"{both} in both", not both, "other files in each")
        are_strengths = bool(self.strengths) and all(strength > 0 for strength in self.strengths)
        expected = "one or more positive numbers"
        check_option("--strengths", list(self.strengths), are_strengths, expected)


class Division(NamedTuple):
    """The sentences that fit classifiers, choose their regularization, and score them."""

    training: List[Conll2012Sentence]
    held_out: List[Conll2012Sentence]
    test: List[Conll2012Sentence]


def read_tagged(paths: Sequence[str]) -> List[Conll2012Sentence]:
    """
    Read the sentences of CoNLL-2012 files, or of folders of them. Raises an error if all words have the same
    part of speech, as in files whose column was not filled.
    """
    sentences = [
        sentence
        for path in paths
        for document in read_conll_2012(path)
        for sentence in document.sentences()
    ]
    tags = set(_tags_of(sentences))
    if len(tags) < 2:
        raise ConfigurationError(
            f"{', '.join(paths)}: the fifth column holds only {' '.join(sorted(tags))}, expected two or "
            "more parts of speech. Give files that have them."
        )
    return sentences


def frequent_tags(
    words: numpy.ndarray, training_words: numpy.ndarray, training_tags: numpy.ndarray
) -> numpy.ndarray:
    """
    Return the baseline for each word: its most frequent tag in the training part, and for an unseen word the
    most frequent tag overall. Ties go to the first tag by name.
    """
    import pandas

    training = pandas.DataFrame({"word": training_words, "tag": training_tags})
    counts = training.value_counts(["word", "tag"]).reset_index()
    ranked = counts.sort_values(["count", "tag"], ascending=[False, True])
    tag_of = ranked.drop_duplicates("word").set_index("word")["tag"]
    return pandas.Series(words).map(tag_of).fillna(training["tag"].mode()[0]).to_numpy(str)


def fit_probe(
    vectors: numpy.ndarray,
    tags: numpy.ndarray,
    held_out_vectors: numpy.ndarray,
    held_out_tags: numpy.ndarray,
    strengths: Sequence[float],
) -> Pipeline:
    """
    Fit a multinomial logistic regression for each strength of regularization, and return the one with the
    best accuracy on the held-out vectors. Ties go to the smallest C.

    # Parameters

    vectors, held_out_vectors : `numpy.ndarray`
        `(num_training, dim)` and `(num_held_out, dim)`. Each dimension is first scaled to mean 0 and
        variance 1 in the training part, so that the scale of a layer does not change its regularization.
    tags, held_out_tags : `numpy.ndarray`
        Strings, `(num_training,)` and `(num_held_out,)`.
    strengths : `Sequence[float]`
        scikit-learn's C: the weight of the sum of the losses against half the sum of the squared weights.
    """
    if len(set(tags)) < 2:
        raise ConfigurationError(
            f"The training part holds one class only, {tags[0]}, expected two or more. Give more text."
        )
    probes = []
    for strength in sorted(strengths):
        classifier = LogisticRegression(C=strength, max_iter=_MAX_ITERATIONS, tol=_TOLERANCE)
        with warnings.catch_warnings():  # a note of the table names these classifiers
            warnings.simplefilter("ignore", ConvergenceWarning)
            probes.append(make_pipeline(StandardScaler(), classifier).fit(vectors, tags))
    return max(probes, key=lambda probe: probe.score(held_out_vectors, held_out_tags))


def compare_tags(options: PosOptions) -> Report:
    """
    Measure how well a linear classifier finds parts of speech in each layer of a biLM, and write tables and
    a figure. Options and files are checked before the biLM is loaded.
    """
    options.check()
    divisions = divide(options)
    bilm = load_bilm(options.bilm)
    scores = _measure(options, bilm, divisions)
    names = ["accuracy (%)", "std", "unseen words (%)", "unseen std"]
    table = layer_table(scores[[ACCURACY, UNSEEN]], names)
    chosen = scores["C"].groupby(level=["vectors", "layer"], sort=False)
    table["C"] = chosen.agg(lambda values: ", ".join(f"{c:g}" for c in values.dropna()))
    add_paper(table, bilm, "paper, WSJ (%)", _PAPER)
    notes = [*_NOTES]
    unfinished = scores.index[scores["converged"].eq(False)]
    if len(unfinished):
        stopped = [f"seed {seed}, {vectors}, layer {layer}" for vectors, layer, seed in unfinished]
        notes.append(f"Stopped before they had converged: {'; '.join(stopped)}.")
    title = "Parts of speech by layer"
    measures = scores[[ACCURACY, UNSEEN]].dropna(axis=1, how="all")
    figure = draw_layers(f"{title}, found by a linear classifier", measures, MOST_FREQUENT)
    parts = {
        "pos": Part(title, table.reset_index(), notes, figure),
        "pos-differences": differences_part(
            "Parts of speech", scores[ACCURACY], "accuracy", options.bilm_name, "sentences"
        ),
    }
    first = divisions[options.seeds[0]]._asdict().items()
    classifier = "scikit-learn's LogisticRegression on dimensions of mean 0 and variance 1"
    settings = options.settings(
        bilm,
        classifier=f"{classifier}, tol={_TOLERANCE}",
        **{
            "sentences, first seed": {part: len(sentences) for part, sentences in first},
            "words, first seed": {part: len(_tags_of(sentences)) for part, sentences in first},
        },
    )
    return write_report(options.output, parts, settings)


def divide(options: PosOptions) -> Dict[int, Division]:
    """Draw the training and held-out sentences at random for each seed."""
    sentences, test = read_tagged(options.train), read_tagged(options.test)
    num_chosen = min(len(sentences), options.max_train_sentences)
    if num_chosen < _MIN_TRAIN_SENTENCES:
        raise ConfigurationError(
            f"{', '.join(options.train)}: found {num_chosen} training sentences, expected at least "
            f"{_MIN_TRAIN_SENTENCES}, and thousands for reliable scores. Give more text, or a larger "
            "--max-train-sentences."
        )
    num_held_out = round(_HELD_OUT_SHARE * num_chosen)
    divisions = {}
    for seed in options.seeds:
        order = numpy.random.default_rng(seed).permutation(len(sentences))
        chosen = [sentences[row] for row in order[:num_chosen]]
        divisions[seed] = Division(chosen[num_held_out:], chosen[:num_held_out], test)
    return divisions


def _measure(options: PosOptions, bilm: BiLM, divisions: Dict[int, Division]) -> "pandas.DataFrame":
    """Return rows of (vectors, layer, seed), with columns `ACCURACY`, `UNSEEN`, `C` and `converged`."""
    import pandas

    rows: List[Dict[str, Any]] = []
    for seed, division in divisions.items():
        words, tags = _words_of(division.test), _tags_of(division.test)
        known, known_tags = _words_of(division.training), _tags_of(division.training)
        is_unseen = ~numpy.isin(words, known)
        embedders = {options.bilm_name: options.embedder(bilm)}
        if options.control:
            embedders[RANDOM_WEIGHTS] = options.random_embedder(bilm, seed)
        found = {(MOST_FREQUENT, ""): frequent_tags(words, known, known_tags)}
        classifiers: Dict[Tuple[str, str], LogisticRegression] = {}
        for name, embedder in embedders.items():
            probes = _fit_layers(embedder, division, options.strengths)
            for layer, layer_tags in _predict_layers(embedder, division.test, probes).items():
                found[name, layer] = layer_tags
                classifiers[name, layer] = probes[layer][-1]
        for key, found_tags in found.items():
            is_right = found_tags == tags
            row = {
                **dict(zip(("vectors", "layer"), key)),
                "seed": seed,
                ACCURACY: 100 * is_right.mean(),
                UNSEEN: 100 * is_right[is_unseen].mean() if is_unseen.any() else numpy.nan,
            }
            if key in classifiers:
                row["C"] = classifiers[key].C
                row["converged"] = bool(classifiers[key].n_iter_.max() < _MAX_ITERATIONS)
            rows.append(row)
    return pandas.DataFrame(rows).set_index(["vectors", "layer", "seed"])


def _fit_layers(
    embedder: ElmoEmbedder, division: Division, strengths: Sequence[float]
) -> Dict[str, Pipeline]:
    """Return the classifier of each layer."""
    sentences = [*division.training, *division.held_out]
    words = [sentence.words for sentence in sentences]
    # (num_layers, num_words, dim)
    vectors = numpy.concatenate(list(embed_sentences(embedder, words, "training part")), axis=1)
    tags, num_training = _tags_of(sentences), len(_tags_of(division.training))
    probes = {}
    for layer, layer_vectors in named_layers(vectors):
        training, held_out = numpy.split(layer_vectors, [num_training])
        probes[layer] = fit_probe(
            training, tags[:num_training], held_out, tags[num_training:], strengths
        )
        logger.info("Layer %s: C = %g", layer, probes[layer][-1].C)
    return probes


def _predict_layers(
    embedder: ElmoEmbedder, sentences: Sequence[Conll2012Sentence], probes: Dict[str, Pipeline]
) -> Dict[str, numpy.ndarray]:
    """Return the tags that the classifier of each layer finds, `(num_words,)`."""
    found: DefaultDict[str, List[numpy.ndarray]] = defaultdict(list)
    words = [sentence.words for sentence in sentences]
    for block in chunked(embed_sentences(embedder, words, "test part"), _TEST_BLOCK):
        for layer, layer_vectors in named_layers(numpy.concatenate(block, axis=1)):
            found[layer].append(probes[layer].predict(layer_vectors))
    return {layer: numpy.concatenate(tags) for layer, tags in found.items()}


def _words_of(sentences: Sequence[Conll2012Sentence]) -> numpy.ndarray:
    return numpy.array([word for sentence in sentences for word in sentence.words])


def _tags_of(sentences: Sequence[Conll2012Sentence]) -> numpy.ndarray:
    """Return the tags of all words, `(num_words,)`, strings."""
    return numpy.array([tag for sentence in sentences for tag in sentence.parts_of_speech])
