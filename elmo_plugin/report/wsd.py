"""`allennlp elmo-report wsd`: which layers know the senses of words (the paper's table 5)."""

import argparse
import logging
import statistics
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm import BiLM
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.report.figures import write_figure
from elmo_plugin.report.layer_scores import LayerKey, LayerScores, Measure, draw_layers
from elmo_plugin.report.layer_vectors import embed_tokens, layer_names, named_layers
from elmo_plugin.report.nearest_sense import (
    COSINE,
    DISTANCES,
    accuracy,
    balanced_accuracy,
    by_frequency,
    nearest_senses,
)
from elmo_plugin.report.probe_options import (
    RANDOM_WEIGHTS,
    ProbeOptions,
    add_probe_arguments,
    probe_options,
)
from elmo_plugin.report.report_table import write_table
from elmo_plugin.report.sense_data import AmbiguousWord, check_distinct_names, read_senses
from elmo_plugin.report.sense_tables import ACCURACY, BALANCED, MOST_FREQUENT, sense_tables

DEFAULT_FOLDS = 5

logger = logging.getLogger(__name__)


class SenseOptions(NamedTuple):
    """
    # Parameters

    files : `Sequence[str]`
        One for each word, see `read_senses`.
    probe : `ProbeOptions`
        The biLM, the seeds, and where results go.
    folds : `int`, optional (default = 5)
        Cross-validation with so many parts, for each seed.
    test_share : `float`, optional
        In its place one test part of this share.
    min_instances : `int`, optional (default = 1)
        Senses with fewer are left out.
    distance : `str`, optional (default = `"cosine"`)
        See `nearest_senses`.
    centre : `bool`, optional (default = `False`)
        See `nearest_senses`.
    """

    files: Sequence[str]
    probe: ProbeOptions
    folds: int = DEFAULT_FOLDS
    test_share: Optional[float] = None
    min_instances: int = 1
    distance: str = COSINE
    centre: bool = False

    def check(self) -> None:
        """
        # Raises

        `ConfigurationError` for what makes no test parts or no comparison, and as `ProbeOptions.check` does.
        """
        self.probe.check()
        if self.folds < 2:
            raise ConfigurationError(f"--folds: found {self.folds}, expected 2 or more.")
        if self.test_share is not None and not 0.0 < self.test_share < 1.0:
            raise ConfigurationError(
                f"--test-share: found {self.test_share}, expected a share larger than 0 and smaller than 1, "
                "such as 0.2."
            )
        if self.min_instances < 1:
            raise ConfigurationError(
                f"--min-instances: found {self.min_instances}, expected 1 or more."
            )
        if self.distance not in DISTANCES:
            raise ConfigurationError(
                f"--distance: found {self.distance}, expected one of {', '.join(DISTANCES)}."
            )

    def arguments(self) -> List[str]:
        """Those of the command, besides those of `probe`."""
        arguments = list(self.files)
        if self.test_share is None:
            arguments += ["--folds", str(self.folds)]
        else:
            arguments += ["--test-share", str(self.test_share)]
        if self.min_instances != 1:
            arguments += ["--min-instances", str(self.min_instances)]
        if self.distance != COSINE:
            arguments += ["--distance", self.distance]
        return [*arguments, "--centre"] if self.centre else arguments


class WSD:
    """The subcommand, see `compare_senses`."""

    name = "wsd"
    help = "Tell the senses of words by their vectors, layer by layer."
    description = """
Which layers know what a word means in context? For each word with marked senses, the vectors of each sense
in the training part are averaged, and each occurrence in the test part gets the sense whose average is
nearest: the paper's table 5, for each layer of a biLM, for the mean of all, and for a biLM of random weights.

FILE holds the occurrences of one word, which is called after it; a JSON object on each line:
  {"tokens": ["that", "is", "hard", "to", "do"], "index": 2, "sense": "HARD1"}

examples:
  allennlp elmo-report wsd data/wsd/*.jsonl -s results
  allennlp elmo-report wsd data/wsd/*.jsonl -s results --bilm my_bilm --test-share 0.2 --seeds 1 2 3 4 5

Writes wsd.md, .csv, .json, .png and .svg, and wsd-words.md, .csv and .json with the spread for each word.
"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE", help="occurrences of one word")
        group = add_probe_arguments(parser)
        parts = group.add_mutually_exclusive_group()
        parts.add_argument(
            "--folds",
            type=int,
            default=DEFAULT_FOLDS,
            metavar="N",
            help=f"cross-validation: N parts, each of which is the test part once (default: {DEFAULT_FOLDS})",
        )
        parts.add_argument(
            "--test-share",
            type=float,
            metavar="SHARE",
            help="one test part in place of --folds, of this share of the occurrences, such as 0.2",
        )
        group.add_argument(
            "--min-instances",
            type=int,
            default=1,
            metavar="N",
            help="leave out senses with fewer occurrences (default: 1)",
        )
        group.add_argument(
            "--distance",
            choices=DISTANCES,
            default=COSINE,
            help=f"of vectors (default: {COSINE})",
        )
        group.add_argument(
            "--centre",
            action="store_true",
            help="subtract the mean of a word's training vectors first",
        )

    def run(self, args: argparse.Namespace) -> None:
        options = SenseOptions(
            files=args.files,
            probe=probe_options(args),
            folds=args.folds,
            test_share=args.test_share,
            min_instances=args.min_instances,
            distance=args.distance,
            centre=args.centre,
        )
        for path in compare_senses(options):
            print(path)


def compare_senses(options: SenseOptions) -> List[Path]:
    """
    Measure how well each layer of a biLM tells the senses of words, and write tables and a picture.

    # Parameters

    options : `SenseOptions`
        What to measure and how.

    # Returns

    The files that were written.

    # Raises

    `ConfigurationError`, before a biLM is loaded, for options that are not as described, and for files and
    senses that are too few, as `read_senses` and `AmbiguousWord.test_parts` say.
    """
    options.check()
    words = [read_senses(path, options.min_instances) for path in options.files]
    check_distinct_names(words)
    for word in words:
        word.test_parts(options.probe.seeds[0], options.folds, options.test_share)
    bilm = options.probe.load()
    scores = _measure(options, words, bilm)
    layers = layer_names(bilm.num_layers)
    bilms = options.probe.bilm_names
    keys = [MOST_FREQUENT, *(LayerKey(name, layer) for name in bilms for layer in layers)]
    tables = sense_tables(words, scores, keys, bilm.num_layers, _settings(options, words, bilm))
    figure = draw_layers(
        f"Word senses by layer: mean of {len(words)} words",
        scores,
        bilms,
        layers,
        {measure.name: measure for measure in (ACCURACY, BALANCED)},
        MOST_FREQUENT,
    )
    output = options.probe.output
    return [
        *(path for table in tables for path in write_table(table, output)),
        *write_figure(figure, output, WSD.name),
    ]


def _measure(options: SenseOptions, words: Sequence[AmbiguousWord], bilm: BiLM) -> LayerScores:
    scores = LayerScores()
    vectors = {options.probe.bilm_name: _embed(options.probe.embedder(bilm), words)}
    for seed in options.probe.seeds:
        if options.probe.control:
            control = options.probe.control_embedder(bilm, seed)
            vectors[RANDOM_WEIGHTS] = _embed(control, words)
        parts = [word.test_parts(seed, options.folds, options.test_share) for word in words]
        # One test part of each word at a time.
        for masks in zip(*parts):
            _measure_part(options, words, masks, vectors, scores)
        logger.info("Seed %d: measured.", seed)
    return scores


def _embed(embedder: ElmoEmbedder, words: Sequence[AmbiguousWord]) -> List[numpy.ndarray]:
    """For each word `(num_layers, num_instances, dim)`."""
    return [
        embed_tokens(
            embedder,
            [instance.tokens for instance in word.instances],
            [instance.position for instance in word.instances],
            description=word.name,
        )
        for word in words
    ]


def _measure_part(
    options: SenseOptions,
    words: Sequence[AmbiguousWord],
    masks: Sequence[numpy.ndarray],
    vectors: Dict[str, List[numpy.ndarray]],
    scores: LayerScores,
) -> None:
    """
    Score one test part of each word.

    # Parameters

    masks : `Sequence[numpy.ndarray]`
        For each word `(num_instances,)`, `True` in the test part.
    vectors : `Dict[str, List[numpy.ndarray]]`
        By biLM, for each word `(num_layers, num_instances, dim)`.
    """
    of_words: Dict[Tuple[LayerKey, Measure], List[float]] = {}
    for number, (word, is_test) in enumerate(zip(words, masks)):
        training = [sense for sense, tests in zip(word.senses, is_test) if not tests]
        expected = [sense for sense, tests in zip(word.senses, is_test) if tests]
        found = {MOST_FREQUENT: [by_frequency(training)[0]] * len(expected)}
        for name, vectors_of_words in vectors.items():
            for layer, layer_vectors in named_layers(vectors_of_words[number]):
                found[LayerKey(name, layer)] = nearest_senses(
                    layer_vectors[~is_test],
                    training,
                    layer_vectors[is_test],
                    options.distance,
                    options.centre,
                )
        for key, senses in found.items():
            for measure, function in ((ACCURACY, accuracy), (BALANCED, balanced_accuracy)):
                score = function(senses, expected)
                scores.add(key, measure._replace(word=word.name), score)
                of_words.setdefault((key, measure), []).append(score)
    for (key, measure), all_scores in of_words.items():
        scores.add(key, measure, statistics.mean(all_scores))


def _settings(options: SenseOptions, words: Sequence[AmbiguousWord], bilm: BiLM) -> Dict[str, Any]:
    return {
        **options.probe.settings(WSD.name, options.arguments(), bilm),
        "test parts": f"{options.folds} folds"
        if options.test_share is None
        else f"a share of {options.test_share:g}",
        "distance": options.distance,
        "centred": options.centre,
        "data": {
            word.file_path: f"{len(word.instances)} occurrences, {len(word.distinct_senses)} senses"
            for word in words
        },
    }
