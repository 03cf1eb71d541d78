"""`elmo models`: list the models that come with this package."""

import re
from pathlib import Path
from typing import Dict, List

import elmo_plugin

DESCRIPTION = """\
example:
  %(prog)s

List the models that come with this package: name, kind, size, and what the head of README.md says.
Give the name of a biLM in place of its files: elmo embed ... --options-file elmo_mini
Give that of a task model in place of its archive, unless the current folder has a file of this name.
docs/models.md lists the biLMs that others have published.
"""

# As in bilm/model_files.py, from where importing it would take the time of importing torch.
FOLDER = Path(elmo_plugin.__file__).with_name("pretrained")

# The file that each kind of model has in its folder.
_KINDS = {"options.json": "biLM", "config.json": "task model"}


def run() -> None:
    """Print a line for each model of the package."""
    print("\n".join(model_lines(FOLDER)))


def model_lines(folder: Path) -> List[str]:
    """Return a table, with a line of titles, of the models in the folders of a folder."""
    rows = [("name", "kind", "size", "about")]
    for file in sorted(folder.glob("*/*")):
        if file.name in _KINDS:
            files = [path for path in file.parent.rglob("*") if path.is_file()]
            size = sum(path.stat().st_size for path in files) / 1e6
            about = _front_matter(file.with_name("README.md"))
            facts = [about.get(key, "") for key in ("summary", "language", "license")]
            description = "; ".join(filter(None, facts))
            rows.append((file.parent.name, _KINDS[file.name], f"{size:.1f} MB", description))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip() for row in rows]


def _front_matter(card: Path) -> Dict[str, str]:
    """Return the keys and values between the lines `---` at the head of a model card; lists are left out."""
    text = card.read_text(encoding="utf-8") if card.exists() else ""
    head = re.match(r"---\n(.*?)(^---$|\Z)", text, re.DOTALL | re.MULTILINE)
    items = re.findall(r"^(\w+): (.*)$", head[1], re.MULTILINE) if head else []
    return {key: value.strip().strip("\"'") for key, value in items}
