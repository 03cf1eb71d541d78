"""What other code does to a biLM: runs beside or in place of its modules, or records its calls in graphs."""

import functools
from typing import Any, Callable, Type, TypeVar, cast

import torch

Call = TypeVar("Call", bound=Callable[..., Any])


def is_plain(module: torch.nn.Module, built_as: Type[torch.nn.Module]) -> bool:
    """
    Return whether a module is of exactly this class, and nothing runs beside its `forward`: no hooks (as
    those of `torch.nn.utils.prune`), no parametrization (which replaces the class), no other `forward`. Its
    own submodules are not looked at.
    """
    attributes = module.__dict__
    return type(module) is built_as and not (
        "forward" in attributes
        or attributes["_forward_pre_hooks"]
        or attributes["_forward_hooks"]
        or attributes["_backward_pre_hooks"]
        or attributes["_backward_hooks"]
    )


def has_global_hooks() -> bool:
    """Return whether hooks run at every module of the process, see `register_module_forward_hook`."""
    hooks = torch.nn.modules.module
    return bool(
        hooks._global_forward_pre_hooks
        or hooks._global_forward_hooks
        or hooks._global_backward_pre_hooks
        or hooks._global_backward_hooks
    )


def eager(call: Call) -> Call:
    """
    Let `torch.compile` leave this call out of its graphs, and `torch.jit.trace` refuse it: what it does
    depends on the words of a batch.

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
