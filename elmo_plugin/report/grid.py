"""Trains the cells of a grid, some beside each other, each in a process of its own."""

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from allennlp.common.checks import ConfigurationError

from elmo_plugin.files.claimed_folder import claimed_folder
from elmo_plugin.report.experiment import Cell, Experiment
from elmo_plugin.report.run_folder import RunFolder, RunScores

RUNS_FOLDER = "runs"
DEFAULT_SEEDS = (13, 42)

_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_TO_STOP = 10

logger = logging.getLogger(__name__)


class GridOptions(NamedTuple):
    """
    What all reports that train runs are given.

    # Parameters

    config_file : `str`
        A config of `allennlp train` whose text encoder has a place for ELMo.
    output : `str`
        The results folder; made if it is not there. Runs are kept in its folder `runs`, where reports share
        those that are the same.
    seeds : `Sequence[int]`, optional (default = `(13, 42)`)
        Each variant is trained once with each.
    overrides : `Dict[str, Any]`, optional
        Of the config, for all runs.
    name : `str`, optional (default = the task's)
        What runs, tables and pictures are named after.
    jobs : `int`, optional (default = the number of cores)
        Runs beside each other; each has as many threads as there are cores for it.
    include_packages : `Sequence[str]`, optional
        Packages, besides this one, that the runs import first.
    overwrite : `bool`, optional (default = `False`)
        Replace what stands in the place of a run and is of another config.
    recover : `bool`, optional (default = `False`)
        Let interrupted runs go on at their last checkpoint. By default they start anew, as what a recovered
        run draws at random is no longer that of its seed alone.
    dry_run : `bool`, optional (default = `False`)
        Print the commands of the runs that are not done, and do nothing else.
    """

    config_file: str
    output: str
    seeds: Sequence[int] = DEFAULT_SEEDS
    overrides: Optional[Dict[str, Any]] = None
    name: Optional[str] = None
    jobs: Optional[int] = None
    include_packages: Sequence[str] = ()
    overwrite: bool = False
    recover: bool = False
    dry_run: bool = False

    def experiment(self) -> Experiment:
        """
        The config, read.

        # Raises

        `ConfigurationError` as `Experiment` does; and for seeds and jobs that make no grid.
        """
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigurationError(
                f"--seeds: found {list(self.seeds)}, expected one or more, each once."
            )
        if self.jobs is not None and self.jobs < 1:
            raise ConfigurationError(f"--jobs: found {self.jobs}, expected a positive number.")
        if Path(self.output).exists() and not Path(self.output).is_dir():
            raise ConfigurationError(
                f"--output: {self.output} is a file, expected a folder for the results. Give another path."
            )
        return Experiment(self.config_file, self.overrides, self.name)


class CellResult(NamedTuple):
    """
    # Parameters

    cell : `Cell`
        Which run.
    scores : `RunScores`, optional
        What came out; `None` if the run failed.
    failure : `str`
        Why it failed, and where the log is; empty if it did not.
    """

    cell: Cell
    scores: Optional[RunScores]
    failure: str = ""


class _Job(NamedTuple):
    cell: Cell
    command: List[str]
    folder: RunFolder


def run_grid(
    cells: Sequence[Cell], options: GridOptions, experiment: Experiment
) -> Optional[List[CellResult]]:
    """
    Train the cells that are not done, and collect the results of all. A run that fails stops no other.

    # Parameters

    cells : `Sequence[Cell]`
        Those of one name are the same, and trained once.
    options : `GridOptions`
        Where and how.
    experiment : `Experiment`
        What the cells are variants of.

    # Returns

    A result for each cell, in their order; `None` after a dry run.

    # Raises

    `ConfigurationError`, before anything is trained, if something else stands in the place of a run, or
    another process trains runs of this folder.
    """
    runs = Path(options.output) / RUNS_FOLDER
    if options.dry_run:
        return _run_grid(cells, options, experiment, runs)
    with claimed_folder(
        runs,
        f"--output: another elmo-report is training runs in {runs}. Wait for it, or give another folder; "
        "where reports need the same runs, the second finds those of the first.",
    ):
        return _run_grid(cells, options, experiment, runs)


def _run_grid(
    cells: Sequence[Cell], options: GridOptions, experiment: Experiment, runs: Path
) -> Optional[List[CellResult]]:
    distinct = {cell.name: cell for cell in cells}
    folders = {name: RunFolder(runs / name) for name in distinct}
    waiting = []
    for name, cell in distinct.items():
        folder = folders[name]
        goes_on = options.recover and folder.has_checkpoint()
        try:
            folder.check_config(cell.config, "--overwrite to replace it")
        except ConfigurationError:
            if not options.overwrite:
                raise
            goes_on = False
        else:
            if folder.is_done():
                continue
        waiting.append(_Job(cell, train_command(cell, folder, options, goes_on), folder))
    num_jobs = max(1, min(options.jobs or num_cores(), len(waiting)))
    num_threads = max(1, num_cores() // num_jobs)
    if options.dry_run:
        variables = {**experiment.variables(), "OMP_NUM_THREADS": str(num_threads)}
        for job in waiting:
            print(shell_command(job.command, variables))
        return None
    logger.info(
        "%d runs, of which %d are done. %d beside each other, threads of each: %d.",
        len(distinct),
        len(distinct) - len(waiting),
        num_jobs,
        num_threads,
    )
    failures = _Training(waiting, num_jobs, num_threads, experiment.metric).run()
    return [
        CellResult(cell, None, failures[cell.name])
        if cell.name in failures
        else _collected(cell, folders[cell.name], experiment.metric)
        for cell in cells
    ]


def _collected(cell: Cell, folder: RunFolder, metric: str) -> CellResult:
    try:
        return CellResult(cell, folder.scores(metric))
    except ConfigurationError as error:
        return CellResult(cell, None, str(error))


def train_command(
    cell: Cell, folder: RunFolder, options: GridOptions, goes_on: bool = False
) -> List[str]:
    """The command of a run: one that goes on where it was, or replaces what stands in its folder."""
    packages = dict.fromkeys(["elmo_plugin", *options.include_packages])
    return [
        *(sys.executable, "-m", "allennlp", "train", options.config_file, "-s", str(folder.path)),
        "--recover" if goes_on else "--force",
        *(argument for package in packages for argument in ("--include-package", package)),
        *("--file-friendly-logging", "--overrides", json.dumps(cell.overrides)),
    ]


def shell_command(command: Sequence[str], variables: Dict[str, str]) -> str:
    """A line for a shell, with the environment variables that the command needs."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join([*settings, shlex.join(command)])


def num_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Training:
    """
    The processes of a grid. They are stopped if this one is, by an error or a signal that becomes one.

    # Parameters

    waiting : `List[_Job]`
        What to train.
    num_jobs, num_threads : `int`
        Runs beside each other, and threads of each.
    metric : `str`
        To tell of the runs that are done.
    """

    def __init__(self, waiting: List[_Job], num_jobs: int, num_threads: int, metric: str) -> None:
        self.waiting = list(waiting)
        self.num_jobs = num_jobs
        self.environment = {**os.environ, "OMP_NUM_THREADS": str(num_threads)}
        self.metric = metric
        self.num_runs = len(waiting)
        self.running: Dict[subprocess.Popen, _Job] = {}
        self.failures: Dict[str, str] = {}
        self.num_ended = 0
        self.start_time = time.monotonic()

    def run(self) -> Dict[str, str]:
        """Train. Returns why runs failed, by their names."""
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < self.num_jobs:
                    self._start(self.waiting.pop(0))
                time.sleep(_SECONDS_BETWEEN_LOOKS)
                for process in list(self.running):
                    if process.poll() is not None:
                        self._end(process, self.running.pop(process))
        finally:
            self._stop()
        return self.failures

    def _start(self, job: _Job) -> None:
        job.folder.path.parent.mkdir(parents=True, exist_ok=True)
        logger.info("%s: started, its log is %s", job.cell.name, job.folder.log_file)
        with open(job.folder.log_file, "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                job.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A group of its own, so that it can be stopped with the processes that it starts.
                start_new_session=True,
            )
        self.running[process] = job

    def _end(self, process: subprocess.Popen, job: _Job) -> None:
        self.num_ended += 1
        name = job.cell.name
        if process.returncode == 0 and job.folder.is_done():
            result = _collected(job.cell, job.folder, self.metric)
        else:
            reason = job.folder.failure(process.returncode)
            result = CellResult(job.cell, None, f"{reason} (log: {job.folder.log_file})")
        if result.scores is None:
            self.failures[name] = result.failure
            told = f"failed: {result.failure}"
        else:
            scores = result.scores
            told = f"{self.metric} {scores.validation:.4g} after {scores.minutes:.1f} minutes"
        minutes = (time.monotonic() - self.start_time) / 60
        left = minutes / self.num_ended * (self.num_runs - self.num_ended)
        logger.info(
            "%s: %s. %d of %d runs, about %.0f minutes left.",
            *(name, told, self.num_ended, self.num_runs, left),
        )

    def _stop(self) -> None:
        for process in self.running:
            _signal_group(process, signal.SIGTERM)
        for process in self.running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_SECONDS_TO_STOP)
            _signal_group(process, signal.SIGKILL)  # what did not heed the other signal
            process.wait()


def _signal_group(process: subprocess.Popen, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it ended by itself
        os.killpg(process.pid, number)
