"""`elmo report wsd`: how well each layer distinguishes the senses of words (the paper's table 5)."""

from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy
import pandas
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.model_selection import StratifiedKFold, cross_validate

from elmo_plugin.arguments import option
from elmo_plugin.bilm import BiLM
from elmo_plugin.embedding import ElmoEmbedder
from elmo_plugin.errors import ConfigurationError, advising, errors_at
from elmo_plugin.files.json_input import find_key, get_text, get_words, parse_json_object
from elmo_plugin.files.text import FileName
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
from elmo_plugin.tasks.reading import placed_lines

ACCURACY, BALANCED = "accuracy", "balanced accuracy"

PROBE = Probe(
    name="wsd",
    title="Word senses by layer",
    baseline="most frequent sense",
    measures={
        ACCURACY: ("mean (%)", "std"),
        BALANCED: ("balanced mean (%)", "balanced std"),
    },
    compared=BALANCED,
)
_NOTES = (
    "Accuracy: the share of occurrences that get the right sense; each gets the sense whose mean vector in "
    "the training folds is nearest. The mean is over words. Balanced: the mean over the senses of a word, so "
    "that rare senses count as much. The accuracy of the baseline comes from the frequencies of senses "
    "alone, which means of vectors do not know: compare the balanced scores too.",
    "Layer 0 does not see the context: it distinguishes senses by the forms of a word, such as line and "
    "lines.",
    "Each score is the mean over the folds of a seed.",
    "Paper: Peters et al. 2018, table 5, on other data: F1 on all words of four test sets, fine-grained, "
    "with the senses of SemCor as training examples. WordNet's first sense has 65.9, layer 1 67.4 and layer "
    "2 69.0. (CoVe's two layers: 59.4 and 64.7.)",
)
# Similarities that differ by less than this share of the largest one differ by rounding.
_TOLERANCE = 1e-6
_EXAMPLE = '{"tokens": ["a", "hard", "rock"], "index": 1, "sense": "solid"}'


@dataclass(frozen=True, kw_only=True)
class SenseOptions(ProbeOptions):
    """
    Which layers know the meaning of a word in context? For each word with marked senses, the vectors of
    each sense in the training folds are averaged. Each occurrence in the test fold gets the sense with the
    nearest average. This is the paper's table 5, for each layer of a biLM, for the mean of all layers, and
    for a biLM with random weights.

    FILE holds the occurrences of one word and is named after the word, with a JSON object on each line:
      {"tokens": ["that", "is", "hard", "to", "do"], "index": 2, "sense": "HARD1"}

    examples:
      elmo report wsd data/wsd/*.jsonl --model elmo_mini -s results
      elmo report wsd data/wsd/*.jsonl --model my_bilm -s results --folds 3

    Writes wsd (.md, .csv, .json, .png, .svg), and wsd-differences with the differences of each pair of
    layers.
    """

    files: Sequence[str] = option("occurrences of one word", positional=True, metavar="FILE")
    folds: int = option("number of folds for cross-validation", 5, metavar="N")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_option("--folds", self.folds, self.folds >= 2, "2 or more")
        names = [Path(file).stem for file in self.files]
        expected = "files with different names, which are the words"
        check_option("FILE", ", ".join(names), len(set(names)) == len(names), expected)


class SenseInstance(NamedTuple):
    """The tokens of one or more sentences, the position of the word among them, and its sense."""

    tokens: Tuple[str, ...]
    position: int
    sense: str


class AmbiguousWord(NamedTuple):
    """The occurrences of a word, in the order of its file, which is named after it."""

    name: str
    instances: List[SenseInstance]

    @property
    def senses(self) -> numpy.ndarray:
        """Return the sense of each instance, `(num_instances,)`."""
        return numpy.array([instance.sense for instance in self.instances])

    @property
    def sentences(self) -> Dict[Tuple[str, ...], str]:
        """Return the different sentences, with the sense of the first instance of each."""
        senses: Dict[Tuple[str, ...], str] = {}
        for instance in self.instances:
            senses.setdefault(instance.tokens, instance.sense)
        return senses

    def splits(self, folds: int, seed: int) -> Iterator[Tuple[numpy.ndarray, numpy.ndarray]]:
        """
        Divide the instances at random into folds, separately for each sense, and yield the training and the
        test indices for each fold. Instances with the same tokens are in the same fold.
        """
        sentences, senses = zip(*self.sentences.items())
        folding = StratifiedKFold(folds, shuffle=True, random_state=seed)
        for _, test in folding.split(senses, senses):
            chosen = {sentences[number] for number in test}
            is_test = numpy.array([instance.tokens in chosen for instance in self.instances])
            yield numpy.flatnonzero(~is_test), numpy.flatnonzero(is_test)


def read_senses(path: FileName, folds: int) -> AmbiguousWord:
    """
    Read a file with the instances of one word: a JSON object on each line, with `tokens`, the `index` of
    the word among them, counted from 0, and its `sense`. Other keys are ignored. Each sense needs a sentence
    for each fold.
    """
    instances = []
    for place, line in placed_lines(path, "a JSON object"):
        with errors_at(place), advising("Correct the line."):
            instances.append(_instance(line))
    word = AmbiguousWord(Path(path).stem, instances)
    counts = Counter(word.sentences.values())
    senses = dict.fromkeys(instance.sense for instance in instances)
    if len(senses) < 2 or min(counts[sense] for sense in senses) < folds:
        found = ", ".join(f"'{sense}' ({counts[sense]} different sentences)" for sense in senses)
        raise ConfigurationError(
            f"{path}: found the senses {found}, expected two or more, each with at least {folds} different "
            "sentences, one for each fold. Remove rare senses, or give more text or fewer --folds."
        )
    return word


def _instance(line: str) -> SenseInstance:
    values = parse_json_object(line, _EXAMPLE)
    tokens = get_words(values, "tokens", _EXAMPLE)
    index = values[find_key(values, ["index"], _EXAMPLE)]
    if type(index) is not int or not 0 <= index < len(tokens):
        raise ConfigurationError(
            f"'index' is {index!r}, expected the position of the word among the {len(tokens)} tokens, from 0 "
            f"to {len(tokens) - 1}"
        )
    return SenseInstance(tuple(tokens), index, get_text(values, "sense", _EXAMPLE))


class NearestMean(ClassifierMixin, BaseEstimator):
    """
    Give a vector the class whose mean vector in the training data has the largest cosine with it. The paper
    does not name its distance. The cosine ignores the lengths of vectors, which depend more on the word and
    the layer than on the sense, and which are smaller for means of many vectors.

    Ties go to the class that is most frequent in the training data, then to the first by name: in a layer
    that does not see the context, all senses are equally near.
    """

    def fit(self, vectors: numpy.ndarray, classes: numpy.ndarray) -> "NearestMean":
        names, counts = numpy.unique(classes, return_counts=True)
        self.classes_ = names[numpy.argsort(-counts, kind="stable")]  # the most frequent first
        vectors = vectors.astype(numpy.float64)
        self.means = [vectors[classes == name].mean(axis=0) for name in self.classes_]
        return self

    def predict(self, vectors: numpy.ndarray) -> numpy.ndarray:
        cosines = cosine_similarity(vectors.astype(numpy.float64), self.means)
        slack = _TOLERANCE * numpy.abs(cosines).max()
        is_nearest = cosines >= cosines.max(axis=1, keepdims=True) - slack
        return self.classes_[is_nearest.argmax(axis=1)]  # argmax gives the first


def compare_senses(options: SenseOptions) -> Report:
    """Measure how well each layer of a biLM distinguishes the senses of words, and write the report."""
    words = [read_senses(path, options.folds) for path in options.files]
    bilm = load_start(options.model).bilm
    scores_of_words = _measure(options, words, bilm)
    scores = scores_of_words.groupby(level=LEVELS, sort=False).mean()
    table = layer_table(PROBE, scores)
    for number, word in enumerate(words):
        accuracies = scores_of_words[ACCURACY].xs(word.name, level="word")
        means = accuracies.groupby(level=LEVELS[:2]).mean().round(2)
        table.insert(number, f"{word.name}, accuracy (%)", means)
    data = {
        path: f"{len(word.instances)} occurrences, {len(set(word.senses))} senses"
        for path, word in zip(options.files, words)
    }
    settings = {"folds": options.folds, "data": data}
    return write_layers(PROBE, options, bilm, scores, table, _NOTES, **settings)


def _measure(options: SenseOptions, words: Sequence[AmbiguousWord], bilm: BiLM) -> pandas.DataFrame:
    """Return the means of measures over folds, in rows of (vectors, layer, word, seed)."""
    rows = []

    def add_row(
        name: str, layer: str, word: AmbiguousWord, seed: int, vectors: Optional[numpy.ndarray]
    ) -> None:
        baseline = DummyClassifier(strategy="most_frequent")
        scores = cross_validate(
            baseline if vectors is None else NearestMean(),
            numpy.zeros((len(word.senses), 1)) if vectors is None else vectors,
            word.senses,
            cv=list(word.splits(options.folds, seed)),
            scoring={ACCURACY: "accuracy", BALANCED: "balanced_accuracy"},
            error_score="raise",  # rather than NaN
        )
        means = [100 * scores[f"test_{measure}"].mean() for measure in PROBE.measures]
        rows.append([name, layer, word.name, seed, *means])

    for word, seed in product(words, options.seeds):
        add_row(PROBE.baseline, "", word, seed, None)
    for name, seeds, embedder in options.embedders(bilm):
        for word in words:
            layers = list(named_layers(_embed(embedder, word)))
            for seed, (layer, vectors) in product(seeds, layers):
                add_row(name, layer, word, seed, vectors)
    columns = ["vectors", "layer", "word", "seed", *PROBE.measures]
    return pandas.DataFrame(rows, columns=columns).set_index(columns[:4])


def _embed(embedder: ElmoEmbedder, word: AmbiguousWord) -> numpy.ndarray:
    """Return the vectors of a word, `(num_layers, num_instances, dim)`."""
    sentences = embed_sentences(embedder, [i.tokens for i in word.instances], word.name)
    # Copies, so that the vectors of the other tokens are released.
    rows = [layers[:, i.position].copy() for layers, i in zip(sentences, word.instances)]
    return numpy.stack(rows, axis=1)
