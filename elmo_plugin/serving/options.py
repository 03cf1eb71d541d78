"""Options of the server, and the limits of requests."""

from dataclasses import dataclass
from typing import Sequence

from elmo_plugin.arguments import Options, option, option_group

# A sentence is read once for each of its predicates: one of 500 tokens can take a minute.
MAX_SRL_TOKENS = 250


@dataclass(frozen=True)
class Limits(Options):
    """Limits of requests."""

    max_body: int = option(
        "largest size of a request in bytes; a larger one gets the status 413",
        65536,
        metavar="N",
        positive=True,
    )
    max_tokens: int = option(
        "largest number of tokens of a text; a longer one gets the status 413; for semantic roles it is at "
        f"most {MAX_SRL_TOKENS}",
        1000,
        metavar="N",
        positive=True,
    )
    timeout: float = option(
        "a request that has no answer after this time gets the status 504",
        30.0,
        metavar="SECONDS",
        positive=True,
    )
    # Requests that a model answers together: few, as all wait for the last one of a batch.
    max_batch: int = 8
    max_waiting: int = 256  # requests that wait for a model; further ones are answered with 429


@dataclass(frozen=True)
class ServeOptions(Options):
    """What to serve, and where."""

    archives: Sequence[str] = option(
        "model.tar.gz of a training run, its folder, or the name of a task model of this package; "
        "NAME=ARCHIVE sets its name in URLs (default: all task models of this package)",
        (),
        positional=True,
        metavar="ARCHIVE",
    )
    host: str = option(
        "address to listen at; with another address than the default, other machines can use the models, "
        "without password or encryption",
        "127.0.0.1",
    )
    port: int = option("0: any free port", 8000, metavar="N")
    allowed_host: Sequence[str] = option(
        "name by which clients reach the server, such as that of a proxy; can be repeated. Requests to other "
        "names than these, localhost and IP addresses are refused",
        (),
        repeat=True,
        metavar="NAME",
    )
    cuda_device: int = option("index of the GPU; -1 for the CPU", -1, metavar="N")
    model: str = option(
        "biLM of nearest occurrences: elmo_mini, elmo_small or original; or a folder or .zip with options "
        "and weights",
        "elmo_mini",
        metavar="NAME",
    )
    limits: Limits = option_group("limits", Limits())
