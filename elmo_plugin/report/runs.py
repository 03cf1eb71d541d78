"""Trains the runs of a report, several in parallel, and reads their scores. Finished runs are reused."""

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set

from allennlp.common.checks import ConfigurationError

from elmo_plugin.arguments import option
from elmo_plugin.files.claimed_folder import claimed_folder
from elmo_plugin.report.run_folder import RunFolder, RunResult, data_hashes
from elmo_plugin.report.tables import (
    DEFAULT_SEEDS,
    ReportTable,
    check_results_folder,
    check_seeds,
    versions,
)
from elmo_plugin.report.variants import Experiment, Run

RUNS_FOLDER = "runs"

_SECONDS_TO_STOP = 10
_UNKNOWN_VERSION = "not recorded"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What all reports that train runs are given."""

    output: str = option(
        "results folder, made if missing; runs are kept in DIR/runs, and reports share equal ones",
        short="-s",
        metavar="DIR",
    )
    seeds: Sequence[int] = option("train everything once with each", DEFAULT_SEEDS, metavar="N")
    overrides: Optional[Dict[str, Any]] = option(
        """of the config, for all runs, such as '{"trainer.num_epochs": 5}'""",
        None,
        short="-o",
        metavar="JSON",
    )
    jobs: Optional[int] = option(
        "number of parallel runs, which share the cores (default: the number of cores)",
        None,
        metavar="N",
        recorded=False,
    )
    dry_run: bool = option(
        "print the commands of the runs that are not finished, one a line, for a scheduler of yours; "
        "afterwards the same call without --dry-run only collects. They are for this folder and Python",
        False,
        recorded=False,
    )
    recover: bool = option(
        "resume interrupted runs at their last checkpoint (default: they start anew, as the random numbers "
        "of a resumed run do not follow from its seed alone)",
        False,
        recorded=False,
    )
    overwrite: bool = option(
        "replace runs of another config or of other data (default: stop before any work)",
        False,
        recorded=False,
    )
    include_package: Sequence[str] = option(
        "additional package to import, which registers what a config names",
        (),
        metavar="PACKAGE",
        repeat=True,
    )

    def check(self) -> None:
        """
        # Raises

        `ConfigurationError` for seeds and jobs that make no runs, and a results folder that is a file.
        """
        check_seeds(self.seeds)
        check_results_folder(self.output)
        if self.jobs is not None and self.jobs < 1:
            raise ConfigurationError(f"--jobs: found {self.jobs}, expected a positive number.")

    @property
    def runs_folder(self) -> Path:
        return Path(self.output) / RUNS_FOLDER


class Report(NamedTuple):
    """
    The outcome of a report.

    # Parameters

    tables : `List[ReportTable]`
        What was found.
    files : `List[Path]`
        What was written.
    failures : `List[str]`
        Why runs failed, a line for each.
    """

    tables: List[ReportTable]
    files: List[Path]
    failures: List[str] = []


class _Job(NamedTuple):
    """A run to train; `recovers` says whether it resumes what its folder holds."""

    run: Run
    folder: RunFolder
    recovers: bool


def run_all(
    runs: Sequence[Run], options: RunOptions, experiment: Experiment
) -> Optional[List[RunResult]]:
    """
    Train the runs that are not finished, and collect the results of all. A run that fails stops no other.

    # Parameters

    runs : `Sequence[Run]`
        Those of one name are the same, and trained once.
    options : `RunOptions`
        Where and how.
    experiment : `Experiment`
        What the runs are variants of.

    # Returns

    A result for each run, in their order; `None` after a dry run.

    # Raises

    `ConfigurationError`, before anything is trained, if something else is in the place of a run, or another
    process trains runs of this folder.
    """
    if options.dry_run:
        jobs = _unfinished(runs, options)
        variables = {**experiment.variables(), "OMP_NUM_THREADS": _num_threads(jobs, options)}
        for job in jobs:
            print(shell_command(train_command(job.run, options, job.recovers), variables))
        return None
    with claimed_folder(
        options.runs_folder,
        f"--output: another elmo-report is training runs in {options.runs_folder}. Wait for it, or give "
        "another folder; where reports need the same runs, the second finds those of the first.",
    ):
        failures = _train(_unfinished(runs, options), options, experiment.metric)
        return [
            RunResult(run, None, failures[run.name])
            if run.name in failures
            else RunFolder(options.runs_folder / run.name).result(run, experiment.metric)
            for run in runs
        ]


def recorded_versions(results: Sequence[RunResult]) -> Dict[str, str]:
    """Return the versions that runs were trained with; those of a run without a record are not known."""
    finished = [result.versions for result in results if result.scores is not None]
    return {
        name: ", ".join(dict.fromkeys(known.get(name, _UNKNOWN_VERSION) for known in finished))
        for name in versions()
        if finished
    }


def failures_of(results: Sequence[RunResult]) -> List[str]:
    """Return a line for each run that failed."""
    lines = {result.run.name: result.failure for result in results if result.failure}
    return [f"{name}: {failure}" for name, failure in lines.items()]


def train_command(run: Run, options: RunOptions, recovers: bool = False) -> List[str]:
    """Return the command of a run, which resumes what its folder holds or replaces it."""
    packages = dict.fromkeys(["elmo_plugin", *options.include_package])
    return [
        *(sys.executable, "-m", "allennlp", "train", run.config_file),
        *("-s", str(options.runs_folder / run.name), "--recover" if recovers else "--force"),
        *(argument for package in packages for argument in ("--include-package", package)),
        *("--file-friendly-logging", "--overrides", json.dumps(run.overrides)),
    ]


def shell_command(command: Sequence[str], variables: Dict[str, str]) -> str:
    """Return a line for a shell, with the environment variables that the command needs."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join([*settings, shlex.join(command)])


def num_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _unfinished(runs: Sequence[Run], options: RunOptions) -> List[_Job]:
    jobs = []
    for run in {run.name: run for run in runs}.values():
        folder = RunFolder(options.runs_folder / run.name)
        try:
            folder.check(run.config, "--overwrite to replace it")
        except ConfigurationError:
            if not options.overwrite:
                raise
            jobs.append(_Job(run, folder, False))
        else:
            if not folder.is_finished():
                jobs.append(_Job(run, folder, options.recover and folder.has_checkpoint()))
    return jobs


def _num_parallel(jobs: Sequence[_Job], options: RunOptions) -> int:
    return max(1, min(options.jobs or num_cores(), len(jobs)))


def _num_threads(jobs: Sequence[_Job], options: RunOptions) -> str:
    return str(max(1, num_cores() // _num_parallel(jobs, options)))


def _train(jobs: Sequence[_Job], options: RunOptions, metric: str) -> Dict[str, str]:
    """Train. Return why runs failed, by their names. An interrupt stops all processes."""
    failures: Dict[str, str] = {}
    if not jobs:
        return failures
    num_parallel, num_threads = _num_parallel(jobs, options), _num_threads(jobs, options)
    logger.info(
        "%d runs to train, %d in parallel of %s threads.", len(jobs), num_parallel, num_threads
    )
    processes = _Processes({**os.environ, "OMP_NUM_THREADS": num_threads})
    start = time.monotonic()
    with ThreadPoolExecutor(num_parallel) as pool:
        futures = {pool.submit(_train_one, job, options, processes): job for job in jobs}
        try:
            for num_ended, future in enumerate(as_completed(futures), start=1):
                job = futures[future]
                result = RunResult(job.run, None, future.result())
                if not result.failure:
                    result = job.folder.result(job.run, metric)
                if result.scores is None:
                    failures[job.run.name] = result.failure
                    outcome = f"failed: {result.failure}"
                else:
                    scores = result.scores
                    outcome = f"{metric} {scores.validation:.4g} after {scores.minutes:.1f} minutes"
                minutes = (time.monotonic() - start) / 60 / num_ended * (len(jobs) - num_ended)
                logger.info(
                    "%s: %s. %d of %d runs, about %.0f minutes left.",
                    *(job.run.name, outcome, num_ended, len(jobs), minutes),
                )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise
    return failures


def _train_one(job: _Job, options: RunOptions, processes: "_Processes") -> str:
    """Returns why the run failed; nothing if it did not."""
    hashes = data_hashes(job.run.config)  # before the run reads the files
    job.folder.path.parent.mkdir(parents=True, exist_ok=True)
    logger.info("%s: started, its log is %s", job.run.name, job.folder.log_file)
    return_code = processes.run(train_command(job.run, options, job.recovers), job.folder.log_file)
    if return_code == 0 and job.folder.is_finished():
        job.folder.write_record(hashes)
        return ""
    return f"{job.folder.failure(return_code)} (log: {job.folder.log_file})"


class _Processes:
    """Processes that run in several threads and can be stopped together, with all that they started."""

    def __init__(self, environment: Dict[str, str]) -> None:
        self._environment = environment
        self._running: Set[subprocess.Popen] = set()
        self._is_stopped = False
        self._lock = threading.Lock()

    def run(self, command: Sequence[str], log_file: Path) -> int:
        """Return the exit status of a command, whose output goes into a file."""
        with open(log_file, "w", encoding="utf-8") as log, self._lock:
            if self._is_stopped:
                return -signal.SIGTERM
            process = subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A group of its own, so that it can be stopped with the processes that it starts.
                start_new_session=True,
            )
            self._running.add(process)
        return_code = process.wait()
        with self._lock:
            self._running.discard(process)
        return return_code

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            running = list(self._running)
        for process in running:
            _signal_group(process, signal.SIGTERM)
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_SECONDS_TO_STOP)
            _signal_group(process, signal.SIGKILL)  # what ignored the other signal


def _signal_group(process: subprocess.Popen, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it ended by itself
        os.killpg(process.pid, number)
