"""Shared by reports that probe the layers of a biLM: its choice, its vectors, and tables of layers."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, Sequence, Tuple

import numpy
import torch
from allennlp.common.tqdm import Tqdm

from elmo_plugin.arguments import option, option_group
from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.model_files import (
    is_task_model,
    names_both_files,
    pretrained_names,
    resolve_model_files,
)
from elmo_plugin.compat.archives import opened_archive
from elmo_plugin.embedding import ElmoEmbedder
from elmo_plugin.embedding.bilm_options import DeviceOptions
from elmo_plugin.embedding.elmo_embedder import checked_device
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining.starting_point import bilm_in
from elmo_plugin.report.tables import (
    DEFAULT_SEEDS,
    Part,
    check_seeds_and_output,
    difference_notes,
    paired_differences,
    settings_of,
    without_machine_paths,
)

if TYPE_CHECKING:  # --include-package imports every module, also where pandas is not installed
    import pandas

DEFAULT_BILM = "elmo_mini"
RANDOM_WEIGHTS = "random weights"  # the control, in tables

SEED_NOTE = (
    "std: of the sample, over seeds. Each seed draws new random weights. Neither std nor intervals cover "
    "what all seeds share, such as the biLM and its training."
)

_PAPER_NUM_LAYERS = 3  # the token representation counted


@dataclass(frozen=True, kw_only=True)
class BiLMChoice(DeviceOptions):
    """The biLM that is probed, and how it runs."""

    bilm: Optional[str] = option(
        "elmo_mini; a folder with options.json and weights.hdf5; a .zip with both; or an archive that "
        f"holds a biLM, model.tar.gz or the name of a task model (default: {DEFAULT_BILM})",
        None,
        metavar="NAME",
    )
    options_file: Optional[str] = option(
        "in place of --bilm: options file (JSON): path, URL or hf:// name", None, metavar="FILE"
    )
    weight_file: Optional[str] = option(
        "in place of --bilm: weight file (HDF5): path, URL or hf:// name", None, metavar="FILE"
    )

    @property
    def name(self) -> str:
        """Return the name of the biLM in tables."""
        name = self.bilm or self.weight_file or self.options_file or DEFAULT_BILM
        return without_machine_paths(name)

    def load(self) -> BiLM:
        """Load the biLM."""
        if (self.options_file, self.weight_file) != (None, None):
            if self.bilm is not None:
                raise ConfigurationError(
                    f"--bilm {self.bilm} names options and weights, but --options-file is "
                    f"{self.options_file} and --weight-file is {self.weight_file}. Leave --bilm out, or "
                    "the other two."
                )
            return BiLM.from_files(self.options_file, self.weight_file)
        name = self.bilm or DEFAULT_BILM
        if is_archive(name):
            return bilm_in(opened_archive(name).model, name)
        return BiLM.from_files(*bilm_files(name))

    def embedder(self, bilm: BiLM) -> ElmoEmbedder:
        """Return the embedder of a biLM with the precision, kernel and device of these options."""
        bilm = bilm.to(checked_device(self.cuda_device))
        return ElmoEmbedder.from_bilm(bilm.freeze(precision=self.precision, kernel=self.kernel))

    def random_embedder(self, bilm: BiLM, seed: int) -> ElmoEmbedder:
        """
        Return the embedder of an untrained biLM with the sizes of `bilm` and bilm-tf's initial values. Its
        scores show what the spelling of words and the architecture give without training.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.embedder(BiLM(bilm.options))


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """Options of all reports that probe layers."""

    output: str = option(
        "results folder, made if missing; tables and pictures of the same name are replaced",
        short="-s",
        metavar="DIR",
    )
    seeds: Sequence[int] = option(
        "measure everything once with each seed", DEFAULT_SEEDS, metavar="N"
    )
    control: bool = option("measure a biLM of the same sizes with random weights too", True)
    model: BiLMChoice = option_group("the biLM", BiLMChoice())

    def check(self) -> None:
        """Raise an error for invalid options, before any work."""
        check_seeds_and_output(self.seeds, self.output)

    def settings(self, bilm: BiLM, **more: Any) -> Dict[str, Any]:
        """Return the settings of a report's tables."""
        sizes = {
            "LSTM layers": bilm.options.num_layers,
            "cells": bilm.options.cell_size,
            "projection": bilm.options.projection_dim,
            "character filters": bilm.options.encoder.num_filters,
        }
        return settings_of(seeds=list(self.seeds), biLM=self.model.name, sizes=sizes, **more)


def is_archive(name: str) -> bool:
    """Return whether a name is that of an archive of AllenNLP."""
    return name.endswith(".tar.gz") or is_task_model(name)


def bilm_files(name: str) -> Tuple[Path, Path]:
    """Return the options file and the weight file of a biLM that is not an archive."""
    if names_both_files(name):
        return resolve_model_files(name, None)
    raise ConfigurationError(
        f"--bilm {name}: no such folder, expected one of: {', '.join(pretrained_names())}, which come with "
        "this package; a folder with options.json and weights.hdf5; a .zip with both; an archive, *.tar.gz. "
        "Correct the name, or give --options-file and --weight-file."
    )


def named_layers(vectors: numpy.ndarray) -> Iterator[Tuple[str, numpy.ndarray]]:
    """
    Return the vectors of each layer, and their plain mean, with their names in tables. `vectors` is
    `(num_layers, num_tokens, dim)`, the token representation first.
    """
    names = ["0 (characters)", *(str(number) for number in range(1, len(vectors))), "mean of all"]
    return zip(names, [*vectors, vectors.mean(axis=0)])


def embed_sentences(
    embedder: ElmoEmbedder, sentences: Sequence[Sequence[str]], description: str
) -> Iterator[numpy.ndarray]:
    """Return the layers of each sentence, `(num_layers, len(sentence), dim)`, and show progress."""
    vectors = embedder.embed_sentences([list(sentence) for sentence in sentences])
    return Tqdm.tqdm(vectors, total=len(sentences), unit=" sentences", desc=description)


def layer_table(scores: "pandas.DataFrame", names: Sequence[str]) -> "pandas.DataFrame":
    """
    Return mean and sample standard deviation over seeds: of rows of (vectors, layer, seed) and columns of
    measures, rows of (vectors, layer) and columns of these names, two for each measure.
    """
    table = scores.groupby(level=["vectors", "layer"], sort=False).agg(["mean", "std"]).round(2)
    return table.set_axis(names, axis=1)


def differences_part(
    title: str, scores: "pandas.Series", measure: str, model: BiLMChoice, same: str
) -> Part:
    """
    Return the table that compares each two layers of the biLM, and not of the control.

    # Parameters

    scores : `pandas.Series`
        Rows of (vectors, layer, seed).
    measure : `str`
        Its name in the columns.
    same : `str`
        What all layers are measured on.
    """
    by_seed = scores.loc[model.name].unstack("seed")
    layers = [layer for layer in scores.index.unique("layer") if layer]  # a baseline has none
    frame = paired_differences(by_seed.loc[layers], measure)
    notes = difference_notes(f"Over the same {same}. {SEED_NOTE}", frame)
    return Part(f"{title}, differences of layers of {model.name}", frame, notes)


def add_paper(
    table: "pandas.DataFrame", bilm: BiLM, column: str, layer_scores: Dict[str, float]
) -> None:
    """Add the paper's figures to rows of (vectors, layer), if its biLM had as many layers."""
    if bilm.num_layers == _PAPER_NUM_LAYERS:
        table[column] = [
            None if vectors == RANDOM_WEIGHTS else layer_scores.get(layer)
            for vectors, layer in table.index
        ]
