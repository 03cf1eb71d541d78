import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.report.experiment import ELMO_KEY
from elmo_plugin.report.grid import GridOptions
from elmo_plugin.report.report_table import ReportTable, read_table
from elmo_plugin.report.sample_efficiency import compare_shares
from elmo_plugin.report.variant_report import GridReport
from tests.report.conftest import REPOSITORY, FakeTraining
from tests.report.fake_runs import write_run

TINY = REPOSITORY / "fixtures" / "ner" / "tiny"
pytest.importorskip("matplotlib")


@pytest.fixture
def options(tmp_path: Path) -> Callable[..., GridOptions]:
    """Of the tiny config: eight sentences, in batches of four."""

    def make(**changes: Any) -> GridOptions:
        config = str(TINY / "experiment_elmo.jsonnet")
        return GridOptions(config, str(tmp_path / "results"), **{"seeds": [1, 2], **changes})

    return make


Options = Callable[..., GridOptions]


def tables_of(report: Any) -> List[ReportTable]:
    assert isinstance(report, GridReport)
    return report.tables


def column(table: ReportTable, name: str) -> List[Any]:
    return [row[table.columns.index(name)] for row in table.rows]


def configs(options: GridOptions) -> Dict[str, Any]:
    folder = Path(options.output) / "runs"
    return {path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/config.json")}


def test_scores_stand_by_share(training: FakeTraining, options: Options) -> None:
    by_share, _ = tables_of(compare_shares(options(), [1.0, 0.5, 0.25, 0.5]))
    assert by_share.name == "sample-efficiency-ner"
    assert column(by_share, "share") == [0.25, 0.25, 0.5, 0.5, 1.0, 1.0]
    assert column(by_share, "instances") == [2, 2, 4, 4, 8, 8]
    assert column(by_share, "ELMo") == ["no ELMo", "ELMo"] * 3
    assert column(by_share, "dev f1 (%), seed 1") == [7.75, 15.25, 15.5, 30.5, 31.0, 61.0]
    assert by_share.settings["command"].endswith("--seeds 1 2 --fractions 0.25 0.5 1")


def test_scores_stand_by_epoch(training: FakeTraining, options: Options) -> None:
    _, by_epoch = tables_of(compare_shares(options(seeds=[1]), [0.5, 1.0]))
    assert by_epoch.name == "sample-efficiency-epochs-ner"
    # The fake runs are best in their second epoch, and with ELMo half as good in the first.
    assert by_epoch.columns[:3] == ["share", "seed", "no ELMo, best dev f1 (%)"]
    assert by_epoch.rows == [[0.5, 1, 15.5, 2, 30.5, 2, 2], [1.0, 1, 31.0, 2, 61.0, 2, 2]]


def test_the_epoch_in_which_elmo_passes_is_the_first_that_is_better(
    training: FakeTraining, options: Options
) -> None:
    given = options(seeds=[1])
    compare_shares(given, [1.0])
    folder = Path(given.output) / "runs" / "ner-both-seed1"
    config = json.loads((folder / "config.json").read_text())
    for curve, passes in [([0.4, 0.5], 1), ([0.31, 0.32, 0.5], 2), ([0.3, 0.31], None)]:
        write_run(folder, config, curve)
        _, by_epoch = tables_of(compare_shares(given, [1.0]))
        assert column(by_epoch, "passes in epoch") == [passes]


def test_of_a_loss_the_smallest_is_best(training: FakeTraining, options: Options) -> None:
    # The fake runs measure f1 alone, whatever its sign: ELMo's is never below the baseline's.
    given = options(seeds=[1], overrides={"trainer.validation_metric": "-f1"})
    _, by_epoch = tables_of(compare_shares(given, [1.0]))
    # 0.305 in its first epoch is less than 0.31.
    assert by_epoch.rows == [[1.0, 1, 0.31, 2, 0.61, 2, 1]]


def test_tables_and_pictures_are_written(training: FakeTraining, options: Options) -> None:
    report = compare_shares(options(), [0.5, 1.0])
    assert report is not None
    assert len(report.files) == 10 and all(path.is_file() for path in report.files)
    for table in report.tables:
        assert read_table(Path(options().output) / f"{table.name}.json") == table
        assert (Path(options().output) / f"{table.name}.svg").is_file()


def test_all_of_the_data_is_the_run_that_other_reports_need(
    training: FakeTraining, options: Options
) -> None:
    compare_shares(options(seeds=[1]), [0.5, 1.0])
    assert training.started == [
        *("ner-none-share_0.5-batches_2-seed1", "ner-both-share_0.5-batches_2-seed1"),
        *("ner-none-seed1", "ner-both-seed1"),
    ]


def test_each_seed_has_its_share(training: FakeTraining, options: Options) -> None:
    compare_shares(options(), [0.5])
    assert {
        name: (config["dataset_reader"]["share"], config["dataset_reader"]["seed"])
        for name, config in configs(options()).items()
    } == {
        f"ner-{placement}-share_0.5-batches_2-seed{seed}": (0.5, seed)
        for placement in ("none", "both")
        for seed in (1, 2)
    }


@pytest.mark.parametrize("once_through, batches", [(False, 2), (True, None)])
def test_an_epoch_has_as_many_batches_for_each_share_or_is_once_through_it(
    once_through: bool, batches: Optional[int], training: FakeTraining, options: Options
) -> None:
    given = options(seeds=[1])
    by_share, by_epoch = tables_of(compare_shares(given, [0.25, 1.0], once_through))
    part = "" if once_through else "-batches_2"
    assert {
        name: config["data_loader"].get("batches_per_epoch")
        for name, config in configs(given).items()
    } == {
        f"ner-none-share_0.25{part}-seed1": batches,
        f"ner-both-share_0.25{part}-seed1": batches,
        "ner-none-seed1": None,
        "ner-both-seed1": None,
    }
    assert by_share.settings["command"].endswith(" --once-through") == once_through
    for table in (by_share, by_epoch):
        assert any("as many batches for each share" in note for note in table.notes) != once_through


def test_batches_are_those_of_a_sampler(training: FakeTraining, options: Options) -> None:
    loader = {"batch_sampler": {"type": "bucket", "batch_size": 3, "sorting_keys": ["tokens"]}}
    given = options(seeds=[1], overrides={"data_loader": loader})
    compare_shares(given, [0.5])
    assert {config["data_loader"]["batches_per_epoch"] for config in configs(given).values()} == {3}


def test_failed_runs_are_marked_in_both_tables(training: FakeTraining, options: Options) -> None:
    training.failing = {"ner-both-share_0.5-batches_2-seed1", "ner-none-seed1"}
    report = compare_shares(options(seeds=[1]), [0.5, 1.0])
    by_share, by_epoch = tables_of(report)
    assert column(by_share, "dev f1 (%), seed 1") == [15.5, "failed", "failed", 61.0]
    assert by_epoch.rows == [
        [0.5, 1, 15.5, 2, "failed", None, None],
        [1.0, 1, "failed", None, 61.0, 2, None],
    ]
    assert report is not None and len(report.failures) == 2


def test_a_dry_run_reads_data_only_to_count_batches(
    options: Options, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert compare_shares(options(dry_run=True), [0.5]) is None
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all('"data_loader.batches_per_epoch": 2' in line for line in lines)
    given = options(dry_run=True, overrides={"train_data_path": "no/such/file"})
    assert compare_shares(given, [0.5, 1.0], once_through=True) is None
    assert len(capsys.readouterr().out.splitlines()) == 8


class TestBadInput:
    @pytest.fixture(autouse=True)
    def nothing_is_trained(self, training: FakeTraining) -> Any:
        yield
        assert training.started == []

    @pytest.mark.parametrize("fraction", [0.0, -0.1, 1.5, float("nan")])
    def test_a_fraction_that_is_no_share(self, fraction: float, options: Options) -> None:
        with pytest.raises(
            ConfigurationError, match=r"--fractions: found .*larger than 0, at most 1"
        ):
            compare_shares(options(), [0.5, fraction])

    def test_a_baseline(self, options: Options) -> None:
        with pytest.raises(ConfigurationError, match="placement is 'none'"):
            compare_shares(options(overrides={f"{ELMO_KEY}.placement": "none"}))

    def test_training_data_that_is_not_there(self, options: Options) -> None:
        with pytest.raises(ConfigurationError, match="no/such/file"):
            compare_shares(options(overrides={"train_data_path": "no/such/file"}))

    def test_training_data_without_an_instance(self, options: Options) -> None:
        with pytest.raises(ConfigurationError, match="train_data_path: found no instance"):
            compare_shares(options(overrides={"dataset_reader.max_instances": 0}))

    def test_batches_of_no_size(self, options: Options) -> None:
        loader = {"batch_sampler": {"type": "max_tokens_sampler", "max_tokens": 100}}
        with pytest.raises(ConfigurationError, match=r"neither data_loader\.batch_size nor"):
            compare_shares(options(overrides={"data_loader": loader}), [0.5])
