import ctypes
import functools
import importlib.metadata
import platform
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List, Sequence, Set

import pytest
import torch
from torch import Tensor

from elmo_plugin import BiLM, batch_to_ids
from elmo_plugin.bilm import processor
from elmo_plugin.bilm.kernels import (
    PRECISIONS,
    check_kernel,
    choose_kernel,
    choose_precision,
    onednn_kernel,
    selection,
    triton_kernel,
)
from elmo_plugin.bilm.kernels.reference_kernel import ReferenceKernel
from elmo_plugin.bilm.kernels.simd_kernel import SIMDKernel
from elmo_plugin.bilm.lstm_steps import LSTMRun, Outcome
from elmo_plugin.bilm.simd import library
from elmo_plugin.errors import ConfigurationError
from tests.conftest import SENTENCES, TINY_OPTIONS, BiLMFiles

# Without its cache.
find_library_problem = library._library_problem.__wrapped__

CPU = torch.device("cpu")
CUDA = torch.device("cuda")

AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
ABLE = ("avx2", "fma", *AVX512, "avx512_vnni", "avx512_bf16")


@pytest.fixture(autouse=True)
def warnings_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    selection._warn_once.cache_clear()


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> Set[str]:
    """
    The features of an imaginary processor, to be changed by tests, with the compiled kernel. Its first steps
    are not compared, as they do not run.
    """
    features = set(ABLE)
    monkeypatch.setattr(processor, "_allowed", lambda level: frozenset(features))
    monkeypatch.setattr(library, "_library_problem", lambda unit: None)
    monkeypatch.setattr(selection, "_first_step_failure", lambda *setting: None)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    return features


def chosen(precision: str, name: str = "auto", **kwargs: Any) -> str:
    return choose_kernel(name, precision, CPU, **kwargs).name


def warnings_in(caplog: pytest.LogCaptureFixture) -> List[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_the_compiled_kernel_comes_first(able: Set[str]) -> None:
    assert [chosen(precision) for precision in PRECISIONS] == ["simd"] * 3
    assert [choose_precision("auto", precision, CPU) for precision in PRECISIONS] == [*PRECISIONS]


def test_the_name_that_it_had_in_earlier_configs(able: Set[str]) -> None:
    check_kernel("avx512", "int8")
    assert chosen("float32", "avx512") == "simd"


def test_bfloat16_goes_to_onednn_where_there_is_amx(able: Set[str]) -> None:
    able.add("amx_bf16")
    assert chosen("bfloat16") == "onednn"
    assert chosen("float32") == chosen("int8") == "simd"


def test_it_runs_on_the_fastest_vector_unit_that_the_processor_has(able: Set[str]) -> None:
    for lacking, unit in [
        ((), "avx512_bf16"),
        (("avx512_bf16",), "avx512_vnni"),
        (("avx512_vnni",), "avx512"),
        (AVX512, "avx2"),
        (("fma",), "plain"),
    ]:
        able.difference_update(lacking)
        assert library.best_unit() == SIMDKernel().unit == unit
    reason = SIMDKernel("avx2").why_not("float32", CPU, torch.float32)
    assert reason == "avx2 needs a processor with fma"


def test_before_avx2_onednn_comes_first(able: Set[str]) -> None:
    able.clear()
    assert [chosen(precision) for precision in PRECISIONS] == ["onednn", "simd", "simd"]


class TestWhereALowerPrecisionIsSlower:
    @pytest.mark.parametrize(
        "precision, reason",
        [
            ("bfloat16", "onednn: this processor has no products of bfloat16"),
            ("int8", "simd: it was not compiled"),
        ],
    )
    def test_float32_is_chosen_with_one_warning(
        self,
        precision: str,
        reason: str,
        able: Set[str],
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(library, "_library_problem", lambda unit: "it was not compiled")
        able.remove("avx512_bf16")
        for _ in range(3):
            assert choose_precision("auto", precision, CPU) == "float32"
        (message,) = warnings_in(caplog)
        assert message.startswith(f"precision is '{precision}', but float32 is faster on this cpu")
        assert reason in message

    def test_a_gpu_has_no_integers(self, gpu: None, caplog: pytest.LogCaptureFixture) -> None:
        assert choose_precision("auto", "bfloat16", CUDA) == "bfloat16"
        assert choose_precision("auto", "int8", CUDA) == "float32"
        assert "(triton: it has no int8)" in caplog.text

    def test_a_named_kernel_runs_what_it_was_asked_to(
        self, able: Set[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        assert choose_precision("reference", "bfloat16", CPU) == "bfloat16"
        assert not warnings_in(caplog)
        able.clear()
        for precision in ("bfloat16", "int8"):
            assert choose_precision("reference", precision, CPU) == precision
            assert f"slower in {precision} than in float32 on this cpu" in warnings_in(caplog)[-1]
        with pytest.raises(ConfigurationError, match=r"'onednn', but .* no products of bfloat16"):
            check_kernel("onednn", "bfloat16")

    @pytest.mark.parametrize("precision", ["bfloat16", "int8"])
    def test_bilms_run_in_float32(
        self,
        precision: str,
        bilm_files: BiLMFiles,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setenv("ELMO_CPU_CAPABILITY", "avx2")
        monkeypatch.setattr(library, "_library_problem", lambda unit: "it was not compiled")
        ids = batch_to_ids(SENTENCES)
        expected = BiLM.from_files(*bilm_files)(ids)["activations"]
        for _ in range(2):
            bilm = BiLM.from_files(*bilm_files, precision=precision)
            for is_lowered in (False, True):
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_lowered):
                    ours = bilm(ids)["activations"]
                assert all(torch.equal(own, exact) for own, exact in zip(ours, expected))
        assert caplog.text.count("float32 is faster") == 1
        assert bilm.precision == precision


class TestTheCompiledLibrary:
    @pytest.fixture(autouse=True)
    def is_looked_at_anew(self, able: Set[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(library, "_library_problem", functools.cache(find_library_problem))

    def test_it_was_not_compiled(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(library, "_library_path", lambda unit: tmp_path / "missing.so")
        for _ in range(2):
            assert chosen("float32") == "onednn"
        (message,) = warnings_in(caplog)
        assert "runs at about half of its speed or less: it was not compiled" in message
        with pytest.raises(ConfigurationError, match=r"not compiled.*install g\+\+ or clang"):
            check_kernel("simd", "float32")

    @pytest.mark.parametrize(
        "compiled, problem",
        [
            (
                SimpleNamespace(abi_version=lambda: 0),
                f"has version 0, expected {library.ABI_VERSION}; install g",
            ),
            (SimpleNamespace(), "is from an older version of elmo_plugin; install"),
            (None, r"does not load \(.*damaged.*\); install"),
        ],
    )
    def test_it_is_of_another_version(
        self,
        compiled: Any,
        problem: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        path = tmp_path / "damaged.so"
        path.write_text("no library")
        monkeypatch.setattr(library, "_library_path", lambda unit: path)
        if compiled is not None:
            monkeypatch.setattr(ctypes, "CDLL", lambda path: compiled)
        assert chosen("float32") == "onednn"
        assert "The simd kernel cannot be used" in caplog.text
        with pytest.raises(ConfigurationError, match=problem):
            check_kernel("simd", "float32")


class Untested(ReferenceKernel):
    """A kernel that never ran on this machine; its outputs are `change`d."""

    name = "untested"

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        self._change = change

    def run(self, layers: Sequence[Any], runs: Sequence[LSTMRun]) -> List[Outcome]:
        return [
            (self._change(outputs), state, cell)
            for outputs, state, cell in super().run(layers, runs)
        ]


def fail(outputs: Tensor) -> Tensor:
    raise RuntimeError("out of resource: shared memory")


class TestFirstSteps:
    """A kernel must equal the reference before it runs on a device."""

    @pytest.fixture
    def add(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Tensor], Tensor]], None]:
        def add(change: Callable[[Tensor], Tensor]) -> None:
            kernels = (Untested(change), selection.REFERENCE)
            monkeypatch.setattr(selection, "KERNELS", kernels)
            monkeypatch.setattr(selection, "KERNEL_NAMES", ("auto", "untested", "reference"))

        return add

    @pytest.mark.parametrize(
        "change, problem",
        [
            (fail, "failed with RuntimeError: out of resource"),
            (lambda outputs: outputs + 0.1, "differ from the reference's by 0.1"),
            (lambda outputs: outputs * torch.nan, "differ from the reference's by nan"),
            (lambda outputs: outputs[1:], "failed with RuntimeError: The size of tensor a"),
        ],
    )
    def test_the_reference_runs_in_place_of_a_kernel_that_fails(
        self,
        change: Callable[[Tensor], Tensor],
        problem: str,
        add: Any,
        bilm_files: BiLMFiles,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        add(change)
        ids = batch_to_ids(SENTENCES)
        expected = BiLM.from_files(*bilm_files, kernel="reference")(ids)["activations"]
        for _ in range(2):
            ours = BiLM.from_files(*bilm_files)(ids)["activations"]
            assert all(torch.equal(own, exact) for own, exact in zip(ours, expected))
        (message,) = warnings_in(caplog)
        assert message.startswith("The untested kernel is not used in float32 on cpu: its first ")
        assert problem in message
        with pytest.raises(ConfigurationError, match="kernel is 'untested', but its first steps"):
            BiLM.from_files(*bilm_files, kernel="untested")

    def test_a_kernel_that_equals_the_reference_runs(self, add: Any) -> None:
        add(lambda outputs: outputs + 1e-6)
        assert chosen("float32") == chosen("int8") == "untested"

    def test_out_of_memory_is_no_failure_of_the_kernel(self, add: Any) -> None:
        is_full = True

        def change(outputs: Tensor) -> Tensor:
            if is_full:
                raise torch.cuda.OutOfMemoryError
            return outputs

        add(change)
        with pytest.raises(torch.cuda.OutOfMemoryError):
            chosen("float32")
        is_full = False
        assert chosen("float32") == "untested"

    def test_what_the_program_has_set_changes_neither_them_nor_itself(self, add: Any) -> None:
        add(lambda outputs: outputs)
        before = torch.get_rng_state()
        with torch.device("meta"), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            assert chosen("float32") == "untested"
        assert torch.equal(torch.get_rng_state(), before)


def test_another_processor_family(able: Set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    able.clear()
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert (chosen("float32"), library.best_unit()) == ("simd", "neon")
    able.add("asimddp")
    assert library.best_unit() == "neon_dotprod"
    reason = SIMDKernel("avx2").why_not("float32", CPU, torch.float32)
    assert reason == "avx2 is for x86_64 processors, and this is aarch64"
    monkeypatch.setattr(library, "_library_problem", lambda unit: "it was not compiled")
    assert chosen("float32") == "reference"
    with pytest.raises(ConfigurationError, match="for x86-64 processors, and this is aarch64"):
        chosen("float32", "onednn")


def test_a_torch_without_onednn(able: Set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_library_problem", lambda unit: "it was not compiled")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert chosen("float32") == "reference"


def test_a_torch_without_the_operators(able: Set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_library_problem", lambda unit: "it was not compiled")
    monkeypatch.setattr(onednn_kernel, "_OPERATORS", ("_linear_pointwise", "_of_another_torch"))
    assert chosen("float32") == "reference"
    with pytest.raises(ConfigurationError, match=r"torch .* lacks its operators _of_another_torch"):
        chosen("float32", "onednn")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """An imaginary GPU on which Triton starts."""
    pytest.importorskip("triton")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "3.7.1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(triton_kernel, "_why_triton_does_not_start", lambda: None)
    monkeypatch.setattr(selection, "_first_step_failure", lambda *setting: None)


def test_gpus_run_triton_and_what_it_has_not_goes_to_the_reference(gpu: None) -> None:
    names = [choose_kernel("auto", precision, CUDA).name for precision in PRECISIONS]
    assert names == ["triton", "triton", "reference"]
    assert choose_kernel("auto", "float32", CUDA, torch.float64).name == "reference"
    check_kernel("triton", "bfloat16")
    for precision, device, dtype, message in [
        ("int8", CUDA, torch.float32, "kernel is 'triton', but it has no int8"),
        ("float32", CPU, torch.float32, "it runs on NVIDIA GPUs, not on cpu"),
        ("float32", CUDA, torch.float16, "needs float32 weights, and these are float16"),
    ]:
        with pytest.raises(ConfigurationError, match=message):
            choose_kernel("triton", precision, device, dtype)


def test_gpus_that_triton_does_not_know_go_to_the_reference(
    gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def assert_refused(message: str) -> None:
        assert choose_kernel("auto", "float32", CUDA).name == "reference"
        with pytest.raises(ConfigurationError, match=f"kernel is 'triton', but .*{message}"):
            check_kernel("triton", "float32")

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert_refused("needs compute capability 8.0, and this GPU has 7.5")
    monkeypatch.setattr(torch.version, "hip", "6.0")
    assert_refused("torch finds no NVIDIA GPU here")
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert_refused("torch finds no NVIDIA GPU here")
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "3.2.0")
    assert_refused("needs Triton 3.6 or later, and this is 3.2.0; install a newer torch")

    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert_refused("Triton is not installed")


def test_where_triton_does_not_start_the_log_says_so(
    gpu: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Driver:
        def get_current_target(self) -> None:
            raise RuntimeError("Failed to find C compiler.")

    monkeypatch.undo()
    monkeypatch.setattr("triton.runtime.driver", SimpleNamespace(active=Driver()))
    reason = triton_kernel._why_triton_does_not_start.__wrapped__()
    assert reason is not None and "takes a C compiler" in reason
    assert f"The triton kernel cannot be used: {reason}." in caplog.messages
    monkeypatch.setattr(Driver, "get_current_target", lambda self: None)
    assert triton_kernel._why_triton_does_not_start.__wrapped__() is None


def test_other_types_of_weights_go_to_the_reference(able: Set[str]) -> None:
    assert chosen("float32", dtype=torch.float64) == "reference"
    for name in ("simd", "onednn"):
        with pytest.raises(ConfigurationError, match="runs on CPUs, not on cuda"):
            choose_kernel(name, "float32", CUDA)
        with pytest.raises(
            ConfigurationError, match="needs float32 weights, and these are float64"
        ):
            chosen("float32", name, dtype=torch.float64)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="precision is 'int4', expected one of: float32, bf"
    ):
        BiLM(TINY_OPTIONS, precision="int4")
    with pytest.raises(ConfigurationError, match="kernel is 'fast', expected one of: auto, simd"):
        BiLM(TINY_OPTIONS, kernel="fast")
    with pytest.raises(ConfigurationError, match="kernel is 'onednn', but it has no int8"):
        BiLM(TINY_OPTIONS, kernel="onednn", precision="int8")


def test_the_log_says_once_which_kernel_runs(
    bilm_files: BiLMFiles, caplog: pytest.LogCaptureFixture
) -> None:
    bilm = BiLM.from_files(*bilm_files, kernel="reference", precision="bfloat16")
    with caplog.at_level("INFO"):
        for _ in range(3):
            bilm(batch_to_ids(SENTENCES))
    said = [message for message in caplog.messages if "runs in" in message]
    assert said == ["The frozen biLM runs in bfloat16 on the reference kernel (cpu). (Said once.)"]
