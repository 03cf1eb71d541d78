"""`elmo-report pos`: which parts of speech a linear classifier reads off each layer (the paper's table 6)."""

import logging
import time
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, DefaultDict, Dict, List, NamedTuple, Sequence, Tuple

import numpy
from allennlp.common.checks import ConfigurationError
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from elmo_plugin.arguments import option
from elmo_plugin.bilm import BiLM
from elmo_plugin.embedding import ElmoEmbedder
from elmo_plugin.report.figures import draw_layers, write_figure
from elmo_plugin.report.probes import (
    PAPER_NUM_LAYERS,
    RANDOM_WEIGHTS,
    SEED_NOTE,
    ProbeOptions,
    embed_in_blocks,
    embed_tokens,
    layer_names,
    layer_table,
    named_layers,
)
from elmo_plugin.report.runs import Report
from elmo_plugin.report.tables import ReportTable, paired_differences, table_of, write_table
from elmo_plugin.tasks.conll import read_conll_2012

if TYPE_CHECKING:  # --include-package imports every module, also where pandas is not installed
    import pandas

MOST_FREQUENT = "most frequent tag of the word"
ACCURACY, UNSEEN = "accuracy", "accuracy on unseen words"

# Table 6: accuracy on the test part of the Wall Street Journal. Of a biLM with two LSTM layers.
_PAPER = {"1": 97.3, "2": 96.8}
_HELD_OUT_SHARE = 0.1  # of the training sentences, to choose the regularization by
_MIN_TRAIN_SENTENCES = 10  # so that one is held out
_TEST_BLOCK = 512  # sentences whose vectors are held together
_MAX_ITERATIONS = 500
# Larger than scikit-learn's default, for half of the time: accuracy changed by some 0.1 points.
_TOLERANCE = 3e-4

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PosOptions(ProbeOptions):
    """
    What does each layer know of parts of speech? Fits a linear classifier to the vectors of each layer of a
    biLM, of the mean of all, and of a biLM of random weights: the paper's table 6.

    FILE is CoNLL-2012, or a folder of *.gold_conll files: its fifth column is the part of speech.

    examples:
      allennlp elmo-report pos data/srl/dev.gold_conll -s results
      allennlp elmo-report pos --train data/srl/train.gold_conll --test data/srl/test.gold_conll -s results

    Writes pos (.md, .csv, .json, .png, .svg), and pos-differences with the differences of each two layers.
    """

    files: Sequence[str] = option(
        "to be divided at random into a training and a test part",
        (),
        positional=True,
        metavar="FILE",
    )
    train: Sequence[str] = option("in place of FILE: the training part", (), metavar="FILE")
    test: Sequence[str] = option("in place of FILE: the test part", (), metavar="FILE")
    test_share: float = option("of the sentences in FILE", 0.2, metavar="SHARE")
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
        """
        # Raises

        `ConfigurationError` for options that make no training or test part, and as `ProbeOptions.check`
        does.
        """
        super().check()
        if bool(self.files) == bool(self.train) or bool(self.train) != bool(self.test):
            raise ConfigurationError(
                f"Found {len(self.files)} FILE, {len(self.train)} for --train and {len(self.test)} for "
                "--test, expected either FILE, to be divided, or --train and --test."
            )
        both = sorted(set(self.train) & set(self.test))
        if both:
            raise ConfigurationError(
                f"--train and --test: {', '.join(both)} is given to both, expected other files. Leave it "
                "out of one."
            )
        if not 0.0 < self.test_share < 1.0:
            raise ConfigurationError(
                f"--test-share: found {self.test_share}, expected a share larger than 0 and smaller than 1."
            )
        if self.max_train_sentences < _MIN_TRAIN_SENTENCES:
            raise ConfigurationError(
                f"--max-train-sentences: found {self.max_train_sentences}, expected at least "
                f"{_MIN_TRAIN_SENTENCES}."
            )
        if not self.strengths or not all(strength > 0 for strength in self.strengths):
            raise ConfigurationError(
                f"--strengths: found {list(self.strengths)}, expected one or more positive numbers."
            )


class TaggedSentence(NamedTuple):
    """Words, at least one, and the tag of each."""

    words: List[str]
    tags: List[str]


class TagDivision(NamedTuple):
    """The sentences to fit classifiers to, to choose their regularization by, and to score them with."""

    training: List[TaggedSentence]
    held_out: List[TaggedSentence]
    test: List[TaggedSentence]


class FrequentTags:
    """
    The baseline: each word has its most frequent tag in the training part, and an unseen word the most
    frequent tag of all. Of equally frequent tags it is the first by name.

    # Parameters

    sentences : `Sequence[TaggedSentence]`
        The training part, with at least one sentence.
    """

    def __init__(self, sentences: Sequence[TaggedSentence]) -> None:
        counts: DefaultDict[str, Counter] = defaultdict(Counter)
        for sentence in sentences:
            for word, tag in zip(sentence.words, sentence.tags):
                counts[word][tag] += 1
        self.tag_of = {word: _most_frequent(of_word) for word, of_word in counts.items()}
        self.default = _most_frequent(sum(counts.values(), Counter()))


def read_tagged(paths: Sequence[str]) -> List[TaggedSentence]:
    """
    Read the sentences of CoNLL-2012 files, or of folders of them, with their fifth column.

    # Raises

    `ConfigurationError` for files that `read_conll_2012` refuses; and, naming the files, if all words of
    all of them have the same tag: the column was not filled.
    """
    sentences = [
        TaggedSentence(sentence.words, sentence.parts_of_speech)
        for path in paths
        for document in read_conll_2012(path)
        for sentence in document.sentences()
    ]
    tags = set(_tags_of(sentences))
    if len(tags) < 2:
        raise ConfigurationError(
            f"{', '.join(paths)}: the fifth column holds nothing but {' '.join(sorted(tags))}, expected "
            "the parts of speech of the words, of two kinds or more. Give files that have them."
        )
    return sentences


def fit_probe(
    vectors: numpy.ndarray,
    tags: numpy.ndarray,
    held_out_vectors: numpy.ndarray,
    held_out_tags: numpy.ndarray,
    strengths: Sequence[float],
) -> Pipeline:
    """
    Fit a multinomial logistic regression for each strength of regularization, and return the one that has
    most of the held-out vectors right; of equally good ones the one with the smallest C.

    # Parameters

    vectors, held_out_vectors : `numpy.ndarray`
        `(num_training, dim)` and `(num_held_out, dim)`. Each dimension is scaled to mean 0 and variance 1
        in the training part first, so that layers of any scale are regularized alike.
    tags, held_out_tags : `numpy.ndarray`
        Strings, `(num_training,)` and `(num_held_out,)`.
    strengths : `Sequence[float]`
        scikit-learn's C: the weight of the sum of the losses against half the sum of the squared weights.

    # Raises

    `ConfigurationError` if the training vectors are of one class only.
    """
    if len(set(tags)) < 2:
        raise ConfigurationError(
            f"The training part holds one class only, {tags[0]}, expected two or more. Give more text."
        )
    probes = []
    for strength in sorted(strengths):
        classifier = LogisticRegression(C=strength, max_iter=_MAX_ITERATIONS, tol=_TOLERANCE)
        probe = make_pipeline(StandardScaler(), classifier)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a note of the table names them
            probes.append(probe.fit(vectors, tags))
    return max(probes, key=lambda probe: probe.score(held_out_vectors, held_out_tags))


def compare_tags(options: PosOptions) -> Report:
    """
    Measure how much of parts of speech a linear classifier reads off each layer of a biLM, and write tables
    and a picture.

    # Raises

    `ConfigurationError`, before a biLM is loaded, for options that are not as described, for files without
    parts of speech, and for too few sentences.
    """
    options.check()
    divisions = divide(options)
    bilm = options.model.load()
    scores = _measure(options, bilm, divisions)
    tables = _tables(options, bilm, divisions, scores)
    measures = [name for name in (ACCURACY, UNSEEN) if scores[name].notna().any()]
    figure = draw_layers(
        "Parts of speech by layer, read off by a linear classifier",
        scores.set_index(["vectors", "layer", "seed"])[measures],
        MOST_FREQUENT,
    )
    files = [path for table in tables for path in write_table(table, options.output)]
    return Report(tables, [*files, *write_figure(figure, options.output, "pos")])


def divide(options: PosOptions) -> Dict[int, TagDivision]:
    """
    Divide the sentences at random, for each seed.

    # Raises

    `ConfigurationError` for too few training sentences, and as `read_tagged` does.
    """
    sentences = read_tagged(options.files or options.train)
    fixed_test = read_tagged(options.test) if options.test else []
    divisions = {}
    for seed in options.seeds:
        order = numpy.random.default_rng(seed).permutation(len(sentences))
        shuffled = [sentences[row] for row in order]
        num_test = 0 if fixed_test else max(1, round(options.test_share * len(shuffled)))
        test = fixed_test or shuffled[:num_test]
        chosen = shuffled[num_test : num_test + options.max_train_sentences]
        if len(chosen) < _MIN_TRAIN_SENTENCES:
            raise ConfigurationError(
                f"{', '.join(options.files or options.train)}: found {len(chosen)} training sentences, "
                f"expected at least {_MIN_TRAIN_SENTENCES}, and thousands for scores that mean something. "
                "Give more text."
            )
        num_held_out = round(_HELD_OUT_SHARE * len(chosen))
        divisions[seed] = TagDivision(chosen[num_held_out:], chosen[:num_held_out], test)
    return divisions


def _measure(
    options: PosOptions, bilm: BiLM, divisions: Dict[int, TagDivision]
) -> "pandas.DataFrame":
    """Columns `vectors`, `layer`, `seed`, `ACCURACY`, `UNSEEN`, `C` and `converged`."""
    import pandas

    rows: List[Dict[str, Any]] = []
    for seed, division in divisions.items():
        baseline = FrequentTags(division.training)
        words = [word for sentence in division.test for word in sentence.words]
        tags = _tags_of(division.test)
        is_unseen = numpy.array([word not in baseline.tag_of for word in words])

        found = numpy.array([baseline.tag_of.get(word, baseline.default) for word in words])
        results: Dict[Tuple[str, str], Tuple[numpy.ndarray, Dict[str, Any]]] = {
            (MOST_FREQUENT, ""): (found, {})
        }
        embedders = {options.model.name: options.model.embedder(bilm)}
        if options.control:
            embedders[RANDOM_WEIGHTS] = options.model.random_embedder(bilm, seed)
        for name, embedder in embedders.items():
            for layer, (probe, found) in _fit_layers(embedder, division, options.strengths).items():
                has_converged = bool(probe[-1].n_iter_.max() < _MAX_ITERATIONS)
                results[name, layer] = (found, {"C": probe[-1].C, "converged": has_converged})
        for (name, layer), (found, further) in results.items():
            row = {"vectors": name, "layer": layer, "seed": seed, **further}
            row[ACCURACY] = 100 * accuracy_score(tags, found)
            if is_unseen.any():
                row[UNSEEN] = 100 * accuracy_score(tags[is_unseen], found[is_unseen])
            rows.append(row)
    columns = ["vectors", "layer", "seed", ACCURACY, UNSEEN, "C", "converged"]
    return pandas.DataFrame(rows, columns=columns).astype({UNSEEN: float})


def _fit_layers(
    embedder: ElmoEmbedder, division: TagDivision, strengths: Sequence[float]
) -> Dict[str, Tuple[Pipeline, numpy.ndarray]]:
    """By layer: the classifier, and the tags that it finds in the test part, `(num_words,)`."""
    sentences = [*division.training, *division.held_out]
    # (num_layers, num_words, dim)
    vectors = embed_tokens(embedder, [s.words for s in sentences], description="training part")
    tags, num_training = _tags_of(sentences), len(_tags_of(division.training))
    probes = {}
    for layer, of_layer in named_layers(vectors):
        start = time.monotonic()
        probes[layer] = fit_probe(
            of_layer[:num_training],
            tags[:num_training],
            of_layer[num_training:],
            tags[num_training:],
            strengths,
        )
        seconds = time.monotonic() - start
        logger.info("Layer %s: C = %g after %.0f s", layer, probes[layer][-1].C, seconds)
    found: DefaultDict[str, List[numpy.ndarray]] = defaultdict(list)
    words = [sentence.words for sentence in division.test]
    for block in embed_in_blocks(embedder, words, _TEST_BLOCK, description="test part"):
        for layer, of_layer in named_layers(block):
            found[layer].append(probes[layer].predict(of_layer))
    return {layer: (probe, numpy.concatenate(found[layer])) for layer, probe in probes.items()}


def _tables(
    options: PosOptions,
    bilm: BiLM,
    divisions: Dict[int, TagDivision],
    scores: "pandas.DataFrame",
) -> List[ReportTable]:
    parts = next(iter(divisions.values()))._asdict().items()
    settings = {
        **options.settings("pos", bilm),
        "classifier": "scikit-learn's LogisticRegression on dimensions of mean 0 and variance 1, "
        f"tol={_TOLERANCE}",
        "sentences, first seed": {part: len(sentences) for part, sentences in parts},
        "words, first seed": {part: len(_tags_of(sentences)) for part, sentences in parts},
    }
    layers = layer_names(bilm.num_layers)
    order = [(MOST_FREQUENT, ""), *((name, layer) for name in options.vectors for layer in layers)]
    table = layer_table(scores[["vectors", "layer", "seed", ACCURACY, UNSEEN]], order)
    table.columns = ["accuracy (%)", "std", "unseen words (%)", "unseen std"]
    by_layer = scores.groupby(["vectors", "layer"])
    table["C"] = by_layer["C"].agg(lambda chosen: ", ".join(f"{c:g}" for c in chosen.dropna()))
    if bilm.num_layers == PAPER_NUM_LAYERS:
        table["paper, WSJ (%)"] = [
            None if name == RANDOM_WEIGHTS else _PAPER.get(layer) for name, layer in order
        ]
    notes = [
        "Accuracy of the tags in the test part; unseen words are those that the training part does not "
        "hold. Each seed draws its training sentences. C: the inverse strength of regularization that "
        f"each seed chose on held-out sentences. {SEED_NOTE}",
        "Paper: Peters et al. 2018, table 6: a linear classifier on the Wall Street Journal part of the "
        "Penn Treebank, a larger biLM and other text; its two figures were seen in a summary by others, "
        "not in the paper. (CoVe's two layers: 93.3 and 92.8.)",
    ]
    unfinished = scores[scores["converged"].eq(False)]
    if len(unfinished):
        names = [
            f"seed {row.seed}, {row.vectors}, layer {row.layer}" for row in unfinished.itertuples()
        ]
        notes.append(f"Stopped before they had converged: {'; '.join(names)}.")
    by_seed = scores.pivot(index=["vectors", "layer"], columns="seed", values=ACCURACY)
    return [
        table_of(table.reset_index(), "pos", "Parts of speech by layer", notes, settings),
        table_of(
            paired_differences(by_seed.loc[options.model.name].reindex(layers), "accuracy"),
            "pos-differences",
            f"Parts of speech, differences of layers of {options.model.name}",
            [f"Over the same sentences. {SEED_NOTE}"],
            settings,
        ),
    ]


def _tags_of(sentences: Sequence[TaggedSentence]) -> numpy.ndarray:
    """The tags of all words, `(num_words,)`, strings."""
    return numpy.array([tag for sentence in sentences for tag in sentence.tags])


def _most_frequent(counts: Counter) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))
