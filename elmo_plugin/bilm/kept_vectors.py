"""The vectors of words and sentences that a frozen biLM has met."""

import logging
from typing import Any, Callable, Dict, Tuple

import torch
from torch import Tensor

from elmo_plugin.bilm.batch import mask_of
from elmo_plugin.bilm.bilm import Output
from elmo_plugin.errors import warn_once

logger = logging.getLogger(__name__)


class WordVectors:
    """
    The vectors of the words that one encoder has met, up to `capacity` words (threads that enter words at the
    same time may exceed it, by a batch each); then it starts again with the words of the next batch. Of a
    batch with more new words than that, none is kept.

    A word is entered together with its vector, in one step. So whatever stops a call, and whatever other
    threads do, a word that is found has its vector.

    # Parameters

    capacity : `int`
        Number of words; 0 keeps none.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.clear()

    def __len__(self) -> int:
        return len(self._vector_of)

    def clear(self) -> None:
        """Forget every word."""
        self._vector_of: Dict[bytes, Tensor] = {}

    def __reduce__(self) -> Tuple[Any, ...]:
        return WordVectors, (self.capacity,)

    def read(self, words: Tensor, encode: Callable[[Tensor], Tensor]) -> Tensor:
        """
        Return the vectors of distinct words, `(num_words, dim)`, not to be written to: known ones that were
        kept, the others by one call of `encode`, which must be the same function in each call.

        # Parameters

        words : `Tensor`
            `(num_words, 50)`, character ids.
        encode : `Callable[[Tensor], Tensor]`
            From `(n, 50)` to `(n, dim)`.
        """
        if self.capacity == 0:
            return encode(words)
        keys = [row.tobytes() for row in words.to("cpu", torch.int16).numpy()]
        vector_of = self._vector_of  # another thread may begin a new one
        vectors = [vector_of.get(key) for key in keys]
        unknown = [number for number, vector in enumerate(vectors) if vector is None]
        new: Dict[int, Tensor] = {}
        if unknown:
            are_all_unknown = len(unknown) == len(keys)
            new_vectors = encode(words if are_all_unknown else words[unknown])
            new = dict(zip(unknown, new_vectors.unbind()))
            if len(new) <= self.capacity:
                if len(vector_of) + len(new) > self.capacity:
                    self._vector_of = vector_of = {}
                vector_of.update((keys[number], vector) for number, vector in new.items())
            if are_all_unknown:
                return new_vectors
        return torch.stack([new[n] if one is None else one for n, one in enumerate(vectors)])


class SentenceActivations:
    """
    The activations of the sentences that a frozen biLM has read, so that the epochs of a task after the first
    need not run it. Nothing is evicted: each epoch reads every sentence once, so eviction would not help.

    # Parameters

    capacity_mb : `float`
        Memory to use, in MB; 0 for none.
    """

    def __init__(self, capacity_mb: float) -> None:
        self.capacity_mb = capacity_mb
        self._num_bytes = 0
        # Characters of a sentence -> (num_layers, tokens, dim).
        self._activations_of: Dict[bytes, Tensor] = {}

    def __len__(self) -> int:
        return len(self._activations_of)

    def __reduce__(self) -> Tuple[Any, ...]:
        return SentenceActivations, (self.capacity_mb,)

    def read(self, character_ids: Tensor, run: Callable[[Tensor], Output]) -> Output:
        """Return what `run` returns for a batch; it is called for the sentences that are not kept yet."""
        if self.capacity_mb == 0 or len(character_ids) == 0:
            return run(character_ids)
        lengths = mask_of(character_ids).sum(dim=1)
        characters = character_ids.to(torch.int16).numpy()
        keys = [characters[row, :length].tobytes() for row, length in enumerate(lengths.tolist())]
        known = {key: self._activations_of[key] for key in keys if key in self._activations_of}
        unknown = [row for row, key in enumerate(keys) if key not in known]
        if unknown:
            layers = run(character_ids[unknown])["activations"]
            for number, row in enumerate(unknown):
                # (num_layers, tokens, dim), in its own memory: a view would keep the whole batch.
                num_tokens = int(lengths[row]) + 2
                known[keys[row]] = torch.stack([layer[number, :num_tokens] for layer in layers])
                self._keep(keys[row], known[keys[row]])
        like = known[keys[0]]
        num_layers, _, dim = like.shape
        shape = (len(keys), character_ids.size(1) + 2, dim)
        # A tensor for each layer: whoever keeps one does not keep the others.
        activations = [like.new_zeros(shape) for _ in range(num_layers)]
        for row, key in enumerate(keys):
            for layer, vectors in zip(activations, known[key]):
                layer[row, : len(vectors)] = vectors
        mask = torch.arange(shape[1], device=lengths.device) < lengths.unsqueeze(1) + 2
        return {"activations": activations, "mask": mask}

    def _keep(self, key: bytes, activations: Tensor) -> None:
        if key in self._activations_of:  # it stands in the batch twice
            return
        num_bytes = len(key) + activations.nbytes
        if self._num_bytes + num_bytes > self.capacity_mb * 1e6:
            warn_once(
                logger,
                f"The sentence cache of {self.capacity_mb:,} MB is full: all other sentences are read anew "
                "in each epoch. If there is memory, raise sentence_cache_mb.",
            )
        else:
            self._num_bytes += num_bytes
            self._activations_of[key] = activations
