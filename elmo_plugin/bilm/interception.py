"""Detects what other code does to a biLM: changed modules, hooks, and calls that are recorded in graphs."""

import functools
from typing import Any, Callable, Dict, Iterable, Optional, Tuple, Type, TypeVar, cast

import torch

Call = TypeVar("Call", bound=Callable[..., Any])


# Public attributes that do not change what a biLM computes from a batch and its states.
_WITHOUT_EFFECT = {"training", "stateful", "carried_states", "num_possible_updates"}


def settings_of(module: torch.nn.Module) -> Dict[str, Any]:
    """Return what a module computes by, beside its tensors and submodules: sizes, clips, activations."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and name not in _WITHOUT_EFFECT
    }


def changed_setting(module: torch.nn.Module, built: torch.nn.Module) -> Optional[str]:
    """
    Return the first setting of a module, or the class of a submodule, which differs from that of another one
    as it was built, as a clause; `None` if all are the same.
    """
    others = dict(built.named_modules())
    for name, one in module.named_modules():
        if name and name in others and type(one) is not type(others[name]):
            built_as = type(others[name]).__name__
            return f"its {name} is of class {type(one).__name__}, and {built_as} by its options"
        expected = settings_of(others[name]) if name in others else {}
        found = settings_of(one)
        for key, value in expected.items():
            # Of another type it could be a tensor, which compares element by element.
            if type(found.get(key)) is not type(value) or found[key] != value:
                place = f"{name}.{key}" if name else key
                return f"its {place} is {found.get(key)}, and {value} by its options"
    return None


def are_plain(modules: Iterable[Tuple[torch.nn.Module, Type[torch.nn.Module]]]) -> bool:
    """
    Return whether each module is of exactly the class beside it, and nothing runs beside its `forward`: no
    hooks (as those of `torch.nn.utils.prune`), neither its own nor those of all modules of the process, no
    parametrization (which replaces the class), no other `forward`. Submodules are not checked.
    """
    process = torch.nn.modules.module
    if (
        process._global_forward_pre_hooks
        or process._global_forward_hooks
        or process._global_backward_pre_hooks
        or process._global_backward_hooks
    ):
        return False
    for module, built_as in modules:
        attributes = module.__dict__
        if (
            type(module) is not built_as
            or "forward" in attributes
            or attributes["_forward_pre_hooks"]
            or attributes["_forward_hooks"]
            or attributes["_backward_pre_hooks"]
            or attributes["_backward_hooks"]
        ):
            return False
    return True


def eager(call: Call) -> Call:
    """
    Let `torch.compile` leave a call out of its graphs, and `torch.jit.trace` refuse it: the operations of a
    biLM depend on the words of a batch.

    # Raises

    `RuntimeError` while torch.jit traces.
    """

    @functools.wraps(call)
    def run(*arguments: Any, **keywords: Any) -> Any:
        if torch.jit.is_tracing():
            raise RuntimeError(
                "torch.jit.trace met a biLM, whose operations depend on the words of each batch: a trace "
                "would give wrong vectors for other sentences. `elmo export` writes a biLM as a program."
            )
        if torch.compiler.is_compiling():
            return torch.compiler.disable(call)(*arguments, **keywords)
        return call(*arguments, **keywords)

    return cast(Call, run)
