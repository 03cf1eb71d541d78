"""The gold class of a phrase."""

from typing import Dict, Optional, Sequence

from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.data.fields import LabelField


class SentimentField(LabelField):
    """
    A `LabelField` that brings all classes into the vocabulary, so that it has each of them, and in the same
    order, whatever the data; and that says which label of which file is not in the vocabulary.

    # Parameters

    label : `str`
        One of `classes`.
    classes : `Sequence[str]`
        All of them, in the order that the vocabulary is to have.
    label_namespace : `str`
        The vocabulary's namespace of the classes.
    place : `str`, optional
        File and line, to be named in errors.

    # Raises

    `ConfigurationError` if the label is none of the classes.
    """

    __slots__ = ["classes", "place"]

    def __init__(
        self,
        label: str,
        classes: Sequence[str],
        label_namespace: str,
        place: Optional[str] = None,
    ) -> None:
        super().__init__(label, label_namespace)
        self.classes = classes
        self.place = place
        if label not in classes:
            raise self._unexpected(f"one of: {', '.join(classes)}. Correct the label.")

    def count_vocab_items(self, counter: Dict[str, Dict[str, int]]) -> None:
        # The vocabulary sorts by frequency, and keeps the order of equal ones.
        for name in self.classes:
            counter[self._label_namespace][name] += 1

    def index(self, vocab: Vocabulary) -> None:
        """
        Look up the id of the label.

        # Raises

        `ConfigurationError` if the label is not in the vocabulary.
        """
        known = vocab.get_token_to_index_vocabulary(self._label_namespace)
        if self.label not in known:
            raise self._unexpected(
                f"one in the namespace '{self._label_namespace}' of the model's vocabulary: "
                f"{', '.join(known) or '(none)'}. Give the reader the granularity and the label_namespace "
                "that the model was trained with."
            )
        super().index(vocab)

    def _unexpected(self, expected: str) -> ConfigurationError:
        place = f"{self.place}: " if self.place else ""
        return ConfigurationError(f"{place}found the label '{self.label}', expected {expected}")
