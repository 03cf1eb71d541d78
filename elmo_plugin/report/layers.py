"""`allennlp elmo-report layers`: which layers of the biLM a task should get (the paper's table 2)."""

import argparse
from typing import Optional

from elmo_plugin.report.experiment import Variant
from elmo_plugin.report.grid import GridOptions
from elmo_plugin.report.grid_arguments import add_grid_arguments, grid_options, tell
from elmo_plugin.report.paper_scores import (
    LAMBDA_0_001,
    LAMBDA_1,
    LAST_LAYER,
    LAYERS,
    NO_ELMO,
)
from elmo_plugin.report.variant_report import GridReport, VariantReport

VARIANTS = (
    Variant(NO_ELMO, placement="none"),
    Variant(LAST_LAYER, last_layer_only=True),
    Variant(LAMBDA_1, last_layer_only=False, scalar_mix_l2=1.0),
    Variant(LAMBDA_0_001, last_layer_only=False, scalar_mix_l2=0.001),
)

_NOTE = (
    "ELMo stands where the config has it. Last layer only: one vector of the biLM, with a scale that is "
    "learnt. All layers: their weighted mean; λ is the L2 regularization of the weights before the softmax: "
    "1 keeps them near the plain mean, 0.001 leaves them free (paper, section 5.1 and table 2)."
)


class Layers:
    """The subcommand, see `compare_layers`."""

    name = "layers"
    help = "Train a task without ELMo, with the last layer only, and with all layers."
    description = """
Which layers does a task need? Trains a config without ELMo, with the last layer of the biLM only, and with
a mix of all layers whose weights are regularized much (lambda = 1) or hardly (lambda = 0.001): the paper's
table 2.

examples:
  export NER_DATA=data/ner NER_SCHEME=IOB1 ELMO=elmo_mini
  allennlp elmo-report layers training_configs/ner_small.jsonnet -s results
  allennlp elmo-report layers training_configs/ner_small.jsonnet -s results --dry-run > commands.sh

Writes layers-NAME.md, .csv, .json, .png and .svg.
"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_grid_arguments(parser)

    def run(self, args: argparse.Namespace) -> None:
        tell(compare_layers(grid_options(args)))


def compare_layers(options: GridOptions) -> Optional[GridReport]:
    """
    Train a config without ELMo, with the last layer only and with all layers, and write the scores.

    # Parameters

    options : `GridOptions`
        The config, and what all reports need.

    # Returns

    The table and what was written; `None` after a dry run.

    # Raises

    `ConfigurationError`, before any work, for a config that has no ELMo or fixes its mix, and for a folder
    that holds runs of another config.
    """
    experiment = options.experiment()
    experiment.check_has_elmo()
    experiment.check_mix_is_learnt()
    report = VariantReport("layers", "Which layers", VARIANTS, LAYERS.get(experiment.task), [_NOTE])
    return report.make(options, experiment)
