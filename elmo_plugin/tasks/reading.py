"""Shared by the readers of all tasks: from data files to instances and to batches for validation."""

import logging
import math
from collections import Counter
from functools import cached_property
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import torch.distributed
from allennlp.common.util import is_distributed
from allennlp.data import DatasetReader, Instance, Vocabulary
from allennlp.data.fields import LabelField, ListField, TextField
from allennlp.data.samplers import BatchSampler, BucketBatchSampler
from allennlp.data.token_indexers import (
    SingleIdTokenIndexer,
    TokenCharactersIndexer,
    TokenIndexer,
)
from allennlp.data.tokenizers import Token, Tokenizer
from allennlp.data.vocabulary import DEFAULT_PADDING_TOKEN
from allennlp.nn.util import dist_reduce
from more_itertools import divide, peekable

from elmo_plugin.bilm.model_files import local_path
from elmo_plugin.errors import ConfigurationError, errors_at
from elmo_plugin.files.spacy_rules import SpacyRules
from elmo_plugin.files.text import FileName, decoded_lines, open_text

logger = logging.getLogger(__name__)

_MAX_CHARACTERS = 200  # of a word, that WordCharactersIndexer reads


def numbered_lines(file_path: FileName, line_content: str) -> Iterator[Tuple[int, str]]:
    """
    Yield the numbers and lines of a file, or of a gzip file, without spaces and tabs at the ends. A no-break
    space is part of a word. Errors say that a line should hold `line_content`.
    """
    with open_text(local_path("data file", file_path), str(file_path)) as file:
        for number, line in enumerate(decoded_lines(file, file_path, line_content), start=1):
            yield number, line.strip(" \t\r")


def placed_lines(file_path: FileName, line_content: str) -> Iterator[Tuple[str, str]]:
    """
    Yield the lines of a file that are not blank, with their places, such as `train.txt, line 3`. See
    `numbered_lines`.
    """
    for number, line in numbered_lines(file_path, line_content):
        if line:
            yield f"{file_path}, line {number}", line


@TokenIndexer.register("elmo_word_characters")
class WordCharactersIndexer(TokenCharactersIndexer):
    """
    AllenNLP's `characters`, with its parameters, of the first 200 characters of each word. The words of a
    batch are padded to the longest one, so a link of a thousand characters would otherwise take gigabytes.
    """

    def count_vocab_items(self, token: Token, counter: Dict[str, Dict[str, int]]) -> None:
        super().count_vocab_items(self._cut(token), counter)

    def tokens_to_indices(
        self, tokens: List[Token], vocabulary: Vocabulary
    ) -> Dict[str, List[List[int]]]:
        return super().tokens_to_indices(list(map(self._cut, tokens)), vocabulary)

    def _cut(self, token: Token) -> Token:
        return Token(token.ensure_text()[:_MAX_CHARACTERS])


@Tokenizer.register("elmo_rule_based")
class RuleBasedTokenizer(Tokenizer):
    """
    Splits text by the rules of spaCy's language class, `spacy.blank(language)`. Nothing is downloaded,
    and tags and parses are not computed.

    # Parameters

    language : `str`, optional (default = `"en"`)
        spaCy's code of a language, for instance `de`; `xx` has rules for any language. It is not the name of
        a spaCy model.
    """

    def __init__(self, language: str = "en") -> None:
        super().__init__()
        try:
            self._rules = SpacyRules(language)
        except ImportError as error:
            raise ConfigurationError(
                f"language is '{language}', expected the code of a language that spaCy can "
                f"tokenize here, such as en, de or xx. spaCy says: {error}"
            ) from error

    def tokenize(self, text: str) -> List[Token]:
        """
        Return the tokens of `text` in order, each with `idx` and `idx_end`, the start and the (exclusive) end
        of its characters in `text`. White space gives no tokens.
        """
        return [
            Token(token.text, idx=token.idx, idx_end=token.idx + len(token.text))
            for token in self._rules.tokens(text)
        ]


class TaskReader(DatasetReader):
    """
    Read the records of a file, such as its sentences or documents, or those of a list of files. Each record
    is validated separately: an invalid one stops reading with a `ConfigurationError` that names file, line
    and field, or is left out. The workers of a data loader, and of distributed training, divide the records
    before they make instances of them. A file that cannot be read is always an error, and so is one that
    leaves no instances, if one process reads all of them.

    A task defines `_records`, `_instances` and `text_to_instance`.

    # Parameters

    token_indexers : `Dict[str, TokenIndexer]`, optional (default = `{"tokens": SingleIdTokenIndexer()}`)
        How the tokens of every text field are represented. ELMo needs an `elmo_character_ids` indexer.
    tokenizer : `Tokenizer`, optional (default = `RuleBasedTokenizer()`)
        Splits text into tokens, in files of text that is not yet split, and in the input of the predictor.
    skip_invalid : `bool`, optional (default = `False`)
        Leave out invalid records, with a warning for each, and log their number at the end.
    """

    max_instances: Optional[int]  # AllenNLP's

    def __init__(
        self,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        tokenizer: Optional[Tokenizer] = None,
        skip_invalid: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            manual_distributed_sharding=True, manual_multiprocess_sharding=True, **kwargs
        )
        self._token_indexers = token_indexers or {"tokens": SingleIdTokenIndexer()}
        self._tokenizer = tokenizer
        self._skip_invalid = skip_invalid

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Of text that is not yet split. Made on first use: spaCy takes 0.1 s to make one."""
        return self._tokenizer or RuleBasedTokenizer()

    def apply_token_indexers(self, instance: Instance) -> None:
        for field in instance.fields.values():
            for text in field if isinstance(field, ListField) else [field]:
                if isinstance(text, TextField):
                    text.token_indexers = self._token_indexers

    def shard_iterable(self, iterable: Iterable[Any]) -> Iterator[Any]:
        """
        Return this process's share of the records. Unlike AllenNLP's method, do not end at `max_instances`,
        which counts instances: a record can have none or several.
        """
        max_instances, self.max_instances = self.max_instances, None
        try:
            return super().shard_iterable(iterable)
        finally:
            self.max_instances = max_instances

    def _read(self, file_path: Union[FileName, List[str]]) -> Iterable[Instance]:
        paths = file_path if isinstance(file_path, list) else [file_path]
        # The records of all files are divided as one: files can have one record each.
        records = self.shard_iterable(chain.from_iterable(map(self._records_or_error, paths)))
        for path, records_of_file in groupby(records, key=itemgetter(0)):
            yield from self._instances_of_file(path, records_of_file)

    def _records_or_error(self, file_path: FileName) -> Iterator[Tuple[FileName, str, Any]]:
        """Yield the records of a file after its path. Raise `ConfigurationError` if there are none."""
        records = peekable(self._records(file_path))
        if not records:
            raise ConfigurationError(
                f"{file_path}: found no data, expected a file as {type(self).__name__} reads it. Give the "
                "path of a file with data."
            )
        for place, record in records:
            yield file_path, place, record

    def _instances_of_file(
        self, file_path: FileName, records: Iterable[Tuple[FileName, str, Any]]
    ) -> Iterator[Instance]:
        counts: Counter = Counter()
        num_records, num_instances = 0, 0
        for _, place, record in records:
            num_records += 1
            try:
                # All of a record's instances or none.
                with errors_at(place):
                    instances = list(self._instances(record, counts))
            except ConfigurationError as error:
                if not self._skip_invalid:
                    raise
                logger.warning("Left out (skip_invalid): %s", error)
                counts["invalid left out"] += 1
                continue
            num_instances += len(instances)
            yield from instances
        for reason, count in counts.items():
            logger.warning("%s: %d %s (%d records read)", file_path, count, reason, num_records)
        # One of several workers may have no instances.
        is_alone = self.get_worker_info() is None and self.get_distributed_info() is None
        if is_alone and not num_instances:
            reasons = ", ".join(f"{count} {reason}" for reason, count in counts.items())
            raise ConfigurationError(
                f"{file_path}: no instance is left of {num_records} records read"
                f"{f' ({reasons})' if reasons else ''}, expected at least one. Give another file."
            )

    def _records(self, file_path: FileName) -> Iterator[Tuple[str, Any]]:
        """
        Yield the records of a file, not yet validated, with their places, such as `train.txt, line 3`. Raise
        an error if the file as a whole is invalid.
        """
        raise NotImplementedError

    def _instances(self, record: Any, counts: Counter) -> Iterable[Instance]:
        """
        Return the instances of a record. What is left out is counted in `counts`, under a text such as
        `sentences without a label left out`. Errors need not name the place of the record.
        """
        raise NotImplementedError


def checked_words(tokens: Sequence[Token], what: str = "sentence") -> List[str]:
    """Return the texts of tokens, at least one. Errors name `what` the tokens are."""
    words = [token.ensure_text() for token in tokens]
    if not words:
        raise ConfigurationError(
            f"found a {what} without tokens, expected at least one token. Leave it out."
        )
    if DEFAULT_PADDING_TOKEN in words:
        # Models would not see it.
        raise ConfigurationError(
            f"found the token {DEFAULT_PADDING_TOKEN} in a {what}, expected other ones: AllenNLP's "
            "vocabularies have this one for padding. Leave it out."
        )
    return words


class ClassField(LabelField):
    """A `LabelField` that adds all `classes` to the vocabulary, in the same order for any data."""

    __slots__ = ["classes"]

    def __init__(self, label: str, classes: Sequence[str]) -> None:
        super().__init__(label)
        self.classes = classes

    def count_vocab_items(self, counter: Dict[str, Dict[str, int]]) -> None:
        # The vocabulary sorts by frequency, and keeps the order of classes with the same count.
        for name in self.classes:
            counter[self._label_namespace][name] += 1


def character_offsets(tokens: Sequence[Token]) -> Optional[List[Tuple[int, int]]]:
    """Return start and end (exclusive) of each token in the text, `None` if not all tokens have them."""
    if any(token.idx is None for token in tokens):
        return None
    return [(token.idx, token.idx_end or token.idx + len(token.ensure_text())) for token in tokens]


@BatchSampler.register("elmo_even")
class EvenBatchSampler(BucketBatchSampler):
    """
    Cut instances into batches of similar length, the shortest first, as AllenNLP's `bucket` does without
    `shuffle`. In distributed training all workers have the same number of batches.

    AllenNLP's trainer stops all workers as soon as one has no batch left, and drops the remaining batches of
    the others. So workers with fewer instances make smaller batches. Only if a worker has fewer instances
    than another one has batches, the batches of that one are larger than `batch_size`. All instances must be
    in memory, without `max_instances_in_memory` of the loader.

    # Raises

    `ConfigurationError`, at the first batch, if a worker has no instances.
    """

    def __init__(self, batch_size: int, sorting_keys: List[str]) -> None:
        super().__init__(batch_size, sorting_keys, shuffle=False)

    def get_batch_indices(self, instances: Sequence[Instance]) -> Iterable[List[int]]:
        if not is_distributed():
            yield from super().get_batch_indices(instances)
            return
        fewest_instances = dist_reduce(len(instances), torch.distributed.ReduceOp.MIN)
        if fewest_instances == 0:
            raise ConfigurationError(
                "A worker of distributed training has no validation data, expected at least one instance for "
                "each. Give more data, or fewer devices in distributed.cuda_devices."
            )
        num_needed = math.ceil(len(instances) / self.batch_size)
        most_batches = dist_reduce(num_needed, torch.distributed.ReduceOp.MAX)
        num_batches = min(most_batches, fewest_instances)
        indices, _ = self._argsort_by_padding(instances)
        yield from map(list, divide(num_batches, indices))
