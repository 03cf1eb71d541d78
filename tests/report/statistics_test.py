import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import numpy
import pandas
import pytest
import torch
from allennlp.data import Instance
from allennlp.modules.scalar_mix import ScalarMix as AllenNlpScalarMix

from elmo_plugin.modules.scalar_mix import ScalarMix
from elmo_plugin.report import statistics
from elmo_plugin.report.runs import RunFolder
from elmo_plugin.report.statistics import (
    COUNTS_NAME,
    corrected_p_values,
    holm,
    interval_over_items,
    item_counts,
    paired_differences,
    resampled_scores,
    score,
)
from tests.closeness import assert_close


def rows_of(frame: pandas.DataFrame) -> List[List[Any]]:
    """The rows of a frame, with `None` for missing values."""
    return [
        [None if pandas.isna(cell) else cell for cell in row]
        for row in frame.itertuples(index=False)
    ]


def test_differences_are_paired_by_seed() -> None:
    scores = pandas.DataFrame(
        [[50.0, 60, 70], [51, 62, 73], [10, None, None], [None, None, None], [None, 90, 0]],
        index=["a", "b", "c", "d", "e"],
        columns=[1, 2, 3],
    )
    rows = rows_of(paired_differences({"dev": scores}))
    # Mean 2, standard error 1 / sqrt(3); 4.303 is Student's t with two degrees of freedom.
    margin = 4.302653 / math.sqrt(3)
    assert rows[0] == ["b", "a", 3, 2.0, f"{2 - margin:.2f} to {2 + margin:.2f}"]
    assert rows[1] == ["c", "a", 1, -40.0, None]
    assert rows[2] == ["d", "a", 0, None, None]
    assert rows[3] == ["e", "a", 2, -20.0, "two seeds: no claim"]  # rather than -655 to 615
    assert len(rows) == 10


def test_seeds_are_those_of_the_first_measure() -> None:
    dev = pandas.DataFrame([[50.0, 60], [51, 62]], index=["a", "b"], columns=[1, 2])
    [row] = rows_of(paired_differences({"dev": dev, "test": dev * float("nan")}))
    assert row[2:4] == [2, 1.5]


def test_p_values_are_corrected_by_holm() -> None:
    # 4 * 0.005, 3 * 0.01, 2 * 0.03; 0.04 not less than the one before.
    assert_close(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.6]) == [1.0, 1.0]


def test_planned_pairs_without_enough_seeds_or_with_equal_differences_count() -> None:
    scores = pandas.DataFrame(
        [[50.0, 60.0, 70.0], [51.0, 62.0, 73.0], [10.0, None, 20.0], [50.1, 60.1, 70.1]],
        index=["a", "b", "c", "d"],
    )
    planned = [("b", "a"), ("c", "a"), ("a", "a"), ("d", "a")]
    first, *others = corrected_p_values(scores, planned)
    # t = 2 * sqrt(3), with two degrees of freedom p = 1 - t / sqrt(2 + t ** 2). Four are planned.
    assert_close(first, 4 * (1 - math.sqrt(12 / 14)), terms=100)  # steps of Student's distribution
    # Of equal differences the variance is 0, or that of their roundings.
    assert others == [None, None, None]


def of_tags(*sentences: Any) -> numpy.ndarray:
    """Counts of sentences: numbers of correct, predicted and gold spans of each."""
    return numpy.array([[[c, p, c, g]] for c, p, g in sentences], float)


@pytest.mark.parametrize(
    "sums, expected",
    [
        ([[2, 3, 2, 4]], 4 / 7),  # precision 2/3, recall 2/4
        ([[3, 4, 3, 4]], 3 / 4),  # an accuracy
        ([[0, 0, 0, 0]], 0.0),
        ([[0, 5, 0, 4]], 0.0),
        ([[1, 2, 1, 2], [1, 1, 1, 1], [0, 1, 0, 1]], (1 / 2 + 1 + 0) / 3),  # as of CoNLL-2012
        ([[1, 4, 3, 4]], 2 * (1 / 4) * (3 / 4) / (1 / 4 + 3 / 4)),  # as of B-cubed
    ],
)
def test_a_score_is_the_mean_of_f1s(sums: List[Any], expected: float) -> None:
    assert_close(score(numpy.array(sums, float)), expected)


def test_the_score_of_a_resample_is_that_of_its_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow loop, which draws items by their counts."""
    monkeypatch.setattr(statistics, "_NUM_RESAMPLES", 20)
    counts = of_tags((1, 2, 1), (0, 1, 3), (4, 4, 4))
    draws = numpy.random.default_rng(0).multinomial(3, [1 / 3] * 3, 20)
    expected = []
    for times in draws:
        correct, predicted, _, gold = sum(number * c for number, [c] in zip(times, counts))
        expected.append(2 * correct / (predicted + gold))
    assert_close(resampled_scores(counts), numpy.array(expected))


def test_the_interval_of_an_accuracy_is_that_of_the_binomial_distribution() -> None:
    resampled = resampled_scores(of_tags(*[(1, 1, 1)] * 30, *[(0, 1, 1)] * 70))
    # The 2.5 % and 97.5 % quantiles of 100 draws with probability 0.3, or a neighbor of theirs.
    assert numpy.percentile(resampled, [2.5, 97.5]) == pytest.approx([0.21, 0.39], abs=0.0101)
    deviation = (0.3 * 0.7 / 100) ** 0.5
    assert abs(resampled.mean() - 0.3) < 5 * deviation / len(resampled) ** 0.5


def test_runs_are_paired_by_item() -> None:
    """Items that are as much easier for both do not change a difference."""
    hard, easy = [(k, 10, 10) for k in range(5)], [(k + 3, 10, 10) for k in range(5)]
    differences = resampled_scores(of_tags(*easy)) - resampled_scores(of_tags(*hard))
    assert_close(differences, numpy.full(len(differences), 0.3))
    # The mean of five draws of 0, 0.1 ... 0.4, whose variance is 0.02; that of n values has a relative error
    # of at most sqrt(2 / n).
    variance = resampled_scores(of_tags(*hard)).var()
    assert variance == pytest.approx(0.02 / 5, rel=5 * (2 / len(differences)) ** 0.5)


def test_the_interval_over_items_is_the_middle_of_the_means_over_seeds() -> None:
    resamples = numpy.arange(201.0)  # differences of a seed; of another one, and of one that failed
    differences = pandas.DataFrame([resamples, resamples + 2, resamples * math.nan])
    assert interval_over_items(differences) == "6.00 to 196.00"  # 2.5 % of 200 from each end
    assert interval_over_items(differences.iloc[2:]) is None


def test_counts_are_read_from_the_folder_of_a_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, {})
    assert item_counts(folder, "f1") is None
    (tmp_path / COUNTS_NAME).write_text(json.dumps({"f1": [[[1, 2, 1, 3]]]}))
    assert item_counts(folder, "f1") == pytest.approx(numpy.array([[[1, 2, 1, 3]]]))
    assert item_counts(folder, "loss") is None


def test_a_model_without_counts_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: List[Path] = []

    def opened_archive(path: Path) -> SimpleNamespace:
        opened.append(path)
        return SimpleNamespace(model=torch.nn.Linear(1, 1))

    monkeypatch.setattr(statistics, "opened_archive", opened_archive)
    (tmp_path / "best.th").touch()
    for _ in range(2):
        assert item_counts(RunFolder(tmp_path, {}), "f1") is None
    assert opened == [tmp_path]  # once


@pytest.mark.parametrize("mix_class", [ScalarMix, AllenNlpScalarMix])
def test_items_alone_say_nothing_of_layers_that_are_normalized_over_a_batch(
    mix_class: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Counting()
    model.mix = mix_class(2, do_layer_norm=True)
    archive = SimpleNamespace(model=model)
    monkeypatch.setattr(statistics, "opened_archive", lambda path: archive)
    (tmp_path / "best.th").touch()
    assert item_counts(RunFolder(tmp_path, {}), "f1") is None


class Counting(torch.nn.Module):
    """A model that answers nothing, and counts one item."""

    get_metrics = forward_on_instances = lambda *arguments, **options: None

    def counts(self) -> Dict[str, Any]:
        return {"f1": [[1, 1, 1, 1]]}


@pytest.mark.parametrize("metrics, part", [({"test_f1": 0.5}, "test"), ({}, "dev")])
def test_the_items_are_those_that_a_run_was_measured_on(
    metrics: Dict[str, float], part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After distributed training nothing is evaluated on test data, whatever the config says."""
    read: List[str] = []
    reader = SimpleNamespace(
        read=lambda path: read.append(path) or [Instance({})],
        apply_token_indexers=lambda instance: None,
    )
    archive = SimpleNamespace(model=Counting(), validation_dataset_reader=reader)
    monkeypatch.setattr(statistics, "opened_archive", lambda path: archive)
    (tmp_path / "best.th").touch()
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    config = {"validation_data_path": "dev", "test_data_path": "test", "evaluate_on_test": True}
    counts = item_counts(RunFolder(tmp_path, config), "f1")
    assert counts.shape == (1, 1, 4)
    assert read == [part]
