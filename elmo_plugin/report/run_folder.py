"""The folder of a training run: whether it is done, of which config it is, and what came out."""

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

CONFIG_NAME = "config.json"
METRICS_NAME = "metrics.json"

_SHOWN_DIFFERENCES = 3
_NO_VALUE = "nothing"
# The last line of a traceback, such as `allennlp.common.checks.ConfigurationError: ...`.
_ERROR_LINE = re.compile(
    r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Received)\b.*", re.MULTILINE
)


class RunScores(NamedTuple):
    """
    What came out of a run that is done.

    # Parameters

    validation : `float`
        The best score on validation data, as the metric gives it.
    test : `float`, optional
        On test data, if the config evaluates on it.
    curve : `List[float]`
        The score on validation data after each epoch.
    best_epoch : `int`
        Which was kept, counted from 1.
    minutes : `float`
        Of training and validation.
    peak_gigabytes : `float`
        Of memory, 10^9 bytes.
    """

    validation: float
    test: Optional[float]
    curve: List[float]
    best_epoch: int
    minutes: float
    peak_gigabytes: float


class RunFolder:
    """
    # Parameters

    path : `Path`
        What `allennlp train` has as `--serialization-dir`. It need not be there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def log_file(self) -> Path:
        """What the run says, beside the folder."""
        return self.path.with_name(f"{self.path.name}.log")

    def is_done(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / METRICS_NAME).is_file()

    def is_begun(self) -> bool:
        """Whether there is anything."""
        return self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir()))

    def has_checkpoint(self) -> bool:
        """Whether `allennlp train --recover` could go on with it."""
        return any(self.path.glob("training_state_*.th"))

    def check_config(self, config: Dict[str, Any], advice: str) -> None:
        """
        # Parameters

        config : `Dict[str, Any]`
            That the run should have.
        advice : `str`
            What a user can do, besides giving another folder.

        # Raises

        `ConfigurationError` if there is something, but not a run of this config.
        """
        if not self.is_begun():
            return
        try:
            found = json.loads((self.path / CONFIG_NAME).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{self.path}: is there, but has no {CONFIG_NAME} of a training run ({error}). Expected an "
                f"empty place or a run of this config. Give another results folder, or {advice}."
            ) from error
        differences = _differences(found, config)
        if differences:
            more = len(differences) - _SHOWN_DIFFERENCES
            raise ConfigurationError(
                f"{self.path}: is a run of another config: "
                f"{'; '.join(differences[:_SHOWN_DIFFERENCES])}{f'; and {more} more' if more > 0 else ''}. "
                f"Give another results folder, another --name, or {advice}."
            )

    def scores(self, metric: str) -> RunScores:
        """
        What came out, for a run that is done.

        # Raises

        `ConfigurationError` if a file of metrics is not there or damaged, or `metric` is not in it.
        """
        metrics = _Metrics(self.path / METRICS_NAME)
        epochs = range(metrics["epoch"] + 1)
        return RunScores(
            validation=metrics[f"best_validation_{metric}"],
            test=metrics.values.get(f"test_{metric}"),
            curve=[
                _Metrics(self.path / f"metrics_epoch_{epoch}.json")[f"validation_{metric}"]
                for epoch in epochs
            ],
            best_epoch=metrics["best_epoch"] + 1,
            minutes=_minutes(metrics["training_duration"]),
            peak_gigabytes=metrics["peak_worker_0_memory_MB"] / 1000,
        )

    def failure(self, return_code: int) -> str:
        """Why the run failed, in a line, as far as its log says it."""
        if return_code < 0:
            return f"stopped by signal {-return_code}" + (
                ", as a lack of memory does" if return_code == -9 else ""
            )
        text = self.log_file.read_text(encoding="utf-8", errors="replace")
        errors = [match[0] for match in _ERROR_LINE.finditer(text)]
        lines = [line for line in text.splitlines() if line.strip()]
        if errors:
            return errors[-1].strip()
        return lines[-1].strip() if lines else f"ended with code {return_code} and said nothing"


class _Metrics:
    """A file of metrics, which says what is wrong with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.values: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{path}: cannot be read as JSON ({error}), expected metrics of `allennlp train`. Remove "
                "the folder, to train it anew."
            ) from error

    def __getitem__(self, key: str) -> Any:
        if key not in self.values:
            raise ConfigurationError(
                f"{self.path}: there is no {key}, expected metrics of `allennlp train`, and among them what "
                "the config's trainer.validation_metric names. Remove the folder, to train it anew."
            )
        return self.values[key]


def _differences(found: Dict[str, Any], expected: Dict[str, Any]) -> List[str]:
    """What to tell of the keys in which two configs differ."""
    found, expected = Params(found).as_flat_dict(), Params(expected).as_flat_dict()
    keys = [*expected, *(key for key in found if key not in expected)]
    return [
        f"{key} is {_shown(found, key)}, expected {_shown(expected, key)}"
        for key in keys
        if found.get(key, _NO_VALUE) != expected.get(key, _NO_VALUE)
    ]


def _shown(config: Dict[str, Any], key: str) -> str:
    return json.dumps(config[key], ensure_ascii=False) if key in config else _NO_VALUE


def _minutes(duration: str) -> float:
    """Of `str(timedelta)`, such as `1 day, 0:03:29.280337`."""
    match = re.fullmatch(r"(?:(\d+) days?, )?(\d+):(\d+):([\d.]+)", duration)
    assert match is not None, duration
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds() / 60
