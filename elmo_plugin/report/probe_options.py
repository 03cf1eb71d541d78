"""What subcommands that probe the layers of a biLM have in common."""

import argparse
import shlex
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.kernels import AUTO
from elmo_plugin.commands.bilm_arguments import add_device_arguments
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.report.figures import figure_class
from elmo_plugin.report.named_bilm import DEFAULT_BILM, load_named_bilm, random_bilm
from elmo_plugin.report.versions import versions

DEFAULT_SEEDS = (1, 2, 3)
# What tables call the control.
RANDOM_WEIGHTS = "random weights"


class ProbeOptions(NamedTuple):
    """
    # Parameters

    output : `str`
        The results folder; made if it is not there. Tables and pictures that stand there are replaced.
    bilm, options_file, weight_file : `str`, optional (default = `elmo_mini`)
        See `load_named_bilm`.
    seeds : `Sequence[int]`, optional (default = `(1, 2, 3)`)
        Everything is measured once with each.
    control : `bool`, optional (default = `True`)
        Measure a biLM of the same sizes with random weights too, drawn anew for each seed.
    cuda_device : `int`, optional (default = `-1`)
        Of the biLM.
    precision, kernel : `str`, optional
        See `BiLM`.
    """

    output: str
    bilm: Optional[str] = None
    options_file: Optional[str] = None
    weight_file: Optional[str] = None
    seeds: Sequence[int] = DEFAULT_SEEDS
    control: bool = True
    cuda_device: int = -1
    precision: str = "float32"
    kernel: str = AUTO

    @property
    def bilm_name(self) -> str:
        """What tables call the biLM."""
        return self.bilm or self.weight_file or self.options_file or DEFAULT_BILM

    @property
    def bilm_names(self) -> List[str]:
        """What tables call the biLMs that are measured, the control last."""
        return [self.bilm_name, RANDOM_WEIGHTS] if self.control else [self.bilm_name]

    def check(self) -> None:
        """
        To be called before any work.

        # Raises

        `ConfigurationError` if there are no seeds, one stands there twice or is none, `output` is a file, or
        pictures cannot be drawn.
        """
        check_seeds(self.seeds)
        check_results_folder(self.output)
        figure_class()

    def load(self) -> BiLM:
        """The biLM. Raises as `load_named_bilm`."""
        return load_named_bilm(
            self.bilm, self.options_file, self.weight_file, self.precision, self.kernel
        )

    def embedder(self, bilm: BiLM) -> ElmoEmbedder:
        """What runs it. Raises as `ElmoEmbedder.from_bilm`."""
        return ElmoEmbedder.from_bilm(bilm, self.cuda_device)

    def control_embedder(self, bilm: BiLM, seed: int) -> ElmoEmbedder:
        """What runs one of the sizes of `bilm`, with random weights."""
        return self.embedder(random_bilm(bilm.options, seed, self.precision, self.kernel))

    def settings(self, subcommand: str, arguments: Sequence[str], bilm: BiLM) -> Dict[str, Any]:
        """
        For a table: how to make it again.

        # Parameters

        subcommand : `str`
            Its name.
        arguments : `Sequence[str]`
            Those that it has beside these.
        bilm : `BiLM`
            What was measured.
        """
        command = ["allennlp", "elmo-report", subcommand, *arguments, *self._arguments()]
        return {
            "command": shlex.join(command),
            "seeds": list(self.seeds),
            "biLM": self.bilm_name,
            "sizes": {
                "LSTM layers": bilm.options.num_layers,
                "cells": bilm.options.cell_size,
                "projection": bilm.options.projection_dim,
                "character filters": bilm.options.num_filters,
            },
            "versions": versions(),
        }

    def _arguments(self) -> List[str]:
        defaults = ProbeOptions(self.output)
        arguments = ["-s", self.output]
        for name in (
            *("bilm", "options_file", "weight_file", "cuda_device", "precision"),
            "kernel",
        ):
            value = getattr(self, name)
            if value != getattr(defaults, name):
                arguments += [f"--{name.replace('_', '-')}", str(value)]
        arguments += ["--seeds", *map(str, self.seeds)]
        return arguments if self.control else [*arguments, "--no-control"]


def add_probe_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """The arguments of `ProbeOptions`. Returns the group to which a subcommand adds its own."""
    # In groups, as the parser repeats defaults that the help states.
    group = parser.add_argument_group("measuring")
    group.add_argument(
        "-s",
        "--output",
        required=True,
        metavar="DIR",
        help="results folder, made if missing; tables and pictures of the same name are replaced",
    )
    group.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=list(DEFAULT_SEEDS),
        metavar="N",
        help=f"measure everything once with each (default: {' '.join(map(str, DEFAULT_SEEDS))})",
    )
    group.add_argument(
        "--control",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure a biLM of the same sizes with random weights too (default: yes)",
    )
    model = parser.add_argument_group("the biLM")
    model.add_argument(
        "--bilm",
        metavar="NAME",
        help="elmo_mini; a folder with options.json and weights.hdf5; a .zip with both; or an archive "
        f"that holds a biLM, model.tar.gz (default: {DEFAULT_BILM})",
    )
    model.add_argument(
        "--options-file",
        metavar="FILE",
        help="in place of --bilm: JSON of its sizes: path, URL or hf:// name",
    )
    model.add_argument("--weight-file", metavar="FILE", help="HDF5 of its weights, likewise")
    add_device_arguments(model)
    return group


def probe_options(args: argparse.Namespace) -> ProbeOptions:
    """The options that the arguments are."""
    return ProbeOptions(**{name: getattr(args, name) for name in ProbeOptions._fields})


def check_seeds(seeds: Sequence[int]) -> None:
    """
    # Raises

    `ConfigurationError` unless there are seeds, each once, and from 0 to 2^32 - 1, as numpy takes.
    """
    if not seeds or len(set(seeds)) < len(seeds) or not all(0 <= seed < 2**32 for seed in seeds):
        raise ConfigurationError(
            f"--seeds: found {list(seeds)}, expected one or more numbers from 0 to {2**32 - 1}, each once."
        )


def check_results_folder(output: str) -> None:
    """
    # Raises

    `ConfigurationError` if `output` is a file.
    """
    if Path(output).exists() and not Path(output).is_dir():
        raise ConfigurationError(
            f"--output: {output} is a file, expected a folder for the results. Give another path."
        )
