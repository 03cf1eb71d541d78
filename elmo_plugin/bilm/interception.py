"""What other code does to a biLM: runs beside or in place of its modules, or records its calls in graphs."""

import functools
from typing import Any, Callable, Iterable, Tuple, Type, TypeVar, cast

import torch

Call = TypeVar("Call", bound=Callable[..., Any])


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
