import importlib.util
import platform
from typing import Any, Dict

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from elmo_plugin import BiLM, batch_to_ids
from elmo_plugin.bilm.kernels import (
    PRECISIONS,
    avx512_kernel,
    check_kernel,
    choose_kernel,
    triton_kernel,
)
from tests.conftest import SENTENCES, TINY_OPTIONS, BiLMFiles

CPU = torch.device("cpu")
CUDA = torch.device("cuda")

ABLE = dict.fromkeys(
    ["avx512_f", "avx512_bw", "avx512_dq", "avx512_vl", "fma3", "avx512_bf16", "avx512_vnni"], True
)


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Dict[str, bool]:
    """What an imaginary processor can do, with the compiled kernel beside it; to be changed by tests."""
    capabilities: Dict[str, bool] = dict(ABLE)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    monkeypatch.setattr(avx512_kernel, "_library_path", lambda: tmp_path)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    return capabilities


def chosen(precision: str, name: str = "auto", **kwargs: Any) -> str:
    return choose_kernel(name, precision, CPU, **kwargs).name


def test_the_compiled_kernel_comes_first(able: Dict[str, bool]) -> None:
    assert [chosen(precision) for precision in ("float32", "bfloat16", "int8")] == ["avx512"] * 3


def test_bfloat16_goes_to_onednn_where_there_is_amx(able: Dict[str, bool]) -> None:
    able["amx_tile"] = True
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        assert chosen("bfloat16") == "onednn"
    assert chosen("float32") == chosen("int8") == "avx512"


def test_a_processor_without_the_instructions(able: Dict[str, bool]) -> None:
    able["avx512_vnni"] = False
    assert chosen("float32") == "avx512"
    assert chosen("int8") == "reference"
    able["avx512_f"] = False
    assert chosen("float32") == "onednn"
    with pytest.raises(
        ConfigurationError, match=r"'avx512', but float32 needs a processor with avx512_f"
    ):
        chosen("float32", "avx512")


def test_an_installation_without_a_compiler(
    able: Dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avx512_kernel, "_library_path", lambda: None)
    assert chosen("float32") == "onednn"
    with pytest.raises(ConfigurationError, match=r"not compiled.*no C\+\+ compiler.*install g\+\+"):
        check_kernel("avx512", "float32")


def test_another_processor_family(able: Dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    able.clear()
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert chosen("float32") == "reference"
    with pytest.raises(ConfigurationError, match="for x86-64 processors, and this is aarch64"):
        chosen("float32", "onednn")


def test_a_torch_without_onednn(able: Dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    able.clear()
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert chosen("float32") == "reference"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """An imaginary GPU on which Triton starts."""
    pytest.importorskip("triton")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(triton_kernel, "_why_triton_does_not_start", lambda: None)


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
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert_refused("Triton is not installed")


def test_where_triton_does_not_start_the_log_says_so(
    gpu: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from triton.runtime import driver

    class Driver:
        def get_current_target(self) -> None:
            raise RuntimeError("Failed to find C compiler.")

    monkeypatch.undo()
    monkeypatch.setattr(driver, "_active", Driver())
    reason = triton_kernel._why_triton_does_not_start.__wrapped__()
    assert reason is not None and "takes a C compiler" in reason
    assert f"The triton kernel cannot be used: {reason}." in caplog.messages
    monkeypatch.setattr(Driver, "get_current_target", lambda self: None)
    assert triton_kernel._why_triton_does_not_start.__wrapped__() is None


def test_other_types_of_weights_go_to_the_reference(able: Dict[str, bool]) -> None:
    assert chosen("float32", dtype=torch.float64) == "reference"
    for name in ("avx512", "onednn"):
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
    with pytest.raises(ConfigurationError, match="kernel is 'fast', expected one of: auto, avx512"):
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
    said = [message for message in caplog.messages if "kernel" in message]
    assert said == ["The frozen biLM runs in bfloat16 on the reference kernel (cpu). (Said once.)"]
