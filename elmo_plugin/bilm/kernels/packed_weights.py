"""Weights in the forms that kernels multiply by, made once."""

import threading
from typing import Any, Dict, List, Sequence, Tuple

from elmo_plugin.bilm.kernels.lstm_kernel import LSTMKernel
from elmo_plugin.bilm.projected_lstm import ProjectedLSTM
from elmo_plugin.bilm.word_type_cache import version_of


class PackedWeights:
    """
    Keeps what a kernel made of the weights of layers, until the weights change.

    Several threads may use one. Copies and pickles start empty.
    """

    def __init__(self) -> None:
        # Number of a layer -> version of its weights, kernel and precision; what the kernel made of it.
        self._held: Dict[int, Tuple[Any, List[Any]]] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> Tuple[Any, ...]:
        return PackedWeights, ()

    def __len__(self) -> int:
        return len(self._held)

    def clear(self) -> None:
        """Forget them all; they are made again when they are needed."""
        with self._lock:
            self._held.clear()

    def of(
        self, number: int, layers: Sequence[ProjectedLSTM], kernel: LSTMKernel, precision: str
    ) -> List[Any]:
        """
        What `kernel.pack` makes of the weights that `layers` have now.

        # Parameters

        number : `int`
            Tells these layers from others.
        """
        version = (kernel.name, precision, [version_of(layer) for layer in layers])
        with self._lock:
            if number not in self._held or self._held[number][0] != version:
                # First forget: two forms of the same layers take twice the memory.
                self._held.pop(number, None)
                self._held[number] = (
                    version,
                    [kernel.pack(layer, precision) for layer in layers],
                )
            return self._held[number][1]
