"""The progress of a biLM's training: records, TensorBoard's files, and held-out perplexity before its end."""

import json
import logging
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from allennlp.common.util import dump_metrics
from allennlp.training import GradientDescentTrainer, TrainerCallback
from allennlp.training.util import evaluate
from tensorboardX import SummaryWriter

from elmo_plugin.errors import ConfigurationError, check_positive
from elmo_plugin.files.output import replaced_file

METRICS_BEFORE_NAME = "metrics_before.json"
PROGRESS_NAME = "progress.jsonl"
TENSORBOARD_NAME = "tensorboard"

SECONDS_BETWEEN_RECORDS = 5.0

_MAX_RECORD_BYTES = 1000

logger = logging.getLogger(__name__)


@TrainerCallback.register("elmo_validate_first")
class ValidateFirstCallback(TrainerCallback):
    """
    Evaluate the model on the validation data before training, log the metrics and write them to
    `metrics_before.json` beside AllenNLP's own metrics. A recovered training does not repeat it.
    """

    def __init__(self, serialization_dir: str) -> None:
        super().__init__(serialization_dir)
        self._is_recovered = False

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        super().on_start(trainer, is_primary, **kwargs)
        data_loader = trainer._validation_data_loader
        if self._is_recovered or data_loader is None:
            return
        logger.info("Validating before training.")
        # All workers must do this.
        metrics = evaluate(trainer.model, data_loader, trainer.cuda_device)
        if is_primary:
            for name, value in metrics.items():
                logger.info("Before training: %s %s", name, value)
            dump_metrics(f"{self.serialization_dir}/{METRICS_BEFORE_NAME}", metrics)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self._is_recovered = True


@TrainerCallback.register("elmo_progress")
class ProgressCallback(TrainerCallback):
    """
    Write records to `progress.jsonl` in the folder of the training, and the same to TensorBoard's files in
    `tensorboard`. A record has `words`, predictions in one direction since the start, with sentence ends (of
    the first worker, if training is distributed); `updates` and `seconds` of training; `words_per_second` and
    `loss`, the mean negative log-likelihood of a word as training computes it, since the previous record; and
    `perplexity`, the last one of the held-out text.

    # Parameters

    validation_interval : `int`, optional
        Number of updates between measurements of held-out perplexity, in addition to those at the end of each
        epoch. It does not affect training.
    """

    def __init__(self, serialization_dir: str, validation_interval: Optional[int] = None) -> None:
        super().__init__(serialization_dir)
        check_positive("elmo_progress: validation_interval", validation_interval)
        self._interval = validation_interval
        self._state: Dict[str, Any] = {
            "words": 0,
            "seconds": 0.0,
            "updates": 0,
            "perplexity": None,
        }
        self._start = 0.0  # of the clock, as if training had never been interrupted
        # Since the last record.
        self._record_time, self._num_words, self._loss_sum = 0.0, 0, 0.0

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        super().on_start(trainer, is_primary, **kwargs)
        if self._interval is not None and trainer._validation_data_loader is None:
            raise ConfigurationError(
                "elmo_progress has a validation_interval, and the config no validation_data_path. Add it, or "
                "leave out the interval."
            )
        self._file = Path(str(self.serialization_dir), PROGRESS_NAME)
        if is_primary:
            # What an interrupted training wrote after the checkpoint is done again.
            kept = [
                line for line in read_progress(self._file) if line["words"] <= self._state["words"]
            ]
            with replaced_file(self._file) as new_file:
                new_file.write_text("".join(f"{json.dumps(record)}\n" for record in kept))
            # TensorBoard hides what an earlier file has from this step on.
            self._writer = SummaryWriter(
                str(self._file.with_name(TENSORBOARD_NAME)), purge_step=self._state["words"] + 1
            )
        self._start = time.monotonic() - self._state["seconds"]
        self._record_time = self._start + self._state["seconds"]

    def on_batch(
        self,
        trainer: GradientDescentTrainer,
        batch_inputs: List[Any],
        batch_outputs: List[Any],
        batch_metrics: Dict[str, Any],
        epoch: int,
        batch_number: int,
        is_training: bool,
        is_primary: bool = True,
        **kwargs: Any,
    ) -> None:
        if not is_training:
            if self._num_words:  # validation has begun, whose time counts for no record's speed
                self._write(is_primary)
            return
        inputs = [batch["forward_inputs"] for batch in batch_inputs]
        num_words = sum(int((words > 0).any(dim=2).sum()) for words in inputs)
        self._state["updates"] += 1
        self._state["words"] += num_words
        self._num_words += num_words
        for words, output in zip(inputs, batch_outputs):
            # A mean over rows, to which the trainer has added the penalty of a regularizer.
            loss = output["loss"] - output.get("reg_loss", 0.0)
            self._loss_sum += loss.item() * len(words)
        if self._interval is not None and self._state["updates"] % self._interval == 0:
            self._write(is_primary)
            self._state["perplexity"] = _heldout_perplexity(trainer)
            self._write(is_primary)
        elif time.monotonic() - self._record_time >= SECONDS_BETWEEN_RECORDS:
            self._write(is_primary)
        self._state["seconds"] = time.monotonic() - self._start  # if a checkpoint follows

    def on_epoch(
        self,
        trainer: GradientDescentTrainer,
        metrics: Dict[str, Any],
        epoch: int,
        is_primary: bool = True,
        **kwargs: Any,
    ) -> None:
        self._state["perplexity"] = metrics.get("validation_perplexity", self._state["perplexity"])
        self._write(is_primary)

    def on_end(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        if is_primary:
            self._writer.close()  # a thread writes, for which `flush` does not wait

    def state_dict(self) -> Dict[str, Any]:
        return dict(self._state)

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self._state = dict(state_dict)

    def _write(self, is_primary: bool) -> None:
        now = time.monotonic()
        self._state["seconds"] = now - self._start
        record = dict(self._state)
        if self._num_words:
            record["words_per_second"] = self._num_words / max(now - self._record_time, 1e-9)
            record["loss"] = self._loss_sum / self._num_words
        self._record_time, self._num_words, self._loss_sum = now, 0, 0.0
        if not is_primary:
            return
        with open(self._file, "a", encoding="utf-8") as file:
            file.write(f"{json.dumps(record)}\n")
        for name in ("loss", "words_per_second", "perplexity"):
            if record.get(name) is not None:
                self._writer.add_scalar(name, record[name], record["words"])
        self._writer.flush()


def _heldout_perplexity(trainer: GradientDescentTrainer) -> float:
    """Return the perplexity of what the trainer validates and saves: moving averages, if there are any."""
    average = trainer._moving_average
    if average is not None:
        average.assign_average_value()
    metrics = evaluate(trainer.model, trainer._validation_data_loader, trainer.cuda_device)
    trainer.model.train()
    if average is not None:
        average.restore()
    return metrics["perplexity"]


def read_progress(file: Path) -> Iterator[Dict[str, Any]]:
    """Yield the records of a file; none if it does not exist. A line that is being written is left out."""
    lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []
    return map(json.loads, lines)


def last_progress(file: Path) -> Optional[Dict[str, Any]]:
    """Return the last record of a file; nothing if there is none."""
    if not file.exists():
        return None
    with open(file, "rb") as opened:
        opened.seek(max(0, file.stat().st_size - _MAX_RECORD_BYTES * 2))
        lines = opened.read().split(b"\n")[:-1]
    return json.loads(lines[-1]) if lines else None
