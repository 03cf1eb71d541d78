"""Run the config of `elmo pretrain` as a process: measure the speed, and train with a line of progress."""

import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

from allennlp.models.archival import archive_model

from elmo_plugin.compat.training_process import (
    SECONDS_BETWEEN_POLLS,
    failure_reason,
    start_training,
    stop_training,
    train_command,
)
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.progress import progress_bar
from elmo_plugin.pretraining.export import METRICS_NAME
from elmo_plugin.pretraining.plan import CONFIG_NAME, RUN_NAME, Plan, write_config
from elmo_plugin.pretraining.progress import PROGRESS_NAME, last_progress

# Upper limits of the measurement: seconds, and a share of the estimated time of the training.
SECONDS_OF_MEASURING, SHARE_OF_MEASURING = 30.0, 0.1

# In the folder of a training.
LOG_NAME, MEASURING_NAME = "log.txt", "measuring"

# With --overwrite the training would be removed.
RESUME_ADVICE = (
    "the same command with --resume (not --overwrite) continues from the last checkpoint"
)


def measured_speed(config: Dict[str, Any], folder: Path, num_words: int) -> float:
    """
    Train for half a minute, or a tenth of the time that `num_words` words take, in a folder that is removed.
    Return the words per second.
    """
    # Nothing is validated, which a scheduler may need; and the biLM learns from the first batch.
    endless = {key: value for key, value in config.items() if not key.startswith("validation_")}
    endless["model"] = {**config["model"], "softmax_first": 0}
    endless["trainer"] = {
        **config["trainer"],
        "num_epochs": 1_000_000,
        "patience": None,
        "learning_rate_scheduler": None,
    }
    write_config(endless, folder / CONFIG_NAME, "elmo pretrain, to measure the speed")
    record: Optional[Dict[str, Any]] = None
    try:
        with _running(folder, MEASURING_NAME, "--force") as process:
            while record is None or record["seconds"] < _seconds_to_measure(num_words, record):
                _check_running(process, folder, "It was only measured: give the same command again")
                time.sleep(SECONDS_BETWEEN_POLLS)
                record = last_progress(folder / MEASURING_NAME / PROGRESS_NAME)
    finally:
        shutil.rmtree(folder / MEASURING_NAME, ignore_errors=True)
    return record["words"] / record["seconds"]


def _seconds_to_measure(num_words: int, record: Dict[str, Any]) -> float:
    seconds = num_words * record["seconds"] / max(1, record["words"])  # of the training
    return min(SECONDS_OF_MEASURING, SHARE_OF_MEASURING * seconds)


def train(folder: Path, plan: Plan) -> None:
    """
    Train the config in a folder, and show the progress. A training that was interrupted continues from its
    last checkpoint.

    # Raises

    `ConfigurationError` if the process fails.
    """
    run = folder / RUN_NAME
    if (run / METRICS_NAME).exists():
        archive_model(run)  # it may have ended before the archive was complete
        return
    # Without a checkpoint there is nothing to recover.
    recovers = any(run.glob("model_state_*.th"))
    if not recovers:
        (run / PROGRESS_NAME).unlink(missing_ok=True)
    with (
        _running(folder, RUN_NAME, "--recover" if recovers else "--force") as process,
        progress_bar(
            None, total=plan.words, unit=" words", unit_scale=True, desc="training"
        ) as progress,
    ):
        is_running = True
        while is_running:
            is_running = process.poll() is None
            record = last_progress(run / PROGRESS_NAME)
            if record is not None:
                progress.update(min(record["words"], plan.words) - progress.n)
                figures = {name: record.get(name) for name in ("loss", "perplexity")}
                shown = {name: f"{value:.4g}" for name, value in figures.items() if value}
                progress.set_postfix(shown, refresh=False)
            time.sleep(SECONDS_BETWEEN_POLLS if is_running else 0)
    _check_running(process, folder, f"Nothing that a checkpoint holds is lost: {RESUME_ADVICE}")


@contextmanager
def _running(folder: Path, name: str, argument: str) -> Iterator[subprocess.Popen]:
    """Start a training in a subfolder of this name, and stop it at the end of the context."""
    command = train_command(Path(CONFIG_NAME), Path(name), argument)
    process = start_training(command, folder / LOG_NAME, folder=folder)
    try:
        yield process
    finally:
        stop_training([process])


def _check_running(process: subprocess.Popen, folder: Path, what_is_kept: str) -> None:
    """Raise `ConfigurationError` if a process has failed."""
    if process.poll() is not None and process.returncode != 0:
        raise ConfigurationError(
            f"training failed: {failure_reason(process.returncode, folder / LOG_NAME)}. {what_is_kept}. "
            "If memory was short, close other programs, or start again with a smaller --size; if the disk is "
            "full, make room."
        )
