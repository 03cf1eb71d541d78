"""Checks of configs and vocabularies that several tasks make."""

from typing import Iterable, List

from allennlp.data import Vocabulary

from elmo_plugin.errors import ConfigurationError


def check_choice(key: str, value: str, choices: Iterable[str]) -> None:
    """Raise `ConfigurationError` unless the value of a config's key is one of `choices`."""
    if value not in choices:
        raise ConfigurationError(f"{key} is '{value}', expected one of: {', '.join(choices)}.")


def labels_of(vocab: Vocabulary) -> List[str]:
    """Return the labels of the training data in the order of their ids, at least one."""
    labels = vocab.get_index_to_token_vocabulary("labels")
    if not labels:
        raise ConfigurationError(
            "The vocabulary's namespace 'labels' is empty, expected the labels of the training data. Train "
            "on labelled data."
        )
    return [labels[index] for index in range(len(labels))]
