"""What a biLM keeps of weights that do not change: vectors of words, activations of sentences, and weights
prepared for a kernel."""

import functools
import logging
import threading
from collections import OrderedDict
from os import PathLike
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from elmo_plugin.bilm.character_encoder import CharacterEncoder, Encode
from elmo_plugin.bilm.kernels import LSTMKernel, check_kernel, choose_kernel, choose_precision
from elmo_plugin.bilm.kernels.packed_folder import PackedFolder
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.many_langs import ManyLangsEncoder
from elmo_plugin.errors import ConfigurationError

logger = logging.getLogger(__name__)

# The table of word vectors starts with room for this many words and doubles up to the capacity.
INITIAL_ROWS = 1024

# What makes the token representations of a biLM, from character ids.
WordEncoder = Union[CharacterEncoder, ManyLangsEncoder]


class PreparedLayers(NamedTuple):
    """LSTM layers as a kernel runs them: forward and backward of layer 0, then of layer 1 ..."""

    kernel: LSTMKernel
    layers: List[Any]


class FrozenInference:
    """
    Runs the parts of a biLM without gradients. It owns the choice of the kernel, the weights prepared for it,
    and the vectors of words; they are dropped together when the weights may have changed.

    Several threads may use one object. Copies and pickles start empty.

    # Parameters

    kernel, precision, packed_folder, word_cache_size, sentence_cache_mb
        See `BiLM`.

    # Raises

    `ConfigurationError` as `BiLM` does.
    """

    def __init__(
        self,
        kernel: str,
        precision: str,
        packed_folder: Optional[Union[str, PathLike]],
        word_cache_size: int,
        sentence_cache_mb: float,
    ) -> None:
        check_kernel(kernel, precision)
        self.kernel = kernel
        self.precision = precision
        self.packed_folder = packed_folder
        self._folder = None if packed_folder is None else PackedFolder(packed_folder)
        self.word_cache = WordTypeCache(word_cache_size)
        self.sentence_cache = SentenceCache(sentence_cache_mb)
        self._said: Set[str] = set()
        self._lock = threading.Lock()
        self.invalidate()

    def __reduce__(self) -> Tuple[Any, ...]:
        caches = (self.word_cache.capacity, self.sentence_cache.capacity_mb)
        return FrozenInference, (self.kernel, self.precision, self.packed_folder, *caches)

    @property
    def num_prepared(self) -> int:
        """Number of modules with prepared weights."""
        return len(self._prepared)

    def invalidate(self) -> None:
        """Drop everything: the weights have changed, or may change without a trace."""
        self.word_cache.clear()
        self.sentence_cache.clear()
        # The kernel, and the precision that it runs in.
        self._choice: Optional[Tuple[LSTMKernel, str]] = None
        # Name of a module within the biLM -> what the kernel multiplies by in its place.
        self._prepared: Dict[str, _Prepared] = {}
        self._layers: Optional[PreparedLayers] = None
        self._encoder: Optional[Encode] = None
        # The state of the weights that all of this was made from.
        self._version: Optional[Tuple[Any, ...]] = None
        # Keeps the memory of those weights from being given to others, which could be taken for them.
        self._weights: Sequence[Tensor] = ()
        # The weight file that they were loaded from, if they are still the same.
        self._source: Optional[Tuple[Any, ...]] = None

    def loaded_from(self, source: Tuple[Any, ...], bilm: torch.nn.Module) -> None:
        """Share what is made of the weights that `bilm` has now with other biLMs loaded from `source`."""
        parameters = list(bilm.parameters())
        self._set_version(_version_of(parameters, 0), parameters)
        self._source = source

    def begin_pass(
        self, parameters: Sequence[Tensor], is_training: bool, num_backward_passes: int
    ) -> bool:
        """
        Drop what was made from other weights.

        What is made from weights is kept while they rest: the biLM is frozen, or in `eval` mode with
        gradients off, and no parameter has a gradient. Optimizers change only parameters that have a
        gradient, but some do not raise `_version` (fused ones, and those that write to `parameter.data`).
        If gradients came and went between two passes, there was a backward pass, which is counted.

        # Returns

        Whether the weights rest. If not, what is made during this pass is dropped by the next.
        """
        self._place = (parameters[0].device, parameters[0].dtype)
        is_frozen = are_frozen(parameters)
        is_learning = not is_frozen and (is_training or torch.is_grad_enabled())
        has_gradients = any(parameter.grad is not None for parameter in parameters)
        # Tensors made in inference mode have no version.
        is_inference = any(parameter.is_inference() for parameter in parameters)
        if is_learning or has_gradients or is_inference:
            if is_frozen:
                reason = (
                    "gradients: call its zero_grad()"
                    if has_gradients
                    else "been moved or cast in inference mode: do that outside of it"
                )
                self._say_once(
                    logging.WARNING,
                    f"The frozen biLM is slow, because its parameters have {reason}.",
                )
            self.invalidate()
            return False
        version = _version_of(parameters, num_backward_passes)
        if version != self._version:
            if self._version is not None:
                self.invalidate()
            self._set_version(version, parameters)
        return True

    def prepared_layers(
        self, layers: Mapping[str, ProjectedLSTM], is_at_rest: bool
    ) -> Optional[PreparedLayers]:
        """
        Return what is to run the layers of a pass, which have these names within the biLM; `None` if they are
        to run as they are: with gradients, or where weights that change were prepared for one pass only.
        """
        if self._runs_as_it_is(is_at_rest):
            return None
        if self._layers is None:
            kernel, precision = self._chosen()

            def prepare(layer: ProjectedLSTM) -> Any:
                return kernel.prepare(layer, precision)

            prepared = [self._prepare(name, layer, prepare) for name, layer in layers.items()]
            self._layers = PreparedLayers(kernel, prepared)
        return self._layers

    def encode(self, encoder: WordEncoder, types: Tensor, is_at_rest: bool) -> Tensor:
        """Return what the biLM's character encoder makes of `types`: known ones from memory."""
        encode_new = functools.partial(self._encode, encoder, is_at_rest)
        if not is_at_rest or self.word_cache.capacity == 0:
            return encode_new(types)
        return self.word_cache.encode(types, encode_new, _mode(types.device))

    def _encode(self, encoder: WordEncoder, is_at_rest: bool, types: Tensor) -> Tensor:
        if self._runs_as_it_is(is_at_rest):
            return encoder(types)
        if self._encoder is None:
            kernel, precision = self._chosen()

            def prepare(encoder: CharacterEncoder) -> Encode:
                return self._prepare(
                    "character_encoder",
                    encoder,
                    lambda encoder: kernel.prepare_encoder(encoder, precision),
                )

            self._encoder = encoder.prepared(prepare)
        with torch.autocast(types.device.type, enabled=False):
            return self._encoder(types)

    def _runs_as_it_is(self, is_at_rest: bool) -> bool:
        # Autocast says in what to multiply.
        is_lowered = torch.is_autocast_enabled(self._place[0].type)
        return torch.is_grad_enabled() or (
            self.precision == "float32" and (is_lowered or not is_at_rest)
        )

    def _set_version(self, version: Tuple[Any, ...], parameters: Iterable[Tensor]) -> None:
        self._version = version
        self._weights = [parameter.detach() for parameter in parameters]

    def _chosen(self) -> Tuple[LSTMKernel, str]:
        """Return the kernel and the precision that it runs in, chosen when the weights have changed."""
        choice = self._choice
        if choice is None:
            device, dtype = self._place
            precision = choose_precision(self.kernel, self.precision, device, dtype)
            kernel = choose_kernel(self.kernel, precision, device, dtype)
            choice = self._choice = (kernel, precision)
            self._say_once(
                logging.INFO,
                f"The frozen biLM runs in {precision} on the {kernel.name} kernel ({device.type}).",
            )
            if self._folder is not None and not kernel.storable_types:
                self._say_once(
                    logging.WARNING,
                    f"packed_folder is not used: the {kernel.name} kernel's weights cannot be kept in files.",
                )
        return choice

    def _prepare(self, name: str, module: torch.nn.Module, prepare: Callable[[Any], Any]) -> Any:
        """Return what `prepare` makes of the module of that name, made once."""
        kernel, precision = self._chosen()
        if self._folder is not None and kernel.storable_types:
            prepare = functools.partial(
                self._folder.stored,
                parameters=[name for name, _ in module.named_parameters()],
                # With the limits of clipping.
                settings=(kernel.layout, precision, repr(module)),
                pack=prepare,
                types=kernel.storable_types,
            )
        with self._lock:
            prepared = self._prepared.get(name)
            if prepared is None:
                if self._source is None:
                    prepared = _Prepared(prepare(module))
                else:
                    key = (self._source, name, kernel.layout, precision, self.packed_folder)
                    prepared = _shared_or_new(key, module, prepare)
                self._prepared[name] = prepared
            return prepared.value

    def _say_once(self, level: int, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            logger.log(level, "%s (Said once.)", message)


class SentenceCache:
    """
    Keeps the activations of whole sentences, so that each epoch of a task after the first need not run the
    biLM. It begins with the first pass in training mode: a model that only predicts remembers nothing. What
    came first stays, since an epoch reads everything in turn.

    # Parameters

    capacity_mb : `float`
        Memory to use, in MB; 0 for none.

    # Raises

    `ConfigurationError` if `capacity_mb` is negative.
    """

    def __init__(self, capacity_mb: float) -> None:
        if capacity_mb < 0:
            raise ConfigurationError(
                f"sentence_cache_mb is {capacity_mb}, expected 0 (no cache) or MB of memory for sentences."
            )
        self.capacity_mb = capacity_mb
        self._begun = False
        self._is_full = False
        self._num_bytes = 0
        # Mode and characters of a sentence -> (num_layers, tokens, dim).
        self._activations_of: Dict[Tuple[Any, bytes], Tensor] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._activations_of)

    def clear(self) -> None:
        """Forget every sentence."""
        with self._lock:
            self._activations_of = {}
            self._num_bytes = 0
            self._is_full = False

    def begins(self, is_training: bool, device: torch.device) -> bool:
        """Return whether sentences are to be remembered now. On a GPU, whose memory is scarce, none are."""
        self._begun = self._begun or is_training
        return self._begun and self.capacity_mb > 0 and device.type == "cpu"

    def read(
        self, character_ids: Tensor, lengths: Tensor, read_rows: Callable[[List[int]], List[Tensor]]
    ) -> List[Tensor]:
        """
        Return the activations of each layer, `(batch_size, timesteps + 2, dim)`: of known sentences from
        memory.

        # Parameters

        character_ids : `Tensor`
            `(batch_size, timesteps, num_characters)`.
        lengths : `Tensor`
            `(batch_size,)`, words of each row.
        read_rows : `Callable[[List[int]], List[Tensor]]`
            What the biLM makes of some rows, as wide as all. Called at most once, with the unknown ones,
            which then stay while there is room.
        """
        mode = _mode(character_ids.device)
        characters = character_ids.to(torch.int16).numpy()
        keys = [
            (mode, characters[row, :length].tobytes())
            for row, length in enumerate(lengths.tolist())
        ]
        with self._lock:
            known = {
                row: self._activations_of[key]
                for row, key in enumerate(keys)
                if key in self._activations_of
            }
        unknown = [row for row in range(len(keys)) if row not in known]
        if unknown:
            # (num_layers, num_unknown, timesteps + 2, dim)
            new = torch.stack(read_rows(unknown))
            with self._lock:
                for activations, row in zip(new.unbind(1), unknown):
                    self._keep(keys[row], activations[:, : lengths[row] + 2])
            if not known:
                return list(new.unbind())
        like = next(iter(known.values()))
        whole = like.new_zeros(like.size(0), len(keys), character_ids.size(1) + 2, like.size(2))
        if unknown:
            whole[:, unknown] = new
        for row, activations in known.items():
            whole[:, row, : activations.size(1)] = activations
        return list(whole.unbind())

    def _keep(self, key: Tuple[Any, bytes], activations: Tensor) -> None:
        num_bytes = len(key[1]) + activations.numel() * activations.element_size()
        if self._is_full or key in self._activations_of:
            return
        if self._num_bytes + num_bytes > self.capacity_mb * 1e6:
            self._is_full = True
            logger.info(
                "The sentence cache is full: %s MB hold %s sentences, and all others are read anew in each "
                "epoch. If there is memory, raise sentence_cache_mb.",
                f"{self.capacity_mb:,}",
                f"{len(self):,}",
            )
            return
        # A copy, as a part would keep its whole batch in memory.
        self._activations_of[key] = activations.clone()
        self._num_bytes += num_bytes


class WordTypeCache:
    """
    Keeps the vectors of up to `capacity` word types, the most recently used ones.

    It belongs to a frozen character encoder: the owner passes a `version` that changes whenever the
    encoder would answer differently, and a new version empties the cache. Several threads may use one
    cache. Copies and pickles start empty.

    The hit rate is logged after 1, 10, 100, and every 1,000 batches.

    # Parameters

    capacity : `int`
        The largest number of word types. 0 keeps none.

    # Raises

    `ConfigurationError` if `capacity` is negative.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ConfigurationError(
                f"word_cache_size is {capacity}, expected 0 (no cache) or the number of words to remember."
            )
        self.capacity = capacity
        self.num_hits = 0
        self.num_lookups = 0
        self._num_batches = 0
        self._version: Any = None
        # Spelling of a word -> row of the table; least recently used first.
        self._row_of_word: OrderedDict[bytes, int] = OrderedDict()
        self._table: Optional[Tensor] = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._row_of_word)

    def __reduce__(self) -> Tuple[Any, ...]:
        return WordTypeCache, (self.capacity,)

    @property
    def hit_rate(self) -> float:
        """Share of the word types looked up so far that were held; 0 before the first."""
        return self.num_hits / self.num_lookups if self.num_lookups else 0.0

    def clear(self) -> None:
        """Forget every vector; the counts of hits stay."""
        with self._lock:
            self._forget()

    def encode(self, types: Tensor, encoder: Callable[[Tensor], Tensor], version: Any) -> Tensor:
        """
        The vectors of `types`: known ones from memory, the others from `encoder`, which then stay.

        # Parameters

        types : `Tensor`
            `(num_types, num_characters)`, distinct words.
        encoder : `Callable[[Tensor], Tensor]`
            Maps `(n, num_characters)` to `(n, dim)`. Called at most once, with the unknown words.
        version : `Any`
            Compared with that of the last call; if it differs, nothing that is held counts.

        # Returns

        `Tensor` of shape `(num_types, dim)`.
        """
        spellings = [row.tobytes() for row in types.to("cpu", torch.int16).numpy()]
        with self._lock:
            if version != self._version:
                self._forget()
                self._version = version
            unknown: List[int] = []
            known: List[int] = []
            rows: List[int] = []
            for position, spelling in enumerate(spellings):
                row = self._row_of_word.get(spelling)
                if row is None:
                    unknown.append(position)
                else:
                    known.append(position)
                    rows.append(row)
                    self._row_of_word.move_to_end(spelling)
            if not unknown:
                assert self._table is not None
                self._count(len(known), len(spellings))
                return self._table.index_select(0, torch.tensor(rows, device=types.device))
            unknown_index = torch.tensor(unknown, device=types.device)
            # (num_unknown, dim)
            new_vectors = encoder(types.index_select(0, unknown_index))
            vectors = new_vectors.new_empty(len(spellings), new_vectors.size(1))
            vectors.index_copy_(0, unknown_index, new_vectors)
            if known:
                assert self._table is not None
                known_index = torch.tensor(known, device=types.device)
                known_rows = torch.tensor(rows, device=types.device)
                vectors.index_copy_(0, known_index, self._table.index_select(0, known_rows))
            self._keep([spellings[position] for position in unknown], new_vectors)
            self._count(len(known), len(spellings))
            return vectors

    def _keep(self, spellings: List[bytes], vectors: Tensor) -> None:
        # More new words than fit: the first of them stay.
        num_kept = min(len(spellings), self.capacity)
        rows: List[int] = []
        for spelling in spellings[:num_kept]:
            if len(self._row_of_word) < self.capacity:
                row = len(self._row_of_word)
            else:
                _, row = self._row_of_word.popitem(last=False)
            self._row_of_word[spelling] = row
            rows.append(row)
        if not rows:
            return
        table = self._table_with_room_for(max(rows) + 1, vectors)
        table.index_copy_(0, torch.tensor(rows, device=vectors.device), vectors[:num_kept])

    def _table_with_room_for(self, num_rows: int, vectors: Tensor) -> Tensor:
        held = 0 if self._table is None else self._table.size(0)
        if self._table is None or held < num_rows:
            size = min(self.capacity, max(INITIAL_ROWS, 2 * held, num_rows))
            table = vectors.new_empty(size, vectors.size(1))
            if self._table is not None:
                table[:held] = self._table
            self._table = table
        return self._table

    def _forget(self) -> None:
        self._row_of_word.clear()
        self._table = None

    def _count(self, hits: int, lookups: int) -> None:
        self.num_hits += hits
        self.num_lookups += lookups
        self._num_batches += 1
        if self._num_batches in (1, 10, 100) or self._num_batches % 1000 == 0:
            logger.info(
                "Word-type cache: hit rate %.1f%% of %s word types in %s batches; "
                "holds %s types, room for %s.",
                100 * self.hit_rate,
                f"{self.num_lookups:,}",
                f"{self._num_batches:,}",
                f"{len(self):,}",
                f"{self.capacity:,}",
            )


class _Prepared:
    def __init__(self, value: Any) -> None:
        self.value = value


# What biLMs of this process made of weight files, for as long as one of them needs it.
_shared: "WeakValueDictionary[Any, _Prepared]" = WeakValueDictionary()
_shared_lock = threading.Lock()


def _shared_or_new(
    key: Tuple[Any, ...], module: torch.nn.Module, prepare: Callable[[Any], Any]
) -> _Prepared:
    with _shared_lock:
        prepared = _shared.get(key)
        if prepared is None:
            prepared = _shared[key] = _Prepared(prepare(module))
        return prepared


def _mode(device: torch.device) -> Tuple[Any, bool]:
    # What is kept in one mode is of no use in another: autocast gives another type, and tensors made in
    # inference mode can be neither written to nor saved for gradients outside of it.
    autocast = torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type)
    return autocast, torch.is_inference_mode_enabled()


def are_frozen(parameters: Iterable[Tensor]) -> bool:
    """Return whether none requires a gradient."""
    return not any(parameter.requires_grad for parameter in parameters)


def _version_of(parameters: Sequence[Tensor], num_backward_passes: int) -> Tuple[Any, ...]:
    return (
        num_backward_passes,
        *((p.data_ptr(), p._version, p.dtype, p.device) for p in parameters),
    )
