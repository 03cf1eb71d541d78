"""The perplexity of a biLM: of each direction, and of both, as in the paper and as in bilm-tf."""

import time
from typing import Any, Dict

import torch
from allennlp.nn.util import dist_reduce_sum
from allennlp.training.metrics import Metric
from torch import Tensor

from elmo_plugin.bilm.softmax import perplexities
from elmo_plugin.pretraining.sentence_streams import DIRECTIONS


@Metric.register("elmo_bilm_perplexity")
class BiLMPerplexity(Metric):
    """
    Perplexity since the last reset, from the sums of negative log-likelihoods.

    Sums stay on their device until they are needed, so that a training step does not wait for a GPU.
    """

    supports_distributed = True

    def __init__(self) -> None:
        self._sums = torch.zeros(len(DIRECTIONS)).double()
        self._num_predictions = 0
        # Times of another process do not measure the speed of this one.
        self._num_before = 0
        self._start = time.perf_counter()

    def start_clock(self) -> None:
        """
        Measure `tokens_per_second` from now on, if there was no prediction since the last reset: validation
        may have run between two epochs of training, and training between two validations.
        """
        if self._num_predictions == self._num_before:
            self._start = time.perf_counter()

    def __call__(self, *nlls: Tensor) -> None:
        """Add the negative log-likelihoods of predictions, `(num_predictions,)` for each direction."""
        batch_sums = torch.stack([nll.detach().double().sum() for nll in nlls])
        self._sums = self._sums.to(batch_sums.device) + batch_sums
        self._num_predictions += nlls[0].numel()

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """
        Return the metrics of `elmo_plugin.bilm.softmax.perplexities`, and `tokens_per_second`, where words of
        both directions count once; nothing before the first prediction.

        With `reset`, which all distributed workers must call, also `num_predictions` in each direction, and
        all of all workers together.
        """
        num_timed = self._num_predictions - self._num_before
        sums = torch.cat(
            [self._sums.cpu(), torch.tensor([self._num_predictions, num_timed]).double()]
        )
        if reset:
            sums = dist_reduce_sum(sums)  # of this worker, if there are no others
        *nlls, num_predictions, num_timed = sums.tolist()
        seconds = time.perf_counter() - self._start
        if reset:
            self.reset()
        if num_predictions == 0:
            return {}
        metrics = {
            **perplexities(nlls, num_predictions),
            "tokens_per_second": num_timed / seconds,
        }
        return {**metrics, "num_predictions": int(num_predictions)} if reset else metrics

    def reset(self) -> None:
        self.load_state_dict({"sums": torch.zeros_like(self._sums), "num_predictions": 0})

    def state_dict(self) -> Dict[str, Any]:
        """Return the sums, for a checkpoint in the middle of an epoch."""
        return {"sums": self._sums.cpu(), "num_predictions": self._num_predictions}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        self._sums = state["sums"]
        self._num_predictions = self._num_before = state["num_predictions"]
