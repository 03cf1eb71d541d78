"""Train the runs of a report, several in parallel, and read their scores. Finished runs are reused."""

import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from elmo_plugin.arguments import option
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import claimed_folder
from elmo_plugin.report.run_folder import RunFolder, RunScores
from elmo_plugin.report.tables import (
    DEFAULT_SEEDS,
    check_option,
    check_seeds_and_output,
    shell_command,
)

_SECONDS_TO_STOP = 10.0
_SECONDS_TO_POLL = 0.05

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of all reports that train runs."""

    output: str = option(
        "results folder, made if missing; runs are kept in DIR/runs, and reports share equal runs",
        short="-s",
        metavar="DIR",
    )
    seeds: Sequence[int] = option(
        "train everything once with each seed", DEFAULT_SEEDS, metavar="N"
    )
    overrides: Optional[Dict[str, Any]] = option(
        """changes to the config of all runs, such as '{"trainer.num_epochs": 5}'""",
        None,
        short="-o",
        metavar="JSON",
    )
    jobs: Optional[int] = option(
        "number of parallel runs, which share the cores (default: the number of cores)",
        None,
        metavar="N",
    )
    dry_run: bool = option(
        "write the configs of the runs that are not finished, and print their commands, one per line, for "
        "your own scheduler; afterwards the same call without --dry-run only collects the results. The "
        "commands need this folder and this Python",
        False,
    )
    recover: bool = option(
        "resume interrupted runs at their last checkpoint (default: restart them, because the seed alone "
        "does not determine the random numbers of a resumed run)",
        False,
    )
    overwrite: bool = option(
        "replace runs of another config or of other data (default: stop before training)",
        False,
    )
    include_package: Sequence[str] = option(
        "additional package to import, which registers what a config names",
        (),
        metavar="PACKAGE",
        repeat=True,
    )

    def check(self) -> None:
        """Raise an error for invalid seeds or jobs, or if the results folder is a file."""
        check_seeds_and_output(self.seeds, self.output)
        check_option("--jobs", self.jobs, self.jobs is None or self.jobs >= 1, "a positive number")

    @property
    def runs_folder(self) -> Path:
        return Path(self.output) / "runs"


class Run(NamedTuple):
    """A training run. All reports give the same variant of a config the same name."""

    name: str
    config: Dict[str, Any]


class TrainedRuns(NamedTuple):
    """The results of runs."""

    scores: Dict[Any, Optional[RunScores]]  # by the key of the run; `None` if it failed
    failures: List[str]  # a line for each run that failed
    versions: Dict[str, str]  # that the others were trained with

    def notes(self) -> List[str]:
        """Return the notes about failures for the tables of a report."""
        return ["Means are of the runs that did not fail.", *self.failures] if self.failures else []


class _Job(NamedTuple):
    """A run to train; `recovers` says whether it resumes what its folder holds, or replaces it."""

    run: Run
    folder: RunFolder
    recovers: bool


def train(runs: Mapping[Any, Run], options: RunOptions, metric: str) -> Optional[TrainedRuns]:
    """
    Train the runs that are not finished, and return the results of all. A run that fails does not stop the
    others. Runs of the same name are trained once.

    # Returns

    The results by the keys of `runs`; `None` after a dry run.

    # Raises

    `ConfigurationError`, before anything is trained, if the folder of a run contains something else, or
    another process trains runs of this folder.
    """
    if options.dry_run:
        options.runs_folder.mkdir(parents=True, exist_ok=True)
        jobs = _unfinished(runs.values(), options)
        num_threads = {"OMP_NUM_THREADS": str(_divide_cores(jobs, options)[1])}
        for job in jobs:
            job.folder.prepare(job.run.config)
            print(shell_command(train_command(job.folder, options, job.recovers), num_threads))
        return None
    with claimed_folder(
        options.runs_folder,
        f"--output: another `elmo report` is training runs in {options.runs_folder}. Wait for it, or give "
        "another folder. If reports need the same runs, the second one finds those of the first.",
    ):
        failures = _train(_unfinished(runs.values(), options), options, metric)
        return _collect(runs, options, metric, failures)


def train_command(folder: RunFolder, options: RunOptions, recovers: bool) -> List[str]:
    """Return the command that trains the config of a run's folder, and resumes or replaces the folder."""
    packages = dict.fromkeys(["elmo_plugin", *options.include_package])
    return [
        *(sys.executable, "-m", "allennlp", "train", str(folder.config_file)),
        *("-s", str(folder.path), "--recover" if recovers else "--force"),
        *(argument for package in packages for argument in ("--include-package", package)),
        "--file-friendly-logging",
    ]


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _unfinished(runs: Iterable[Run], options: RunOptions) -> List[_Job]:
    jobs = []
    for run in {run.name: run for run in runs}.values():
        folder = RunFolder(options.runs_folder / run.name)
        try:
            folder.check(run.config)
        except ConfigurationError:
            if not options.overwrite:
                raise
            jobs.append(_Job(run, folder, recovers=False))
        else:
            if not folder.is_finished():
                jobs.append(_Job(run, folder, options.recover and folder.has_checkpoint()))
    return jobs


def _divide_cores(jobs: Sequence[_Job], options: RunOptions) -> Tuple[int, int]:
    """Return the number of parallel runs, and the number of threads of each."""
    num_parallel = max(1, min(options.jobs or num_cores(), len(jobs)))
    return num_parallel, max(1, num_cores() // num_parallel)


def _train(jobs: Sequence[_Job], options: RunOptions, metric: str) -> Dict[str, str]:
    """Train, and return the reasons of failures by run name. An interrupt stops all processes."""
    failures: Dict[str, str] = {}
    num_parallel, num_threads = _divide_cores(jobs, options)
    logger.info(
        "%d runs to train, %d in parallel, %d threads each.", len(jobs), num_parallel, num_threads
    )
    environment = {**os.environ, "OMP_NUM_THREADS": str(num_threads)}
    waiting = list(jobs)
    running: Dict[subprocess.Popen, _Job] = {}
    start, num_ended = time.monotonic(), 0
    try:
        while waiting or running:
            while waiting and len(running) < num_parallel:
                job = waiting.pop(0)
                running[_start(job, options, environment)] = job
            time.sleep(_SECONDS_TO_POLL)
            for process in [process for process in running if process.poll() is not None]:
                job = running.pop(process)
                try:
                    scores = _scores_of(job.folder, process.returncode, metric)
                    outcome = f"{metric} {scores.validation:.4g} after {scores.minutes:.1f} minutes"
                except ConfigurationError as error:
                    failures[job.run.name] = str(error)
                    outcome = f"failed: {error}"
                num_ended += 1
                minutes = (time.monotonic() - start) / 60 / num_ended * (len(jobs) - num_ended)
                logger.info(
                    "%s: %s. %d of %d runs, about %.0f minutes left.",
                    *(job.run.name, outcome, num_ended, len(jobs), minutes),
                )
    finally:  # empty, unless there was an interrupt or an error
        _stop(running)
    return failures


def _start(job: _Job, options: RunOptions, environment: Dict[str, str]) -> subprocess.Popen:
    folder = job.folder
    folder.prepare(job.run.config)
    logger.info("%s: started, its log is %s", job.run.name, folder.log_file)
    with open(folder.log_file, "w", encoding="utf-8") as log:
        return subprocess.Popen(
            train_command(folder, options, job.recovers),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # A process group, so that it can be stopped with the processes that it starts.
            start_new_session=True,
        )


def _scores_of(folder: RunFolder, return_code: int, metric: str) -> RunScores:
    """Read the scores of a run whose process has ended, or raise an error with the reason of its failure."""
    if return_code != 0 or not folder.is_finished():
        raise ConfigurationError(f"{folder.failure(return_code)} (log: {folder.log_file})")
    return folder.scores(metric)


def _stop(processes: Iterable[subprocess.Popen]) -> None:
    for process in processes:
        _signal_group(process, signal.SIGTERM)
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS_TO_STOP)
        _signal_group(process, signal.SIGKILL)  # processes that ignored SIGTERM


def _signal_group(process: subprocess.Popen, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has already ended
        os.killpg(process.pid, number)


def _collect(
    runs: Mapping[Any, Run], options: RunOptions, metric: str, failures: Dict[str, str]
) -> TrainedRuns:
    """Read the scores of all runs. `failures` has the reasons of those that failed just now, by name."""
    scores: Dict[Any, Optional[RunScores]] = {}
    versions: Dict[str, Dict[str, None]] = {}  # the inner dictionaries are ordered sets
    for key, run in runs.items():
        folder = RunFolder(options.runs_folder / run.name)
        scores[key] = None
        if run.name not in failures:
            try:
                scores[key] = folder.scores(metric)
            except ConfigurationError as error:
                failures[run.name] = str(error)
                continue
            for package, version in folder.versions().items():
                versions.setdefault(package, {})[version] = None
    names = dict.fromkeys(run.name for run in runs.values())
    return TrainedRuns(
        scores,
        [f"{name}: {failures[name]}" for name in names if name in failures],
        {package: ", ".join(found) for package, found in versions.items()},
    )
