"""Weights in the forms that kernels multiply by, made once."""

import threading
from typing import Any, Callable, Dict, Optional, Sequence, Tuple
from weakref import WeakValueDictionary

import torch

from elmo_plugin.bilm.kernels.packed_folder import PackedFolder
from elmo_plugin.bilm.weight_source import WeightSource
from elmo_plugin.bilm.weights_version import WeightsVersion


class PackedWeights:
    """
    Keeps what a kernel made of the weights of modules, until the weights change.

    Several biLMs of one weight file share what is made of the same weights. Several threads may use one
    object. Copies and pickles start empty.

    # Parameters

    source : `WeightSource`, optional
        Where the weights come from. What is made of weights that are still those of the file is shared.
    folder : `PackedFolder`, optional
        Where to keep what is made, for other processes too.
    """

    def __init__(
        self, source: Optional[WeightSource] = None, folder: Optional[PackedFolder] = None
    ) -> None:
        self._source = source
        self._folder = folder
        # Name of a module -> version of its weights and settings; what was made of them.
        self._held: Dict[str, Tuple[Any, _Packed]] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> Tuple[Any, ...]:
        return PackedWeights, (None, self._folder)

    def __len__(self) -> int:
        return len(self._held)

    def clear(self) -> None:
        """Forget them all; they are made again when they are needed."""
        with self._lock:
            self._held.clear()

    def distrust(self) -> None:
        """Forget them all, and the source too: weights have changed without a trace."""
        self.clear()
        self._source = None

    def of(
        self,
        name: str,
        module: torch.nn.Module,
        settings: Any,
        pack: Callable[[Any], Any],
        types: Sequence[type] = (),
    ) -> Any:
        """
        What `pack` makes of the weights that `module` has now.

        # Parameters

        name : `str`
            Of the module within the biLM.
        settings : `Any`
            All that `pack` depends on beside the weights.
        pack : `Callable[[Module], Any]`
            Gets `module`, or one like it with the same weights. Its result must not change.
        types : `Sequence[type]`, optional
            The classes that its result consists of, beside tensors, if it can be kept in a file.
        """
        if self._folder is not None and types:
            pack = _through(self._folder, module, settings, pack, types)

        version = (settings, WeightsVersion(module))
        with self._lock:
            held = self._held.get(name)
            if held is None or held[0] != version:
                # First forget: two forms of one weight take twice the memory.
                self._held.pop(name, None)
                held = (version, self._new(name, module, settings, pack))
                self._held[name] = held
            return held[1].value

    def _new(
        self, name: str, module: torch.nn.Module, settings: Any, pack: Callable[[Any], Any]
    ) -> "_Packed":
        if self._source is None or not self._source.holds(name, module):
            return _Packed(pack(module))
        folder = self._folder and self._folder.folder
        key = (self._source.identity, name, settings, folder)
        with _shared_lock:
            packed = _shared.get(key)
            if packed is None:
                packed = _shared[key] = _Packed(pack(module))
            return packed


def _through(
    folder: PackedFolder,
    module: torch.nn.Module,
    settings: Any,
    pack: Callable[[Any], Any],
    types: Sequence[type],
) -> Callable[[Any], Any]:
    parameters = [name for name, _ in module.named_parameters()]
    return lambda module: folder.stored(module, parameters, settings, pack, types)


class _Packed:
    def __init__(self, value: Any) -> None:
        self.value = value


# What biLMs of this process made of weight files, for as long as one of them needs it.
_shared: "WeakValueDictionary[Any, _Packed]" = WeakValueDictionary()
_shared_lock = threading.Lock()
