"""What `--recover` needs to continue a biLM's training exactly."""

import ctypes
import logging
import random
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy as np
import torch
import torch.distributed
from allennlp.common.util import dump_metrics, is_distributed
from allennlp.nn.util import dist_reduce_sum
from allennlp.training import Checkpointer, GradientDescentTrainer, TrainerCallback
from allennlp.training.trainer import Trainer, TrainerCheckpoint

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import replaced_file
from elmo_plugin.files.tensors import save_tensors
from elmo_plugin.modules.elmo_archives import BEST_NAME
from elmo_plugin.pretraining.model import BiLMTrainingModel
from elmo_plugin.pretraining.stream_data_loader import StreamDataLoader

logger = logging.getLogger(__name__)

# Parameters of glibc's `mallopt`: how many allocations may use mmap, and above which size free memory is
# returned to the system.
M_MMAP_MAX, M_TRIM_THRESHOLD = -4, -1


@TrainerCallback.register("elmo_bilm_state")
class BiLMStateCallback(TrainerCallback):
    """
    Give distributed workers different random numbers (AllenNLP gives all the same seed, so that all would
    draw the same negative words and drop the same units), and save the training state in every checkpoint:
    the random state, the LSTM states that rows carry from batch to batch, the sums of loss and perplexity,
    and the numbers of batches.

    With `elmo_bilm_streams`, whose batches depend only on seed and epoch, a recovered training on a CPU has
    exactly the same weights and metrics (apart from times, speeds, and the mean penalty of a regularizer in
    the interrupted epoch) as one that was never interrupted, on the same machine with the same packages and
    number of threads. On a GPU, torch adds some gradients in an order that changes, and so their rounding;
    and with `use_amp` AllenNLP's trainer begins with a new scale of the loss. With several workers this needs
    the checkpointer `elmo_atomic`, which saves the states of all workers.

    A checkpoint is recovered with as many workers as have saved it.

    On a CPU, the process keeps memory that a step has freed for the next one, until it ends.
    """

    _model: BiLMTrainingModel

    def __init__(self, serialization_dir: str) -> None:
        super().__init__(serialization_dir)
        # The states of all workers: of the checkpoint that was loaded, and for the next one.
        self._loaded: List[Dict[str, Any]] = []
        self._gathered: List[Dict[str, Any]] = []
        # Sums over the epoch. The trainer's own sum of losses starts from zero after recovery.
        self._loss_sum = 0.0
        self._num_batches = 0
        self._metrics: Dict[str, Any] = {}  # of the last complete epoch

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        super().on_start(trainer, is_primary, **kwargs)
        self._model = trainer.model
        if next(self._model.parameters()).device.type == "cpu":
            keep_freed_memory()
        rank, num_workers = 0, 1
        if is_distributed():
            rank, num_workers = torch.distributed.get_rank(), torch.distributed.get_world_size()
            self._model.set_up_worker()
        if self._model.softmax_first > 0:
            trainer.optimizer.register_step_pre_hook(lambda *_: self._model.leave_out_frozen())
        # The trainer loads checkpoints before it calls this.
        if not self._loaded:
            if rank > 0:
                _seed_by_rank(rank)
            return
        if len(self._loaded) != num_workers:
            raise ConfigurationError(
                f"The checkpoint has the states of {len(self._loaded)} workers, expected those of "
                f"{num_workers}. Recover with as many workers as before, and with "
                "trainer.checkpointer.type elmo_atomic, which saves the states of all."
            )
        state = self._loaded[rank]
        self._set_random_state(state["random"])
        self._model.load_training_state(state["model"])
        self._loss_sum = state["loss_sum"]
        self._num_batches = state["num_batches"]
        if isinstance(trainer.data_loader, StreamDataLoader):
            trainer.data_loader.first_batch = (
                trainer._start_after_epochs_completed,
                trainer._start_after_batches_in_epoch_completed
                * trainer._num_gradient_accumulation_steps,
            )
        if trainer._metric_tracker.should_stop_early():
            # AllenNLP asks only after an epoch of training.
            trainer._num_epochs = trainer._start_after_epochs_completed

    def on_batch(
        self,
        trainer: GradientDescentTrainer,
        batch_inputs: Any,
        batch_outputs: Any,
        batch_metrics: Dict[str, Any],
        epoch: int,
        batch_number: int,
        is_training: bool,
        **kwargs: Any,
    ) -> None:
        if is_training:
            self._loss_sum += batch_metrics["batch_loss"]
            self._num_batches = batch_number

    def on_epoch(
        self,
        trainer: GradientDescentTrainer,
        metrics: Dict[str, Any],
        epoch: int,
        is_primary: bool = True,
        **kwargs: Any,
    ) -> None:
        if "training_perplexity" not in metrics:
            # If no batch remained after recovery, the trainer does not ask for training metrics.
            perplexity = self._model.training_perplexity.get_metric(reset=True)
            metrics.update({f"training_{name}": value for name, value in perplexity.items()})
        num_batches = dist_reduce_sum(self._num_batches)
        if num_batches > 0:  # in some orders, very little text does not fill a batch
            metrics["training_loss"] = dist_reduce_sum(self._loss_sum) / num_batches
        if is_primary:  # again, because the trainer has written its own
            dump_metrics(f"{self.serialization_dir}/metrics_epoch_{epoch}.json", metrics)
        self._loss_sum, self._num_batches = 0.0, 0
        self._metrics = dict(metrics)

    def on_end(
        self,
        trainer: GradientDescentTrainer,
        metrics: Optional[Dict[str, Any]] = None,
        epoch: Optional[int] = None,
        is_primary: bool = True,
        **kwargs: Any,
    ) -> None:
        if metrics is not None and "epoch" not in metrics:
            # If no epoch remained after recovery, the trainer knows only the best metrics.
            metrics.update(self._metrics)

    def gather(self) -> None:
        """Collect the states of all workers for the checkpoint of the first. All workers must call this."""
        if is_distributed():
            states: List[Any] = [None] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(states, self._own_state())
            self._gathered = states

    def state_dict(self) -> Dict[str, Any]:
        return {"workers": self._gathered or [self._own_state()], "metrics": self._metrics}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self._loaded = state_dict["workers"]
        self._metrics = state_dict["metrics"]

    def _own_state(self) -> Dict[str, Any]:
        device = next(self._model.parameters()).device
        return {
            "random": {
                "python": random.getstate(),
                "numpy": np.random.get_state(),
                "torch": torch.get_rng_state(),
                "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
            },
            "model": self._model.training_state(),
            "loss_sum": self._loss_sum,
            "num_batches": self._num_batches,
        }

    def _set_random_state(self, state: Dict[str, Any]) -> None:
        random.setstate(state["python"])
        np.random.set_state(state["numpy"])
        torch.set_rng_state(state["torch"])
        device = next(self._model.parameters()).device
        # Training on a CPU has no such state.
        if device.type == "cuda" and state["cuda"] is not None:
            torch.cuda.set_rng_state(state["cuda"], device)


def keep_freed_memory() -> None:
    """
    Let glibc keep freed memory. By default it gives that of large tensors back to the operating system, which
    then has to clear and map it again, page by page, in each step.
    """
    c_library = ctypes.CDLL(None)
    if hasattr(c_library, "mallopt"):
        c_library.mallopt(M_MMAP_MAX, 0)
        c_library.mallopt(M_TRIM_THRESHOLD, -1)


def _seed_by_rank(rank: int) -> None:
    # The draw is the same in all workers.
    seed = int(torch.randint(2**32, ())) + rank
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@Checkpointer.register("elmo_atomic")
class AtomicCheckpointer(Checkpointer):
    """
    AllenNLP's checkpointer, except that a checkpoint is complete or does not exist. (AllenNLP writes in
    place, weights first. After a full disk or a killed process `--recover` would use an incomplete file as
    the latest checkpoint.)

    It asks each `elmo_bilm_state` callback for the states of all distributed workers. AllenNLP saves only
    that of the first.

    The parameters are those of AllenNLP's.
    """

    def maybe_save_checkpoint(
        self, trainer: Trainer, num_epochs_completed: int, num_batches_in_epoch_completed: int
    ) -> bool:
        is_saved: bool = super().maybe_save_checkpoint(
            trainer, num_epochs_completed, num_batches_in_epoch_completed
        )
        if is_saved:
            # AllenNLP records this only in the worker that writes. All must call `gather` at the same batch.
            self._last_save_num_epochs_completed = num_epochs_completed
            self._last_save_num_batches_in_epoch_completed = num_batches_in_epoch_completed
        return is_saved

    def save_checkpoint(self, trainer: Trainer) -> None:
        for callback in getattr(trainer, "_callbacks", []):
            if isinstance(callback, BiLMStateCallback):
                callback.gather()  # called by all workers, unlike what follows
        checkpoint = trainer.get_checkpoint_state()
        if checkpoint is not None:
            completed = checkpoint.trainer_state
            place = completed["epochs_completed"], completed["batches_in_epoch_completed"]
            weights, state = self._model_state_path(*place), self._training_state_path(*place)
            # What a killed process was writing.
            for path in Path(self._serialization_dir).glob(".*_state_*.th.*"):
                path.unlink(missing_ok=True)
            # Weights last: they make a checkpoint. Those of an earlier training may be at the same place.
            Path(weights).unlink(missing_ok=True)
            _save(checkpoint.trainer_state, state)
            _save(checkpoint.model_state, weights)
        # It finds both files, and removes old checkpoints.
        super().save_checkpoint(trainer)

    def load_checkpoint(self) -> Optional[TrainerCheckpoint]:
        checkpoint = super().load_checkpoint()
        if checkpoint is not None and self._is_of_best_epoch(checkpoint.trainer_state):
            best = Path(self._serialization_dir, BEST_NAME)
            # The trainer makes it after the checkpoint: a killed process may have an old one, or none.
            if self._is_primary:
                weights, _ = self.find_latest_checkpoint()
                with replaced_file(best) as new_best:
                    shutil.copyfile(weights, new_best)
            checkpoint.trainer_state["best_model_filename"] = str(best)
        return checkpoint

    def _is_of_best_epoch(self, trainer_state: Dict[str, Any]) -> bool:
        """Whether a checkpoint has the best weights: if there are moving averages, those are the best."""
        is_end_of_epoch = trainer_state["batches_in_epoch_completed"] == 0
        is_best = trainer_state["metric_tracker"]["is_best_so_far"]
        return is_end_of_epoch and is_best and "moving_average" not in trainer_state


def _save(content: Any, path: str) -> None:
    with replaced_file(path) as new_file:
        save_tensors(content, new_file)
