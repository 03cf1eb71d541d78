"""Read the trees of the Stanford Sentiment Treebank: sentences and phrases with their sentiment."""

import re
from collections import Counter
from os import PathLike
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, LabelField, MetadataField, TextField
from allennlp.data.tokenizers import Token

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.checks import check_choice
from elmo_plugin.tasks.reading import TaskReader, checked_words, placed_lines

# The class of each label, by granularity; neutral is not one of 2 classes. No blanks, because classes are a
# part of the names of metrics.
_CLASS_OF: Dict[str, Tuple[Optional[str], ...]] = {
    "5-class": ("very_negative", "negative", "neutral", "positive", "very_positive"),
    "2-class": ("negative", "negative", None, "positive", "positive"),
}
# A word `(2 film)`, the start of a phrase `(3`, or its end. White space other than blanks and tabs, such as
# the no-break space in `8 1\/2`, is a part of the word.
_PIECE = re.compile(
    r"(?:\((?P<label>[0-4])(?:[ \t]+(?P<word>[^() \t]+)[ \t]*\)|(?=[ \t]*\())|\))[ \t]*"
)
_MAX_SHOWN = 60  # characters of an invalid line in an error
_EXAMPLE = "(3 (2 A) (4 (3 good) (2 film)))"
# The Penn Treebank's spellings of brackets and quotes. They are replaced, because the text of biLMs and
# predictors does not have them.
_PLAIN_SPELLINGS = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
    "`": "'",
}


class Phrase(NamedTuple):
    """A node of a tree: its label, 0 (very negative) to 4, and its words, `start` to `end`, exclusive."""

    label: int
    start: int
    end: int


class SentimentTree(NamedTuple):
    """
    A sentence with all its phrases.

    # Parameters

    words : `List[str]`
        Without the spellings of the Penn Treebank: `(` for `-LRB-`, `/` for `\\/`, `"` for two single quotes.
    phrases : `List[Phrase]`
        All nodes, including words, in the order of their opening brackets: the sentence itself is the first.
    """

    words: List[str]
    phrases: List[Phrase]

    @classmethod
    def from_line(cls, line: str, place: str) -> "SentimentTree":
        """
        Parse a tree. `(LABEL WORD)` is a word and `(LABEL TREE TREE ...)` a phrase; both are trees. Errors
        name the `place` (file and line) and the column.
        """
        words: List[str] = []
        phrases: List[Phrase] = []
        open_phrases: List[int] = []  # indices of phrases whose end was not read yet
        position = 0
        while position < len(line):
            match = _PIECE.match(line, position)
            is_after_tree = bool(phrases) and not open_phrases
            is_end = match is not None and match["label"] is None
            if match is None or is_after_tree or (is_end and not open_phrases):
                rest = line[position:]
                shown = f"'{rest[:_MAX_SHOWN]}{'...' if len(rest) > _MAX_SHOWN else ''}'"
                raise ConfigurationError(
                    f"{place}, column {position + 1}: found {shown}, expected one tree on each line, such "
                    f"as {_EXAMPLE}: each opening bracket before a label from 0 to 4, and then a word or "
                    "trees. Correct the line, or give a file of the Stanford Sentiment Treebank."
                )
            if is_end:
                index = open_phrases.pop()
                phrases[index] = phrases[index]._replace(end=len(words))
            else:
                phrases.append(Phrase(int(match["label"]), len(words), len(words) + 1))
                if match["word"] is None:
                    open_phrases.append(len(phrases) - 1)
                else:
                    words.append(_plain_spelling(match["word"]))
            position = match.end()
        if open_phrases or not phrases:
            raise ConfigurationError(
                f"{place}: found {len(open_phrases)} brackets without their ')' at the end of the line, "
                f"expected one whole tree on each line, such as {_EXAMPLE}. Correct the line."
            )
        return cls(words, phrases)


def _plain_spelling(word: str) -> str:
    return _PLAIN_SPELLINGS.get(word, word).replace("\\/", "/").replace("\\*", "*")


class SentimentField(LabelField):
    """A `LabelField` that adds all `classes` to the vocabulary, in the same order for any data."""

    __slots__ = ["classes"]

    def __init__(self, label: str, classes: Sequence[str]) -> None:
        super().__init__(label)
        self.classes = classes

    def count_vocab_items(self, counter: Dict[str, Dict[str, int]]) -> None:
        # The vocabulary sorts by frequency, and keeps the order of classes with the same count.
        for name in self.classes:
            counter[self._label_namespace][name] += 1


@DatasetReader.register("elmo_sst")
class SstReader(TaskReader):
    """
    Reads the trees of the Stanford Sentiment Treebank, one per line: `(3 (2 A) (4 (3 good) (2 film)))`.
    Labels are 0, very negative, to 4, very positive; see `SentimentTree` for how words are spelled.

    A sentence is an instance with the fields `tokens`, `label` and `metadata` (`words`). With `subtrees` each
    phrase is an instance too. A repeated phrase is an instance each time, as in AllenNLP's reader, so
    frequent phrases weigh more. Repetitions always have the same label in the treebank, and among phrases of
    4 words or more only 1 of 230 is a repetition.

    The vocabulary always gets all classes of the granularity, from negative to positive.

    # Parameters

    granularity : `str`, optional (default = `"5-class"`)
        `5-class`: `very_negative`, `negative`, `neutral`, `positive`, `very_positive`. `2-class`: `negative`
        (0 and 1) and `positive` (3 and 4); neutral sentences and phrases are left out.
    subtrees : `bool`, optional (default = `False`)
        Make an instance of every phrase, down to single words. For training; evaluation uses sentences.
    min_phrase_length : `int`, optional (default = `1`)
        With `subtrees`, leave out phrases of fewer words (paper: 4, as CoVe did). Sentences always stay.

    The other parameters are those of `TaskReader`, whose records are trees here.
    """

    def __init__(
        self,
        granularity: str = "5-class",
        subtrees: bool = False,
        min_phrase_length: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_choice("granularity", granularity, _CLASS_OF)
        if min_phrase_length > 1 and not subtrees:
            raise ConfigurationError(
                f"min_phrase_length is {min_phrase_length}, but subtrees is false, so that only whole "
                "sentences are read, of any length. Set subtrees to true, or leave min_phrase_length out."
            )
        self._class_of = _CLASS_OF[granularity]
        # From negative to positive.
        self._classes = list(dict.fromkeys(name for name in self._class_of if name is not None))
        self._subtrees = subtrees
        self._min_phrase_length = min_phrase_length

    def text_to_instance(self, tokens: List[Token], label: Optional[str] = None) -> Instance:
        """Make an instance of a sentence or a phrase. `label` is one of the granularity's classes."""
        fields: Dict[str, Field] = {
            "tokens": TextField(tokens),
            "metadata": MetadataField({"words": checked_words(tokens)}),
        }
        if label is not None:
            fields["label"] = SentimentField(label, self._classes)
        return Instance(fields)

    def _records(self, file_path: Union[str, PathLike]) -> Iterator[Tuple[str, str]]:
        return placed_lines(file_path, "one tree")

    def _instances(self, record: Tuple[str, str], left_out: Counter) -> Iterable[Instance]:
        place, line = record
        tree = SentimentTree.from_line(line, place)
        tokens = [Token(word) for word in tree.words]
        sentence, *phrases = tree.phrases
        for phrase in [sentence, *filter(self._is_wanted, phrases)]:
            label = self._class_of[phrase.label]
            if label is None:
                left_out["neutral phrases" if self._subtrees else "neutral sentences"] += 1
            else:
                yield self.text_to_instance(tokens[phrase.start : phrase.end], label)

    def _is_wanted(self, phrase: Phrase) -> bool:
        """Return whether a phrase inside a sentence should be read."""
        return self._subtrees and phrase.end - phrase.start >= self._min_phrase_length
