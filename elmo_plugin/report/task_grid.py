"""Trains variants of a task's config with several seeds, and makes tables of their scores."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from elmo_plugin.arguments import option, option_group
from elmo_plugin.report.run_folder import RunResult
from elmo_plugin.report.runs import RunOptions, failures_of, recorded_versions, run_all
from elmo_plugin.report.tables import (
    FAILED,
    Part,
    Report,
    paired_differences,
    settings_of,
    write_report,
)
from elmo_plugin.report.variants import TaskExperiment, Variant

if TYPE_CHECKING:  # --include-package imports every module, also where pandas is not installed
    import pandas

NO_ELMO = "no ELMo"
DIFFERENCE_NOTE = (
    "Difference: the mean, over the seeds that both variants have, of the variant's score minus the score "
    "of the variant that it is compared with. The 95 % interval is Student's: if it contains 0, these "
    "seeds do not show which variant is better. It covers the randomness of training, not the choice of "
    "the data."
)


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The options of all reports that train a task."""

    config_file: str = option(
        "a config of `allennlp train` with model.text_encoder.elmo; the environment variables that it "
        "reads must be set",
        positional=True,
        metavar="CONFIG",
    )
    name: Optional[str] = option(
        "name of the experiment in the names of runs and files (default: the task's); other data need "
        "another name",
        None,
    )
    runs: RunOptions = option_group("training runs")

    def experiment(self) -> TaskExperiment:
        """Check the options and read the config."""
        self.runs.check()
        return TaskExperiment(self.config_file, self.runs.overrides, self.name)


class TaskGrid:
    """
    The scores of finished runs, by variant and seed: in percent if they are shares.

    # Parameters

    results : `Dict[Tuple[Any, int], RunResult]`
        The key of a variant is its label, or a share of the data with a label.
    """

    def __init__(
        self, options: TaskOptions, experiment: TaskExperiment, results: Dict[Any, RunResult]
    ) -> None:
        self.options, self.experiment, self.results = options, experiment, results
        self.seeds = options.runs.seeds
        self._data = {"dev": "validation"}
        if experiment.config.get("evaluate_on_test"):
            self._data["test"] = "test"
        self._scale = 1.0
        # Accuracy and F1 are shares; a perplexity or a loss is not.
        scores = [self.by_seed(field).stack() for field in ("validation", "test")]
        is_share = experiment.is_larger_better and all(s.between(0.0, 1.0).all() for s in scores)
        self._scale = 100.0 if is_share else 1.0
        self.metric = f"{experiment.metric} (%)" if is_share else experiment.metric

    def by_seed(self, field: str) -> "pandas.DataFrame":
        """Return a row for each variant and a column for each seed; missing where a run failed."""
        import pandas

        keys = list(dict.fromkeys(key for key, _ in self.results))
        values = [
            [getattr(self.results[key, seed].scores, field, None) for seed in self.seeds]
            for key in keys
        ]
        frame = pandas.DataFrame(values, pandas.Index(keys), self.seeds, dtype=float)
        return frame * self._scale if field in self._data.values() else frame

    def scores(self) -> "pandas.DataFrame":
        """Return the score of each seed, mean and sample standard deviation, and the cost of the runs."""
        import pandas

        has_failed = self.by_seed("validation").isna()
        columns = {"seeds": (~has_failed).sum(axis=1)}
        by_seed = {}
        for data, field in self._data.items():
            scores = self.by_seed(field)
            columns[f"{data} mean"] = scores.mean(axis=1).round(2)
            columns[f"{data} std"] = scores.std(axis=1).round(2)
            cells = scores.round(2).astype(object).mask(has_failed, FAILED)
            by_seed.update({f"{data} {self.metric}, seed {seed}": cells[seed] for seed in cells})
        columns.update(by_seed)  # after the means, which a narrow screen shows first
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

    def curve(self, key: Any, seed: int) -> List[float]:
        """Return the scores of a run by epoch; nothing if it failed."""
        scores = self.results[key, seed].scores
        return [] if scores is None else [score * self._scale for score in scores.curve]

    def notes(self) -> List[str]:
        """Return the notes of all tables of scores, with the reasons of failures."""
        test = (
            "test: that epoch on test data"
            if "test" in self._data
            else "the config does not evaluate on test data"
        )
        notes = [
            f"dev: the best epoch's score on validation data; {test}. std: of the sample, over seeds. "
            "epochs and minutes: of training and validation, in the mean; peak GB: the largest."
        ]
        failures = failures_of(self.results.values())
        if failures:
            notes.append("Means are of the runs that did not fail.")
        return notes + [line.replace(": ", " failed: ", 1) for line in failures]

    def write(self, report: str, parts: Dict[str, Part]) -> Report:
        """Write the parts of a report, each as REPORT-PART-EXPERIMENT; the first part has no name."""
        config, results = self.experiment.config, self.results.values()
        paths = ("train_data_path", "validation_data_path", "test_data_path")
        settings = settings_of(
            report,
            self.options,
            self.experiment.variables(),
            seeds=list(self.seeds),
            **{key: config[key] for key in paths if key in config},
            versions=recorded_versions(results),
        )
        experiment = self.experiment.name
        named = {
            "-".join(filter(None, [report, name, experiment])): part._replace(
                title=f"{part.title}: {experiment}"
            )
            for name, part in parts.items()
        }
        return write_report(self.options.runs.output, named, settings, failures_of(results))


def train_grid(
    options: TaskOptions, experiment: TaskExperiment, variants: Dict[Any, Variant]
) -> Optional[TaskGrid]:
    """Train each variant with each seed. Returns nothing after a dry run."""
    runs = {
        (key, seed): experiment.run_of(variant, seed)
        for key, variant in variants.items()
        for seed in options.runs.seeds
    }
    results = run_all(runs, options.runs, experiment.metric)
    return None if results is None else TaskGrid(options, experiment, results)
