from pathlib import Path

import pytest

from elmo_plugin.files.fail_safe import FailSafeFile
from tests.conftest import file_size_limit


def test_a_write_that_is_cut_short_is_an_error(tmp_path: Path) -> None:
    """As the last one before a disk is full. (Linux cuts each write after 2 GiB, and the rest follows.)"""
    with (
        file_size_limit(6),
        pytest.raises(OSError, match="File too large"),
        FailSafeFile(tmp_path / "file", "w+") as file,
    ):
        assert file.write(b"0123456789") == 10
