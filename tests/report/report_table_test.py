import csv
import json
from pathlib import Path
from typing import Any

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.report.report_table import ReportTable, format_cell, read_table, write_table

TABLE = ReportTable(
    name="layers-ner",
    title="Which layers: ner",
    columns=["ELMo", "dev f1 (%)", "epochs"],
    rows=[["no ELMo", 42.8, 12], ["a | b\nc", None, 3], ["λ = 1", "failed", 2]],
    notes=["One note.", "Another."],
    settings={"command": "allennlp elmo-report layers", "seeds": [1, 2]},
)


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    paths = write_table(TABLE, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["layers-ner.md", "layers-ner.csv", "layers-ner.json"]
    assert read_table(paths[-1]) == TABLE
    assert sorted(path.name for path in paths[0].parent.iterdir()) == sorted(
        path.name for path in paths
    )


def test_the_markdown_has_title_table_notes_and_settings(tmp_path: Path) -> None:
    markdown = write_table(TABLE, tmp_path)[0].read_text(encoding="utf-8")
    assert markdown == (
        "# Which layers: ner\n\n"
        "| ELMo | dev f1 (%) | epochs |\n| --- | --- | --- |\n"
        "| no ELMo | 42.8 | 12 |\n| a \\| b c |  | 3 |\n| λ = 1 | failed | 2 |\n"
        "\nOne note.\n\nAnother.\n"
        "\n## Settings\n\n- command: `allennlp elmo-report layers`\n- seeds: `[1, 2]`\n"
    )


def test_without_settings_there_is_no_such_heading(tmp_path: Path) -> None:
    markdown = write_table(TABLE._replace(settings={}), tmp_path)[0].read_text(encoding="utf-8")
    assert markdown.endswith("\nAnother.\n")


def test_the_csv_holds_every_cell_whole(tmp_path: Path) -> None:
    with open(write_table(TABLE, tmp_path)[1], newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows == [
        TABLE.columns,
        ["no ELMo", "42.8", "12"],
        ["a | b\nc", "", "3"],
        ["λ = 1", "failed", "2"],
    ]


def test_a_row_of_another_width_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = TABLE._replace(rows=[["no ELMo", 42.8]])
    with pytest.raises(ValueError, match="layers-ner: a row has 2 cells for 3 columns"):
        write_table(table, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_what_stood_there_stays_if_writing_fails(tmp_path: Path) -> None:
    write_table(TABLE, tmp_path)
    with pytest.raises(TypeError):
        write_table(TABLE._replace(settings={"seeds": object()}), tmp_path)
    assert read_table(tmp_path / "layers-ner.json") == TABLE


@pytest.mark.parametrize(
    "content, match",
    [
        (None, "cannot be read as JSON"),
        ("{", "cannot be read as JSON"),
        ("[1]", "found list, expected a table"),
        (json.dumps({"name": "a", "rows": []}), "found name, rows, expected a table.*, settings"),
    ],
)
def test_another_file_is_no_table(content: Any, match: str, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match=rf"table\.json: {match}"):
        read_table(path)


@pytest.mark.parametrize(
    "value, text",
    [(None, ""), (12, "12"), (12.0, "12"), (0.12345, "0.123"), (-1.5, "-1.5"), ("a", "a")],
)
def test_cells_are_short(value: Any, text: str) -> None:
    assert format_cell(value) == text
