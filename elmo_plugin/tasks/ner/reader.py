"""Reads sentences with named entities."""

import logging
from collections import Counter
from os import PathLike
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, MetadataField, TextField
from allennlp.data.token_indexers import TokenIndexer
from allennlp.data.tokenizers import Token

from elmo_plugin.tasks.conll import ConllSentence, SentencePlace, read_conll_sentences
from elmo_plugin.tasks.reading import TaskReader, character_offsets, check_tokens
from elmo_plugin.tasks.tags import (
    SCHEME_RULES,
    SchemeCounts,
    TagField,
    check_scheme,
    check_tags,
    convert_tags,
)

logger = logging.getLogger(__name__)


@DatasetReader.register("elmo_ner")
class NerReader(TaskReader):
    """
    Reads files of CoNLL's kind: a token per line, columns set apart by spaces or tabs, a blank line after a
    sentence, `-DOCSTART-` lines between documents. The first column is the token and the last its tag:
    `TOKEN POS CHUNK TAG` as in CoNLL-2003, `TOKEN TAG`, or any other number of columns.

    Every sentence is an instance of its own, with the fields `tokens`, `tags` and `metadata`
    (`words`; and `character_offsets`, one `(start, end)` per token, if the tokens know them).

    Registered as a `DatasetReader` with name `elmo_ner`.

    # Parameters

    input_scheme : `str`, optional
        How the files are tagged: `IOB1` (CoNLL-2003 as published), `BIO` (also called IOB2) or
        `BIOUL`. By default the one in which all tags of a file are possible is found and logged, for each
        file anew; if there is none, a warning says how many sentences each scheme fits, and the sentences
        that the best one does not fit are bad.
    label_scheme : `str`, optional (default = `"BIOUL"`)
        The scheme of the tags that the model learns: `BIO` or `BIOUL`. The model's must be the
        same.
    label_namespace : `str`, optional (default = `"labels"`)
        The vocabulary's namespace of the tags.

    The others are those of `TaskReader`, whose records are sentences here.

    # Raises

    `ConfigurationError` for an unknown scheme; and, while reading, for a file that is missing,
    empty or not UTF-8, a line of one column, or of another number than the first of its sentence, and a
    tag that is impossible in `input_scheme`. File and line are named.
    """

    def __init__(
        self,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        input_scheme: Optional[str] = None,
        label_scheme: str = "BIOUL",
        label_namespace: str = "labels",
        **kwargs: Any,
    ) -> None:
        super().__init__(token_indexers, **kwargs)
        if input_scheme is not None:
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
        input_scheme: Optional[str] = None,
    ) -> Instance:
        """
        # Parameters

        tokens : `List[Token]`
            The tokens of a sentence, at least one.
        tags : `List[str]`, optional
            Their tags.
        place : `SentencePlace`, optional
            The lines on which they stand, to be named in errors.
        input_scheme : `str`, optional (default = the reader's, or one in which these tags are possible)
            How they are tagged.

        # Raises

        `ConfigurationError` if there are no tokens, or a tag is impossible.
        """
        check_tokens(tokens)
        text_field = TextField(tokens)
        fields: Dict[str, Field] = {
            "tokens": text_field,
            "metadata": MetadataField(
                {"words": [token.text for token in tokens], **character_offsets(tokens)}
            ),
        }
        if tags is not None:
            scheme = input_scheme or self._input_scheme or SchemeCounts.of_tags([tags]).best
            check_tags(tags, scheme, place, scheme_key="input_scheme")
            label_tags = convert_tags(tags, scheme, self._label_scheme)
            fields["tags"] = TagField(label_tags, text_field, self._label_namespace, place)
        return Instance(fields)

    def _records(self, file_path: Union[str, PathLike]) -> Iterator[Tuple[ConllSentence, str]]:
        scheme = self._input_scheme or _detected_scheme(file_path)
        for sentence in read_conll_sentences(file_path):
            yield sentence, scheme

    def _instances(
        self, record: Tuple[ConllSentence, str], left_out: Counter
    ) -> Iterable[Instance]:
        sentence, scheme = record
        words, tags = zip(*sentence.tokens_and_tags())
        tokens = [Token(word) for word in words]
        yield self.text_to_instance(tokens, list(tags), sentence.place, scheme)


def _detected_scheme(file_path: Union[str, PathLike]) -> str:
    """The scheme of a file, which is read to its end; logged."""
    counts = SchemeCounts.of_tags(
        sentence.last_column() for sentence in read_conll_sentences(file_path)
    )
    scheme = counts.best
    if counts.num_sentences == 0:
        logger.info("%s: no token is tagged but with O, the same in all schemes.", file_path)
    elif counts.num_possible[scheme] == counts.num_sentences:
        logger.info("%s: found tags in the %s scheme.", file_path, scheme)
    else:
        logger.warning(
            "%s: found tags that fit no scheme; of %d sentences with tags %s. Reading them as %s. Give "
            'the reader "input_scheme" if it is another, and correct the tags that do not fit.',
            file_path,
            counts.num_sentences,
            ", ".join(f"{count} fit {name}" for name, count in counts.num_possible.items()),
            scheme,
        )
    return scheme
