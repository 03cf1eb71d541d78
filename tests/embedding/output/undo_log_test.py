import os
from pathlib import Path
from typing import List, Tuple

import pytest

from elmo_plugin.embedding.output.undo_log import UndoLog, roll_back

CONTENT = bytes(range(100))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


def overwrite(path: Path, changes: List[Tuple[int, bytes]]) -> None:
    """Makes changes as a program does that is killed after the last."""
    log = UndoLog(path.with_name("log"), len(CONTENT))
    with open(path, "r+b", buffering=0) as file:
        for position, data in changes:
            log.keep(file.fileno(), position, len(data))
            os.pwrite(file.fileno(), data, position)
    log.close()


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [(10, b"abc")],
        [(10, b"abc"), (11, b"def"), (10, b"xyz")],
        [(98, b"over the end"), (110, b"and on")],
        [(100, b"beyond the end alone")],
    ],
)
def test_a_file_is_put_back(path: Path, changes: List[Tuple[int, bytes]]) -> None:
    overwrite(path, changes)
    for _ in range(2):  # also where putting it back was interrupted
        roll_back(path, path.with_name("log"), len(CONTENT))
        assert path.read_bytes() == CONTENT


def test_what_is_added_needs_no_log(path: Path) -> None:
    overwrite(path, [(100, b"x" * 10_000)])
    assert path.with_name("log").stat().st_size == 0


def test_without_a_log_a_file_is_cut(path: Path) -> None:
    path.write_bytes(CONTENT + b"more")
    roll_back(path, path.with_name("log"), len(CONTENT))
    assert path.read_bytes() == CONTENT


def test_a_record_without_its_end_is_of_a_change_that_was_not_made(path: Path) -> None:
    overwrite(path, [(10, b"abc"), (20, b"def")])
    log = path.with_name("log")
    for size in range(log.stat().st_size // 2, log.stat().st_size):
        # The second change was not made yet.
        path.write_bytes(CONTENT[:10] + b"abc" + CONTENT[13:])
        os.truncate(log, log.stat().st_size)
        cut = log.with_name("cut")
        cut.write_bytes(log.read_bytes()[:size])
        roll_back(path, cut, len(CONTENT))
        assert path.read_bytes() == CONTENT


def test_a_log_on_a_full_disk_stops_the_change(path: Path) -> None:
    log = UndoLog("/dev/full", len(CONTENT))
    with open(path, "r+b") as file, pytest.raises(OSError):
        log.keep(file.fileno(), 10, 3)
    log.close()
