"""
Write a wider biLM that computes at first what a narrower one does, to train it from there: it begins at the
perplexity of the narrow one.

    python scripts/grow_bilm.py elmo_mini runs/grown --cell-size 1024 --projection-dim 256 \
        --filters "[[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512]]" --vocabulary-file vocab.txt

New cells, filters and dimensions begin with random weights to what feeds them, and with zeros to the old
ones that they feed (after Chen et al. 2016, Net2Net, which copies units instead). A word that is new in the
vocabulary begins with its share of the probability of <UNK>.
"""

import argparse
import json
import math
from pathlib import Path
from typing import List, Sequence

import torch
from torch import Tensor

from elmo_plugin import BiLM
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.lm_vocabulary import LMVocabulary
from elmo_plugin.bilm.model_files import VOCABULARY_NAME, resolve_model_files
from elmo_plugin.bilm.softmax import ExactSoftmax, read_softmax
from elmo_plugin.errors import ConfigurationError


def place(old: Tensor, new: Tensor, rows: Sequence[int], columns: Sequence[int]) -> None:
    """Put the matrix `old` at `rows` and `columns` of `new`, with zeros in the rest of those rows."""
    new[rows] = 0
    new[torch.tensor(rows).unsqueeze(1), torch.tensor(columns)] = old


def grow_linear(
    old: torch.nn.Linear, new: torch.nn.Linear, rows: Sequence[int], columns: Sequence[int]
) -> None:
    place(old.weight, new.weight, rows, columns)
    new.bias[rows] = old.bias


def filter_places(old: BiLMOptions, new: BiLMOptions) -> List[int]:
    """The index in `new` of each filter of `old`, among all widths of filters."""
    starts, total = {}, 0
    for width, count in new.encoder.filters:
        starts[width] = total
        total += count
    return [starts[width] + i for width, count in old.encoder.filters for i in range(count)]


def check_sizes(old: BiLMOptions, new: BiLMOptions) -> None:
    """Raise `ConfigurationError` if a biLM of sizes `new` cannot hold one of sizes `old`."""
    counts = dict(new.encoder.filters)
    for sizes in (old, new):
        has_both = sizes.projection_dim not in (sizes.cell_size, sizes.encoder.num_filters)
        if not has_both or len(dict(sizes.encoder.filters)) != len(sizes.encoder.filters):
            raise ConfigurationError(
                f"found {sizes}, expected a projection of cells and of filters, to other sizes, and each "
                "width of filters once. Give other sizes."
            )
    if (
        any(counts.get(width, 0) < count for width, count in old.encoder.filters)
        or new.cell_size < old.cell_size
        or new.projection_dim < old.projection_dim
    ):
        raise ConfigurationError(
            f"found {new}, expected no size smaller than of {old}. Give larger ones."
        )


@torch.no_grad()
def grow_bilm(old: BiLM, new: BiLM) -> None:
    """Fill `new`, which has random weights, from `old`. Raise as `check_sizes`."""
    check_sizes(old.options, new.options)
    old_encoder, new_encoder = old.character_encoder, new.character_encoder
    new_encoder.character_embedding.weight.copy_(old_encoder.character_embedding.weight)
    by_width = {layer.kernel_size: layer for layer in new_encoder.convolutions}
    for layer in old_encoder.convolutions:
        wider = by_width[layer.kernel_size]
        wider.weight[: len(layer.weight)] = layer.weight
        wider.bias[: len(layer.bias)] = layer.bias
    filters = filter_places(old.options, new.options)
    for old_highway, new_highway in zip(old_encoder.highways, new_encoder.highways):
        grow_linear(old_highway.transform, new_highway.transform, filters, filters)
        grow_linear(old_highway.carry, new_highway.carry, filters, filters)
    states = range(old.options.projection_dim)
    grow_linear(old_encoder.projection, new_encoder.projection, states, filters)

    cells, new_cells = range(old.options.cell_size), new.options.cell_size
    gates = [gate * new_cells + cell for gate in range(4) for cell in cells]
    inputs = [*states, *(new.options.projection_dim + state for state in states)]
    for old_layers, new_layers in (
        (old.forward_layers, new.forward_layers),
        (old.backward_layers, new.backward_layers),
    ):
        for old_layer, new_layer in zip(old_layers, new_layers):
            place(old_layer.gate_weight, new_layer.gate_weight, gates, inputs)
            new_layer.gate_bias[gates] = old_layer.gate_bias
            place(old_layer.projection, new_layer.projection, states, cells)


def grow_softmax(
    softmax: ExactSoftmax, old: LMVocabulary, new: LMVocabulary, width: int
) -> ExactSoftmax:
    """The softmax over other words and for wider states, which are added with zeros."""
    old_rows = torch.tensor([old.index_of(word) for word in new.words])
    weight = torch.zeros(len(new), width)
    weight[:, : softmax.weight.size(1)] = softmax.weight[old_rows]
    bias = softmax.bias[old_rows].clone()
    # <UNK> keeps a half of its probability, and the new words share the other one.
    is_new = old_rows == old.unknown
    is_new[new.unknown] = False
    if is_new.any():
        bias[is_new] -= math.log(2 * int(is_new.sum()))
        bias[new.unknown] -= math.log(2)
    return ExactSoftmax(weight, bias)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="name or folder of a biLM with its softmax and vocab.txt")
    parser.add_argument("output_folder", type=Path)
    parser.add_argument("--cell-size", type=int, required=True)
    parser.add_argument("--projection-dim", type=int, required=True)
    parser.add_argument("--filters", type=json.loads, required=True, help="as in options.json")
    parser.add_argument("--vocabulary-file", type=Path, required=True, help="words to predict")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    arguments = parser.parse_args()

    options_file, weight_file = resolve_model_files(arguments.model, None)
    old = BiLM.from_files(options_file, weight_file)
    old_vocabulary = LMVocabulary.from_file(weight_file.with_name(VOCABULARY_NAME))
    sizes = old.options.to_dict()
    sizes["char_cnn"]["filters"] = arguments.filters
    sizes["lstm"].update(dim=arguments.cell_size, projection_dim=arguments.projection_dim)
    options = BiLMOptions.from_dict(sizes)
    torch.manual_seed(arguments.seed)
    new = BiLM(options)
    grow_bilm(old, new)

    vocabulary = LMVocabulary.from_file(arguments.vocabulary_file)
    softmax = read_softmax(weight_file)
    assert softmax is not None, f"{weight_file} has no softmax"
    grown = grow_softmax(softmax, old_vocabulary, vocabulary, arguments.projection_dim)
    folder = arguments.output_folder
    folder.mkdir(parents=True, exist_ok=True)
    new.save(folder / "options.json", folder / "weights.hdf5", extra=grown.datasets())
    vocabulary.to_file(folder / VOCABULARY_NAME)
    num_parameters = sum(parameter.numel() for parameter in new.parameters())
    print(f"{folder}: {num_parameters:,} parameters, and {len(grown.bias):,} words")


if __name__ == "__main__":
    main()
