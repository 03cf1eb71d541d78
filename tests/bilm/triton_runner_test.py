"""The `triton` kernel: in Triton's interpreter, compiled for GPUs, and on a GPU where there is one."""

import math
import re
import subprocess
from pathlib import Path
from typing import Any, Callable, List, Optional, Tuple

import pytest
import torch
from torch import Tensor

from elmo_plugin import FrozenBiLM, batch_to_ids
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.runners import Runner, triton_runner
from elmo_plugin.bilm.runners.reference_runner import ReferenceRunner
from elmo_plugin.bilm.runners.triton_runner import TritonRunner
from elmo_plugin.bilm.steps import LayerInput, LayerOutput
from tests.bilm.runners_test import (
    assert_outcomes_are_close,
    new_encoder,
    new_layer,
    new_layer_input,
)
from tests.closeness import assert_close
from tests.conftest import SENTENCES, BiLMFiles, roundings_of, terms_of

if triton_runner.triton_problem() is not None:
    pytest.skip(str(triton_runner.triton_problem()), allow_module_level=True)

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from elmo_plugin.bilm.runners import triton_steps

PRECISIONS = ("float32", "bfloat16")

# What a program may have, by compute capability, in KiB. 8.6 and 12.0 are consumer GPUs. 8.0 has the
# instructions of 8.6, and more memory.
SHARED_MEMORY = {86: 99, 90: 227, 120: 99}


def new_layers(
    cell_size: int, projection_dim: int, clip: Optional[float] = 0.6
) -> List[ProjectedLSTM]:
    """Return a layer for each direction."""
    shape = (projection_dim, cell_size, projection_dim)
    return [new_layer(shape, clip, seed) for seed in range(2)]


def run(
    runner: "type[Runner]",
    layers: List[ProjectedLSTM],
    step_sizes: List[int],
    precision: str,
    device: str = "cpu",
) -> List[LayerOutput]:
    """Run both directions, each over other inputs and from other states."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    runs = [
        LayerInput(
            normal(sum(step_sizes), layer.input_dim),
            step_sizes,
            normal(step_sizes[0], layer.projection_dim),
            normal(step_sizes[0], layer.cell_size),
        )
        for layer in layers
    ]
    tensors = [layer.to(device).tensors() for layer in layers]
    return runner.prepare(new_encoder("relu").to(device), tensors, precision).layers[0](runs)


def assert_equals_the_reference(
    layers: List[ProjectedLSTM], step_sizes: List[int], precision: str, device: str = "cpu"
) -> None:
    ours, theirs = (
        run(runner, layers, step_sizes, precision, device)
        for runner in (TritonRunner, ReferenceRunner)
    )
    for own, their in zip(ours, theirs, strict=True):
        assert_outcomes_are_close(own, their, layers[0], step_sizes, precision)
    assert not torch.equal(ours[0].outputs, ours[1].outputs)


@pytest.mark.usefixtures("interpreted_triton")
class TestInTheInterpreter:
    @pytest.mark.parametrize("projection_dim", [24, 40], ids=["projected", "not projected"])
    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_it_equals_the_reference(self, precision: str, projection_dim: int) -> None:
        # As many rows as each kind of program takes, and more.
        assert_equals_the_reference(new_layers(40, projection_dim), [70, 33, 17, 16, 1], precision)

    def test_weights_in_another_order_in_memory(self) -> None:
        layers = new_layers(40, 24)
        layers[1].gate_weight.data = layers[1].gate_weight.t().contiguous().t()
        assert_equals_the_reference(layers, [3, 2, 1], "float32")

    @pytest.mark.parametrize("tokens", [1, 8, 30])
    def test_blocks_change_nothing(self, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(triton_runner, "TOKENS_PER_BLOCK", tokens)
        assert_equals_the_reference(new_layers(40, 24), [9, 9, 5, 1, 1, 1], "float32")


class Target:
    """A GPU that Triton compiles for and that is not there."""

    def __init__(self, capability: int) -> None:
        self._capability = capability

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", self._capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


class Compiler:
    """Stands for a kernel: compiles it for each launch."""

    def __init__(self, function: Any, compiled: List[Any]) -> None:
        self._function = JITFunction(function.fn, do_not_specialize=triton_steps.CHANGING)
        self._compiled = compiled

    def __getitem__(self, grid: Tuple[int, ...]) -> Callable[..., None]:
        return lambda *args, **kwargs: self._compiled.append(
            self._function.warmup(*args, grid=grid, **kwargs)
        )


@pytest.mark.slow
@pytest.mark.parametrize("capability", SHARED_MEMORY)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_it_compiles_for_gpus(
    precision: str, capability: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(driver, "_active", Target(capability))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    compiled: List[Any] = []
    for name in ("write_hidden", "write_state"):
        compiler = Compiler(getattr(triton_steps, name), compiled)
        monkeypatch.setattr(triton_steps, name, compiler)
    step_sizes = [64, 16, 1]
    run(TritonRunner, new_layers(512, 128), step_sizes, precision)
    # Two launches a step, for both directions together.
    assert len(compiled) == 2 * len(step_sizes)
    for function in compiled:
        assert "mma" in function.asm["ptx"]
        # In one product, tensor cores would round float32 to TF32.
        products = function.asm["ttir"].count("tt.dot ")
        assert products == function.asm["ttir"].count("inputPrecision = tf32x3") > 0
        assert function.metadata.shared <= SHARED_MEMORY[capability] * 1024
        assert registers_spilt(function.asm["cubin"], tmp_path) == 0


def registers_spilt(cubin: bytes, folder: Path) -> int:
    """Bytes of memory that a compiled function keeps registers in."""
    file = folder / "function.cubin"
    file.write_bytes(cubin)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    usage = subprocess.run(
        [tool, "-res-usage", file], capture_output=True, text=True, check=True
    ).stdout
    (stack, local) = re.findall(r"(?:STACK|LOCAL):(\d+)", usage)
    return int(stack) + int(local)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
class TestOnAGPU:
    @pytest.mark.parametrize("clip", [None, 0.6])
    @pytest.mark.parametrize("sizes", [(96, 48), (96, 96), (4096, 512)], ids=str)
    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_it_equals_the_reference(
        self, precision: str, sizes: Tuple[int, int], clip: Optional[float]
    ) -> None:
        step_sizes = [70, 64, 33, 32, 17, 16, 16, 2, 1, 1]
        assert_equals_the_reference(new_layers(*sizes, clip), step_sizes, precision, "cuda")

    @pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
    @pytest.mark.parametrize("where", ["gate_weight", "projection"])
    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_what_is_not_finite_passes_as_in_the_reference(
        self, precision: str, where: str, value: float
    ) -> None:
        layers = new_layers(96, 48, None)
        getattr(layers[0], where)[5, 7] = value
        assert_equals_the_reference(layers, [3, 2, 1], precision, "cuda")

    def test_auto_takes_it(self, bilm_files: BiLMFiles) -> None:
        chosen = {
            precision: FrozenBiLM.from_files(*bilm_files, device="cuda", precision=precision)
            for precision in (*PRECISIONS, "int8")
        }
        assert {bilm.kernel for bilm in chosen.values()} == {"triton"}
        assert [bilm.precision for bilm in chosen.values()] == [*PRECISIONS, "float32"]

    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_it_does_not_wait_for_the_gpu(self, precision: str) -> None:
        layers = [layer.to("cuda") for layer in new_layers(96, 48)]
        encoder = new_encoder("relu").to("cuda")
        tensors = [layer.tensors() for layer in layers]
        runner = TritonRunner.prepare(encoder, tensors, precision)
        inputs = torch.randn(6, 48, device="cuda")
        runs = [new_layer_input(layer, inputs, [3, 2, 1]) for layer in layers]
        # First it compiles.
        runner.layers[0](runs)
        torch.cuda.set_sync_debug_mode("error")
        try:
            runner.layers[0](runs)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_a_bilm_gives_what_the_reference_gives(
        self, precision: str, bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # By default torch rounds convolutions, as those of characters, to TF32.
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
        ids = batch_to_ids(SENTENCES)
        ours, theirs = (
            FrozenBiLM.from_files(*bilm_files, device=device, kernel=kernel, precision=precision)(
                ids
            )["activations"]
            for device, kernel in (("cuda", "triton"), ("cpu", "reference"))
        )
        for own, their in zip(ours, theirs, strict=True):
            assert_close(own, their, terms_of(9), dtype=precision, roundings=roundings_of(9))
