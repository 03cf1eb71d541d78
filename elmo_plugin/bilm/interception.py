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


def change_since_built(module: torch.nn.Module, built: torch.nn.Module) -> Optional[str]:
    """
    Return what a module computes by, beside the values of its parameters, that differs from another one as it
    was built, as a clause; `None` if nothing does.
    """
    modules, built_modules = dict(module.named_modules()), dict(built.named_modules())
    if modules.keys() != built_modules.keys():
        return "modules in it were added or removed"
    for name, one in modules.items():
        place, built_as = f"its {name}" if name else "it", type(built_modules[name])
        if type(one) is not built_as:
            return (
                f"{place} is of class {type(one).__name__}, and {built_as.__name__} by its options"
            )
        if not are_plain([(one, built_as)]):
            return f"hooks or another forward run at {place}"
        found, expected = settings_of(one), settings_of(built_modules[name])
        for key, value in found.items():
            if key not in expected:
                return f"{place} has an attribute '{key}', which may change what it computes"
            # Of another type it could be a tensor, which compares element by element.
            if type(expected[key]) is not type(value) or expected[key] != value:
                place = f"{name}.{key}" if name else key
                return f"its {place} is {value}, and {expected[key]} by its options"
        if expected.keys() - found.keys():
            return f"{place} has no attribute '{min(expected.keys() - found.keys())}'"
    if dict(module.named_parameters()).keys() != dict(built.named_parameters()).keys():
        return "parameters in it were added or removed"
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


def without_second_derivatives(backward: Call) -> Call:
    """
    Let the backward pass of a `torch.autograd.Function` refuse to record its operations. Of some it cannot,
    and torch's own `once_differentiable` is not enough: `torch.autograd.grad` leaves out what leads to none
    of its inputs, and so returned second derivatives without that part.

    # Raises

    `RuntimeError` with `create_graph=True`.
    """

    @functools.wraps(backward)
    def run(*arguments: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph=True met a biLM that runs in C++, or the softmax of its training: they have no "
                "second derivatives. If it is the biLM, set the environment variable "
                "ELMO_CPU_CAPABILITY=default: torch's operations, which have them, then run instead."
            )
        return backward(*arguments)

    return cast(Call, run)
