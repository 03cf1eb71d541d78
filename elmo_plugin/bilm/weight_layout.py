"""bilm-tf's HDF5 layout: one table that says, both ways, which dataset is which parameter."""

from dataclasses import dataclass
from typing import Callable, List, Tuple

import numpy

from elmo_plugin.bilm.options import NUM_CHARACTER_EMBEDDINGS, BiLMOptions

Transform = Callable[[numpy.ndarray], numpy.ndarray]

# Datasets of a weight file live under these groups; others (a softmax, say) are not the biLM's.
BILM_GROUPS = ("char_embed", "CNN", "CNN_high_", "CNN_proj", "RNN_")


@dataclass(frozen=True)
class WeightEntry:
    """
    One row of the table.

    # Parameters

    dataset : `str`
        Path of the dataset in the file.
    parameter : `str`
        Name of the parameter in `BiLM`.
    shape : `Tuple[int, ...]`
        Shape of the dataset.
    to_parameter, to_dataset : `Transform`
        From the dataset's array to the parameter's, and back, without rounding.
    """

    dataset: str
    parameter: str
    shape: Tuple[int, ...]
    to_parameter: Transform
    to_dataset: Transform


def weight_layout(options: BiLMOptions) -> List[WeightEntry]:
    """Every dataset of a weight file with these options."""
    character_dim = options.character_embedding_dim
    num_filters = options.num_filters
    projection_dim = options.projection_dim
    cell_size = options.cell_size

    entries = [
        WeightEntry(
            "char_embed",
            "character_encoder.character_embedding.weight",
            (NUM_CHARACTER_EMBEDDINGS, character_dim),
            _prepend_padding,
            _drop_padding,
        )
    ]
    for i, (width, count) in enumerate(options.filters):
        convolution = f"character_encoder.convolutions.{i}"
        entries += [
            WeightEntry(
                f"CNN/W_cnn_{i}",
                f"{convolution}.weight",
                (1, width, character_dim, count),
                _convolution_from_tensorflow,
                _convolution_to_tensorflow,
            ),
            _same(f"CNN/b_cnn_{i}", f"{convolution}.bias", (count,)),
        ]
    for k in range(options.num_highway):
        for gate in ("transform", "carry"):
            highway = f"character_encoder.highways.{k}.{gate}"
            entries += [
                _transposed(
                    f"CNN_high_{k}/W_{gate}", f"{highway}.weight", (num_filters, num_filters)
                ),
                _same(f"CNN_high_{k}/b_{gate}", f"{highway}.bias", (num_filters,)),
            ]
    if options.has_token_projection:
        projection = "character_encoder.projection"
        entries += [
            _transposed("CNN_proj/W_proj", f"{projection}.weight", (num_filters, projection_dim)),
            _same("CNN_proj/b_proj", f"{projection}.bias", (projection_dim,)),
        ]
    for direction, layers in enumerate(("forward_layers", "backward_layers")):
        for i in range(options.num_layers):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            entries += [
                _transposed(
                    f"{cell}/W_0", f"{layers}.{i}.gate_weight", (2 * projection_dim, 4 * cell_size)
                ),
                _same(f"{cell}/B", f"{layers}.{i}.gate_bias", (4 * cell_size,)),
            ]
            if options.has_state_projection:
                entries.append(
                    _transposed(
                        f"{cell}/W_P_0", f"{layers}.{i}.projection", (cell_size, projection_dim)
                    )
                )
    return entries


def _same(dataset: str, parameter: str, shape: Tuple[int, ...]) -> WeightEntry:
    return WeightEntry(dataset, parameter, shape, lambda array: array, lambda array: array)


def _transposed(dataset: str, parameter: str, shape: Tuple[int, ...]) -> WeightEntry:
    # TensorFlow multiplies x @ W, torch W @ x.
    return WeightEntry(dataset, parameter, shape, numpy.transpose, numpy.transpose)


def _prepend_padding(array: numpy.ndarray) -> numpy.ndarray:
    return numpy.concatenate([numpy.zeros_like(array[:1]), array])


def _drop_padding(array: numpy.ndarray) -> numpy.ndarray:
    return array[1:]


def _convolution_from_tensorflow(array: numpy.ndarray) -> numpy.ndarray:
    # (1, width, character_dim, count) -> (count, character_dim, width)
    return array[0].transpose(2, 1, 0)


def _convolution_to_tensorflow(array: numpy.ndarray) -> numpy.ndarray:
    return array.transpose(2, 1, 0)[numpy.newaxis]
