"""
Finished parts of an output: which sentences are in them, and which are still to be embedded.

A part appears complete or not at all, so that a run can be interrupted at any moment: to resume it is to list
its parts and to embed the sentences that are in none of them.
"""

import hashlib
from itertools import groupby, pairwise
from typing import Callable, Generator, Iterable, List, NamedTuple, NoReturn, Sequence

from elmo_plugin.embedding.sentence_batches import consecutive_groups
from elmo_plugin.embedding.sentences import Sentence, SentenceSource
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text_lines import split_tokens

# Raises `ConfigurationError` for a sentence, its line index and its text, that a format cannot hold.
Check = Callable[[int, str], None]


class Content(NamedTuple):
    """What a source holds."""

    name: str
    num_sentences: int  # without blank lines
    num_tokens: int  # between white space; no tokenizer makes fewer
    digest: str  # of line numbers and texts


class Part(NamedTuple):
    """The sentences of a source that are in one file: all those from its first line to its last."""

    number: int  # of the source among those of the run, from 0
    first_line: int  # from 0
    last_line: int  # included
    source: str  # its name
    num_sentences: int
    num_tokens: int
    digest: str  # of line numbers and texts

    def file_name(self, ending: str) -> str:
        """The same whenever the same block is written, so that a second time replaces the first."""
        return f"part-{self.number:05d}-{self.first_line:010d}.{ending}"


class Block(NamedTuple):
    """Sentences that are embedded together, and become a part."""

    number: int  # of the source
    source: str  # its name
    sentences: List[Sentence]  # consecutive ones; at least one

    @property
    def part(self) -> Part:
        """What the block will be."""
        tally = _Tally()
        for sentence in self.sentences:
            tally.add(sentence.line_index, sentence.text)
        return Part(
            number=self.number,
            first_line=self.sentences[0].line_index,
            last_line=self.sentences[-1].line_index,
            source=self.source,
            num_sentences=tally.num_sentences,
            num_tokens=sum(len(sentence.tokens) for sentence in self.sentences),
            digest=tally.digest,
        )


def content_of(source: SentenceSource, parts: Iterable[Part], check: Check) -> Content:
    """
    Read a source once, to check it before any work.

    # Parameters

    source : `SentenceSource`
        Is read to its end.
    parts : `Iterable[Part]`
        Those of this source, by ascending lines.
    check : `Check`
        Is given each sentence.

    # Raises

    `ConfigurationError` as `SentenceSource.texts` and `check` do, and if parts were made of other sentences.
    """
    reading = _Reading(source, parts, check)
    for line_index, text in source.texts():
        reading.is_done(line_index, text)
    return reading.content()


def read_blocks(
    number: int,
    source: SentenceSource,
    parts: Iterable[Part],
    check: Check,
    max_sentences: int,
    max_tokens: int,
) -> Generator[Block, None, Content]:
    """
    Cut the sentences of a source that are in no part yet into blocks, and return what the source holds.

    # Parameters

    source, parts, check
        See `content_of`.
    max_sentences, max_tokens : `int`
        At most this many are in a block; a sentence that is longer is a block of its own.

    # Raises

    `ConfigurationError` as `content_of`.
    """
    reading = _Reading(source, parts, check)

    def is_done(sentence: Sentence) -> bool:
        return reading.is_done(sentence.line_index, sentence.text)

    # No block has sentences on both sides of a part: its first and last line are its own.
    for done, sentences in groupby(source.sentences(), key=is_done):
        if not done:
            for group in consecutive_groups(sentences, max_sentences, max_tokens, _num_tokens):
                yield Block(number, source.name, group)
    return reading.content()


def parts_by_source(parts: Iterable[Part], names: Sequence[str]) -> List[List[Part]]:
    """For each source, by its name, its parts, by ascending lines; a part of another source is an error."""
    by_source: List[List[Part]] = [[] for _ in names]
    for part in sorted(parts):
        name = names[part.number] if part.number < len(names) else None
        if part.source != name:
            _raise_for_other_input(
                f"file {part.number + 1} was {part.source}, and is "
                f"{'not there now' if name is None else f'now {name}'}"
            )
        by_source[part.number].append(part)
    return by_source


def check_complete(parts: Iterable[Part], contents: Sequence[Content]) -> None:
    """Check that each sentence of each source is in one part, and in no second one."""
    names = [content.name for content in contents]
    for content, own_parts in zip(contents, parts_by_source(parts, names)):
        num_written = sum(part.num_sentences for part in own_parts)
        overlap = any(part.first_line <= last.last_line for last, part in pairwise(own_parts))
        if overlap or num_written != content.num_sentences:
            raise ConfigurationError(
                f"{content.name}: {content.num_sentences:,} sentences were found and {num_written:,} are "
                f"written{', some of them twice' if overlap else ''}. The file was changed meanwhile, or "
                "files of the output were. Start anew by --overwrite."
            )


class _Tally:
    """Counts sentences that are read one after the other, and computes a digest of them."""

    def __init__(self) -> None:
        self.num_sentences = self.num_tokens = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, line_index: int, text: str) -> None:
        self.num_sentences += 1
        self.num_tokens += len(split_tokens(text))
        self._hash.update(f"{line_index}\t{text}\n".encode("utf-8", "surrogatepass"))

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


class _Reading:
    """Compares a source with its parts while it is read, and counts what it holds, see `content_of`."""

    def __init__(self, source: SentenceSource, parts: Iterable[Part], check: Check) -> None:
        self._source = source
        self._parts = list(parts)
        self._check = check
        self._whole, self._in_part = _Tally(), _Tally()

    def is_done(self, line_index: int, text: str) -> bool:
        """Whether a sentence, the next of the source, is in a part."""
        self._check(line_index, text)
        self._whole.add(line_index, text)
        if not self._parts or line_index < self._parts[0].first_line:
            return False
        self._in_part.add(line_index, text)
        if line_index >= self._parts[0].last_line:
            if self._in_part.digest != self._parts[0].digest:
                self._raise()
            self._in_part = _Tally()
            del self._parts[0]
        return True

    def content(self) -> Content:
        """What the source, which was read to its end, holds."""
        if self._parts:
            self._raise()
        tally = self._whole
        return Content(self._source.name, tally.num_sentences, tally.num_tokens, tally.digest)

    def _raise(self) -> NoReturn:
        part = self._parts[0]
        _raise_for_other_input(
            f"what it has written ({part.num_sentences:,} sentences, lines {part.first_line + 1:,} to "
            f"{part.last_line + 1:,}) is not what stands there in {self._source.name}"
        )


def _num_tokens(sentence: Sentence) -> int:
    return len(sentence.tokens)


def _raise_for_other_input(difference: str) -> NoReturn:
    raise ConfigurationError(
        f"--resume: the interrupted run had another input: {difference}. Give the same input, or --overwrite "
        "to start anew."
    )
