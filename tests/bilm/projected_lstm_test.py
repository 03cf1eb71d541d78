from typing import List, Tuple

import pytest
import torch
from torch import Tensor

from elmo_plugin.bilm import projected_lstm
from elmo_plugin.bilm.packing import Packing
from elmo_plugin.bilm.projected_lstm import ProjectedLSTM

LENGTHS = [3, 7, 1, 5, 7]


def packed_inputs(lengths: List[int], dim: int) -> Tuple[Tensor, Packing]:
    torch.manual_seed(0)
    padded = torch.randn(len(lengths), max(lengths), dim)
    packing = Packing.from_lengths(torch.tensor(lengths), max(lengths))
    return padded[packing.row, packing.step], packing


@pytest.mark.parametrize("projection_dim", [4, 10])
def test_without_clips_it_is_torchs_lstm(projection_dim: int) -> None:
    inputs, packing = packed_inputs(LENGTHS, 6)
    ours = ProjectedLSTM(6, 10, projection_dim)
    torch.nn.init.normal_(ours.bias)
    theirs = torch.nn.LSTM(6, 10, proj_size=projection_dim % 10)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.weight[:, :6])
        theirs.weight_hh_l0.copy_(ours.weight[:, 6:])
        theirs.bias_ih_l0.copy_(ours.bias + ours.forget_bias)
        theirs.bias_hh_l0.zero_()
        if ours.projection is not None:
            theirs.weight_hr_l0.copy_(ours.projection)
    packed = torch.nn.utils.rnn.PackedSequence(inputs, torch.tensor(packing.step_sizes))
    expected, (expected_state, expected_cell) = theirs(packed)
    outputs, (state, cell) = ours(inputs, packing.step_sizes)
    assert torch.allclose(outputs, expected.data, atol=1e-6)
    assert torch.allclose(state, expected_state[0], atol=1e-6)
    assert torch.allclose(cell, expected_cell[0], atol=1e-6)


def test_a_sequence_in_two_parts_with_carried_state_is_the_sequence() -> None:
    lstm = ProjectedLSTM(6, 10, 4, cell_clip=0.2, proj_clip=0.1)
    inputs, packing = packed_inputs([6, 6, 6], 6)
    whole, whole_state = lstm(inputs, packing.step_sizes)
    first, state = lstm(inputs[:9], [3, 3, 3])
    second, state = lstm(inputs[9:], [3, 3, 3], state)
    assert torch.allclose(torch.cat([first, second]), whole, atol=1e-6)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(state, whole_state))


def test_clips_hold() -> None:
    lstm = ProjectedLSTM(6, 10, 4, cell_clip=0.2, proj_clip=0.05)
    inputs, packing = packed_inputs(LENGTHS, 6)
    outputs, (_, cell) = lstm(10 * inputs, packing.step_sizes)
    assert outputs.abs().max().item() == pytest.approx(0.05)
    assert cell.abs().max().item() == pytest.approx(0.2)


def test_blocks_of_input_products_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lstm = ProjectedLSTM(6, 10, 4)
    inputs, packing = packed_inputs(LENGTHS, 6)
    expected, _ = lstm(inputs, packing.step_sizes)
    for tokens in (1, 7, 10):
        monkeypatch.setattr(projected_lstm, "TOKENS_PER_PRODUCT", tokens)
        assert torch.allclose(lstm(inputs, packing.step_sizes)[0], expected, atol=1e-6)


def test_gradients_are_those_of_finite_differences() -> None:
    lstm = ProjectedLSTM(3, 4, 2, cell_clip=0.5, proj_clip=0.4).double()
    inputs, packing = packed_inputs([3, 1, 2], 3)
    assert torch.autograd.gradcheck(
        lambda *tensors: lstm(tensors[0], packing.step_sizes)[0],
        (inputs.double().requires_grad_(True), *lstm.parameters()),
    )


def test_initial_values_are_glorots() -> None:
    torch.manual_seed(0)
    lstm = ProjectedLSTM(16, 64, 16)
    assert lstm.weight.abs().max().item() == pytest.approx((6 / (32 + 256)) ** 0.5, rel=0.01)
    assert lstm.projection is not None
    assert lstm.projection.abs().max().item() == pytest.approx((6 / (64 + 16)) ** 0.5, rel=0.01)
    assert not lstm.bias.any()
