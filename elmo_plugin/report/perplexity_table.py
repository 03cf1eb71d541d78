"""The table of `allennlp elmo-report perplexity`."""

import statistics
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from elmo_plugin.report.fine_tuning import Perplexities
from elmo_plugin.report.report_table import ReportTable
from elmo_plugin.report.score_table import FAILED
from elmo_plugin.report.task_text import TextFiles

_DIGITS = 1


class PaperPerplexity(NamedTuple):
    """
    # Parameters

    text : `str`
        Its name.
    before, after : `float`
        On its development data.
    """

    text: str
    before: float
    after: float


# By kind of the text. The paper's other texts are left out: their figures could not be checked.
PAPER = {"pairs": PaperPerplexity("SNLI", 72.1, 16.8)}


class TextResult(NamedTuple):
    """
    What a biLM gained on a text.

    # Parameters

    text, kind, bilm : `str`
        Their names.
    files : `TextFiles`
        What was read.
    before, after : `List[Perplexities]`
        Of each run that is done. The ones before are equal, but for rounding.
    minutes : `List[float]`
        Of each run that is done.
    """

    text: str
    kind: str
    bilm: str
    files: TextFiles
    before: List[Perplexities]
    after: List[Perplexities]
    minutes: List[float]

    @property
    def means(self) -> Optional[Tuple[float, float]]:
        """Before and after; `None` if all runs failed."""
        if not self.after:
            return None
        return (
            statistics.mean(perplexities.mean for perplexities in self.before),
            statistics.mean(perplexities.mean for perplexities in self.after),
        )


def perplexity_table(
    results: Sequence[TextResult], failures: Sequence[str], settings: Dict[str, Any]
) -> ReportTable:
    """
    # Parameters

    results : `Sequence[TextResult]`
        The rows.
    failures : `Sequence[str]`
        Why runs failed, a line for each.
    settings : `Dict[str, Any]`
        Of the table.
    """
    notes = [
        "Perplexity on held-out text of the task, exact, over the whole vocabulary, in the mean of both "
        "directions; after: at the end of the best epoch, in the mean of the seeds. std: of the sample, "
        "over seeds. Each sentence is taken once. Minutes: of training and validation.",
        "Paper: Peters et al. 2018, on the development data of the whole task, with a larger biLM and "
        "another vocabulary: compare what is gained, not the perplexities. From a summary of the paper.",
    ]
    if failures:
        notes.append("Means are of the runs that did not fail.")
    return ReportTable(
        name="perplexity",
        title="Perplexity before and after adapting the biLM to a task's text",
        columns=[
            *("text", "biLM", "training words", "held-out words"),
            *("before", "after", "std", "after / before"),
            *("forward before", "forward after", "backward before", "backward after", "minutes"),
            *("paper's text", "paper before", "paper after"),
        ],
        rows=[_row(result) for result in results],
        notes=[*notes, *failures],
        settings=settings,
    )


def _row(result: TextResult) -> List[Any]:
    row: List[Any] = [
        *(result.text, result.bilm),
        *(result.files.num_train_words, result.files.num_held_out_words),
    ]
    if result.means is None:
        row += [FAILED, FAILED, None, None, None, None, None, None, None]
    else:
        before, after = result.means
        all_after = [perplexities.mean for perplexities in result.after]
        row += [
            *(round(before, _DIGITS), round(after, _DIGITS)),
            round(statistics.stdev(all_after), 2) if len(all_after) > 1 else None,
            round(after / before, 2),
        ]
        for direction in ("forward", "backward"):
            row += [
                round(statistics.mean(getattr(run, direction) for run in runs), _DIGITS)
                for runs in (result.before, result.after)
            ]
        row.append(round(statistics.mean(result.minutes), 2))
    paper = PAPER.get(result.kind)
    if paper is None:
        return [*row, None, None, None]
    return [*row, paper.text, paper.before, paper.after]
