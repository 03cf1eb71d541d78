"""From words to the character ids that a biLM reads."""

from typing import List, Sequence

import torch
from allennlp.data.token_indexers.elmo_indexer import ELMoCharacterMapper
from torch import Tensor

# Fixed by the indexer, and so by every biLM: the bytes of a word and two word marks.
MAX_CHARACTERS_PER_TOKEN = ELMoCharacterMapper.max_word_length


def sentence_marks() -> Tensor:
    """The character ids of the begin and the end of a sentence, `(2, 50)`."""
    marks = (ELMoCharacterMapper.bos_token, ELMoCharacterMapper.eos_token)
    return torch.tensor([ELMoCharacterMapper().convert_word_to_char_ids(mark) for mark in marks])


def batch_to_ids(sentences: Sequence[Sequence[str]]) -> Tensor:
    """
    Spell the words of tokenized sentences as character ids.

    A word is its UTF-8 bytes between two word marks, cut after 48 bytes; a sentence shorter than the
    longest is padded with zeros. `<S>` and `</S>` are the sentence marks, also when typed as words.

    # Parameters

    sentences : `Sequence[Sequence[str]]`
        Tokenized sentences; empty ones are allowed.

    # Returns

    `Tensor` of type int64 and shape `(len(sentences), longest sentence, 50)`.

    # Raises

    `ValueError` if a sentence is a string rather than a list of words.
    """
    mapper = ELMoCharacterMapper()
    for row, sentence in enumerate(sentences):
        if isinstance(sentence, str):
            raise ValueError(
                f"Sentence {row} is the string {sentence[:40]!r}, expected a list of words. "
                "Split it into words first."
            )
    timesteps = max((len(sentence) for sentence in sentences), default=0)
    character_ids = torch.zeros(
        len(sentences), timesteps, MAX_CHARACTERS_PER_TOKEN, dtype=torch.long
    )
    for row, sentence in enumerate(sentences):
        if len(sentence) > 0:
            words: List[List[int]] = [mapper.convert_word_to_char_ids(word) for word in sentence]
            character_ids[row, : len(sentence)] = torch.tensor(words)
    return character_ids
