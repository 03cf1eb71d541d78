import csv
import math
import sys
from pathlib import Path
from typing import Any, List

import numpy
import pandas
import pytest

from elmo_plugin.report.tables import (
    Part,
    settings_of,
    versions,
    without_machine_paths,
    write_report,
)
from tests.report.conftest import tables_of

COLUMNS = ["ELMo", "dev f1 (%)", "epochs"]
ROWS = [["no ELMo", 42.8, 12], ["a | b\nc", None, 3], ["λ = 1", "failed", 2]]
ROWS += [["d", 0.12345, 4], ["e", 40.0, 5]]
SETTINGS = {"command": "elmo report layers", "seeds": [1, 2]}


def rows_of(frame: pandas.DataFrame, folder: Path) -> List[List[Any]]:
    return tables_of(write_report(folder, {"x": Part("X", frame, [])}, {}))[0].rows


def test_a_table_is_written_as_markdown_csv_and_json(tmp_path: Path) -> None:
    part = Part(
        "Which layers: ner", pandas.DataFrame(ROWS, columns=COLUMNS, dtype=object), ["One.", "Two."]
    )
    report = write_report(tmp_path / "new" / "folder", {"layers-ner": part}, SETTINGS)
    markdown, csv_file, json_file = report.files
    assert [path.name for path in report.files] == [
        f"layers-ner.{end}" for end in ("md", "csv", "json")
    ]
    assert set(report.files) == set(json_file.parent.iterdir())
    (table,) = tables_of(report)
    assert (table.title, table.columns, table.rows) == (part.title, COLUMNS, ROWS)
    assert (table.notes, table.settings) == (part.notes, SETTINGS)
    assert markdown.read_text(encoding="utf-8") == (
        "# Which layers: ner\n\n| ELMo | dev f1 (%) | epochs |\n| --- | --- | --- |\n"
        "| no ELMo | 42.8 | 12 |\n| a \\| b c |  | 3 |\n| λ = 1 | failed | 2 |\n| d | 0.123 | 4 |\n"
        "| e | 40 | 5 |\n"
        "\nOne.\n\nTwo.\n"
        "\n## Settings\n\n- command: `elmo report layers`\n- seeds: `[1, 2]`\n"
    )
    with open(csv_file, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[:3] == [COLUMNS, ["no ELMo", "42.8", "12"], ["a | b\nc", "", "3"]]


def test_a_frame_becomes_a_table_of_plain_numbers(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"a": [1, 2], "b": [0.5, None], "c": [None, 3]}, dtype=object)
    frame["d"] = numpy.array([1, 2])
    frame["e"] = [1.5, math.nan]
    rows = rows_of(frame, tmp_path)
    assert rows == [[1, 0.5, None, 1, 1.5], [2, None, 3, 2, None]]
    assert {type(cell) for row in rows for cell in row} == {int, float, type(None)}


@pytest.mark.parametrize(
    "arguments, command",
    [
        (["/usr/bin/elmo", "report", "pos", "a b"], "ELMO=mini elmo report pos 'a b'"),
        (["/x/elmo_plugin/__main__.py", "report"], "ELMO=mini python -m elmo_plugin report"),
    ],
)
def test_the_command_is_recorded_as_it_was_typed(
    arguments: List[str], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", arguments)
    settings = settings_of({"ELMO": "mini"}, seeds=[1])
    assert settings == {"command": command, "versions": versions(), "seeds": [1]}


@pytest.mark.parametrize(
    "text, expected",
    [
        ("A=/mnt/x/data/ner elmo", "A=.../data/ner elmo"),
        ("'/mnt/x/a b/c/d.txt'", "'.../x/a b/c/d.txt'"),
        ("CWD/results CWD/a/b/c", "results a/b/c"),
        ("data/a/b/c https://a.org/b/c/d hf://a/b/c", "data/a/b/c https://a.org/b/c/d hf://a/b/c"),
        ("1/2 and/or a / b, /tmp/x", "1/2 and/or a / b, /tmp/x"),
    ],
)
def test_tables_have_no_paths_of_this_machine(text: str, expected: str) -> None:
    assert without_machine_paths(text.replace("CWD", str(Path.cwd()))) == expected
