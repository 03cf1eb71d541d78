"""The softmax of a language model for evaluation: exact probabilities of words, in bounded memory."""

import math
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import numpy
import torch
from torch import Tensor

from elmo_plugin.bilm.hdf5 import check_holds_floats, opened_hdf5, reading_hdf5
from elmo_plugin.bilm.weights import is_finite
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import FileName

# Number of logits in memory, for vocabularies of any size: they fit a CPU's caches (4 MiB in float32, the
# fastest of 1 to 16 MiB), or give a GPU enough work (64 MiB, not measured).
LOGITS_PER_CHUNK = 2**20
LOGITS_PER_CHUNK_ON_GPU = 2**24
# Number of positions in a chunk, so that it has enough words for a fast product.
POSITIONS_PER_CHUNK = 4096

SOFTMAX_GROUP = "softmax"  # of a weight file, beside the biLM's own
# bilm-tf's names of the weights: `(num_words, input_dim)` and `(num_words,)`.
WEIGHT, BIAS = "W", "b"


@dataclass(frozen=True)
class ExactSoftmax:
    """
    `softmax(W h + b)`: probabilities of all words of a vocabulary from the states of a biLM's top layer. For
    evaluation only. Products are computed in float32 (float64 if the weights are float64), also under
    autocast.
    """

    weight: Tensor  # (num_words, input_dim)
    bias: Tensor  # (num_words,)

    @torch.no_grad()
    def nll(self, states: Tensor, targets: Tensor) -> Tensor:
        """
        Return the exact negative log-likelihoods of words after states, `(num_positions, input_dim)`, with
        only a chunk of the logits in memory. `targets` and the result are `(num_positions,)`; the result is
        float64 and never below 0.
        """
        weight, bias = self._for_products()
        states = states.to(weight.dtype)
        with torch.autocast(states.device.type, enabled=False):
            # (num_positions,) each
            target_logits = (states.double() * weight[targets].double()).sum(dim=1) + bias[targets]
            chunks = chunks_of_positions(states)
            log_sum = torch.cat([log_sum_of_chunks(chunk, weight, bias) for chunk in chunks])
        # By rounding, the probability of a nearly certain word may be above 1.
        return (log_sum - target_logits).clamp_min(0)

    @torch.no_grad()
    def log_probabilities(self, states: Tensor) -> Tensor:
        """Return the log-probabilities of all words, `(num_positions, num_words)`, in one tensor."""
        weight, bias = self._for_products()
        with torch.autocast(states.device.type, enabled=False):
            return logits(states.to(weight.dtype), weight, bias).log_softmax(dim=1)

    def check_fits(self, projection_dim: int, num_words: int) -> None:
        """
        Raise `ConfigurationError` unless it reads states of this width, and predicts this number of words.
        """
        words, width = self.weight.shape
        if width != projection_dim:
            raise ConfigurationError(
                f"The softmax reads states of width {width}, expected the biLM's projection_dim, "
                f"{projection_dim}. Give the softmax that this biLM was trained with."
            )
        if words != num_words:
            raise ConfigurationError(
                f"The vocabulary has {num_words:,} words, expected the {words:,} that the softmax "
                "predicts. Give the vocabulary that it was trained with."
            )

    def datasets(self) -> Dict[str, Tensor]:
        """Return the weights by their paths in a weight file."""
        return {f"{SOFTMAX_GROUP}/{WEIGHT}": self.weight, f"{SOFTMAX_GROUP}/{BIAS}": self.bias}

    def to(self, device: torch.device) -> "ExactSoftmax":
        """Return this softmax on a device."""
        return ExactSoftmax(self.weight.to(device), self.bias.to(device))

    def _for_products(self) -> Tuple[Tensor, Tensor]:
        product_type = torch.promote_types(self.weight.dtype, torch.float32)
        return self.weight.to(product_type), self.bias.to(product_type)


def read_softmax(weight_file: FileName) -> Optional[ExactSoftmax]:
    """
    Return the softmax that a weight file contains beside the biLM, `None` if it contains none.

    # Raises

    `ConfigurationError` if the file cannot be read, or if a dataset is missing, surplus, of a wrong shape,
    larger than the memory, or does not hold finite floating-point numbers.
    """
    with opened_hdf5(weight_file) as file, reading_hdf5(weight_file):
        group = file.get(SOFTMAX_GROUP, {})
        for dataset in group.values():
            check_holds_floats(dataset, weight_file)
        try:
            # Overflows become infinite, which `softmax_of` finds.
            with numpy.errstate(over="ignore"):
                datasets = {
                    name: torch.from_numpy(dataset[...].astype(numpy.float32))
                    for name, dataset in group.items()
                }
        except MemoryError as error:
            raise ConfigurationError(
                f"{weight_file}: the datasets of {SOFTMAX_GROUP} are larger than the memory, expected those "
                "of a softmax. The file may be damaged."
            ) from error
    return softmax_of(datasets, weight_file) if datasets else None


def softmax_of(datasets: Mapping[str, Tensor], source: FileName) -> ExactSoftmax:
    """Return the softmax of datasets, with the checks of `read_softmax`."""
    if set(datasets) != {WEIGHT, BIAS}:
        raise ConfigurationError(
            f"{source}: found the datasets {', '.join(sorted(datasets))} of a softmax, expected "
            f"{WEIGHT}, {BIAS}. Give the file of a softmax that `elmo export` or bilm-tf wrote."
        )
    weight, bias = datasets[WEIGHT], datasets[BIAS]
    if weight.dim() != 2 or bias.shape != weight.shape[:1]:
        raise ConfigurationError(
            f"{source}: the datasets of a softmax have the shapes {tuple(weight.shape)} ({WEIGHT}) and "
            f"{tuple(bias.shape)} ({BIAS}), expected a row of {WEIGHT} and a number of {BIAS} for each word. "
            "Get another copy of the file."
        )
    for name, tensor in datasets.items():
        if not is_finite(tensor.numpy()):
            raise ConfigurationError(
                f"{source}: dataset {SOFTMAX_GROUP}/{name} holds NaN or infinite values, expected finite "
                "weights. The file is damaged, or its training diverged; get another copy."
            )
    return ExactSoftmax(weight, bias)


def perplexities(nll_sums: Sequence[float], num_predictions: float) -> Dict[str, float]:
    """
    Return perplexities from the sums of the negative log-likelihoods of both directions, forward first.

    # Returns

    `forward_perplexity` and `backward_perplexity`; `perplexity`, their mean, as the paper reports it; and
    `bilm_tf_perplexity`, the exponential of the mean loss of both directions, as bilm-tf reports it, never
    above the mean.
    """
    means = [nll_sum / num_predictions for nll_sum in nll_sums]
    forward, backward = (_exponential(mean) for mean in means)
    return {
        "forward_perplexity": forward,
        "backward_perplexity": backward,
        "perplexity": (forward + backward) / 2,
        "bilm_tf_perplexity": _exponential(sum(means) / 2),
    }


def log_sum_of_chunks(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return `logsumexp(states @ weight.T + bias)`, `(num_positions,)`. Chunks are summed in float64."""
    log_sum = states.new_full(states.shape[:1], -math.inf, dtype=torch.float64)
    for words in chunks_of_words(states, weight):
        of_chunk = logits(states, weight[words], bias[words])
        # torch's logsumexp does not overwrite its argument, and passes over it twice as often.
        highest = of_chunk.amax(dim=1, keepdim=True)
        chunk_sum = of_chunk.sub_(highest).exp_().sum(dim=1).log_().add_(highest.squeeze(1))
        log_sum = torch.logaddexp(log_sum, chunk_sum.double())
    return log_sum


def logits(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return logits `(num_positions, num_words)`, in the type of the bias."""
    return torch.mm(states, weight.t()).to(bias.dtype).add_(bias)


def chunks_of_positions(tensor: Tensor) -> Sequence[Tensor]:
    """Split a tensor with a row for each position."""
    return tensor.split(POSITIONS_PER_CHUNK)


def chunks_of_words(states: Tensor, weight: Tensor) -> List[slice]:
    """Split the vocabulary so that no chunk of logits is larger than the limit of the device."""
    on_cpu = states.device.type == "cpu"
    num_logits = LOGITS_PER_CHUNK if on_cpu else LOGITS_PER_CHUNK_ON_GPU
    num_words = max(1, num_logits // max(1, len(states)))
    return [slice(start, start + num_words) for start in range(0, len(weight), num_words)]


def _exponential(mean: float) -> float:
    return math.exp(min(mean, 700.0))  # more would overflow
