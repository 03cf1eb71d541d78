"""The reports that train tasks: `layers`, `placement` and `sample-efficiency` (tables 2 and 3, figure 1)."""

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader

from elmo_plugin.arguments import option, option_group
from elmo_plugin.report.figures import draw_curves, draw_shares, draw_variants
from elmo_plugin.report.run_folder import RunResult
from elmo_plugin.report.runs import RunOptions, failures_of, recorded_versions, run_all
from elmo_plugin.report.share_reader import check_share, share_size
from elmo_plugin.report.tables import (
    FAILED,
    Report,
    check_option,
    paired_differences,
    settings_of,
    table_of,
    write_report,
)
from elmo_plugin.report.variants import ELMO_KEY, TaskExperiment, Variant

if TYPE_CHECKING:  # --include-package imports every module, also where these are not installed
    import pandas
    from matplotlib.figure import Figure

NO_ELMO, ELMO = "no ELMo", "ELMo"
PLACEMENT_LABELS = {
    "none": NO_ELMO,
    "input": "input",
    "both": "input and output",
    "output": "output",
}
LAYER_VARIANTS = (
    Variant(NO_ELMO, placement="none"),
    Variant("last layer only", last_layer_only=True),
    Variant("all layers, λ = 1", last_layer_only=False, scalar_mix_l2=1.0),
    Variant("all layers, λ = 0.001", last_layer_only=False, scalar_mix_l2=0.001),
)

# The paper (NAACL 2018) on its development data: F1 of SQuAD and SRL, accuracy of SNLI, in percent.
_PAPER: Dict[str, Tuple[Sequence[str], Dict[str, Tuple[float, ...]]]] = {
    "layers": (  # table 2
        [variant.label for variant in LAYER_VARIANTS],
        {
            "squad": (80.8, 84.7, 85.0, 85.2),
            "snli": (88.1, 89.1, 89.3, 89.5),
            "srl": (81.6, 84.1, 84.6, 84.8),
        },
    ),
    "placement": (  # table 3, and table 2 for none
        list(PLACEMENT_LABELS.values()),
        {
            "squad": (80.8, 85.1, 85.6, 84.8),
            "snli": (88.1, 88.9, 89.5, 88.7),
            "srl": (81.6, 84.7, 84.3, 80.9),
        },
    ),
}

_LAYERS_NOTE = (
    "ELMo is where the config has it. Last layer only: one vector of the biLM, with a scale that is "
    "learnt. All layers: their weighted mean; λ is the L2 regularization of the weights before the "
    "softmax: 1 keeps them near the plain mean, 0.001 leaves them free (paper, section 5.1 and table 2)."
)
_PLACEMENT_NOTE = (
    "Input: ELMo is added to the input of the task's RNN; output: to its output; each place has a mix of "
    "its own over one pass of the biLM (paper, section 5.2 and table 3). All else is as in the config."
)
_SHARE_NOTE = (
    "A share is of the instances that the config's reader makes of the training data, chosen by the seed "
    "of the run; smaller shares are parts of larger ones. Validation and test data are whole. The "
    "vocabulary is made as the config has it (by default of the share, the validation and the test data)."
)
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
        """Check the options and read the config."""
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


def compare_layers(options: LayersOptions) -> Optional[Report]:
    """
    Train a config without ELMo, with the last layer only and with all layers, and write the scores. Returns
    nothing after a dry run.
    """
    experiment = options.experiment()
    experiment.check_has_elmo()
    if experiment.elmo.get("scalar_mix_parameters") is not None:
        raise ConfigurationError(
            f"{experiment.config_file}: {ELMO_KEY}.scalar_mix_parameters fixes the weights of the layers, "
            "expected a config in which they are learnt. Leave it out."
        )
    return _compare_variants(
        "layers", "Which layers", options, experiment, LAYER_VARIANTS, _LAYERS_NOTE
    )


def compare_placements(options: PlacementOptions) -> Optional[Report]:
    """Train a config with ELMo at several places, and write the scores, as `compare_layers`."""
    chosen = list(options.placements)
    are_places = len(set(chosen)) == len(chosen) and set(chosen) <= set(PLACEMENT_LABELS)
    expected = f"some of {', '.join(PLACEMENT_LABELS)}, each once"
    check_option("--placements", " ".join(chosen), are_places, expected)
    variants = [
        Variant(label, placement=place)
        for place, label in PLACEMENT_LABELS.items()
        if place in chosen
    ]
    experiment = options.experiment()
    return _compare_variants(
        "placement", "Where ELMo goes", options, experiment, variants, _PLACEMENT_NOTE
    )


def compare_shares(options: SampleEfficiencyOptions) -> Optional[Report]:
    """
    Train a config with and without ELMo on shares of its training data, and write scores by share and by
    epoch, as `compare_layers`.
    """
    import pandas

    for fraction in options.fractions:
        check_share(fraction, "--fractions")
    shares = sorted(set(options.fractions))
    experiment = options.experiment()
    experiment.check_has_elmo()
    num_instances, num_batches = 0, None
    if not (options.once_through and options.runs.dry_run):
        num_instances = count_training_instances(experiment)
    if not options.once_through:
        num_batches = math.ceil(num_instances / batch_size(experiment))
    variants = {
        (share, label): Variant(
            label, placement, share=share, batches_per_epoch=num_batches if share < 1 else None
        )
        for share in shares
        for label, placement in ((NO_ELMO, "none"), (ELMO, None))
    }
    table = _trained(options, experiment, variants)
    if table is None:
        return None
    scores = table.scores().rename_axis(["share", "ELMo"]).reset_index()
    scores.insert(1, "instances", [share_size(num_instances, share) for share in scores["share"]])
    differences = pandas.concat(
        {share: table.differences(share) for share in shares}, names=["share"]
    )
    notes = [
        _SHARE_NOTE,
        "An epoch is once through the share, so smaller shares have fewer updates in as many epochs."
        if options.once_through
        else "An epoch has as many batches for each share as for all of the data, so that small shares "
        "have as many updates.",
    ]
    parts = {
        "": ("How much data", scores, [*notes, *table.notes()]),
        "epochs": ("How many epochs", _epoch_frame(table, shares), [_CURVE_NOTE, *notes]),
        "differences": (
            "With and without ELMo",
            differences.reset_index("share"),
            [_DIFFERENCE_NOTE],
        ),
    }
    best_of = max if experiment.is_larger_better else min
    curves = {key: [table.curve(key, seed) for seed in table.seeds] for key in variants}
    by_share = draw_shares(
        f"How much data: {experiment.name}", table.metric, table.by_seed("validation")
    )
    by_epoch = draw_curves(f"How many epochs: {experiment.name}", table.metric, best_of, curves)
    return _write("sample-efficiency", options, table, parts, {"": by_share, "epochs": by_epoch})


class RunTable:
    """
    The scores of runs, in percent if they are shares: of each variant, whose key is a label or a share with a
    label, with each seed.
    """

    def __init__(
        self,
        experiment: TaskExperiment,
        keys: Sequence[Any],
        seeds: Sequence[int],
        results: Sequence[RunResult],
    ) -> None:
        self.experiment, self.keys, self.seeds, self.results = experiment, keys, seeds, results
        pairs = [(key, seed) for key in keys for seed in seeds]
        self._scores = {pair: result.scores for pair, result in zip(pairs, results)}
        finished = [scores for scores in self._scores.values() if scores is not None]
        # Accuracy and F1 are shares; a perplexity or a loss is not.
        is_share = experiment.is_larger_better and all(
            0.0 <= score <= 1.0
            for scores in finished
            for score in (scores.validation, scores.test)
            if score is not None
        )
        self.scale = 100.0 if is_share else 1.0
        self.metric = f"{experiment.metric} (%)" if is_share else experiment.metric
        self._data = {"dev": "validation"}
        if experiment.config.get("evaluate_on_test"):
            self._data["test"] = "test"

    def by_seed(self, field: str) -> "pandas.DataFrame":
        """Return a row for each variant and a column for each seed; missing where a run failed."""
        import pandas

        values = [
            [getattr(self._scores[key, seed], field, None) for seed in self.seeds]
            for key in self.keys
        ]
        frame = pandas.DataFrame(values, pandas.Index(self.keys), self.seeds, dtype=float)
        return frame * self.scale if field in self._data.values() else frame

    def scores(self) -> "pandas.DataFrame":
        """Return the score of each seed, mean and sample standard deviation, and the cost of the runs."""
        import pandas

        has_failed = self.by_seed("validation").isna()
        columns = {"seeds": (~has_failed).sum(axis=1)}
        for data, field in self._data.items():
            scores = self.by_seed(field)
            cells = scores.round(2).astype(object).mask(has_failed, FAILED)
            for seed in cells:
                columns[f"{data} {self.metric}, seed {seed}"] = cells[seed]
            columns[f"{data} mean"] = scores.mean(axis=1).round(2)
            columns[f"{data} std"] = scores.std(axis=1).round(2)
        columns["epochs"] = self.by_seed("epochs").mean(axis=1).round(1)
        columns["minutes"] = self.by_seed("minutes").mean(axis=1).round(2)
        columns["peak GB"] = self.by_seed("peak_gigabytes").max(axis=1).round(2)
        return pandas.DataFrame(columns)

    def differences(self, share: Optional[float] = None) -> "pandas.DataFrame":
        """Compare each two variants, or those of a share, see `paired_differences`."""
        import pandas

        parts = []
        for data, field in self._data.items():
            scores = self.by_seed(field)
            parts.append(paired_differences(scores if share is None else scores.loc[share], data))
        return pandas.concat([parts[0], *(part.iloc[:, 3:] for part in parts[1:])], axis=1)

    def curve(self, key: Any, seed: int) -> List[float]:
        """Return the scores by epoch of a run; nothing if it failed."""
        scores = self._scores[key, seed]
        return [] if scores is None else [score * self.scale for score in scores.curve]

    def notes(self) -> List[str]:
        """Return what holds for every such table, and why runs failed."""
        test = (
            "test: that epoch on test data"
            if "test" in self._data
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

    def settings(self, report: str, options: TaskOptions) -> Dict[str, Any]:
        """Return how to make a table again."""
        config = self.experiment.config
        paths = ("train_data_path", "validation_data_path", "test_data_path")
        return settings_of(
            report,
            options,
            self.experiment.variables(),
            seeds=list(self.seeds),
            **{key: config[key] for key in paths if key in config},
            versions=recorded_versions(self.results),
        )


def count_training_instances(experiment: TaskExperiment) -> int:
    """Return the number of instances that the config trains on."""
    path = experiment.config["train_data_path"]
    reader = DatasetReader.from_params(Params(copy.deepcopy(experiment.config["dataset_reader"])))
    num_instances = sum(1 for _ in reader.read(path))
    if num_instances == 0:
        raise ConfigurationError(
            f"train_data_path: found no instance in {path}, expected data to take shares of."
        )
    return num_instances


def batch_size(experiment: TaskExperiment) -> int:
    """Return the number of instances in a batch of training."""
    loader = experiment.config.get("data_loader", {})
    size = loader.get("batch_sampler", loader).get("batch_size")
    if not isinstance(size, int):
        raise ConfigurationError(
            f"{experiment.config_file}: neither data_loader.batch_size nor "
            "data_loader.batch_sampler.batch_size is a number, by which the batches of all data are "
            "counted. Give one, or --once-through."
        )
    return size


def _trained(
    options: TaskOptions, experiment: TaskExperiment, variants: Dict[Any, Variant]
) -> Optional[RunTable]:
    """Train each variant with each seed. Returns nothing after a dry run."""
    seeds = options.runs.seeds
    runs = [experiment.run_of(variant, seed) for variant in variants.values() for seed in seeds]
    results = run_all(runs, options.runs, experiment.metric)
    return None if results is None else RunTable(experiment, list(variants), seeds, results)


def _compare_variants(
    report: str,
    title: str,
    options: TaskOptions,
    experiment: TaskExperiment,
    variants: Sequence[Variant],
    note: str,
) -> Optional[Report]:
    table = _trained(options, experiment, {variant.label: variant for variant in variants})
    if table is None:
        return None
    scores = table.scores().rename_axis("ELMo").reset_index()
    labels, of_tasks = _PAPER[report]
    if experiment.task in of_tasks:
        metric = "accuracy" if experiment.task == "snli" else "F1"
        by_label = dict(zip(labels, of_tasks[experiment.task]))
        scores[f"paper, dev {metric} (%)"] = scores["ELMo"].map(by_label)
    parts = {"": (title, scores, [note, *table.notes()])}
    if len(variants) > 1:
        parts["differences"] = (f"{title}, differences", table.differences(), [_DIFFERENCE_NOTE])
    figure = draw_variants(f"{title}: {experiment.name}", table.metric, table.by_seed("validation"))
    return _write(report, options, table, parts, {"": figure})


def _write(
    report: str,
    options: TaskOptions,
    table: RunTable,
    parts: Dict[str, Tuple[str, "pandas.DataFrame", List[str]]],
    figures: Dict[str, "Figure"],
) -> Report:
    """Write the parts of a report: each has a title, cells and notes, and may have a figure."""
    experiment = table.experiment
    names = {part: "-".join(filter(None, [report, part, experiment.name])) for part in parts}
    settings = table.settings(report, options)
    tables = [
        table_of(frame, names[part], f"{title}: {experiment.name}", notes, settings)
        for part, (title, frame, notes) in parts.items()
    ]
    named_figures = {names[part]: figure for part, figure in figures.items()}
    return write_report(options.runs.output, tables, named_figures, failures_of(table.results))


def _epoch_frame(table: RunTable, shares: Sequence[float]) -> "pandas.DataFrame":
    """The best epochs of each share and seed, and when the scores with ELMo pass the best without."""
    import pandas

    scores, epochs = table.by_seed("validation"), table.by_seed("best_epoch")
    sign = 1 if table.experiment.is_larger_better else -1
    rows: List[Dict[str, Any]] = []
    for share in shares:
        for seed in table.seeds:
            row: Dict[str, Any] = {"share": share, "seed": seed}
            for label in (NO_ELMO, ELMO):
                score, epoch = scores.loc[(share, label), seed], epochs.loc[(share, label), seed]
                has_failed = math.isnan(score)
                row[f"{label}, best dev {table.metric}"] = FAILED if has_failed else round(score, 2)
                row[f"{label}, in epoch"] = None if has_failed else int(epoch)
            baseline = scores.loc[(share, NO_ELMO), seed]
            curve = enumerate(table.curve((share, ELMO), seed), start=1)
            better = (epoch for epoch, score in curve if sign * score > sign * baseline)
            row["passes in epoch"] = next(better, None)
            rows.append(row)
    return pandas.DataFrame(rows, dtype=object)
