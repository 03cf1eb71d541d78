import json
from pathlib import Path
from typing import Any

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.report.report_table import ReportTable, write_table
from elmo_plugin.report.results_folder import read_results


def write(folder: Path, name: str, *pictures: str) -> Path:
    """A table, and files named like pictures; its JSON file."""
    write_table(ReportTable(name, f"Of {name}", ["F1"], [[1.5]], [], {}), folder)
    for picture in pictures:
        (folder / picture).write_bytes(b"")
    return folder / f"{name}.json"


def test_tables_of_the_folder_come_first_then_those_of_its_sub_folders(tmp_path: Path) -> None:
    write(tmp_path / "b" / "c", "x")
    write(tmp_path / "b", "z")
    write(tmp_path / "a", "y")
    write(tmp_path, "z")
    write(tmp_path, "w")
    sections = read_results(tmp_path).sections
    assert [section.name for section in sections] == ["w", "z", "a/y", "b/z", "b/c/x"]
    assert [section.folder for section in sections] == ["", "", "a", "b", "b/c"]
    assert sections[2].table.title == "Of y"
    assert sections[2].csv_file == tmp_path / "a" / "y.csv"


def test_a_picture_belongs_to_the_table_with_the_longest_name_that_its_name_begins_with(
    tmp_path: Path,
) -> None:
    write(tmp_path, "layers", "layers.svg", "layers.png", "layers-by-epoch.png")
    write(
        tmp_path, "layers-ner", "layers-ner-all_curves.png", "layers-ner.svg", "layers-nerves.png"
    )
    write(tmp_path / "more", "layers", "layers.png", "ner.png")
    results = read_results(tmp_path)
    assert [
        (section.name, [(picture.stem, picture.label) for picture in section.pictures])
        for section in results.sections
    ] == [
        (
            "layers",
            [("layers", ""), ("layers-by-epoch", "by epoch"), ("layers-nerves", "nerves")],
        ),
        ("layers-ner", [("layers-ner", ""), ("layers-ner-all_curves", "all curves")]),
        ("more/layers", [("layers", "")]),
    ]
    assert set(results.sections[0].pictures[0].paths) == {".svg", ".png"}
    assert [picture.label for picture in results.other_pictures] == ["more/ner"]


def test_other_json_and_hidden_files_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "layers", ".layers.png")
    write(tmp_path / ".hidden", "layers")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "metrics.json").write_text("{}")
    results = read_results(tmp_path)
    assert [section.name for section in results.sections] == ["layers"]
    assert results.sections[0].pictures == results.other_pictures == []


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no: is not there, expected a folder of results"):
        read_results(tmp_path / "no")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"file: is a file, expected a folder of results"):
        read_results(tmp_path / "file")


def test_a_folder_without_tables_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text("{}")
    with pytest.raises(
        ConfigurationError,
        match=r"found no table in it or its sub-folders, expected NAME\.json beside",
    ):
        read_results(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "layers")
    path.write_text(path.read_text()[:40])
    with pytest.raises(ConfigurationError, match=r"layers\.json: cannot be read as JSON"):
        read_results(tmp_path)


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("title", 3, r"title is 3, expected text"),
        ("columns", None, r"columns is None, expected a list of names"),
        ("columns", [1], r"columns holds 1, expected text"),
        ("rows", {}, r"rows is \{\}, expected a list of rows"),
        ("rows", [[1, 2]], r"row 1 is \[1, 2\], expected 1 cells"),
        ("rows", [[1], 2], r"row 2 is 2, expected 1 cells"),
        ("rows", [[[1]]], r"row 1 holds \[1\], expected text or a number"),
        ("notes", "one", r"notes is 'one', expected a list of paragraphs"),
        ("notes", [None], r"notes holds None, expected text"),
        ("settings", [], r"settings is \[\], expected names with values"),
    ],
)
def test_a_part_that_is_not_of_a_table_is_named(
    key: str, value: Any, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, "layers")
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ConfigurationError, match=rf"layers\.json: {message}.*Make the table again"):
        read_results(tmp_path)
