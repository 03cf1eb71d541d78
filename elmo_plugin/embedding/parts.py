"""
Finished parts of an output: which sentences they hold, and which sentences are still to be embedded.

A part appears complete or not at all, so a run can be interrupted at any moment. To resume a run, list its
parts and embed the sentences that are in none of them.
"""

import hashlib
from itertools import groupby
from typing import Iterable, Iterator, List, NamedTuple, NoReturn, Sequence

from elmo_plugin.embedding.formats import OutputFormat
from elmo_plugin.embedding.sentence_batches import consecutive_groups
from elmo_plugin.embedding.sentences import Sentence, SentenceSource
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import split_tokens

_DIGEST_BYTES = 8


class Content(NamedTuple):
    """The sentences of a source."""

    name: str
    num_sentences: int  # without blank lines
    num_tokens: int  # separated by white space: the least that any tokenizer gives
    digest: int  # see `sentence_digest`


class Part(NamedTuple):
    """The sentences in one file: those of a source from a first line to a last one."""

    number: int  # position of the source in the input, from 0
    first_line: int  # from 0
    last_line: int  # inclusive
    source: str  # name of the source
    num_sentences: int
    num_tokens: int
    digest: int  # see `sentence_digest`

    @property
    def name(self) -> str:
        """The same name for the same block: a part that is written twice exists once."""
        return f"part-{self.number:05d}-{self.first_line:010d}"


class Block(NamedTuple):
    """Sentences that are embedded together and written as one part."""

    number: int  # position of the source in the input, from 0
    source: str  # name of the source
    sentences: List[Sentence]  # consecutive, at least one

    @property
    def part(self) -> Part:
        """The part that the block will be written as."""
        return Part(
            number=self.number,
            first_line=self.sentences[0].line_index,
            last_line=self.sentences[-1].line_index,
            source=self.source,
            num_sentences=len(self.sentences),
            num_tokens=sum(len(sentence.tokens) for sentence in self.sentences),
            digest=_sum(sentence_digest(line, text) for line, text, _ in self.sentences),
        )


def sentence_digest(line_index: int, text: str) -> int:
    """
    Return a number of 64 bits for a sentence at its line. The digest of several sentences is the sum of
    theirs, so that of a source is the sum of those of its parts.
    """
    line = f"{line_index}\t{text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(line, digest_size=_DIGEST_BYTES).digest(), "big")


def content_of(source: SentenceSource, parts: Sequence[Part], format: OutputFormat) -> Content:
    """
    Read and check all sentences of a source.

    # Parameters

    source : `SentenceSource`
        Is read to its end.
    parts : `Sequence[Part]`
        The finished parts of this source, sorted by line.
    format : `OutputFormat`
        Checks whether it can hold the sentences.

    # Raises

    `ConfigurationError` as `SentenceSource.texts` and `OutputFormat.check`, and if a part was made from other
    sentences.
    """
    finished = _FinishedSentences(source.name, parts)
    num_sentences = num_tokens = digest = 0
    for line_index, text in source.texts():
        format.check(line_index, text)
        finished.includes(line_index, text)
        num_sentences += 1
        num_tokens += len(split_tokens(text))
        digest += sentence_digest(line_index, text)
    finished.check_all_found()
    return Content(source.name, num_sentences, num_tokens, _sum([digest]))


def read_blocks(
    number: int,
    source: SentenceSource,
    parts: Sequence[Part],
    format: OutputFormat,
    max_sentences: int,
    max_tokens: int,
) -> Iterator[Block]:
    """
    Yield the sentences of a source that are in no part yet, as blocks.

    # Parameters

    number : `int`
        Position of the source in the input, from 0.
    source, parts, format
        See `content_of`.
    max_sentences, max_tokens : `int`
        Limits of a block. A sentence of more tokens is a block by itself.

    # Raises

    `ConfigurationError` as `content_of`.
    """
    finished = _FinishedSentences(source.name, parts)

    def is_finished(sentence: Sentence) -> bool:
        format.check(sentence.line_index, sentence.text)
        return finished.includes(sentence.line_index, sentence.text)

    # Grouped, so that no block has sentences from before and after a part.
    for is_in_part, sentences in groupby(source.sentences(), key=is_finished):
        if not is_in_part:
            for group in consecutive_groups(sentences, max_sentences, max_tokens, _num_tokens):
                yield Block(number, source.name, group)
    finished.check_all_found()


def parts_by_source(parts: Iterable[Part], names: Sequence[str]) -> List[List[Part]]:
    """Return the parts of each source, sorted by line. A part of another source is a `ConfigurationError`."""
    by_source: List[List[Part]] = [[] for _ in names]
    for part in sorted(parts):
        name = names[part.number] if part.number < len(names) else None
        if part.source != name:
            _raise_for_other_input(
                f"file {part.number + 1} was {part.source}, and "
                f"{'is now missing' if name is None else f'is now {name}'}"
            )
        by_source[part.number].append(part)
    return by_source


def contents_in(parts: Iterable[Part], names: Sequence[str]) -> List[Content]:
    """Return what the parts hold of each source."""
    return [
        Content(
            name,
            sum(part.num_sentences for part in own_parts),
            sum(part.num_tokens for part in own_parts),
            _sum(part.digest for part in own_parts),
        )
        for name, own_parts in zip(names, parts_by_source(parts, names))
    ]


def check_complete(all_written: Sequence[Content], contents: Sequence[Content]) -> None:
    """Check that all that was written of each source is all that it holds, each sentence once."""
    for content, written in zip(contents, all_written):
        if (content.num_sentences, content.digest) != (written.num_sentences, written.digest):
            raise ConfigurationError(
                f"{content.name}: {content.num_sentences:,} sentences were found, and the "
                f"{written.num_sentences:,} that are written are not the same. The input or files of the "
                "output were changed during the run. Start again with --overwrite."
            )


class _FinishedSentences:
    """Recognize the sentences that are in finished parts, while their source is read from its start."""

    def __init__(self, source: str, parts: Sequence[Part]) -> None:
        self._source = source
        self._parts = list(parts)
        self._digest = 0  # of the sentences of the first part that were read

    def includes(self, line_index: int, text: str) -> bool:
        """Return whether the next sentence of the source is in a part."""
        if not self._parts or line_index < self._parts[0].first_line:
            return False
        self._digest = _sum([self._digest, sentence_digest(line_index, text)])
        if line_index >= self._parts[0].last_line:
            if self._digest != self._parts[0].digest:
                self._raise()
            self._digest = 0
            del self._parts[0]
        return True

    def check_all_found(self) -> None:
        """Check at the end of the source that it has the sentences of all parts."""
        if self._parts:
            self._raise()

    def _raise(self) -> NoReturn:
        part = self._parts[0]
        _raise_for_other_input(
            f"lines {part.first_line + 1:,} to {part.last_line + 1:,} of {self._source} are not the "
            f"{part.num_sentences:,} sentences that it has written"
        )


def _sum(digests: Iterable[int]) -> int:
    return sum(digests) % 256**_DIGEST_BYTES


def _num_tokens(sentence: Sentence) -> int:
    return len(sentence.tokens)


def _raise_for_other_input(difference: str) -> NoReturn:
    raise ConfigurationError(
        f"--resume: the interrupted run had another input: {difference}. Give the same input, or --overwrite "
        "to start again."
    )
