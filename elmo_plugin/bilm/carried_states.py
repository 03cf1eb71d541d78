"""The LSTM states that a stateful biLM carries from one batch to the next."""

from typing import List, Optional, Sequence

import torch
from torch import Tensor

from elmo_plugin.bilm.packing import Packing
from elmo_plugin.bilm.projected_lstm import State


class CarriedStates:
    """
    State and memory cell of every row, for each of `num_lstms` LSTMs, detached from the graph.

    A batch uses and updates the first rows. New rows start from zeros; rows beyond a smaller batch stay as
    they are, as in bilm-tf and AllenNLP.

    # Parameters

    num_lstms : `int`
        Layers times directions.
    """

    def __init__(self, num_lstms: int) -> None:
        self.num_lstms = num_lstms
        self._states: Optional[List[State]] = None

    def reset(self) -> None:
        """Forget all rows: the next batch starts from zeros."""
        self._states = None

    def initial(self, packing: Packing, like: Tensor) -> Sequence[Optional[State]]:
        """For each LSTM the states to start a batch from, longest row first; `None` for zeros."""
        if self._states is None:
            return [None] * self.num_lstms
        order, num_rows = packing.order, packing.batch_size
        return [
            # The biLM may have been moved or cast in the meantime.
            (_rows(state, num_rows).to(like)[order], _rows(cell, num_rows).to(like)[order])
            for state, cell in self._states
        ]

    def keep(self, states: List[State], packing: Packing) -> None:
        """Keep the states after a batch, given longest row first."""
        back_in_place = packing.order.argsort()
        kept = [
            (state.detach()[back_in_place], cell.detach()[back_in_place]) for state, cell in states
        ]
        if self._states is not None:
            kept = [
                (_followed_by(state, old_state), _followed_by(cell, old_cell))
                for (state, cell), (old_state, old_cell) in zip(kept, self._states)
            ]
        self._states = kept


def _rows(tensor: Tensor, num_rows: int) -> Tensor:
    """The first `num_rows` rows of `(rows, dim)`, zeros where there are fewer."""
    missing = num_rows - tensor.size(0)
    if missing <= 0:
        return tensor[:num_rows]
    return torch.cat([tensor, tensor.new_zeros(missing, tensor.size(1))])


def _followed_by(rows: Tensor, old_rows: Tensor) -> Tensor:
    """`rows`, and after them those of `old_rows` that they do not replace."""
    return torch.cat([rows, old_rows[rows.size(0) :].to(rows)])
