"""The reports that train tasks: `layers`, `placement` and `sample-efficiency` (tables 2 and 3, figure 1)."""

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader

from elmo_plugin.arguments import command_arguments, option, option_group
from elmo_plugin.report.figures import draw_curves, draw_shares, draw_variants, write_figure
from elmo_plugin.report.run_folder import RunResult, RunScores
from elmo_plugin.report.runs import (
    Report,
    RunOptions,
    failures_of,
    recorded_versions,
    run_all,
    shell_command,
)
from elmo_plugin.report.share_reader import check_share, share_size
from elmo_plugin.report.tables import (
    FAILED,
    ReportTable,
    paired_differences,
    table_of,
    write_table,
)
from elmo_plugin.report.variants import (
    LAMBDA_0_001,
    LAMBDA_1,
    LAST_LAYER,
    NO_ELMO,
    PLACEMENT_LABELS,
    TaskExperiment,
    Variant,
)

if TYPE_CHECKING:  # --include-package imports every module, also where these are not installed
    import pandas
    from matplotlib.figure import Figure

ELMO = "ELMo"

_DIGITS = 2

# The paper (NAACL 2018) on its development data: F1 of SQuAD and SRL, accuracy of SNLI, in percent.
_PAPER = {
    "layers": {  # table 2: no ELMo, the last layer, all with lambda = 1 and 0.001
        "squad": (80.8, 84.7, 85.0, 85.2),
        "snli": (88.1, 89.1, 89.3, 89.5),
        "srl": (81.6, 84.1, 84.6, 84.8),
    },
    "placement": {  # table 3, and table 2 for none: none, input, both, output
        "squad": (80.8, 85.1, 85.6, 84.8),
        "snli": (88.1, 88.9, 89.5, 88.7),
        "srl": (81.6, 84.7, 84.3, 80.9),
    },
}
_LABELS = {
    "layers": (NO_ELMO, LAST_LAYER, LAMBDA_1, LAMBDA_0_001),
    "placement": tuple(PLACEMENT_LABELS.values()),
}

_CURVE_NOTE = (
    "Epochs are counted from 1. Passes: the first epoch in which ELMo scores higher than the best without "
    "it; empty if none does."
)
_DIFFERENCE_NOTE = (
    "Difference: the mean over the seeds that both variants have, of the variant's score minus that of "
    "the one that it is compared with, for each seed. The 95 % interval is Student's: where it holds 0, "
    "these seeds do not tell the two apart. It covers the randomness of training, not the choice of the "
    "data."
)


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """What reports that train a task are given."""

    config_file: str = option(
        "a config of `allennlp train` with model.text_encoder.elmo; the environment variables that it "
        "reads must be set",
        positional=True,
        metavar="CONFIG",
    )
    name: Optional[str] = option(
        "of this experiment, in the names of runs and files (default: the task's); another one for other "
        "data",
        None,
    )
    runs: RunOptions = option_group("training runs")

    def experiment(self) -> TaskExperiment:
        """
        Read the config.

        # Raises

        `ConfigurationError` as `TaskExperiment` and `RunOptions.check` do.
        """
        self.runs.check()
        return TaskExperiment(self.config_file, self.runs.overrides, self.name)


@dataclass(frozen=True, kw_only=True)
class LayersOptions(TaskOptions):
    """
    Which layers does a task need? Trains a config without ELMo, with the last layer of the biLM only, and
    with a mix of all layers whose weights are regularized much (lambda = 1) or hardly (lambda = 0.001): the
    paper's table 2.

    examples:
      export NER_DATA=data/ner ELMO=elmo_mini
      allennlp elmo-report layers training_configs/ner_small.jsonnet -s results
      allennlp elmo-report layers training_configs/ner_small.jsonnet -s results --dry-run > commands.sh

    Writes layers-NAME (.md, .csv, .json, .png, .svg), and layers-differences-NAME with the differences of
    each two variants.
    """


@dataclass(frozen=True, kw_only=True)
class PlacementOptions(TaskOptions):
    """
    Where does a task's model need ELMo? Trains a config without it, and with it at the input of the task's
    RNN, at the output, and at both: the paper's table 3.

    examples:
      export SST_DATA=data/sst ELMO=elmo_mini
      allennlp elmo-report placement training_configs/sst_small.jsonnet -s results
      allennlp elmo-report placement training_configs/sst_small.jsonnet -s results --placements none both

    Writes placement-NAME (.md, .csv, .json, .png, .svg), and placement-differences-NAME with the
    differences of each two variants.
    """

    placements: Sequence[str] = option(
        "variants to train",
        tuple(PLACEMENT_LABELS),
        choices=tuple(PLACEMENT_LABELS),
        metavar="PLACE",
    )


@dataclass(frozen=True, kw_only=True)
class SampleEfficiencyOptions(TaskOptions):
    """
    How much less data does a task need with ELMo? Trains a config with and without it on shares of the
    training data, and shows scores by share and by epoch: the paper's figure 1.

    A share is of what the config's reader makes of the training file: sentences of NER and SST (and
    phrases, with subtrees), pairs of SNLI, questions of SQuAD, predicates of SRL, documents of coreference.
    It is chosen at random by the seed of the run; a smaller share is a part of a larger one.

    An epoch has as many batches for each share as for all of the data. Once through a small share would be
    few updates, and compare shorter training rather than less data; --once-through does that, in less time.

    examples:
      export SRL_DATA=data/srl ELMO=elmo_mini
      allennlp elmo-report sample-efficiency training_configs/srl_small.jsonnet -s results
      allennlp elmo-report sample-efficiency training_configs/srl_small.jsonnet -s results --fractions 0.1 1

    Writes sample-efficiency-NAME (by share), sample-efficiency-epochs-NAME (by epoch), each .md, .csv,
    .json, .png and .svg, and sample-efficiency-differences-NAME.
    """

    fractions: Sequence[float] = option(
        "of the training data, each larger than 0 and at most 1", (0.01, 0.1, 1.0), metavar="F"
    )
    once_through: bool = option(
        "an epoch is once through the share (default: as many batches as for all data)", False
    )


class RunTable:
    """
    The scores of runs, in percent if they are shares.

    # Parameters

    experiment : `TaskExperiment`
        Whose metric it is.
    keys : `Sequence[Any]`
        Which variant each result is of: a label, or a share with a label.
    results : `Sequence[RunResult]`
        Of each variant with each seed.
    """

    def __init__(
        self, experiment: TaskExperiment, keys: Sequence[Any], results: Sequence[RunResult]
    ) -> None:
        import pandas

        self.results = results
        self.has_test = bool(experiment.config.get("evaluate_on_test"))
        rows = [result.scores or [None] * len(RunScores._fields) for result in results]
        self._frame = pandas.DataFrame(rows, columns=RunScores._fields, index=pandas.Index(keys))
        self._frame["epochs"] = self._frame["curve"].str.len()
        self._frame["seed"] = [result.run.seed for result in results]
        scores = self._frame[["validation", "test"]].astype(float)
        # Accuracy and F1 are shares; a perplexity or a loss is not.
        is_share = experiment.is_larger_better and scores.stack().between(0.0, 1.0).all()
        self.scale = 100.0 if is_share else 1.0
        self.metric = f"{experiment.metric} (%)" if is_share else experiment.metric
        self._frame[["validation", "test"]] = scores * self.scale

    def by_seed(self, column: str) -> "pandas.DataFrame":
        """Return a row for each variant and a column for each seed; missing where a run failed."""
        values = self._frame.set_index("seed", append=True)[column].astype(float).unstack()
        return values.reindex(
            index=self._frame.index.unique(), columns=self._frame["seed"].unique()
        )

    def scores(self) -> "pandas.DataFrame":
        """Return the score of each seed, mean and sample standard deviation, and the cost of the runs."""
        import pandas

        has_failed = self.by_seed("validation").isna()
        columns = {"seeds": (~has_failed).sum(axis=1)}
        for data, column in self._data():
            scores = self.by_seed(column)
            cells = scores.round(_DIGITS).astype(object).mask(has_failed, FAILED)
            for seed in cells:
                columns[f"{data} {self.metric}, seed {seed}"] = cells[seed]
            columns[f"{data} mean"] = scores.mean(axis=1).round(_DIGITS)
            columns[f"{data} std"] = scores.std(axis=1).round(_DIGITS)
        columns["epochs"] = self.by_seed("epochs").mean(axis=1).round(1)
        columns["minutes"] = self.by_seed("minutes").mean(axis=1).round(2)
        columns["peak GB"] = self.by_seed("peak_gigabytes").max(axis=1).round(2)
        return pandas.DataFrame(columns)

    def differences(self, share: Optional[float] = None) -> "pandas.DataFrame":
        """Compare each two variants, or those of a share, see `paired_differences`."""
        import pandas

        parts = []
        for data, column in self._data():
            scores = self.by_seed(column)
            parts.append(paired_differences(scores if share is None else scores.loc[share], data))
        return pandas.concat([parts[0], *(part.iloc[:, 3:] for part in parts[1:])], axis=1)

    def curves(self, key: Any) -> List[List[float]]:
        """Return the scores by epoch of the finished runs of a variant."""
        curves = self._frame.loc[[key], "curve"].dropna()
        return [[score * self.scale for score in curve] for curve in curves]

    def curve(self, key: Any, seed: int) -> List[float]:
        """Return the scores by epoch of a run; nothing if it failed."""
        curves = self._frame.loc[[key]].set_index("seed")["curve"]
        return [score * self.scale for score in curves[seed] or []]

    def notes(self) -> List[str]:
        """Return what holds for every such table, and why runs failed."""
        test = (
            "test: that epoch on test data"
            if self.has_test
            else "the config does not evaluate on test data"
        )
        notes = [
            f"dev: the best epoch's score on validation data; {test}. std: of the sample, over seeds. "
            "epochs and minutes: of training and validation, in the mean; peak GB: the largest."
        ]
        failures = [line.replace(": ", " failed: ", 1) for line in failures_of(self.results)]
        if failures:
            notes.append("Means are of the runs that did not fail.")
        return [*notes, *failures]

    def _data(self) -> List[Tuple[str, str]]:
        return [("dev", "validation"), *([("test", "test")] if self.has_test else [])]


def compare_layers(options: LayersOptions) -> Optional[Report]:
    """
    Train a config without ELMo, with the last layer only and with all layers, and write the scores.

    # Returns

    The tables and the files; `None` after a dry run.

    # Raises

    `ConfigurationError`, before any work, for a config that has no ELMo or fixes its mix, and for a folder
    that holds runs of another config or of other data.
    """
    experiment = options.experiment()
    experiment.check_has_elmo()
    experiment.check_mix_is_learnt()
    variants = [
        Variant(NO_ELMO, placement="none"),
        Variant(LAST_LAYER, last_layer_only=True),
        Variant(LAMBDA_1, last_layer_only=False, scalar_mix_l2=1.0),
        Variant(LAMBDA_0_001, last_layer_only=False, scalar_mix_l2=0.001),
    ]
    note = (
        "ELMo is where the config has it. Last layer only: one vector of the biLM, with a scale that is "
        "learnt. All layers: their weighted mean; λ is the L2 regularization of the weights before the "
        "softmax: 1 keeps them near the plain mean, 0.001 leaves them free (paper, section 5.1 and table "
        "2)."
    )
    return _compare_variants("layers", options, experiment, variants, note)


def compare_placements(options: PlacementOptions) -> Optional[Report]:
    """
    Train a config with ELMo at several places, and write the scores. Returns and raises as
    `compare_layers`.
    """
    placements = list(options.placements)
    if len(set(placements)) < len(placements) or not set(placements) <= set(PLACEMENT_LABELS):
        raise ConfigurationError(
            f"--placements: found {' '.join(placements)}, expected some of {', '.join(PLACEMENT_LABELS)}, "
            "each once."
        )
    variants = [
        Variant(label, placement=placement)
        for placement, label in PLACEMENT_LABELS.items()
        if placement in placements
    ]
    note = (
        "Input: ELMo is added to the input of the task's RNN; output: to its output; each place has a mix "
        "of its own over one pass of the biLM (paper, section 5.2 and table 3). All else is as in the "
        "config."
    )
    return _compare_variants("placement", options, options.experiment(), variants, note)


def compare_shares(options: SampleEfficiencyOptions) -> Optional[Report]:
    """
    Train a config with and without ELMo on shares of its training data, and write scores by share and by
    epoch.

    # Returns

    The tables and the files; `None` after a dry run.

    # Raises

    `ConfigurationError`, before any work, for fractions that are no shares, a config that has no ELMo or
    training data that cannot be read, and a folder that holds runs of another config or of other data.
    """
    import pandas

    for fraction in options.fractions:
        check_share(fraction, "--fractions")
    shares = sorted(set(options.fractions))
    experiment = options.experiment()
    experiment.check_has_elmo()
    num_instances = 0
    if not (options.once_through and options.runs.dry_run):
        num_instances = count_training_instances(experiment)
    num_batches = None
    if not options.once_through:
        num_batches = math.ceil(num_instances / batch_size(experiment))
    variants = {
        (share, label): Variant(
            label, placement, share=share, batches_per_epoch=num_batches if share < 1 else None
        )
        for share in shares
        for label, placement in ((NO_ELMO, "none"), (ELMO, None))
    }
    seeds = options.runs.seeds
    runs = [experiment.run_of(variant, seed) for variant in variants.values() for seed in seeds]
    results = run_all(runs, options.runs, experiment)
    if results is None:
        return None
    table = RunTable(experiment, [key for key in variants for _ in seeds], results)
    settings = _settings("sample-efficiency", options, experiment, results)
    notes = _share_notes(options.once_through)
    scores = table.scores().rename_axis(["share", "ELMo"]).reset_index()
    scores.insert(1, "instances", [share_size(num_instances, share) for share in scores["share"]])
    differences = [table.differences(share) for share in shares]
    for share, frame in zip(shares, differences):
        frame.insert(0, "share", share)
    epochs = _epoch_table(table, shares, experiment.is_larger_better)
    parts = {
        "": ("How much data", scores, [*notes, *table.notes()]),
        "epochs": ("How many epochs", epochs, [_CURVE_NOTE, *notes]),
        "differences": ("With and without ELMo", pandas.concat(differences), [_DIFFERENCE_NOTE]),
    }
    tables = [
        table_of(
            frame,
            _file_name("sample-efficiency", part, experiment),
            f"{title}: {experiment.name}",
            text,
            settings,
        )
        for part, (title, frame, text) in parts.items()
    ]
    by_share, by_epoch = tables[:2]
    curves = {key: table.curves(key) for key in variants}
    figures = {
        by_share.name: draw_shares(by_share.title, table.metric, table.by_seed("validation")),
        by_epoch.name: draw_curves(
            by_epoch.title, table.metric, experiment.is_larger_better, curves
        ),
    }
    return _written(tables, figures, options, results)


def count_training_instances(experiment: TaskExperiment) -> int:
    """
    Return the number of instances that the config trains on.

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


def batch_size(experiment: TaskExperiment) -> int:
    """
    Return the number of instances in a batch of training.

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


def _compare_variants(
    report: str,
    options: TaskOptions,
    experiment: TaskExperiment,
    variants: Sequence[Variant],
    note: str,
) -> Optional[Report]:
    seeds = options.runs.seeds
    runs = [experiment.run_of(variant, seed) for variant in variants for seed in seeds]
    results = run_all(runs, options.runs, experiment)
    if results is None:
        return None
    table = RunTable(experiment, [run.label for run in runs], results)
    settings = _settings(report, options, experiment, results)
    scores = table.scores()
    paper = _PAPER[report].get(experiment.task)
    if paper is not None:
        metric = "accuracy" if experiment.task == "snli" else "F1"
        by_label = dict(zip(_LABELS[report], paper))
        scores[f"paper, dev {metric} (%)"] = [by_label[label] for label in scores.index]
    title = {"layers": "Which layers", "placement": "Where ELMo goes"}[report]
    tables = [
        table_of(
            scores.rename_axis("ELMo").reset_index(),
            _file_name(report, "", experiment),
            f"{title}: {experiment.name}",
            [note, *table.notes()],
            settings,
        )
    ]
    if len(variants) > 1:
        name = _file_name(report, "differences", experiment)
        tables.append(
            table_of(
                table.differences(),
                name,
                f"{title}, differences: {experiment.name}",
                [_DIFFERENCE_NOTE],
                settings,
            )
        )
    figure = draw_variants(tables[0].title, table.metric, table.by_seed("validation"))
    return _written(tables, {tables[0].name: figure}, options, results)


def _epoch_table(
    table: RunTable, shares: Sequence[float], is_larger_better: bool
) -> "pandas.DataFrame":
    """The best epochs of each share and seed, and when the scores with ELMo pass the best without."""
    import pandas

    scores, epochs = table.by_seed("validation"), table.by_seed("best_epoch")
    rows: List[Dict[str, Any]] = []
    for share in shares:
        for seed in scores.columns:
            row: Dict[str, Any] = {"share": share, "seed": seed}
            for label in (NO_ELMO, ELMO):
                score, epoch = scores.loc[(share, label), seed], epochs.loc[(share, label), seed]
                is_finished = pandas.notna(score)
                row[f"{label}, best dev {table.metric}"] = (
                    round(score, _DIGITS) if is_finished else FAILED
                )
                row[f"{label}, in epoch"] = int(epoch) if is_finished else None
            row["passes in epoch"] = _epoch_that_passes(
                scores.loc[(share, NO_ELMO), seed],
                table.curve((share, ELMO), seed),
                is_larger_better,
            )
            rows.append(row)
    return pandas.DataFrame(rows, dtype=object)


def _epoch_that_passes(
    baseline: float, curve: Sequence[float], is_larger_better: bool
) -> Optional[int]:
    """The first epoch with a better score than the best of the baseline, which may be missing."""
    sign = 1 if is_larger_better else -1
    epochs = (epoch for epoch, score in enumerate(curve, 1) if sign * score > sign * baseline)
    return next(epochs, None)


def _share_notes(once_through: bool) -> List[str]:
    epoch = (
        "An epoch is once through the share, so smaller shares have fewer updates in as many epochs."
        if once_through
        else "An epoch has as many batches for each share as for all of the data, so that small shares "
        "have as many updates."
    )
    return [
        "A share is of the instances that the config's reader makes of the training data, chosen by the "
        "seed of the run; smaller shares are parts of larger ones. Validation and test data are whole. "
        "The vocabulary is made as the config has it (by default of the share, the validation and the "
        "test data).",
        epoch,
    ]


def _file_name(report: str, part: str, experiment: TaskExperiment) -> str:
    return "-".join([*filter(None, [report, part]), experiment.name])


def _settings(
    report: str, options: TaskOptions, experiment: TaskExperiment, results: Sequence[RunResult]
) -> Dict[str, Any]:
    """How to make a table again."""
    command = ["allennlp", "elmo-report", report, *command_arguments(options)]
    paths = ("train_data_path", "validation_data_path", "test_data_path")
    return {
        "command": shell_command(command, experiment.variables()),
        "seeds": list(options.runs.seeds),
        **{key: experiment.config[key] for key in paths if key in experiment.config},
        "versions": recorded_versions(results),
    }


def _written(
    tables: List[ReportTable],
    figures: Dict[str, "Figure"],
    options: TaskOptions,
    results: Sequence[RunResult],
) -> Report:
    output = options.runs.output
    files = [path for table in tables for path in write_table(table, output)]
    for name, figure in figures.items():
        files += write_figure(figure, output, name)
    return Report(tables, files, failures_of(results))
