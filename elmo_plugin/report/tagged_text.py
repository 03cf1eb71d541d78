"""Sentences with a part of speech for each word, out of CoNLL-2012 files."""

from collections import Counter
from typing import Dict, List, NamedTuple, Sequence

import numpy
from allennlp.common.checks import ConfigurationError

from elmo_plugin.tasks.conll import read_conll_2012

_MAX_SHOWN = 5  # tags that an error repeats


class TaggedSentence(NamedTuple):
    """Words, at least one, and the tag of each."""

    words: List[str]
    tags: List[str]


def read_tagged(paths: Sequence[str]) -> List[TaggedSentence]:
    """
    The sentences of CoNLL-2012 files, with their fifth column.

    # Parameters

    paths : `Sequence[str]`
        Files, or folders of `*.gold_conll` files.

    # Raises

    `ConfigurationError` for files that `read_conll_2012` refuses; and, naming the files, if all words of all
    of them have the same tag: that is a column which was not filled.
    """
    sentences = [
        TaggedSentence(sentence.words, sentence.parts_of_speech)
        for path in paths
        for document in read_conll_2012(path)
        for sentence in document.sentences()
    ]
    tags = {tag for sentence in sentences for tag in sentence.tags}
    if len(tags) < 2:
        raise ConfigurationError(
            f"{', '.join(paths)}: the fifth column holds nothing but {' '.join(sorted(tags))}, expected "
            "the parts of speech of the words, of two kinds or more. Give files that have them."
        )
    return sentences


def tags_of(sentences: Sequence[TaggedSentence]) -> numpy.ndarray:
    """The tags of all words, `(num_words,)`, strings."""
    return numpy.array([tag for sentence in sentences for tag in sentence.tags])


class FrequentTags:
    """
    The baseline: each word has the tag that it has most often in the training part, and a word that is not
    there the most frequent tag of all. Of equally frequent tags it is the first by name.

    # Parameters

    sentences : `Sequence[TaggedSentence]`
        The training part, with at least one sentence.
    """

    def __init__(self, sentences: Sequence[TaggedSentence]) -> None:
        counts: Dict[str, Counter] = {}
        for sentence in sentences:
            for word, tag in zip(sentence.words, sentence.tags):
                counts.setdefault(word, Counter())[tag] += 1
        self._tags = {word: _most_frequent(of_word) for word, of_word in counts.items()}
        self._default = _most_frequent(sum(counts.values(), Counter()))

    def knows(self, word: str) -> bool:
        """Whether the word is in the training part."""
        return word in self._tags

    def tag(self, word: str) -> str:
        """Of a word."""
        return self._tags.get(word, self._default)


def _most_frequent(counts: Counter) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))
