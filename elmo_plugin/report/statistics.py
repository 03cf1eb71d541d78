"""
How sure are differences of scores? Over seeds: Student's intervals and p-values. Over test items, by a paired
bootstrap (Efron 1979; Berg-Kirkpatrick et al. 2012): how much would a score change on other sentences,
documents or articles of the same kind?
"""

import json
import logging
from itertools import combinations, groupby
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy
import pandas
from allennlp.common.util import lazy_groups_of
from allennlp.data import Instance
from scipy import stats

from elmo_plugin.compat.archives import opened_archive
from elmo_plugin.files.output import replaced_file
from elmo_plugin.modules.elmo_archives import BEST_NAME
from elmo_plugin.report.runs import METRICS_NAME, RunFolder, read_metrics
from elmo_plugin.tasks.metrics import Counts

# In the folder of a run, which is removed when it is trained again.
COUNTS_NAME = "item_counts.json"

_BATCH_SIZE = 16
_NUM_RESAMPLES = 2000
_SEED = 0
# Adjacent instances with the same value of the first of these in their metadata are one item: the questions
# about an article, the predicates of a sentence, the pairs of a premise.
_ITEM_KEYS = ("article", "words", "premise_words")
ITEM_NAMES = {"coref": "documents", "squad": "articles", "snli": "premises"}  # else sentences
# Resamples of fewer items are too few different ones for an interval.
MIN_ITEMS = 5

logger = logging.getLogger(__name__)


def paired_differences(scores: Mapping[str, pandas.DataFrame]) -> pandas.DataFrame:
    """
    Compare each row with each row above it, over the seeds that both have: return the mean of the
    differences, and its 95 % confidence interval by Student's t, which needs three seeds to say anything.
    With one common seed the interval is empty, without common seeds the difference too. `scores` has for each
    measure a frame of the same variants, in rows, and seeds, in columns; missing where a run failed.
    """
    rows = []
    for first, second in combinations(next(iter(scores.values())).index, 2):
        row: Dict[str, Any] = {"variant": second, "compared with": first}
        for name, frame in scores.items():
            differences = (frame.loc[second] - frame.loc[first]).dropna()
            num_seeds, mean = len(differences), differences.mean()
            interval = "two seeds: no claim" if num_seeds == 2 else None
            if num_seeds > 2:
                margin = stats.t.ppf(0.975, num_seeds - 1) * differences.sem()
                interval = f"{mean - margin:.2f} to {mean + margin:.2f}"
            row.setdefault("seeds", num_seeds)  # of the first measure, which all runs have
            row[f"{name} difference"] = round(mean, 2)
            row[f"{name} 95 % interval over seeds"] = interval
        rows.append(row)
    return pandas.DataFrame(rows)


def corrected_p_values(
    scores: pandas.DataFrame, pairs: Sequence[Tuple[str, str]]
) -> List[Optional[float]]:
    """
    Return the p-values of differences between pairs of rows, by Student's paired test over seeds, corrected
    by Holm for the number of pairs. Pairs with fewer than three common seeds, or with the same difference in
    all of them, have none, but are counted.
    """
    # By which equal differences may differ.
    rounding = 4 * numpy.spacing(scores.abs().max().max())
    p_values: List[Optional[float]] = []
    for first, second in pairs:
        differences = (scores.loc[first] - scores.loc[second]).dropna()
        varies = len(differences) > 2 and numpy.ptp(differences) > rounding
        p_values.append(stats.ttest_1samp(differences, 0.0).pvalue if varies else None)
    corrected = holm([1.0 if p_value is None else p_value for p_value in p_values])
    return [None if old is None else new for old, new in zip(p_values, corrected)]


def holm(p_values: Sequence[float]) -> List[float]:
    """Correct p-values for their number (Holm 1979): the family-wise error rate is that of each."""
    order = numpy.argsort(p_values)
    steps = numpy.array(p_values)[order] * numpy.arange(len(p_values), 0, -1)
    corrected = numpy.empty(len(p_values))
    corrected[order] = numpy.maximum.accumulate(steps).clip(max=1.0)
    return corrected.tolist()


def item_counts(folder: RunFolder, metric: str) -> Optional[numpy.ndarray]:
    """
    Return `Counts` of a finished run for each item, `(num_items, num_fractions, 4)`: of its test data, or of
    its validation data, if it has not been evaluated on test data. They are counted once, by its best
    weights, and kept in its folder. Return nothing if these are gone, or the model does not count this
    metric; or if a mix normalizes layers over all sentences of a batch, so that an item alone gets another
    prediction.
    """
    path = folder.path / COUNTS_NAME
    if not path.exists():
        if not (folder.path / BEST_NAME).is_file():
            return None
        logger.info("%s: counting test items, on the CPU.", folder.path.name)
        with replaced_file(path) as partial_file:
            partial_file.write_text(json.dumps(_counted(folder)))
    counts = json.loads(path.read_text()).get(metric)
    return None if counts is None else numpy.array(counts)


def _counted(folder: RunFolder) -> Dict[str, List[Counts]]:
    """Return the counts of each item by metric."""
    archive = opened_archive(folder.path)
    model = archive.model.eval()
    # Also of AllenNLP's mix of layers.
    normalizes = any(getattr(module, "do_layer_norm", False) for module in model.modules())
    if normalizes or not hasattr(model, "counts"):
        return {}
    reader = archive.validation_dataset_reader
    # AllenNLP evaluates nothing after distributed training.
    metrics = read_metrics(folder.path / METRICS_NAME, [])
    part = "test" if any(name.startswith("test_") for name in metrics) else "validation"
    counts: Dict[str, List[Counts]] = {}
    for _, instances in groupby(reader.read(folder.config[f"{part}_data_path"]), _item):
        model.get_metrics(reset=True)
        for batch in lazy_groups_of(instances, _BATCH_SIZE):
            model.forward_on_instances(batch)
        for metric, found in model.counts().items():
            counts.setdefault(metric, []).append(found)
    return counts


def _item(instance: Instance) -> Any:
    """Return what adjacent instances of one item have in common."""
    metadata = instance["metadata"].metadata if "metadata" in instance.fields else {}
    return next((metadata[key] for key in _ITEM_KEYS if key in metadata), instance)


def resampled_scores(counts: numpy.ndarray) -> numpy.ndarray:
    """
    Return the score of each resample of the items, `(num_resamples,)`. The resamples are the same for all
    runs with the same number of items, so scores of different runs are paired.
    """
    num_items = len(counts)
    shares = numpy.full(num_items, 1 / num_items)
    # How often each item is drawn: (num_resamples, num_items)
    draws = numpy.random.default_rng(_SEED).multinomial(num_items, shares, _NUM_RESAMPLES)
    return score(numpy.tensordot(draws, counts, 1))


def score(sums: numpy.ndarray) -> numpy.ndarray:
    """Return the mean of the F1s of sums of counts: from `(..., num_fractions, 4)` to `(...)`."""
    correct, num_predicted, found, num_gold = numpy.moveaxis(sums, -1, 0)
    # From precision correct / num_predicted and recall found / num_gold; 0 if nothing is correct.
    denominator = correct * num_gold + found * num_predicted
    f1 = 2 * correct * found / numpy.where(denominator > 0, denominator, 1.0)
    return f1.mean(axis=-1)


def interval_over_items(differences: pandas.DataFrame) -> Optional[str]:
    """Return the middle 95 % of resamples, in columns, of the mean over seeds, in rows."""
    means = differences.dropna().mean()
    if means.dropna().empty:
        return None
    return "{:.2f} to {:.2f}".format(*means.quantile([0.025, 0.975]))
