"""The report on some variants of a config: train them, and put their scores into a table and a picture."""

from pathlib import Path
from typing import List, NamedTuple, Optional, Sequence

from elmo_plugin.report.experiment import Experiment, Variant
from elmo_plugin.report.figures import figure_class, write_figure
from elmo_plugin.report.grid import CellResult, GridOptions, run_grid
from elmo_plugin.report.paper_scores import PaperScores
from elmo_plugin.report.report_table import ReportTable, write_table
from elmo_plugin.report.score_figures import draw_variants, there
from elmo_plugin.report.score_table import ScoreTable, grid_settings


class GridReport(NamedTuple):
    """
    # Parameters

    tables : `List[ReportTable]`
        What was found.
    files : `List[Path]`
        What was written.
    failures : `List[str]`
        Why runs failed, a line for each.
    """

    tables: List[ReportTable]
    files: List[Path]
    failures: List[str]


class VariantReport(NamedTuple):
    """
    What is particular to a report on variants.

    # Parameters

    report : `str`
        The name of the subcommand.
    question : `str`
        The title of the table, before the name of the experiment.
    variants : `Sequence[Variant]`
        The rows, the baseline first.
    paper : `PaperScores`, optional
        What the paper found for this task.
    notes : `Sequence[str]`
        What a reader should know.
    arguments : `Sequence[str]`, optional
        Of the subcommand, besides those that all have.
    """

    report: str
    question: str
    variants: Sequence[Variant]
    paper: Optional[PaperScores]
    notes: Sequence[str]
    arguments: Sequence[str] = ()

    def make(self, options: GridOptions, experiment: Experiment) -> Optional[GridReport]:
        """
        Train what is not done, and write the table and the picture into the results folder.

        # Returns

        `None` after a dry run.
        """
        if not options.dry_run:
            figure_class()  # better to miss it now
        cells = [
            experiment.cell(variant, seed) for variant in self.variants for seed in options.seeds
        ]
        results = run_grid(cells, options, experiment)
        if results is None:
            return None
        scores = ScoreTable(experiment, results, options.seeds)
        table = self._table(scores, options, experiment)
        figure = draw_variants(
            table.title,
            scores.metric,
            {
                variant.label: there(scores.validation(row))
                for row, variant in enumerate(self.variants)
            },
        )
        files = [
            *write_table(table, options.output),
            *write_figure(figure, options.output, table.name),
        ]
        return GridReport([table], files, failures_of(results))

    def _table(
        self, scores: ScoreTable, options: GridOptions, experiment: Experiment
    ) -> ReportTable:
        columns = ["ELMo", *scores.columns]
        rows = [[variant.label, *scores.cells(row)] for row, variant in enumerate(self.variants)]
        if self.paper is not None:
            columns.append(f"paper, dev {self.paper.metric} (%)")
            for row, variant in zip(rows, self.variants):
                row.append(self.paper.scores.get(variant.label))
        return ReportTable(
            name=f"{self.report}-{experiment.name}",
            title=f"{self.question}: {experiment.name}",
            columns=columns,
            rows=rows,
            notes=[*self.notes, *scores.notes()],
            settings=grid_settings(self.report, options, experiment, self.arguments),
        )


def failures_of(results: Sequence[CellResult]) -> List[str]:
    """What failed, a line for each run."""
    lines = {result.cell.name: result.failure for result in results if result.failure}
    return [f"{name}: {failure}" for name, failure in lines.items()]
