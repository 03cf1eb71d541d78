"""What a biLM's input must look like, said where it does not."""

from typing import Optional

import torch
from torch import Tensor

from elmo_plugin.bilm.character_ids import MAX_CHARACTERS_PER_TOKEN

_ADVICE = "Make it with batch_to_ids or the elmo_characters indexer."


def check_character_ids(character_ids: Tensor, num_ids: int) -> None:
    """Raise `ValueError` unless this is `(batch_size, timesteps, 50)` of ids from 0 to `num_ids - 1`."""
    if character_ids.dim() != 3 or character_ids.size(2) != MAX_CHARACTERS_PER_TOKEN:
        raise ValueError(
            f"character_ids has shape {tuple(character_ids.shape)}, expected "
            f"(batch_size, timesteps, {MAX_CHARACTERS_PER_TOKEN}). {_ADVICE}"
        )
    if character_ids.dtype not in (torch.long, torch.int, torch.short):
        raise ValueError(
            f"character_ids has type {character_ids.dtype}, expected integers (torch.long). {_ADVICE}"
        )
    wrong = _value_out_of_range(character_ids, num_ids)
    if wrong is not None:
        row, step, position = (character_ids == wrong).nonzero()[0].tolist()
        raise ValueError(
            f"character_ids[{row}, {step}, {position}] is {wrong}, expected 0 (padding) to "
            f"{num_ids - 1}. {_ADVICE}"
        )


def check_word_ids(word_ids: Tensor, character_ids: Tensor) -> None:
    """Raise `ValueError` unless this has `character_ids`' shape without characters, and no negatives."""
    if word_ids.shape != character_ids.shape[:2]:
        raise ValueError(
            f"word_ids has shape {tuple(word_ids.shape)}, expected that of character_ids without "
            f"characters, {tuple(character_ids.shape[:2])}."
        )
    if word_ids.numel() > 0 and int(word_ids.min()) < 0:
        row, step = (word_ids < 0).nonzero()[0].tolist()
        raise ValueError(
            f"word_ids[{row}, {step}] is {int(word_ids[row, step])}, expected 0 (padding) or the index of "
            "a cached word."
        )


def check_padding(mask: Tensor, lengths: Tensor) -> None:
    """Raise `ValueError` unless each row of `mask` is `True` at its first `lengths` steps and only there."""
    positions = torch.arange(mask.size(1), device=mask.device)
    misplaced = mask != (positions.unsqueeze(0) < lengths.unsqueeze(1))
    if bool(misplaced.any()):
        row, step = misplaced.nonzero()[0].tolist()
        raise ValueError(
            f"Row {row} has padding (only zeros) at step {step} before a word, expected all padding at "
            "the end of the row."
        )


def _value_out_of_range(tensor: Tensor, limit: int) -> Optional[int]:
    if tensor.numel() == 0:
        return None
    smallest, largest = (int(value) for value in torch.aminmax(tensor))
    if smallest < 0:
        return smallest
    return largest if largest >= limit else None
