"""What reports that probe the layers of a biLM share: options, vectors of tokens, tables of layers."""

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy
from allennlp.common.tqdm import Tqdm
from more_itertools import chunked

from elmo_plugin.arguments import command_arguments, option, option_group
from elmo_plugin.bilm import BiLM
from elmo_plugin.embedding import ElmoEmbedder
from elmo_plugin.report.named_bilm import DEFAULT_BILM, load_named_bilm, random_bilm
from elmo_plugin.report.tables import DEFAULT_SEEDS, check_results_folder, check_seeds, versions

if TYPE_CHECKING:  # --include-package imports every module, also where pandas is not installed
    import pandas

# Names in tables: of the control, of the plain mean of all layers, and of the layer below the LSTMs.
RANDOM_WEIGHTS = "random weights"
MEAN = "mean of all"
CHARACTERS = "0 (characters)"
# Of the biLM of the paper, whose figures tables repeat for biLMs of as many layers.
PAPER_NUM_LAYERS = 3

SEED_NOTE = (
    "std: of the sample, over seeds. Random weights are drawn anew for each seed. What seeds leave as it "
    "is, as the biLM and its training, no std and no interval covers."
)


@dataclass(frozen=True, kw_only=True)
class BiLMChoice:
    """Which biLM is probed, and how it runs."""

    bilm: Optional[str] = option(
        "elmo_mini; a folder with options.json and weights.hdf5; a .zip with both; or an archive that "
        f"holds a biLM, model.tar.gz (default: {DEFAULT_BILM})",
        None,
        metavar="NAME",
    )
    options_file: Optional[str] = option(
        "in place of --bilm: JSON of its sizes: path, URL or hf:// name", None, metavar="FILE"
    )
    weight_file: Optional[str] = option("HDF5 of its weights, likewise", None, metavar="FILE")
    cuda_device: int = option("number of the GPU; -1 for the CPU", -1)
    precision: str = option(
        "of matrix products: float32, or faster and less exact bfloat16 or int8", "float32"
    )
    kernel: str = option("what runs the LSTMs; auto is the fastest", "auto")

    @property
    def name(self) -> str:
        """Its name in tables."""
        return self.bilm or self.weight_file or self.options_file or DEFAULT_BILM

    def load(self) -> BiLM:
        """Load it. Raises as `load_named_bilm`."""
        return load_named_bilm(
            self.bilm, self.options_file, self.weight_file, self.precision, self.kernel
        )

    def embedder(self, bilm: BiLM) -> ElmoEmbedder:
        return ElmoEmbedder.from_bilm(bilm, self.cuda_device)

    def random_embedder(self, bilm: BiLM, seed: int) -> ElmoEmbedder:
        """Return one of the sizes of `bilm`, with random weights."""
        return self.embedder(random_bilm(bilm.options, seed, self.precision, self.kernel))


@dataclass(frozen=True, kw_only=True)
class ProbeOptions:
    """What all reports that probe layers are given."""

    output: str = option(
        "results folder, made if missing; tables and pictures of the same name are replaced",
        short="-s",
        metavar="DIR",
    )
    seeds: Sequence[int] = option("measure everything once with each", DEFAULT_SEEDS, metavar="N")
    control: bool = option("measure a biLM of the same sizes with random weights too", True)
    model: BiLMChoice = option_group("the biLM", BiLMChoice())

    def check(self) -> None:
        """
        To be called before any work.

        # Raises

        `ConfigurationError` for seeds that are none, and if `output` is a file.
        """
        check_seeds(self.seeds)
        check_results_folder(self.output)

    @property
    def vectors(self) -> List[str]:
        """The names in tables of the biLMs that are measured, the control last."""
        return [self.model.name, RANDOM_WEIGHTS] if self.control else [self.model.name]

    def settings(self, report: str, bilm: BiLM) -> Dict[str, Any]:
        """Return how to make the table of a report again."""
        command = ["allennlp", "elmo-report", report, *command_arguments(self)]
        return {
            "command": shlex.join(command),
            "seeds": list(self.seeds),
            "biLM": self.model.name,
            "sizes": {
                "LSTM layers": bilm.options.num_layers,
                "cells": bilm.options.cell_size,
                "projection": bilm.options.projection_dim,
                "character filters": bilm.options.num_filters,
            },
            "versions": versions(),
        }


def layer_names(num_layers: int) -> List[str]:
    """Return the names in tables of a biLM's layers, the token representation counted, and of their mean."""
    return [CHARACTERS, *(str(number) for number in range(1, num_layers)), MEAN]


def named_layers(vectors: numpy.ndarray) -> Iterator[Tuple[str, numpy.ndarray]]:
    """
    Return each of `layer_names` with its vectors.

    # Parameters

    vectors : `numpy.ndarray`
        `(num_layers, num_tokens, dim)`

    # Returns

    Pairs of a name and an array `(num_tokens, dim)`.
    """
    yield from zip(layer_names(len(vectors)), vectors)
    yield MEAN, vectors.mean(axis=0)


def embed_tokens(
    embedder: ElmoEmbedder,
    sentences: Sequence[Sequence[str]],
    positions: Optional[Sequence[int]] = None,
    description: str = "embedding",
) -> numpy.ndarray:
    """
    Embed one token of each sentence, or all tokens.

    # Parameters

    embedder : `ElmoEmbedder`
        Not stateful.
    sentences : `Sequence[Sequence[str]]`
        The tokens of each.
    positions : `Sequence[int]`, optional (default = all tokens)
        Which token of each sentence.
    description : `str`, optional
        For the progress bar.

    # Returns

    float32 array of shape `(num_layers, num_tokens, dim)`, in the order of the sentences.
    """
    layers = _embed(embedder, sentences, description)
    if positions is not None:
        # A copy, so that the vectors of the other tokens are released.
        layers = (vectors[:, [position]] for vectors, position in zip(layers, positions))
    return numpy.concatenate(list(layers), axis=1)


def embed_in_blocks(
    embedder: ElmoEmbedder,
    sentences: Sequence[Sequence[str]],
    block_size: int,
    description: str = "embedding",
) -> Iterator[numpy.ndarray]:
    """Embed all tokens, as `embed_tokens`, some sentences at a time, so that not all vectors are held."""
    for block in chunked(_embed(embedder, sentences, description), block_size):
        yield numpy.concatenate(block, axis=1)


def layer_table(scores: "pandas.DataFrame", order: Sequence[Tuple[str, str]]) -> "pandas.DataFrame":
    """
    Return mean and sample standard deviation over seeds of each measure, in percent.

    # Parameters

    scores : `pandas.DataFrame`
        Columns `vectors`, `layer`, `seed`, and one for each measure.
    order : `Sequence[Tuple[str, str]]`
        Vectors and layer of each row.

    # Returns

    Rows of (vectors, layer), columns of (measure, `mean` or `std`).
    """
    groups = scores.drop(columns="seed").groupby(["vectors", "layer"], sort=False)
    return groups.agg(["mean", "std"]).reindex(list(order)).round(2)


def _embed(
    embedder: ElmoEmbedder, sentences: Sequence[Sequence[str]], description: str
) -> Iterator[numpy.ndarray]:
    """The layers of each sentence, `(num_layers, len(sentence), dim)`."""
    return Tqdm.tqdm(
        embedder.embed_sentences([list(sentence) for sentence in sentences]),
        total=len(sentences),
        unit=" sentences",
        desc=description,
    )
