"""A table of results, as Markdown for readers, as CSV for spreadsheets, and as JSON for programs."""

import csv
import json
from os import PathLike
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, TextIO, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.files.replaced_file import replaced_file


class ReportTable(NamedTuple):
    """
    # Parameters

    name : `str`
        Stem of the files, such as `layers-ner`.
    title : `str`
        For readers.
    columns : `List[str]`
        Their names.
    rows : `List[List[Any]]`
        A cell for each column: `str`, `int`, `float`, or `None` for an empty one.
    notes : `List[str]`
        What a reader should know, each a paragraph.
    settings : `Dict[str, Any]`
        What made the table, for whoever repeats it: seeds, command, data, versions.
    """

    name: str
    title: str
    columns: List[str]
    rows: List[List[Any]]
    notes: List[str]
    settings: Dict[str, Any]


def write_table(table: ReportTable, folder: Union[str, PathLike]) -> List[Path]:
    """
    Write NAME.md, NAME.csv and NAME.json into a folder, which is made if it is not there. Files that stand
    there are replaced.

    # Returns

    The paths of the three files.

    # Raises

    `ValueError` if a row has more or fewer cells than there are columns; then nothing is written.
    """
    for row in table.rows:
        if len(row) != len(table.columns):
            raise ValueError(
                f"{table.name}: a row has {len(row)} cells for {len(table.columns)} columns: {row}"
            )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    writers: Dict[str, Callable[[ReportTable, TextIO], None]] = {
        ".md": _write_markdown,
        ".csv": _write_csv,
        ".json": _write_json,
    }
    paths = []
    for suffix, write in writers.items():
        path = folder / f"{table.name}{suffix}"
        with (
            replaced_file(path) as partial_file,
            # As the csv module asks: line ends are those that are written.
            open(partial_file, "w", encoding="utf-8", newline="") as file,
        ):
            write(table, file)
        paths.append(path)
    return paths


def read_table(json_path: Union[str, PathLike]) -> ReportTable:
    """
    The table in a JSON file of `write_table`.

    # Raises

    `ConfigurationError` if the file is not there or holds something else.
    """
    try:
        values = json.loads(Path(json_path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{json_path}: cannot be read as JSON ({error}), expected a table that elmo-report wrote."
        ) from error
    if not isinstance(values, dict) or set(values) != set(ReportTable._fields):
        found = ", ".join(values) if isinstance(values, dict) else type(values).__name__
        raise ConfigurationError(
            f"{json_path}: found {found}, expected a table that elmo-report wrote, with the keys "
            f"{', '.join(ReportTable._fields)}."
        )
    return ReportTable(**values)


def format_cell(value: Any) -> str:
    """A cell for readers: empty for `None`, floats with at most three decimals."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return str(value)


def _write_markdown(table: ReportTable, file: TextIO) -> None:
    print(f"# {table.title}\n", file=file)
    print(_markdown_row(table.columns), file=file)
    print("|" + " --- |" * len(table.columns), file=file)
    for row in table.rows:
        print(_markdown_row([format_cell(cell) for cell in row]), file=file)
    for note in table.notes:
        print(f"\n{note}", file=file)
    if table.settings:
        print("\n## Settings\n", file=file)
        for name, value in table.settings.items():
            written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            print(f"- {name}: `{written}`", file=file)


def _markdown_row(cells: List[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _write_csv(table: ReportTable, file: TextIO) -> None:
    csv.writer(file).writerows([table.columns, *table.rows])


def _write_json(table: ReportTable, file: TextIO) -> None:
    json.dump(table._asdict(), file, indent=2, ensure_ascii=False)
    file.write("\n")
