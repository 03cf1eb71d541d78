"""The words that a biLM predicts: bilm-tf's vocabulary file."""

import math
import re
from typing import Dict, Iterable, Iterator, List, Mapping, Optional

from elmo_plugin.bilm.model_files import PRETRAINED_FOLDER, VOCABULARY_NAME, is_pretrained
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import opened_output
from elmo_plugin.files.text import FileName, decoded_lines, open_text

SPECIALS = ("<S>", "</S>", "<UNK>")

# ASCII only: a word with other white space, such as a no-break space, never occurs in a corpus, but has an
# index in a trained softmax.
_WHITE_SPACE = re.compile(r"[ \t\n\v\f\r]")
_COUNTED_WORD = re.compile(r"([^ \t\n\v\f\r]+)[ \t]+(\d{1,18})")


class LMVocabulary:
    """
    The words that the softmax of a biLM predicts; every other word counts as `<UNK>`.

    Only targets are looked up: the input of a biLM is the characters of words. Words are sorted by descending
    count, because the sampled softmax derives the frequency of a word from its index (bilm-tf's README).

    # Parameters

    words : `Iterable[str]`
        `<S>`, `</S>` and `<UNK>` in any order, as bilm-tf finds them by name; then all others by descending
        frequency.
    name : `str`, optional (default = `"vocabulary"`)
        The source of the words, for errors.

    # Attributes

    words : `List[str]`
        All words by index, including the three special entries. Must not be changed.
    begin, end, unknown : `int`
        The indices of `<S>`, `</S>` and `<UNK>`.

    # Raises

    `ConfigurationError` naming the line (the first word's is 1) if the special entries do not come
    first, or if a word is empty, contains ASCII white space, or is repeated.
    """

    def __init__(self, words: Iterable[str], name: str = "vocabulary") -> None:
        self._indices = _checked_indices(words, name)
        self.words: List[str] = list(self._indices)
        self.begin, self.end, self.unknown = (self._indices[entry] for entry in SPECIALS)

    @classmethod
    def from_file(cls, path: FileName) -> "LMVocabulary":
        """
        Read and check a file with one word on each line, alone or followed by its count. The name of a
        pretrained biLM of this package, such as `elmo_mini`, can replace the path of its file.

        # Raises

        `ConfigurationError` naming the file if it cannot be read, and the line if it is invalid or not UTF-8,
        or if its count is larger than the one before.
        """
        if is_pretrained(path):
            path = PRETRAINED_FOLDER / str(path) / VOCABULARY_NAME
        with open_text(path) as file:
            lines = (line.removesuffix("\r") for line in decoded_lines(file, path, "one word"))
            return cls(_without_counts(lines, str(path)), str(path))

    @classmethod
    def from_counts(
        cls, counts: Mapping[str, int], min_count: int = 1, max_size: Optional[int] = None
    ) -> "LMVocabulary":
        """
        Choose the words of a corpus, by descending count; words of equal count by code point. In a corpus
        that holds the special entries, they are not counted.

        # Parameters

        min_count : `int`, optional (default = `1`)
            Leave out words that occur less often.
        max_size : `int`, optional
            Keep at most this number of entries, with the three special ones.

        # Raises

        `ConfigurationError` if no word is left.
        """
        frequent = sorted(
            (-count, word)
            for word, count in counts.items()
            if count >= min_count and word not in SPECIALS
        )
        kept = frequent[: None if max_size is None else max(0, max_size - len(SPECIALS))]
        if not kept:
            largest = max((counts[word] for word in counts if word not in SPECIALS), default=0)
            raise ConfigurationError(
                f"min_count: no word of the corpus occurs {min_count} times, expected at most "
                f"{largest}, the largest count of a word. Give a smaller number, or more text."
            )
        return cls([*SPECIALS, *(word for _, word in kept)])

    def to_file(self, path: FileName) -> None:
        """Write one word on each line, see `opened_output`."""
        with opened_output(path) as file:
            file.writelines(f"{word}\n" for word in self.words)

    def __len__(self) -> int:
        """Return the number of words, special entries included: the width of the softmax."""
        return len(self.words)

    def index_of(self, word: str) -> int:
        """Return the index of a word; `unknown` for a word that is not in the vocabulary."""
        return self._indices.get(word, self.unknown)


def _without_counts(lines: Iterable[str], name: str) -> Iterator[str]:
    """Yield the word of each line. Check that counts, where lines have them, do not rise."""
    previous = math.inf
    for index, line in enumerate(lines):
        match = _COUNTED_WORD.fullmatch(line)
        if match is not None and index >= len(SPECIALS):
            count = int(match[2])
            if count > previous:
                raise _error(
                    name,
                    index,
                    f"the count {count:,} of {match[1][:60]!r} after the count {previous:,}",
                    "counts that do not rise: the sampled softmax derives the frequency of a word from its "
                    "line. Sort the file",
                )
            previous = count
        yield line if match is None else match[1]


def _checked_indices(words: Iterable[str], name: str) -> Dict[str, int]:
    """Return the index of each word, in order. Stop at the first invalid word."""
    specials_first = f"{', '.join(SPECIALS)} in the first three lines. Put them there"
    indices: Dict[str, int] = {}
    for index, word in enumerate(words):
        if index < len(SPECIALS) and word not in SPECIALS:
            expected = specials_first
        elif not word or _WHITE_SPACE.search(word):
            expected = "one word without white space. Correct the file"
        elif word in indices:
            expected = f"each word once: it is on line {indices[word] + 1} too. Correct the file"
        else:
            indices[word] = index
            continue
        raise _error(name, index, repr(word[:60]), expected)
    if len(indices) < len(SPECIALS):
        raise _error(name, len(indices), "the end of the file", specials_first)
    return indices


def _error(name: str, index: int, found: str, expected: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name}, line {index + 1}: found {found}, expected {expected}; `elmo vocab CORPUS --output FILE` "
        "makes a vocabulary from a corpus."
    )
