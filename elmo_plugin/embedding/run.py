"""
Embed sentences and write their vectors to a file or folder, in a run that can be interrupted and resumed.
"""

import errno
import logging
from contextlib import closing, suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, NamedTuple, NoReturn, Union

from elmo_plugin.embedding.engines import Engine, EngineOptions, PartWriter, import_ray, make_engine
from elmo_plugin.embedding.formats import (
    OutputFormat,
    OutputOptions,
    about_output,
    format_of,
)
from elmo_plugin.embedding.layers import LayerChoice
from elmo_plugin.embedding.parts import (
    Block,
    Content,
    Part,
    PartialOutput,
    Run,
    content_of,
    contents_of_parts,
    read_blocks,
)
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.embedding.sentences import (
    PARTIAL,
    SPACY,
    InputOptions,
    SentenceSource,
    check_not_read,
    find_sources,
)
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import check_free_space, check_output_file, check_output_folder
from elmo_plugin.files.progress import progress_bar
from elmo_plugin.files.text import FileName

if TYPE_CHECKING:
    from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder

# Limits of a part: one part is in memory at a time, and an interrupted run loses at most one.
SENTENCES_PER_PART = 2048
BYTES_PER_PART = 2**27  # of vectors

MAX_ERRORS_SHOWN = 10

# Settings on which the output depends, but not its parts: a run may be resumed with others.
_OF_OUTPUT_ONLY = ("forget_sentences", "use_sentence_keys")

# What the user can do about a file that cannot be written.
_MOVE = f"move OUTPUT{PARTIAL} to another disk and give an OUTPUT there"
_ADVICE = {
    errno.ENOSPC: f"Make room on the disk, or {_MOVE}",
    errno.EFBIG: f"Raise the limit on the size of files (ulimit -f), or {_MOVE}",
}
_OTHER_ADVICE = f"Let this user write there, on a disk that is connected and intact, or {_MOVE}"

logger = logging.getLogger(__name__)


class EmbeddedFile(NamedTuple):
    """Number of sentences and tokens in an output."""

    num_sentences: int
    num_tokens: int


class EmbeddingRun:
    """
    Embed sentences and write their vectors, in memory that does not grow with the input.

    Until the output is complete, finished parts are in the folder `OUTPUT.partial`. A run that was
    interrupted or killed can be resumed from them.

    # Parameters

    inputs
        One input or several, see `find_sources`. All sentences of files are checked before the first one is
        embedded. Pipes and open files are read once.
    output : `str` or `PathLike`
        The file (HDF5) or folder (Parquet, npy) to write. It appears when it is complete.
    input_options, output_options, batches, engine
        See their classes.
    sentences_per_part : `int`, optional (default = `2048`)
        Maximum number of sentences in a part. The vectors of a part take at most 128 MiB, if it has more than
        one sentence and the biLM is not stateful.

    # Raises

    `ConfigurationError` if options exclude each other, an input cannot be opened, the output cannot be
    written, or `OUTPUT.partial` holds parts of an interrupted run and neither `resume` nor `overwrite` is
    set. No biLM is needed for these checks.
    """

    def __init__(
        self,
        inputs: Any,
        output: FileName,
        input_options: InputOptions = InputOptions(),
        output_options: OutputOptions = OutputOptions(),
        batches: BatchOptions = BatchOptions(),
        engine: EngineOptions = EngineOptions(),
        sentences_per_part: int = SENTENCES_PER_PART,
    ) -> None:
        self._output = output
        self._input_options = input_options
        self._options = output_options
        self._batches = batches
        self._engine_options = engine
        self._sentences_per_part = sentences_per_part
        self._format_class = format_of(output, output_options.format)
        self._format_class.check_options(output_options)
        if engine.is_ray:
            import_ray()
        self._partial = PartialOutput(output)
        self._check_output()
        self._partial.check(output_options.overwrite, output_options.resume)
        self._sources = find_sources(inputs, input_options, output)
        self._check_sources()

    def check_bilm(self, stateful: bool, cuda_device: int = -1) -> None:
        """Raise `ConfigurationError` if the run cannot use such a biLM. To be called before it is loaded."""
        if stateful and self._options.resume:
            raise ConfigurationError(
                "--resume: the states of a stateful biLM were lost with the run that was interrupted, "
                "expected a stateless one. Start again with --overwrite, or leave out --stateful."
            )
        if self._engine_options.is_ray and (stateful or cuda_device >= 0):
            raise ConfigurationError(
                "--stateful and --cuda-device are not for --engine ray: workers do not embed sentences in "
                "order, and run on CPUs. Leave them out."
            )

    def embed(self, embedder: "ElmoEmbedder", layers: LayerChoice) -> EmbeddedFile:
        """
        Embed the sentences that are in no part yet, and make the output of all parts. Return the number of
        sentences and tokens in it.

        # Raises

        `ConfigurationError` if the interrupted run had other settings, or if a sentence is not valid;
        `OSError` if writing fails. Then the output is not changed, and finished parts are kept.
        """
        self.check_bilm(embedder.stateful, embedder.cuda_device)
        format = self._format(embedder, layers)
        settings = self._settings(embedder, layers)
        with make_engine(embedder, self._engine_options) as engine, self._partial.locked():
            has_resumable_parts = True  # of an earlier run, until this one begins
            try:
                if self._options.resume and not self._partial.may_replace:
                    return self._complete_output(engine, settings)
                finished = [] if self._options.overwrite else self._finished_parts(settings)
                contents: List[Content] = []  # empty if a source can be read only once
                if all(source.is_file for source in self._sources):
                    contents = self._contents(engine)
                if not finished:
                    self._begin(settings)
                    has_resumable_parts = not embedder.stateful
                self._partial.remove_product()
                if contents:
                    self._check_space(format, finished, contents)
                folder = self._partial.renamed_parts_folder()
                writer = PartWriter(layers, self._batches.batch_size, format, folder)
                parts: List[Part] = []
                blocks = _missing_blocks(
                    self._blocks(format, embedder.stateful), finished, parts, format.holds_sources
                )
                with (
                    closing(engine.write_parts(writer, blocks)) as written,
                    _bar_of_sentences(contents, finished) as progress,
                ):
                    for num_sentences in written:
                        progress.update(num_sentences)
                self._check_unchanged(contents, contents_of_parts(parts))
                return self._finish(format, settings, parts)
            except BaseException as error:
                self._raise_with_outcome(error, has_resumable_parts)

    def _complete_output(self, engine: Engine, settings: Dict[str, Any]) -> EmbeddedFile:
        """Check that the existing output is the one that this run would make, and return its size."""
        about = about_output(self._output, self._format_class)
        assert about is not None  # see _check_output
        check_same_settings(about["settings"], settings, str(self._output))
        contents = [content._asdict() for content in self._contents(engine)]
        compared = {"digest": "sentences"}
        if self._format_class.holds_sources:  # else a text may have another name now
            compared["name"] = "names of files"
        for key, what in compared.items():
            if [one[key] for one in contents] != [one[key] for one in about["input"]]:
                raise ConfigurationError(
                    f"--resume: {self._output} is complete, and was made from another input, with other "
                    f"{what}. Give another path, or --overwrite to replace it."
                )
        logger.info("%s is complete: there is nothing to do.", self._output)
        self._partial.remove()
        return EmbeddedFile(about["num_sentences"], about["num_tokens"])

    def _finished_parts(self, settings: Dict[str, Any]) -> List[Part]:
        """Return the intact parts of the run to resume, if there are any."""
        folder = self._partial.parts_folder
        if not folder.num_parts:
            return []
        interrupted = self._partial.interrupted_run().settings
        interrupted.update((name, settings[name]) for name in _OF_OUTPUT_ONLY)
        check_same_settings(interrupted, settings, self._partial.name)
        logger.info("Comparing %d finished parts with their checksums.", folder.num_parts)
        return folder.intact_parts()

    def _begin(self, settings: Dict[str, Any]) -> None:
        """Begin a new run, which may replace what the interrupted one was allowed to replace."""
        overwrite = self._options.overwrite or self._partial.interrupted_run().overwrite
        self._partial.begin(Run(settings, overwrite))

    def _contents(self, engine: Engine) -> List[Content]:
        """Read and check all sources. One error lists those of all sources."""
        results = engine.map(_content_or_error, self._sources)
        errors = [result for result in results if isinstance(result, str)]
        if errors:
            raise ConfigurationError("\n".join(errors[:MAX_ERRORS_SHOWN]))
        return [result for result in results if isinstance(result, Content)]

    def _check_space(
        self, format: OutputFormat, finished: List[Part], contents: List[Content]
    ) -> None:
        num_vectors = sum(format.num_vectors(one.num_sentences, one.num_tokens) for one in contents)
        num_written = sum(format.num_vectors(one.num_sentences, one.num_tokens) for one in finished)
        num_needed = num_vectors - num_written + num_vectors * format.merges_parts
        num_sentences = sum(one.num_sentences for one in contents)
        try:
            check_free_space(
                self._output,
                num_needed * format.bytes_per_vector + num_sentences * format.bytes_per_sentence,
                "write less: --top or --average for --all, float16 for float32",
            )
        except ConfigurationError as error:
            if not format.is_compressed:
                raise
            logger.warning("%s The output is compressed, so that it may still fit.", error)

    def _blocks(self, format: OutputFormat, stateful: bool) -> Iterator[Block]:
        if not stateful:
            max_tokens = max(1, BYTES_PER_PART // format.bytes_per_vector)
            return read_blocks(self._sources, self._sentences_per_part, max_tokens)
        # States are carried by the position in a batch: all batches but the last are of one size.
        batch_size = self._batches.batch_size
        num_batches = max(self._sentences_per_part // batch_size, 1)
        return read_blocks(self._sources, num_batches * batch_size, max_tokens=None)

    def _check_unchanged(self, contents: List[Content], written: List[Content]) -> None:
        """Raise an error if sources were changed, of which no part is kept then."""
        errors = []
        for number, (before, after) in enumerate(zip(contents, written)):
            if (before.num_sentences, before.digest) != (after.num_sentences, after.digest):
                self._partial.parts_folder.remove_source(number)
                errors.append(
                    f"{before.name}: was changed during the run: the {after.num_sentences:,} sentences that "
                    f"were embedded are not the {before.num_sentences:,} that were found first. Give "
                    "--resume when it does not change any more."
                )
        if errors:
            raise ConfigurationError("\n".join(errors[:MAX_ERRORS_SHOWN]))

    def _finish(
        self, format: OutputFormat, settings: Dict[str, Any], parts: List[Part]
    ) -> EmbeddedFile:
        """Make the output of all parts, and move it to its place."""
        embedded = EmbeddedFile(
            sum(part.num_sentences for part in parts), sum(part.num_tokens for part in parts)
        )
        about = {
            "settings": settings,
            **embedded._asdict(),
            "input": [content._asdict() for content in contents_of_parts(parts)],
        }
        paths = self._partial.parts_folder.keep_only(parts, format)
        self._partial.publish(format.finish(paths, self._partial.product, about))
        return embedded

    def _raise_with_outcome(self, error: BaseException, resumable: bool) -> NoReturn:
        """Raise an error that says how many parts are kept. Remove the folder if there are none."""
        num_kept = self._partial.parts_folder.num_parts if resumable else 0
        if num_kept:
            kept = "1 part is kept" if num_kept == 1 else f"{num_kept:,} parts are kept"
            outcome = f"{kept} in {self._partial.name}: continue with --resume"
            with suppress(OSError):
                self._partial.remove_product()  # it may have filled the disk
        else:
            self._partial.remove()
            outcome = "no part is kept"
        if isinstance(error, OSError):
            raise OSError(
                error.errno,
                f"{self._output}: cannot be written ({error.strerror or error}); {outcome}. "
                f"{_ADVICE.get(error.errno or 0, _OTHER_ADVICE)}.",
            ) from error
        if isinstance(error, KeyboardInterrupt) and num_kept:
            raise KeyboardInterrupt(outcome) from error
        if num_kept and not isinstance(error, ConfigurationError):
            logger.warning("Interrupted: %s.", outcome)
        raise error

    def _check_output(self) -> None:
        options, path = self._options, Path(self._output)
        may_exist = options.overwrite or options.resume
        check = check_output_folder if self._format_class.is_folder else check_output_file
        check(path, may_exist)
        may_replace = options.overwrite or self._partial.may_replace
        is_foreign = path.exists() and about_output(path, self._format_class) is None
        if is_foreign and (path.is_dir() or not may_replace):
            raise ConfigurationError(
                f"output: {path} exists and was not written by this command, so it is not replaced. Give "
                "another path, or remove it."
            )

    def _check_sources(self) -> None:
        check_not_read(self._sources, self._output, "output")
        for source in self._sources:
            if self._engine_options.is_ray and not source.is_file:
                raise ConfigurationError(
                    f"input: workers cannot read {source.name}, expected a file. Write it to a file first, "
                    "or leave out --engine ray."
                )
        if len(self._sources) > 1 and not self._format_class.holds_sources:
            raise ConfigurationError(
                f"input: found {len(self._sources):,} files, but {self._format_class.name} holds the line "
                "numbers of one file only. Give an OUTPUT that ends in .parquet, which has the file of each "
                "line too, or embed the files one by one."
            )

    def _format(self, embedder: "ElmoEmbedder", layers: LayerChoice) -> OutputFormat:
        vector_shape = layers.vector_shape(embedder.num_layers, embedder.get_output_dim())
        return self._format_class(vector_shape, layers.pool is not None, self._options)

    def _settings(self, embedder: "ElmoEmbedder", layers: LayerChoice) -> Dict[str, Any]:
        """Return what parts and output depend on, beside the input."""
        options = {**asdict(self._options), "format": self._format_class.name}
        del options["overwrite"], options["resume"]
        return {
            **options,
            "layers": layers.name,
            "pool": layers.pool,
            "precision": embedder.elmo_bilm.precision,
            **asdict(self._input_options),
            # Versions can split sentences in different ways.
            "spaCy": version("spacy") if self._input_options.tokenizer == SPACY else None,
            "stateful": embedder.stateful,
            "sentences_per_part": self._sentences_per_part,
            "biLM": embedder.checksum,
        }


def _missing_blocks(
    blocks: Iterable[Block], finished: List[Part], into: List[Part], check_names: bool
) -> Iterator[Block]:
    """
    Yield the blocks that are in no finished part. Add the parts of all blocks to `into`. Unless the output
    names its sources (`check_names`), a text may have another name now, such as that of a temporary folder.
    """
    finished_by_name = {part.name: part for part in finished}
    for block in blocks:
        into.append(block.part)
        previous = finished_by_name.get(block.part.name)
        if previous is None:
            yield block
            continue
        if not check_names:
            previous = previous._replace(source=block.part.source)
        if previous != block.part:
            raise ConfigurationError(
                f"--resume: the interrupted run had another input: {previous.num_sentences:,} sentences of "
                f"{previous.source}, from line {previous.first_line + 1:,} on, are not those of "
                f"{block.part.source}. Give the same input, or --overwrite to start again."
            )


def _bar_of_sentences(contents: List[Content], finished: List[Part]) -> Any:
    """Return a bar that counts sentences, of which those of finished parts do not add to the speed."""
    return progress_bar(
        None,
        "embedding",
        sum(content.num_sentences for content in contents) or None,
        initial=sum(part.num_sentences for part in finished),
        unit=" sentences",
    )


def _content_or_error(source: SentenceSource) -> Union[Content, str]:
    try:
        return content_of(source)
    except ConfigurationError as error:
        return error.message


def check_same_settings(previous: Dict[str, Any], settings: Dict[str, Any], where: str) -> None:
    """Raise `ConfigurationError` naming the settings that differ from those of the run at a path."""
    different = [
        f"{name} was {previous.get(name)!r}, now {settings.get(name)!r}"
        for name in dict.fromkeys([*previous, *settings])
        if previous.get(name) != settings.get(name)
    ]
    if different:
        raise ConfigurationError(
            f"--resume: {where} was made with other settings: {'; '.join(different)}. Give the same ones, or "
            "--overwrite to start again."
        )
