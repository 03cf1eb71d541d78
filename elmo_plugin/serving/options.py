"""Options of the server, and the limits of requests."""

from dataclasses import dataclass, fields
from typing import Optional, Sequence

from elmo_plugin.arguments import option, option_group
from elmo_plugin.errors import ConfigurationError

_CHARACTERS_PER_TOKEN = 20  # more than the average of any text, with spaces


@dataclass(frozen=True)
class Limits:
    """
    Limits of requests.

    # Raises

    `ConfigurationError` for a limit that is not positive.
    """

    max_body: int = option("bytes of a request; more is answered with 413", 65536, metavar="N")
    max_tokens: int = option("tokens of a text; more is answered with 413", 1000, metavar="N")
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
            # NaN fails too. An infinite timeout is valid.
            if not value > 0:
                raise ConfigurationError(
                    f"--{field.name.replace('_', '-')}: found {value}, expected a positive number."
                )

    @property
    def max_characters(self) -> int:
        """Largest number of characters of a text, which is checked before its tokens are counted."""
        return _CHARACTERS_PER_TOKEN * self.max_tokens


@dataclass(frozen=True)
class OccurrenceOptions:
    """The biLM of nearest occurrences."""

    options_file: str = option(
        "sizes, JSON: path, URL or hf:// name; elmo_mini, or a .zip, names both files",
        "elmo_mini",
        metavar="FILE",
    )
    weight_file: Optional[str] = option(
        "weights, HDF5: path, URL or hf:// name", None, metavar="FILE"
    )


@dataclass(frozen=True)
class ServeOptions:
    """
    What to serve, and where.

    # Raises

    `ConfigurationError` for an invalid port or allowed host.
    """

    archives: Sequence[str] = option(
        "model.tar.gz of a trained model, its folder, or the name of a task model of this package; "
        "NAME=ARCHIVE sets its name in addresses (default: all task models of this package)",
        (),
        positional=True,
        metavar="ARCHIVE",
    )
    host: str = option(
        "address to listen at; others than the default let other machines use the models, without password "
        "or encryption",
        "127.0.0.1",
    )
    port: int = option("0: any free port", 8000, metavar="N")
    allowed_host: Sequence[str] = option(
        "name by which clients reach the server, such as that of a proxy; can be repeated. Requests to other "
        "names than these and the server's addresses are refused",
        (),
        repeat=True,
        metavar="NAME",
    )
    cuda_device: int = option("index of the GPU; -1 for the CPU", -1, metavar="N")
    occurrences: OccurrenceOptions = option_group(
        "biLM of nearest occurrences", OccurrenceOptions()
    )
    limits: Limits = option_group("limits", Limits())

    def __post_init__(self) -> None:
        if not 0 <= self.port < 2**16:
            raise ConfigurationError(
                f"--port: found {self.port}, expected a number from 0 to {2**16 - 1}."
            )
        for name in self.allowed_host:
            if not name or any(character in "/:*@ " for character in name):
                raise ConfigurationError(
                    f"--allowed-host: found '{name}', expected a name or an IPv4 address without scheme, "
                    "port or wildcard, such as elmo.example.org."
                )
