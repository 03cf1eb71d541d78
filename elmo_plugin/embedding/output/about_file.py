"""How the embedding in a folder was made."""

import json
from os import PathLike
from pathlib import Path
from typing import Any, Dict, Optional, Union

# Readers of folders of Parquet files leave out names that begin so.
FILE_NAME = "_embedding.json"


def write_about(folder: Union[str, PathLike], about: Dict[str, Any]) -> None:
    """Write what is known of an embedding beside it."""
    text = json.dumps(about, indent=2, ensure_ascii=False) + "\n"
    (Path(folder) / FILE_NAME).write_text(text, encoding="utf-8")


def read_about(folder: Union[str, PathLike]) -> Optional[Dict[str, Any]]:
    """What is known of the embedding in a folder; `None` if the folder holds none."""
    try:
        about = json.loads((Path(folder) / FILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return about if isinstance(about, dict) else None
