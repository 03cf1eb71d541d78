"""Read the trees of the Stanford Sentiment Treebank: sentences and phrases with their sentiment."""

import re
from collections import Counter
from os import PathLike
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance, Vocabulary
from allennlp.data.fields import Field, LabelField, MetadataField, TextField
from allennlp.data.token_indexers import TokenIndexer
from allennlp.data.tokenizers import Token

from elmo_plugin.tasks.reading import PlacedLine, TaskReader, check_tokens, placed_lines

# From negative to positive. No blanks: they are a part of metrics' names.
CLASSES: Dict[str, Tuple[str, ...]] = {
    "5-class": ("very_negative", "negative", "neutral", "positive", "very_positive"),
    "2-class": ("negative", "positive"),
}
_NEUTRAL = 2

NUM_LABELS = 5
_LABELS = {str(label): label for label in range(NUM_LABELS)}
# Other white space, such as the no-break space in `8 1\/2`, is a part of the word.
_PIECE = re.compile(r"[()]|[^() \t]+")
_MAX_SHOWN = 60  # characters of a wrong line that an error repeats
_EXAMPLE = "(3 (2 A) (4 (3 good) (2 film)))"
# How the Penn Treebank spells what would be taken for its own marks, and quotes. Undone, since neither text
# for a biLM nor the sentences that a predictor is given are spelled so.
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


def check_granularity(granularity: str) -> None:
    """Raises `ConfigurationError` if there are no such classes."""
    if granularity not in CLASSES:
        raise ConfigurationError(
            f"granularity is '{granularity}', expected one of: {', '.join(CLASSES)}."
        )


def class_of(label: int, granularity: str) -> Optional[str]:
    """The class of a label of the treebank, 0 to 4; `None` if it has none, as neutral of 2 classes."""
    classes = CLASSES[granularity]
    if granularity == "5-class":
        return classes[label]
    if label == _NEUTRAL:
        return None
    return classes[label > _NEUTRAL]


class Phrase(NamedTuple):
    """
    A node of a tree.

    # Parameters

    label : `int`
        From 0, very negative, to 4, very positive.
    start : `int`
        Index of the first word.
    end : `int`
        Index after the last word.
    """

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
        Each node, words included, in the order of the opening brackets: the sentence itself is the first.
    """

    words: List[str]
    phrases: List[Phrase]

    @classmethod
    def from_line(cls, line: str, place: str) -> "SentimentTree":
        """
        # Parameters

        line : `str`
            `(LABEL WORD)` is a word and `(LABEL TREE TREE ...)` is a phrase, both are trees.
        place : `str`
            File and line, to be named in errors.

        # Raises

        `ConfigurationError`, naming the column, if a bracket has no partner; a label is missing or not one
        of 0 to 4; a tree is empty, or has several words, or a word beside other trees; or something stands
        before or after the tree.
        """
        words: List[str] = []
        nodes: List[_Node] = []
        open_nodes: List[_Node] = []
        for match in _PIECE.finditer(line):
            piece, column = match[0], match.start() + 1
            node = open_nodes[-1] if open_nodes else None
            if node is None and nodes:
                raise _fault(
                    f"{place}, column {column}",
                    f"'{_shown(line, match.start())}' after the tree",
                    "one tree on the line",
                )
            if node is None and piece != "(":
                raise _fault(
                    f"{place}, column {column}",
                    f"'{_shown(line, match.start())}'",
                    f"a tree, such as {_EXAMPLE}",
                    "Give a file of the Stanford Sentiment Treebank, or correct the line.",
                )
            fault = None if node is None else node.find_fault(piece)
            if fault is not None:
                raise _fault(f"{place}, column {column}", *fault)

            if piece == "(":
                if node is not None:
                    node.has_trees = True
                opened = _Node(column, start=len(words))
                nodes.append(opened)
                open_nodes.append(opened)
            elif piece == ")":
                open_nodes.pop().end = len(words)
            else:
                assert node is not None
                if node.label is None:
                    node.label = _LABELS[piece]
                else:
                    node.word = piece
                    words.append(_plain_spelling(piece))
        if open_nodes:
            raise _fault(
                f"{place}, column {open_nodes[-1].column}",
                "'(' without its ')'",
                "as many closing brackets as opening ones, and the whole tree on one line",
            )
        if not nodes:
            raise _fault(place, "no tree", f"one, such as {_EXAMPLE}")
        phrases = []
        for node in nodes:
            assert node.label is not None
            phrases.append(Phrase(node.label, node.start, node.end))
        return cls(words, phrases)


class _Node:
    """A node while its line is read."""

    def __init__(self, column: int, start: int) -> None:
        self.column = column
        self.start = self.end = start
        self.label: Optional[int] = None
        self.word: Optional[str] = None
        self.has_trees = False

    def find_fault(self, piece: str) -> Optional[List[str]]:
        """What is wrong with the next piece inside of this node: what was found, what was expected."""
        if self.label is None:
            if piece in _LABELS:
                return None
            found = "'()', an empty tree" if piece == ")" else f"'{piece[:_MAX_SHOWN]}'"
            return [found, f"a label from 0 to {NUM_LABELS - 1} after '('"]
        if piece == ")":
            if self.word is None and not self.has_trees:
                return [
                    f"'({self.label})', an empty tree",
                    "a word or trees after the label",
                ]
            return None
        if self.word is not None:
            return [
                f"'{piece[:_MAX_SHOWN]}' after the word '{self.word[:_MAX_SHOWN]}'",
                "')' after the word",
            ]
        if self.has_trees and piece != "(":
            return [f"'{piece[:_MAX_SHOWN]}' after a tree", "'(' or ')'"]
        return None


def _plain_spelling(word: str) -> str:
    return _PLAIN_SPELLINGS.get(word, word).replace("\\/", "/").replace("\\*", "*")


def _shown(line: str, start: int) -> str:
    return line[start : start + _MAX_SHOWN] + ("..." if len(line) > start + _MAX_SHOWN else "")


def _fault(
    place: str, found: str, expected: str, advice: str = "Correct the tree."
) -> ConfigurationError:
    return ConfigurationError(f"{place}: found {found}, expected {expected}. {advice}")


class SentimentField(LabelField):
    """
    A `LabelField` that brings all classes into the vocabulary, so that it has each of them, and in the same
    order, whatever the data; and that says which label of which file is not in the vocabulary.

    # Parameters

    label : `str`
        One of `classes`.
    classes : `Sequence[str]`
        All of them, in the order that the vocabulary is to have.
    label_namespace : `str`
        The vocabulary's namespace of the classes.
    place : `str`, optional
        File and line, to be named in errors.

    # Raises

    `ConfigurationError` if the label is none of the classes.
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
        # The vocabulary sorts by frequency, and keeps the order of equal ones.
        for name in self.classes:
            counter[self._label_namespace][name] += 1

    def index(self, vocab: Vocabulary) -> None:
        """
        Look up the id of the label.

        # Raises

        `ConfigurationError` if the label is not in the vocabulary.
        """
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
    phrase is one too. A phrase that is found several times, in one tree or in several, is an instance each
    time, as in AllenNLP's reader: what is frequent weighs more. It always has the same label in the
    treebank, and among phrases of 4 words and more only 1 of 230 is a repetition.

    The vocabulary gets all classes of the granularity, from negative to positive, whatever the data.

    Registered as a `DatasetReader` with name `elmo_sst`.

    # Parameters

    granularity : `str`, optional (default = `"5-class"`)
        `5-class`: `very_negative`, `negative`, `neutral`, `positive`, `very_positive`. `2-class`: `negative`
        (0 and 1) and `positive` (3 and 4); neutral sentences and phrases are left out.
    subtrees : `bool`, optional (default = `False`)
        Every phrase, down to single words, is an instance. For training; evaluation is on sentences.
    min_phrase_length : `int`, optional (default = `1`)
        With `subtrees`, leave out phrases of fewer words (paper: 4, as CoVe did). Sentences always stay.
    label_namespace : `str`, optional (default = `"labels"`)
        The vocabulary's namespace of the classes.

    The others are those of `TaskReader`, whose records are trees here.

    # Raises

    `ConfigurationError` for an unknown granularity, or a `min_phrase_length` under 1 or without `subtrees`;
    and, while reading, for a file that is missing, empty or not UTF-8, and a line that is no tree. File, line
    and column are named.
    """

    def __init__(
        self,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        granularity: str = "5-class",
        subtrees: bool = False,
        min_phrase_length: int = 1,
        label_namespace: str = "labels",
        **kwargs: Any,
    ) -> None:
        super().__init__(token_indexers, **kwargs)
        check_granularity(granularity)
        if min_phrase_length < 1:
            raise ConfigurationError(
                f"min_phrase_length is {min_phrase_length}, expected 1 or more words."
            )
        if min_phrase_length > 1 and not subtrees:
            raise ConfigurationError(
                f"min_phrase_length is {min_phrase_length}, but subtrees is false, so that only whole "
                "sentences are read, of any length. Set subtrees to true, or leave min_phrase_length out."
            )
        self._granularity = granularity
        self._subtrees = subtrees
        self._min_phrase_length = min_phrase_length
        self._label_namespace = label_namespace

    def text_to_instance(
        self, tokens: List[Token], label: Optional[str] = None, place: Optional[str] = None
    ) -> Instance:
        """
        # Parameters

        tokens : `List[Token]`
            The tokens of a sentence or a phrase, at least one.
        label : `str`, optional
            Its class, one of the granularity's.
        place : `str`, optional
            File and line, to be named in errors.

        # Raises

        `ConfigurationError` if there are no tokens, or the label is not of the granularity.
        """
        check_tokens(tokens)
        fields: Dict[str, Field] = {
            "tokens": TextField(tokens),
            "metadata": MetadataField({"words": [token.text for token in tokens]}),
        }
        if label is not None:
            fields["label"] = SentimentField(
                label, CLASSES[self._granularity], self._label_namespace, place
            )
        return Instance(fields)

    def _records(self, file_path: Union[str, PathLike]) -> Iterator[PlacedLine]:
        return placed_lines(file_path, "one tree")

    def _instances(self, record: PlacedLine, left_out: Counter) -> Iterable[Instance]:
        tree = SentimentTree.from_line(record.line, record.place)
        tokens = [Token(word) for word in tree.words]
        sentence, *phrases = tree.phrases
        for phrase in [sentence, *filter(self._is_wanted, phrases)]:
            label = class_of(phrase.label, self._granularity)
            if label is None:
                left_out["neutral phrases" if self._subtrees else "neutral sentences"] += 1
            else:
                yield self.text_to_instance(tokens[phrase.start : phrase.end], label, record.place)

    def _is_wanted(self, phrase: Phrase) -> bool:
        """Whether a phrase inside of a sentence is to be read."""
        return self._subtrees and phrase.end - phrase.start >= self._min_phrase_length
