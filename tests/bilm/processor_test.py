from pathlib import Path
from typing import Iterator

import pytest
import torch

from elmo_plugin.bilm import processor
from elmo_plugin.errors import ConfigurationError

ZEN4 = "flags\t\t: fpu sse2 avx avx2 fma f16c avx512f avx512bw avx512_bf16 avx512_vnni amx_bf16\n"


@pytest.fixture
def cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\n" + ZEN4)
    monkeypatch.delenv(processor.CAPABILITY_VARIABLE, raising=False)
    monkeypatch.setattr(processor, "Path", lambda name: path)
    processor._allowed.cache_clear()
    yield path
    processor._allowed.cache_clear()


@pytest.mark.parametrize(
    "level, hidden, kept",
    [
        (None, set(), {"sse2", "avx2", "avx512_vnni", "avx512_bf16", "amx_bf16"}),
        ("all", set(), {"sse2", "avx2", "avx512_vnni", "avx512_bf16", "amx_bf16"}),
        ("avx512_vnni", {"avx512_bf16", "amx_bf16"}, {"avx512f", "avx512_vnni"}),
        ("avx512", {"avx512_vnni", "avx512_bf16"}, {"avx2", "avx512f"}),
        ("avx2", {"avx512f"}, {"avx2", "fma"}),
        ("default", {"avx2"}, set()),
    ],
)
@pytest.mark.usefixtures("cpuinfo")
def test_the_variable_hides_features_of_the_processor(
    level: str, hidden: set, kept: set, monkeypatch: pytest.MonkeyPatch
) -> None:
    if level is not None:
        monkeypatch.setenv(processor.CAPABILITY_VARIABLE, level)
    features = processor.processor_features()
    assert kept <= features
    assert not hidden & features
    assert processor.has_bfloat16_products() == (level in (None, "all"))


@pytest.mark.parametrize("vendor, is_fast", [("AuthenticAMD", True), ("GenuineIntel", False)])
def test_vectors_of_intel_multiply_bfloat16_too_slowly(
    vendor: str, is_fast: bool, cpuinfo: Path
) -> None:
    cpuinfo.write_text(f"vendor_id\t: {vendor}\nflags\t: avx512f avx512_bf16\n")
    assert ("avx512_bf16" in processor.processor_features()) == is_fast
    assert processor.has_bfloat16_products() == is_fast


@pytest.mark.parametrize("is_allowed", [True, False])
def test_tiles_are_used_where_linux_allows_it(
    is_allowed: bool, cpuinfo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo.write_text("flags\t: avx512f amx_tile amx_bf16 amx_int8\n")
    monkeypatch.setattr(processor, "_may_use_tiles", lambda: is_allowed)
    assert ("amx_tile" in processor.processor_features()) == is_allowed
    assert processor.has_bfloat16_products() == is_allowed


def test_an_unknown_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(processor.CAPABILITY_VARIABLE, "sse9")
    with pytest.raises(ConfigurationError, match="'sse9', expected one of default, avx2"):
        processor.processor_features()


@pytest.mark.parametrize("name, capability", [("cuda", (7, 5)), ("cuda", (8, 0)), ("mps", (8, 0))])
def test_bfloat16_on_other_devices(
    name: str, capability: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    expected = name == "cuda" and capability >= (8, 0)
    assert processor.has_bfloat16_products(torch.device(name)) == expected
