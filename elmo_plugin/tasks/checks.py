"""Checks of configs, vocabularies and labels that several tasks make."""

from typing import Iterable, List, Optional

from allennlp.data import Vocabulary
from torch import Tensor

from elmo_plugin.errors import ConfigurationError


def check_choice(key: str, value: str, choices: Iterable[str]) -> None:
    """Raise `ConfigurationError` unless the value of a config's key is one of `choices`."""
    if value not in choices:
        raise ConfigurationError(f"{key} is '{value}', expected one of: {', '.join(choices)}.")


def check_positive(**values: Optional[float]) -> None:
    """Raise `ConfigurationError` if one of these values is 0 or less. `None` is allowed."""
    for key, value in values.items():
        if value is not None and value <= 0:
            raise ConfigurationError(f"{key} is {value}, expected a number above 0.")


def check_label_vocabulary(vocab: Vocabulary, label_namespace: str) -> List[str]:
    """
    Return the labels of a namespace in the order of their ids. Raise `ConfigurationError` if there are none,
    or if the namespace has an entry for padding.
    """
    labels = vocab.get_index_to_token_vocabulary(label_namespace)
    place = f"The vocabulary's namespace '{label_namespace}'"
    if not labels:
        raise ConfigurationError(
            f"{place} is empty, expected the labels of the training data. Train on labelled data, and give "
            "reader and model the same label_namespace."
        )
    if vocab.is_padded(label_namespace):
        raise ConfigurationError(
            f"{place} has an entry for padding, expected only labels. Let the namespace's name end in "
            "'labels' or 'tags': others have entries for padding and unknown words."
        )
    return [labels[index] for index in range(len(labels))]


def check_gold_labels(
    label_ids: Tensor, labels: List[str], vocab: Vocabulary, namespace: str
) -> None:
    """
    Raise `ConfigurationError` if a label id is not one of the `labels` that a model was built for. The
    vocabulary can grow after the model is built, for instance by `allennlp evaluate --extend-vocab`.
    """
    highest = int(label_ids.max()) if label_ids.numel() else 0
    if highest >= len(labels):
        name = vocab.get_index_to_token_vocabulary(namespace).get(highest, highest)
        raise ConfigurationError(
            f"Found the gold label '{name}', expected one of those that the model was built for: "
            f"{', '.join(labels)}. Correct the data, or train a model on data that has the label."
        )
