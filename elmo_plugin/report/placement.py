"""`allennlp elmo-report placement`: where a task's model should get ELMo (the paper's table 3)."""

import argparse
from typing import Optional, Sequence

from allennlp.common.checks import ConfigurationError

from elmo_plugin.report.experiment import Variant
from elmo_plugin.report.grid import GridOptions
from elmo_plugin.report.grid_arguments import add_grid_arguments, grid_options, tell
from elmo_plugin.report.paper_scores import PLACEMENT, PLACEMENT_LABELS
from elmo_plugin.report.variant_report import GridReport, VariantReport

DEFAULT_PLACEMENTS = tuple(PLACEMENT_LABELS)

_NOTE = (
    "Input: ELMo is added to what the task's RNN reads; output: to what it gives; each place has a mix of "
    "its own over one pass of the biLM (paper, section 5.2 and table 3). All else is as in the config."
)


class Placement:
    """The subcommand, see `compare_placements`."""

    name = "placement"
    help = "Train a task with ELMo at the input of its RNN, at the output, at both and at none."
    description = """
Where does a task's model need ELMo? Trains a config without it, and with it at the input of the task's RNN,
at the output, and at both: the paper's table 3.

examples:
  export SST_DATA=data/sst ELMO=elmo_mini
  allennlp elmo-report placement training_configs/sst_small.jsonnet -s results
  allennlp elmo-report placement training_configs/sst_small.jsonnet -s results --placements none both

Writes placement-NAME.md, .csv, .json, .png and .svg.
"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_grid_arguments(parser)
        parser.add_argument_group("variants").add_argument(
            "--placements",
            nargs="+",
            default=DEFAULT_PLACEMENTS,
            metavar="PLACE",
            help=f"some of {', '.join(DEFAULT_PLACEMENTS)} (default: all)",
        )

    def run(self, args: argparse.Namespace) -> None:
        tell(compare_placements(grid_options(args), args.placements))


def compare_placements(
    options: GridOptions, placements: Sequence[str] = DEFAULT_PLACEMENTS
) -> Optional[GridReport]:
    """
    Train a config with ELMo at several places, and write the scores.

    # Parameters

    options : `GridOptions`
        The config, and what all reports need.
    placements : `Sequence[str]`, optional (default = all)
        Some of `none`, `input`, `both` and `output`.

    # Returns

    The table and what was written; `None` after a dry run.

    # Raises

    `ConfigurationError`, before any work, for another placement, a config that has no place for ELMo, and a
    folder that holds runs of another config.
    """
    for placement in placements:
        if placement not in PLACEMENT_LABELS or list(placements).count(placement) > 1:
            raise ConfigurationError(
                f"--placements: found {' '.join(placements)}, expected some of "
                f"{', '.join(DEFAULT_PLACEMENTS)}, each once."
            )
    experiment = options.experiment()
    chosen = [placement for placement in DEFAULT_PLACEMENTS if placement in placements]
    report = VariantReport(
        "placement",
        "Where ELMo goes",
        [Variant(PLACEMENT_LABELS[placement], placement=placement) for placement in chosen],
        PLACEMENT.get(experiment.task),
        [_NOTE],
        [] if len(chosen) == len(DEFAULT_PLACEMENTS) else ["--placements", *chosen],
    )
    return report.make(options, experiment)
