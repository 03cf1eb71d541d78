"""
Parts of an output: the blocks of sentences that they are made of, and the folder that keeps them.

A part appears complete or not at all, so a run can be interrupted at any moment. The same input is always cut
into the same blocks. To resume a run, cut the input again and embed the blocks that are in no finished part.
"""

import hashlib
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Iterable, Iterator, List, NamedTuple, Optional, Sequence

import numpy

from elmo_plugin.embedding.formats import OutputFormat
from elmo_plugin.embedding.sentence_batches import consecutive_groups
from elmo_plugin.embedding.sentences import Sentence, SentenceSource
from elmo_plugin.files.output import replaced_file
from elmo_plugin.files.text import split_tokens

# Parts that are read at the same time: network disks have a high latency.
NUM_THREADS = 16
# Bytes of a part that are read together.
READ_BYTES = 2**20

_DIGEST_BYTES = 8
_DATA, _DESCRIPTIONS = "data", "descriptions"

logger = logging.getLogger(__name__)


class Content(NamedTuple):
    """The sentences of a source."""

    name: str
    num_sentences: int  # without blank lines
    num_tokens: int
    digest: int  # the sum of those of the sentences, or of the parts; see `_digest`


class Part(NamedTuple):
    """Consecutive sentences of a source, whose vectors are in one file."""

    number: int  # position of the source in the input, from 0
    first_line: int  # from 0
    source: str  # name of the source
    num_sentences: int
    num_tokens: int
    digest: int  # see `_digest`

    @property
    def name(self) -> str:
        """The same name for the same block: a part that is written twice exists once."""
        return f"part-{self.number:05d}-{self.first_line:010d}"


class Block(NamedTuple):
    """Sentences that are embedded together, and the part that they are written as."""

    part: Part
    sentences: List[Sentence]  # at least one


def content_of(source: SentenceSource) -> Content:
    """
    Read and check all sentences of a source. Raise `ConfigurationError` as `SentenceSource.texts`. Tokens are
    those separated by white space: the fewest that any tokenizer gives.
    """
    num_sentences = num_tokens = digest = 0
    for line_index, text in source.texts():
        num_sentences += 1
        num_tokens += len(split_tokens(text))
        digest += _digest(line_index, text)
    return Content(source.name, num_sentences, num_tokens, _wrapped(digest))


def read_blocks(
    sources: Sequence[SentenceSource], max_sentences: int, max_tokens: Optional[int]
) -> Iterator[Block]:
    """
    Cut the sentences of all sources into blocks, in order.

    # Parameters

    sources : `Sequence[SentenceSource]`
        A block has sentences of one of them.
    max_sentences, max_tokens : `int`
        Limits of a block. A sentence of more tokens is a block by itself.

    # Raises

    `ConfigurationError` as `SentenceSource.sentences`.
    """
    for number, source in enumerate(sources):
        groups = consecutive_groups(source.sentences(), max_sentences, max_tokens, _num_tokens)
        for sentences in groups:
            part = Part(
                number=number,
                first_line=sentences[0].line_index,
                source=source.name,
                num_sentences=len(sentences),
                num_tokens=sum(map(_num_tokens, sentences)),
                digest=_wrapped(sum(_digest(line, text) for line, text, _ in sentences)),
            )
            yield Block(part, sentences)


def contents_of_parts(parts: Iterable[Part]) -> List[Content]:
    """Return what parts, which are in the order of the input, hold of each source."""
    contents = []
    for (_, name), group in groupby(parts, key=lambda part: (part.number, part.source)):
        own_parts = list(group)
        num_sentences = sum(part.num_sentences for part in own_parts)
        num_tokens = sum(part.num_tokens for part in own_parts)
        digest = _wrapped(sum(part.digest for part in own_parts))
        contents.append(Content(name, num_sentences, num_tokens, digest))
    return contents


@dataclass(frozen=True)
class PartsFolder:
    """
    The folder of the finished parts. Can be pickled, to be sent to workers.

    The vectors of a part are a file in `data`. It is complete when its description exists: a file in
    `descriptions` with the `Part` as JSON on the first line, and on the second a checksum of this line and of
    the vectors.
    """

    path: Path

    def make(self) -> None:
        """Make the folders that do not exist."""
        for name in (_DATA, _DESCRIPTIONS):
            (self.path / name).mkdir(parents=True, exist_ok=True)

    def write(self, block: Block, vectors: Sequence[numpy.ndarray], format: OutputFormat) -> None:
        """Write the vectors of a block as a part, see `OutputFormat.write_part`."""
        data = self._data_of(block.part, format)
        description = json.dumps(block.part._asdict()).encode() + b"\n"
        with replaced_file(data) as new_path:
            with open(new_path, "wb") as file:
                format.write_part(file, block.part.source, block.sentences, vectors)
            checksum = _checksum(description, new_path)
        with replaced_file(self.path / _DESCRIPTIONS / f"{data.name}.json") as new_path:
            new_path.write_bytes(description + checksum)

    @property
    def num_parts(self) -> int:
        """Number of finished parts."""
        return len(self._descriptions())

    def intact_parts(self) -> List[Part]:
        """Return the parts that have the checksums with which they were written; name others in the log."""
        descriptions = self._descriptions()
        with ThreadPoolExecutor(NUM_THREADS) as threads:
            parts = list(threads.map(self._intact_part, descriptions))
        for part, path in zip(parts, descriptions):
            if part is None:
                logger.warning("%s is damaged: it is computed again.", path.stem)
        return [part for part in parts if part is not None]

    def keep_only(self, parts: Iterable[Part], format: OutputFormat) -> List[Path]:
        """
        Return the files of these parts, in this order. Remove other files beside them: unfinished ones of
        killed processes, and parts of another input.

        # Raises

        `FileNotFoundError` if one is missing.
        """
        kept = [self._data_of(part, format) for part in parts]
        missing = set(kept)
        for path in (self.path / _DATA).iterdir():
            if path in missing:
                missing.remove(path)
            else:
                path.unlink()
        if missing:
            raise FileNotFoundError(f"{min(missing)} was removed by another program")
        return kept

    def _data_of(self, part: Part, format: OutputFormat) -> Path:
        return self.path / _DATA / f"{part.name}.{format.part_ending}"

    def _descriptions(self) -> List[Path]:
        return sorted((self.path / _DESCRIPTIONS).glob("part-*.json"))

    def _intact_part(self, description: Path) -> Optional[Part]:
        line, _, checksum = description.read_bytes().partition(b"\n")
        data = self.path / _DATA / description.stem
        is_intact = data.exists() and checksum == _checksum(line + b"\n", data)
        return Part(**json.loads(line)) if is_intact else None


def _digest(line_index: int, text: str) -> int:
    """
    Return a number of 64 bits for a sentence at its line. The digest of several sentences is the sum of
    theirs, so that of a source is the sum of those of its parts.
    """
    line = f"{line_index}\t{text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(line, digest_size=_DIGEST_BYTES).digest(), "big")


def _wrapped(digest: int) -> int:
    return digest % 256**_DIGEST_BYTES


def _num_tokens(sentence: Sentence) -> int:
    return len(sentence.tokens)


def _checksum(description: bytes, data: Path) -> bytes:
    digest = hashlib.blake2b(description, digest_size=16)
    with open(data, "rb") as file:
        while chunk := file.read(READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest().encode()
