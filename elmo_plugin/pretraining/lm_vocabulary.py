"""The words that a biLM predicts: bilm-tf's vocabulary file, and AllenNLP's vocabulary of a model."""

import re
from os import PathLike
from typing import Dict, Iterable, List, Mapping, Union

import numpy
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary

from elmo_plugin.bilm.model_files import PRETRAINED_FOLDER, pretrained_names
from elmo_plugin.files.replaced_file import replaced_file
from elmo_plugin.files.text_lines import decoded_lines

# What `allennlp elmo-export` calls it, beside the weights.
VOCABULARY_NAME = "vocab.txt"

WORDS_NAMESPACE = "lm_words"

SPECIALS = ("<S>", "</S>", "<UNK>")
MIN_SAMPLE_TOKENS = 200  # Order by frequency shows in no fewer.

# White space in ASCII. Vocabularies of earlier versions may hold words with a no-break space, which no corpus
# has any more; they keep their places in a trained softmax.
_WHITE_SPACE = re.compile(r"[ \t\n\v\f\r]")
_HOW_TO_MAKE = "`allennlp elmo-vocab CORPUS --output FILE` makes a vocabulary from a corpus."


class LMVocabulary:
    """
    The words that the softmax of a biLM predicts; every other word counts as `<UNK>`.

    Only targets are looked up here: a biLM reads the characters of a word. Words are sorted by descending
    count, because the sampled softmax derives a word's frequency from its index (bilm-tf's README). The
    file holds no counts, so the order is not checked when it is read; see `check_is_sorted`.

    # Parameters

    words : `Iterable[str]`
        `<S>`, `</S>`, `<UNK>`, then all others by descending frequency.
    name : `str`, optional (default = `"vocabulary"`)
        Says in errors where the words came from.

    # Attributes

    words : `List[str]`
        All words, the three marks included; a word's place is its index. Not to be changed.

    # Raises

    `ConfigurationError` naming the line (the first word's is 1) if the three marks do not come first,
    or if a word is empty, holds ASCII white space, or was there before.
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
        Read and check a file with one word on each line; the name of a pretrained biLM that comes with this
        package, such as `elmo_mini`, stands for its file.

        # Raises

        `ConfigurationError` naming the file if it cannot be read, and the line where something is
        wrong: as the class says, and if the line is not UTF-8.
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
        Write one word on each line. The file appears complete, or what stood there before remains.

        # Raises

        `OSError` if the file cannot be written.
        """
        with replaced_file(path) as new_file:
            new_file.write_text("".join(f"{word}\n" for word in self.words), "utf-8", newline="\n")

    def __len__(self) -> int:
        """Number of words, the three marks included: the width of the softmax."""
        return len(self.words)

    def index_of(self, word: str) -> int:
        """The index of a word; `UNKNOWN` for one that is not here."""
        return self._indices.get(word, self.UNKNOWN)

    def check_is_sorted(self, counts: Mapping[str, int]) -> None:
        """
        Check with a sample of the corpus whether the words are sorted by descending frequency.

        The log-uniform sampler gives the word at index k a probability of about
        `1 / ((k + 1) * log(len(self)))`. The sample's cross-entropy under it is, but for a constant,
        the mean of `log(k + 1)` over the sample's tokens. Compared are that mean in the order of the
        file, in the order that the sample itself would give, and in random order. A file is refused
        if it comes nearer to random order than to the sample's.

        Frequent words decide, so rare words out of place, or a corpus of another kind, do not matter.
        Words that are not in the vocabulary are left out. Nothing is refused if fewer than
        `MIN_SAMPLE_TOKENS` remain, or if they are too few, or their counts too even, to tell the two
        orders apart.

        # Parameters

        counts : `Mapping[str, int]`
            How often each word occurs in the sample. 10,000 tokens suffice.

        # Raises

        `ConfigurationError` naming a word that stands too early and one that stands too late.
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
        # Of the file's mean, if another sample of as many tokens were drawn.
        standard_error = numpy.sqrt(frequencies @ (log_ranks - file_mean) ** 2 / num_tokens)
        can_tell = min(file_mean, random_mean) - sample_mean > 4 * standard_error
        if not can_tell or file_mean <= (sample_mean + random_mean) / 2:
            return
        # The word whose place costs most, and the rarest one before it.
        sample_log_ranks = numpy.empty_like(log_ranks)
        sample_log_ranks[numpy.argsort(-sample, kind="stable")] = log_ranks
        late = int(numpy.argmax(frequencies * (log_ranks - sample_log_ranks)))
        early = int(numpy.argmin(sample[:late]))
        raise ConfigurationError(
            f"{self._name}: the words are not sorted by descending frequency: "
            f"{self._described(early, sample)} stands before {self._described(late, sample)}, and so do many "
            "others. Expected the order of their frequency in the corpus, which the sampled softmax relies "
            f"on. {_HOW_TO_MAKE}"
        )

    def _described(self, place: int, sample: numpy.ndarray) -> str:
        index = place + len(SPECIALS)
        return f"'{self.words[index]}' (line {index + 1}, {sample[place]:,.0f} times in the sample)"


@Vocabulary.register("elmo_lm_words", constructor="from_vocabulary_file")
class LMWordVocabulary(Vocabulary):
    """
    AllenNLP's vocabulary with the words of a bilm-tf vocabulary file, in their order, in the namespace
    `lm_words`. An archive holds it, so that a trained biLM can be exported without the file.

    Registered as a `Vocabulary` with name `elmo_lm_words`.

    # Parameters

    vocabulary_file : `str`
        See `LMVocabulary`.
    """

    @classmethod
    def from_vocabulary_file(cls, vocabulary_file: str) -> "LMWordVocabulary":
        """The constructor that configs use."""
        words = LMVocabulary.from_file(vocabulary_file).words
        return cls(tokens_to_add={WORDS_NAMESPACE: words}, non_padded_namespaces=[WORDS_NAMESPACE])


def words_of(vocab: Vocabulary) -> List[str]:
    """The words that a biLM with this vocabulary predicts, by index."""
    words = vocab.get_index_to_token_vocabulary(WORDS_NAMESPACE)
    return [words[index] for index in range(len(words))]


def _left_out_log_ranks(sample: numpy.ndarray, log_ranks: numpy.ndarray) -> numpy.ndarray:
    """
    The log rank that each word would have, by descending frequency, if one of its tokens were not counted.

    A token that helps to rank its own word makes the order look better than it is for other text: in
    a small sample most words occur once, and would all seem frequent. Left out, they tie with the words
    that do not occur; words that tie share the mean of their log ranks.
    """
    rising = numpy.sort(sample)
    # The word takes its place among those of its count less one, which are more by the word itself.
    first = len(sample) - numpy.searchsorted(rising, sample, side="left") - 1
    end = len(sample) - numpy.searchsorted(rising, sample - 1, side="left")
    cumulated = numpy.concatenate([[0.0], numpy.cumsum(log_ranks)])
    return (cumulated[end] - cumulated[first]) / (end - first)


def _checked_indices(words: Iterable[str], name: str) -> Dict[str, int]:
    """The index of each word, in order. Reads no further than the first that is wrong."""
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
                f"{name}, line {index + 1}: found '{word}' again, which stands on line "
                f"{indices[word] + 1} already, expected each word once. Correct the file; "
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
