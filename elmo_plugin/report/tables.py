"""Tables of results: Markdown for readers, CSV for spreadsheets, JSON for programs; and their settings."""

import json
import os
import platform
import re
import shlex
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

import pandas
import torch

from elmo_plugin import __version__
from elmo_plugin.arguments import Options, option
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import replaced_file
from elmo_plugin.files.text import FileName

if TYPE_CHECKING:  # --include-package imports every module, also where matplotlib is not installed
    from matplotlib.figure import Figure

_FIGURE_SUFFIXES = (".png", ".svg")
_DOTS_PER_INCH = 150

FAILED = "failed"

_PART = r"[^/\s\"',;()]+"
_START_OF_PATH = r"(?<![\w:/.~-])"  # not within a word, a URL or a relative path
_LONG_ABSOLUTE_PATH = re.compile(rf"{_START_OF_PATH}/(?:{_PART}/)+(?={_PART}/{_PART})")


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Options):
    """Options of all reports that measure with seeds."""

    output: str = option(
        "results folder, made if missing; tables and figures of the same name are replaced. Runs of "
        "training are kept in DIR/runs, and reports share equal ones",
        short="-s",
        metavar="DIR",
    )
    # The paper's standard deviations are over five seeds, too.
    seeds: Sequence[int] = option(
        "train or measure everything once with each seed", (1, 2, 3, 4, 5), metavar="N"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        seeds = self.seeds
        are_seeds = len(set(seeds)) == len(seeds) > 0 and all(0 <= seed < 2**32 for seed in seeds)
        expected = f"one or more numbers from 0 to {2**32 - 1}, each once"
        check_option("--seeds", list(seeds), are_seeds, expected)
        check_results_folder(self.output)


def check_results_folder(folder: str) -> None:
    """Raise `ConfigurationError` unless the folder of `--output` can be written, or made."""
    path = Path(folder).absolute()
    existing = next(one for one in (path, *path.parents) if os.path.lexists(one))
    is_writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    expected = f"a folder for the results: {existing} is not a writable folder"
    check_option("--output", folder, is_writable, expected)


class Part(NamedTuple):
    """A table of a report, and the figure of the same name."""

    title: str
    frame: pandas.DataFrame  # the index is left out, missing values become empty cells
    notes: List[str]  # each a paragraph
    figure: Optional["Figure"] = None


class Report(NamedTuple):
    """The result of a report: the files that it wrote, and a line for each run that failed."""

    files: List[Path]
    failures: Sequence[str] = ()


def write_report(
    output: FileName,
    parts: Mapping[str, Part],
    settings: Dict[str, Any],
    failures: Sequence[str] = (),
) -> Report:
    """
    Write NAME.md, NAME.csv and NAME.json for each part of a report, and NAME.png and NAME.svg if it has a
    figure, into a folder, which is made if missing. Existing files are replaced. Tables are published, so
    they get no paths of this machine.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, part in parts.items():
        cells = json.loads(part.frame.to_json(orient="split", double_precision=15, index=False))
        table = {
            "name": name,
            "title": part.title,
            "columns": cells["columns"],
            "rows": cells["data"],
            "notes": part.notes,
            "settings": settings,
        }
        table = json.loads(without_machine_paths(json.dumps(table, ensure_ascii=False)))
        contents = {
            ".md": _markdown(table),
            # Made from the plain numbers: a count beside an empty cell stays a whole number.
            ".csv": pandas.DataFrame(table["rows"], None, table["columns"], object).to_csv(
                index=False
            ),
            ".json": json.dumps(table, indent=2, ensure_ascii=False) + "\n",
        }
        for suffix, text in contents.items():
            files.append(folder / f"{name}{suffix}")
            with replaced_file(files[-1]) as partial_file:
                partial_file.write_text(text, encoding="utf-8", newline="")
        if part.figure is None:
            continue
        for suffix in _FIGURE_SUFFIXES:
            files.append(folder / f"{name}{suffix}")
            with replaced_file(files[-1]) as partial_file:
                part.figure.savefig(
                    partial_file, format=suffix.removeprefix("."), dpi=_DOTS_PER_INCH
                )
    return Report(files, failures)


def _markdown(table: Mapping[str, Any]) -> str:
    """Return a table as Markdown, floats with at most three decimals."""
    columns = table["columns"]
    rows = [columns, ["---"] * len(columns), *table["rows"]]
    lines = [f"# {table['title']}", ""]
    lines += ["| " + " | ".join(map(_markdown_cell, row)) + " |" for row in rows]
    lines += [f"\n{note}" for note in table["notes"]]
    lines.append("\n## Settings\n")
    for name, value in table["settings"].items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(f"- {name}: `{text}`")
    return "\n".join(lines) + "\n"


def _markdown_cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


def settings_of(variables: Mapping[str, str] = {}, **more: Any) -> Dict[str, Any]:
    """
    Return the settings of a report's tables: the command that the user typed, with the environment
    variables that it needs, the versions, and `more`.
    """
    program = Path(sys.argv[0])
    is_module = program.name == "__main__.py"
    words = ["python", "-m", program.parent.name] if is_module else [program.name]
    command = shell_command([*words, *sys.argv[1:]], variables)
    return {"command": command, "versions": versions(), **more}


def shell_command(command: Sequence[str], variables: Mapping[str, str]) -> str:
    """Return a command for a shell, with the environment variables that it needs."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join([*settings, shlex.join(command)])


def versions() -> Dict[str, str]:
    """Return the versions of the packages in this process that results may depend on."""
    return {
        "elmo_plugin": __version__,
        "allennlp": version("allennlp"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def without_machine_paths(text: str) -> str:
    """
    Make the paths in a text relative to the current folder, and shorten longer absolute paths elsewhere
    to their last two parts: `.../ner/train.conll`.
    """
    text = re.sub(rf"{_START_OF_PATH}{re.escape(str(Path.cwd()))}/", "", text)
    return _LONG_ABSOLUTE_PATH.sub(".../", text)


def check_option(flag: str, found: Any, is_valid: bool, expected: str) -> None:
    """Raise an error unless the value that was found is valid."""
    if not is_valid:
        raise ConfigurationError(f"{flag}: found {found}, expected {expected}.")
