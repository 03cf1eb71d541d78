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
    corrected_p_values,
    holm,
    paired_differences,
    settings_of,
    versions,
    without_machine_paths,
    write_report,
)
from tests.closeness import assert_close
from tests.report.conftest import tables_of

COLUMNS = ["ELMo", "dev f1 (%)", "epochs"]
ROWS = [["no ELMo", 42.8, 12], ["a | b\nc", None, 3], ["λ = 1", "failed", 2], ["d", 0.12345, 4]]
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


def test_differences_are_paired_by_seed(tmp_path: Path) -> None:
    scores = pandas.DataFrame(
        [[50.0, 60, 70], [51, 62, 73], [10, None, None], [None, None, None], [None, 90, 0]],
        index=["a", "b", "c", "d", "e"],
        columns=[1, 2, 3],
    )
    rows = rows_of(paired_differences({"dev": scores}), tmp_path)
    # Mean 2, standard error 1 / sqrt(3); 4.303 is Student's t with two degrees of freedom.
    margin = 4.302653 / math.sqrt(3)
    assert rows[0] == ["b", "a", 3, 2.0, f"{2 - margin:.2f} to {2 + margin:.2f}"]
    assert rows[1] == ["c", "a", 1, -40.0, None]
    assert rows[2] == ["d", "a", 0, None, None]
    assert rows[3] == ["e", "a", 2, -20.0, "two seeds: no claim"]  # rather than -655 to 615
    assert len(rows) == 10


def test_seeds_are_those_of_the_first_measure(tmp_path: Path) -> None:
    dev = pandas.DataFrame([[50.0, 60], [51, 62]], index=["a", "b"], columns=[1, 2])
    [row] = rows_of(paired_differences({"dev": dev, "test": dev * float("nan")}), tmp_path)
    assert row[2:4] == [2, 1.5]


def test_p_values_are_corrected_by_holm() -> None:
    # 4 * 0.005, 3 * 0.01, 2 * 0.03; 0.04 not less than the one before.
    assert_close(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.6]) == [1.0, 1.0]


def test_planned_pairs_without_enough_seeds_or_with_equal_differences_count() -> None:
    scores = pandas.DataFrame(
        [[50.0, 60.0, 70.0], [51.0, 62.0, 73.0], [10.0, None, 20.0], [50.1, 60.1, 70.1]],
        index=["a", "b", "c", "d"],
    )
    planned = [("b", "a"), ("c", "a"), ("a", "a"), ("d", "a")]
    first, *others = corrected_p_values(scores, planned)
    # t = 2 * sqrt(3), with two degrees of freedom p = 1 - t / sqrt(2 + t ** 2). Four are planned.
    assert_close(first, 4 * (1 - math.sqrt(12 / 14)), terms=100)  # steps of Student's distribution
    # Of equal differences the variance is 0, or that of their roundings.
    assert others == [None, None, None]


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
