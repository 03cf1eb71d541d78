"""A softmax as the datasets of a weight file, in the group `softmax` beside bilm-tf's own."""

from typing import Dict

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from elmo_plugin.pretraining.softmax import LMSoftmax

SOFTMAX_GROUP = "softmax"

# What bilm-tf calls the weights of its softmax. Those of other kinds keep their parameters' names.
_DATASETS = {"word_vectors.weight": "W", "word_biases.weight": "b"}


def softmax_datasets(softmax: LMSoftmax) -> Dict[str, Tensor]:
    """
    The parameters of a softmax by dataset. Full and sampled softmax are `W`, `(num_words, input_dim)`, and
    `b`, `(num_words,)`, so that one can be trained on as the other.
    """
    return {
        _DATASETS.get(name, name): parameter.squeeze(1)
        if name == "word_biases.weight"
        else parameter
        for name, parameter in softmax.state_dict().items()
    }


def load_softmax(softmax: LMSoftmax, datasets: Dict[str, Tensor], source: str) -> None:
    """
    Fill a softmax from `datasets`; `source` names in errors where they are from.

    # Raises

    `ConfigurationError` if they are those of another kind of softmax, or of other sizes.
    """
    expected = softmax_datasets(softmax)
    for name in sorted(expected.keys() | datasets.keys()):
        found, wanted = (
            str(tuple(tensors[name].shape)) if name in tensors else "none"
            for tensors in (datasets, expected)
        )
        if found != wanted:
            raise ConfigurationError(
                f"{source}: dataset {SOFTMAX_GROUP}/{name} has shape {found}, expected {wanted} for the "
                f"{softmax.num_words:,} words of the vocabulary and a {type(softmax).__name__}. Give the "
                "vocabulary and the kind of softmax that it was trained with, or set model.new_softmax to "
                "learn another."
            )
    with torch.no_grad():
        for name, tensor in expected.items():
            tensor.copy_(datasets[name])
