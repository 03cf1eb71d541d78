"""Shared by reports that probe the layers of a biLM: its choice, its vectors, and tables of layers."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, Sequence, Tuple

import numpy
import torch
from allennlp.common.tqdm import Tqdm

from elmo_plugin.arguments import option
from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.model_files import is_task_model
from elmo_plugin.compat.archives import opened_archive
from elmo_plugin.embedding import ElmoEmbedder
from elmo_plugin.embedding.elmo_embedder import DeviceOptions, checked_device
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
class ProbeOptions(DeviceOptions):
    """Options of all reports that probe the layers of a biLM."""

    output: str = option(
        "results folder, made if missing; tables and pictures of the same name are replaced",
        short="-s",
        metavar="DIR",
    )
    seeds: Sequence[int] = option(
        "measure everything once with each seed", DEFAULT_SEEDS, metavar="N"
    )
    control: bool = option("measure a biLM of the same sizes with random weights too", True)
    bilm: str = option(
        "elmo_mini; a folder with options.json and weights.hdf5; a .zip with both; or an archive that "
        "holds a biLM, model.tar.gz or the name of a task model",
        DEFAULT_BILM,
        metavar="NAME",
    )

    def check(self) -> None:
        """Raise an error for invalid options, before any work."""
        check_seeds_and_output(self.seeds, self.output)

    @property
    def bilm_name(self) -> str:
        """Return the name of the biLM in tables."""
        return without_machine_paths(self.bilm)

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

    def settings(self, bilm: BiLM, **more: Any) -> Dict[str, Any]:
        """Return the settings of a report's tables."""
        sizes = {
            "LSTM layers": bilm.options.num_layers,
            "cells": bilm.options.cell_size,
            "projection": bilm.options.projection_dim,
            "character filters": bilm.options.encoder.num_filters,
        }
        return settings_of(seeds=list(self.seeds), biLM=self.bilm_name, sizes=sizes, **more)


def is_archive(name: str) -> bool:
    """Return whether a name is that of an archive of AllenNLP."""
    return name.endswith(".tar.gz") or is_task_model(name)


def load_bilm(name: str) -> BiLM:
    """Load a biLM from its files or from an archive."""
    if is_archive(name):
        return bilm_in(opened_archive(name).model, name)
    return BiLM.from_files(name)


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
    title: str, scores: "pandas.Series", measure: str, bilm_name: str, test_data: str
) -> Part:
    """
    Return the table that compares each two layers of the biLM, and not of the control. `scores` has rows of
    (vectors, layer, seed).
    """
    by_seed = scores.loc[bilm_name].unstack("seed")
    layers = [layer for layer in scores.index.unique("layer") if layer]  # a baseline has none
    frame = paired_differences(by_seed.loc[layers], measure)
    notes = difference_notes(f"Over the same {test_data}. {SEED_NOTE}", frame)
    return Part(f"{title}, differences of layers of {bilm_name}", frame, notes)


def add_paper(
    table: "pandas.DataFrame", bilm: BiLM, column: str, layer_scores: Dict[str, float]
) -> None:
    """Add the paper's figures to rows of (vectors, layer), if its biLM had as many layers."""
    if bilm.num_layers == _PAPER_NUM_LAYERS:
        table[column] = [
            None if vectors == RANDOM_WEIGHTS else layer_scores.get(layer)
            for vectors, layer in table.index
        ]
