"""The number of threads of torch, the libraries in C++, and the `triton` kernel on the CPU."""

from typing import Any, Iterator, Optional

import pytest
import torch

from elmo_plugin.bilm.runners import triton_runner
from elmo_plugin.bilm.simd.library import unsupported_reason


def skip_without_library(unit: Optional[str]) -> None:
    """Skip the test where the C++ library of a vector unit does not run."""
    reason = unsupported_reason(unit)
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def same_threads_afterwards() -> Iterator[None]:
    """Let a test set the number of threads of torch, without effect on later tests."""
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture
def interpreted_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Run the functions of the `triton` kernel in Triton's interpreter, on CPUs. Without Triton, or with an
    older one, change nothing.
    """
    if triton_runner.triton_problem() is not None:
        return
    import triton.language as tl
    from triton.runtime import interpreter

    from elmo_plugin.bilm.runners import triton_steps

    for name in ("write_hidden", "write_state"):
        function = getattr(triton_steps, name).fn
        monkeypatch.setattr(triton_steps, name, interpreter.InterpretedFunction(function))
    monkeypatch.setattr(triton_runner.TritonRunner, "device_type", "cpu")
    monkeypatch.setattr(triton_runner, "_gpu_problem", lambda device: None)

    # Of bfloat16 the interpreter (Triton 3.7.1) multiplies the bits as if they were integers, and it rounds
    # towards zero, where GPUs round to the nearest.
    builder = interpreter.InterpreterBuilder
    create_dot, cast = builder.create_dot, builder.cast_impl

    def create_dot_of_float32(self: Any, left: Any, right: Any, *others: Any) -> Any:
        # Products of two bfloat16 are exact in float32.
        return create_dot(
            self, *(cast(self, factor, tl.float32) for factor in (left, right)), *others
        )

    def rounding_cast(self: Any, source: Any, dtype: Any) -> Any:
        if (source.dtype.scalar, dtype.scalar) != (tl.float32, tl.bfloat16):
            return cast(self, source, dtype)
        rounded = torch.from_numpy(source.data).bfloat16()
        return interpreter.TensorHandle(rounded.view(torch.uint16).numpy(), tl.bfloat16)

    monkeypatch.setattr(builder, "create_dot", create_dot_of_float32)
    monkeypatch.setattr(builder, "cast_impl", rounding_cast)
