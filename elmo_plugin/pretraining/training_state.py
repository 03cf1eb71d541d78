"""What `allennlp train --recover` needs beside weights and optimizer to go on as if nothing had happened."""

import random
from typing import Any, Dict, Optional

import numpy as np
import torch
from allennlp.training import GradientDescentTrainer, TrainerCallback

from elmo_plugin.pretraining.model import BiLMTrainingModel


@TrainerCallback.register("elmo_bilm_state")
class BiLMStateCallback(TrainerCallback):
    """
    Saves in every checkpoint the random state and the LSTM states that rows carry from batch to batch, and
    restores them with it. Together with `elmo_bilm_streams`, whose batches follow from seed and epoch, a
    recovered training of one process is the same as one that was never interrupted, to the last bit.

    Of several distributed workers, only the first one saves: the others start their rows anew when recovered.

    Registered as a `TrainerCallback` with name `elmo_bilm_state`.

    # Parameters

    serialization_dir : `str`
        The trainer gives it.

    # Raises

    `TypeError` at the start of training, if the model is no `BiLMTrainingModel`.
    """

    def __init__(self, serialization_dir: str) -> None:
        super().__init__(serialization_dir)
        self._model: Optional[BiLMTrainingModel] = None
        self._saved: Optional[Dict[str, Any]] = None

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        super().on_start(trainer, is_primary, **kwargs)
        if not isinstance(trainer.model, BiLMTrainingModel):
            raise TypeError(
                f"The trainer callback 'elmo_bilm_state' got a model {type(trainer.model).__name__}, "
                "expected one of type 'elmo_bilm'. Remove it from trainer.callbacks."
            )
        self._model = trainer.model
        # Checkpoints are read before training starts, and before there is a model here.
        if self._saved is not None:
            _set_random_state(self._saved["random"])
            self._model.load_training_state(self._saved["model"], with_states=is_primary)
            self._saved = None

    def state_dict(self) -> Dict[str, Any]:
        assert self._model is not None
        return {"random": _random_state(), "model": self._model.training_state()}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self._saved = state_dict


def _random_state() -> Dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    }


def _set_random_state(state: Dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    # Fewer devices than before: those that are there go on.
    for device, cuda_state in zip(range(torch.cuda.device_count()), state["cuda"]):
        torch.cuda.set_rng_state(cuda_state, device)
