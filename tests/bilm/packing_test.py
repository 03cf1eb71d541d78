from typing import List

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence

from elmo_plugin.bilm.packing import Packing

lengths_of_rows = st.lists(st.integers(1, 6), min_size=1, max_size=6)


@given(lengths=lengths_of_rows, surplus=st.integers(0, 2))
def test_packing_agrees_with_torch(lengths: List[int], surplus: int) -> None:
    timesteps = max(lengths) + surplus
    padded = torch.arange(1, len(lengths) * timesteps + 1).view(len(lengths), timesteps)
    packing = Packing.from_lengths(torch.tensor(lengths), timesteps)
    expected = pack_padded_sequence(
        padded[packing.order], sorted(lengths, reverse=True), batch_first=True
    )
    assert torch.equal(padded[packing.row, packing.step], expected.data)
    assert packing.step_sizes == expected.batch_sizes.tolist()


@given(lengths=lengths_of_rows, surplus=st.integers(0, 2))
def test_unpacking_puts_tokens_back_and_zeros_padding(lengths: List[int], surplus: int) -> None:
    timesteps = max(lengths) + surplus
    padded = torch.arange(1.0, len(lengths) * timesteps + 1).view(len(lengths), timesteps, 1)
    for row, length in enumerate(lengths):
        padded[row, length:] = 0.0
    packing = Packing.from_lengths(torch.tensor(lengths), timesteps)
    assert torch.equal(packing.unpack(padded[packing.row, packing.step]), padded)


@given(lengths=lengths_of_rows)
def test_reverse_turns_each_sequence_around_and_is_its_own_inverse(lengths: List[int]) -> None:
    packing = Packing.from_lengths(torch.tensor(lengths), max(lengths))
    step, row = packing.step, packing.row
    assert torch.equal(row[packing.reverse], row)
    assert torch.equal(step[packing.reverse], torch.tensor(lengths)[row] - 1 - step)
    assert torch.equal(packing.reverse[packing.reverse], torch.arange(sum(lengths)))
