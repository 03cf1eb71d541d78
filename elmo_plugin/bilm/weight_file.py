"""Reading and writing bilm-tf's weight files."""

import json
from contextlib import contextmanager
from os import PathLike
from typing import Dict, Iterator, List, Mapping, Optional, Union

import h5py
import numpy
import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from elmo_plugin.bilm.options import BiLMOptions
from elmo_plugin.bilm.weight_layout import BILM_GROUPS, WeightEntry, weight_layout
from elmo_plugin.files.replaced_file import replaced_file


def check_weights(options: BiLMOptions, weight_file: Union[str, PathLike]) -> None:
    """
    Compare names, shapes and types of a local HDF5 file with what `options` say. No weight is read.

    # Raises

    `ConfigurationError` naming the file and the dataset if the file cannot be read, lacks a dataset, has
    one of another shape or type, or describes a larger model.
    """
    with _opened(weight_file) as file:
        _check_datasets(file, weight_layout(options), weight_file)


def load_weights(
    bilm: torch.nn.Module, options: BiLMOptions, weight_file: Union[str, PathLike]
) -> None:
    """
    Fill the parameters of `bilm` from a local HDF5 file of float16, float32 or float64 datasets.

    # Raises

    `ConfigurationError` as `check_weights` does, and if a weight is NaN or infinite in float32.
    """
    entries = weight_layout(options)
    with _opened(weight_file) as file:
        _check_datasets(file, entries, weight_file)
        for entry in entries:
            # What overflows is found below.
            with numpy.errstate(over="ignore"):
                array = file[entry.dataset][...].astype(numpy.float32, copy=False)
            if not numpy.isfinite(array).all():
                raise ConfigurationError(
                    f"{weight_file}: dataset {entry.dataset} holds NaN or infinite values, expected "
                    "finite float32 weights. The file is damaged, or its training diverged; get another "
                    "copy."
                )
            parameter = torch.from_numpy(numpy.ascontiguousarray(entry.to_parameter(array)))
            with torch.no_grad():
                bilm.get_parameter(entry.parameter).copy_(parameter)


def read_group(weight_file: Union[str, PathLike], group: str) -> Dict[str, Tensor]:
    """
    The datasets of a group that is none of bilm-tf's own, float32, by name; empty if there is no such group.

    # Raises

    `ConfigurationError` if the file cannot be read.
    """
    with _opened(weight_file) as file:
        datasets = file.get(group, {})
        return {
            name: torch.from_numpy(dataset[...].astype(numpy.float32))
            for name, dataset in datasets.items()
        }


def save_model(
    bilm: torch.nn.Module,
    options: BiLMOptions,
    options_file: Union[str, PathLike],
    weight_file: Union[str, PathLike],
    dtype: str = "float32",
    extra: Optional[Mapping[str, Tensor]] = None,
) -> None:
    """
    Write options and weights in bilm-tf's form. Both files appear complete, or neither does.

    # Parameters

    bilm, options
        What to write.
    options_file, weight_file : `str` or `PathLike`
        Where to.
    dtype : `str`, optional (default = `"float32"`)
        `float32` or `float16`.
    extra : `Mapping[str, Tensor]`, optional
        Further datasets by path, such as a softmax. Loading ignores them.

    # Raises

    `OSError` if a file cannot be written.
    """
    with replaced_file(options_file) as new_options, replaced_file(weight_file) as new_weights:
        new_options.write_text(json.dumps(options.to_dict(), indent=2) + "\n", encoding="utf-8")
        with h5py.File(new_weights, "w") as file:
            for entry in weight_layout(options):
                array = entry.to_dataset(_as_array(bilm.get_parameter(entry.parameter)))
                file.create_dataset(entry.dataset, data=array, dtype=dtype)
            for path, tensor in (extra or {}).items():
                file.create_dataset(path, data=_as_array(tensor), dtype=dtype)


def _as_array(tensor: Tensor) -> numpy.ndarray:
    return tensor.detach().float().cpu().numpy()


def _check_datasets(
    file: h5py.File, entries: List[WeightEntry], weight_file: Union[str, PathLike]
) -> None:
    """Compare names and shapes before anything is read."""
    for entry in entries:
        dataset = file.get(entry.dataset)
        if not isinstance(dataset, h5py.Dataset):
            raise ConfigurationError(
                f"{weight_file}: dataset {entry.dataset} is missing, expected shape {entry.shape} from "
                "the options. Options and weights must belong to the same model."
            )
        if dataset.shape != entry.shape:
            raise ConfigurationError(
                f"{weight_file}: dataset {entry.dataset} has shape {dataset.shape}, expected "
                f"{entry.shape} from the options. Options and weights must belong to the same model."
            )
        if dataset.dtype.kind != "f":
            raise ConfigurationError(
                f"{weight_file}: dataset {entry.dataset} has type {dataset.dtype}, expected float16, "
                "float32 or float64."
            )
    expected = {entry.dataset for entry in entries}
    found: List[str] = []
    file.visititems(
        lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None
    )
    surplus = [name for name in found if name.startswith(BILM_GROUPS) and name not in expected]
    if surplus:
        raise ConfigurationError(
            f"{weight_file}: dataset {surplus[0]} is there, but the options describe a smaller model "
            "without it. Options and weights must belong to the same model."
        )


@contextmanager
def _opened(weight_file: Union[str, PathLike]) -> Iterator[h5py.File]:
    """The file, open to read; whatever HDF5 finds wrong with it becomes a `ConfigurationError`."""
    try:
        with h5py.File(weight_file, "r") as file:
            yield file
    except OSError as error:
        raise ConfigurationError(
            f"{weight_file}: cannot be read as an HDF5 file ({error}). Expected bilm-tf's weights; the "
            "file may be missing, cut short by a broken download, or of another kind. "
            "Were options_file and weight_file swapped?"
        ) from error
