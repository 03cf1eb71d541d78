"""Log a warning once in a process."""

import functools
import logging


@functools.cache
def warn_once(logger: logging.Logger, message: str) -> None:
    """Log a warning, unless this process has logged the same message with the same logger."""
    # The cache has no frame, so this is the line of the caller.
    logger.warning(message, stacklevel=2)
