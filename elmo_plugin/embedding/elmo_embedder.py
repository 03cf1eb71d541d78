"""Compute the vectors of every layer for sentences, as arrays."""

import hashlib
import secrets
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy
import torch
from torch import Tensor

from elmo_plugin.arguments import Options, option
from elmo_plugin.bilm import FrozenBiLM, batch_to_ids
from elmo_plugin.bilm.batch import CarriedStates
from elmo_plugin.bilm.model_files import ORIGINAL, model_choices
from elmo_plugin.bilm.processor import checked_device
from elmo_plugin.bilm.runners import AUTO, KERNELS, PRECISIONS
from elmo_plugin.embedding.formats import OutputOptions
from elmo_plugin.embedding.layers import check_pool, layer_choice, pool_tokens
from elmo_plugin.embedding.run import EmbeddingRun
from elmo_plugin.embedding.sentence_batches import (
    DEFAULT_BATCH_SIZE,
    BatchOptions,
    ResultT,
    consecutive_groups,
    map_in_batches,
)
from elmo_plugin.embedding.sentences import TextInput
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import FileName, is_unicode

# Size of vectors to read ahead: 21,845 tokens of the paper's model.
BYTES_AHEAD = 2**28


class ElmoEmbedder:
    """
    Compute the layers of a frozen biLM for sentences. The layers are not mixed, and nothing is trained.

    A replacement for AllenNLP 0.9's `allennlp.commands.elmo.ElmoEmbedder`, with these intended differences:
    - LSTM states are not carried from batch to batch, unless `stateful=True`. A sentence has the same vectors
      in any batch, to within rounding (1e-5; the token representation of a word has the rounding of the first
      batch with this word).
    - An empty sentence has the same number of layers, width and data type as any other.
    - Masks are boolean.
    - A string in place of a list of tokens is an error.

    # Parameters

    options_file, weight_file : `str` or `PathLike`, optional (default = `"original"`, the paper's model)
        See `BiLM.from_files`. One name is enough for both, such as `elmo_mini`; leave out the other.
    cuda_device : `int`, optional (default = `-1`)
        Index of the GPU to run on; -1 for the CPU.
    stateful : `bool`, optional (default = `False`)
        Carry the states of row i of a batch to row i of the next batch, also between calls, as AllenNLP 0.9
        did. Vectors then depend on the order of the sentences and on the batch size.
    inference
        The fields of `InferenceSettings`, such as `precision`.

    # Raises

    `ConfigurationError` if the GPU does not exist, and as `BiLM.from_files`.
    """

    def __init__(
        self,
        options_file: Optional[FileName] = None,
        weight_file: Optional[FileName] = None,
        cuda_device: int = -1,
        stateful: bool = False,
        **inference: Any,
    ) -> None:
        device = checked_device(cuda_device)  # fails before files are downloaded
        if options_file is None and weight_file is None:
            options_file = ORIGINAL
        bilm = FrozenBiLM.from_files(options_file, weight_file, device, **inference)
        self._set_up(bilm, stateful)

    @classmethod
    def from_bilm(cls, bilm: FrozenBiLM, stateful: bool = False) -> "ElmoEmbedder":
        """Make an embedder of a biLM, which runs where and how it was made to."""
        embedder = cls.__new__(cls)
        embedder._set_up(bilm, stateful)
        return embedder

    def _set_up(self, bilm: FrozenBiLM, stateful: bool) -> None:
        self.elmo_bilm = bilm
        self.cuda_device = -1 if bilm.device.type == "cpu" else bilm.device.index or 0
        self.stateful = stateful
        self._states = CarriedStates() if stateful else None

    @property
    def num_layers(self) -> int:
        """Number of layers: the LSTM layers and the token representation."""
        return self.elmo_bilm.num_layers

    @property
    def checksum(self) -> str:
        """
        SHA-256 of the options and weights of the biLM. If the checksum of its weights is not known, each call
        returns another value, so that no two models are taken for the same.
        """
        bilm = self.elmo_bilm
        weights = bilm.weights_sha256 or secrets.token_hex()
        return hashlib.sha256(f"{bilm.options} {weights}".encode()).hexdigest()

    def get_output_dim(self) -> int:
        """Width of a layer, both directions together."""
        return self.elmo_bilm.get_output_dim()

    def reset_states(self) -> None:
        """Reset the states of a stateful embedder, so that the next batch starts from zeros."""
        if self._states is not None:
            self._states.reset()

    def embed_sentence(self, sentence: Sequence[str], pool: Optional[str] = None) -> numpy.ndarray:
        """
        Embed the tokens of a sentence, which may be empty.

        # Parameters

        pool : `str`, optional
            Make one vector of those of the tokens: `mean`, `max` or `first-last`, see `pool_tokens`.

        # Returns

        float32 array of shape `(num_layers, len(sentence), get_output_dim())`. The token representation is
        the first layer; the forward direction is the first half of the width. With `pool`
        `(num_layers, get_output_dim())`.

        # Raises

        `ValueError` for a string in place of tokens, and for a token that is not a string or cannot be
        encoded as UTF-8; `ConfigurationError` for an unknown `pool`.
        """
        return self.embed_batch([sentence], pool)[0]

    def embed_batch(
        self, batch: Sequence[Sequence[str]], pool: Optional[str] = None
    ) -> List[numpy.ndarray]:
        """
        Embed several sentences. Return an array for each, see `embed_sentence`; an error names the sentence.

        A stateful embedder runs exactly one batch; a batch without tokens does not change the states. A
        stateless embedder runs several batches if one would take much memory for padding.
        """
        return list(self.embed_sentences(batch, max(1, len(batch)), pool))

    def embed_sentences(
        self,
        sentences: Iterable[Sequence[str]],
        batch_size: int = DEFAULT_BATCH_SIZE,
        pool: Optional[str] = None,
        keep_sentences: bool = False,
    ) -> Iterator[numpy.ndarray]:
        """
        Embed any number of sentences, in bounded memory.

        A stateless embedder reads up to 16 batches ahead, at most sentences with 256 MiB of vectors, and puts
        sentences of similar length into a batch. Results follow when these batches are done. Set `batch_size`
        to 1 to get each result before the next sentence is read. A stateful embedder reads `batch_size`
        sentences at a time, in their order.

        # Parameters

        sentences : `Iterable[Sequence[str]]`
            The tokens of each sentence, in a stream that may be endless.
        batch_size : `int`, optional (default = `64`)
            Maximum number of sentences in a batch.
        pool : `str`, optional
            See `embed_sentence`.
        keep_sentences : `bool`, optional (default = `False`)
            Keep the layers of sentences for the next time that they are read, see `FrozenBiLM`.

        # Returns

        A generator of the arrays that `embed_sentence` returns, in the order of `sentences`.

        # Raises

        `ConfigurationError` for a `batch_size` that is not positive, and for an unknown `pool`; while the
        generator runs, `ValueError` as `embed_sentence`, naming the sentence.
        """
        if pool is not None:
            check_pool(pool)
        embed = partial(self._embed, pool=pool, keep_sentences=keep_sentences)
        if not self.stateful:
            return self.map_batches(embed, sentences, batch_size)
        BatchOptions(batch_size)
        batches = consecutive_groups(_checked(sentences), batch_size)
        return (vectors for batch in batches for vectors in embed(batch))

    def map_batches(
        self,
        function: Callable[[List[List[str]]], Sequence[ResultT]],
        sentences: Iterable[Sequence[str]],
        batch_size: int = DEFAULT_BATCH_SIZE,
    ) -> Iterator[ResultT]:
        """
        Apply a function, which returns a result for each sentence, to batches of sentences of similar length.
        For a stateless embedder. Other arguments, order, memory and errors are those of `embed_sentences`.
        """
        BatchOptions(batch_size)
        max_tokens = max(1, BYTES_AHEAD // (4 * self.num_layers * self.get_output_dim()))
        return map_in_batches(function, _checked(sentences), batch_size, max_tokens)

    def embed_file(
        self,
        input_file: TextInput,
        output_file_path: FileName,
        output_format: str = "all",
        batch_size: int = DEFAULT_BATCH_SIZE,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
        pool: Optional[str] = None,
        resume: bool = False,
    ) -> None:
        """
        Embed the lines of a file and write the vectors to an HDF5 file, as the command `elmo embed` does.
        The file appears when it is complete, and replaces an existing one. Raise as `EmbeddingRun`.

        # Parameters

        input_file : open file, `str` or `PathLike`
            One sentence on each line, tokens separated by white space, see `SentenceSource`. An open file
            stays open.
        output_format : `str`, optional (default = `"all"`)
            `all` layers, `top` for the last one, or `average` for their mean.
        forget_sentences, use_sentence_keys : `bool`, optional (default = `False`)
            See `HDF5Format`.
        pool : `str`, optional
            Write one vector for each sentence, see `embed_sentence`.
        resume : `bool`, optional (default = `False`)
            Continue an interrupted call, with the parts in `output_file_path` + `.partial`. Otherwise they,
            and an output of this name, are replaced.
        """
        options = OutputOptions(
            format="hdf5",
            forget_sentences=forget_sentences,
            use_sentence_keys=use_sentence_keys,
            resume=resume,
            overwrite=not resume,
        )
        run = EmbeddingRun(
            input_file, output_file_path, output_options=options, batches=BatchOptions(batch_size)
        )
        run.embed(self, layer_choice(output_format, pool))

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> Tuple[Tensor, Tensor]:
        """
        Run the biLM once on a batch of any size.

        # Returns

        The activations, `(batch_size, num_layers, timesteps, get_output_dim())`, without sentence marks and
        zero at padding; and the mask, `(batch_size, timesteps)`, `True` at tokens. Both are on the biLM's
        device.
        """
        sentences = list(_checked(batch))
        output = self.run_bilm(sentences)
        # (batch_size, num_layers, timesteps, dim)
        activations = torch.stack(output["activations"], dim=1)[:, :, 1:-1]
        # (batch_size, timesteps): words come first in a row, two fewer than with sentence marks.
        mask = output["mask"][:, 2:]
        # Masked, since the end mark of a shorter sentence is at its first padded position.
        return activations.masked_fill(~mask[:, None, :, None], 0.0), mask

    def run_bilm(self, sentences: List[List[str]], keep_sentences: bool = False) -> Dict[str, Any]:
        """Return the output of the biLM, see `FrozenBiLM.__call__`, on its device."""
        character_ids = batch_to_ids(sentences).to(self.elmo_bilm.device)
        return self.elmo_bilm(character_ids, self._states, keep_sentences)

    def _embed(
        self, sentences: List[List[str]], pool: Optional[str] = None, keep_sentences: bool = False
    ) -> List[numpy.ndarray]:
        if not any(sentences):
            shape = (self.num_layers, 0, self.get_output_dim())
            arrays = [numpy.zeros(shape, dtype=numpy.float32) for _ in sentences]
        else:
            output = self.run_bilm(sentences, keep_sentences)
            layers = [layer.cpu().numpy() for layer in output["activations"]]
            arrays = [
                # Without sentence marks. A copy: a view would keep the whole batch in memory.
                numpy.stack([layer[row, 1 : len(sentence) + 1] for layer in layers])
                for row, sentence in enumerate(sentences)
            ]
        return arrays if pool is None else [pool_tokens(array, pool) for array in arrays]


@dataclass(frozen=True)
class BiLMFiles(Options):
    """Options of commands: the biLM, by one name or by its two files."""

    model: Optional[str] = option(
        "elmo_mini or elmo_small; original, the paper's, downloaded once; or a folder or .zip with options "
        "and weights",
        None,
        metavar="NAME",
    )
    options_file: Optional[str] = option(
        "in place of --model: JSON file with the sizes (path, URL or hf:// name)",
        None,
        metavar="FILE",
    )
    weight_file: Optional[str] = option(
        "with --options-file: HDF5 file with the weights",
        None,
        metavar="FILE",
    )

    def check(self) -> None:
        """Raise `ConfigurationError` unless either `model` or both files are given."""
        files = {"--options-file": self.options_file, "--weight-file": self.weight_file}
        given = [flag for flag, name in {"--model": self.model, **files}.items() if name]
        if given not in (["--model"], list(files)):
            raise ConfigurationError(
                f"found {' and '.join(given) or 'no model'}, expected --model: {model_choices()}. Or give "
                "two separate files, --options-file and --weight-file."
            )

    @property
    def arguments(self) -> Dict[str, Any]:
        """Arguments of `ElmoEmbedder`: the fields, with `model` as `options_file`."""
        values = asdict(self)
        values["options_file"] = values.pop("model") or self.options_file
        return values


@dataclass(frozen=True)
class DeviceOptions(Options):
    """Options of commands: device, precision and kernel of a biLM, see `ElmoEmbedder`."""

    cuda_device: int = option("index of the GPU; -1 for the CPU", -1, metavar="N")
    precision: str = option("bfloat16, int8: faster, less exact", "float32", choices=PRECISIONS)
    kernel: str = option("what runs the LSTMs; auto: the fastest", AUTO, choices=KERNELS)


def _checked(sentences: Iterable[Iterable[str]]) -> Iterator[List[str]]:
    return (checked_tokens(sentence, position) for position, sentence in enumerate(sentences))


def checked_tokens(sentence: Iterable[str], position: int) -> List[str]:
    """
    Return the tokens of a sentence as a list. `position` is its index in the batch or stream, for errors:
    `ValueError` for a string in place of tokens, and for a token that is not a string or no UTF-8.
    """
    if isinstance(sentence, (str, bytes)) or not isinstance(sentence, Iterable):
        raise ValueError(
            f"Sentence {position} is {repr(sentence)[:40]}, expected a list of tokens. Split it into tokens."
        )
    tokens = list(sentence)
    for index, token in enumerate(tokens):
        if not isinstance(token, str) or not is_unicode(token):
            raise ValueError(
                f"Token {index} of sentence {position} is {token!r}, expected a string that UTF-8 can "
                "encode. Read the text with its encoding, or replace such characters."
            )
    return tokens
