import io
import sys

import pytest

from elmo_plugin.files.progress import progress_bar


@pytest.mark.parametrize("is_terminal, seconds", [(True, 0.1), (False, 10)])
def test_a_log_is_written_to_rarely(
    is_terminal: bool, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_bar([1, 2], "counting", unit=" words") as progress:
        assert progress.mininterval == seconds
        assert list(progress) == [1, 2]
    assert "2/2" in stream.getvalue()
