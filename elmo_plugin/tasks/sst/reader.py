"""Reads sentences and phrases with their sentiment."""

from collections import Counter
from os import PathLike
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Union

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, MetadataField, TextField
from allennlp.data.token_indexers import TokenIndexer
from allennlp.data.tokenizers import Token

from elmo_plugin.tasks.data_files import numbered_lines
from elmo_plugin.tasks.sst.sentiment_classes import CLASSES, check_granularity, class_of
from elmo_plugin.tasks.sst.sentiment_field import SentimentField
from elmo_plugin.tasks.sst.sentiment_tree import Phrase, SentimentTree
from elmo_plugin.tasks.task_reader import TaskReader


class _TreeLine(NamedTuple):
    """A line, not yet parsed: workers parse only their own."""

    place: str
    line: str


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

    The others are those of `TaskReader`, whose units are trees here.

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
        if not tokens:
            raise ConfigurationError(
                "Found a sentence without tokens, expected at least one token."
            )
        fields: Dict[str, Field] = {
            "tokens": TextField(tokens),
            "metadata": MetadataField({"words": [token.text for token in tokens]}),
        }
        if label is not None:
            fields["label"] = SentimentField(
                label, CLASSES[self._granularity], self._label_namespace, place
            )
        return Instance(fields)

    def _units(self, file_path: Union[str, PathLike]) -> Iterator[_TreeLine]:
        for line_number, line in numbered_lines(file_path, "one tree"):
            yield _TreeLine(f"{file_path}, line {line_number}", line)

    def _instances(self, unit: _TreeLine, left_out: Counter) -> Iterable[Instance]:
        tree = SentimentTree.from_line(unit.line, unit.place)
        tokens = [Token(word) for word in tree.words]
        sentence, *phrases = tree.phrases
        for phrase in [sentence, *filter(self._is_wanted, phrases)]:
            label = class_of(phrase.label, self._granularity)
            if label is None:
                left_out["neutral phrases" if self._subtrees else "neutral sentences"] += 1
            else:
                yield self.text_to_instance(tokens[phrase.start : phrase.end], label, unit.place)

    def _is_wanted(self, phrase: Phrase) -> bool:
        """Whether a phrase inside of a sentence is to be read."""
        return self._subtrees and phrase.end - phrase.start >= self._min_phrase_length
