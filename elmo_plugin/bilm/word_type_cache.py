"""A bounded memory of the token vectors of words that were seen before."""

import logging
import threading
from collections import OrderedDict
from typing import Any, Callable, List, Optional, Tuple

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

logger = logging.getLogger(__name__)

# The table starts with room for this many words and doubles up to the capacity.
INITIAL_ROWS = 1024


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
                return self._table[torch.tensor(rows, device=types.device)]
            unknown_index = torch.tensor(unknown, device=types.device)
            new_vectors = encoder(types[unknown_index])  # (num_unknown, dim)
            vectors = new_vectors.new_empty(len(spellings), new_vectors.size(1))
            vectors[unknown_index] = new_vectors
            if known:
                assert self._table is not None
                known_index = torch.tensor(known, device=types.device)
                vectors[known_index] = self._table[torch.tensor(rows, device=types.device)]
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
        table[torch.tensor(rows, device=vectors.device)] = vectors[:num_kept]

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
