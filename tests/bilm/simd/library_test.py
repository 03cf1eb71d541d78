"""What is said where the C++ was not compiled."""

from pathlib import Path
from typing import Iterator

import pytest

from elmo_plugin import ElmoEmbedder
from elmo_plugin.bilm.simd import library
from elmo_plugin.bilm.simd.library import best_unit


@pytest.fixture
def without_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As the wheel without compiled libraries is installed."""
    if best_unit() is None:
        pytest.skip("No library is for this processor.")
    monkeypatch.setattr(library, "__file__", str(tmp_path / "library.py"))
    library._library_problem.cache_clear()
    yield
    library._library_problem.cache_clear()


@pytest.mark.usefixtures("without_libraries")
def test_without_libraries_one_line_says_that_it_is_slower(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        assert ElmoEmbedder("elmo_mini").embed_sentence(["Hello"]).shape == (3, 1, 256)
    assert caplog.messages == [
        "The simd kernel cannot be used, so ELMo runs at half of its speed or less: it was not compiled "
        f"for {best_unit()} when elmo_plugin was installed; install the wheel of this platform, or a "
        "recent g++ (or clang, with CXX=clang++) and then elmo_plugin from its sources."
    ]


def test_a_unit_that_the_compiler_did_not_know_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = [unit.name for unit in library.VECTOR_UNITS if library.missing_features(unit) == ()]
    if len(found) < 2 or library.unsupported_reason(found[1]) is not None:
        pytest.skip("The processor has one vector unit, or the library of the second is missing.")
    path_of = library._library_path
    monkeypatch.setattr(
        library, "_library_path", lambda unit: tmp_path if unit == found[0] else path_of(unit)
    )
    library._library_problem.cache_clear()
    assert library.best_unit() == found[1]
    assert library.unsupported_reason(library.best_unit()) is None
    library._library_problem.cache_clear()
    [message] = caplog.messages
    assert message.startswith(f"ELMo runs on {found[1]}: ")
