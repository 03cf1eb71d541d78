"""The benchmark of workers counts what they do at the same time."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Optional

import pytest

pytest.importorskip("ray", reason="Ray (elmo_plugin[ray]) is not installed")


@pytest.fixture
def scaling(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    # As a script finds it: the folder is no package, and other projects install one of its name.
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return importlib.import_module("scaling")


def test_speed_is_counted_from_the_first_part_of_each_worker(scaling: ModuleType) -> None:
    parts = [scaling.Written(at, 10) for at in (14.0, 10.0, 11.0, 13.0, 12.0)]
    assert scaling.steady_speed(parts, 1) == 40 / 4.0
    assert scaling.steady_speed(parts, 2) == 30 / 3.0
    assert scaling.steady_speed(parts[:2], 2) is None
    assert scaling.steady_speed(parts[:1], 1) is None


def test_the_table_has_medians_and_compares_with_one_process(scaling: ModuleType) -> None:
    def rows(name: str, seconds: float, speed: float, steady: Optional[float]) -> Dict[str, Any]:
        return {"": name, "s": seconds, "tokens/s": speed, "steady tokens/s": steady}

    repetitions = [
        *(rows("one process, 1 thread", seconds, 100.0, 100.0) for seconds in (1.0, 9.0, 2.0)),
        *[rows("2 workers", 5.0, 50.0, 190.0)] * 3,
        *[rows("4 workers", 5.0, 50.0, None)] * 3,
    ]
    assert scaling.markdown(scaling.table(repetitions)).splitlines()[2:] == [
        "| one process, 1 thread | 2 | 100 | 100 | 1 |",
        "| 2 workers | 5 | 50 | 190 | 1.9 |",
        "| 4 workers | 5 | 50 |  |  |",
    ]
