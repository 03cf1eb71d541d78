"""`elmo report wsd`: how well each layer distinguishes the senses of words (the paper's table 5)."""

import logging
from collections import Counter
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Dict, List, NamedTuple, Sequence, Tuple, Union

import numpy
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.metrics.pairwise import cosine_similarity
from sklearn.model_selection import StratifiedKFold

from elmo_plugin.arguments import option
from elmo_plugin.bilm import BiLM
from elmo_plugin.embedding import ElmoEmbedder
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import (
    errors_at,
    find_key,
    get_text,
    get_words,
    parse_json_object,
)
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
from elmo_plugin.tasks.reading import placed_lines

if TYPE_CHECKING:  # --include-package imports every module, also where pandas is not installed
    import pandas

MOST_FREQUENT = "most frequent sense"
ACCURACY, BALANCED = "accuracy", "balanced accuracy"

# Table 5: F1 on all words of four test sets, fine-grained; WordNet's first sense for words without training
# examples. Of a biLM with two LSTM layers.
_PAPER = {"": 65.9, "1": 67.4, "2": 69.0}
_SPREAD_NOTE = f"Each score is the mean of the test parts of a seed. {SEED_NOTE}"
_NOTES = (
    "Accuracy: the share of occurrences that get the right sense; each gets the sense whose mean vector in "
    "the training part is nearest. The mean is over words. Balanced: the mean over the senses of a word, so "
    "that rare senses count as much. The accuracy of the baseline comes from the frequencies of senses "
    "alone, which means of vectors do not know: compare the balanced scores too.",
    "Layer 0 does not see the context: it distinguishes senses by the forms of a word, such as line and "
    "lines.",
    _SPREAD_NOTE,
    "Paper: Peters et al. 2018, table 5, on other data: all words of four test sets, with the senses of "
    "SemCor as training examples; WordNet's first sense, layer 1 and layer 2. (CoVe's two layers: 59.4 and "
    "64.7.)",
)
# Similarities that differ by less than this share of the largest one differ by rounding.
_TOLERANCE = 1e-6
_EXAMPLE = '{"tokens": ["a", "hard", "rock"], "index": 1, "sense": "solid"}'

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SenseOptions(ProbeOptions):
    """
    Which layers know the meaning of a word in context? For each word with marked senses, the vectors of
    each sense in the training part are averaged. Each occurrence in the test part gets the sense with the
    nearest average. This is the paper's table 5, for each layer of a biLM, for the mean of all layers, and
    for a biLM with random weights.

    FILE holds the occurrences of one word and is named after the word, with a JSON object on each line:
      {"tokens": ["that", "is", "hard", "to", "do"], "index": 2, "sense": "HARD1"}

    examples:
      elmo report wsd data/wsd/*.jsonl -s results
      elmo report wsd data/wsd/*.jsonl -s results --bilm my_bilm --folds 3

    Writes wsd (.md, .csv, .json, .png, .svg), wsd-words with the spread for each word, and wsd-differences.
    """

    files: Sequence[str] = option("occurrences of one word", positional=True, metavar="FILE")
    folds: int = option(
        "number of parts for cross-validation; each is the test part once", 5, metavar="N"
    )
    min_instances: int = option("leave out senses with fewer occurrences", 1, metavar="N")


class SenseInstance(NamedTuple):
    """The tokens of one or more sentences, the position of the word among them, and its sense."""

    tokens: Tuple[str, ...]
    position: int
    sense: str


class AmbiguousWord(NamedTuple):
    """The occurrences of a word, from a file that is named after it."""

    name: str
    file_path: str
    instances: List[SenseInstance]  # in the order of the file
    left_out: Dict[str, int]  # rare senses, with the number of their instances

    @property
    def senses(self) -> numpy.ndarray:
        """Return the sense of each instance, `(num_instances,)`."""
        return numpy.array([instance.sense for instance in self.instances])

    def test_parts(self, seed: int, folds: int) -> List[numpy.ndarray]:
        """
        Divide the instances at random into the test parts of cross-validation, separately for each sense.
        Instances with the same tokens stay together, so that no test sentence is in the training part.

        # Returns

        For each test part a boolean array `(num_instances,)`, `True` at its instances.
        """
        sense_of = {i.tokens: i.sense for i in reversed(self.instances)}  # the first of a sentence
        sentences = list(dict.fromkeys(instance.tokens for instance in self.instances))
        sentence_senses = [sense_of[tokens] for tokens in sentences]
        counts = Counter(sentence_senses)
        for sense, num_instances in sorted(Counter(self.senses.tolist()).items()):
            if counts[sense] < folds:
                raise ConfigurationError(
                    f"{self.file_path}: the sense '{sense}' has {counts[sense]} different sentences "
                    f"({num_instances} instances), expected at least {folds}, one for each part. Leave rare "
                    f"senses out with --min-instances {num_instances + 1}, or give more text or fewer "
                    "--folds."
                )
        splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
        parts = []
        for _, test in splitter.split(sentence_senses, sentence_senses):
            test_sentences = {sentences[number] for number in test}
            parts.append(numpy.array([i.tokens in test_sentences for i in self.instances]))
        return parts


def read_senses(path: Union[str, PathLike], min_instances: int = 1) -> AmbiguousWord:
    """
    Read a file with the instances of one word: a JSON object on each line, with `tokens`, the `index` of
    the word among them, counted from 0, and its `sense`. Other keys are ignored.
    """
    instances = []
    for place, line in placed_lines(path, "a JSON object"):
        with errors_at(place):
            instances.append(_instance(line))
    counts = Counter(instance.sense for instance in instances)
    left_out = {sense: count for sense, count in counts.items() if count < min_instances}
    if len(counts) - len(left_out) < 2:
        found = ", ".join(f"'{sense}' ({count} instances)" for sense, count in counts.items())
        raise ConfigurationError(
            f"{path}: found the senses {found}, expected two or more of at least {min_instances} "
            "instances. Give another file, or a smaller --min-instances."
        )
    kept = [instance for instance in instances if instance.sense not in left_out]
    return AmbiguousWord(Path(path).stem, str(path), kept, left_out)


def nearest_senses(
    training_vectors: numpy.ndarray, training_senses: numpy.ndarray, vectors: numpy.ndarray
) -> numpy.ndarray:
    """
    Return, for each vector, the sense whose mean vector in the training part has the largest cosine with it.
    The paper does not name its distance. The cosine ignores the lengths of vectors, which depend more on the
    word and the layer than on the sense, and which are smaller for means of many vectors.

    # Parameters

    training_vectors, vectors : `numpy.ndarray`
        `(num_training, dim)` and `(num_vectors, dim)`
    training_senses : `numpy.ndarray`
        `(num_training,)`

    # Returns

    `(num_vectors,)`. Ties go to the sense that is most frequent in the training part. In a layer that does
    not see the context, all senses are equally near.
    """
    senses = by_frequency(training_senses)
    training_vectors = training_vectors.astype(numpy.float64)
    means = [training_vectors[training_senses == sense].mean(axis=0) for sense in senses]
    cosines = cosine_similarity(vectors.astype(numpy.float64), means)  # (num_vectors, num_senses)
    slack = _TOLERANCE * numpy.abs(cosines).max()
    is_nearest = cosines >= cosines.max(axis=1, keepdims=True) - slack
    return senses[is_nearest.argmax(axis=1)]  # argmax gives the first


def by_frequency(senses: numpy.ndarray) -> numpy.ndarray:
    """Return the distinct senses, the most frequent first; ties by name."""
    names, counts = numpy.unique(senses, return_counts=True)
    return names[numpy.argsort(-counts, kind="stable")]


def compare_senses(options: SenseOptions) -> Report:
    """
    Measure how well each layer of a biLM distinguishes the senses of words, and write tables and a figure.
    Options and files are checked before the biLM is loaded.
    """
    import pandas

    options.check()
    check_option("--folds", options.folds, options.folds >= 2, "2 or more")
    words = [read_senses(path, options.min_instances) for path in options.files]
    names = [word.name for word in words]
    expected = "files with different names, which are the words"
    check_option("FILE", ", ".join(names), len(set(names)) == len(names), expected)
    for word in words:
        word.test_parts(
            options.seeds[0], options.folds
        )  # raises an error before the biLM is loaded
    bilm = load_bilm(options.bilm)
    scores = _measure(options, words, bilm)
    means = scores.groupby(level=["vectors", "layer", "seed"], sort=False).mean()
    columns = ["accuracy (%)", "std", "balanced (%)", "balanced std"]
    word_tables = {name: layer_table(scores.xs(name, level="word"), columns) for name in names}
    all_words = layer_table(means, ["mean (%)", "std", "balanced mean (%)", "balanced std"])
    for number, (name, table) in enumerate(word_tables.items()):
        all_words.insert(number, f"{name} (%)", table["accuracy (%)"])
    add_paper(all_words, bilm, "paper, F1 (%)", _PAPER)
    each_word = pandas.concat(
        {(w.name, len(w.instances), len(set(w.senses))): word_tables[w.name] for w in words},
        names=["word", "occurrences", "senses"],
    )
    title = "Word senses by layer"
    figure = draw_layers(f"{title}: mean of {len(words)} words", means, MOST_FREQUENT)
    parts = {
        "wsd": Part(title, all_words.reset_index(), [*_NOTES, *_left_out_notes(words)], figure),
        "wsd-words": Part(f"{title}, each word", each_word.reset_index(), [_SPREAD_NOTE]),
        "wsd-differences": differences_part(
            "Word senses", means[BALANCED], "balanced", options.bilm_name, "test parts"
        ),
    }
    data = {
        word.file_path: f"{len(word.instances)} occurrences, {len(set(word.senses))} senses"
        for word in words
    }
    settings = options.settings(bilm, **{"test parts": f"{options.folds} folds"}, data=data)
    return write_report(options.output, parts, settings)


def _measure(
    options: SenseOptions, words: Sequence[AmbiguousWord], bilm: BiLM
) -> "pandas.DataFrame":
    """Return the means of `ACCURACY` and `BALANCED` over test parts, by (vectors, layer, word, seed)."""
    import pandas

    rows = []
    vectors = {options.bilm_name: _embed(options.embedder(bilm), words)}
    for seed in options.seeds:
        if options.control:
            vectors[RANDOM_WEIGHTS] = _embed(options.random_embedder(bilm, seed), words)
        for word in words:
            for is_test in word.test_parts(seed, options.folds):
                training, expected = word.senses[~is_test], word.senses[is_test]
                baseline = numpy.repeat(by_frequency(training)[0], len(expected))
                found = {(MOST_FREQUENT, ""): baseline}
                for name, word_vectors in vectors.items():
                    for layer, layer_vectors in named_layers(word_vectors[word.name]):
                        found[name, layer] = nearest_senses(
                            layer_vectors[~is_test], training, layer_vectors[is_test]
                        )
                for key, senses in found.items():
                    accuracy = 100 * accuracy_score(expected, senses)
                    balanced = 100 * balanced_accuracy_score(expected, senses)
                    rows.append([*key, word.name, seed, accuracy, balanced])
        logger.info("Seed %d: measured.", seed)
    columns = ["vectors", "layer", "word", "seed", ACCURACY, BALANCED]
    return pandas.DataFrame(rows, columns=columns).groupby(columns[:4], sort=False).mean()


def _embed(embedder: ElmoEmbedder, words: Sequence[AmbiguousWord]) -> Dict[str, numpy.ndarray]:
    """Return the vectors of each word, `(num_layers, num_instances, dim)`."""
    vectors = {}
    for word in words:
        sentences = embed_sentences(embedder, [i.tokens for i in word.instances], word.name)
        # Copies, so that the vectors of the other tokens are released.
        rows = [layers[:, i.position].copy() for layers, i in zip(sentences, word.instances)]
        vectors[word.name] = numpy.stack(rows, axis=1)
    return vectors


def _left_out_notes(words: Sequence[AmbiguousWord]) -> List[str]:
    left_out = [
        f"{word.name}: {', '.join(f'{sense} ({count})' for sense, count in word.left_out.items())}"
        for word in words
        if word.left_out
    ]
    note = f"Rare senses that are left out, with their occurrences: {'; '.join(left_out)}."
    return [note] if left_out else []


def _instance(line: str) -> SenseInstance:
    values = parse_json_object(line, _EXAMPLE)
    tokens = get_words(values, "tokens", _EXAMPLE)
    find_key(values, ["index"], _EXAMPLE)
    index = values["index"]
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(tokens):
        raise ConfigurationError(
            f"'index' is {index!r}, expected the position of the word among the {len(tokens)} tokens, from 0 "
            f"to {len(tokens) - 1}"
        )
    return SenseInstance(tuple(tokens), index, get_text(values, "sense", _EXAMPLE))
