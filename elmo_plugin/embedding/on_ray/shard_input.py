"""The files of a corpus: found, checked, and read as blocks of sentences."""

import glob
from os import PathLike
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.checked_sentences import Sentence
from elmo_plugin.embedding.output.embedding_settings import SentenceDigest
from elmo_plugin.embedding.parquet_sentences import ParquetSentences
from elmo_plugin.embedding.sentence_file import STANDARD_INPUT, SentenceFile

PARQUET_ENDING = ".parquet"
# How names begin that are not data, such as `.crc` files and `_SUCCESS`.
NOT_DATA = (".", "_")


class Shard(NamedTuple):
    """
    A file of a corpus.

    # Parameters

    number : `int`
        Its place among the shards, from 0.
    name : `str`
        As it was given; what the output calls it.
    path : `str`
        Where it is, from wherever a worker runs.
    """

    number: int
    name: str
    path: str


class ShardContent(NamedTuple):
    """
    What a shard holds.

    # Parameters

    name : `str`
        Of the shard.
    num_sentences : `int`
        Blank lines that are skipped do not count.
    num_tokens : `int`
        Between white space; no tokenizer makes fewer.
    digest : `str`
        See `SentenceDigest`.
    """

    name: str
    num_sentences: int
    num_tokens: int
    digest: str


class ShardReader(NamedTuple):
    """
    How shards are read.

    # Parameters

    column : `str`
        Of Parquet files, see `ParquetSentences`.
    tokenizer : `str`
        A key of `TOKENIZERS`.
    skip_blank : `bool`
        Leave blank lines and rows out.
    """

    column: str
    tokenizer: str
    skip_blank: bool

    def open(self, shard: Shard) -> Union[SentenceFile, ParquetSentences]:
        """
        The sentences of a shard.

        # Raises

        `ConfigurationError` if it cannot be read.
        """
        source: Union[SentenceFile, ParquetSentences]
        if is_parquet(shard.path):
            source = ParquetSentences(shard.path, self.column, self.tokenizer, self.skip_blank)
        else:
            source = SentenceFile(shard.path, self.tokenizer, self.skip_blank)
        source.name = shard.name
        return source

    def check(self, shard: Shard) -> ShardContent:
        """
        Read a shard once, without taking sentences apart.

        # Raises

        `ConfigurationError` for what cannot be embedded, as the source has it.
        """
        num_sentences = num_tokens = 0
        digest = SentenceDigest()

        def examine(index: int, text: str) -> None:
            nonlocal num_sentences, num_tokens
            num_sentences += 1
            num_tokens += len(text.split())
            digest.add(index, text)

        with self.open(shard) as source:
            source.check(examine)
        return ShardContent(shard.name, num_sentences, num_tokens, str(digest))

    def blocks(
        self,
        shard: Shard,
        done: Sequence[Tuple[int, int]],
        max_sentences: int,
        max_tokens: int,
    ) -> Iterator[List[Sentence]]:
        """The sentences of a shard that are not done, see `blocks_of`."""
        with self.open(shard) as source:
            yield from blocks_of(source.sentences(), done, max_sentences, max_tokens)


def find_shards(inputs: Union[str, PathLike, Iterable[Union[str, PathLike]]]) -> List[Shard]:
    """
    The files that are meant.

    # Parameters

    inputs : `str` or `PathLike`, or several
        Each a file; a folder, whose files are meant, but none in folders within, and none whose names begin
        with `.` or `_`; or a pattern such as `texts/*.gz`, in which `**` stands for folders at any depth.

    # Returns

    In the order of `inputs`; those of a folder or pattern by name. No file stands there twice.

    # Raises

    `ConfigurationError` if one leads to no file.
    """
    if isinstance(inputs, (str, PathLike)):
        inputs = [inputs]
    names = dict.fromkeys(name for one_input in inputs for name in _file_names(str(one_input)))
    if not names:
        raise ConfigurationError("input: there is none, expected files or folders. Name them.")
    return [Shard(number, name, str(Path(name).absolute())) for number, name in enumerate(names)]


def is_parquet(path: Union[str, PathLike]) -> bool:
    """Whether a file is to be read as Parquet, and not as text."""
    return Path(path).suffix.lower() == PARQUET_ENDING


def blocks_of(
    sentences: Iterable[Sentence],
    done: Sequence[Tuple[int, int]],
    max_sentences: int,
    max_tokens: int,
) -> Iterator[List[Sentence]]:
    """
    Cut the sentences of a shard into blocks, in their order.

    # Parameters

    sentences : `Iterable[Sentence]`
        By ascending lines.
    done : `Sequence[Tuple[int, int]]`
        First and last lines of blocks to leave out, ascending. No block has sentences on both sides of one,
        so that it is told from the others by its own first and last line.
    max_sentences, max_tokens : `int`
        At most so many are in a block; a sentence that is longer is a block of its own.
    """
    block: List[Sentence] = []
    num_tokens = 0
    next_done = 0
    for sentence in sentences:
        while next_done < len(done) and done[next_done][1] < sentence.line_index:
            next_done += 1
        is_done = next_done < len(done) and done[next_done][0] <= sentence.line_index
        is_full = len(block) == max_sentences or num_tokens + len(sentence.tokens) > max_tokens
        if block and (is_done or is_full):
            yield block
            block, num_tokens = [], 0
        if not is_done:
            block.append(sentence)
            num_tokens += len(sentence.tokens)
    if block:
        yield block


def check_same_shards(
    former: List[Dict[str, Any]], contents: List[ShardContent], where: str
) -> None:
    """
    # Parameters

    former : `List[Dict[str, Any]]`
        The contents of the shards of the run that is gone on with, as dictionaries.
    contents : `List[ShardContent]`
        Those of this run.
    where : `str`
        Names the former run in errors.

    # Raises

    `ConfigurationError` that names the first difference.
    """
    for number in range(max(len(former), len(contents))):
        was = former[number] if number < len(former) else None
        now = contents[number]._asdict() if number < len(contents) else None
        if was != now:
            raise ConfigurationError(
                f"--resume: {where} was made of another input: file {number + 1} was {_described(was)}, and "
                f"is now {_described(now)}. Give the same input, or --overwrite to start anew."
            )


def _file_names(one_input: str) -> List[str]:
    if one_input == STANDARD_INPUT:
        raise ConfigurationError(
            "input: '-' is standard input, which workers cannot read. Write it to a file first, or leave out "
            "--engine ray."
        )
    path = Path(one_input)
    if path.is_dir():
        names = [
            str(file)
            for file in path.iterdir()
            if file.is_file() and not file.name.startswith(NOT_DATA)
        ]
        found = f"the folder {one_input} holds no files"
    elif path.exists():
        return [one_input]
    else:
        names = [name for name in glob.glob(one_input, recursive=True) if Path(name).is_file()]
        found = f"there is no file {one_input}, and none that fits it as a pattern"
    if not names:
        raise ConfigurationError(
            f"input: {found}, expected text or Parquet files. Correct the path."
        )
    return sorted(names)


def _described(content: Optional[Dict[str, Any]]) -> str:
    if content is None:
        return "not there"
    return (
        f"{content['name']} with {content['num_sentences']:,} sentences and {content['num_tokens']:,} tokens "
        f"(digest {content['digest'][:8]})"
    )
