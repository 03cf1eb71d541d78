"""`sample-efficiency`: training is faked, its results are not."""

import json
from typing import Any, Callable, Dict

import pytest

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.sample_efficiency import SampleEfficiencyOptions, compare_shares
from elmo_plugin.report.variants import ELMO_KEY
from tests.report.conftest import REPOSITORY, FakeTraining, column, tables_of
from tests.report.fake_runs import write_run

TINY = REPOSITORY / "fixtures" / "ner" / "tiny"
Options = Callable[..., Any]


@pytest.fixture
def shares(options: Options) -> Options:
    """Of the tiny config: eight sentences, in batches of four."""

    def make(**changes: Any) -> SampleEfficiencyOptions:
        given = {"config_file": TINY / "experiment_elmo.jsonnet", "seeds": (1,), **changes}
        return options(SampleEfficiencyOptions, **given)

    return make


def test_scores_by_share(training: FakeTraining, shares: Options) -> None:
    report = compare_shares(shares(fractions=(1.0, 0.5, 0.25, 0.5), seeds=(1, 2)))
    assert report is not None
    table, _, differences = tables_of(report)
    assert table.name == "sample-efficiency-ner"
    assert column(table, "share") == [0.25, 0.25, 0.5, 0.5, 1.0, 1.0]
    assert column(table, "instances") == [2, 2, 4, 4, 8, 8]
    assert column(table, "ELMo") == ["no ELMo", "ELMo"] * 3
    assert column(table, "dev f1 (%), seed 1") == [7.75, 15.25, 15.5, 30.5, 31.0, 61.0]
    assert [row[:5] for row in differences.rows] == [
        [0.25, "ELMo", "no ELMo", 2, 7.5],
        [0.5, "ELMo", "no ELMo", 2, 15.0],
        [1.0, "ELMo", "no ELMo", 2, 30.0],
    ]
    assert len(report.files) == 11 and all(path.is_file() for path in report.files)
    assert training.started[-2:] == ["ner-both-seed1", "ner-both-seed2"]


def test_scores_by_epoch(training: FakeTraining, shares: Options) -> None:
    given = shares(fractions=(0.5, 1.0))
    by_epoch = tables_of(compare_shares(given))[1]
    assert by_epoch.name == "sample-efficiency-epochs-ner"
    assert by_epoch.columns[:3] == ["share", "seed", "no ELMo, best dev f1 (%)"]
    # The fake runs are best in their second epoch, and with ELMo half as good in the first.
    assert by_epoch.rows == [[0.5, 1, 15.5, 2, 30.5, 2, 2], [1.0, 1, 31.0, 2, 61.0, 2, 2]]
    folder = given.runs_folder / "ner-both-seed1"
    config = json.loads((folder / "config.json").read_text())
    for curve, passes in [([0.4, 0.5], 1), ([0.31, 0.32, 0.5], 2), ([0.3, 0.31], None)]:
        write_run(folder, config, curve)
        again = tables_of(compare_shares(shares(fractions=(1.0,))))[1]
        assert column(again, "passes in epoch") == [passes]


def test_of_a_loss_the_smallest_is_best(training: FakeTraining, shares: Options) -> None:
    overrides = {"trainer.validation_metric": "-f1"}
    report = compare_shares(shares(overrides=overrides, fractions=(1.0,)))
    # 0.305 in its first epoch is less than 0.31.
    assert tables_of(report)[1].rows == [[1.0, 1, 0.31, 2, 0.61, 2, 1]]


def test_a_share_has_the_batches_of_an_epoch_of_all_data(
    training: FakeTraining, shares: Options
) -> None:
    given = shares(fractions=(0.25, 1.0))
    compare_shares(given)
    assert training.started[0] == "ner-none-share_0.25-batches_2-seed1"
    config_file = given.runs_folder / training.started[1] / "config.json"
    config = json.loads(config_file.read_text())
    assert config["data_loader"]["batches_per_epoch"] == 2
    assert (config["dataset_reader"]["share"], config["dataset_reader"]["seed"]) == (0.25, 1)
    training.started.clear()
    loader = {"batch_sampler": {"type": "bucket", "batch_size": 3, "sorting_keys": ["tokens"]}}
    compare_shares(shares(overrides={"data_loader": loader}, fractions=(0.5,)))
    assert training.started[0] == "ner-none-share_0.5-batches_3-seed1"


def test_failed_runs_are_marked_in_both_tables(training: FakeTraining, shares: Options) -> None:
    training.failing = {"ner-both-share_0.5-batches_2-seed1", "ner-none-seed1"}
    report = compare_shares(shares(fractions=(0.5, 1.0)))
    assert report is not None and len(report.failures) == 2
    by_share, by_epoch, _ = tables_of(report)
    assert column(by_share, "dev f1 (%), seed 1") == [15.5, "failed", "failed", 61.0]
    assert by_epoch.rows == [
        [0.5, 1, 15.5, 2, "failed", None, None],
        [1.0, 1, "failed", None, 61.0, 2, None],
    ]


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"fractions": (0.5, 0.0)}, r"--fractions: found 0\.0, .*larger than 0, at most 1"),
        ({"fractions": (float("nan"),)}, "--fractions: found nan"),
        ({"overrides": {f"{ELMO_KEY}.placement": "none"}}, "placement is 'none'"),
        ({"overrides": {"train_data_path": "no/such/file"}}, "no/such/file"),
        ({"overrides": {"dataset_reader.max_instances": 0}}, "found no instance"),
        ({"overrides": {"data_loader": {"batch_sampler": {"type": "a"}}}}, "neither data_load"),
    ],
)
def test_what_has_no_shares_is_refused_before_training(
    changes: Dict[str, Any], match: str, training: FakeTraining, shares: Options
) -> None:
    with pytest.raises(ConfigurationError, match=match):
        compare_shares(shares(**changes))
    assert training.started == []
