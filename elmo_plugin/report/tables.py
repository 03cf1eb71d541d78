"""A table of results: Markdown for readers, CSV for spreadsheets, JSON for programs."""

import json
import platform
from dataclasses import dataclass, fields
from importlib.metadata import version
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Union, get_origin

import torch
from allennlp.common.checks import ConfigurationError
from scipy import stats

from elmo_plugin import __version__
from elmo_plugin.files.replaced_file import replaced_file

if TYPE_CHECKING:  # --include-package imports every module, also where pandas is not installed
    import pandas

# The default of all reports. The paper's standard deviations are over five seeds, too.
DEFAULT_SEEDS = (1, 2, 3, 4, 5)
FAILED = "failed"

_CELL_TYPES = (str, int, float, type(None))


@dataclass(frozen=True)
class ReportTable:
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
        What made the table, for whoever repeats it: command, seeds, data, versions.

    # Raises

    `ValueError` if a part is of another type, or a row has more or fewer cells than there are columns.
    """

    name: str
    title: str
    columns: List[str]
    rows: List[List[Any]]
    notes: List[str]
    settings: Dict[str, Any]

    def __post_init__(self) -> None:
        for field in fields(self):
            expected: Any = get_origin(field.type) or field.type
            if not isinstance(getattr(self, field.name), expected):
                raise ValueError(f"{field.name} is {getattr(self, field.name)!r}")
        for text in [*self.columns, *self.notes]:
            if not isinstance(text, str):
                raise ValueError(f"columns or notes hold {text!r}, which is not text")
        for number, row in enumerate(self.rows, start=1):
            if not isinstance(row, list) or len(row) != len(self.columns):
                raise ValueError(f"row {number} is {row!r}, for {len(self.columns)} columns")
            for cell in row:
                if not isinstance(cell, _CELL_TYPES):
                    raise ValueError(f"row {number} holds {cell!r}, which is no text or number")

    def markdown(self) -> str:
        """Return the table as Markdown, with notes and settings."""
        lines = [f"# {self.title}", "", _markdown_row(self.columns)]
        lines.append("|" + " --- |" * len(self.columns))
        lines += [_markdown_row([format_cell(cell) for cell in row]) for row in self.rows]
        lines += [f"\n{note}" for note in self.notes]
        if self.settings:
            lines.append("\n## Settings\n")
        for name, value in self.settings.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines.append(f"- {name}: `{text}`")
        return "\n".join(lines) + "\n"


def table_of(
    frame: "pandas.DataFrame", name: str, title: str, notes: List[str], settings: Dict[str, Any]
) -> ReportTable:
    """Make a table of a frame, whose missing values become empty cells. The index is left out."""
    # With Python's own numbers; of dtype object, as whole numbers beside empty cells would become floats.
    cells = frame.astype(object).where(frame.notna(), None)
    rows = [
        [getattr(cell, "item", lambda cell=cell: cell)() for cell in row]
        for row in cells.to_numpy()
    ]
    return ReportTable(name, title, list(frame.columns), rows, notes, settings)


def write_table(table: ReportTable, folder: Union[str, PathLike]) -> List[Path]:
    """
    Write NAME.md, NAME.csv and NAME.json into a folder, which is made if missing. Files there are replaced.

    # Returns

    The paths of the three files.
    """
    import pandas

    frame = pandas.DataFrame(table.rows, columns=table.columns, dtype=object)
    texts = {
        ".md": table.markdown(),
        ".csv": frame.to_csv(index=False),
        ".json": json.dumps(vars(table), indent=2, ensure_ascii=False) + "\n",
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{table.name}{suffix}" for suffix in texts]
    for path, text in zip(paths, texts.values()):
        with replaced_file(path) as partial_file:
            partial_file.write_text(text, encoding="utf-8", newline="")
    return paths


def read_table(json_path: Union[str, PathLike]) -> ReportTable:
    """
    Read the table in a JSON file of `write_table`.

    # Raises

    `ConfigurationError` naming the file, if it is not there or holds something else.
    """
    try:
        return ReportTable(**json.loads(Path(json_path).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(
            f"{json_path}: found no table ({error}), expected one that elmo-report wrote, with the keys "
            f"{', '.join(field.name for field in fields(ReportTable))}. Make the table again."
        ) from error


def format_cell(value: Any) -> str:
    """Return a cell for readers: empty for `None`, floats with at most three decimals."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return str(value)


def paired_differences(
    scores: "pandas.DataFrame", name: str, digits: int = 2
) -> "pandas.DataFrame":
    """
    Compare each row with each row above it, over the seeds that both have: the mean of the differences, and
    its 95 % confidence interval by Student's t.

    # Parameters

    scores : `pandas.DataFrame`
        A row for each variant and a column for each seed; missing where a run failed.
    name : `str`
        What the scores are, such as `dev`.
    digits : `int`, optional (default = `2`)
        Of the results.

    # Returns

    Columns `variant`, `compared with`, `seeds`, `NAME difference` and `NAME 95 % interval`. With one seed
    there is no interval, and without common seeds there is no difference.
    """
    import pandas

    rows = []
    for first, second in combinations(scores.index, 2):
        differences = (scores.loc[second] - scores.loc[first]).dropna()
        mean, interval = None, None
        if len(differences) > 0:
            mean = round(float(differences.mean()), digits)
        if len(differences) > 1:
            margin = float(stats.t.ppf(0.975, len(differences) - 1) * differences.sem())
            low, high = (differences.mean() + sign * margin for sign in (-1, 1))
            interval = f"{low:.{digits}f} to {high:.{digits}f}"
        rows.append([second, first, len(differences), mean, interval])
    columns = ["variant", "compared with", "seeds", f"{name} difference", f"{name} 95 % interval"]
    return pandas.DataFrame(rows, columns=columns, dtype=object)


def versions() -> Dict[str, str]:
    """Return the versions in this process that results may depend on."""
    return {
        "elmo_plugin": __version__,
        "allennlp": version("allennlp"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def check_seeds(seeds: Sequence[int]) -> None:
    """
    # Raises

    `ConfigurationError` unless there are seeds, each once, and from 0 to 2^32 - 1, as numpy takes.
    """
    if not seeds or len(set(seeds)) < len(seeds) or not all(0 <= seed < 2**32 for seed in seeds):
        raise ConfigurationError(
            f"--seeds: found {list(seeds)}, expected one or more numbers from 0 to {2**32 - 1}, each once."
        )


def check_results_folder(output: Union[str, PathLike]) -> None:
    """
    # Raises

    `ConfigurationError` if `output` is a file.
    """
    if Path(output).exists() and not Path(output).is_dir():
        raise ConfigurationError(
            f"--output: {output} is a file, expected a folder for the results. Give another path."
        )


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
