"""The perplexity of a biLM: of each direction, and of both, as in the paper and as in bilm-tf."""

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

    def __call__(self, *nlls: Tensor) -> None:
        """Add the negative log-likelihoods of predictions, `(num_predictions,)` for each direction."""
        batch_sums = torch.stack([nll.detach().double().sum() for nll in nlls])
        self._sums = self._sums.to(batch_sums.device) + batch_sums
        self._num_predictions += nlls[0].numel()

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """
        Return the metrics of `elmo_plugin.bilm.softmax.perplexities`; nothing before the first prediction.

        With `reset`, which all distributed workers must call, also `num_predictions` in each direction, and
        all of all workers together.
        """
        sums = torch.cat([self._sums.cpu(), torch.tensor([self._num_predictions]).double()])
        if reset:
            sums = dist_reduce_sum(sums)  # of this worker, if it is the only one
            self.reset()
        *nlls, num_predictions = sums.tolist()
        if num_predictions == 0:
            return {}
        metrics = perplexities(nlls, num_predictions)
        return {**metrics, "num_predictions": int(num_predictions)} if reset else metrics

    def reset(self) -> None:
        self._sums, self._num_predictions = torch.zeros_like(self._sums), 0

    def state_dict(self) -> Dict[str, Any]:
        """Return the sums, for a checkpoint in the middle of an epoch."""
        return {"sums": self._sums.cpu(), "num_predictions": self._num_predictions}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        self._sums, self._num_predictions = state["sums"], state["num_predictions"]
