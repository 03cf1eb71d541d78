"""Tables of the scores of a task's variants, trained with several seeds."""

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence

from elmo_plugin.report.runs import TrainedRuns, train
from elmo_plugin.report.tables import (
    FAILED,
    Part,
    Report,
    difference_notes,
    paired_differences,
    settings_of,
    write_report,
)
from elmo_plugin.report.variants import TaskExperiment, TaskOptions, Variant

if TYPE_CHECKING:  # --include-package imports every module, also where pandas is not installed
    import pandas

NO_ELMO = "no ELMo"

_DIFFERENCE_NOTE = (
    "Difference: the mean, over the seeds that both variants have, of the variant's score minus the score "
    "of the variant that it is compared with. The 95 % interval is Student's: if it contains 0, these "
    "seeds do not show which variant is better. It covers the randomness of training, not the choice of "
    "the data."
)


def train_variants(
    options: TaskOptions, experiment: TaskExperiment, variants: Mapping[Any, Variant]
) -> Optional["TaskScores"]:
    """Train each variant with each seed. Returns nothing after a dry run."""
    seeds = options.runs.seeds
    runs = {
        (key, seed): experiment.run_of(variant, seed)
        for key, variant in variants.items()
        for seed in seeds
    }
    trained = train(runs, options.runs, experiment.metric)
    return None if trained is None else TaskScores(experiment, trained, list(variants), seeds)


class TaskScores:
    """
    The scores of trained runs, by variant and seed: in percent if they are shares.

    # Parameters

    experiment : `TaskExperiment`
    trained : `TrainedRuns`
        Their keys are pairs of variant and seed.
    variants : `Sequence[Any]`
        Each is a label, or a share of the data with a label.
    seeds : `Sequence[int]`
    """

    def __init__(
        self,
        experiment: TaskExperiment,
        trained: TrainedRuns,
        variants: Sequence[Any],
        seeds: Sequence[int],
    ) -> None:
        self.experiment, self.trained = experiment, trained
        self.variants, self.seeds = variants, seeds
        self._scale = 1.0
        # Accuracy and F1 are shares; a perplexity or a loss is not.
        unscaled = [self.by_seed(field) for field in ("validation", "test")]
        is_outside = any(((s < 0.0) | (s > 1.0)).any(axis=None) for s in unscaled)
        is_share = experiment.is_larger_better and not is_outside
        self._scale = 100.0 if is_share else 1.0
        self.metric = f"{experiment.metric} (%)" if is_share else experiment.metric
        self._data = {"dev": "validation"}
        if experiment.config.get("evaluate_on_test"):
            self._data["test"] = "test"

    def by_seed(self, field: str) -> "pandas.DataFrame":
        """Return a row for each variant and a column for each seed; missing where a run failed."""
        import pandas

        scores = self.trained.scores
        values = [
            [getattr(scores[variant, seed], field, None) for seed in self.seeds]
            for variant in self.variants
        ]
        frame = pandas.DataFrame(values, pandas.Index(self.variants), self.seeds, dtype=float)
        return frame * self._scale if field in ("validation", "test") else frame

    def table(self) -> "pandas.DataFrame":
        """Return the score of each seed, mean and sample standard deviation, and the cost of the runs."""
        import pandas

        has_failed = self.by_seed("validation").isna()
        columns = {"seeds": (~has_failed).sum(axis=1)}
        cells = {}
        for data, field in self._data.items():
            scores = self.by_seed(field)
            columns[f"{data} mean"] = scores.mean(axis=1).round(2)
            columns[f"{data} std"] = scores.std(axis=1).round(2)
            shown = scores.round(2).astype(object).mask(has_failed, FAILED)
            cells.update({f"{data} {self.metric}, seed {seed}": shown[seed] for seed in shown})
        columns.update(cells)  # after the means, which a narrow screen shows first
        columns["epochs"] = self.by_seed("epochs").mean(axis=1).round(1)
        columns["minutes"] = self.by_seed("minutes").mean(axis=1).round(2)
        columns["peak GB"] = self.by_seed("peak_gigabytes").max(axis=1).round(2)
        return pandas.DataFrame(columns)

    def differences(self, share: Optional[float] = None) -> "pandas.DataFrame":
        """Compare each pair of variants, or those of a share, see `paired_differences`."""
        import pandas

        parts = []
        for data, field in self._data.items():
            scores = self.by_seed(field)
            parts.append(paired_differences(scores if share is None else scores.loc[share], data))
        return pandas.concat([parts[0], *(part.iloc[:, 3:] for part in parts[1:])], axis=1)

    def curve(self, variant: Any, seed: int) -> List[float]:
        """Return the scores of a run by epoch; nothing if it failed."""
        scores = self.trained.scores[variant, seed]
        return [] if scores is None else [score * self._scale for score in scores.curve]

    def notes(self) -> List[str]:
        """Return the notes of all tables of scores, with warnings and the reasons of failures."""
        test = (
            "test: that epoch on test data"
            if "test" in self._data
            else "the config does not evaluate on test data"
        )
        return [
            f"dev: the best epoch's score on validation data; {test}. std: of the sample, over seeds. "
            "epochs and minutes: means, of training and validation; peak GB: the largest.",
            *self._not_learnt(),
            *(line.replace(": ", " failed: ", 1) for line in self.trained.notes()),
        ]

    def _not_learnt(self) -> List[str]:
        """Warn of runs whose score on validation data is 0."""
        zeros = [
            f"{variant if isinstance(variant, str) else ', '.join(map(str, variant))}, seed {seed}"
            for variant, scores in self.by_seed("validation").iterrows()
            for seed in scores.index[scores.eq(0.0)]
        ]
        if not zeros or not self.experiment.is_larger_better:
            return []
        return [
            f"Warning: models with a dev {self.experiment.metric} of 0 have not learnt: {'; '.join(zeros)}. "
            "Train them for more epochs or on more data before you compare them."
        ]


def differences_part(title: str, differences: "pandas.DataFrame") -> Part:
    """Return the table of the differences between variants."""
    return Part(title, differences, difference_notes(_DIFFERENCE_NOTE, differences))


def write_task_report(
    report: str, options: TaskOptions, scores: TaskScores, parts: Dict[str, Part]
) -> Report:
    """Write the parts of a report, each as REPORT-PART-EXPERIMENT; the first part has no name."""
    experiment = scores.experiment
    paths = ("train_data_path", "validation_data_path", "test_data_path")
    settings = settings_of(
        experiment.variables(),
        seeds=list(options.runs.seeds),
        **{key: experiment.config[key] for key in paths if key in experiment.config},
        versions=scores.trained.versions,
    )
    named = {
        "-".join(filter(None, [report, name, experiment.name])): part._replace(
            title=f"{part.title}: {experiment.name}"
        )
        for name, part in parts.items()
    }
    return write_report(options.runs.output, named, settings, scores.trained.failures)
