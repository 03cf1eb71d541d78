"""The tables and pictures that lie in a folder of results."""

from os import PathLike
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.files.figure_file import SUFFIXES
from elmo_plugin.report.report_table import ReportTable, read_table

_CELL_TYPES = (str, int, float, type(None))


class PictureFiles(NamedTuple):
    """
    # Parameters

    stem : `str`
        Of the files, such as `layers-ner-curves`.
    label : `str`
        What sets it apart from other pictures of its table, in words: `curves`; empty for the one that is
        named like the table.
    paths : `Dict[str, Path]`
        The file of each format that is there, by suffix: `.png`, `.svg`.
    """

    stem: str
    label: str
    paths: Dict[str, Path]


class TableSection(NamedTuple):
    """
    # Parameters

    table : `ReportTable`
        As it was read.
    name : `str`
        Path of its files in the folder, without suffix and with slashes: `ner/layers`.
    csv_file : `Path`
        The same table for spreadsheets.
    pictures : `List[PictureFiles]`
        Those that belong to it.
    """

    table: ReportTable
    name: str
    csv_file: Path
    pictures: List[PictureFiles]

    @property
    def folder(self) -> str:
        """The sub-folder, with slashes; empty for the folder itself."""
        return self.name.rpartition("/")[0]


class ResultsFolder(NamedTuple):
    """
    # Parameters

    sections : `List[TableSection]`
        Those of the folder itself first, then those of its sub-folders, by name.
    other_pictures : `List[PictureFiles]`
        Pictures that belong to no table. Their `label` is their path in the folder.
    """

    sections: List[TableSection]
    other_pictures: List[PictureFiles]


def read_results(folder: Union[str, PathLike]) -> ResultsFolder:
    """
    Find and read what `write_table` and `write_figure` wrote into a folder and its sub-folders.

    A table is a `NAME.json` beside a `NAME.csv`: the folders of training runs hold other JSON. A picture
    belongs to the table beside it that has its stem, or, the longest first, whose stem it begins with:
    `layers-ner-curves` to `layers-ner` rather than to `layers`. Names that begin with a dot are left out.

    # Raises

    `ConfigurationError` if there is no such folder, no table in it, or a JSON file that is not a table.
    """
    folder = Path(folder)
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "is not there"
        raise ConfigurationError(
            f"{folder}: {found}, expected a folder of results, as `allennlp elmo-report` fills it. "
            "Correct the path."
        )
    files = [path for path in sorted(folder.rglob("*")) if not _is_hidden(path.relative_to(folder))]
    table_files = [
        path for path in files if path.suffix == ".json" and path.with_suffix(".csv").is_file()
    ]
    if not table_files:
        raise ConfigurationError(
            f"{folder}: found no table in it or its sub-folders, expected NAME.json beside NAME.csv, as "
            "`allennlp elmo-report` writes them. Give the folder that was its output."
        )
    pictures, other_pictures = _assign_pictures(folder, files, table_files)
    sections = [
        TableSection(
            table=read_checked_table(path),
            name=path.relative_to(folder).with_suffix("").as_posix(),
            csv_file=path.with_suffix(".csv"),
            pictures=pictures[path],
        )
        for path in sorted(table_files, key=lambda path: (path.parent.parts, path.stem))
    ]
    return ResultsFolder(sections, other_pictures)


def read_checked_table(path: Path) -> ReportTable:
    """
    The table in a JSON file, of which each part is what `ReportTable` says.

    # Raises

    `ConfigurationError` naming the file and the part.
    """
    table = read_table(path)
    expected_types = {
        "title": (str, "text"),
        "columns": (list, "a list of names"),
        "rows": (list, "a list of rows"),
        "notes": (list, "a list of paragraphs"),
        "settings": (dict, "names with values"),
    }
    for key, (expected_type, expected) in expected_types.items():
        value = getattr(table, key)
        if not isinstance(value, expected_type):
            raise _damaged(path, f"{key} is {value!r}", expected)
    for key, values in {"columns": table.columns, "notes": table.notes}.items():
        for value in values:
            if not isinstance(value, str):
                raise _damaged(path, f"{key} holds {value!r}", "text")
    for number, row in enumerate(table.rows, start=1):
        if not isinstance(row, list) or len(row) != len(table.columns):
            raise _damaged(path, f"row {number} is {row!r}", f"{len(table.columns)} cells")
        for cell in row:
            if not isinstance(cell, _CELL_TYPES):
                raise _damaged(path, f"row {number} holds {cell!r}", "text or a number")
    return table


def _damaged(path: Path, found: str, expected: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path}: {found}, expected {expected}, in a table that elmo-report wrote. Make the table again."
    )


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _assign_pictures(
    folder: Path, files: List[Path], table_files: List[Path]
) -> Tuple[Dict[Path, List[PictureFiles]], List[PictureFiles]]:
    """For each table its pictures, the one with its own stem first; and those of no table."""
    formats: Dict[Path, Dict[str, Path]] = {}
    for path in files:
        if path.suffix in SUFFIXES:
            formats.setdefault(path.with_suffix(""), {})[path.suffix] = path
    assigned: Dict[Path, List[PictureFiles]] = {path: [] for path in table_files}
    others = []
    for picture, paths in formats.items():
        owner = _owner(picture, table_files)
        if owner is None:
            label = picture.relative_to(folder).as_posix()
            others.append(PictureFiles(picture.name, label, paths))
        else:
            label = _in_words(picture.name[len(owner.stem) :])
            assigned[owner].append(PictureFiles(picture.name, label, paths))
    for pictures in assigned.values():
        pictures.sort(key=lambda picture: picture.stem)
    return assigned, others


def _owner(picture: Path, table_files: List[Path]) -> Optional[Path]:
    def begins(path: Path) -> bool:
        rest = picture.name.removeprefix(path.stem)
        # "layers-ner" begins "layers-ner-curves", and not "layers-nerves".
        return picture.name.startswith(path.stem) and not rest[:1].isalnum()

    candidates = [path for path in table_files if path.parent == picture.parent and begins(path)]
    return max(candidates, key=lambda path: len(path.stem), default=None)


def _in_words(rest: str) -> str:
    return " ".join(rest.replace("-", " ").replace("_", " ").split())
