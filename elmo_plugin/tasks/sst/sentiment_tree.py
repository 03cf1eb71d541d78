"""Trees of the Stanford Sentiment Treebank: a label at each word and each phrase."""

import re
from typing import List, NamedTuple, Optional

from allennlp.common.checks import ConfigurationError

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
