"""How the speed of a machine is measured, and how a training is started."""

import json
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator

import pytest
from allennlp.common import Params

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import process
from elmo_plugin.pretraining.plan import CONFIG_NAME, Settings, base_config


@pytest.mark.parametrize(
    "num_words, seconds",
    [
        (10**9, 30.0),  # much text: half a minute
        (100_000, 10.0),  # a tenth of 100 seconds at 1,000 words a second
        (1_000, 0.1),
    ],
)
def test_a_short_training_is_not_measured_for_longer_than_a_tenth_of_it(
    num_words: int, seconds: float
) -> None:
    record = {"words": 5000, "seconds": 5.0}
    assert process._seconds_to_measure(num_words, record) == pytest.approx(seconds)


def test_what_is_measured_is_training_of_the_whole_biLM_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: Dict[str, Any] = {}

    @contextmanager
    def running(folder: Path, name: str, argument: str) -> Iterator[Any]:
        measured.update(Params.from_file(folder / CONFIG_NAME).as_dict(quiet=True))
        (folder / name).mkdir()
        # The second record is of the end of an epoch, and has no more words.
        lines = [json.dumps({"words": 600, "seconds": seconds}) + "\n" for seconds in (5.0, 6.0)]
        (folder / name / process.PROGRESS_NAME).write_text("".join(lines))
        yield SimpleNamespace(poll=lambda: None)

    monkeypatch.setattr(process, "_running", running)
    config = base_config(Settings("mini", "start", False, 1.0, None))
    config["model"]["softmax_first"] = 500  # batches in which the biLM is frozen, and faster
    config["trainer"]["patience"] = 1  # which needs validation
    others = config["trainer"]["callbacks"][:-1]
    assert others == ["elmo_validate_first", "elmo_bilm_state"]
    assert process.measured_speed(config, tmp_path, 1000) == 100.0
    first_line = (tmp_path / CONFIG_NAME).read_text().splitlines()[0]
    assert first_line == "// Made by: elmo pretrain, to measure the speed"
    assert measured["model"] == {**config["model"], "softmax_first": 0}
    assert not any(key.startswith("validation") for key in measured)
    # It ends when it is stopped, and no key needs a validation.
    endless = {"num_epochs": 1_000_000, "patience": None, "learning_rate_scheduler": None}
    assert measured["trainer"] == {**config["trainer"], **endless}
    assert config["model"]["softmax_first"] == 500


@pytest.mark.parametrize(
    "file, argument", [("model_state_e0_b4.th", "--recover"), ("vocabulary", "--force")]
)
def test_a_training_continues_from_a_checkpoint_and_its_failure_is_an_error(
    file: str, argument: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / process.RUN_NAME).mkdir()
    (tmp_path / process.RUN_NAME / file).touch()
    (tmp_path / process.LOG_NAME).write_text("ValueError: it failed\n")
    started = []
    plan: Any = SimpleNamespace(words=100)

    @contextmanager
    def running(*arguments: Any) -> Iterator[Any]:
        started.append(arguments)
        yield SimpleNamespace(poll=lambda: 1, returncode=1)

    monkeypatch.setattr(process, "_running", running)
    with pytest.raises(ConfigurationError, match=r"it failed.* --resume .*last checkpoint"):
        process.train(tmp_path, plan)
    assert started == [(tmp_path, process.RUN_NAME, argument)]
    # A training that has ended is not trained again.
    monkeypatch.setattr(process, "archive_model", lambda run: None)
    (tmp_path / process.RUN_NAME / process.METRICS_NAME).touch()
    process.train(tmp_path, plan)
    assert len(started) == 1
