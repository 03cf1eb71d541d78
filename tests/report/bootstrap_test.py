import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List

import numpy
import pytest
import torch
from allennlp.data import Instance
from allennlp.modules.scalar_mix import ScalarMix as AllenNlpScalarMix

from elmo_plugin.modules.scalar_mix import ScalarMix
from elmo_plugin.report import bootstrap
from elmo_plugin.report.bootstrap import COUNTS_NAME, item_counts, resampled_scores, score
from elmo_plugin.report.runs import RunFolder
from tests.closeness import assert_close


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
    monkeypatch.setattr(bootstrap, "_NUM_RESAMPLES", 20)
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

    monkeypatch.setattr(bootstrap, "opened_archive", opened_archive)
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
    monkeypatch.setattr(bootstrap, "opened_archive", lambda path: archive)
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
    monkeypatch.setattr(bootstrap, "opened_archive", lambda path: archive)
    (tmp_path / "best.th").touch()
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    config = {"validation_data_path": "dev", "test_data_path": "test", "evaluate_on_test": True}
    counts = item_counts(RunFolder(tmp_path, config), "f1")
    assert counts.shape == (1, 1, 4)
    assert read == [part]
