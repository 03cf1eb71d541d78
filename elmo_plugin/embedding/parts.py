"""
Finished parts of an output: which sentences they hold, and which sentences are still to be embedded.

A part appears complete or not at all, so a run can be interrupted at any moment. To resume a run, list its
parts and embed the sentences that are in none of them.
"""

import hashlib
from itertools import groupby, pairwise
from typing import Callable, Generator, Iterable, List, NamedTuple, NoReturn, Sequence

from elmo_plugin.embedding.sentence_batches import consecutive_groups
from elmo_plugin.embedding.sentences import Sentence, SentenceSource
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text_lines import split_tokens

# Is called with the line index and text of a sentence; raises `ConfigurationError` if a format cannot hold
# it.
Check = Callable[[int, str], None]


class Content(NamedTuple):
    """The sentences of a source: how many, and a digest of them."""

    name: str
    num_sentences: int  # without blank lines
    num_tokens: int  # separated by white space: the least that any tokenizer gives
    digest: str  # of line numbers and texts


class Part(NamedTuple):
    """The sentences in one file: those of a source from a first line to a last one."""

    number: int  # position of the source in the input, from 0
    first_line: int  # from 0
    last_line: int  # inclusive
    source: str  # name of the source
    num_sentences: int
    num_tokens: int
    digest: str  # of line numbers and texts

    def file_name(self, ending: str) -> str:
        """Return the same name for the same block: a part that is written twice exists once."""
        return f"part-{self.number:05d}-{self.first_line:010d}.{ending}"


class Block(NamedTuple):
    """Sentences that are embedded together and written as one part."""

    number: int  # position of the source in the input, from 0
    source: str  # name of the source
    sentences: List[Sentence]  # consecutive, at least one

    @property
    def part(self) -> Part:
        """The part that the block will be written as."""
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
    Read and check all sentences of a source.

    # Parameters

    source : `SentenceSource`
        Is read to its end.
    parts : `Iterable[Part]`
        The parts of this source, sorted by line.
    check : `Check`
        Is called for each sentence.

    # Raises

    `ConfigurationError` as `SentenceSource.texts` and `check`, and if a part was made from other sentences.
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
    Yield the sentences of a source that are in no part yet, as blocks, and return the content of the source.

    # Parameters

    number : `int`
        Position of the source in the input, from 0.
    source, parts, check
        See `content_of`.
    max_sentences, max_tokens : `int`
        Limits of a block. A sentence of more tokens is a block by itself.

    # Raises

    `ConfigurationError` as `content_of`.
    """
    reading = _Reading(source, parts, check)

    def is_done(sentence: Sentence) -> bool:
        return reading.is_done(sentence.line_index, sentence.text)

    # Grouped, so that no block has sentences from before and after a part.
    for done, sentences in groupby(source.sentences(), key=is_done):
        if not done:
            for group in consecutive_groups(sentences, max_sentences, max_tokens, _num_tokens):
                yield Block(number, source.name, group)
    return reading.content()


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


def check_complete(parts: Iterable[Part], contents: Sequence[Content]) -> None:
    """Check that each sentence of each source is in exactly one part."""
    names = [content.name for content in contents]
    for content, own_parts in zip(contents, parts_by_source(parts, names)):
        num_written = sum(part.num_sentences for part in own_parts)
        overlap = any(part.first_line <= last.last_line for last, part in pairwise(own_parts))
        if overlap or num_written != content.num_sentences:
            raise ConfigurationError(
                f"{content.name}: {content.num_sentences:,} sentences were found and {num_written:,} are "
                f"written{', some of them twice' if overlap else ''}. The input or files of the output were "
                "changed during the run. Start again with --overwrite."
            )


class _Tally:
    """Count sentences in the order of reading, and compute a digest of them."""

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
    """Compare a source with its parts while it is read, and count its sentences, see `content_of`."""

    def __init__(self, source: SentenceSource, parts: Iterable[Part], check: Check) -> None:
        self._source = source
        self._parts = list(parts)
        self._check = check
        self._whole, self._in_part = _Tally(), _Tally()

    def is_done(self, line_index: int, text: str) -> bool:
        """Return whether the next sentence of the source is in a part."""
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
        """Return the content of the source, after it was read to its end."""
        if self._parts:
            self._raise()
        tally = self._whole
        return Content(self._source.name, tally.num_sentences, tally.num_tokens, tally.digest)

    def _raise(self) -> NoReturn:
        part = self._parts[0]
        _raise_for_other_input(
            f"lines {part.first_line + 1:,} to {part.last_line + 1:,} of {self._source.name} are not the "
            f"{part.num_sentences:,} sentences that it has written"
        )


def _num_tokens(sentence: Sentence) -> int:
    return len(sentence.tokens)


def _raise_for_other_input(difference: str) -> NoReturn:
    raise ConfigurationError(
        f"--resume: the interrupted run had another input: {difference}. Give the same input, or --overwrite "
        "to start again."
    )
