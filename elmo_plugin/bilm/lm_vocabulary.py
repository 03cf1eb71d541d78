"""The words that a biLM predicts: bilm-tf's vocabulary file."""

import re
from os import PathLike
from typing import Dict, Iterable, List, Mapping, Union

import numpy

from elmo_plugin.bilm.model_files import PRETRAINED_FOLDER, pretrained_names
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.replaced_file import replaced_file
from elmo_plugin.files.text_lines import decoded_lines

# The name that `elmo export` gives it, beside the weights.
VOCABULARY_NAME = "vocab.txt"

SPECIALS = ("<S>", "</S>", "<UNK>")
MIN_SAMPLE_TOKENS = 200  # With fewer tokens, the order by frequency cannot be recognized.

# ASCII white space. Vocabularies of earlier versions may have words with a no-break space, which corpora no
# longer have; they keep their indices in a trained softmax.
_WHITE_SPACE = re.compile(r"[ \t\n\v\f\r]")
_HOW_TO_MAKE = "`elmo vocab CORPUS --output FILE` makes a vocabulary from a corpus."


class LMVocabulary:
    """
    The words that the softmax of a biLM predicts; every other word counts as `<UNK>`.

    Only targets are looked up: the input of a biLM is the characters of words. Words are sorted by descending
    count, because the sampled softmax derives the frequency of a word from its index (bilm-tf's README). The
    file has no counts, so the order cannot be checked when it is read; see `check_is_sorted`.

    # Parameters

    words : `Iterable[str]`
        `<S>`, `</S>`, `<UNK>`, then all others by descending frequency.
    name : `str`, optional (default = `"vocabulary"`)
        The source of the words, for errors.

    # Attributes

    words : `List[str]`
        All words by index, including the three marks. Must not be changed.

    # Raises

    `ConfigurationError` naming the line (the first word's is 1) if the three marks do not come first, or if a
    word is empty, contains ASCII white space, or is repeated.
    """

    BEGIN = 0
    END = 1
    UNKNOWN = 2

    def __init__(self, words: Iterable[str], name: str = "vocabulary") -> None:
        self._name = name
        self._indices = _checked_indices(words, name)
        self.words: List[str] = list(self._indices)

    @classmethod
    def from_file(cls, path: Union[str, PathLike]) -> "LMVocabulary":
        """
        Read and check a file with one word on each line. The name of a pretrained biLM of this package, such
        as `elmo_mini`, can replace the path of its file.

        # Raises

        `ConfigurationError` naming the file if it cannot be read, and the line if it is invalid or not UTF-8.
        """
        if str(path) in pretrained_names():
            path = PRETRAINED_FOLDER / str(path) / VOCABULARY_NAME
        try:
            file = open(path, "rb")  # noqa: SIM115 - used and closed below, without the except clause
        except OSError as error:
            raise ConfigurationError(
                f"{path}: cannot read the vocabulary file ({error.strerror or error}). Give the path "
                f"of an existing file; {_HOW_TO_MAKE}"
            ) from error
        with file:
            lines = decoded_lines(file, path, "one word")
            return cls((line.removesuffix("\r") for line in lines), str(path))

    def to_file(self, path: Union[str, PathLike]) -> None:
        """
        Write one word on each line. The file appears complete, or the previous file remains.

        # Raises

        `OSError` if the file cannot be written.
        """
        with replaced_file(path) as new_file:
            new_file.write_text("".join(f"{word}\n" for word in self.words), "utf-8", newline="\n")

    def __len__(self) -> int:
        """Return the number of words, including the three marks, which is the width of the softmax."""
        return len(self.words)

    def index_of(self, word: str) -> int:
        """Return the index of a word; `UNKNOWN` for a word that is not in the vocabulary."""
        return self._indices.get(word, self.UNKNOWN)

    def check_is_sorted(self, counts: Mapping[str, int]) -> None:
        """
        Check with a sample of the corpus whether the words are sorted by descending frequency.

        The log-uniform sampler gives the word at index k a probability of about `1 / ((k + 1) *
        log(len(self)))`. The sample's cross-entropy under it is, apart from a constant, the mean of `log(k +
        1)` over the sample's tokens. This mean is compared for the order of the file, for the order by
        frequency in the sample, and for random order. A file is refused if it is nearer to random order than
        to the sample's.

        Frequent words dominate, so misplaced rare words, or a corpus of another kind, do not matter. Words
        that are not in the vocabulary are ignored. No file is refused if fewer than `MIN_SAMPLE_TOKENS`
        tokens remain, or if they are too few, or their counts too even, to distinguish the two orders.

        # Parameters

        counts : `Mapping[str, int]`
            The count of each word in the sample. 10,000 tokens are enough.

        # Raises

        `ConfigurationError` naming a word that is too early and one that is too late.
        """
        sample: numpy.ndarray = numpy.zeros(len(self))
        for word, count in counts.items():
            sample[self.index_of(word)] = count
        sample = sample[len(SPECIALS) :]
        num_tokens = sample.sum()
        if num_tokens < MIN_SAMPLE_TOKENS:
            return
        log_ranks = numpy.log1p(numpy.arange(len(SPECIALS), len(self)))
        frequencies = sample / num_tokens
        file_mean = frequencies @ log_ranks
        sample_mean = frequencies @ _left_out_log_ranks(sample, log_ranks)
        random_mean = log_ranks.mean()
        # The standard error of the file's mean, for samples of this size.
        standard_error = numpy.sqrt(frequencies @ (log_ranks - file_mean) ** 2 / num_tokens)
        is_significant = min(file_mean, random_mean) - sample_mean > 4 * standard_error
        if not is_significant or file_mean <= (sample_mean + random_mean) / 2:
            return
        # The word whose index costs most, and the rarest word before it.
        sample_log_ranks = numpy.empty_like(log_ranks)
        sample_log_ranks[numpy.argsort(-sample, kind="stable")] = log_ranks
        late = int(numpy.argmax(frequencies * (log_ranks - sample_log_ranks)))
        early = int(numpy.argmin(sample[:late]))
        raise ConfigurationError(
            f"{self._name}: the words are not sorted by descending frequency: "
            f"{self._described(early, sample)} comes before {self._described(late, sample)}, and so do many "
            "others. Expected the order of their frequency in the corpus, which the sampled softmax relies "
            f"on. {_HOW_TO_MAKE}"
        )

    def _described(self, place: int, sample: numpy.ndarray) -> str:
        index = place + len(SPECIALS)
        return f"'{self.words[index]}' (line {index + 1}, {sample[place]:,.0f} times in the sample)"


def _left_out_log_ranks(sample: numpy.ndarray, log_ranks: numpy.ndarray) -> numpy.ndarray:
    """
    Return the log rank, by descending frequency, that each word would have without one of its tokens.

    A token that helps to rank its own word makes the order look better than it is for other text: in a small
    sample most words occur once, and all of them would seem frequent. Without that token they tie with words
    that do not occur. Words that tie share the mean of their log ranks.
    """
    rising = numpy.sort(sample)
    # Without one token, the word ties with the words whose count is one less.
    first = len(sample) - numpy.searchsorted(rising, sample, side="left") - 1
    end = len(sample) - numpy.searchsorted(rising, sample - 1, side="left")
    cumulated = numpy.concatenate([[0.0], numpy.cumsum(log_ranks)])
    return (cumulated[end] - cumulated[first]) / (end - first)


def _checked_indices(words: Iterable[str], name: str) -> Dict[str, int]:
    """Return the index of each word, in order. Stop at the first invalid word."""
    indices: Dict[str, int] = {}
    for index, word in enumerate(words):
        if index < len(SPECIALS):
            if word != SPECIALS[index]:
                raise _wrong_special(name, index, repr(word[:60]))
        elif not word or _WHITE_SPACE.search(word):
            raise ConfigurationError(
                f"{name}, line {index + 1}: found {repr(word[:60]) if word else 'an empty line'}, "
                f"expected one word without white space. Correct the file; {_HOW_TO_MAKE}"
            )
        elif word in indices:
            raise ConfigurationError(
                f"{name}, line {index + 1}: found '{word}' again, which is already on line "
                f"{indices[word] + 1}, expected each word once. Correct the file; "
                f"{_HOW_TO_MAKE}"
            )
        indices[word] = index
    if len(indices) < len(SPECIALS):
        raise _wrong_special(name, len(indices), "the end of the file")
    return indices


def _wrong_special(name: str, index: int, found: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name}, line {index + 1}: found {found}, expected {SPECIALS[index]}: the first three lines "
        f"are {', '.join(SPECIALS)}. Put them first, each on a line; {_HOW_TO_MAKE}"
    )
