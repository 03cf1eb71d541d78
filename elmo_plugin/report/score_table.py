"""The table of a grid: a row for each variant of a config, with the scores of all seeds."""

import json
import shlex
import statistics
from typing import Any, Dict, List, Optional, Sequence

from elmo_plugin.report.experiment import Experiment
from elmo_plugin.report.grid import CellResult, GridOptions
from elmo_plugin.report.versions import versions

FAILED = "failed"

_SCORE_DIGITS = 2


class ScoreTable:
    """
    The numbers of a grid's results, as tables and pictures show them.

    # Parameters

    experiment : `Experiment`
        Whose metric it is.
    results : `Sequence[CellResult]`
        Those of a variant beside each other, in the order of the seeds.
    seeds : `Sequence[int]`
        Of each variant.
    """

    def __init__(
        self, experiment: Experiment, results: Sequence[CellResult], seeds: Sequence[int]
    ) -> None:
        self.seeds = list(seeds)
        self.rows = [results[i : i + len(seeds)] for i in range(0, len(results), len(seeds))]
        done = [result.scores for result in results if result.scores is not None]
        scores = [
            score for run in done for score in (run.validation, run.test) if score is not None
        ]
        self.has_test = bool(experiment.config.get("evaluate_on_test"))
        # Accuracy and F1 are shares; a perplexity or a loss is not.
        is_share = experiment.is_larger_better and all(0.0 <= score <= 1.0 for score in scores)
        self.scale = 100.0 if is_share else 1.0
        self.metric = f"{experiment.metric} (%)" if is_share else experiment.metric

    @property
    def columns(self) -> List[str]:
        """The names of the columns of `cells`."""
        columns = []
        for data in ("dev", "test") if self.has_test else ("dev",):
            columns += [f"{data} {self.metric}, seed {seed}" for seed in self.seeds]
            columns += [f"{data} mean", f"{data} std"]
        return [*columns, "epochs", "minutes", "peak GB"]

    def cells(self, row: int) -> List[Any]:
        """Scores of all seeds, mean and sample standard deviation; and what the runs cost, in the mean."""
        cells = self._scores(row, self.validation(row))
        if self.has_test:
            cells += self._scores(
                row,
                [
                    None
                    if run.scores is None or run.scores.test is None
                    else run.scores.test * self.scale
                    for run in self.rows[row]
                ],
            )
        done = [result.scores for result in self.rows[row] if result.scores is not None]
        if not done:
            return [*cells, None, None, None]
        return [
            *cells,
            round(statistics.mean(len(run.curve) for run in done), 1),
            round(statistics.mean(run.minutes for run in done), 2),
            round(max(run.peak_gigabytes for run in done), 2),
        ]

    def validation(self, row: int) -> List[Optional[float]]:
        """The best score of each seed on validation data; `None` of a run that failed."""
        return [
            None if result.scores is None else result.scores.validation * self.scale
            for result in self.rows[row]
        ]

    def curves(self, row: int) -> List[List[float]]:
        """The scores by epoch, of the runs that are done."""
        return [
            [score * self.scale for score in result.scores.curve]
            for result in self.rows[row]
            if result.scores is not None
        ]

    def notes(self) -> List[str]:
        """What holds for every such table, and why runs failed."""
        test = (
            "test: that epoch on test data"
            if self.has_test
            else "the config does not evaluate on test data"
        )
        notes = [
            f"dev: the best epoch's score on validation data; {test}. std: of the sample, over seeds. epochs "
            "and minutes: of training and validation, in the mean; peak GB: the largest."
        ]
        failures = {
            result.cell.name: result.failure
            for row in self.rows
            for result in row
            if result.failure
        }
        if failures:
            notes.append("Means are of the runs that did not fail.")
        return [*notes, *(f"{name} failed: {failure}" for name, failure in failures.items())]

    def _scores(self, row: int, scores: Sequence[Optional[float]]) -> List[Any]:
        there = [score for score in scores if score is not None]
        return [
            *(
                FAILED if result.scores is None else _rounded(score)
                for result, score in zip(self.rows[row], scores)
            ),
            _rounded(statistics.mean(there)) if there else None,
            _rounded(statistics.stdev(there)) if len(there) > 1 else None,
        ]


def grid_settings(
    report: str, options: GridOptions, experiment: Experiment, further: Sequence[str] = ()
) -> Dict[str, Any]:
    """
    How to make a table again.

    # Parameters

    report : `str`
        The name of the subcommand.
    options : `GridOptions`
        Its arguments.
    experiment : `Experiment`
        What it is about.
    further : `Sequence[str]`, optional
        Arguments that only this subcommand has.
    """
    arguments = ["allennlp", "elmo-report", report, options.config_file, "-s", options.output]
    if options.name is not None:
        arguments += ["--name", options.name]
    arguments += ["--seeds", *map(str, options.seeds), *further]
    if options.overrides:
        arguments += ["--overrides", json.dumps(options.overrides)]
    for package in options.include_packages:
        arguments += ["--include-package", package]
    variables = experiment.variables()
    assignments = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return {
        "command": " ".join([*assignments, shlex.join(arguments)]),
        "seeds": list(options.seeds),
        **{
            key: experiment.config[key]
            for key in ("train_data_path", "validation_data_path", "test_data_path")
            if key in experiment.config
        },
        "versions": versions(),
    }


def _rounded(score: Optional[float]) -> Optional[float]:
    return None if score is None else round(score, _SCORE_DIGITS)
