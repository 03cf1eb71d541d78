"""`allennlp elmo-report pos`: what a linear classifier reads of parts of speech off each layer (table 6)."""

import argparse
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

import numpy
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm import BiLM
from elmo_plugin.report.figures import write_figure
from elmo_plugin.report.layer_scores import LayerKey, draw_layers
from elmo_plugin.report.layer_vectors import layer_names
from elmo_plugin.report.linear_probe import DEFAULT_STRENGTHS, ITERATIONS, LEAST_GAIN
from elmo_plugin.report.probe_options import (
    RANDOM_WEIGHTS,
    ProbeOptions,
    add_probe_arguments,
    probe_options,
)
from elmo_plugin.report.report_table import ReportTable, write_table
from elmo_plugin.report.tag_probes import (
    ACCURACY,
    MOST_FREQUENT,
    UNSEEN_ACCURACY,
    TagDivision,
    TagScores,
    probe_tags,
)
from elmo_plugin.report.tagged_text import read_tagged, tags_of

DEFAULT_MAX_TRAIN_SENTENCES = 3000
DEFAULT_TEST_SHARE = 0.2

# Table 6 of the paper: accuracy of a linear classifier on the test part of the Wall Street Journal. By layer,
# of a biLM with two LSTM layers.
_PAPER = {"1": 97.3, "2": 96.8}
_PAPER_NUM_LAYERS = 3

_HELD_OUT_SHARE = 0.1  # of the training sentences, to choose the regularization by
_MIN_TRAIN_SENTENCES = 10  # so that one is held out


class PosOptions(NamedTuple):
    """
    # Parameters

    probe : `ProbeOptions`
        The biLM, the seeds, and where results go.
    files : `Sequence[str]`, optional
        CoNLL-2012 files or folders, which each seed divides at random into a test part and the rest.
    train, test : `Sequence[str]`, optional
        In their place, files that are divided already.
    test_share : `float`, optional (default = `0.2`)
        Of the sentences in `files`.
    max_train_sentences : `int`, optional (default = 3000)
        So many training sentences are drawn by each seed, if there are more; a tenth of them is held out to
        choose the regularization by. The vectors of all are held in memory: of 3,000 sentences of 16 words
        0.15 GB with elmo_mini, and 0.6 GB with the paper's model.
    strengths : `Sequence[float]`, optional (default = `DEFAULT_STRENGTHS`)
        See `fit_probe`.
    """

    probe: ProbeOptions
    files: Sequence[str] = ()
    train: Sequence[str] = ()
    test: Sequence[str] = ()
    test_share: float = DEFAULT_TEST_SHARE
    max_train_sentences: int = DEFAULT_MAX_TRAIN_SENTENCES
    strengths: Sequence[float] = DEFAULT_STRENGTHS

    def check(self) -> None:
        """
        # Raises

        `ConfigurationError` unless there is one of `files` and `train` with `test`, for numbers that are out
        of range, and as `ProbeOptions.check` does.
        """
        self.probe.check()
        if bool(self.files) == bool(self.train or self.test) or bool(self.train) != bool(self.test):
            raise ConfigurationError(
                f"Found FILE {list(self.files)}, --train {list(self.train)}, --test {list(self.test)}, "
                "expected either files that are to be divided, or --train and --test."
            )
        twice = sorted(set(self.train) & set(self.test))
        if twice:
            raise ConfigurationError(
                f"--train and --test: {', '.join(twice)} is given to both, expected other sentences to test "
                "with. Give FILE in their place to have it divided."
            )
        if not 0.0 < self.test_share < 1.0:
            raise ConfigurationError(
                f"--test-share: found {self.test_share}, expected a share larger than 0 and smaller than 1."
            )
        if self.max_train_sentences < _MIN_TRAIN_SENTENCES:
            raise ConfigurationError(
                f"--max-train-sentences: found {self.max_train_sentences}, expected {_MIN_TRAIN_SENTENCES} "
                "or more."
            )
        if not self.strengths or any(not strength > 0 for strength in self.strengths):
            raise ConfigurationError(
                f"--strengths: found {list(self.strengths)}, expected one or more positive numbers."
            )

    def arguments(self) -> List[str]:
        """Those of the command, besides those of `probe`."""
        if self.files:
            arguments = [*self.files, "--test-share", f"{self.test_share:g}"]
        else:
            arguments = ["--train", *self.train, "--test", *self.test]
        arguments += ["--max-train-sentences", str(self.max_train_sentences)]
        return [*arguments, "--strengths", *(f"{strength:g}" for strength in self.strengths)]


class POS:
    """The subcommand, see `compare_tags`."""

    name = "pos"
    help = "Read parts of speech off each layer with a linear classifier."
    description = """
Which layers know parts of speech? A linear classifier (multinomial logistic regression) is trained on the
vectors of each layer of a biLM, of the mean of all, and of a biLM of random weights: the paper's table 6.

FILE is a CoNLL-2012 file, whose fifth column has the parts of speech, or a folder of *.gold_conll files.

examples:
  allennlp elmo-report pos --train data/srl/train.gold_conll --test data/srl/test.gold_conll -s results
  allennlp elmo-report pos my_language.gold_conll -s results --bilm my_bilm --max-train-sentences 2000

Writes pos.md, .csv, .json, .png and .svg.
"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "files",
            nargs="*",
            metavar="FILE",
            help="to be divided at random into a training and a test part",
        )
        divided = parser.add_argument_group("in place of FILE")
        divided.add_argument(
            "--train", nargs="+", default=[], metavar="FILE", help="the training part"
        )
        divided.add_argument("--test", nargs="+", default=[], metavar="FILE", help="the test part")
        group = add_probe_arguments(parser)
        group.add_argument(
            "--test-share",
            type=float,
            default=DEFAULT_TEST_SHARE,
            metavar="SHARE",
            help=f"of the sentences in FILE (default: {DEFAULT_TEST_SHARE})",
        )
        group.add_argument(
            "--max-train-sentences",
            type=int,
            default=DEFAULT_MAX_TRAIN_SENTENCES,
            metavar="N",
            help="training sentences that each seed draws, if there are more; vectors of all are held in "
            f"memory (default: {DEFAULT_MAX_TRAIN_SENTENCES})",
        )
        strengths = " ".join(f"{strength:g}" for strength in DEFAULT_STRENGTHS)
        group.add_argument(
            "--strengths",
            type=float,
            nargs="+",
            default=list(DEFAULT_STRENGTHS),
            metavar="C",
            help="inverse strengths of L2 regularization, scikit-learn's C; the one is taken that does "
            f"best on a tenth of the training sentences, which is held out (default: {strengths})",
        )

    def run(self, args: argparse.Namespace) -> None:
        options = PosOptions(
            probe=probe_options(args),
            files=args.files,
            train=args.train,
            test=args.test,
            test_share=args.test_share,
            max_train_sentences=args.max_train_sentences,
            strengths=args.strengths,
        )
        for path in compare_tags(options):
            print(path)


def compare_tags(options: PosOptions) -> List[Path]:
    """
    Measure how much of parts of speech a linear classifier reads off each layer of a biLM, and write a table
    and a picture.

    # Parameters

    options : `PosOptions`
        What to measure and how.

    # Returns

    The files that were written.

    # Raises

    `ConfigurationError`, before a biLM is loaded, for options that are not as described, for files without
    parts of speech, and for too few sentences.
    """
    options.check()
    divisions = _divisions(options)
    bilm = options.probe.load()
    result = probe_tags(options.probe, bilm, divisions, options.strengths)
    layers = layer_names(bilm.num_layers)
    bilms = options.probe.bilm_names
    keys = [MOST_FREQUENT, *(LayerKey(name, layer) for name in bilms for layer in layers)]
    table = _table(result, keys, bilm.num_layers, _settings(options, bilm, divisions))
    measures = [measure for measure in (ACCURACY, UNSEEN_ACCURACY) if result.scores.has(measure)]
    figure = draw_layers(
        "Parts of speech by layer, read off by a linear classifier",
        result.scores,
        bilms,
        layers,
        {measure.name: measure for measure in measures},
        MOST_FREQUENT,
    )
    output = options.probe.output
    return [*write_table(table, output), *write_figure(figure, output, POS.name)]


def _divisions(options: PosOptions) -> Dict[int, TagDivision]:
    """By seed."""
    sentences = read_tagged(options.files or options.train)
    fixed_test = read_tagged(options.test) if options.test else []
    divisions = {}
    for seed in options.probe.seeds:
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


def _settings(options: PosOptions, bilm: BiLM, divisions: Dict[int, TagDivision]) -> Dict[str, Any]:
    parts = next(iter(divisions.values()))._asdict().items()
    return {
        **options.probe.settings(POS.name, options.arguments(), bilm),
        "classifier": "multinomial logistic regression on dimensions of mean 0 and variance 1; L-BFGS until "
        f"{ITERATIONS} iterations lower the loss by less than {LEAST_GAIN:.2%}",
        "sentences, first seed": {part: len(sentences) for part, sentences in parts},
        "words, first seed": {part: len(tags_of(sentences)) for part, sentences in parts},
    }


def _table(
    result: TagScores, keys: Sequence[LayerKey], num_layers: int, settings: Dict[str, Any]
) -> ReportTable:
    notes = [
        "Accuracy of the tags in the test part; unseen words are those that the training part does not "
        "hold. Each seed draws its training sentences and the random weights. std: of the sample, over "
        "seeds. C: the inverse strength of regularization that each seed chose on held-out sentences.",
        "Paper: Peters et al. 2018, table 6: a linear classifier on the Wall Street Journal part of the Penn "
        "Treebank, a larger biLM and other text. (CoVe's two layers: 93.3 and 92.8.)",
    ]
    if result.unfinished:
        notes.append(f"Stopped before they had converged: {'; '.join(result.unfinished)}.")
    return ReportTable(
        name=POS.name,
        title="Parts of speech by layer",
        columns=[
            *("vectors", "layer", "accuracy (%)", "std", "unseen words (%)", "unseen std", "C"),
            "paper, WSJ (%)",
        ],
        rows=[
            [
                *key,
                *result.scores.cells(key, ACCURACY),
                *result.scores.cells(key, UNSEEN_ACCURACY),
                ", ".join(f"{strength:g}" for strength in result.strengths.get(key, [])),
                _paper(key, num_layers),
            ]
            for key in keys
        ],
        notes=notes,
        settings=settings,
    )


def _paper(key: LayerKey, num_layers: int) -> Any:
    if key.bilm == RANDOM_WEIGHTS or num_layers != _PAPER_NUM_LAYERS:
        return None
    return _PAPER.get(key.layer)
