"""From a source of sentences to a file or folder of their vectors."""

import logging
import time
from collections import deque
from os import PathLike
from pathlib import Path
from typing import Any, Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional, Protocol, Union

import numpy
from allennlp.common.checks import ConfigurationError
from allennlp.common.tqdm import Tqdm

from elmo_plugin.embedding.checked_sentences import CheckedSentences, Sentence
from elmo_plugin.embedding.layer_choice import LayerChoice
from elmo_plugin.embedding.output.embedding_output import EmbeddingOutput, check_same_input
from elmo_plugin.embedding.output.embedding_settings import SentenceDigest, bilm_digest
from elmo_plugin.embedding.output.embedding_writer import EmbeddingWriter
from elmo_plugin.embedding.output.output_formats import (
    about_output,
    check_output,
    embedding_writer,
    format_of,
)
from elmo_plugin.embedding.output.unfinished import Progress, check_same_settings
from elmo_plugin.files.output_file import check_free_space

logger = logging.getLogger(__name__)

DTYPES = ("float32", "float16")
DEFAULT_BATCH_SIZE = 64

_SENTENCES_PER_UPDATE = 64  # of the speed that the progress bar shows


class SentenceEmbedder(Protocol):
    """What is needed of an `ElmoEmbedder`."""

    @property
    def elmo_bilm(self) -> Any:
        """A `BiLM`."""

    def embed_sentences(
        self,
        sentences: Iterable[List[str]],
        batch_size: Optional[int] = DEFAULT_BATCH_SIZE,
        batch_tokens: Optional[int] = None,
    ) -> Iterator[numpy.ndarray]:
        """The layers of each sentence in order, `(num_layers, num_tokens, dim)`, float32."""


class EmbeddedFile(NamedTuple):
    """What was embedded."""

    num_sentences: int
    num_tokens: int


def embed_file(
    embedder: SentenceEmbedder,
    source: CheckedSentences,
    output: Union[str, PathLike],
    layers: LayerChoice,
    batch_size: int = DEFAULT_BATCH_SIZE,
    batch_tokens: Optional[int] = None,
    forget_sentences: bool = False,
    use_sentence_keys: bool = False,
    dtype: str = "float32",
    overwrite: bool = False,
    format: Optional[str] = None,
    resume: bool = False,
) -> EmbeddedFile:
    """
    Embed sentences and write them in one of the formats.

    Neither the sentences nor their vectors are all held in memory. What is written is kept in the folder
    `OUTPUT.partial` until it is complete, so that an interrupted run, also one that was killed, can be gone
    on with.

    # Parameters

    embedder : `SentenceEmbedder`
        Gives the layers of each sentence.
    source : `CheckedSentences`
        The sentences. If it can be read twice, all of it is checked before any sentence is embedded.
    output : `str` or `PathLike`
        Appears when it is complete.
    layers : `LayerChoice`
        What of the layers is written, see `layer_choice` and `learnt_mix`.
    batch_size : `int`, optional (default = 64)
        Sentences in a batch.
    batch_tokens : `int`, optional
        Tokens in a batch, see `ElmoEmbedder`.
    forget_sentences, use_sentence_keys : `bool`, optional (default = `False`)
        See `HDF5Writer`; for that format alone.
    dtype : `str`, optional (default = `"float32"`)
        Type of the vectors in the output: `float32` or `float16`.
    overwrite : `bool`, optional (default = `False`)
        Replace `output` if it is there, and what an interrupted run has left.
    format : `str`, optional (default = by the ending of `output`)
        `hdf5`, `parquet` or `npy`, see `HDF5Writer`, `ParquetWriter` and `NpyWriter`.
    resume : `bool`, optional (default = `False`)
        Go on with an interrupted run, if there was one. Its settings and its input must be the same, but
        for batches. If `output` is complete, nothing is done.

    # Returns

    What the output holds, that of former runs included.

    # Raises

    `ConfigurationError` if an argument is out of range, the output cannot be written there, the run to go on
    with is another one, or a sentence is not as its source and the format expect it; `WriteError`, an
    `OSError`, if writing fails. `output` is then as it was before.
    """
    bilm = embedder.elmo_bilm
    format = format_of(output, format)
    check_arguments(dtype, overwrite, resume, bilm.stateful)
    check_output(output, format, overwrite, resume)
    if source.is_same_file(output):
        raise ConfigurationError(
            f"output: {output} is the input, expected another file. Give another path."
        )
    vector_shape = layers.vector_shape(bilm.num_layers, bilm.get_output_dim())
    writer = embedding_writer(
        format, source.name, vector_shape, dtype, forget_sentences, use_sentence_keys
    )
    settings = {
        **writer.settings,
        "layers": layers.name,
        "dtype": dtype,
        "precision": bilm.precision,
        **source.settings,
        "biLM": bilm_digest(bilm),
    }
    written = EmbeddingOutput(output, writer, settings, resumable=not bilm.stateful)
    former = written.look_for_former(overwrite, resume)

    # Sentences whose vectors have not come yet: as many as the embedder reads ahead.
    waiting: Deque[Sentence] = deque()

    def token_lists() -> Iterator[List[str]]:
        for sentence in source.sentences():
            if not source.can_be_read_again:
                writer.check(sentence.line_index, sentence.text)
            if not written.skip(sentence):
                waiting.append(sentence)
                yield sentence.tokens

    # Checks its arguments at once, and reads no sentence yet.
    all_layers = embedder.embed_sentences(token_lists(), batch_size, batch_tokens)

    expected: Optional[_SourceContent] = None
    if source.can_be_read_again:
        expected = _check_source(source, writer, former)
        if resume and former is None and Path(output).exists():
            return _complete_output(output, format, settings, expected)
        num_tokens = expected.num_tokens - (0 if former is None else former.num_tokens)
        check_free_space(
            output,
            num_tokens * int(numpy.prod(vector_shape)) * numpy.dtype(dtype).itemsize,
            "write less: --top or --average for --all, float16 for float32",
        )

    with (
        written.open(),
        _Progress(None if expected is None else expected.num_sentences, former) as progress,
    ):
        for sentence_layers in all_layers:
            sentence = waiting.popleft()
            written.write(sentence, lowered(layers(sentence_layers), dtype, sentence.line_index))
            progress.update(len(sentence.tokens))
    return EmbeddedFile(written.num_sentences, written.num_tokens)


def lowered(vectors: numpy.ndarray, dtype: str, line_index: int) -> numpy.ndarray:
    """
    Vectors in the type of the output.

    # Raises

    `ConfigurationError` naming the line, if one of their numbers is too large for the type.
    """
    if vectors.dtype == dtype:
        return vectors
    limit = numpy.finfo(dtype).max
    largest = numpy.abs(vectors).max(initial=0.0)
    if largest > limit:
        raise ConfigurationError(
            f"line {line_index + 1}: a vector holds {largest:g}, and {dtype} ends at {limit:g}. Write "
            "float32."
        )
    return vectors.astype(dtype)


def check_arguments(dtype: str, overwrite: bool, resume: bool, stateful: bool) -> None:
    """
    # Raises

    `ConfigurationError` if there is no such type, or one excludes another.
    """
    if dtype not in DTYPES:
        raise ConfigurationError(f"dtype is '{dtype}', expected one of {', '.join(DTYPES)}.")
    if overwrite and resume:
        raise ConfigurationError(
            "--overwrite starts anew and --resume goes on with what is there, expected one of them."
        )
    if resume and stateful:
        raise ConfigurationError(
            "--resume: the states of a stateful biLM were lost with the run that was interrupted, expected a "
            "stateless one. Start anew by --overwrite, or leave out --stateful."
        )


class _SourceContent(NamedTuple):
    """What there is to embed. Tokens are those between white space; no tokenizer makes fewer."""

    num_sentences: int
    num_tokens: int
    digest: str


def _check_source(
    source: CheckedSentences, writer: EmbeddingWriter, former: Optional[Progress]
) -> _SourceContent:
    num_sentences = num_tokens = 0
    digest = SentenceDigest()

    def examine(index: int, text: str) -> None:
        nonlocal num_sentences, num_tokens
        writer.check(index, text)
        num_sentences += 1
        num_tokens += len(text.split())
        digest.add(index, text)
        if former is not None and num_sentences == former.num_sentences:
            check_same_input(str(digest), former)

    source.check(examine)
    if former is not None and num_sentences < former.num_sentences:
        check_same_input("", former)
    return _SourceContent(num_sentences, num_tokens, str(digest))


def _complete_output(
    output: Union[str, PathLike], format: str, settings: Dict[str, Any], expected: _SourceContent
) -> EmbeddedFile:
    """What a complete output holds, if it is the one that is wanted."""
    about = about_output(output, format)
    if about is None:
        raise ConfigurationError(
            f"--resume: {output} exists and was not written by this command: there is nothing to go on with. "
            "Give another path, or --overwrite to replace it."
        )
    check_same_settings(about["settings"], settings, str(output))
    if about["digest"] != expected.digest:
        raise ConfigurationError(
            f"--resume: {output} is complete, and was made of another input. Give another path, or "
            "--overwrite to replace it."
        )
    logger.info("%s is complete: nothing is left to do.", output)
    return EmbeddedFile(about["num_sentences"], about["num_tokens"])


class _Progress:
    """A progress bar of sentences, with tokens per second."""

    def __init__(self, num_sentences: Optional[int], former: Optional[Progress]) -> None:
        self._bar = Tqdm.tqdm(
            total=num_sentences,
            initial=0 if former is None else former.num_sentences,
            unit=" sentences",
            desc="embedding",
        )
        self._start = time.monotonic()
        self._num_sentences = self._num_tokens = 0

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()

    def update(self, num_tokens: int) -> None:
        """Count a sentence."""
        self._num_sentences += 1
        self._num_tokens += num_tokens
        if self._num_sentences % _SENTENCES_PER_UPDATE == 0:
            speed = self._num_tokens / max(time.monotonic() - self._start, 1e-9)
            self._bar.set_postfix_str(f"{speed:,.0f} tokens/s", refresh=False)
        self._bar.update()
