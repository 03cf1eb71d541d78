"""The rule by which `Elmo` runs a snapshot in place of its biLM."""

import logging
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

from elmo_plugin.bilm.bilm import BiLM
from elmo_plugin.bilm.frozen import FrozenBiLM, InferenceSettings, reason_against_copying
from elmo_plugin.bilm.interception import has_global_hooks, is_plain
from elmo_plugin.warn_once import warn_once

logger = logging.getLogger(__name__)


class CurrentSnapshot:
    """
    The `FrozenBiLM` of a `BiLM` whose weights may change, for `Elmo`.

    A snapshot is used while all of this holds; else a new one is made, or the modules themselves have to run:
    - no parameter requires a gradient or has one, so that no optimizer can change it;
    - there was no pass with gradients since, and no call of `requires_grad_`;
    - each submodule is the object that it was, of exactly the class that `BiLM` built, and nothing runs
      beside its `forward`;
    - each parameter is the tensor object that it was, in the same memory, at the same `_version`.
    Under autocast the modules run, too, unless the settings name a precision.

    What writes through `parameter.data` outside of training is not seen. Call `forget` after that.

    # Parameters

    settings : `InferenceSettings`
        How snapshots run.
    """

    def __init__(self, settings: InferenceSettings) -> None:
        self.settings = settings
        self._made: Optional[_Made] = None

    def __reduce__(self) -> Tuple[Any, ...]:
        return CurrentSnapshot, (self.settings,)

    def of(self, bilm: BiLM) -> Optional[FrozenBiLM]:
        """Return the snapshot to run in place of the biLM; `None` if its modules have to run."""
        device_type = next(bilm.parameters()).device.type
        if self.settings.precision == "float32" and torch.is_autocast_enabled(device_type):
            # Autocast says in what to multiply, which the modules follow.
            return None
        made = self._made
        if made is not None and made.is_current(bilm):
            return made.frozen
        self._made = None
        reason = _reason_against_snapshot(bilm)
        if reason is not None:
            if bilm.is_frozen:
                warn_once(logger, f"The frozen biLM runs slowly, by its modules: {reason}.")
            return None
        # What is compared is noted first: a change from now on is seen.
        made = _Made(bilm)
        made.frozen = FrozenBiLM.of(bilm, self.settings)
        logger.info(
            "The frozen biLM runs in %s on the %s kernel (%s).",
            made.frozen.precision,
            made.frozen.kernel,
            made.frozen.device,
        )
        self._made = made
        return made.frozen

    def forget(self) -> None:
        """Make a new snapshot when one is asked for next."""
        self._made = None


class _Made:
    """A snapshot, and what its biLM consisted of: objects, which it keeps from being replaced unnoticed."""

    frozen: FrozenBiLM

    def __init__(self, bilm: BiLM) -> None:
        self._bilm = bilm
        self._num_trainings = bilm.num_trainings
        self._modules = [
            (module, type(module), list(module._modules.values())) for module in bilm.modules()
        ]
        self._parameters = [
            (parameter, parameter.detach(), parameter._version) for parameter in bilm.parameters()
        ]

    def is_current(self, bilm: BiLM) -> bool:
        """Return whether all that `CurrentSnapshot` names is as it was."""
        if (
            bilm is not self._bilm
            or bilm.num_trainings != self._num_trainings
            or has_global_hooks()
        ):
            return False
        found: List[Optional[Tensor]] = []
        for module, built_as, modules in self._modules:
            if not is_plain(module, built_as) or list(module._modules.values()) != modules:
                return False
            found += module._parameters.values()
        # Without those that are `None`, such as a projection that there is not.
        parameters = [one for one in found if one is not None]
        if len(parameters) != len(self._parameters):
            return False
        for one, (parameter, memory, version) in zip(parameters, self._parameters):
            if not (
                one is parameter
                and not one.requires_grad
                and one.grad is None
                and one._version == version
                # `Module.to` exchanges the memory of a parameter.
                and one.dtype == memory.dtype
                and one.device == memory.device
                and one.is_set_to(memory)
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
