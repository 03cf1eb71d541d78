"""From words to the character ids that a biLM reads."""

from typing import Dict, List, Sequence

import numpy
import torch
from torch import Tensor

# The same in every biLM: a word is at most 48 bytes between two word marks.
MAX_CHARACTERS_PER_TOKEN = 50

# Bytes, begin and end of a sentence, begin and end of a word, padding within a word; and 0, no word.
NUM_CHARACTER_IDS = 262

# Ids are shifted by 1: 0 is a position without a word. Bytes are 1 to 256.
_SENTENCE_MARKS = {"<S>": 257, "</S>": 258}
_BEGIN_OF_WORD, _END_OF_WORD, _PADDING_IN_WORD = 259, 260, 261


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

    `ValueError` if a sentence is a string rather than a list of tokens, or a token is not a string.
    """
    for row, sentence in enumerate(sentences):
        if isinstance(sentence, str):
            raise ValueError(
                f"Sentence {row} is {sentence[:40]!r}, expected a list of tokens. Split it into tokens."
            )
    timesteps = max((len(sentence) for sentence in sentences), default=0)
    character_ids = numpy.zeros(
        (len(sentences), timesteps, MAX_CHARACTERS_PER_TOKEN), dtype=numpy.int64
    )
    spellings: Dict[str, numpy.ndarray] = {}
    for row, sentence in enumerate(sentences):
        for step, word in enumerate(sentence):
            if not isinstance(word, str):
                raise ValueError(
                    f"Token {step} of sentence {row} is {word!r:.40}, expected a string."
                )
            if word not in spellings:
                spellings[word] = spell(word)
            character_ids[row, step] = spellings[word]
    return torch.from_numpy(character_ids)


def decoded_words(character_ids: Tensor) -> List[str]:
    """
    Return the words that `batch_to_ids` spelled as these rows, `(num_words, 50)`: of a word that was cut, the
    whole characters that are left.
    """
    marks = {number: mark for mark, number in _SENTENCE_MARKS.items()}
    words = []
    for row in character_ids.tolist():
        encoded = bytes(number - 1 for number in row if 0 < number <= 256)
        words.append(marks.get(row[1]) or encoded.decode("utf-8", "ignore"))
    return words


def sentence_marks() -> Tensor:
    """Return the character ids of the begin and the end of a sentence, `(2, 50)`."""
    return torch.from_numpy(_SPELLED_MARKS.copy())


def spell(word: str) -> numpy.ndarray:
    """Return the character ids of a word, `(50,)`, int64."""
    if word in _SENTENCE_MARKS:
        characters = [_SENTENCE_MARKS[word]]
    else:
        encoded = word.encode("utf-8", "ignore")[: MAX_CHARACTERS_PER_TOKEN - 2]
        characters = [byte + 1 for byte in encoded]
    ids = numpy.full(MAX_CHARACTERS_PER_TOKEN, _PADDING_IN_WORD, dtype=numpy.int64)
    ids[: len(characters) + 2] = [_BEGIN_OF_WORD, *characters, _END_OF_WORD]
    return ids


_SPELLED_MARKS = numpy.stack([spell(mark) for mark in _SENTENCE_MARKS])
