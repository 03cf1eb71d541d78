"""Arguments of commands that run a biLM."""

from argparse import _ArgumentGroup
from os import PathLike
from typing import Any, Dict, Optional, Union

from elmo_plugin.bilm.kernels import AUTO


def add_file_arguments(group: _ArgumentGroup) -> None:
    """`--options-file` and `--weight-file`, see `named_files`."""
    group.add_argument(
        "--options-file",
        help="JSON of its sizes: path, URL or hf:// name; elmo_mini, or a .zip with both files, stands for "
        "both (default: the paper's model, downloaded once)",
    )
    group.add_argument("--weight-file", help="HDF5 of its weights, likewise")


def add_device_arguments(group: _ArgumentGroup) -> None:
    """`--cuda-device`, `--precision` and `--kernel`, see `ElmoEmbedder`."""
    group.add_argument(
        "--cuda-device",
        type=int,
        default=-1,
        help="number of the GPU; -1, the default, for the CPU",
    )
    group.add_argument(
        "--precision",
        default="float32",
        help="of matrix products: float32, or faster and less exact bfloat16 or int8 (default = float32)",
    )
    group.add_argument(
        "--kernel",
        default=AUTO,
        help="what runs the LSTMs: avx512, onednn, triton (GPUs), reference, or auto for the fastest "
        "(default = auto)",
    )


def named_files(
    options_file: Optional[Union[str, PathLike]], weight_file: Optional[Union[str, PathLike]]
) -> Dict[str, Any]:
    """The arguments of `ElmoEmbedder` for these files; none, for its default, if none was named."""
    if options_file is None and weight_file is None:
        return {}
    return {"options_file": options_file, "weight_file": weight_file}
