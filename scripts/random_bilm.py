"""
Write a biLM with random weights (bilm-tf's initial values), for tests and as a control in experiments.

    python scripts/random_bilm.py fixtures/bilm/tiny/options.json fixtures/bilm/tiny/weights.hdf5 --seed 0
"""

import argparse
from pathlib import Path

import torch

from elmo_plugin import BiLM
from elmo_plugin.bilm import BiLMOptions


def write_random_bilm(options_file: Path, weight_file: Path, seed: int) -> BiLM:
    """Write weights for the options in `options_file`, which are written again in full."""
    options = BiLMOptions.from_file(options_file)
    torch.manual_seed(seed)
    bilm = BiLM(options)
    weight_file.parent.mkdir(parents=True, exist_ok=True)
    bilm.save(weight_file.parent / "options.json", weight_file)
    return bilm


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("options_file", type=Path, help="sizes, in bilm-tf's options.json form")
    parser.add_argument(
        "weight_file", type=Path, help="HDF5 file to write; options.json is written beside it"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    arguments = parser.parse_args()
    bilm = write_random_bilm(arguments.options_file, arguments.weight_file, arguments.seed)
    num_parameters = sum(parameter.numel() for parameter in bilm.parameters())
    print(
        f"{arguments.weight_file}: {num_parameters:,} random parameters, width {bilm.get_output_dim()}"
    )


if __name__ == "__main__":
    main()
