"""`elmo report sample-efficiency`: scores by share of the training data (the paper's figure 1)."""

import copy
import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence

from allennlp.common import Params
from allennlp.data import DatasetReader

from elmo_plugin.arguments import option
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.figures import draw_shares
from elmo_plugin.report.share_reader import check_share, share_size
from elmo_plugin.report.tables import FAILED, Part, Report
from elmo_plugin.report.task_reports import DIFFERENCE_NOTE, NO_ELMO, TaskScores, train_variants
from elmo_plugin.report.variants import TaskExperiment, TaskOptions, Variant

if TYPE_CHECKING:  # --include-package imports every module, also where pandas is not installed
    import pandas

ELMO = "ELMo"

_SHARE_NOTE = (
    "A share is a part of the instances that the config's reader reads from the training data. The seed "
    "of the run chooses it; smaller shares are parts of larger ones. Validation and test data are whole. "
    "The vocabulary is made as in the config (by default from the share, the validation and test data). "
    "An epoch has as many batches for each share as for all of the data, so that small shares have as many "
    "updates."
)
_CURVE_NOTE = (
    "Epochs are counted from 1. Passes: the first epoch in which ELMo scores higher than the best without "
    "it; empty if there is none."
)


@dataclass(frozen=True, kw_only=True)
class SampleEfficiencyOptions(TaskOptions):
    """
    How much less data does a task need with ELMo? Trains a config with and without it on shares of the
    training data, and shows scores by share and by epoch: the paper's figure 1.

    A share is a part of the instances that the config's reader reads from the training file: sentences of NER
    and SST (and phrases, where they are read), pairs of SNLI, questions of SQuAD, predicates of SRL,
    documents of coreference. An epoch has the same number of batches for each share as for all of the data.
    One pass over a small share would be few updates: it would compare shorter training rather than less data.

    examples:
      export SRL_DATA=data/srl ELMO=elmo_mini
      elmo report sample-efficiency training_configs/srl_small.jsonnet -s results
      elmo report sample-efficiency training_configs/srl_small.jsonnet -s results --fractions 0.1 1

    Writes sample-efficiency-NAME (.md, .csv, .json, .png, .svg), sample-efficiency-epochs-NAME with the
    best epoch of each run, and sample-efficiency-differences-NAME.
    """

    fractions: Sequence[float] = option(
        "shares of the training data, each larger than 0 and at most 1",
        (0.01, 0.1, 1.0),
        metavar="F",
    )


def compare_shares(options: SampleEfficiencyOptions) -> Optional[Report]:
    """
    Train a config with and without ELMo on shares of its training data, and write the scores by share and the
    best epochs. Returns nothing after a dry run.
    """
    import pandas

    for fraction in options.fractions:
        check_share(fraction, "--fractions")
    shares = sorted(set(options.fractions))
    experiment = TaskExperiment.with_elmo(options)
    num_instances = _count_training_instances(experiment)
    num_batches = math.ceil(num_instances / _batch_size(experiment))
    variants = {
        (share, label): Variant(
            label, placement, share=share, batches_per_epoch=num_batches if share < 1 else None
        )
        for share in shares
        for label, placement in ((NO_ELMO, "none"), (ELMO, None))
    }
    scores = train_variants(experiment, variants)
    if scores is None:
        return None
    table = scores.table().rename_axis(["share", "ELMo"]).reset_index()
    table.insert(1, "instances", [share_size(num_instances, share) for share in table["share"]])
    differences = pandas.concat(
        {share: scores.differences(share) for share in shares}, names=["share"]
    ).reset_index("share")
    by_share = draw_shares(f"How much data: {experiment.name}", scores.metric, scores.by_seed())
    epochs = _best_epochs(scores, shares)
    parts = {
        "": Part("How much data", table, [_SHARE_NOTE, *scores.notes()], by_share),
        "epochs": Part("How many epochs", epochs, [_CURVE_NOTE, _SHARE_NOTE]),
        "differences": Part("With and without ELMo", differences, [DIFFERENCE_NOTE]),
    }
    return scores.write("sample-efficiency", parts)


def _count_training_instances(experiment: TaskExperiment) -> int:
    path = experiment.config["train_data_path"]
    reader = DatasetReader.from_params(Params(copy.deepcopy(experiment.config["dataset_reader"])))
    num_instances = sum(1 for _ in reader.read(path))
    if num_instances == 0:
        raise ConfigurationError(
            f"train_data_path: found no instance in {path}, expected data to take shares of."
        )
    return num_instances


def _batch_size(experiment: TaskExperiment) -> int:
    loader = experiment.config.get("data_loader", {})
    size = loader.get("batch_sampler", loader).get("batch_size")
    if not isinstance(size, int):
        raise ConfigurationError(
            f"{experiment.config_file}: neither data_loader.batch_size nor "
            "data_loader.batch_sampler.batch_size is a number. It is needed to count the batches of all "
            "data. Give one."
        )
    return size


def _best_epochs(scores: TaskScores, shares: Sequence[float]) -> "pandas.DataFrame":
    """Return the best epochs of each share and seed, and when the scores with ELMo pass the best without."""
    import pandas

    best, epochs = scores.by_seed(), scores.by_seed("best_epoch")
    sign = 1 if scores.experiment.is_larger_better else -1
    rows = []
    for share, seed in product(shares, best.columns):
        row: Dict[str, Any] = {"share": share, "seed": seed}
        for label in (NO_ELMO, ELMO):
            score, epoch = (frame.loc[(share, label), seed] for frame in (best, epochs))
            has_failed = math.isnan(score)
            row[f"{label}, best dev {scores.metric}"] = FAILED if has_failed else round(score, 2)
            row[f"{label}, in epoch"] = None if has_failed else int(epoch)
        baseline = best.loc[(share, NO_ELMO), seed]
        curve = enumerate(scores.curve((share, ELMO), seed), start=1)
        better = (epoch for epoch, score in curve if sign * score > sign * baseline)
        row["passes in epoch"] = next(better, None)
        rows.append(row)
    return pandas.DataFrame(rows, dtype=object)
