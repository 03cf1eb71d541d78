"""`elmo models`: list the models that come with this package, and what is known of published ones."""

import argparse
import textwrap
from pathlib import Path
from typing import List

import elmo_plugin
from elmo_plugin.commands.published_models import (
    MODELS,
    SOURCES,
    PublishedModel,
    languages,
    matching,
)
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.model_card import front_matter

_DESCRIPTION = """\
examples:
  %(prog)s
  %(prog)s finnish

List the models that come with this package: name, kind, size, and what the head of README.md says.
The name of a biLM stands for its options and weights: elmo embed ... --options-file elmo_mini
That of a task model stands for its archive, unless the current folder has a file of this name.

With a language, or a part of a name, print what is known of the published biLMs that have it: address,
width, licence, and the options that load it. ? is what is not known.
"""

# As in bilm/model_files.py, from where importing it would take the time of importing torch.
FOLDER = Path(elmo_plugin.__file__).with_name("pretrained")

# What the folder of a model holds, by its kind.
_KINDS = {"options.json": "biLM", "config.json": "task model"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = _DESCRIPTION
    parser.add_argument(
        "word",
        metavar="LANGUAGE",
        nargs="?",
        help="a language, or a part of a published model's name",
    )


def run(args: argparse.Namespace) -> None:
    """Print a line for each model of the package, or the facts of published ones."""
    if args.word is None:
        print("\n".join(model_lines(FOLDER)))
        print(f"\nelmo models LANGUAGE prints what is known of {len(MODELS)} published biLMs, in")
        print(textwrap.fill(", ".join(languages()), 98))
        return
    found = matching(args.word)
    if not found:
        raise ConfigurationError(
            f"{args.word}: no published model has this language or name, expected one of those that elmo "
            "models lists. Correct it."
        )
    print("\n\n".join(facts_of(model) for model in found))


def facts_of(model: PublishedModel) -> str:
    """Return what is known of a published model, a fact on each line."""
    source = SOURCES[model.source]
    facts = {
        "language": model.language,
        "trained on": model.text,
        "width": model.width,
        "parameters": model.parameters and f"{model.parameters} million",
        "licence": source.license,
        "publisher": f"{source.title}, {source.page}",
        "addresses": " ".join(model.addresses),
        "not checked": model.unchecked,
        "how to": source.how,
        "options": model.options or "none: it cannot be loaded",
    }
    lines = [f"  {name:<12}{value or '?'}" for name, value in facts.items()]
    return "\n".join([model.name, *lines])


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
