"""When `Elmo` runs a snapshot of its biLM, and when the modules themselves."""

import logging
from typing import Any, Dict, List, Optional, Tuple

import torch

from elmo_plugin.bilm.bilm import BiLM
from elmo_plugin.bilm.frozen import FrozenBiLM, reason_against_copying
from elmo_plugin.bilm.interception import are_plain, eager, settings_of
from elmo_plugin.bilm.runners import InferenceSettings
from elmo_plugin.errors import warn_once

logger = logging.getLogger(__name__)


class CurrentSnapshot:
    """
    The `FrozenBiLM` of a `BiLM` whose weights may change, for `Elmo`.

    A snapshot is used while all of this holds; else a new one is made, or the modules themselves have to run:
    - no parameter requires a gradient or has one, so that no optimizer can change it;
    - there was no pass with gradients since, and no call of `requires_grad_`;
    - each submodule is the object that it was, of exactly the class that `BiLM` builds, with the settings
      that the options say, and nothing runs beside its `forward`;
    - each parameter is the tensor object that it was, in the same memory, at the same `_version`.
    Under autocast the modules run, too, unless the settings name another precision than float32.

    A write through `parameter.data` outside of training is not seen; call `BiLM.requires_grad_` after it.

    # Parameters

    settings : `InferenceSettings`
        How snapshots run.
    """

    def __init__(self, settings: InferenceSettings) -> None:
        self.settings = settings
        self._made: Optional[Tuple[_Composition, FrozenBiLM]] = None

    def __reduce__(self) -> Tuple[Any, ...]:
        return CurrentSnapshot, (self.settings,)

    @eager
    def get(self, bilm: BiLM) -> Optional[FrozenBiLM]:
        """Return the snapshot to run in place of the biLM; `None` if its modules have to run."""
        if getattr(bilm, "_is_replica", False):
            return None  # its `forward` raises an error
        device_type = next(bilm.parameters()).device.type
        if self.settings.precision == "float32" and torch.is_autocast_enabled(device_type):
            # Autocast says in what to multiply, which the modules follow.
            if bilm.is_frozen:
                warn_once(
                    logger,
                    "Under autocast (use_amp) the frozen biLM runs slowly, by its modules. Set its precision "
                    "to bfloat16, which is faster than autocast.",
                )
            return None
        made = self._made  # read once, as other threads may replace it
        if made is not None:
            composition, frozen = made
            if composition.is_still_of(bilm):
                return frozen
        self._made = None
        reason = _reason_against_snapshot(bilm)
        if reason is not None:
            if bilm.is_frozen:
                warn_once(
                    logger,
                    f"The frozen biLM runs slowly, by its modules: {reason}. (In the first batch of a "
                    "training AllenNLP's own checks add hooks: then this ends with that batch.)",
                )
            return None
        # Noted before weights are copied: a change from now on is seen.
        composition = _Composition(bilm)
        frozen = FrozenBiLM.from_bilm(bilm, self.settings)
        logger.info(
            "The frozen biLM runs in %s on the %s kernel (%s).",
            frozen.precision,
            frozen.kernel,
            frozen.device,
        )
        self._made = composition, frozen
        return frozen


class _Composition:
    """What a biLM consisted of: objects, which it keeps from being replaced unnoticed."""

    def __init__(self, bilm: BiLM) -> None:
        self._bilm = bilm
        self._num_possible_updates = bilm.num_possible_updates
        self._classes = [(module, type(module)) for module in bilm.modules()]
        # The dictionaries of each module, how long they are, and the objects in them.
        self._lengths: List[Tuple[Dict[str, Any], int]] = []
        self._objects: List[Tuple[Dict[str, Any], str, Any]] = []
        for module, _ in self._classes:
            submodules, parameters = module._modules, module._parameters
            settings = {**settings_of(module), "_modules": submodules, "_parameters": parameters}
            self._note(vars(module), settings)
            self._note(submodules, submodules)
            self._note(parameters, parameters)
        self._parameters = [(one, one.detach(), one._version) for one in bilm.parameters()]

    def _note(self, dictionary: Dict[str, Any], objects: Dict[str, Any]) -> None:
        self._lengths.append((dictionary, len(dictionary)))
        self._objects += [(dictionary, name, value) for name, value in objects.items()]

    def is_still_of(self, bilm: BiLM) -> bool:
        """Return whether all that `CurrentSnapshot` names is unchanged."""
        if (
            bilm is not self._bilm
            or bilm.num_possible_updates != self._num_possible_updates
            or not are_plain(self._classes)
        ):
            return False
        for dictionary, length in self._lengths:
            if len(dictionary) != length:
                return False
        for dictionary, name, value in self._objects:
            if dictionary.get(name) is not value:
                return False
        for parameter, memory, version in self._parameters:
            if (
                parameter.requires_grad
                or parameter.grad is not None
                or parameter._version != version
                # `Module.to` exchanges the memory of a parameter.
                or parameter.dtype != memory.dtype
                or parameter.device != memory.device
                or not parameter.is_set_to(memory)
            ):
                return False
        return True


def _reason_against_snapshot(bilm: BiLM) -> Optional[str]:
    """Return why the modules of a biLM have to run, as a clause; `None` if a snapshot may run instead."""
    for parameter in bilm.parameters():
        if parameter.requires_grad:
            return "its parameters require gradients"
        if parameter.grad is not None:
            return "its parameters have gradients, call zero_grad()"
        if parameter.is_inference():
            return "its parameters were moved or cast in inference mode, do that outside of it"
    return reason_against_copying(bilm)
