"""From words to the character ids that a biLM reads: spelling, checks, distinct words."""

from typing import Dict, List, Optional, Sequence, Tuple

import numpy
import torch
from torch import Tensor

# Of every biLM: a word is at most 48 bytes between two word marks.
MAX_CHARACTERS_PER_TOKEN = 50

# Ids are shifted by 1: 0 is a position without a word. Bytes are 1 to 256.
_SENTENCE_MARKS = {"<S>": 257, "</S>": 258}
_BEGIN_OF_WORD, _END_OF_WORD, _PADDING_IN_WORD = 259, 260, 261

_ADVICE = "Make it with batch_to_ids or the elmo_characters indexer."


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
    for row, sentence in enumerate(sentences):
        if isinstance(sentence, str):
            raise ValueError(
                f"Sentence {row} is the string {sentence[:40]!r}, expected a list of words. "
                "Split it into words first."
            )
    timesteps = max((len(sentence) for sentence in sentences), default=0)
    character_ids = numpy.zeros(
        (len(sentences), timesteps, MAX_CHARACTERS_PER_TOKEN), dtype=numpy.int64
    )
    spellings: Dict[str, numpy.ndarray] = {}
    for row, sentence in enumerate(sentences):
        for step, word in enumerate(sentence):
            if word not in spellings:
                spellings[word] = _spell(word)
            character_ids[row, step] = spellings[word]
    return torch.from_numpy(character_ids)


def words_of(character_ids: Tensor) -> List[str]:
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
    return torch.from_numpy(numpy.stack([_spell(mark) for mark in _SENTENCE_MARKS]))


def check_character_ids(character_ids: Tensor, num_ids: int) -> None:
    """Raise `ValueError` unless this is `(batch_size, timesteps, 50)` of ids from 0 to `num_ids - 1`."""
    if character_ids.dim() != 3 or character_ids.size(2) != MAX_CHARACTERS_PER_TOKEN:
        raise ValueError(
            f"character_ids has shape {tuple(character_ids.shape)}, expected "
            f"(batch_size, timesteps, {MAX_CHARACTERS_PER_TOKEN}). {_ADVICE}"
        )
    if character_ids.dtype not in (torch.long, torch.int, torch.short):
        raise ValueError(
            f"character_ids has type {character_ids.dtype}, expected integers (torch.long). {_ADVICE}"
        )
    wrong = _value_out_of_range(character_ids, num_ids)
    if wrong is not None:
        row, step, position = (character_ids == wrong).nonzero()[0].tolist()
        raise ValueError(
            f"character_ids[{row}, {step}, {position}] is {wrong}, expected 0 (padding) to "
            f"{num_ids - 1}. {_ADVICE}"
        )


def check_word_ids(word_ids: Tensor, character_ids: Tensor) -> None:
    """Raise `ValueError` unless this has `character_ids`' shape without characters, and no negatives."""
    if word_ids.shape != character_ids.shape[:2]:
        raise ValueError(
            f"word_ids has shape {tuple(word_ids.shape)}, expected that of character_ids without "
            f"characters, {tuple(character_ids.shape[:2])}."
        )
    if word_ids.numel() > 0 and int(word_ids.min()) < 0:
        row, step = (word_ids < 0).nonzero()[0].tolist()
        raise ValueError(
            f"word_ids[{row}, {step}] is {int(word_ids[row, step])}, expected 0 (padding) or the index of "
            "a cached word."
        )


def check_padding(mask: Tensor, lengths: Tensor) -> None:
    """Raise `ValueError` unless each row of `mask` is `True` at its first `lengths` steps and only there."""
    positions = torch.arange(mask.size(1), device=mask.device)
    misplaced = mask != (positions.unsqueeze(0) < lengths.unsqueeze(1))
    if bool(misplaced.any()):
        row, step = misplaced.nonzero()[0].tolist()
        raise ValueError(
            f"Row {row} has padding (only zeros) at step {step} before a word, expected all padding at "
            "the end of the row."
        )


def distinct_words(words: Tensor) -> Tuple[Tensor, Tensor]:
    """
    Find the word types among the rows of `words`, exactly.

    # Parameters

    words : `Tensor`
        `(num_words, num_characters)`, character ids.

    # Returns

    `Tuple[Tensor, Tensor]`
        The types, `(num_types, num_characters)`, and for every word the index of its type,
        `(num_words,)`: `types[index]` equals `words`.
    """
    # Sorting one hash per word is many times faster than sorting rows of 50 characters.
    hashes = (words * _multipliers(words)).sum(dim=1)
    unique_hashes, index = torch.unique(hashes, return_inverse=True)
    example = words.new_zeros(unique_hashes.size(0)).scatter_(
        0, index, torch.arange(words.size(0), device=words.device)
    )
    types = words[example]
    if not torch.equal(types[index], words):
        # Two words share a hash: next to impossible, and then the slow way is still right.
        types, index = torch.unique(words, dim=0, return_inverse=True)
    return types, index


def _spell(word: str) -> numpy.ndarray:
    if word in _SENTENCE_MARKS:
        characters = [_SENTENCE_MARKS[word]]
    else:
        encoded = word.encode("utf-8", "ignore")[: MAX_CHARACTERS_PER_TOKEN - 2]
        characters = [byte + 1 for byte in encoded]
    ids = numpy.full(MAX_CHARACTERS_PER_TOKEN, _PADDING_IN_WORD, dtype=numpy.int64)
    ids[: len(characters) + 2] = [_BEGIN_OF_WORD, *characters, _END_OF_WORD]
    return ids


def _value_out_of_range(tensor: Tensor, limit: int) -> Optional[int]:
    if tensor.numel() == 0:
        return None
    smallest, largest = (int(value) for value in torch.aminmax(tensor))
    if smallest < 0:
        return smallest
    return largest if largest >= limit else None


def _multipliers(words: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    multipliers = torch.randint(
        torch.iinfo(torch.long).min,
        torch.iinfo(torch.long).max,
        (words.size(1),),
        generator=generator,
    )
    return multipliers.to(words.device)
