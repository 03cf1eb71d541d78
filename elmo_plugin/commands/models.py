"""`elmo models`: list the models that come with this package."""

import argparse
import itertools
from pathlib import Path
from typing import Dict, List

import elmo_plugin

_DESCRIPTION = """\
example:
  %(prog)s

List the models that come with this package: name, kind, size, and what the head of README.md says.
The name of a biLM stands for its options and weights: elmo embed ... --options-file elmo_mini
That of a task model stands for its archive, unless the current folder has a file of this name.
"""

# As in bilm/model_files.py, from where importing it would take the time of importing torch.
FOLDER = Path(elmo_plugin.__file__).with_name("pretrained")

# What the folder of a model holds, by its kind.
_KINDS = {"options.json": "biLM", "config.json": "task model"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command: none."""
    parser.description = _DESCRIPTION


def run(args: argparse.Namespace) -> None:
    """Print a line for each model."""
    print("\n".join(model_lines(FOLDER)))


def model_lines(folder: Path) -> List[str]:
    """Return a table of the models in a folder, each in a folder of its own, with a line of titles."""
    rows = [("name", "kind", "size", "about")]
    for file in sorted(folder.glob("*/*")):
        if file.name in _KINDS:
            files = [path for path in file.parent.rglob("*") if path.is_file()]
            size = sum(path.stat().st_size for path in files) / 1e6
            about = front_matter(file.with_name("README.md"))
            facts = [about.get(key, "") for key in ("summary", "language", "license")]
            rows.append(
                (
                    file.parent.name,
                    _KINDS[file.name],
                    f"{size:.1f} MB",
                    "; ".join(filter(None, facts)),
                )
            )
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip() for row in rows]


def front_matter(readme: Path) -> Dict[str, str]:
    """Return the keys and values, without lists, between the lines `---` at the head of a model card."""
    values: Dict[str, str] = {}
    lines = readme.read_text(encoding="utf-8").splitlines() if readme.exists() else []
    if lines[:1] == ["---"]:
        for line in itertools.takewhile(lambda line: line != "---", lines[1:]):
            key, colon, value = line.partition(": ")
            if colon:
                values[key] = value.strip().strip("\"'")
    return values
