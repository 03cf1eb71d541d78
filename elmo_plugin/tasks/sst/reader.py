"""Read the trees of the Stanford Sentiment Treebank: sentences and phrases with their sentiment."""

import re
from collections import Counter
from os import PathLike
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from allennlp.data import DatasetReader, Instance, Vocabulary
from allennlp.data.fields import Field, LabelField, MetadataField, TextField
from allennlp.data.tokenizers import Token

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.checks import check_choice, check_positive
from elmo_plugin.tasks.reading import TaskReader, checked_words, placed_lines

# The class of each label, by granularity; neutral is not one of 2 classes. No blanks, because classes are a
# part of the names of metrics.
_CLASS_OF: Dict[str, Tuple[Optional[str], ...]] = {
    "5-class": ("very_negative", "negative", "neutral", "positive", "very_positive"),
    "2-class": ("negative", "negative", None, "positive", "positive"),
}
_LABELS = ("0", "1", "2", "3", "4")
# Other white space, such as the no-break space in `8 1\/2`, is a part of the word.
_PIECE = re.compile(r"[()]|[^() \t]+")
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
        nodes: List[_Node] = []
        open_nodes: List[_Node] = []
        for match in _PIECE.finditer(line):
            piece = match[0]
            at = f"{place}, column {match.start() + 1}"
            if open_nodes:
                open_nodes[-1].read(piece, at)
            elif nodes:
                raise _fault(
                    at, f"{_shown(line[match.start() :])} after the tree", "one tree on the line"
                )
            elif piece != "(":
                advice = "Give a file of the Stanford Sentiment Treebank, or correct the line."
                raise _fault(
                    at, _shown(line[match.start() :]), f"a tree, such as {_EXAMPLE}", advice
                )
            if piece == "(":
                nodes.append(_Node(at, start=len(words)))
                open_nodes.append(nodes[-1])
            elif piece == ")":
                open_nodes.pop().end = len(words)
            elif open_nodes[-1].word is not None:
                words.append(_plain_spelling(piece))
        if open_nodes:
            expected = "as many closing brackets as opening ones, and the whole tree on one line"
            raise _fault(open_nodes[-1].place, "'(' without its ')'", expected)
        if not nodes:
            raise _fault(place, "no tree", f"one, such as {_EXAMPLE}")
        return cls(words, [Phrase(int(node.label or 0), node.start, node.end) for node in nodes])


class _Node:
    """A node during parsing: a label, and then a word or trees."""

    def __init__(self, place: str, start: int) -> None:
        self.place = place
        self.start = self.end = start
        self.label: Optional[str] = None
        self.word: Optional[str] = None
        self.has_trees = False

    def read(self, piece: str, place: str) -> None:
        """Read the next piece of this node: its label, its word, the start of a tree, or its end."""
        if self.label is None:
            if piece not in _LABELS:
                found = "'()', an empty tree" if piece == ")" else _shown(piece)
                raise _fault(place, found, "a label from 0 to 4 after '('")
            self.label = piece
        elif piece == ")":
            if self.word is None and not self.has_trees:
                found = f"'({self.label})', an empty tree"
                raise _fault(place, found, "a word or trees after the label")
        elif self.word is not None:
            found = f"{_shown(piece)} after the word {_shown(self.word)}"
            raise _fault(place, found, "')' after the word")
        elif piece == "(":
            self.has_trees = True
        elif self.has_trees:
            raise _fault(place, f"{_shown(piece)} after a tree", "'(' or ')'")
        else:
            self.word = piece


def _plain_spelling(word: str) -> str:
    return _PLAIN_SPELLINGS.get(word, word).replace("\\/", "/").replace("\\*", "*")


def _shown(text: str) -> str:
    return f"'{text[:_MAX_SHOWN]}{'...' if len(text) > _MAX_SHOWN else ''}'"


def _fault(
    place: str, found: str, expected: str, advice: str = "Correct the tree."
) -> ConfigurationError:
    return ConfigurationError(f"{place}: found {found}, expected {expected}. {advice}")


class SentimentField(LabelField):
    """
    A `LabelField` that adds all `classes` to the vocabulary, always in the same order, whatever the data. Its
    error names a label that is not in the vocabulary, and the `place` of the label.
    """

    __slots__ = ["classes", "place"]

    def __init__(
        self,
        label: str,
        classes: Sequence[str],
        label_namespace: str,
        place: Optional[str] = None,
    ) -> None:
        super().__init__(label, label_namespace)
        self.classes = classes
        self.place = place
        if label not in classes:
            raise self._unexpected(f"one of: {', '.join(classes)}. Correct the label.")

    def count_vocab_items(self, counter: Dict[str, Dict[str, int]]) -> None:
        # The vocabulary sorts by frequency, and keeps the order of classes with the same count.
        for name in self.classes:
            counter[self._label_namespace][name] += 1

    def index(self, vocab: Vocabulary) -> None:
        known = vocab.get_token_to_index_vocabulary(self._label_namespace)
        if self.label not in known:
            raise self._unexpected(
                f"one in the namespace '{self._label_namespace}' of the model's vocabulary: "
                f"{', '.join(known) or '(none)'}. Give the reader the granularity and the label_namespace "
                "that the model was trained with."
            )
        super().index(vocab)

    def _unexpected(self, expected: str) -> ConfigurationError:
        place = f"{self.place}: " if self.place else ""
        return ConfigurationError(f"{place}found the label '{self.label}', expected {expected}")


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
        label_namespace: str = "labels",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_choice("granularity", granularity, _CLASS_OF)
        check_positive(min_phrase_length=min_phrase_length)
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
        self._label_namespace = label_namespace

    def text_to_instance(
        self, tokens: List[Token], label: Optional[str] = None, place: Optional[str] = None
    ) -> Instance:
        """Make an instance of a sentence or a phrase. `label` is one of the granularity's classes."""
        fields: Dict[str, Field] = {
            "tokens": TextField(tokens),
            "metadata": MetadataField({"words": checked_words(tokens)}),
        }
        if label is not None:
            fields["label"] = SentimentField(label, self._classes, self._label_namespace, place)
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
                yield self.text_to_instance(tokens[phrase.start : phrase.end], label, place)

    def _is_wanted(self, phrase: Phrase) -> bool:
        """Return whether a phrase inside a sentence should be read."""
        return self._subtrees and phrase.end - phrase.start >= self._min_phrase_length
