"""`elmo serve`: task models as a JSON API, and as a page in the browser."""

import argparse
from dataclasses import dataclass
from typing import Optional, Sequence

from elmo_plugin.arguments import add_options, option, option_group, options_from
from elmo_plugin.commands.user_errors import needing_allennlp
from elmo_plugin.compat.environment import INSTALL_ALLENNLP
from elmo_plugin.errors import ConfigurationError, needing
from elmo_plugin.serving.limits import Limits

# In place of a biLM.
NONE = "none"

_USAGE = "%(prog)s [ARCHIVE ...] [options]"

_DESCRIPTION = f"""\
examples:
  %(prog)s
  %(prog)s runs/demo/model.tar.gz runs/sst/model.tar.gz --port 8080
  %(prog)s names=runs/ner/model.tar.gz
  curl http://127.0.0.1:8000/api/models/names/predict -d '{{"sentence": "Ada lived in London."}}'

Serve task models, and nearest occurrences of words in context: a page for people at /, JSON for
programs at /api, its documentation at /docs. Requests that arrive together are predicted together.
Needs: pip install "elmo-plugin[serve]" && {INSTALL_ALLENNLP}
"""


@dataclass(frozen=True)
class OccurrenceOptions:
    """
    The biLM of nearest occurrences.

    # Raises

    `ConfigurationError` for weights without options.
    """

    options_file: str = option(
        "sizes, JSON: path, URL or hf:// name; elmo_mini, or a .zip, stands for both files; "
        f"{NONE}: leave nearest occurrences out",
        "elmo_mini",
        metavar="FILE",
    )
    weight_file: Optional[str] = option(
        "weights, HDF5: path, URL or hf:// name", None, metavar="FILE"
    )

    def __post_init__(self) -> None:
        if self.options_file == NONE and self.weight_file is not None:
            raise ConfigurationError(
                f"--weight-file is {self.weight_file}, but --options-file is {NONE}, expected the files of "
                "one biLM. Leave one of them out."
            )


@dataclass(frozen=True)
class ServeOptions:
    """
    What to serve, and where.

    # Raises

    `ConfigurationError` for a port that is none.
    """

    archives: Sequence[str] = option(
        "model.tar.gz of a trained model, its folder, or the name of a task model of this package; "
        "NAME=ARCHIVE sets its name in addresses (default: all task models of this package)",
        (),
        positional=True,
        metavar="ARCHIVE",
    )
    host: str = option(
        "address to listen at; at another one, others can use the models, without password or encryption",
        "127.0.0.1",
    )
    port: int = option("0: any that is free", 8000, metavar="N")
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.usage, parser.description = _USAGE, _DESCRIPTION
    add_options(parser, ServeOptions)


def run(args: argparse.Namespace) -> None:
    """Serve until a signal ends it."""
    options = options_from(ServeOptions, args)
    with needing("serve needs FastAPI and uvicorn", "elmo-plugin[serve]"):
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    with needing_allennlp("serve"):
        import elmo_plugin.plugin  # noqa: F401 - patches and registers
        from elmo_plugin.serving.server import named_archives, serve

    occurrences = options.occurrences
    serve(
        named_archives(options.archives),
        None if occurrences.options_file == NONE else occurrences.options_file,
        occurrences.weight_file,
        options.host,
        options.port,
        options.cuda_device,
        options.limits,
    )
