"""`elmo models`: list the models that have a name, and show their cards."""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional

import elmo_plugin
from elmo_plugin.arguments import Options, option
from elmo_plugin.compat.training_process import CONFIGS
from elmo_plugin.errors import ConfigurationError

DESCRIPTION = """\
examples:
  %(prog)s
  %(prog)s elmo_mini

List the models that commands know by name. With NAME, show the folder of that model and its card, which
describes its training data, scores and limits. All models but original, which is downloaded, come with this
package.

biLMs, pretrained language models, compute vectors of words:    elmo embed ... --model elmo_mini
Task models, trained with a biLM, label text:                   elmo predict elmo_ner_small in.jsonl
A file or folder of the same name in the current folder takes precedence.

The last line of the list is the folder of the configs, such as ner_small.jsonnet. docs/models.md
lists the biLMs that others have published.
"""

# As in bilm/model_files.py, from where importing it would take the time of importing torch.
FOLDER = Path(elmo_plugin.__file__).with_name("pretrained")
ORIGINAL = "original"

# The file that each kind of model has in its folder.
_KINDS = {"options.json": "biLM", "config.json": "task model"}

_ORIGINAL_ABOUT = "the paper's, of AI2; not included, downloaded once; en"


@dataclass(frozen=True)
class ModelsOptions(Options):
    """Which model to show."""

    name: Optional[str] = option(
        "show its folder and its card", None, positional=True, nargs="?", metavar="NAME"
    )


def run(options: ModelsOptions) -> None:
    """Print the list of models and the folder of the configs, or the folder and card of one."""
    if options.name is None:
        print(*model_lines(FOLDER), sep="\n")
        # Their imports, such as lib/ner.libsonnet, are beside them.
        print(f"configs: {CONFIGS} (copy the whole folder: cp -r {shlex.quote(str(CONFIGS))} .)")
    elif options.name == ORIGINAL:
        from elmo_plugin.bilm.model_files import ORIGINAL_MODEL

        print(f"{ORIGINAL}: {_ORIGINAL_ABOUT}")
        print(f"{ORIGINAL_MODEL}options.json", f"{ORIGINAL_MODEL}weights.hdf5", sep="\n")
    else:
        folders = {file.parent.name: file.parent for file in _model_files(FOLDER)}
        if options.name not in folders:
            raise ConfigurationError(
                f"{options.name}: no such model, expected one of {', '.join([*folders, ORIGINAL])}."
            )
        folder = folders[options.name]
        print(folder, (folder / "README.md").read_text(encoding="utf-8"), sep="\n\n", end="")


def model_lines(folder: Path) -> List[str]:
    """Return a table, with a line of titles, of the models in the folders of a folder, and the original."""
    rows = [("name", "kind", "size", "about")]
    for file in _model_files(folder):
        files = [path for path in file.parent.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files) / 1e6
        about = _front_matter(file.with_name("README.md"))
        facts = [about.get(key, "").rstrip(".") for key in ("summary", "language", "license")]
        description = "; ".join(filter(None, facts))
        rows.append((file.parent.name, _KINDS[file.name], f"{size:.1f} MB", description))
    rows.append((ORIGINAL, "biLM", "374 MB", _ORIGINAL_ABOUT))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip() for row in rows]


def _model_files(folder: Path) -> List[Path]:
    """Return the file of each model that says its kind."""
    return sorted(file for file in folder.glob("*/*") if file.name in _KINDS)


def _front_matter(card: Path) -> Dict[str, str]:
    """Return the keys and values, of one line, between the lines `---` at the head of a model card."""
    text = card.read_text(encoding="utf-8") if card.exists() else ""
    head = re.match(r"---\n(.*?)(^---$|\Z)", text, re.DOTALL | re.MULTILINE)
    items = re.findall(r"^(\w+): (.*)$", head[1], re.MULTILINE) if head else []
    return {key: _unquoted(value.strip()) for key, value in items}


def _unquoted(value: str) -> str:
    """Return a text of YAML. One in double quotes is JSON in the cards that `elmo export` writes."""
    try:
        return json.loads(value) if value.startswith('"') else value.strip("'")
    except ValueError:
        return value.strip('"')
