"""
Parts of an output: the blocks of sentences that they are made of, and the folder `OUTPUT.partial` that keeps
them until the output is complete.

A part appears complete or not at all, so a run can be interrupted at any moment. The same input is always cut
into the same blocks. To resume a run, cut the input again and embed the blocks that are in no finished part.
"""

import hashlib
import json
import logging
import os
import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, ContextManager, Dict, Iterable, Iterator, List, NamedTuple, Optional

import numpy

from elmo_plugin.embedding.formats import OutputFormat
from elmo_plugin.embedding.sentence_batches import consecutive_groups
from elmo_plugin.embedding.sentences import PARTIAL, Sentence, SentenceSource
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import LOCK_NAME, claimed_folder, replaced_file
from elmo_plugin.files.progress import progress_bar
from elmo_plugin.files.text import FileName, split_tokens

# Parts that are read at the same time: network disks have a high latency.
NUM_THREADS = 16
# Bytes of a part that are read together.
READ_BYTES = 2**20

_DATA, _DESCRIPTIONS = "data", "descriptions"
_RUN_NAME = "run.json"
_PARTS_NAME = "parts"  # the first letters of the name

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
        return f"{_names_of(self.number)}{self.first_line:010d}"


def _names_of(number: int) -> str:
    """The first letters of the names of all parts of a source."""
    return f"part-{number:08d}-"


class Block(NamedTuple):
    """Sentences that are embedded together, and the part that they are written as."""

    part: Part
    sentences: List[Sentence]  # at least one


def content_of(source: SentenceSource) -> Content:
    """
    Read and check all sentences of a source. Raise `ConfigurationError` as `SentenceSource.texts`. Tokens of
    text are those separated by white space: the fewest that any tokenizer gives.
    """
    num_sentences = num_tokens = digest = 0
    for line_index, text, tokens in source.texts():
        num_sentences += 1
        num_tokens += len(split_tokens(text) if tokens is None else tokens)
        digest += _digest(Sentence(line_index, text, tokens or []), source.holds_tokens)
    return Content(source.name, num_sentences, num_tokens, digest)


def read_blocks(
    sources: List[SentenceSource], max_sentences: int, max_tokens: Optional[int]
) -> Iterator[Block]:
    """
    Cut the sentences of all sources into blocks, in order.

    A block has sentences of one source, within the limits; a sentence of more tokens is a block by itself.
    Raise `ConfigurationError` as `SentenceSource.sentences`.
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
                digest=sum(_digest(sentence, source.holds_tokens) for sentence in sentences),
            )
            yield Block(part, sentences)


def contents_of_parts(parts: Iterable[Part]) -> List[Content]:
    """Return what parts, which are in the order of the input, hold of each source."""
    contents = []
    for (_, name), group in groupby(parts, key=lambda part: (part.number, part.source)):
        columns = zip(*((part.num_sentences, part.num_tokens, part.digest) for part in group))
        contents.append(Content(name, *map(sum, columns)))
    return contents


def _digest(sentence: Sentence, holds_tokens: bool) -> int:
    """
    Return a number of 64 bits for a sentence at its line: for its text, or for its tokens if the source holds
    tokens, as text does not show where a token with white space ends. The digest of several sentences is the
    sum of theirs, so that of a source is the sum of those of its parts.
    """
    content = sentence.tokens if holds_tokens else sentence.text
    line = json.dumps([sentence.line_index, content]).encode()
    return int.from_bytes(hashlib.blake2b(line, digest_size=8).digest(), "big")


def _num_tokens(sentence: Sentence) -> int:
    return len(sentence.tokens)


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

    def write(self, block: Block, vectors: List[numpy.ndarray], format: OutputFormat) -> None:
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
            intact = threads.map(self._intact_part, descriptions)
            parts = list(progress_bar(intact, "checking parts", len(descriptions), delay=1))
        for part, path in zip(parts, descriptions):
            if part is None:
                logger.warning("%s is damaged: it is computed again.", path.stem)
        return [part for part in parts if part is not None]

    def remove_source(self, number: int) -> None:
        """Remove all parts of the source at this position of the input."""
        for path in (self.path / _DESCRIPTIONS).glob(f"{_names_of(number)}*"):
            path.unlink()

    def keep_only(self, parts: Iterable[Part], format: OutputFormat) -> List[Path]:
        """
        Return the files of these parts, in this order. Remove other files beside them: unfinished ones of
        killed processes, and parts of another input. Raise `FileNotFoundError` if one is missing.
        """
        kept = [self._data_of(part, format) for part in parts]
        existing = set((self.path / _DATA).iterdir())
        for path in existing - set(kept):
            path.unlink()
        missing = set(kept) - existing
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


def _checksum(description: bytes, data: Path) -> bytes:
    digest = hashlib.blake2b(description, digest_size=16)
    with open(data, "rb") as file:
        while chunk := file.read(READ_BYTES):
            digest.update(chunk)
    return digest.hexdigest().encode()


class Run(NamedTuple):
    """What is known of a run while its output is not complete."""

    settings: Dict[str, Any]
    # Whether it may replace an output that existed when it began, also when it is resumed.
    overwrite: bool


class PartialOutput:
    """The folder `OUTPUT.partial`: the parts of a run, and its settings."""

    def __init__(self, output: FileName) -> None:
        self.output = Path(os.path.abspath(output))  # workers run in other folders
        if self.output.is_symlink():
            output = self.output = self.output.resolve()  # what the link points to is replaced
        self.folder = self.output.with_name(self.output.name + PARTIAL)
        self.name = f"{Path(output)}{PARTIAL}"  # in errors: relative if `output` is
        self._run_file = self.folder / _RUN_NAME

    def check(self, overwrite: bool, resume: bool) -> None:
        """
        Raise `ConfigurationError` if the folder was made by another program, or if it holds parts of an
        interrupted run and neither `overwrite` nor `resume` is set.
        """
        if not self.folder.exists():
            return
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else [""]
        # A run that was killed before it wrote its settings has left only these files.
        is_own = all(name.startswith((LOCK_NAME, f".{_RUN_NAME}")) for name in names)
        if _RUN_NAME not in names and not is_own:
            raise ConfigurationError(
                f"output: {self.name} was not made by this command, expected no such path: the command keeps "
                "unfinished output there. Remove it, or give another output."
            )
        if overwrite:
            return
        num_parts = self.parts_folder.num_parts
        if num_parts and not resume:
            parts = "1 part" if num_parts == 1 else f"{num_parts:,} parts"
            raise ConfigurationError(
                f"output: {self.name} holds {parts} of a run that was interrupted. Continue it "
                "with --resume (resume=True), or start again with --overwrite."
            )
        self.interrupted_run()  # fails here if it is damaged

    def locked(self) -> ContextManager[None]:
        """Make and lock the folder, so that no other process writes this output."""
        return claimed_folder(
            self.folder,
            f"output: another process is writing {self.output} (it has locked {self.folder}). Wait for it, "
            "or give another path.",
        )

    def begin(self, run: Run) -> None:
        """Empty the folder, and begin a run."""
        self._remove_content()
        self._record(run)

    def _record(self, run: Run) -> None:
        with replaced_file(self._run_file) as file:
            file.write_text(json.dumps(run._asdict()), encoding="utf-8")

    def interrupted_run(self) -> Run:
        """Return the run to resume; one without settings if there is none."""
        if not self._run_file.exists():
            return Run({}, False)
        try:
            run = json.loads(self._run_file.read_text(encoding="utf-8"))
            return Run(dict(run["settings"]), run["overwrite"] is True)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{self.name}/{_RUN_NAME}: cannot be read ({error}). Give --overwrite to start again."
            ) from error

    @property
    def may_replace(self) -> bool:
        """Whether no output exists, or the interrupted run may replace it."""
        return not self.output.exists() or self.interrupted_run().overwrite

    @property
    def parts_folder(self) -> PartsFolder:
        """Where the parts are."""
        return PartsFolder(next(self.folder.glob(f"{_PARTS_NAME}*"), self.folder / _PARTS_NAME))

    def renamed_parts_folder(self) -> PartsFolder:
        """
        Rename the folder of parts, or make it, and return it. Workers of a previous run, which may still be
        running, do not know the new name and cannot write there.
        """
        renamed = PartsFolder(self.folder / f"{_PARTS_NAME}-{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):
            self.parts_folder.path.rename(renamed.path)
        renamed.make()
        return renamed

    @property
    def product(self) -> Path:
        """Where the output is made, if it is not the folder of parts."""
        return self.folder / "product"

    def remove_product(self) -> None:
        """Remove what a run has left that was interrupted while it made the output."""
        if self.product.is_dir():
            shutil.rmtree(self.product)
        else:
            self.product.unlink(missing_ok=True)

    def publish(self, product: Path) -> None:
        """
        Move the complete output, `product`, to its place, and remove the folder. Raise `ConfigurationError`
        if another program has written a file there.
        """
        if not self.may_replace:
            raise ConfigurationError(
                f"output: {self.output} was written by another program during the run. Move it away, then "
                "give --resume: the output is complete and will be moved there."
            )
        previous = self.folder / f"removed-{secrets.token_hex(4)}"
        try:
            if self.output.is_dir():
                # A folder cannot be replaced by one call.
                self.output.rename(previous)
            product.replace(self.output)
        except BaseException:
            with suppress(OSError):  # nothing was moved away, or the new output is in its place
                previous.rename(self.output)
            raise
        with suppress(OSError):  # not every file system can sync folders
            folder = os.open(self.output.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        # The run has nothing to replace now: if it is killed before all is removed, `--resume` finds the
        # output complete.
        with suppress(OSError):
            self._record(self.interrupted_run()._replace(overwrite=False))
        try:
            self.remove()
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"{self.output} is complete") from None

    def remove(self) -> None:
        """Remove the folder. The file with the settings goes last, so that a killed run still has it."""
        self._remove_content()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _remove_content(self) -> None:
        for path in self.folder.iterdir():
            if path.is_dir():
                # Renamed first, so that workers cannot add files to it.
                shutil.rmtree(path.rename(path.with_name(f"removed-{secrets.token_hex(4)}")))
            elif path.name not in (LOCK_NAME, _RUN_NAME):
                path.unlink()
