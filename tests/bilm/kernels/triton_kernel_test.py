"""What the `triton` kernel does on a GPU, as far as that shows without one; and its results on one."""

import contextlib
import re
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from elmo_plugin import BiLM, batch_to_ids
from elmo_plugin.bilm.kernels import choose_kernel, triton_kernel
from elmo_plugin.bilm.kernels.triton_kernel import TritonKernel
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.lstm_steps import LSTMRun
from tests.bilm.kernels.kernels_test import TOLERANCES, new_run
from tests.conftest import SENTENCES, BiLMFiles

if triton_kernel.triton_problem() is not None:
    pytest.skip(str(triton_kernel.triton_problem()), allow_module_level=True)

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from elmo_plugin.bilm.kernels import triton_steps

PRECISIONS = ("float32", "bfloat16")

Outcomes = List[Tuple[Tensor, Tensor, Tensor]]


def new_layers(
    cell_size: int, projection_dim: int, num_layers: int = 2, clip: Optional[float] = 0.6
) -> List[ProjectedLSTM]:
    torch.manual_seed(0)
    layers = [
        ProjectedLSTM(projection_dim, cell_size, projection_dim, clip, clip and clip / 2)
        for _ in range(num_layers)
    ]
    for layer in layers:
        torch.nn.init.normal_(layer.gate_weight, std=projection_dim**-0.5)
        torch.nn.init.normal_(layer.gate_bias)
    return [layer.requires_grad_(False) for layer in layers]


def run(
    layers: List[ProjectedLSTM],
    step_sizes: List[int],
    precision: str,
    kernel_name: str = "triton",
    device: str = "cpu",
) -> Outcomes:
    """Each layer over inputs and from states of its own."""
    kernel = choose_kernel(kernel_name, precision, torch.device(device))
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    runs = [
        LSTMRun(
            normal(sum(step_sizes), layer.input_dim),
            step_sizes,
            normal(step_sizes[0], layer.projection_dim),
            normal(step_sizes[0], layer.cell_size),
        )
        for layer in layers
    ]
    return kernel.run([kernel.prepare(layer, precision) for layer in layers], runs)


def assert_close(ours: Outcomes, theirs: Outcomes, tolerance: float) -> None:
    assert len(ours) == len(theirs)
    for own_tensors, their_tensors in zip(ours, theirs):
        for own, their in zip(own_tensors, their_tensors):
            torch.testing.assert_close(own, their, atol=tolerance, rtol=0)


@pytest.mark.usefixtures("interpreted_triton")
class TestInTheInterpreter:
    @pytest.mark.parametrize("projection_dim", [24, 40], ids=["projected", "not projected"])
    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_two_directions_at_once_equal_the_reference(
        self, precision: str, projection_dim: int
    ) -> None:
        layers = new_layers(40, projection_dim)
        # As many rows as each kind of program takes, and more.
        step_sizes = [70, 33, 17, 16, 1]
        ours = run(layers, step_sizes, precision)
        theirs = run(layers, step_sizes, precision, "reference")
        assert_close(ours, theirs, TOLERANCES[precision])
        assert not torch.equal(ours[0][0], ours[1][0])

    def test_layers_of_different_forms_run_one_after_the_other(self) -> None:
        layers = [*new_layers(40, 24, 1), *new_layers(20, 6, 2)]
        ours = run(layers, [3, 2, 1], "float32")
        assert_close(ours, run(layers, [3, 2, 1], "float32", "reference"), TOLERANCES["float32"])

    def test_weights_in_another_order_in_memory_are_another_form(self) -> None:
        layers = new_layers(40, 24)
        # As views of a weight file are.
        layers[1].gate_weight.data = layers[1].gate_weight.t().contiguous().t()
        for together in (layers, [layers[1], layers[1]]):
            ours = run(together, [3, 2, 1], "float32")
            theirs = run(together, [3, 2, 1], "float32", "reference")
            assert_close(ours, theirs, TOLERANCES["float32"])

    @pytest.mark.parametrize("tokens", [1, 8, 30])
    def test_blocks_change_nothing(self, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
        layers = new_layers(40, 24)
        expected = run(layers, [9, 9, 5, 1, 1, 1], "float32")
        monkeypatch.setattr(triton_kernel, "TOKENS_PER_BLOCK", tokens)
        # Sums of products of inputs may be made in another order.
        assert_close(run(layers, [9, 9, 5, 1, 1, 1], "float32"), expected, 1e-6)

    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_a_bilm_runs_on_it(self, precision: str, bilm_files: BiLMFiles) -> None:
        ids = batch_to_ids(SENTENCES)
        ours, theirs = (
            BiLM.from_files(*bilm_files, kernel=kernel, stateful=True, precision=precision)
            for kernel in ("triton", "reference")
        )
        for _ in range(2):
            for own, their in zip(ours(ids)["activations"], theirs(ids)["activations"]):
                torch.testing.assert_close(
                    own, their, atol={"float32": 1e-5, "bfloat16": 0.05}[precision], rtol=0
                )


class Recorder(TorchDispatchMode):
    """Notes torch's operations, and the launches of Triton's functions, which it does not run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.noted: List[str] = []
        for name in ("write_hidden", "write_state"):
            monkeypatch.setattr(triton_steps, name, _NotedFunction(name, self.noted))

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        # To ask for a device is no operation.
        if function is not torch.ops.prim.device.default:
            self.noted.append(str(function))
        return function(*args, **(kwargs or {}))


class _NotedFunction:
    def __init__(self, name: str, noted: List[str]) -> None:
        self._name = name
        self._noted = noted

    def __getitem__(self, grid: Tuple[int, ...]) -> Callable[..., None]:
        return lambda *args, **kwargs: self._noted.append(self._name)


def noted_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
    step_sizes: List[int],
    precision: str = "float32",
    projection_dim: int = 24,
    num_layers: int = 2,
) -> List[str]:
    """
    What happens in a run over tensors that say that they are on a GPU, and hold nothing: to wait for one of
    their numbers, or to mix them with tensors of the CPU, is an error.
    """
    monkeypatch.setattr(torch.cuda, "device_of", lambda tensor: contextlib.nullcontext())
    kernel, recorder = TritonKernel(), Recorder(monkeypatch)
    with torch.no_grad(), FakeTensorMode(), torch.device("cuda"):
        layers = new_layers(40, projection_dim, num_layers)
        inputs = torch.randn(sum(step_sizes), projection_dim)
        runs = [new_run(layer, inputs, step_sizes) for layer in layers]
        prepared = [kernel.prepare(layer, precision) for layer in layers]
        with recorder:
            outcomes = kernel.run(prepared, runs)
    assert all(tensor.device.type == "cuda" for outcome in outcomes for tensor in outcome)
    return recorder.noted


class TestWithoutRunningIt:
    """Counts, which say what the host asks of a GPU."""

    @pytest.mark.parametrize("num_layers", [1, 2])
    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_a_step_is_two_launches_for_one_direction_or_two(
        self, precision: str, num_layers: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        step_sizes = [5, 5, 4, 2, 1, 1]
        noted = noted_on_a_gpu(monkeypatch, step_sizes, precision, num_layers=num_layers)
        first = noted.index("write_hidden")
        steps = noted[first : first + 2 * len(step_sizes)]
        # Nothing of torch's among them, so that nothing allocates or waits.
        assert steps == ["write_hidden", "write_state"] * len(step_sizes)
        assert set(noted[first + len(steps) :]) == {"aten.unbind.int"}

    def test_without_projection_it_is_a_launch_and_a_copy(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        noted = noted_on_a_gpu(monkeypatch, [3, 2, 1], projection_dim=40)
        assert noted.count("write_hidden") == noted.count("aten.copy_.default") == 3
        first = noted.index("write_hidden")
        assert set(noted[first:]) == {
            *("write_hidden", "aten.copy_.default"),
            # Views.
            *("aten.slice.Tensor", "aten.alias.default", "aten.unbind.int"),
        }

    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_what_comes_before_the_steps_does_not_grow_with_them(
        self, precision: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        short, long = (
            [
                operation
                for operation in noted_on_a_gpu(monkeypatch, [4] * num_steps, precision)
                if operation not in ("write_hidden", "write_state")
            ]
            for num_steps in (2, 50)
        )
        assert short == long
        assert short.count("aten.mm.out") == 2

    def test_a_float32_weight_is_not_copied(self) -> None:
        (layer,) = new_layers(40, 24, 1)
        prepared = TritonKernel().prepare(layer, "float32")
        assert layer.projection is not None
        for weight, parameter in zip(
            prepared, [layer.gate_weight, layer.gate_weight, layer.projection]
        ):
            assert weight.untyped_storage().data_ptr() == parameter.untyped_storage().data_ptr()

    def test_torch_rounds_no_product_to_tf32_unless_it_is_told_to(self) -> None:
        """Products of inputs are torch's."""
        assert not torch.backends.cuda.matmul.allow_tf32


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


class _CompiledFunction:
    def __init__(self, function: Any, compiled: List[Any]) -> None:
        self._function = function
        self._compiled = compiled

    def __getitem__(self, grid: Tuple[int, ...]) -> Callable[..., None]:
        def compile_for(*args: Any, **kwargs: Any) -> None:
            self._compiled.append(self._function.warmup(*args, grid=grid, **kwargs))

        return compile_for


@pytest.mark.slow
@pytest.mark.parametrize(
    "capability, precision, is_by_columns",
    [
        (80, "float32", False),
        (80, "bfloat16", True),
        (90, "float32", True),
        (90, "bfloat16", False),
    ],
)
def test_it_compiles_for_gpus(
    capability: int,
    precision: str,
    is_by_columns: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(driver, "_active", Target(capability))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    compiled: List[Any] = []
    for name in ("write_hidden", "write_state"):
        function = JITFunction(
            getattr(triton_steps, name).fn, do_not_specialize=triton_steps.CHANGING
        )
        monkeypatch.setattr(triton_steps, name, _CompiledFunction(function, compiled))
    layers = new_layers(512, 128)
    if is_by_columns:
        # As TensorFlow has them, and so weight files.
        for layer in layers:
            for parameter in layer.parameters():
                parameter.data = parameter.t().contiguous().t()
    step_sizes = [64, 16, 1]
    kernel = TritonKernel()
    runs = [new_run(layer, torch.randn(81, 128), step_sizes) for layer in layers]
    kernel.run([kernel.prepare(layer, precision) for layer in layers], runs)
    assert len(compiled) == 2 * len(step_sizes)
    for function in compiled:
        ptx = function.asm["ptx"]
        # Tensor cores multiply bfloat16, and would round float32 to TF32.
        assert ("mma" in ptx) == (precision == "bfloat16") and "tf32" not in ptx
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
    @pytest.mark.parametrize("projection_dim", [48, 96], ids=["projected", "not projected"])
    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_it_equals_the_reference(
        self, precision: str, projection_dim: int, clip: Optional[float]
    ) -> None:
        layers = [layer.to("cuda") for layer in new_layers(96, projection_dim, clip=clip)]
        step_sizes = [70, 64, 33, 32, 17, 16, 16, 2, 1, 1]
        theirs = run(layers, step_sizes, precision, "reference", "cuda")
        tolerance = {"float32": 1e-5, "bfloat16": 2e-2}[precision]
        assert_close(run(layers, step_sizes, precision, "triton", "cuda"), theirs, tolerance)

    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_it_does_not_wait_for_the_gpu(self, precision: str) -> None:
        layers = [layer.to("cuda") for layer in new_layers(96, 48)]
        kernel = choose_kernel("triton", precision, torch.device("cuda"))
        inputs = torch.randn(6, 48, device="cuda")
        runs = [new_run(layer, inputs, [3, 2, 1]) for layer in layers]
        prepared = [kernel.prepare(layer, precision) for layer in layers]
        # First it compiles.
        kernel.run(prepared, runs)
        torch.cuda.set_sync_debug_mode("error")
        try:
            kernel.run(prepared, runs)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_a_bilm_of_a_file_takes_it_and_gives_what_the_cpu_gives(
        self,
        precision: str,
        bilm_files: BiLMFiles,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        # By default torch rounds convolutions, as those of characters, to TF32.
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
        ids = batch_to_ids(SENTENCES)
        expected = BiLM.from_files(*bilm_files, kernel="reference")(ids)["activations"]
        bilm = BiLM.from_files(*bilm_files, precision=precision).to("cuda")
        with caplog.at_level("INFO"):
            ours = bilm(ids.to("cuda"))["activations"]
        assert f"{precision} on the triton kernel (cuda)" in caplog.text
        # Of activations of about 1; in bfloat16 the layers of words are rounded too.
        tolerance = {"float32": 1e-5, "bfloat16": 0.1}[precision]
        for own, their in zip(ours, expected):
            torch.testing.assert_close(own.cpu(), their, atol=tolerance, rtol=0)
