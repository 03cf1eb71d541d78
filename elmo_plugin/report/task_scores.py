"""Train the variants of a task with several seeds, and make tables of their scores."""

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

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
    """
    Train each variant with each seed. Returns nothing after a dry run.

    # Parameters

    variants : `Mapping[Any, Variant]`
        By their key in the tables: a label, or a share of the data with a label.
    """
    runs = {
        (key, seed): experiment.run_of(variant, seed)
        for key, variant in variants.items()
        for seed in options.runs.seeds
    }
    trained = train(runs, options.runs, experiment.metric)
    return None if trained is None else TaskScores(options, experiment, trained)


class TaskScores:
    """The scores of trained runs, by variant and seed: in percent if they are shares."""

    def __init__(
        self, options: TaskOptions, experiment: TaskExperiment, trained: TrainedRuns
    ) -> None:
        self.options, self.experiment, self.trained = options, experiment, trained
        scores = [each for each in trained.scores.values() if each is not None]
        values = [value for each in scores for value in (each.validation, each.test or 0.0)]
        # Accuracy and F1 are shares; a perplexity or a loss is not.
        is_share = experiment.is_larger_better and all(0.0 <= value <= 1.0 for value in values)
        self._scale = 100.0 if is_share else 1.0
        self.metric = f"{experiment.metric} (%)" if is_share else experiment.metric
        self._parts = {"dev": "validation"}  # of the data, with their fields in `RunScores`
        if experiment.config.get("evaluate_on_test"):
            self._parts["test"] = "test"

    def by_seed(self, field: str = "validation") -> "pandas.DataFrame":
        """Return a row for each variant and a column for each seed; missing where a run failed."""
        import pandas

        scores = self.trained.scores
        index = pandas.Index(dict.fromkeys(variant for variant, _ in scores))
        seeds = self.options.runs.seeds
        values = [[getattr(scores[key, seed], field, None) for seed in seeds] for key in index]
        frame = pandas.DataFrame(values, index, seeds, dtype=float)
        return frame * self._scale if field in ("validation", "test") else frame

    def curve(self, variant: Any, seed: int) -> List[float]:
        """Return the scores of a run by epoch; nothing if it failed."""
        scores = self.trained.scores[variant, seed]
        return [] if scores is None else [score * self._scale for score in scores.curve]

    def table(self) -> "pandas.DataFrame":
        """Return the score of each seed, mean and sample standard deviation, and the cost of the runs."""
        import pandas

        has_failed = self.by_seed().isna()
        columns = {"seeds": (~has_failed).sum(axis=1)}
        cells = {}
        for part, field in self._parts.items():
            scores = self.by_seed(field)
            columns[f"{part} mean"] = scores.mean(axis=1).round(2)
            columns[f"{part} std"] = scores.std(axis=1).round(2)
            shown = scores.round(2).astype(object).mask(has_failed, FAILED)
            cells.update({f"{part} {self.metric}, seed {seed}": shown[seed] for seed in shown})
        columns.update(cells)  # after the means, which a narrow screen shows first
        columns["epochs"] = self.by_seed("epochs").mean(axis=1).round(1)
        columns["minutes"] = self.by_seed("minutes").mean(axis=1).round(2)
        columns["peak GB"] = self.by_seed("peak_gigabytes").max(axis=1).round(2)
        return pandas.DataFrame(columns)

    def differences(self, share: Optional[float] = None) -> "pandas.DataFrame":
        """Compare each pair of variants, or those of a share, see `paired_differences`."""
        import pandas

        tables = []
        for part, field in self._parts.items():
            scores = self.by_seed(field)
            tables.append(paired_differences(scores if share is None else scores.loc[share], part))
        return pandas.concat([tables[0], *(table.iloc[:, 3:] for table in tables[1:])], axis=1)

    def notes(self) -> List[str]:
        """Return the notes of all tables of scores, with warnings and the reasons of failures."""
        test = (
            "test: that epoch on test data"
            if "test" in self._parts
            else "the config does not evaluate on test data"
        )
        notes = [
            f"dev: the best epoch's score on validation data; {test}. std: of the sample, over seeds. "
            "epochs and minutes: means, of training and validation; peak GB: the largest."
        ]
        zeros = [
            f"{variant if isinstance(variant, str) else ', '.join(map(str, variant))}, seed {seed}"
            for (variant, seed), scores in self.trained.scores.items()
            if scores is not None and scores.validation == 0
        ]
        if zeros and self.experiment.is_larger_better:
            notes.append(
                f"Warning: models with a dev {self.experiment.metric} of 0 have not learnt: "
                f"{'; '.join(zeros)}. Train them for more epochs or on more data before you compare them."
            )
        return [*notes, *(line.replace(": ", " failed: ", 1) for line in self.trained.notes())]

    def write(self, report: str, parts: Dict[str, Part]) -> Report:
        """Write the parts of a report, each as REPORT-PART-EXPERIMENT; the first part has no name."""
        experiment = self.experiment
        paths = ("train_data_path", "validation_data_path", "test_data_path")
        settings = settings_of(
            experiment.variables(),
            seeds=list(self.options.runs.seeds),
            **{key: experiment.config[key] for key in paths if key in experiment.config},
            versions=self.trained.versions,
        )
        named = {
            "-".join(filter(None, [report, name, experiment.name])): part._replace(
                title=f"{part.title}: {experiment.name}"
            )
            for name, part in parts.items()
        }
        return write_report(self.options.runs.output, named, settings, self.trained.failures)


def differences_part(title: str, differences: "pandas.DataFrame") -> Part:
    """Return the table of the differences between variants."""
    return Part(title, differences, difference_notes(_DIFFERENCE_NOTE, differences))
