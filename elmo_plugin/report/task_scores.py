"""The scores of a task's variants, trained with several seeds: tables, differences, and what they cover."""

import logging
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pandas

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.runs import RunFolder, TrainedRuns, train
from elmo_plugin.report.statistics import (
    ITEM_NAMES,
    MIN_ITEMS,
    corrected_p_values,
    interval_over_items,
    item_counts,
    paired_differences,
    resampled_scores,
)
from elmo_plugin.report.tables import FAILED, Part, Report, settings_of, write_report
from elmo_plugin.report.variants import TaskExperiment, Variant

logger = logging.getLogger(__name__)

Pair = Tuple[str, str]  # the labels of a variant and of the one that it is compared with

_DIFFERENCE_NOTE = (
    "Difference: the mean, over the seeds that both variants have, of the variant's score minus the score "
    "of the variant that it is compared with. The interval over seeds is Student's: it covers the randomness "
    "of training. If it contains 0, these seeds do not show which variant is better."
)
_ITEMS_NOTE = (
    "The interval over items is a paired bootstrap over {items}: it covers the choice of these, "
    "for the models that were trained. Over few items it is too narrow: over 10 it covers about 90 %."
)
_UNCOUNTED_NOTE = (
    "No interval over items: of {runs} there is no best.th that can be loaded, or its model does not "
    "count {metric} by item, or its ELMo normalizes layers over a batch (do_layer_norm), or there are fewer "
    "than {min_items} items."
)
_NOT_COVERED_NOTE = (
    "No interval covers the choice of the training data, or pretraining: each biLM is one run of it. Where "
    "two seeds are compared, they support no claim, whatever the items show."
)
_PLANNED_NOTE = (
    "p: of Student's paired test over seeds, on {split} scores, corrected by Holm for the {count} "
    "comparisons that this report plans: {pairs}. Other pairs have no p, and neither have those "
    "with fewer than three seeds, or with the same difference in all of them."
)


def train_variants(
    experiment: TaskExperiment, variants: Mapping[Tuple[Any, ...], Variant]
) -> Optional["TaskScores"]:
    """
    Train each variant with each seed. Returns nothing after a dry run. The keys of `variants` are those of
    the rows of tables: a label, or a share of the data and a label.
    """
    runs = {
        (*key, seed): experiment.run_of(variant, seed)
        for key, variant in variants.items()
        for seed in experiment.options.seeds
    }
    trained = train(runs, experiment.options, experiment.metric)
    return None if trained is None else TaskScores(experiment, runs, trained)


class TaskScores:
    """The scores of trained runs, by variant and seed: in percent if they are shares."""

    def __init__(
        self,
        experiment: TaskExperiment,
        runs: Mapping[Tuple[Any, ...], RunFolder],
        trained: TrainedRuns,
    ) -> None:
        self.experiment, self.trained = experiment, trained
        scores = trained.scores[["validation", "test"]].astype(float)
        # Accuracy and F1 are shares; a perplexity or a loss is not.
        is_other = (scores < 0.0) | (scores > 1.0)
        is_share = experiment.is_larger_better and not is_other.any(axis=None)
        self._scale = 100.0 if is_share else 1.0
        self.metric = f"{experiment.metric} (%)" if is_share else experiment.metric
        self._splits = {"dev": "validation"}  # of the data, with their fields in `RunScores`
        if scores["test"].notna().any():
            self._splits["test"] = "test"
        self._last_split = list(self._splits)[-1]  # of intervals over items and p-values
        self._uncounted: List[str] = []  # names of runs without counts of items
        self._resampled = self._resample(runs)

    def _resample(self, runs: Mapping[Tuple[Any, ...], RunFolder]) -> pandas.DataFrame:
        """Return the scores of resamples of the items, in columns, of each run; missing where it failed."""
        resampled = {}
        for key in self.trained.scores["validation"].dropna().index:
            try:
                counts = item_counts(runs[key], self.experiment.metric)
            except ConfigurationError as error:  # such as an archive that was cut short
                logger.warning("%s: its items cannot be counted: %s", runs[key].name, error)
                counts = None
            if counts is None or len(counts) < MIN_ITEMS:
                self._uncounted.append(runs[key].name)
            else:
                resampled[key] = resampled_scores(counts)
        frame = pandas.DataFrame.from_dict(resampled, orient="index")
        return frame.reindex(self.trained.scores.index) * self._scale

    def by_seed(self, field: str = "validation") -> pandas.DataFrame:
        """Return a row for each variant and a column for each seed; missing where a run failed."""
        values = self.trained.scores[field].astype(float)
        variants = values.index.droplevel(-1).unique()  # in the order of the table
        frame = values.unstack().loc[variants, list(self.experiment.options.seeds)]
        return frame * self._scale if field in ("validation", "test") else frame

    def table(self) -> pandas.DataFrame:
        """Return the score of each seed, mean and sample standard deviation, and the cost of the runs."""
        has_failed = self.by_seed().isna()
        table = (~has_failed).sum(axis=1).to_frame("seeds")
        cells = []
        for split, field in self._splits.items():
            scores = self.by_seed(field)
            table[f"{split} mean"] = scores.mean(axis=1).round(2)
            table[f"{split} std"] = scores.std(axis=1).round(2)
            shown = scores.round(2).astype(object).mask(has_failed, FAILED)
            cells.append(shown.add_prefix(f"{split} {self.metric}, seed "))
        table = table.join(cells)  # after the means, which a narrow screen shows first
        table["epochs"] = self.by_seed("epochs").mean(axis=1).round(1)
        table["minutes"] = self.by_seed("minutes").mean(axis=1).round(2)
        table["peak GB"] = self.by_seed("peak_gigabytes").max(axis=1).round(2)
        return table

    def differences(
        self, share: Optional[float] = None, planned: Sequence[Pair] = ()
    ) -> pandas.DataFrame:
        """
        Compare each pair of variants, or those of a share: `paired_differences`, intervals over test items,
        and p-values of planned pairs.
        """
        scores = {split: self.by_seed(field) for split, field in self._splits.items()}
        resampled = self._resampled
        if share is not None:
            scores = {split: frame.loc[share] for split, frame in scores.items()}
            resampled = resampled.loc[share]
        table = paired_differences(scores)
        pairs = list(zip(table["variant"], table["compared with"]))
        if not self._uncounted:
            table[f"{self._last_split} 95 % interval over items"] = [
                interval_over_items(resampled.xs(variant) - resampled.xs(compared))
                for variant, compared in pairs
            ]
        if planned:
            p_values = corrected_p_values(scores[self._last_split], planned)
            shown = {pair: f"{p:.2g}" for pair, p in zip(planned, p_values) if p is not None}
            table[f"{self._last_split} p, Holm"] = [shown.get(pair) for pair in pairs]
        return table

    def difference_notes(self, planned: Sequence[Pair] = ()) -> List[str]:
        """Return the notes of tables of differences: what their intervals cover."""
        metric, items = self.experiment.metric, ITEM_NAMES.get(self.experiment.task, "sentences")
        notes = [_DIFFERENCE_NOTE, _ITEMS_NOTE.format(items=f"{self._last_split} {items}")]
        if self._uncounted:
            notes[1] = _UNCOUNTED_NOTE.format(
                runs=", ".join(self._uncounted), metric=metric, min_items=MIN_ITEMS
            )
        notes.append(_NOT_COVERED_NOTE)
        if planned:
            pairs = "; ".join(f"{variant} − {compared}" for variant, compared in planned)
            count = len(planned)
            notes.append(_PLANNED_NOTE.format(split=self._last_split, count=count, pairs=pairs))
        return notes

    def notes(self) -> List[str]:
        """Return the notes of all tables of scores, with the reasons of failures."""
        test = (
            "test: that epoch on test data"
            if "test" in self._splits
            else "not evaluated on test data"
        )
        note = (
            f"dev: the best epoch's score on validation data; {test}. std: of the sample, over seeds. "
            "epochs and minutes: means, of training and validation; peak GB: the largest at the start of an "
            "epoch, on Linux no less than the peak of the program that started the run."
        )
        scores = self.trained.scores[self._splits[self._last_split]]
        unlearned = [", ".join(map(str, key)) for key in scores.index[scores == 0.0]]
        warning = f"Score 0, nothing was learned: {'; '.join(unlearned)} (variant, seed)."
        return [note, *([warning] if unlearned else []), *self.trained.notes()]

    def write(self, report: str, parts: Dict[str, Part]) -> Report:
        """Write the parts of a report, each as REPORT-PART-EXPERIMENT; the first part has no name."""
        experiment = self.experiment
        paths = ("train_data_path", "validation_data_path", "test_data_path")
        unnamed = "none" if report == "vectors" else "as in the config"
        settings = settings_of(
            experiment.variables(),
            seeds=list(experiment.options.seeds),
            **{key: experiment.config[key] for key in paths if key in experiment.config},
            **{"word vectors": experiment.options.word_vectors or unnamed},
            versions=self.trained.versions,
        )
        named = {
            "-".join(filter(None, [report, name, experiment.name])): part._replace(
                title=f"{part.title}: {experiment.name}"
            )
            for name, part in parts.items()
        }
        return write_report(experiment.options.output, named, settings, self.trained.failures)
