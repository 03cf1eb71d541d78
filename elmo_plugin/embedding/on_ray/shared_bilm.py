"""A biLM in Ray's object store, once on each node."""

import copy
import warnings
from typing import Any, Dict

import numpy
import torch
from torch.nn import Parameter

from elmo_plugin.bilm import BiLM
from elmo_plugin.embedding.on_ray.ray_session import import_ray


class SharedBiLM:
    """
    A frozen biLM that processes on many machines can take up without a copy of its weights.

    Its weights are put into Ray's object store. There they are sent to a node once, when the first process
    of that node asks for them; the parameters of every biLM made there are views of this memory, which
    cannot be written to. The object itself is small, and pickles. (What kernels make of the weights is each
    process's own, unless the biLM has a `packed_folder`.)

    # Parameters

    bilm : `BiLM`
        Its weights and all of its settings are taken; it stays as it is.
    """

    def __init__(self, bilm: BiLM) -> None:
        weights = {name: _as_array(parameter) for name, parameter in bilm.named_parameters()}
        # A copy of everything but the parameters: where they stand, there is `None`.
        self._without_weights = copy.deepcopy(bilm, {id(p): None for p in bilm.parameters()})
        self._weights = import_ray().put(weights)

    def bilm(self) -> BiLM:
        """A biLM like the one that was shared, frozen, over the shared weights."""
        weights: Dict[str, numpy.ndarray] = import_ray().get(self._weights)
        bilm = copy.deepcopy(self._without_weights)
        for name, array in weights.items():
            owner, _, attribute = name.rpartition(".")
            parameter = Parameter(_as_tensor(array), requires_grad=False)
            setattr(bilm.get_submodule(owner), attribute, parameter)
        return bilm


def _as_array(parameter: Any) -> numpy.ndarray:
    """In an order that is sent and mapped as it stands."""
    array = parameter.detach().cpu().numpy()
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return array
    return numpy.ascontiguousarray(array)


def _as_tensor(array: numpy.ndarray) -> torch.Tensor:
    with warnings.catch_warnings():
        # Nothing writes to frozen parameters.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)
