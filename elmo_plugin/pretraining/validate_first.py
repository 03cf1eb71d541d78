"""The perplexity before training, for what goes on from another model."""

import json
import logging
from pathlib import Path
from typing import Any, Dict

from allennlp.training import GradientDescentTrainer, TrainerCallback
from allennlp.training.util import evaluate

from elmo_plugin.files.replaced_file import replaced_file

logger = logging.getLogger(__name__)

METRICS_NAME = "metrics_before.json"


@TrainerCallback.register("elmo_validate_first")
class ValidateFirstCallback(TrainerCallback):
    """
    Evaluates the model on the validation data before training, logs the metrics and writes them to
    `metrics_before.json` beside AllenNLP's own metrics. Not again when training is recovered.

    Registered as a `TrainerCallback` with name `elmo_validate_first`.

    # Parameters

    serialization_dir : `str`
        The trainer gives it.
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
        # By all workers together.
        metrics = evaluate(trainer.model, data_loader, trainer.cuda_device)
        if not is_primary:
            return
        for name, value in metrics.items():
            logger.info("Before training: %s %s", name, value)
        with replaced_file(Path(self.serialization_dir) / METRICS_NAME) as new_file:
            new_file.write_text(json.dumps(metrics, indent=2) + "\n")

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        self._is_recovered = True
