"""The folder of a training run: which config and data it is of, and its scores."""

import hashlib
import json
import os
import re
import signal
from datetime import timedelta
from functools import lru_cache
from glob import glob
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from elmo_plugin.files.replaced_file import replaced_file
from elmo_plugin.report.tables import versions
from elmo_plugin.report.variants import Run

CONFIG_NAME, METRICS_NAME = "config.json", "metrics.json"  # of `allennlp train`
RECORD_NAME = "elmo_report.json"

_SHOWN_DIFFERENCES = 3
_NO_VALUE = "nothing"
# Keys of a config whose values name files.
_FILE_KEY = re.compile(r"(^|_)(paths?|files?|directory)$")
# The last line of a traceback, such as `allennlp.common.checks.ConfigurationError: ...`.
_ERROR_LINE = re.compile(
    r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Received)\b.*", re.MULTILINE
)


class RunScores(NamedTuple):
    """
    The result of a finished run.

    # Parameters

    validation : `float`
        The best score on validation data, as the metric gives it.
    test : `float`, optional
        On test data, if the config evaluates on it.
    curve : `List[float]`
        The score on validation data after each epoch.
    best_epoch : `int`
        Counted from 1.
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


class RunResult(NamedTuple):
    """
    # Parameters

    run : `Run`
        Which.
    scores : `RunScores`, optional
        `None` if the run failed.
    failure : `str`
        Why it failed, and where the log is; empty if it did not.
    versions : `Dict[str, str]`
        Those that the run was trained with, as far as they are known.
    """

    run: Run
    scores: Optional[RunScores]
    failure: str = ""
    versions: Dict[str, str] = {}


class RunFolder:
    """
    # Parameters

    path : `Path`
        The `--serialization-dir` of `allennlp train`. It may be missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def log_file(self) -> Path:
        """The output of the run, beside the folder."""
        return self.path.with_name(f"{self.path.name}.log")

    def is_finished(self) -> bool:
        return (self.path / METRICS_NAME).is_file()

    def is_empty(self) -> bool:
        return not self.path.exists() or (self.path.is_dir() and not any(self.path.iterdir()))

    def has_checkpoint(self) -> bool:
        """Whether `allennlp train --recover` could resume it."""
        return any(self.path.glob("training_state_*.th"))

    def write_record(self, hashes: Dict[str, str]) -> None:
        """Keep the hashes of the run's data, and the versions of this process, which started it."""
        record = {"data": hashes, "versions": versions()}
        with replaced_file(self.path / RECORD_NAME) as partial_file:
            partial_file.write_text(json.dumps(record, indent=2) + "\n")

    def read_record(self) -> Dict[str, Dict[str, str]]:
        """Return the data and versions of the run; nothing if no report started it."""
        path = self.path / RECORD_NAME
        return json.loads(path.read_text()) if path.is_file() else {}

    def check(self, config: Dict[str, Any], advice: str) -> None:
        """
        # Parameters

        config : `Dict[str, Any]`
            That the run should have.
        advice : `str`
            What a user can do, besides giving another folder.

        # Raises

        `ConfigurationError` if the folder holds something, but not a run of this config on data of the
        present content. A run without a record (from an earlier version, or started by a scheduler) counts
        as one on other data if a file has changed since it started.
        """
        if self.is_empty():
            return
        config_file = self.path / CONFIG_NAME
        try:
            found = json.loads(config_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{self.path}: exists, but has no {CONFIG_NAME} of a training run ({error}). Expected an "
                f"empty place or a run of this config. Give another results folder, or {advice}."
            ) from error
        advice = f"Give another results folder, another --name, or {advice}."
        differences = _differences(found, config)
        if differences:
            more = len(differences) - _SHOWN_DIFFERENCES
            shown = differences[:_SHOWN_DIFFERENCES] + ([f"and {more} more"] if more > 0 else [])
            raise ConfigurationError(
                f"{self.path}: is a run of another config: {'; '.join(shown)}. {advice}"
            )
        record = self.read_record()
        if record:
            present = data_hashes(config)
            changed = [key for key in present if record["data"].get(key) != present[key]]
            if changed:
                raise ConfigurationError(
                    f"{self.path}: is a run on other data: the content of {_named(config, changed)} has "
                    f"changed since. {advice}"
                )
            return
        start = config_file.stat().st_mtime
        changed = [
            key
            for key, value in _file_values(config)
            if any(file.stat().st_mtime > start for file in _files_of(value))
        ]
        if changed:
            raise ConfigurationError(
                f"{self.path}: may be a run on other data: {_named(config, changed)} changed after it "
                f"started, and it has no {RECORD_NAME}. {advice} If the content is the same, `touch "
                f"{config_file}`."
            )

    def scores(self, metric: str) -> RunScores:
        """
        Read the scores of a finished run.

        # Raises

        `ConfigurationError` if a file of metrics is missing or damaged, or `metric` is not in it.
        """
        metrics = _Metrics(self.path / METRICS_NAME)
        return RunScores(
            validation=metrics[f"best_validation_{metric}"],
            test=metrics.values.get(f"test_{metric}"),
            curve=[
                _Metrics(self.path / f"metrics_epoch_{epoch}.json")[f"validation_{metric}"]
                for epoch in range(metrics["epoch"] + 1)
            ],
            best_epoch=metrics["best_epoch"] + 1,
            minutes=_minutes(metrics["training_duration"]),
            peak_gigabytes=metrics["peak_worker_0_memory_MB"] / 1000,
        )

    def result(self, run: Run, metric: str) -> RunResult:
        """Return the result of a finished run; a failure if its scores cannot be read."""
        known = self.read_record().get("versions", {})
        try:
            return RunResult(run, self.scores(metric), versions=known)
        except ConfigurationError as error:
            return RunResult(run, None, str(error))

    def failure(self, return_code: int) -> str:
        """Return why the run failed, in a line, as far as its log says it."""
        if return_code < 0:
            hint = ", as a lack of memory does" if return_code == -signal.SIGKILL else ""
            return f"stopped by signal {-return_code}{hint}"
        text = self.log_file.read_text(encoding="utf-8", errors="replace")
        lines = [match[0] for match in _ERROR_LINE.finditer(text)] or text.split("\n")
        lines = [line.strip() for line in lines if line.strip()]
        return lines[-1] if lines else f"ended with code {return_code} and said nothing"


def data_hashes(config: Dict[str, Any]) -> Dict[str, str]:
    """
    Return the SHA-256 of the content that each path in a config names: a file, a folder or a glob pattern,
    under a key such as `train_data_path` or `model.weight_file`. Values that name no file here, as URLs,
    have none.
    """
    hashes = {}
    for key, value in _file_values(config):
        files = [(str(file), file.stat()) for file in _files_of(value)]
        contents = [
            (os.path.relpath(name, value), _file_hash(name, stat.st_size, stat.st_mtime_ns))
            for name, stat in files
        ]
        if contents:
            hashes[key] = hashlib.sha256(json.dumps(contents).encode()).hexdigest()
    return hashes


@lru_cache(maxsize=4096)
def _file_hash(path: str, size: int, modified: int) -> str:
    """Size and time of modification are only keys of the cache: the runs of a report share their data."""
    result = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            result.update(block)
    return result.hexdigest()


def _file_values(value: Any, key: str = "", names_files: bool = False) -> Iterator[Tuple[str, str]]:
    """The strings of a config that name files, with their dotted keys."""
    if isinstance(value, dict):
        for name, inner in value.items():
            is_file_key = _FILE_KEY.search(name) is not None
            yield from _file_values(inner, f"{key}.{name}" if key else name, is_file_key)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _file_values(inner, f"{key}.{number}", names_files)
    elif isinstance(value, str) and names_files:
        yield key, value


def _files_of(value: str) -> List[Path]:
    path = Path(value)
    if path.is_dir():
        return [file for file in sorted(path.rglob("*")) if file.is_file()]
    return [path] if path.is_file() else [Path(name) for name in sorted(glob(value))]


def _named(config: Dict[str, Any], keys: Sequence[str]) -> str:
    values = dict(_file_values(config))
    return ", ".join(f"{key} ({values[key]})" for key in keys)


class _Metrics:
    """A file of metrics, with errors that name it."""

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
                f"{self.path}: found no {key}, expected metrics of `allennlp train`, and among them what "
                "the config's trainer.validation_metric names. Remove the folder, to train it anew."
            )
        return self.values[key]


def _differences(found: Dict[str, Any], expected: Dict[str, Any]) -> List[str]:
    """Describe the keys in which two configs differ."""
    found, expected = Params(found).as_flat_dict(), Params(expected).as_flat_dict()

    def shown(config: Dict[str, Any], key: str) -> str:
        return json.dumps(config[key], ensure_ascii=False) if key in config else _NO_VALUE

    return [
        f"{key} is {shown(found, key)}, expected {shown(expected, key)}"
        for key in {**expected, **found}
        if found.get(key, _NO_VALUE) != expected.get(key, _NO_VALUE)
    ]


def _minutes(duration: str) -> float:
    """Of `str(timedelta)`, such as `1 day, 0:03:29.280337`."""
    match = re.fullmatch(r"(?:(\d+) days?, )?(\d+):(\d+):([\d.]+)", duration)
    assert match is not None, duration
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds() / 60
