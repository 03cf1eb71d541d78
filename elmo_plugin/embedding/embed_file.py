"""From a file of sentences to a file of their vectors."""

import time
from collections import deque
from os import PathLike
from typing import Any, Deque, Iterable, Iterator, List, NamedTuple, Optional, Protocol, Union

import numpy
from allennlp.common.checks import ConfigurationError
from allennlp.common.tqdm import Tqdm

from elmo_plugin.embedding.embedding_writer import EmbeddingWriter
from elmo_plugin.embedding.guarded_file import WriteError
from elmo_plugin.embedding.hdf5_file import HDF5Writer
from elmo_plugin.embedding.layer_choice import LayerChoice
from elmo_plugin.embedding.sentence_file import Sentence, SentenceFile
from elmo_plugin.files.output_file import check_free_space, check_output_file
from elmo_plugin.files.replaced_file import replaced_file

DTYPES = ("float32", "float16")
DEFAULT_BATCH_SIZE = 64

_SENTENCES_PER_UPDATE = 64  # of the speed that the progress bar shows


class SentenceEmbedder(Protocol):
    """What is needed of an `ElmoEmbedder`."""

    @property
    def elmo_bilm(self) -> Any:
        """Has `num_layers` and `get_output_dim()`."""

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
    source: SentenceFile,
    output_file: Union[str, PathLike],
    layers: LayerChoice,
    batch_size: int = DEFAULT_BATCH_SIZE,
    batch_tokens: Optional[int] = None,
    forget_sentences: bool = False,
    use_sentence_keys: bool = False,
    dtype: str = "float32",
    overwrite: bool = False,
) -> EmbeddedFile:
    """
    Embed the sentences of a file and write them as `HDF5Writer` does.

    Neither the sentences nor their vectors are all held in memory.

    # Parameters

    embedder : `SentenceEmbedder`
        Gives the layers of each sentence.
    source : `SentenceFile`
        The sentences. If it can be read twice, all of it is checked before any sentence is embedded.
    output_file : `str` or `PathLike`
        Appears when it is complete.
    layers : `LayerChoice`
        What of the layers is written, see `layer_choice` and `learnt_mix`.
    batch_size : `int`, optional (default = 64)
        Sentences in a batch.
    batch_tokens : `int`, optional
        Tokens in a batch, see `ElmoEmbedder`.
    forget_sentences, use_sentence_keys : `bool`, optional (default = `False`)
        See `HDF5Writer`.
    dtype : `str`, optional (default = `"float32"`)
        Type of the vectors in the file: `float32` or `float16`.
    overwrite : `bool`, optional (default = `False`)
        Replace `output_file` if it is there.

    # Raises

    `ConfigurationError` if an argument is out of range, the output cannot be written there, or a sentence is
    not as `SentenceFile` and `HDF5Writer` expect it; `WriteError`, an `OSError`, if writing fails.
    `output_file` is then as it was before.
    """
    if dtype not in DTYPES:
        raise ConfigurationError(f"dtype is '{dtype}', expected one of {', '.join(DTYPES)}.")
    check_output_file(output_file, overwrite, "--overwrite (overwrite=True)")
    if source.is_same_file(output_file):
        raise ConfigurationError(
            f"output: {output_file} is the input, expected another file. Give another path."
        )
    bilm = embedder.elmo_bilm
    # Of one token: (num_layers, 1, dim) or (1, dim)
    vector = layers(numpy.zeros((bilm.num_layers, 1, bilm.get_output_dim()), dtype="float32"))
    writer = HDF5Writer(forget_sentences, use_sentence_keys)

    # Sentences whose vectors have not come yet: as many as the embedder reads ahead.
    waiting: Deque[Sentence] = deque()

    def token_lists() -> Iterator[List[str]]:
        for sentence in source.sentences():
            if not source.can_be_read_again:
                writer.check(sentence.line_index, sentence.text)
            waiting.append(sentence)
            yield sentence.tokens

    # Checks its arguments at once, and reads no sentence yet.
    all_layers = embedder.embed_sentences(token_lists(), batch_size, batch_tokens)

    num_sentences: Optional[int] = None
    if source.can_be_read_again:
        expected = _check_source(source, writer)
        num_sentences = expected.num_sentences
        num_bytes = expected.num_tokens * vector.astype(dtype).nbytes
        check_free_space(
            output_file,
            num_bytes,
            "write less: --top or --average for --all, float16 for float32",
        )

    start = time.monotonic()
    num_embedded = num_tokens = 0
    try:
        with (
            replaced_file(output_file) as partial_file,
            writer.open(partial_file),
            Tqdm.tqdm(total=num_sentences, unit=" sentences", desc="embedding") as progress,
        ):
            for sentence_layers in all_layers:
                sentence = waiting.popleft()
                writer.write(sentence, _lowered(layers(sentence_layers), dtype, sentence))
                num_embedded += 1
                num_tokens += len(sentence.tokens)
                if num_embedded % _SENTENCES_PER_UPDATE == 0:
                    speed = num_tokens / max(time.monotonic() - start, 1e-9)
                    progress.set_postfix_str(f"{speed:,.0f} tokens/s", refresh=False)
                progress.update()
    except WriteError as error:
        raise WriteError(
            error.errno,
            f"{output_file}: cannot be written after {num_embedded:,} sentences ({error.strerror}), and "
            "nothing of it is left. Make room on the disk, or give a path on another one",
        ) from error
    return EmbeddedFile(num_embedded, num_tokens)


def _check_source(source: SentenceFile, writer: EmbeddingWriter) -> EmbeddedFile:
    """What there is to embed. Tokens are those between white space; no tokenizer makes fewer."""
    num_sentences = num_tokens = 0

    def examine(index: int, text: str) -> None:
        nonlocal num_sentences, num_tokens
        writer.check(index, text)
        num_sentences += 1
        num_tokens += len(text.split())

    source.check(examine)
    return EmbeddedFile(num_sentences, num_tokens)


def _lowered(vectors: numpy.ndarray, dtype: str, sentence: Sentence) -> numpy.ndarray:
    """The vectors in the type of the file."""
    if vectors.dtype == dtype:
        return vectors
    limit = numpy.finfo(dtype).max
    largest = numpy.abs(vectors).max(initial=0.0)
    if largest > limit:
        raise ConfigurationError(
            f"line {sentence.line_index + 1}: a vector holds {largest:g}, and {dtype} ends at {limit:g}. "
            "Write float32."
        )
    return vectors.astype(dtype)
