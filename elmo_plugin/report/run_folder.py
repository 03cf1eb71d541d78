"""The folder of a training run: its config, the hashes of its data, and its scores."""

import hashlib
import json
import os
import re
import signal
from functools import lru_cache
from glob import glob
from pathlib import Path
from typing import Any, Collection, Dict, List, NamedTuple, Optional, Sequence

from elmo_plugin.bilm.model_files import is_pretrained, pretrained_files
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.replaced_file import replaced_file
from elmo_plugin.report.tables import versions
from elmo_plugin.report.variants import Run

CONFIG_NAME, METRICS_NAME = "config.json", "metrics.json"  # of `allennlp train`
RECORD_NAME = "elmo_report.json"

_SHOWN_DIFFERENCES = 3
# Dotted keys of a config whose values name files, or of the items of such a list.
_FILE_KEY = re.compile(r"(^|[._])(paths?|files?|directory)(\.\d+)*$")
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


class RunResult(NamedTuple):
    """A run with its scores, or with the reason of its failure and the path of the log."""

    run: Run
    scores: Optional[RunScores]
    failure: str = ""
    versions: Dict[str, str] = {}  # that it was trained with, if they are known


class RunFolder:
    """
    The `--serialization-dir` of `allennlp train`, which may not exist yet. Beside it are the config of the
    run and its log.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path.with_name(f"{path.name}.json")
        self.log_file = path.with_name(f"{path.name}.log")

    def is_finished(self) -> bool:
        return (self.path / METRICS_NAME).is_file()

    def has_checkpoint(self) -> bool:
        """Return whether `allennlp train --recover` can resume the run."""
        return any(self.path.glob("training_state_*.th"))

    def write_record(self, hashes: Dict[str, str]) -> None:
        """Write the hashes of the run's data, and the versions of this process, which started it."""
        write_json({"data": hashes, "versions": versions()}, self.path / RECORD_NAME)

    def check(self, config: Dict[str, Any]) -> None:
        """
        Raise an error if the folder contains anything other than a run of this config on the current content
        of its data, which may have moved since. Without a record (of a run of an earlier version, or one that
        a scheduler started), the paths must be the same, and data that was modified after the start of the
        run counts as changed.
        """
        config_file = self.path / CONFIG_NAME
        if not self.path.exists() or (self.path.is_dir() and not any(self.path.iterdir())):
            return
        advice = "Give another results folder, another --name, or --overwrite to replace it."
        try:
            found = json.loads(config_file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{self.path}: exists, but has no {CONFIG_NAME} of a training run ({error}). Expected an "
                f"empty folder or a run of this config. {advice}"
            ) from error
        record = self._record()
        present = data_hashes(config) if record else {}
        unchanged = {key for key in present if record["data"].get(key) == present[key]}
        differences = _differences(found, config, ignored=unchanged)
        if differences:
            more = len(differences) - _SHOWN_DIFFERENCES
            shown = differences[:_SHOWN_DIFFERENCES] + ([f"and {more} more"] if more > 0 else [])
            raise ConfigurationError(
                f"{self.path}: is a run of another config: {'; '.join(shown)}. {advice}"
            )
        if record:
            changed = [key for key in present if key not in unchanged]
            if changed:
                raise ConfigurationError(
                    f"{self.path}: is a run on other data: the content of {_named(config, changed)} has "
                    f"changed since. {advice}"
                )
            return
        start = config_file.stat().st_mtime
        files_of = {key: _files_of(value) for key, value in _file_values(config).items()}
        changed = [
            key
            for key in files_of
            if any(f.stat().st_mtime > start for f in files_of[key].values())
        ]
        if changed:
            raise ConfigurationError(
                f"{self.path}: may be a run on other data: {_named(config, changed)} changed after it "
                f"started, and it has no {RECORD_NAME}. {advice} If the content is the same, `touch "
                f"{config_file}`."
            )

    def result(self, run: Run, metric: str) -> RunResult:
        """Return the result of a finished run, or a failure if its scores cannot be read."""
        try:
            return RunResult(run, self.scores(metric), versions=self._record().get("versions", {}))
        except ConfigurationError as error:
            return RunResult(run, None, str(error))

    def scores(self, metric: str) -> RunScores:
        """Read the scores of a finished run. Raises as `metrics`."""
        import pandas

        best, test = f"best_validation_{metric}", f"test_{metric}"
        names = (best, "epoch", "best_epoch", "training_duration", "peak_worker_0_memory_MB")
        metrics = self.metrics(METRICS_NAME, names)
        key = f"validation_{metric}"
        epochs = range(metrics["epoch"] + 1)
        return RunScores(
            validation=metrics[best],
            test=metrics.get(test),
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
            found = f"found no {', '.join(missing)}" if missing else ""
        except (OSError, ValueError) as error:
            found = f"cannot be read as JSON ({error})"
        if found:
            raise ConfigurationError(
                f"{path}: {found}, expected metrics of `allennlp train`, including the one that the config's "
                f"trainer.validation_metric names. Remove {self.path} to train it again."
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

    def _record(self) -> Dict[str, Dict[str, str]]:
        """Read the hashes and versions of the run; empty if no report started it."""
        path = self.path / RECORD_NAME
        return json.loads(path.read_text()) if path.is_file() else {}


def write_json(values: Dict[str, Any], path: Path) -> None:
    """Write indented JSON. The file appears only when it is complete."""
    with replaced_file(path) as partial_file:
        partial_file.write_text(json.dumps(values, indent=2) + "\n")


def data_hashes(config: Dict[str, Any]) -> Dict[str, str]:
    """
    Return the SHA-256 of the content of each path in a config: a file, a folder, a glob pattern or the name
    of a biLM of this package, under a key such as `train_data_path` or `model.options_file`. Values that name
    no local file, such as URLs, are left out.
    """
    hashes = {}
    for key, value in _file_values(config).items():
        contents = []
        for name, file in _files_of(value).items():
            stat = file.stat()
            contents.append((name, _file_hash(str(file), stat.st_size, stat.st_mtime_ns)))
        if contents:
            hashes[key] = hashlib.sha256(json.dumps(contents).encode()).hexdigest()
    return hashes


@lru_cache(maxsize=4096)
def _file_hash(path: str, size: int, modified: int) -> str:
    """Size and time of modification are only keys of the cache, as the runs of a report share their data."""
    result = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            result.update(block)
    return result.hexdigest()


def _flat(value: Any, key: str = "") -> Dict[str, Any]:
    """Return the values in dictionaries and lists by dotted keys such as `model.layers.0`. `{}` has none."""
    if not isinstance(value, (dict, list)) or value == []:
        return {key: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {
        inner_key: inner
        for name, item in items
        for inner_key, inner in _flat(item, f"{key}.{name}" if key else str(name)).items()
    }


def _file_values(config: Dict[str, Any]) -> Dict[str, str]:
    """Return the strings of a config that name files, by their dotted keys."""
    return {
        key: value
        for key, value in _flat(config).items()
        if isinstance(value, str) and _FILE_KEY.search(key)
    }


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


def _named(config: Dict[str, Any], keys: Sequence[str]) -> str:
    values = _file_values(config)
    return ", ".join(f"{key} ({values[key]})" for key in keys)


def _differences(
    found: Dict[str, Any], expected: Dict[str, Any], ignored: Collection[str]
) -> List[str]:
    """Describe the dotted keys in which two configs differ, other than the ignored ones."""
    found, expected = _flat(found), _flat(expected)

    def shown(config: Dict[str, Any], key: str) -> str:
        return json.dumps(config[key], ensure_ascii=False) if key in config else "nothing"

    return [
        f"{key} is {shown(found, key)}, expected {shown(expected, key)}"
        for key in {**expected, **found}
        if key not in found
        or key not in expected
        or (found[key] != expected[key] and key not in ignored)
    ]
