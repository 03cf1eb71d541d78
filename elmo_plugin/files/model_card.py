"""Read what the card of a model, README.md in its folder, says."""

import itertools
from pathlib import Path
from typing import Dict


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
