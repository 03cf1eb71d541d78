"""The genre of a document."""

from typing import Dict, Optional

import torch
from allennlp.data import Vocabulary
from allennlp.data.fields import Field
from allennlp.data.vocabulary import DEFAULT_OOV_TOKEN

GENRE_NAMESPACE = "genres"


class GenreField(Field[torch.Tensor]):
    """
    A genre's id in the vocabulary's namespace `genres`. A genre that is not there, or not known, has the id
    that the namespace has for unknown ones: documents of other genres than those of training are no error.
    (AllenNLP's `LabelField` warns of namespaces that have such an id.)

    # Parameters

    genre : `str`, optional
    """

    __slots__ = ["_genre_id", "genre"]

    def __init__(self, genre: Optional[str]) -> None:
        self.genre = genre
        self._genre_id: Optional[int] = None

    def count_vocab_items(self, counter: Dict[str, Dict[str, int]]) -> None:
        if self.genre is not None:
            counter[GENRE_NAMESPACE][self.genre] += 1

    def index(self, vocab: Vocabulary) -> None:
        self._genre_id = vocab.get_token_index(self.genre or DEFAULT_OOV_TOKEN, GENRE_NAMESPACE)

    def get_padding_lengths(self) -> Dict[str, int]:
        return {}

    def as_tensor(self, padding_lengths: Dict[str, int]) -> torch.Tensor:
        return torch.tensor(self._genre_id)  # ()

    def empty_field(self) -> "GenreField":
        field = GenreField(None)
        field._genre_id = 0
        return field

    def __str__(self) -> str:
        return f"GenreField with genre: {self.genre}."
