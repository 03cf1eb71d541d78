"""From sentences to the vectors of every layer, as arrays."""

from os import PathLike
from typing import IO, Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union, cast

import numpy
import torch
from torch import Tensor

from elmo_plugin.bilm import BiLM, batch_to_ids
from elmo_plugin.bilm.bilm import DEFAULT_WORD_CACHE_SIZE
from elmo_plugin.bilm.kernels import AUTO
from elmo_plugin.bilm.model_files import ORIGINAL_MODEL, without_unused_default
from elmo_plugin.embedding.sentence_batches import (
    DEFAULT_BATCH_SIZE,
    BatchOptions,
    consecutive_groups,
    map_in_batches,
)
from elmo_plugin.errors import ConfigurationError

# How far to read ahead for sentences of similar length: more sorts little better and takes more memory.
BATCHES_AHEAD = 16
# In vectors: 21,845 tokens of the paper's model. Sentences of ordinary length stay below it.
BYTES_AHEAD = 2**28


class ElmoEmbedder(torch.nn.Module):
    """
    The layers of a frozen biLM for sentences, to look at or to keep; nothing is mixed, nothing learnt.

    Stands in for AllenNLP 0.9's `allennlp.commands.elmo.ElmoEmbedder`. Departures, all of them on purpose:
    states are not carried from batch to batch, so that a sentence has the same vectors wherever it stands,
    to within rounding (1e-5; a word's token representation has the rounding of the batch it was first in);
    `stateful=True` carries them. An empty sentence has as many layers, of the same width and type, as any
    other. Masks are boolean. A string in place of a list of tokens is an error.

    # Parameters

    options_file, weight_file : `str` or `PathLike`, optional (default = the paper's model, from its URL)
        See `BiLM.from_files`. With a name that stands for both files, such as `elmo_mini`, the other is
        left out.
    cuda_device : `int`, optional (default = `-1`)
        Number of the GPU to run on; -1 for the CPU.
    stateful : `bool`, optional (default = `False`)
        Carry the states of row i of a batch into row i of the next, over all calls, as AllenNLP 0.9 did:
        vectors then depend on the order of the sentences and on the batch size.
    precision, kernel, packed_folder, word_cache_size
        See `BiLM`.

    # Attributes

    indexer : `ELMoTokenCharactersIndexer`
        Of AllenNLP, which is needed for this alone: spells tokens as character ids.
    elmo_bilm : `BiLM`
        The biLM, frozen, in evaluation mode.
    cuda_device : `int`
        As given.

    # Raises

    `ConfigurationError` for a GPU that is not there, and as `BiLM.from_files` does.
    """

    def __init__(
        self,
        options_file: Optional[Union[str, PathLike]] = ORIGINAL_MODEL + "options.json",
        weight_file: Optional[Union[str, PathLike]] = ORIGINAL_MODEL + "weights.hdf5",
        cuda_device: int = -1,
        stateful: bool = False,
        precision: str = "float32",
        kernel: str = AUTO,
        packed_folder: Optional[Union[str, PathLike]] = None,
        word_cache_size: int = DEFAULT_WORD_CACHE_SIZE,
    ) -> None:
        super().__init__()
        device = _device(cuda_device)  # fails before anything is fetched
        options_file, weight_file = without_unused_default(options_file, weight_file)
        bilm = BiLM.from_files(
            options_file,
            weight_file,
            stateful=stateful,
            precision=precision,
            word_cache_size=word_cache_size,
            kernel=kernel,
            packed_folder=packed_folder,
        )
        self._set_up(bilm, cuda_device, device)

    @classmethod
    def from_bilm(cls, bilm: BiLM, cuda_device: int = -1) -> "ElmoEmbedder":
        """
        An embedder that runs a biLM already built, with the settings that it has. It is not copied, but
        frozen, put into evaluation mode and moved to the device.
        """
        embedder = cls.__new__(cls)
        torch.nn.Module.__init__(embedder)
        embedder._set_up(bilm, cuda_device, _device(cuda_device))
        return embedder

    def _set_up(self, bilm: BiLM, cuda_device: int, device: torch.device) -> None:
        self.cuda_device = cuda_device
        self.elmo_bilm = bilm.requires_grad_(False).eval().to(device)

    @property
    def indexer(self) -> Any:
        """As in AllenNLP 0.9."""
        from allennlp.data.token_indexers import ELMoTokenCharactersIndexer

        return ELMoTokenCharactersIndexer()

    @property
    def num_layers(self) -> int:
        """Number of layers of a vector: the LSTM layers and the token representation."""
        return self.elmo_bilm.num_layers

    def get_output_dim(self) -> int:
        """Width of a layer, both directions together."""
        return self.elmo_bilm.get_output_dim()

    def reset_states(self) -> None:
        """If stateful: forget the states, so that the next batch starts from zeros."""
        self.elmo_bilm.reset_states()

    def embed_sentence(self, sentence: Sequence[str]) -> numpy.ndarray:
        """
        Embed the tokens of a sentence; there may be none.

        # Returns

        float32 array of shape `(num_layers, len(sentence), get_output_dim())`, token representation first,
        forward direction in the first half of the width.

        # Raises

        `ValueError` for a string in place of tokens, and for a token that is no string or cannot be
        encoded as UTF-8.
        """
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> List[numpy.ndarray]:
        """
        Embed sentences together. If stateful, in exactly one batch; a batch without any token leaves the
        states as they are. If not, in several where padding would take memory that sentences do not.

        Returns for each sentence what `embed_sentence` does, and raises as it does, naming the sentence.
        """
        if not self.elmo_bilm.stateful:
            return list(self.embed_sentences(batch, None, self._tokens_ahead()))
        return self._embed(_checked_sentences(batch))

    def embed_sentences(
        self,
        sentences: Iterable[Sequence[str]],
        batch_size: Optional[int] = DEFAULT_BATCH_SIZE,
        batch_tokens: Optional[int] = None,
    ) -> Iterator[numpy.ndarray]:
        """
        Embed any number of sentences, in bounded memory.

        If stateless, it reads up to 16 batches ahead, or as many sentences as have vectors of 256 MiB, and
        puts sentences of similar length into a batch; results come when those are done. To have each result
        before the next sentence is read, set `batch_size` to 1.
        If stateful, batches are the sentences in their order, `batch_size` at a time.

        # Parameters

        sentences : `Iterable[Sequence[str]]`
            The tokens of each sentence. Endless generators are fine.
        batch_size : `int`, optional (default = `64`)
            See `BatchOptions`.
        batch_tokens : `int`, optional (default = those of 256 MiB of vectors)
            See `BatchOptions`. Not if stateful.

        # Returns

        A generator of what `embed_sentence` gives, in the order of `sentences`.

        # Raises

        `ConfigurationError`, at once, for limits that are not positive, or none, or `batch_tokens` if
        stateful; `ValueError`, on the way, as `embed_sentence`, naming the sentence.
        """
        limits = BatchOptions(batch_size, batch_tokens)
        checked = (
            checked_tokens(sentence, position) for position, sentence in enumerate(sentences)
        )
        if self.elmo_bilm.stateful:
            limits.check_for_stateful()
            batches = consecutive_groups(checked, cast(int, batch_size))
            return (vectors for batch in batches for vectors in self._embed(batch))
        # A larger limit of the caller is meant.
        tokens_ahead = max(self._tokens_ahead(), batch_tokens or 0)
        if batch_tokens is None:
            limits = BatchOptions(batch_size, tokens_ahead)
        sentences_ahead = tokens_ahead
        if batch_size is not None:
            # Single sentences need no sorting.
            sentences_ahead = 1 if batch_size == 1 else BATCHES_AHEAD * batch_size
        return map_in_batches(self._embed, checked, limits, sentences_ahead, tokens_ahead)

    def embed_file(
        self,
        input_file: Union[str, PathLike, IO[Any]],
        output_file_path: Union[str, PathLike],
        output_format: str = "all",
        batch_size: int = DEFAULT_BATCH_SIZE,
        forget_sentences: bool = False,
        use_sentence_keys: bool = False,
    ) -> None:
        """
        Embed the lines of a file and write them to an HDF5 file, as the command `allennlp elmo` does. A file
        that is there is replaced.

        # Parameters

        input_file : open file, `str` or `PathLike`
            One sentence on each line, tokens set apart by white space, see `SentenceSource`. An open file
            stays open.
        output_file_path : `str` or `PathLike`
            Appears when it is complete.
        output_format : `str`, optional (default = `"all"`)
            `all` layers, `top` for the last, or their `average`.
        batch_size : `int`, optional (default = `64`)
            Sentences in a batch.
        forget_sentences, use_sentence_keys : `bool`, optional (default = `False`)
            See `HDF5Format`.

        # Raises

        As `EmbeddingRun` does.
        """
        # It runs an embedder, so that it is above this module.
        from elmo_plugin.embedding.layers import layer_choice
        from elmo_plugin.embedding.run import EmbeddingRun, OutputOptions

        options = OutputOptions(
            format="hdf5",
            forget_sentences=forget_sentences,
            use_sentence_keys=use_sentence_keys,
            overwrite=True,
        )
        run = EmbeddingRun(
            input_file, output_file_path, output_options=options, batches=BatchOptions(batch_size)
        )
        run.embed(self, layer_choice(output_format))

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> Tuple[Tensor, Tensor]:
        """
        Run the biLM once, whatever the batch.

        # Returns

        The activations, `(batch_size, num_layers, timesteps, get_output_dim())`, without sentence marks and
        zero at padding; and the mask, `(batch_size, timesteps)`, `True` at tokens. Both on the biLM's device.
        """
        sentences = _checked_sentences(batch)
        # (batch_size, num_layers, timesteps, dim)
        activations = torch.stack(self._run(sentences), dim=1)
        lengths = torch.tensor([len(sentence) for sentence in sentences], dtype=torch.long)
        mask = torch.arange(activations.size(2)) < lengths.unsqueeze(1)  # (batch_size, timesteps)
        mask = mask.to(activations.device)
        # The mark at the end of a shorter sentence stands where its padding begins.
        return activations.masked_fill(~mask[:, None, :, None], 0.0), mask

    def _embed(self, sentences: List[List[str]]) -> List[numpy.ndarray]:
        if not any(sentences):
            shape = (self.num_layers, 0, self.get_output_dim())
            return [numpy.zeros(shape, dtype=numpy.float32) for _ in sentences]
        with torch.no_grad():
            layers = [layer.cpu() for layer in self._run(sentences)]
        return [
            # An array of its own: a view would keep the whole batch in memory.
            torch.stack([layer[row, : len(sentence)] for layer in layers]).float().numpy()
            for row, sentence in enumerate(sentences)
        ]

    def _run(self, sentences: List[List[str]]) -> List[Tensor]:
        """Each layer from the first token on, `(batch_size, timesteps, get_output_dim())`."""
        activations = self.elmo_bilm(self._character_ids(sentences))["activations"]
        return [layer[:, 1:-1] for layer in activations]

    def _character_ids(self, sentences: List[List[str]]) -> Tensor:
        """`(batch_size, timesteps, 50)` on the biLM's device. Each distinct word is spelt once."""
        device = next(self.elmo_bilm.parameters()).device
        row_of: Dict[str, int] = {}
        timesteps = max((len(sentence) for sentence in sentences), default=0)
        rows = torch.zeros(len(sentences), timesteps, dtype=torch.long)  # 0 is padding
        for number, sentence in enumerate(sentences):
            numbers = [row_of.setdefault(word, len(row_of) + 1) for word in sentence]
            rows[number, : len(sentence)] = torch.tensor(numbers, dtype=torch.long)
        spellings = batch_to_ids([list(row_of)])[0]  # (num_words, 50)
        spellings = torch.cat([torch.zeros_like(spellings[:1]), spellings])
        return spellings.to(device)[rows.to(device)]

    def _tokens_ahead(self) -> int:
        """How many tokens have vectors of `BYTES_AHEAD`."""
        return max(1, BYTES_AHEAD // (4 * self.num_layers * self.get_output_dim()))


def _device(cuda_device: int) -> torch.device:
    if cuda_device < 0:
        return torch.device("cpu")
    if cuda_device >= torch.cuda.device_count():
        raise ConfigurationError(
            f"cuda_device is {cuda_device}, but torch finds {torch.cuda.device_count()} GPUs here. Give the "
            "number of one of them, counted from 0, or -1 for the CPU."
        )
    return torch.device("cuda", cuda_device)


def _checked_sentences(sentences: Iterable[Iterable[str]]) -> List[List[str]]:
    return [checked_tokens(sentence, position) for position, sentence in enumerate(sentences)]


def checked_tokens(sentence: Iterable[str], position: int) -> List[str]:
    """
    The tokens of a sentence as a list. `position`, in its batch or stream, names it in errors.

    # Raises

    `ValueError` for a string in place of tokens, and for a token that is no string or cannot be encoded as
    UTF-8.
    """
    if isinstance(sentence, (str, bytes)):
        raise ValueError(
            f"Sentence {position} is the string {sentence[:40]!r}, expected a list of tokens. Split it into "
            "tokens first."
        )
    try:
        tokens = list(sentence)
    except TypeError as error:
        raise ValueError(
            f"Sentence {position} is {sentence!r}, expected a list of tokens."
        ) from error
    try:
        "".join(tokens).encode()
    except (TypeError, UnicodeEncodeError):
        _raise_for_token(tokens, position)
    return tokens


def _raise_for_token(tokens: List[str], position: int) -> None:
    for index, token in enumerate(tokens):
        where = f"Token {index} of sentence {position} is {token!r}"
        if not isinstance(token, str):
            raise ValueError(f"{where}, of type {type(token).__name__}, expected a string.")
        try:
            token.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{where}, which cannot be encoded as UTF-8 ({error.reason}): text was read in another "
                "encoding. Read it in its own, or replace such characters."
            ) from error
