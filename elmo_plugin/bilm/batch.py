"""A batch of sentences as the biLM reads it: each distinct word once, and no padding."""

from dataclasses import dataclass, replace
from typing import List, Optional, Tuple

import numpy
import torch
from torch import Tensor

from elmo_plugin.bilm.characters import (
    MAX_CHARACTERS_PER_TOKEN,
    NUM_CHARACTER_IDS,
    sentence_marks,
)
from elmo_plugin.bilm.steps import State

# Types of ids. Smaller ones cannot hold 261, and torch takes uint8 and bool in an index for masks.
INTEGERS = (torch.long, torch.int, torch.short)

_ADVICE = "Make it with batch_to_ids or the elmo_character_ids indexer."


def read_batch(
    character_ids: Tensor, mask: Tensor, merge_sentences: bool
) -> Tuple[Tensor, Tensor, "Packing"]:
    """
    Find the distinct words of a batch, and pack its sentences with their marks.

    # Parameters

    character_ids : `Tensor`
        `(batch_size, timesteps, 50)`, at least one row.
    mask : `Tensor`
        `(batch_size, timesteps)`, where the words are: `mask_of(character_ids)`.
    merge_sentences : `bool`
        Read a sentence that stands in the batch several times (as in SRL, once for each of its predicates)
        only once. Not with carried states, which belong to rows.

    # Returns

    The distinct words, sentence marks included, `(num_words, 50)`; which of them each packed token is,
    `(num_tokens,)`; and the packing of the sentences with their marks.
    """
    lengths = mask.sum(dim=1)
    batch_size, timesteps = mask.shape
    # index: (num_tokens + 2,), the place in `words` of each token and of the two marks
    marks = sentence_marks().to(mask.device)
    words, index = distinct_words(torch.cat([character_ids[mask].long(), marks]))
    # (batch_size, timesteps + 2): which of the words stands where, -1 at padding.
    word_at = index.new_full((batch_size, timesteps + 2), -1)
    word_at[:, 0] = index[-2]
    word_at[:, 1:-1][mask] = index[:-2]
    word_at[torch.arange(batch_size, device=index.device), lengths + 1] = index[-1]
    sentence_of: Optional[Tensor] = None
    if merge_sentences and batch_size > 1:
        distinct, inverse = distinct_words(word_at)
        if distinct.size(0) < batch_size:
            word_at, sentence_of = distinct, inverse
    packing = Packing.from_lengths((word_at >= 0).sum(dim=1), timesteps + 2)
    word_of = word_at[packing.row, packing.step]
    if sentence_of is not None:
        # Equal rows of the batch share the tokens of their sentence.
        packing = replace(packing, position=packing.position.index_select(0, sentence_of))
    return words, word_of, packing


def mask_of(character_ids: Tensor) -> Tensor:
    """
    Return where the words are, `(batch_size, timesteps)`.

    # Raises

    `ValueError` if the tensor has the wrong shape or type, if an id is out of range, or if padding stands
    before a word.
    """
    if character_ids.dim() != 3 or character_ids.size(2) != MAX_CHARACTERS_PER_TOKEN:
        raise ValueError(
            f"character_ids has shape {tuple(character_ids.shape)}, expected "
            f"(batch_size, timesteps, {MAX_CHARACTERS_PER_TOKEN}). {_ADVICE}"
        )
    if character_ids.dtype not in INTEGERS:
        raise ValueError(
            f"character_ids has type {character_ids.dtype}, expected integers (torch.long). {_ADVICE}"
        )
    out_of_range = (character_ids < 0) | (character_ids >= NUM_CHARACTER_IDS)
    if bool(out_of_range.any()):
        row, step, position = out_of_range.nonzero()[0].tolist()
        raise ValueError(
            f"character_ids[{row}, {step}, {position}] is {int(character_ids[row, step, position])}, "
            f"expected 0 (padding) to {NUM_CHARACTER_IDS - 1}. {_ADVICE}"
        )
    mask = (character_ids > 0).any(dim=2)
    check_padding(mask, mask.sum(dim=1))
    return mask


def check_padding(mask: Tensor, lengths: Tensor) -> None:
    """Raise `ValueError` unless each row of `mask` is `True` at its first `lengths` steps and only there."""
    positions = torch.arange(mask.size(1), device=mask.device)
    misplaced = mask != (positions < lengths.unsqueeze(1))
    if bool(misplaced.any()):
        row, step = misplaced.nonzero()[0].tolist()
        raise ValueError(
            f"Row {row} has padding (only zeros) at step {step} before a word, expected all padding at "
            "the end of the row."
        )


def distinct_words(words: Tensor) -> Tuple[Tensor, Tensor]:
    """
    Return the distinct rows of `words`, `(num_words, num_characters)`, and the index of each word among them,
    `(num_words,)`: `distinct[index]` equals `words`, exactly.
    """
    # Sorting one hash per word is many times faster than sorting rows of 50 characters.
    hashes = (words * _multipliers(words)).sum(dim=1)
    unique_hashes, index = torch.unique(hashes, return_inverse=True)
    example = words.new_zeros(unique_hashes.size(0)).scatter_(
        0, index, torch.arange(words.size(0), device=words.device)
    )
    distinct = words[example]
    if not torch.equal(distinct[index], words):
        # Two words share a hash: next to impossible, and then the slow way is still right.
        distinct, index = torch.unique(words, dim=0, return_inverse=True)
    return distinct, index


@dataclass(frozen=True)
class Packing:
    """
    The order in which an LSTM reads a batch: step by step, the longest sequence first, no padding.

    Packed tensors have one row per real token. Rows of step `t` follow those of step `t - 1`; within a
    step the rows are the sequences that are at least `t + 1` long, by falling length. As the number of
    sequences at a step does not depend on the reading direction, both directions share one packing.

    # Parameters

    step_sizes : `List[int]`
        How many sequences each step has; never rising.
    order : `Tensor`
        `(batch_size,)`. The row of the padded batch that is i-th longest.
    row, step : `Tensor`
        `(num_tokens,)` each. The place of each packed token in the padded batch.
    reverse : `Tensor`
        `(num_tokens,)`. Packed indices that turn every sequence around; its own inverse.
    position : `Tensor`
        `(batch_size, timesteps)`. The packed index of each place in the padded batch; -1 at padding.
    """

    step_sizes: List[int]
    order: Tensor
    row: Tensor
    step: Tensor
    reverse: Tensor
    position: Tensor

    @classmethod
    def from_lengths(cls, lengths: Tensor, timesteps: int) -> "Packing":
        """
        Pack rows of these lengths, `(batch_size,)`, on any device. `timesteps` is the width of the padded
        batch.
        """
        device = lengths.device
        # numpy: of so few numbers, an operation of torch takes several times as long.
        array = lengths.cpu().numpy()
        order = numpy.argsort(-array, kind="stable")
        sorted_lengths = array[order]
        # (longest, batch_size): whether the i-th longest sequence reaches step t.
        present = numpy.arange(sorted_lengths[0])[:, None] < sorted_lengths
        step, rank = present.nonzero()
        row = order[rank]
        step_sizes = present.sum(axis=1)
        step_starts = step_sizes.cumsum() - step_sizes
        reverse = step_starts[sorted_lengths[rank] - 1 - step] + rank
        position = numpy.full((len(array), timesteps), -1)
        position[row, step] = numpy.arange(len(row))

        indices = [
            torch.from_numpy(numbers).to(device)
            for numbers in (order, row, step, reverse, position)
        ]
        return cls(step_sizes.tolist(), *indices)

    def unpack(self, packed: Tensor) -> Tensor:
        """
        Put packed rows, `(num_tokens, dim)`, back in place: `(batch_size, timesteps, dim)`, padding zero.
        """
        # By indices of rows: other indexing wakes torch's threads even for a short sentence, and they keep a
        # core busy for a while, which the C++ library could use.
        padded = packed.index_select(0, self.position.flatten().clamp(min=0))
        padded = padded.view(*self.position.shape, packed.size(-1))
        return padded.masked_fill_((self.position < 0).unsqueeze(-1), 0)


def _multipliers(words: Tensor) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(0)
    multipliers = torch.randint(
        torch.iinfo(torch.long).min,
        torch.iinfo(torch.long).max,
        (words.size(1),),
        generator=generator,
        device="cpu",
    )
    return multipliers.to(words.device)


class CarriedStates:
    """
    State and memory cell of every row, for each LSTM, detached from the graph. Whoever carries states from
    batch to batch has one.

    A batch uses and updates those of the first rows that have tokens. New rows start from zeros; rows beyond
    a smaller batch stay as they are, as in bilm-tf and AllenNLP.

    # Attributes

    states : `List[State]`, optional
        Of forward and backward of layer 0, then of layer 1 ...: `(num_rows, projection_dim)` and
        `(num_rows, cell_size)`. `None` before the first batch.
    """

    def __init__(self) -> None:
        self.states: Optional[List[State]] = None

    @property
    def num_rows(self) -> int:
        """Number of rows that have states."""
        return 0 if self.states is None else self.states[0][0].size(0)

    def reset(self, rows: Optional[Tensor] = None) -> None:
        """Let the next batch start from zeros: in all rows, or where `rows`, `(num_rows,)`, is true."""
        if rows is None or self.states is None:
            self.states = None
        else:
            rows = rows.unsqueeze(1).to(self.states[0][0].device)
            self.states = [
                (state.masked_fill(rows, 0), cell.masked_fill(rows, 0))
                for state, cell in self.states
            ]

    def initial(self, packing: Packing, like: Tensor) -> Optional[List[State]]:
        """
        Return for each LSTM the states to start a batch from, longest row first, on the device of `like` and
        with its type, but at least float32, since autocast casts only products. Return `None` if all rows
        start from zeros.
        """
        if self.states is None:
            return None
        rows, num_rows = _rows_with_tokens(packing), len(packing.order)
        dtype = torch.promote_types(like.dtype, torch.float32)

        def of_rows(tensor: Tensor) -> Tensor:
            # The biLM may have been moved or cast in the meantime.
            return _lengthened(tensor, num_rows).to(like.device, dtype)[rows]

        return [(of_rows(state), of_rows(cell)) for state, cell in self.states]

    def keep(self, states: List[State], packing: Packing) -> None:
        """Keep the states after a batch, given longest row first."""
        rows = _rows_with_tokens(packing).to(states[0][0].device)

        def updated(old: Tensor, new: Tensor) -> Tensor:
            return _lengthened(old.to(new), len(packing.order)).index_copy(0, rows, new)

        states = [(state.detach(), cell.detach()) for state, cell in states]
        old_states = self.states or [(state[:0], cell[:0]) for state, cell in states]
        self.states = [
            (updated(old_state, state), updated(old_cell, cell))
            for (old_state, old_cell), (state, cell) in zip(old_states, states)
        ]


def _rows_with_tokens(packing: Packing) -> Tensor:
    return packing.order[: packing.step_sizes[0]]


def _lengthened(tensor: Tensor, num_rows: int) -> Tensor:
    """`(rows, dim)` with zeros up to `num_rows`, where there are fewer."""
    missing = max(0, num_rows - tensor.size(0))
    return torch.nn.functional.pad(tensor, (0, 0, 0, missing))
