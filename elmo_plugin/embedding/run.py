"""
Embed sentences and write their vectors to a file or folder, in a run that can be interrupted and resumed.
"""

import hashlib
import logging
from contextlib import nullcontext
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterator,
    List,
    NamedTuple,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from elmo_plugin.arguments import check_choices, option
from elmo_plugin.embedding.arrow import import_pyarrow
from elmo_plugin.embedding.formats import (
    FORMATS,
    HDF5,
    PARQUET,
    HDF5Format,
    NpyFormat,
    OutputFormat,
    ParquetFormat,
    about_output,
    format_of,
)
from elmo_plugin.embedding.layers import LayerChoice
from elmo_plugin.embedding.local_engine import LocalEngine, PartWriter, Progress
from elmo_plugin.embedding.partial_output import (
    PartialOutput,
    WriteError,
    advice_for,
    check_same_settings,
    write_errors,
)
from elmo_plugin.embedding.parts import (
    Block,
    Content,
    Part,
    check_complete,
    contents_in,
    parts_by_source,
    read_blocks,
)
from elmo_plugin.embedding.ray_engine import EngineOptions, RayEngine, import_ray, ray_engine
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.embedding.sentences import DEFAULT_COLUMN, InputOptions, find_sources
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import check_free_space, check_output_file, check_output_folder

if TYPE_CHECKING:  # `ElmoEmbedder.embed_file` makes a run: the class stands above this module
    from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder

DTYPES = ("float32", "float16")

# Limits of a part: one part is in memory at a time, and an interrupted run loses at most one.
SENTENCES_PER_PART = 2048
BYTES_PER_PART = 2**27  # of vectors

# Parts do not depend on these settings, so a run can be resumed with others.
_SETTINGS_OF_KEYS = ("keys", "sentence_to_index")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OutputOptions:
    """
    Format of the output, and what happens to an output that exists.

    # Raises

    `ConfigurationError` for an unknown format or data type, or for options that exclude each other.
    """

    format: Optional[str] = option(
        "(default: by the ending of OUTPUT, .hdf5 or .h5, .npy, .parquet)", None, choices=FORMATS
    )
    dtype: str = option("data type of the vectors", "float32", choices=DTYPES)
    forget_sentences: bool = option(
        "leave out sentence_to_index, which takes memory for each line", False
    )
    use_sentence_keys: bool = option(
        "lines as keys, without sentence_to_index; of equal ones the first", False
    )
    overwrite: bool = option("replace OUTPUT and OUTPUT.partial if they exist", False)
    resume: bool = option("continue an interrupted run; without one, start", False)

    def __post_init__(self) -> None:
        check_choices(self)
        if self.overwrite and self.resume:
            raise ConfigurationError(
                "--overwrite and --resume are given, expected one of them: --overwrite starts again, "
                "--resume continues an interrupted run."
            )


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
        One input or several, see `find_sources`. All sentences are checked before the first one is embedded,
        except those of inputs that can be read only once, such as pipes.
    output : `str` or `PathLike`
        The file (HDF5) or folder (Parquet, npy) to write. It appears when it is complete.
    input_options, output_options, batches, engine
        See their classes.
    progress_in_lines : `bool`, optional (default = `False`)
        See `Progress`.
    sentences_per_part : `int`, optional (default = `2048`)
        Maximum number of sentences in a part. The vectors of a part take at most 128 MiB.

    # Raises

    `ConfigurationError` if options exclude each other, an input cannot be opened, the output cannot be
    written, or `OUTPUT.partial` holds parts of an interrupted run and neither `resume` nor `overwrite` is
    set. No biLM is needed for these checks.
    """

    def __init__(
        self,
        inputs: Any,
        output: Union[str, PathLike],
        input_options: InputOptions = InputOptions(),
        output_options: OutputOptions = OutputOptions(),
        batches: BatchOptions = BatchOptions(),
        engine: EngineOptions = EngineOptions(),
        progress_in_lines: bool = False,
        sentences_per_part: Optional[int] = None,
    ) -> None:
        self.output = output
        self._input_options = input_options
        self._options = output_options
        self._batches = batches
        self._engine_options = engine
        self._progress_in_lines = progress_in_lines
        self._sentences_per_part = sentences_per_part or SENTENCES_PER_PART
        self._format_name = format_of(output, output_options.format)
        if self._format_name == PARQUET:
            import_pyarrow()
        self._check_keys()
        self._partial = PartialOutput(output)
        self._check_output()
        self._partial.check(output_options.overwrite, output_options.resume)
        if engine.is_ray:
            import_ray()
        self._sources = find_sources(inputs, input_options, output)
        self._names = [source.name for source in self._sources]
        self._check_sources()

    def check_bilm(self, stateful: bool, cuda_device: int = -1) -> None:
        """Raise `ConfigurationError` if the run cannot use such a biLM. To be called before it is loaded."""
        if stateful:
            self._batches.check_for_stateful()
        if stateful and self._options.resume:
            raise ConfigurationError(
                "--resume: the states of a stateful biLM were lost with the run that was interrupted, "
                "expected a stateless one. Start again with --overwrite, or leave out --stateful."
            )
        if self._engine_options.is_ray and (stateful or cuda_device >= 0):
            reason = (
                "--stateful is not for --engine ray: workers do not embed sentences in order"
                if stateful
                else "--cuda-device is not for --engine ray: --num-gpus-per-worker gives workers GPUs"
            )
            raise ConfigurationError(f"{reason}. Leave it out.")

    def embed(self, embedder: "ElmoEmbedder", layers: LayerChoice) -> EmbeddedFile:
        """
        Embed the sentences that are in no part yet, and make the output of all parts. Return the number of
        sentences and tokens in it.

        # Raises

        `ConfigurationError` if the interrupted run had other settings or another input, or if a sentence is
        not valid for its source or the format; `WriteError`, an `OSError`, if writing fails. Then the output
        is not changed, and finished parts are kept.
        """
        bilm = embedder.elmo_bilm
        self.check_bilm(embedder.stateful)
        vector_shape = layers.vector_shape(bilm.num_layers, bilm.get_output_dim())
        format = self._format(vector_shape, layers.pool is not None)
        settings = self._settings(embedder, layers, format)
        engine_context = (
            ray_engine(embedder, self._engine_options)
            if self._engine_options.is_ray
            else nullcontext(LocalEngine(embedder))
        )
        with engine_context as engine, self._partial.locked():
            try:
                if self._options.resume and not self._partial.may_replace:
                    return self._complete_output(engine, format, settings)
                contents = self._write_parts(engine, layers, format, settings)
                return self._finish(format, settings, contents)
            except BaseException as error:
                self._leave(error, resumable=not embedder.stateful)

    def _complete_output(
        self,
        engine: Union[LocalEngine, RayEngine],
        format: OutputFormat,
        settings: Dict[str, Any],
    ) -> EmbeddedFile:
        """Check that the existing output is the one that this run would make, and return what it holds."""
        about = about_output(self.output, self._format_name)
        assert about is not None  # see _check_output
        check_same_settings(about["settings"], settings, self.output)
        contents = engine.contents(self._sources, [[] for _ in self._sources], format)
        if [content["digest"] for content in about["input"]] != [one.digest for one in contents]:
            raise ConfigurationError(
                f"--resume: {self.output} is complete, and was made from another input. Give another path, "
                "or --overwrite to replace it."
            )
        logger.info("%s is complete: there is nothing to do.", self.output)
        self._partial.remove()
        return EmbeddedFile(about["num_sentences"], about["num_tokens"])

    def _write_parts(
        self,
        engine: Union[LocalEngine, RayEngine],
        layers: LayerChoice,
        format: OutputFormat,
        settings: Dict[str, Any],
    ) -> Optional[List[Content]]:
        """
        Check the sources, and write the parts that are missing. Return what the sources hold; `None` if some
        can be read only once.
        """
        finished = self._finished_parts(settings)
        own_parts = parts_by_source(finished, self._names)
        contents: Optional[List[Content]] = None
        if all(source.can_be_read_again for source in self._sources):
            contents = engine.contents(self._sources, own_parts, format)
            self._check_space(format, finished, contents)
        with write_errors():
            folder = self._partial.new_parts_folder()
        writer = PartWriter(layers, self._batches, format, folder)
        with Progress(
            None if contents is None else sum(content.num_sentences for content in contents),
            sum(part.num_sentences for part in finished),
            self._progress_in_lines,
        ) as progress:
            engine.write_parts(self._missing_blocks(own_parts, format), writer, progress)
        return contents

    def _finished_parts(self, settings: Dict[str, Any]) -> List[Part]:
        """Return the intact parts of the run to resume. If there are none, begin a new run."""
        folder = self._partial.parts_folder
        if not self._options.overwrite and folder.num_parts:
            check_same_settings(
                self._partial.settings, settings, self._partial.name, ignored=_SETTINGS_OF_KEYS
            )
            logger.info("Comparing %d finished parts with their checksums.", folder.num_parts)
            folder.remove_damaged()
            parts = list(folder.parts())
            if parts:
                return parts
        with write_errors():
            may_replace = self._options.overwrite or self._partial.may_replace
            self._partial.begin(settings, may_replace)
        return []

    def _missing_blocks(
        self, finished: Sequence[List[Part]], format: OutputFormat
    ) -> Iterator[Block]:
        """Yield the sentences that are in no finished part. `finished` has the parts of each source."""
        max_tokens = max(1, BYTES_PER_PART // format.bytes_per_vector)
        limits = (self._sentences_per_part, max_tokens)
        for number, (source, own_parts) in enumerate(zip(self._sources, finished)):
            yield from read_blocks(number, source, own_parts, format, *limits)

    def _check_space(
        self, format: OutputFormat, finished: List[Part], contents: List[Content]
    ) -> None:
        num_vectors, num_written = (
            sum(format.num_vectors(one.num_sentences, one.num_tokens) for one in counted)
            for counted in (contents, finished)
        )
        num_needed = num_vectors - num_written + num_vectors * format.merges_parts
        check_free_space(
            self.output,
            num_needed * format.bytes_per_vector,
            "write less: --top or --average for --all, float16 for float32",
        )

    def _finish(
        self, format: OutputFormat, settings: Dict[str, Any], contents: Optional[List[Content]]
    ) -> EmbeddedFile:
        # The parts on the disk, not those that were reported as written.
        folder = self._partial.parts_folder
        folder.remove_leftovers()
        parts = folder.parts()
        written = contents_in(parts, self._names)
        if contents is not None:
            check_complete(written, contents)
        embedded = EmbeddedFile(
            sum(content.num_sentences for content in written),
            sum(content.num_tokens for content in written),
        )
        about = {
            "settings": settings,
            **embedded._asdict(),
            "input": [content._asdict() for content in contents or written],
        }
        with write_errors():
            product = format.finish(list(parts.values()), self._partial.folder, about)
            self._partial.publish(product)
        return embedded

    def _leave(self, error: BaseException, resumable: bool) -> NoReturn:
        num_kept = self._partial.parts_folder.num_parts if resumable else 0
        if num_kept:
            outcome = f"{num_kept:,} parts are kept in {self._partial.name}: continue with --resume"
        else:
            self._partial.remove()
            outcome = "no part is kept"
        if isinstance(error, WriteError):
            raise WriteError(
                error.errno,
                f"{self.output}: cannot be written ({error.strerror}); {outcome}. {advice_for(error)}.",
            ) from error
        if isinstance(error, KeyboardInterrupt) and num_kept:
            raise KeyboardInterrupt(outcome) from error
        if num_kept and not isinstance(error, ConfigurationError):
            logger.warning("Interrupted: %s.", outcome)
        raise error

    def _check_keys(self) -> None:
        options = self._options
        if self._format_name != HDF5 and (options.forget_sentences or options.use_sentence_keys):
            raise ConfigurationError(
                "--forget-sentences and --use-sentence-keys (forget_sentences, use_sentence_keys) are "
                f"options of HDF5, but the format is {self._format_name}. Leave them out."
            )

    def _check_output(self) -> None:
        may_exist = self._options.overwrite or self._options.resume
        check = check_output_file if self._format_name == HDF5 else check_output_folder
        check(self.output, may_exist, "--overwrite (overwrite=True)")
        path = Path(self.output)
        if not path.exists() or about_output(path, self._format_name) is not None:
            return
        if self._options.resume and self._partial.may_replace:
            return
        if path.is_dir():
            raise ConfigurationError(
                f"output: {path} is a folder that was not written by this command, expected a new one. "
                "Remove it, or give another path."
            )
        if self._options.resume:
            raise ConfigurationError(
                f"--resume: {path} exists and was not written by this command, so it cannot be resumed. Give "
                "another path, or --overwrite to replace it."
            )

    def _check_sources(self) -> None:
        for source in self._sources:
            if source.is_same_file(self.output):
                raise ConfigurationError(
                    f"output: {self.output} is the input, expected another file. Give another path."
                )
            if self._engine_options.is_ray and not source.is_file:
                raise ConfigurationError(
                    f"input: workers cannot read {source.name}, expected a file. Write it to a file first, "
                    "or leave out --engine ray."
                )
        if len(self._sources) > 1 and self._format_name != PARQUET:
            raise ConfigurationError(
                f"input: found {len(self._sources):,} files, but {self._format_name} holds the line numbers "
                "of one file only. Give an OUTPUT that ends in .parquet, which has the file of each line too."
            )

    def _format(self, vector_shape: Tuple[int, ...], is_pooled: bool) -> OutputFormat:
        options = self._options
        if self._format_name == HDF5:
            keys = (options.forget_sentences, options.use_sentence_keys)
            return HDF5Format(vector_shape, options.dtype, *keys, is_pooled=is_pooled)
        format = ParquetFormat if self._format_name == PARQUET else NpyFormat
        return format(vector_shape, options.dtype, is_pooled=is_pooled)

    def _settings(
        self, embedder: "ElmoEmbedder", layers: LayerChoice, format: OutputFormat
    ) -> Dict[str, Any]:
        bilm = embedder.elmo_bilm
        has_column = any(source.is_parquet for source in self._sources)
        return {
            **format.settings,
            "layers": layers.name,
            "pool": layers.pool,
            "dtype": format.dtype,
            "precision": bilm.precision,
            "tokenizer": self._input_options.tokenizer,
            "skip_blank": self._input_options.skip_blank,
            "column": self._input_options.column or DEFAULT_COLUMN if has_column else None,
            "stateful": embedder.stateful,
            "biLM": hashlib.sha256(f"{bilm.options} {bilm.weights_sha256}".encode()).hexdigest(),
        }
