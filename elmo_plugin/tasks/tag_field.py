"""The gold tags of sentences."""

from typing import List, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.data.fields import SequenceLabelField
from allennlp.data.fields.sequence_field import SequenceField
from torch import Tensor

from elmo_plugin.tasks.conll_file import SentencePlace


class TagField(SequenceLabelField):
    """
    A `SequenceLabelField` that says which tag of which file is not in the vocabulary.

    # Parameters

    tags : `List[str]`
        One for each token.
    tokens : `SequenceField`
        The tokens.
    label_namespace : `str`
        The vocabulary's namespace of the tags.
    place : `SentencePlace`, optional
        Where the sentence stands, to be named in errors.
    """

    __slots__ = ["place"]

    def __init__(
        self,
        tags: List[str],
        tokens: SequenceField,
        label_namespace: str,
        place: Optional[SentencePlace] = None,
    ) -> None:
        super().__init__(tags, tokens, label_namespace)
        self.place = place

    def index(self, vocab: Vocabulary) -> None:
        """
        Look up the ids of the tags.

        # Raises

        `ConfigurationError` if a tag is not in the vocabulary.
        """
        known_tags = vocab.get_token_to_index_vocabulary(self._label_namespace)
        for index, tag in enumerate(self.labels):
            if tag not in known_tags:
                place = f"{self.place.of_token(index)}: " if self.place else ""
                raise ConfigurationError(
                    f"{place}found tag '{tag}', expected one in the namespace "
                    f"'{self._label_namespace}' of the model's vocabulary: "
                    f"{', '.join(sorted(known_tags)) or '(none)'}. A tagger knows the tags of the "
                    "data that it was trained on: correct the tag, or train anew with this file "
                    "among the data, or with the tag in the vocabulary's `tokens_to_add`."
                )
        super().index(vocab)


def check_gold_tags(tags: Tensor, num_tags: int, vocab: Vocabulary, label_namespace: str) -> None:
    """
    Raise `ConfigurationError` if one of these tag ids, of any shape, is none of the `num_tags` that a model
    was built for. The vocabulary can grow after that, for instance by `allennlp evaluate --extend-vocab`.
    Training never sees it, and need not wait for the check.
    """
    if int(tags.max()) >= num_tags:
        tag = vocab.get_token_from_index(int(tags.max()), label_namespace)
        raise ConfigurationError(
            f"Found the gold tag '{tag}', expected one of the {num_tags} tags that the model was built for. "
            "Correct the data, or train a model on data that has the tag."
        )
