"""The folder of a training run: the record of its config and data, and its scores."""

import hashlib
import json
import os
import re
import signal
from functools import lru_cache
from glob import glob
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from allennlp.common import Params

from elmo_plugin.bilm.model_files import is_pretrained, pretrained_files
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import replaced_file
from elmo_plugin.report.tables import versions

METRICS_NAME = "metrics.json"  # of `allennlp train`

_SHOWN_DIFFERENCES = 3
# Keys of a config whose values name files.
_FILE_KEY = re.compile(r"(^|_)(paths?|files?|directory)$")
# The last line of a traceback, such as `allennlp.common.checks.ConfigurationError: ...`.
_ERROR_LINE = re.compile(
    r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Received)\b.*", re.MULTILINE
)


class RunScores(NamedTuple):
    """The scores of a finished run, and what it took."""

    validation: float  # the best score on validation data
    test: Optional[float]  # if the config evaluates on test data
    curve: List[float]  # on validation data, after each epoch
    best_epoch: int  # counted from 1
    minutes: float  # of training and validation
    peak_gigabytes: float  # of memory, 10^9 bytes

    @property
    def epochs(self) -> int:
        return len(self.curve)


class RunFolder:
    """
    The `--serialization-dir` of `allennlp train`, which may not exist yet. Beside it are the config of the
    run, its log, and a record: the versions that it was started with, and its config with a hash of the
    content in place of each path.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path.with_name(f"{path.name}.json")
        self.log_file = path.with_name(f"{path.name}.log")
        self.record_file = path.with_name(f"{path.name}.record.json")

    def is_finished(self) -> bool:
        return (self.path / METRICS_NAME).is_file()

    def has_checkpoint(self) -> bool:
        """Return whether `allennlp train --recover` can resume the run."""
        return any(self.path.glob("training_state_*.th"))

    def prepare(self, config: Dict[str, Any]) -> None:
        """Write the config and the record of a run. Call it before the run reads its data."""
        _write_json(config, self.config_file)
        _write_json({"config": hashed(config), "versions": versions()}, self.record_file)

    def check(self, config: Dict[str, Any]) -> None:
        """
        Raise an error if the folder contains anything other than a run of this config on the present content
        of its data, wherever that is.
        """
        if not self.path.exists() or (self.path.is_dir() and not any(self.path.iterdir())):
            return
        advice = "Give another results folder, another --name, or --overwrite to replace it."
        try:
            found = self._record()["config"]
        except (OSError, ValueError, KeyError) as error:
            raise ConfigurationError(
                f"{self.path}: has no record of the config and data of a run ({error}), expected an empty "
                f"folder or a run that a report has started. {advice}"
            ) from error
        expected = hashed(config)
        differences = [
            f"{key} is {_shown(found, key)}, expected {_shown(expected, key)}"
            for key in {**expected, **found}
            if key not in found or key not in expected or found[key] != expected[key]
        ]
        if differences:
            more = len(differences) - _SHOWN_DIFFERENCES
            shown = differences[:_SHOWN_DIFFERENCES] + ([f"and {more} more"] if more > 0 else [])
            raise ConfigurationError(
                f"{self.path}: is a run of another config or on other data: {'; '.join(shown)}. {advice}"
            )

    def versions(self) -> Dict[str, str]:
        """Return the versions that the run was started with."""
        return self._record()["versions"]

    def scores(self, metric: str) -> RunScores:
        """Read the scores of a finished run. Raises as `metrics`."""
        import pandas

        best = f"best_validation_{metric}"
        names = (best, "epoch", "best_epoch", "training_duration", "peak_worker_0_memory_MB")
        metrics = self.metrics(METRICS_NAME, names)
        key = f"validation_{metric}"
        epochs = range(metrics["epoch"] + 1)
        return RunScores(
            validation=metrics[best],
            test=metrics.get(f"test_{metric}"),
            curve=[self.metrics(f"metrics_epoch_{epoch}.json", [key])[key] for epoch in epochs],
            best_epoch=metrics["best_epoch"] + 1,
            minutes=pandas.Timedelta(metrics["training_duration"]).total_seconds() / 60,
            peak_gigabytes=metrics["peak_worker_0_memory_MB"] / 1000,
        )

    def metrics(self, name: str, keys: Sequence[str]) -> Dict[str, Any]:
        """Read a file of metrics that must contain these keys."""
        path = self.path / name
        try:
            metrics = json.loads(path.read_text(encoding="utf-8"))
            missing = [key for key in keys if key not in metrics]
            problem = f"found no {', '.join(missing)}" if missing else ""
        except (OSError, ValueError) as error:
            problem = f"cannot be read as JSON ({error})"
        if problem:
            raise ConfigurationError(
                f"{path}: {problem}, expected metrics of `allennlp train`, including the one that the "
                f"config's trainer.validation_metric names. Remove {self.path} to train it again."
            )
        return metrics

    def failure(self, return_code: int) -> str:
        """Return the reason of a failure in one line, from the exit code and the log."""
        if return_code < 0:
            hint = ", perhaps for lack of memory" if return_code == -signal.SIGKILL else ""
            return f"stopped by signal {-return_code}{hint}"
        text = self.log_file.read_text(encoding="utf-8", errors="replace")
        lines = [match[0] for match in _ERROR_LINE.finditer(text)] or text.split("\n")
        lines = [line.strip() for line in lines if line.strip()]
        return lines[-1] if lines else f"exited with code {return_code} and an empty log"

    def _record(self) -> Dict[str, Any]:
        return json.loads(self.record_file.read_text(encoding="utf-8"))


def hashed(config: Dict[str, Any]) -> Dict[str, Any]:
    """
    Return the values of a config by dotted keys such as `model.dropout`, with a hash of the content in place
    of each path: of a file, a folder, a glob pattern, or a biLM of this package by its name. Values that name
    no local file, such as URLs, stay as they are.
    """
    return Params(_hashed(config, "")).as_flat_dict()


def _hashed(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: _hashed(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [_hashed(item, key) for item in value]
    files = _files_of(value) if isinstance(value, str) and _FILE_KEY.search(key) else {}
    contents = []
    for name, file in files.items():
        stat = file.stat()
        contents.append((name, _file_hash(str(file), stat.st_size, stat.st_mtime_ns)))
    digest = hashlib.sha256(json.dumps(contents).encode()).hexdigest()
    return f"content {digest}" if contents else value


def _files_of(value: str) -> Dict[str, Path]:
    """Return the files that a value names, by their paths relative to it."""
    if is_pretrained(value):
        return {path.name: path for path in pretrained_files(value)}
    path = Path(value)
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    else:
        files = [path] if path.is_file() else [Path(name) for name in sorted(glob(value))]
    return {os.path.relpath(file, value): file for file in files}


@lru_cache(maxsize=4096)
def _file_hash(path: str, size: int, modified: int) -> str:
    """Return the SHA-256 of a file. Size and time are keys of the cache: the runs of a report share data."""
    result = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            result.update(block)
    return result.hexdigest()


def _shown(values: Dict[str, Any], key: str) -> str:
    return json.dumps(values[key], ensure_ascii=False) if key in values else "nothing"


def _write_json(values: Dict[str, Any], path: Path) -> None:
    with replaced_file(path) as partial_file:
        partial_file.write_text(json.dumps(values, indent=2) + "\n")
