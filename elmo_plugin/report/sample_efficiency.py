"""`allennlp elmo-report sample-efficiency`: how much data a task needs (the paper's figure 1)."""

import argparse
import copy
import math
from pathlib import Path
from typing import Any, List, Optional, Sequence

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader

from elmo_plugin.report.experiment import Experiment, Variant
from elmo_plugin.report.figures import figure_class, write_figure
from elmo_plugin.report.grid import CellResult, GridOptions, run_grid
from elmo_plugin.report.grid_arguments import add_grid_arguments, grid_options, tell
from elmo_plugin.report.paper_scores import NO_ELMO
from elmo_plugin.report.report_table import ReportTable, write_table
from elmo_plugin.report.score_figures import Series, draw_curves, draw_shares, there
from elmo_plugin.report.score_table import FAILED, ScoreTable, grid_settings
from elmo_plugin.report.share_reader import check_share, share_size
from elmo_plugin.report.variant_report import GridReport, failures_of

DEFAULT_FRACTIONS = (0.01, 0.1, 1.0)

_NAME = "sample-efficiency"
_LABELS = (NO_ELMO, "ELMo")
_SHARE_NOTE = (
    "A share is of the instances that the config's reader makes of the training data, chosen by the seed of "
    "the run; smaller shares are parts of larger ones. Validation and test data are whole. The vocabulary is "
    "made as the config has it (by default of the share, the validation and the test data)."
)
_EPOCH_NOTES = {
    False: "An epoch has as many batches for each share as for all of the data, so that small shares have "
    "as many updates.",
    True: "An epoch is once through the share, so smaller shares have fewer updates in as many epochs.",
}
_CURVE_NOTE = (
    "Epochs are counted from 1. Passes: the first epoch in which ELMo scores higher than the best without "
    "it; empty if none does."
)


class SampleEfficiency:
    """The subcommand, see `compare_shares`."""

    name = _NAME
    help = "Train a task with and without ELMo on shares of its training data."
    description = """
How much less data does a task need with ELMo? Trains a config with and without it on shares of the training
data, and shows scores by share and by epoch: the paper's figure 1.

A share is of what the config's reader makes of the training file: sentences of NER and SST (and phrases,
with subtrees), pairs of SNLI, questions of SQuAD, predicates of SRL, documents of coreference. It is chosen
at random by the seed of the run; a smaller share is a part of a larger one.

An epoch has as many batches for each share as for all of the data. Once through a small share would be few
updates, and compare shorter training rather than less data; --once-through does that, in less time.

examples:
  export SRL_DATA=data/srl ELMO=elmo_mini
  allennlp elmo-report sample-efficiency training_configs/srl_small.jsonnet -s results
  allennlp elmo-report sample-efficiency training_configs/srl_small.jsonnet -s results \\
      --fractions 0.02 0.1 0.5 1 --seeds 1 2 3

Writes sample-efficiency-NAME (by share) and sample-efficiency-epochs-NAME (by epoch), each .md, .csv, .json,
.png and .svg.
"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_grid_arguments(parser)
        variants = parser.add_argument_group("variants")
        variants.add_argument(
            "--fractions",
            type=float,
            nargs="+",
            default=DEFAULT_FRACTIONS,
            metavar="F",
            help="of the training data, each larger than 0 and at most 1 (default: "
            f"{_text(DEFAULT_FRACTIONS)})",
        )
        variants.add_argument(
            "--once-through",
            action="store_true",
            help="an epoch is once through the share (default: as many batches as for all data)",
        )

    def run(self, args: argparse.Namespace) -> None:
        tell(compare_shares(grid_options(args), args.fractions, args.once_through))


def compare_shares(
    options: GridOptions,
    fractions: Sequence[float] = DEFAULT_FRACTIONS,
    once_through: bool = False,
) -> Optional[GridReport]:
    """
    Train a config with and without ELMo on shares of its training data, and write scores by share and by
    epoch.

    # Parameters

    options : `GridOptions`
        The config, and what all reports need.
    fractions : `Sequence[float]`, optional (default = `(0.01, 0.1, 1.0)`)
        Of the training data.
    once_through : `bool`, optional (default = `False`)
        Let an epoch be once through the share. By default it has as many batches for each share as for all
        of the data, so that small shares have as many updates.

    # Returns

    The tables and what was written; `None` after a dry run.

    # Raises

    `ConfigurationError`, before any work, for fractions that are no shares, a config that has no ELMo or
    training data that cannot be read, and a folder that holds runs of another config.
    """
    for fraction in fractions:
        check_share(fraction, "--fractions")
    shares = sorted(set(fractions))
    experiment = options.experiment()
    experiment.check_has_elmo()
    if not options.dry_run:
        figure_class()  # better to miss it now
    num_instances = 0
    if not (once_through and options.dry_run):
        num_instances = count_training_instances(experiment)
    num_batches = None if once_through else math.ceil(num_instances / batch_size(experiment))
    variants = [
        Variant(label, placement, share=share, batches_per_epoch=num_batches if share < 1 else None)
        for share in shares
        for label, placement in zip(_LABELS, ("none", None))
    ]
    cells = [experiment.cell(variant, seed) for variant in variants for seed in options.seeds]
    results = run_grid(cells, options, experiment)
    if results is None:
        return None
    scores = ScoreTable(experiment, results, options.seeds)
    arguments = ["--fractions", *_text(shares).split(), *["--once-through"] * once_through]
    settings = grid_settings(_NAME, options, experiment, arguments)
    notes = [_SHARE_NOTE, _EPOCH_NOTES[once_through], *scores.notes()]
    by_share = ReportTable(
        f"{_NAME}-{experiment.name}",
        f"How much data: {experiment.name}",
        ["share", "instances", "ELMo", *scores.columns],
        [
            [
                variant.share,
                share_size(num_instances, variant.share),
                variant.label,
                *scores.cells(row),
            ]
            for row, variant in enumerate(variants)
        ],
        notes,
        settings,
    )
    by_epoch = ReportTable(
        f"{_NAME}-epochs-{experiment.name}",
        f"How many epochs: {experiment.name}",
        [
            *("share", "seed", f"no ELMo, best dev {scores.metric}", "in epoch"),
            *(f"ELMo, best dev {scores.metric}", "in epoch", "passes in epoch"),
        ],
        _epoch_rows(shares, options.seeds, scores, experiment.is_larger_better),
        [_CURVE_NOTE, *notes[:2]],
        settings,
    )
    return GridReport(
        [by_share, by_epoch],
        [
            *write_table(by_share, options.output),
            *write_table(by_epoch, options.output),
            *_write_figures(
                by_share, by_epoch, shares, scores, experiment.is_larger_better, options.output
            ),
        ],
        failures_of(results),
    )


def count_training_instances(experiment: Experiment) -> int:
    """
    How many instances the config trains on.

    # Raises

    `ConfigurationError` if there are none.
    """
    path = experiment.config["train_data_path"]
    reader = DatasetReader.from_params(Params(copy.deepcopy(experiment.config["dataset_reader"])))
    num_instances = sum(1 for _ in reader.read(path))
    if num_instances == 0:
        raise ConfigurationError(
            f"train_data_path: found no instance in {path}, expected data to take shares of."
        )
    return num_instances


def batch_size(experiment: Experiment) -> int:
    """
    How many instances are in a batch of training.

    # Raises

    `ConfigurationError` if the config does not say it.
    """
    loader = experiment.config.get("data_loader", {})
    sampler = loader.get("batch_sampler")
    size = (sampler if isinstance(sampler, dict) else loader).get("batch_size")
    if not isinstance(size, int):
        raise ConfigurationError(
            f"{experiment.config_file}: neither data_loader.batch_size nor "
            "data_loader.batch_sampler.batch_size is a number, by which the batches of all data are "
            "counted. Give one, or --once-through."
        )
    return size


def _epoch_rows(
    shares: Sequence[float], seeds: Sequence[int], scores: ScoreTable, is_larger_better: bool
) -> List[List[Any]]:
    rows: List[List[Any]] = []
    for index, share in enumerate(shares):
        for seed, baseline, with_elmo in zip(seeds, *scores.rows[2 * index : 2 * index + 2]):
            row: List[Any] = [share, seed]
            for result in (baseline, with_elmo):
                if result.scores is None:
                    row += [FAILED, None]
                else:
                    best = round(result.scores.validation * scores.scale, 2)
                    row += [best, result.scores.best_epoch]
            rows.append([*row, _epoch_that_passes(baseline, with_elmo, is_larger_better)])
    return rows


def _epoch_that_passes(
    baseline: CellResult, with_elmo: CellResult, is_larger_better: bool
) -> Optional[int]:
    """The first epoch with ELMo that is better than the best without."""
    if baseline.scores is None or with_elmo.scores is None:
        return None
    sign = 1 if is_larger_better else -1
    best = sign * baseline.scores.validation
    epochs = (epoch for epoch, score in enumerate(with_elmo.scores.curve, 1) if sign * score > best)
    return next(epochs, None)


def _write_figures(
    by_share: ReportTable,
    by_epoch: ReportTable,
    shares: Sequence[float],
    scores: ScoreTable,
    is_larger_better: bool,
    folder: str,
) -> List[Path]:
    rows = range(0, 2 * len(shares), 2)  # of the baselines; ELMo's come after them
    lines = [
        Series(label, label == NO_ELMO, [there(scores.validation(row + i)) for row in rows])
        for i, label in enumerate(_LABELS)
    ]
    panels = [
        [Series(label, label == NO_ELMO, scores.curves(row + i)) for i, label in enumerate(_LABELS)]
        for row in rows
    ]
    return [
        *write_figure(
            draw_shares(by_share.title, scores.metric, shares, lines), folder, by_share.name
        ),
        *write_figure(
            draw_curves(by_epoch.title, scores.metric, is_larger_better, shares, panels),
            folder,
            by_epoch.name,
        ),
    ]


def _text(fractions: Sequence[float]) -> str:
    return " ".join(f"{fraction:g}" for fraction in fractions)
