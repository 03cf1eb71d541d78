"""Reads sentences with named entities."""

from collections import Counter
from os import PathLike
from typing import Any, Dict, Iterable, Iterator, List, Optional, Union

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, MetadataField, TextField
from allennlp.data.token_indexers import TokenIndexer
from allennlp.data.tokenizers import Token

from elmo_plugin.tasks.conll_file import ConllSentence, SentencePlace, read_conll_sentences
from elmo_plugin.tasks.tag_field import TagField
from elmo_plugin.tasks.tag_schemes import (
    SCHEME_RULES,
    check_scheme,
    convert_tags,
    find_tag_fault,
)
from elmo_plugin.tasks.task_reader import TaskReader

COLUMN_NAMES = ("TOKEN", "POS", "CHUNK", "TAG")


@DatasetReader.register("elmo_ner")
class NerReader(TaskReader):
    """
    Reads the four-column files of CoNLL-2003 (`TOKEN POS CHUNK TAG`): a token per line, columns set
    apart by spaces or tabs, a blank line after a sentence, `-DOCSTART-` lines between documents.
    The second and the third column are not used, and may hold anything.

    Every sentence is an instance of its own, with the fields `tokens`, `tags` and `metadata`
    (`words`; and `character_offsets`, one `(start, end)` per token, if the tokens know them).

    Registered as a `DatasetReader` with name `elmo_ner`.

    # Parameters

    input_scheme : `str`, optional (default = `"IOB1"`)
        How the files are tagged: `IOB1` (CoNLL-2003 as published), `BIO` (also called IOB2) or
        `BIOUL`.
    label_scheme : `str`, optional (default = `"BIOUL"`)
        The scheme of the tags that the model learns: `BIO` or `BIOUL`. The model's must be the
        same.
    label_namespace : `str`, optional (default = `"labels"`)
        The vocabulary's namespace of the tags.

    The others are those of `TaskReader`, whose units are sentences here.

    # Raises

    `ConfigurationError` for an unknown scheme; and, while reading, for a file that is missing,
    empty or not UTF-8, a line with another number of columns, and a tag that is impossible in
    `input_scheme`. File and line are named.
    """

    def __init__(
        self,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        input_scheme: str = "IOB1",
        label_scheme: str = "BIOUL",
        label_namespace: str = "labels",
        **kwargs: Any,
    ) -> None:
        super().__init__(token_indexers, **kwargs)
        check_scheme("input_scheme", input_scheme, SCHEME_RULES)
        check_scheme("label_scheme", label_scheme, ("BIO", "BIOUL"))
        self._input_scheme = input_scheme
        self._label_scheme = label_scheme
        self._label_namespace = label_namespace

    def text_to_instance(
        self,
        tokens: List[Token],
        tags: Optional[List[str]] = None,
        place: Optional[SentencePlace] = None,
    ) -> Instance:
        """
        # Parameters

        tokens : `List[Token]`
            The tokens of a sentence, at least one.
        tags : `List[str]`, optional
            Their tags, in `input_scheme`.
        place : `SentencePlace`, optional
            The lines on which they stand, to be named in errors.

        # Raises

        `ConfigurationError` if there are no tokens, or a tag is impossible.
        """
        if not tokens:
            raise ConfigurationError(
                "Found a sentence without tokens, expected at least one token."
            )
        text_field = TextField(tokens)
        fields: Dict[str, Field] = {
            "tokens": text_field,
            "metadata": MetadataField(_metadata(tokens)),
        }
        if tags is not None:
            self._check_tags(tags, place)
            label_tags = convert_tags(tags, self._input_scheme, self._label_scheme)
            fields["tags"] = TagField(label_tags, text_field, self._label_namespace, place)
        return Instance(fields)

    def _units(self, file_path: Union[str, PathLike]) -> Iterator[ConllSentence]:
        return read_conll_sentences(file_path)

    def _instances(self, unit: ConllSentence, left_out: Counter) -> Iterable[Instance]:
        rows = unit.rows(COLUMN_NAMES)
        tokens = [Token(word) for word, _, _, _ in rows]
        tags = [tag for _, _, _, tag in rows]
        yield self.text_to_instance(tokens, tags, unit.place)

    def _check_tags(self, tags: List[str], place: Optional[SentencePlace]) -> None:
        fault = find_tag_fault(tags, self._input_scheme)
        if fault is None:
            return
        fitting = [scheme for scheme in SCHEME_RULES if find_tag_fault(tags, scheme) is None]
        advice = (
            f"This sentence is possible in {' and '.join(fitting)}: if the data is tagged so, give "
            f'the reader "input_scheme": "{fitting[0]}". If not, correct the tag.'
            if fitting
            else "Correct the tag."
        )
        raise ConfigurationError(
            f"{place.of_token(fault.token_index) if place else f'Token {fault.token_index}'}: "
            f"found {fault.description}, impossible in the {self._input_scheme} scheme: a token "
            f"outside of spans is tagged O, {SCHEME_RULES[self._input_scheme]}. {advice}"
        )


def _metadata(tokens: List[Token]) -> Dict[str, Any]:
    metadata: Dict[str, Any] = {"words": [token.text for token in tokens]}
    if all(token.idx is not None for token in tokens):
        metadata["character_offsets"] = [
            (token.idx, token.idx + len(token.ensure_text())) for token in tokens
        ]
    return metadata
