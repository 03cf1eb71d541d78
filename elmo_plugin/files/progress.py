"""A bar of progress, for a terminal or for a log."""

import sys
from typing import Any

from tqdm import tqdm


def progress_bar(iterable: Any, *arguments: Any, **options: Any) -> Any:
    """Return tqdm's bar. In a file it is written every ten seconds."""
    return tqdm(iterable, *arguments, mininterval=0.1 if sys.stderr.isatty() else 10, **options)
