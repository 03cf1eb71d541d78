from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.tasks.data_files import data_file, data_files, numbered_lines


def test_a_file_stands_for_itself_and_a_folder_for_the_files_below_it(tmp_path: Path) -> None:
    inner = tmp_path / "b" / "c"
    inner.mkdir(parents=True)
    for path in (tmp_path / "z.gold", inner / "a.gold", tmp_path / "b" / "d.txt"):
        path.write_text("x\n")
    assert data_files(tmp_path, ".gold") == [inner / "a.gold", tmp_path / "z.gold"]
    assert data_files(tmp_path / "b" / "d.txt", ".gold") == [tmp_path / "b" / "d.txt"]
    with pytest.raises(ConfigurationError, match=r"holds no file whose name ends in \.json"):
        data_files(tmp_path, ".json")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"data file: .*nothing"):
        data_file(tmp_path / "nothing")
    with pytest.raises(ConfigurationError, match="is a folder, expected a file"):
        data_file(tmp_path)


def test_blank_lines_count_but_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes("\n a\u00a0b \r\n\t\nc".encode())
    assert list(numbered_lines(path, "one tree")) == [(2, "a\u00a0b"), (4, "c")]


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_a_file_of_blank_lines_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match="nothing but blank lines, expected one tree on"):
        list(numbered_lines(path, "one tree"))
