"""Checkpoints that a full disk or a killed process cannot damage, with the states of all workers."""

from pathlib import Path
from typing import Any

import torch
from allennlp.training import Checkpointer
from allennlp.training.trainer import Trainer

from elmo_plugin.files.output import replaced_file
from elmo_plugin.pretraining.callbacks import BiLMStateCallback


@Checkpointer.register("elmo_atomic")
class AtomicCheckpointer(Checkpointer):
    """
    AllenNLP's checkpointer, except that a checkpoint is complete or does not exist. (AllenNLP writes in
    place, weights first. After a full disk or a killed process `--recover` would use an incomplete file as
    the latest checkpoint.)

    It asks each `elmo_bilm_state` callback for the states of all distributed workers. AllenNLP saves only
    that of the first.

    Registered as a `Checkpointer` with name `elmo_atomic`. The parameters are those of AllenNLP's.
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
            place = [
                checkpoint.trainer_state[f"{unit}_completed"]
                for unit in ("epochs", "batches_in_epoch")
            ]
            weights, state = self._model_state_path(*place), self._training_state_path(*place)
            # What a killed process was writing.
            for kind in ("model", "training"):
                for path in Path(self._serialization_dir).glob(f".{kind}_state_*.th.*"):
                    path.unlink(missing_ok=True)
            # Weights last: they make a checkpoint. Those of an earlier training may be at the same place.
            Path(weights).unlink(missing_ok=True)
            _save(checkpoint.trainer_state, state)
            _save(checkpoint.model_state, weights)
        # It finds both files, and removes old checkpoints.
        super().save_checkpoint(trainer)


def _save(content: Any, path: str) -> None:
    with replaced_file(path) as partial_file, open(partial_file, "wb") as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:
            # torch reports a position in its archive, and hides the reason, such as a full disk.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
