from pathlib import Path
from typing import Tuple

import pytest
import torch

from elmo_plugin.bilm import processor
from elmo_plugin.errors import ConfigurationError

ZEN4 = "flags\t\t: fpu sse2 avx avx2 fma f16c avx512f avx512bw avx512_bf16 avx512_vnni amx_bf16\n"


@pytest.fixture
def cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\n" + ZEN4)
    monkeypatch.delenv(processor.CAPABILITY_VARIABLE, raising=False)
    monkeypatch.setattr(processor, "Path", lambda name: path)
    processor._allowed.cache_clear()
    yield
    processor._allowed.cache_clear()


@pytest.mark.usefixtures("cpuinfo")
class TestProcessorFeatures:
    def test_all_that_the_processor_reports(self) -> None:
        assert {"avx2", "avx512_bf16", "amx_bf16"} <= processor.processor_features()
        assert processor.has_bfloat16_products()

    @pytest.mark.parametrize(
        "level, hidden, kept",
        [
            ("default", "avx2", None),
            ("avx2", "avx512f", "avx2"),
            ("avx512", "avx512_vnni", "avx512f"),
            ("avx512_vnni", "avx512_bf16", "avx512_vnni"),
            ("all", "sse9", "avx512_bf16"),
        ],
    )
    def test_the_variable_hides_some(
        self, level: str, hidden: str, kept: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(processor.CAPABILITY_VARIABLE, level)
        features = processor.processor_features()
        assert hidden not in features
        assert kept is None or kept in features
        assert processor.has_bfloat16_products() == (level == "all")

    def test_an_unknown_level_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(processor.CAPABILITY_VARIABLE, "sse9")
        with pytest.raises(ConfigurationError, match="'sse9', expected one of: default, avx2"):
            processor.processor_features()


class TestBFloat16OnGPUs:
    @pytest.mark.parametrize("capability, expected", [((7, 5), False), ((8, 0), True)])
    def test_by_compute_capability(
        self, capability: Tuple[int, int], expected: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        assert processor.has_bfloat16_products(torch.device("cuda")) == expected

    def test_other_devices_are_not_trusted(self) -> None:
        assert not processor.has_bfloat16_products(torch.device("mps"))
