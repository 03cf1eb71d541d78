"""
Finished parts of an output: which sentences are in them, and which are still to be embedded.

A part appears complete or not at all, so that a run can be interrupted at any moment: to resume it is to list
its parts and to embed the sentences that are in none of them.
"""

from itertools import pairwise
from typing import Callable, Iterable, Iterator, List, NamedTuple, NoReturn, Sequence

from elmo_plugin.embedding.sentences import Content, Sentence, SentenceSource, Tally
from elmo_plugin.errors import ConfigurationError


class Part(NamedTuple):
    """
    The sentences of a source that are in one file: all those from its first line to its last.

    # Parameters

    number : `int`
        Of the source among those of the run, from 0.
    first_line, last_line : `int`
        Zero-based, both included.
    source : `str`
        Name of the source.
    num_sentences, num_tokens : `int`
        How many are in it.
    digest : `str`
        Of its line numbers and texts.
    """

    number: int
    first_line: int
    last_line: int
    source: str
    num_sentences: int
    num_tokens: int
    digest: str

    def file_name(self, ending: str) -> str:
        """The same whenever the same block is written, so that a second time replaces the first."""
        return f"part-{self.number:05d}-{self.first_line:010d}.{ending}"


class Block(NamedTuple):
    """
    Sentences that are embedded together, and become a part.

    # Parameters

    number : `int`
        Of the source.
    source : `str`
        Its name.
    sentences : `List[Sentence]`
        Consecutive ones; at least one.
    """

    number: int
    source: str
    sentences: List[Sentence]

    @property
    def part(self) -> Part:
        """What the block will be."""
        tally = Tally()
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


class DoneSentences:
    """
    Tells which sentences of a source are in parts, and checks that they are the same ones.

    # Parameters

    source : `SentenceSource`
        Names the source in errors.
    parts : `Iterable[Part]`
        Those of this source, by ascending lines.
    """

    def __init__(self, source: SentenceSource, parts: Iterable[Part]) -> None:
        self._source = source
        self._parts = list(parts)
        self._tally = Tally()
        for part in self._parts:
            if part.source != source.name:
                raise ConfigurationError(
                    f"--resume: the interrupted run had another input: file {part.number + 1} was "
                    f"{part.source}, and is now {source.name}. Give the same input, or --overwrite to start "
                    "anew."
                )

    def has(self, line_index: int, text: str) -> bool:
        """
        Whether a sentence, the next of the source, is in a part.

        # Raises

        `ConfigurationError` if the part was made of other sentences.
        """
        if not self._parts or line_index < self._parts[0].first_line:
            return False
        part = self._parts[0]
        self._tally.add(line_index, text)
        if line_index >= part.last_line:
            if self._tally.digest != part.digest:
                self._raise()
            self._tally = Tally()
            del self._parts[0]
        return True

    def finish(self) -> None:
        """
        Check that the source did not end too early.

        # Raises

        `ConfigurationError` if it did.
        """
        if self._parts:
            self._raise()

    def _raise(self) -> NoReturn:
        part = self._parts[0]
        raise ConfigurationError(
            f"--resume: the interrupted run had another input: what it has written ({part.num_sentences:,} "
            f"sentences, lines {part.first_line + 1:,} to {part.last_line + 1:,}) is not what stands there "
            f"in {self._source.name}. Give the same input, or --overwrite to start anew."
        )


# Raises `ConfigurationError` for a sentence, its line index and its text, that a format cannot hold.
Check = Callable[[int, str], None]


def content_of(source: SentenceSource, parts: Iterable[Part], check: Check) -> Content:
    """
    Read a source once, to check it before any work.

    # Raises

    `ConfigurationError` as `SentenceSource.texts`, `DoneSentences` and `check` do.
    """
    done = DoneSentences(source, parts)
    tally = Tally()
    for line_index, text in source.texts():
        tally.add(line_index, text)
        check(line_index, text)
        done.has(line_index, text)
    done.finish()
    return Content(source.name, tally.num_sentences, tally.num_tokens, tally.digest)


class BlockReader:
    """
    Cuts the sentences of sources that are in no part yet into blocks.

    # Parameters

    sources : `Sequence[SentenceSource]`
        All of the run.
    parts : `Sequence[Part]`
        Those that are done.
    max_sentences, max_tokens : `int`
        At most this many are in a block; a sentence that is longer is a block of its own.
    check : `Check`
        Is given each sentence.

    # Attributes

    contents : `List[Content]`
        Of the sources that were read to their end.
    """

    def __init__(
        self,
        sources: Sequence[SentenceSource],
        parts: Sequence[Part],
        max_sentences: int,
        max_tokens: int,
        check: Check,
    ) -> None:
        self._sources = sources
        self._check = check
        self._parts = parts_by_source(parts, len(sources))
        self._max_sentences = max_sentences
        self._max_tokens = max_tokens
        self.contents: List[Content] = []

    def __iter__(self) -> Iterator[Block]:
        for number, source in enumerate(self._sources):
            for sentences in self._blocks(source, self._parts[number]):
                yield Block(number, source.name, sentences)

    def _blocks(self, source: SentenceSource, parts: List[Part]) -> Iterator[List[Sentence]]:
        done = DoneSentences(source, parts)
        tally = Tally()
        block: List[Sentence] = []
        num_tokens = 0
        for sentence in source.sentences():
            tally.add(sentence.line_index, sentence.text)
            self._check(sentence.line_index, sentence.text)
            is_done = done.has(sentence.line_index, sentence.text)
            is_full = (
                len(block) == self._max_sentences
                or num_tokens + len(sentence.tokens) > self._max_tokens
            )
            # No block has sentences on both sides of a part: its first and last line are its own.
            if block and (is_done or is_full):
                yield block
                block, num_tokens = [], 0
            if not is_done:
                block.append(sentence)
                num_tokens += len(sentence.tokens)
        done.finish()
        self.contents.append(
            Content(source.name, tally.num_sentences, tally.num_tokens, tally.digest)
        )
        if block:
            yield block


def parts_by_source(parts: Iterable[Part], num_sources: int) -> List[List[Part]]:
    """
    For each source its parts, by ascending lines.

    # Raises

    `ConfigurationError` for a part of a source that is no more there.
    """
    by_source: List[List[Part]] = [[] for _ in range(num_sources)]
    for part in sorted(parts):
        if part.number >= num_sources:
            raise ConfigurationError(
                f"--resume: the interrupted run had another input: file {part.number + 1} was {part.source}, "
                "and is not there now. Give the same input, or --overwrite to start anew."
            )
        by_source[part.number].append(part)
    return by_source


def check_complete(parts: Iterable[Part], contents: Sequence[Content]) -> None:
    """
    Check that each sentence of each source is in one part.

    # Raises

    `ConfigurationError` if one is missing or there twice.
    """
    for content, own_parts in zip(contents, parts_by_source(parts, len(contents))):
        for previous, part in pairwise(own_parts):
            if part.first_line <= previous.last_line:
                raise ConfigurationError(
                    f"{content.name}: lines {part.first_line + 1:,} to {previous.last_line + 1:,} were "
                    "written twice. Start anew by --overwrite."
                )
        num_written = sum(part.num_sentences for part in own_parts)
        if num_written != content.num_sentences:
            raise ConfigurationError(
                f"{content.name}: {content.num_sentences:,} sentences were found and {num_written:,} are "
                "written. The file was changed meanwhile, or files of the output were. Start anew by "
                "--overwrite."
            )
