"""What a server accepts, and the error for text that is too long."""

from dataclasses import dataclass, fields

from elmo_plugin.arguments import option
from elmo_plugin.errors import ConfigurationError


@dataclass(frozen=True)
class Limits:
    """
    Limits of requests.

    # Raises

    `ConfigurationError` for one that is not positive.
    """

    max_body: int = option("bytes of a request; more is answered with 413", 65536, metavar="N")
    max_tokens: int = option("tokens of its text; more is answered with 413", 1000, metavar="N")
    max_batch: int = option("requests that a model answers together", 32, metavar="N")
    max_waiting: int = option(
        "requests that wait for a model; further ones are answered with 429", 256, metavar="N"
    )
    timeout: float = option(
        "seconds until a request that has no answer is answered with 504", 30.0, metavar="SECONDS"
    )

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            # Not NaN either. An infinite timeout is fine.
            if not value > 0:
                raise ConfigurationError(
                    f"--{field.name.replace('_', '-')}: found {value}, expected a positive number."
                )


class TextTooLongError(Exception):
    """
    A text has more tokens than the server accepts.

    # Parameters

    key : `str`
        Where it is in the request.
    found, maximum : `int`
        Number of its tokens, and the largest number that is accepted.
    """

    def __init__(self, key: str, found: int, maximum: int) -> None:
        super().__init__(
            f"{key} has {found:,} tokens, expected at most {maximum:,}. Send it in parts, or start the "
            "server with a larger --max-tokens."
        )
