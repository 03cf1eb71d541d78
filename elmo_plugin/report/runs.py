"""Train the runs of a report, several in parallel, and read their scores. Finished runs are reused."""

import hashlib
import json
import logging
import os
import re
import shlex
import subprocess
import time
from dataclasses import dataclass
from functools import lru_cache
from glob import escape, glob
from pathlib import Path
from typing import (
    Any,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import pandas
from allennlp.common import Params
from allennlp.common.tqdm import Tqdm

from elmo_plugin.arguments import option
from elmo_plugin.bilm.model_files import files_in_folder, is_pretrained, pretrained_files
from elmo_plugin.compat.training_process import (
    failure_reason,
    start_training,
    stop_training,
    train_command,
)
from elmo_plugin.cpus import usable_cpus
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import claimed_folder, replaced_file
from elmo_plugin.files.text import read_json
from elmo_plugin.pretraining.export import METRICS_NAME
from elmo_plugin.report.tables import ReportOptions, shell_command, versions

_SECONDS_TO_POLL = 0.05
_SHOWN_DIFFERENCES = 3
# Keys of a config whose values name files.
_FILE_KEY = re.compile(r"(^|_)(paths?|files?|directory)$")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RunOptions(ReportOptions):
    """Options of all reports that train runs."""

    overrides: Optional[Dict[str, Any]] = option(
        """changes to the config of all runs, such as '{"trainer.num_epochs": 5}'""",
        None,
        short="-o",
        metavar="JSON",
    )
    jobs: Optional[int] = option(
        "number of parallel runs, which share the cores (default: the number of cores)",
        None,
        positive=True,
        metavar="N",
    )
    dry_run: bool = option(
        "write the configs of unfinished runs, and print their commands, one per line, for your own "
        "scheduler. When they have ended, the same call without --dry-run trains what failed, and collects "
        "the results. The commands need this folder and this Python",
        False,
    )
    include_package: Sequence[str] = option(
        "additional package to import, which registers what a config names",
        (),
        metavar="PACKAGE",
        repeat=True,
    )

    @property
    def runs_folder(self) -> Path:
        return Path(self.output) / "runs"


class RunScores(NamedTuple):
    """The scores of a finished run, its duration and its memory."""

    validation: float  # the best score on validation data
    test: Optional[float]  # if the config evaluates on test data
    curve: List[float]  # on validation data, after each epoch
    epochs: int
    best_epoch: int  # counted from 1
    minutes: float  # of training and validation
    peak_gigabytes: float  # of memory, 10^9 bytes


class TrainedRuns(NamedTuple):
    """The results of runs."""

    scores: pandas.DataFrame  # a row of `RunScores` by the key of the run, empty if it failed
    failures: List[str]  # a line for each run that failed
    versions: Dict[str, str]  # that the others were trained with

    def notes(self) -> List[str]:
        """Return the notes about failures for the tables of a report."""
        failed = [line.replace(": ", " failed: ", 1) for line in self.failures]
        return ["Means are of the runs that did not fail.", *failed] if failed else []


def train(
    runs: Mapping[Tuple[Any, ...], "RunFolder"], options: RunOptions, metric: str
) -> Optional[TrainedRuns]:
    """
    Train the runs that are not finished, and return the results of all by their keys; nothing after a dry
    run. A run that fails does not stop the others. Runs of the same name are trained once. Nothing is trained
    if the folder of a run contains something else, or another process trains runs of this folder.
    """
    folders: Dict[str, RunFolder] = {}
    for run in runs.values():
        if folders.setdefault(run.name, run).config != run.config:
            raise ConfigurationError(
                f"Two runs with different configs have the name '{run.name}', expected different names: they "
                "are made of the names of files, without their endings, and of biLMs. Rename some."
            )
    with claimed_folder(
        options.runs_folder,
        f"--output: another `elmo report` is training runs in {options.runs_folder}. Wait for it, or give "
        "another folder. If reports need the same runs, the second one finds those of the first.",
    ):
        for folder in folders.values():
            folder.check()
        unfinished = [folder for folder in folders.values() if not folder.is_finished()]
        num_parallel = max(1, min(options.jobs or usable_cpus(), len(unfinished)))
        num_threads = max(1, usable_cpus() // num_parallel)
        if options.dry_run:
            for folder in unfinished:
                folder.prepare()
                command = folder.command(options)
                command_line = shell_command(command, {"OMP_NUM_THREADS": str(num_threads)})
                # The command replaces the folder, so it is skipped if the run has finished in the meantime.
                finished = shlex.quote(str(folder.path / METRICS_NAME))
                print(f"[ -e {finished} ] || {command_line}")
            return None
        failures = _train(unfinished, options, num_parallel, num_threads)
        scores: Dict[str, RunScores] = {}
        for name, folder in folders.items():
            if name not in failures:
                try:
                    folder.check()  # that runs of some days have not read different data
                    scores[name] = folder.scores(metric)
                except ConfigurationError as error:
                    failures[name] = str(error)
        all_versions = pandas.DataFrame([folders[name].record()["versions"] for name in scores])
    no_scores = [None] * len(RunScores._fields)
    return TrainedRuns(
        pandas.DataFrame(
            [scores.get(run.name, no_scores) for run in runs.values()],
            index=pandas.MultiIndex.from_tuples(list(runs)),
            columns=RunScores._fields,
        ),
        [f"{name}: {failures[name]}" for name in folders if name in failures],
        {package: ", ".join(found.unique()) for package, found in all_versions.items()},
    )


class RunFolder:
    """
    The `--serialization-dir` of `allennlp train`, which may not exist yet. Its name is that of the run: all
    reports give the same variant of a config the same name. Beside it are the config of the run, its log, and
    a record: the versions that it was started with, and its config with a hash of the content in place of
    each path.
    """

    def __init__(self, path: Path, config: Dict[str, Any]) -> None:
        self.path, self.config = path, config
        self.name = path.name
        self.config_file = path.with_name(f"{path.name}.json")
        self.log_file = path.with_name(f"{path.name}.log")
        self.record_file = path.with_name(f"{path.name}.record.json")

    def is_finished(self) -> bool:
        return (self.path / METRICS_NAME).is_file()

    def prepare(self) -> None:
        """Write the config and the record of the run, before it reads its data."""
        record = {"config": hashed(self.config), "versions": versions()}
        for path, values in ((self.config_file, self.config), (self.record_file, record)):
            with replaced_file(path) as partial_file:
                partial_file.write_text(json.dumps(values, indent=2) + "\n")

    def check(self) -> None:
        """
        Raise an error if the folder contains anything other than a run of this config on the present content
        of its data, wherever that is.
        """
        if not any(self.path.glob("*")):
            return
        advice = "Give another results folder or another --name, or remove this folder."
        try:
            found = self.record()["config"]
        except (OSError, ValueError, KeyError) as error:
            raise ConfigurationError(
                f"{self.path}: has no record of the config and data of a run ({error}), expected an empty "
                f"folder or a run that a report has started. {advice}"
            ) from error
        expected = hashed(self.config)
        differences = [
            f"{key} is {_shown(found, key)}, expected {_shown(expected, key)}"
            for key in {**expected, **found}
            if key not in found or key not in expected or found[key] != expected[key]
        ]
        if differences:
            shown = "; ".join(differences[:_SHOWN_DIFFERENCES])
            raise ConfigurationError(
                f"{self.path}: is a run of another config or on other data: {shown}. {advice}"
            )

    def record(self) -> Dict[str, Any]:
        """Read the record, see `prepare`."""
        return json.loads(self.record_file.read_text(encoding="utf-8"))

    def scores(self, metric: str) -> RunScores:
        """Read the scores of the finished run. Raises as `read_metrics`."""
        best = f"best_validation_{metric}"
        names = (best, "epoch", "best_epoch", "training_duration", "peak_worker_0_memory_MB")
        metrics = read_metrics(self.path / METRICS_NAME, names)
        key = f"validation_{metric}"
        curve_files = [
            self.path / f"metrics_epoch_{epoch}.json" for epoch in range(metrics["epoch"] + 1)
        ]
        return RunScores(
            validation=metrics[best],
            test=metrics.get(f"test_{metric}"),
            curve=[read_metrics(file, [key])[key] for file in curve_files],
            epochs=len(curve_files),
            best_epoch=metrics["best_epoch"] + 1,
            minutes=pandas.Timedelta(metrics["training_duration"]).total_seconds() / 60,
            # AllenNLP's "MB" are 2^20 bytes. On Linux they are at least the peak of this process.
            peak_gigabytes=metrics["peak_worker_0_memory_MB"] * 2**20 / 10**9,
        )

    def command(self, options: RunOptions) -> List[str]:
        """Return the command that trains the config, and replaces what an interrupted one left."""
        packages = options.include_package
        return train_command(self.config_file, self.path, "--force", include_package=packages)


def read_metrics(path: Path, keys: Sequence[str]) -> Dict[str, Any]:
    """Read a file of metrics in the folder of a run. It must contain these keys."""
    again = f"remove {path.parent} to train it again"
    metrics = read_json(path, f"metrics of `allennlp train` (or {again})")
    missing = [key for key in keys if not isinstance(metrics, dict) or key not in metrics]
    if missing:
        raise ConfigurationError(
            f"{path}: found no {', '.join(missing)}, expected the metrics of `allennlp train`, with that "
            f"which the config's trainer.validation_metric names. Correct it, or {again}."
        )
    return metrics


def hashed(config: Dict[str, Any]) -> Dict[str, Any]:
    """
    Return the values of a config by dotted keys such as `model.dropout`, with a hash of the content in place
    of each path: of a file, a folder, a glob pattern, or a biLM of this package by its name. Values that name
    no local file, such as URLs, are not changed.
    """
    return Params(_hashed(config, "")).as_flat_dict()


def _hashed(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        # Paths in a dictionary can have any names: {"pretrained_files": {"tokens": "glove.txt"}}.
        names_files = _FILE_KEY.search(key)
        return {name: _hashed(inner, key if names_files else name) for name, inner in value.items()}
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
    path = Path(os.path.expanduser(value))
    of_bilm = pretrained_files(value) if is_pretrained(value) else files_in_folder(path)
    if of_bilm is not None:  # without the other files of its training
        return {file.name: file for file in of_bilm}
    value = str(path)
    files: Iterable[Path] = [path]
    if path.is_dir():
        # Also in linked folders, as readers do.
        files = map(Path, glob(f"{escape(value)}/**", recursive=True))
    elif not path.exists():
        files = map(Path, glob(value, recursive=True))
    return {os.path.relpath(file, value): file for file in sorted(files) if file.is_file()}


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


def _train(
    folders: Sequence[RunFolder], options: RunOptions, num_parallel: int, num_threads: int
) -> Dict[str, str]:
    """Train, and return the reasons of failures by run name. An interrupt stops all processes."""
    numbers = len(folders), num_parallel, num_threads
    logger.info("%d runs to train, %d in parallel, %d threads each.", *numbers)
    environment = {**os.environ, "OMP_NUM_THREADS": str(num_threads)}
    failures: Dict[str, str] = {}
    waiting = list(folders)
    running: Dict[subprocess.Popen, RunFolder] = {}
    try:
        with Tqdm.tqdm(total=len(folders), unit=" runs") as progress:
            while waiting or running:
                while waiting and len(running) < num_parallel:
                    folder = waiting.pop(0)
                    folder.prepare()
                    name, log = folder.name, folder.log_file
                    logger.info("%s: started, its log is %s", name, log)
                    process = start_training(folder.command(options), log, environment)
                    running[process] = folder
                time.sleep(_SECONDS_TO_POLL)
                for process in [process for process in running if process.poll() is not None]:
                    folder = running.pop(process)
                    if process.returncode != 0 or not folder.is_finished():
                        reason = failure_reason(process.returncode, folder.log_file)
                        failures[folder.name] = reason
                        logger.error("%s failed: %s", folder.name, reason)
                    progress.update()
    except KeyboardInterrupt:
        advice = "finished runs are kept, and the same command trains the others"
        raise KeyboardInterrupt(advice) from None
    finally:  # none is running, unless there was an interrupt or an error
        stop_training(list(running))
    return failures
