"""What `elmo report wsd` and `pos` share: the biLM and its control, and the report of scores by layer."""

from dataclasses import dataclass
from typing import Any, Dict, Iterator, NamedTuple, Sequence, Tuple

import numpy
import pandas
import torch
from allennlp.common.tqdm import Tqdm

from elmo_plugin.arguments import option
from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.model_files import model_choices
from elmo_plugin.bilm.processor import checked_device
from elmo_plugin.embedding import ElmoEmbedder
from elmo_plugin.embedding.elmo_embedder import DeviceOptions
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.figures import draw_layers
from elmo_plugin.report.statistics import paired_differences
from elmo_plugin.report.tables import (
    Part,
    Report,
    ReportOptions,
    settings_of,
    without_machine_paths,
    write_report,
)

RANDOM_WEIGHTS = "random weights"  # the control, in tables
LEVELS = ["vectors", "layer", "seed"]  # of the rows of scores; the layer of a baseline is ""

_SEED_NOTE = "std: of the sample, over seeds. Each seed draws new random weights."
_NOT_COVERED_NOTE = (
    "Seeds differ in how the data are drawn or divided. Neither std nor intervals cover what all seeds "
    "share, such as the test data, and the biLM and its training."
)


@dataclass(frozen=True, kw_only=True)
class ProbeOptions(ReportOptions, DeviceOptions):
    """Options of all reports that probe the layers of a biLM."""

    control: bool = option("measure a biLM of the same sizes with random weights too", True)
    model: str = option(
        "elmo_mini or elmo_small; original, the paper's, downloaded once; a folder or .zip with options and "
        "weights; or an archive that holds a biLM, model.tar.gz or the name of a task model",
        "",
        metavar="NAME",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_model_is_named(self.model)

    @property
    def bilm_name(self) -> str:
        """Return the name of the biLM in tables."""
        return without_machine_paths(self.model)

    def embedders(self, bilm: BiLM) -> Iterator[Tuple[str, Sequence[int], ElmoEmbedder]]:
        """
        Yield a name in tables, the seeds to measure with, and an embedder. First of the biLM, with all seeds;
        then, for each seed, of an untrained biLM of the same sizes, with bilm-tf's initial values. Its scores
        show what the spelling of words and the architecture give without training.
        """
        yield self.bilm_name, self.seeds, self._embedder(bilm)
        for seed in self.seeds if self.control else ():
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                untrained = BiLM(bilm.options)
            yield RANDOM_WEIGHTS, (seed,), self._embedder(untrained)

    def _embedder(self, bilm: BiLM) -> ElmoEmbedder:
        bilm = bilm.to(checked_device(self.cuda_device))
        return ElmoEmbedder.from_bilm(bilm.freeze(precision=self.precision, kernel=self.kernel))


class Probe(NamedTuple):
    """What is measured in each layer. The columns of scores are measures, in percent."""

    name: str  # of the files
    title: str
    baseline: str  # its name among the vectors
    measures: Dict[str, Tuple[str, str]]  # with the names of mean and std in the table
    compared: str  # the measure by which layers are compared


def check_model_is_named(models: Sequence[str]) -> None:
    """Raise `ConfigurationError` without a name."""
    if not models:
        raise ConfigurationError(
            f"found no model, expected --model: {model_choices()}; or an archive that holds a biLM."
        )


def embed_sentences(
    embedder: ElmoEmbedder, sentences: Sequence[Sequence[str]], description: str
) -> Iterator[numpy.ndarray]:
    """Yield the layers of each sentence, `(num_layers, len(sentence), dim)`, and show progress."""
    vectors = embedder.embed_sentences(sentences)
    return Tqdm.tqdm(vectors, total=len(sentences), unit=" sentences", desc=description)


def named_layers(vectors: numpy.ndarray) -> Iterator[Tuple[str, numpy.ndarray]]:
    """
    Return the vectors of each layer, and their plain mean, with their names in tables. `vectors` is
    `(num_layers, num_tokens, dim)`, the token representation first.
    """
    names = ["0 (characters)", *map(str, range(1, len(vectors))), "mean of all"]
    return zip(names, [*vectors, vectors.mean(axis=0)])


def layer_table(probe: Probe, scores: pandas.DataFrame) -> pandas.DataFrame:
    """
    Return mean and sample standard deviation over seeds, from rows of `LEVELS`, in rows of (vectors, layer).
    """
    groups = scores[list(probe.measures)].groupby(level=LEVELS[:2], sort=False)
    table = groups.agg(["mean", "std"]).round(2)
    table.columns = [name for names in probe.measures.values() for name in names]
    return table


def write_layers(
    probe: Probe,
    options: ProbeOptions,
    bilm: BiLM,
    scores: pandas.DataFrame,
    table: pandas.DataFrame,
    notes: Sequence[str],
    **settings: Any,
) -> Report:
    """
    Write the table, a figure of its scores, and the table that compares each two layers of the biLM, not of
    the control.
    """
    compared = scores.loc[options.bilm_name][probe.compared]
    by_seed = compared.unstack("seed").loc[compared.index.unique("layer")]
    parts = {
        probe.name: Part(
            probe.title,
            table.reset_index(),
            [*notes, f"{_SEED_NOTE} {_NOT_COVERED_NOTE}"],
            draw_layers(probe.title, scores.dropna(axis=1, how="all"), probe.baseline),
        ),
        f"{probe.name}-differences": Part(
            f"{probe.title}, differences of layers of {options.bilm_name}",
            paired_differences({probe.compared: by_seed}),
            [_NOT_COVERED_NOTE],
        ),
    }
    sizes = {
        "LSTM layers": bilm.options.num_lstm_layers,
        "cells": bilm.options.cell_size,
        "projection": bilm.options.projection_dim,
        "character filters": bilm.options.encoder.num_filters,
    }
    shown = settings_of(seeds=list(options.seeds), biLM=options.bilm_name, sizes=sizes, **settings)
    return write_report(options.output, parts, shown)
