"""Reading and writing bilm-tf's weight files."""

import json
from contextlib import contextmanager
from os import PathLike
from typing import Dict, Iterator, List, Mapping, Optional, Set, Union

import h5py
import numpy
import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor
from torch.nn import Parameter

from elmo_plugin.bilm.options import BiLMOptions
from elmo_plugin.bilm.weight_layout import BILM_GROUPS, WeightEntry, weight_layout
from elmo_plugin.files.replaced_file import replaced_file

# Smaller datasets are read: each map costs a page and a system call.
BYTES_WORTH_MAPPING = 2**20

BYTES_PER_PART = 2**23


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
    Replace the parameters of `bilm` by those of a local HDF5 file of float16, float32 or float64 datasets,
    frozen.

    Large ones are not read but mapped, if they lie in the file as float32 in one piece, as bilm-tf and `save`
    write them: they take no memory before they are used, and then all processes of a machine share it. To
    write to them changes the process's own copy, never the file.

    # Raises

    `ConfigurationError` as `check_weights` does, and if a weight is NaN or infinite in float32.
    """
    with _opened(weight_file) as file:
        _check_datasets(file, weight_layout(options), weight_file)
        for entry in weight_layout(options):
            dataset = file[entry.dataset]
            _check_finite(dataset, entry.dataset, weight_file)
            owner, _, name = entry.parameter.rpartition(".")
            tensor = _parameter(entry, dataset, weight_file)
            setattr(bilm.get_submodule(owner), name, Parameter(tensor, requires_grad=False))


def mapped_parameters(options: BiLMOptions, weight_file: Union[str, PathLike]) -> Set[str]:
    """The names of the parameters that `load_weights` maps."""
    with _opened(weight_file) as file:
        return {
            entry.parameter
            for entry in weight_layout(options)
            if _mapped(file[entry.dataset], weight_file) is not None
        }


def read_parameter(
    options: BiLMOptions, weight_file: Union[str, PathLike], parameter: str
) -> Tensor:
    """One parameter, as `load_weights` reads or maps it."""
    (entry,) = [entry for entry in weight_layout(options) if entry.parameter == parameter]
    with _opened(weight_file) as file:
        return _parameter(entry, file[entry.dataset], weight_file)


def _parameter(
    entry: WeightEntry, dataset: h5py.Dataset, weight_file: Union[str, PathLike]
) -> Tensor:
    array = _mapped(dataset, weight_file)
    if array is not None:
        # A view, if the entry's transformation is one.
        return torch.from_numpy(entry.to_parameter(array))
    array = dataset[...].astype(numpy.float32, copy=False)
    return torch.from_numpy(numpy.ascontiguousarray(entry.to_parameter(array)))


def _mapped(dataset: h5py.Dataset, weight_file: Union[str, PathLike]) -> Optional[numpy.ndarray]:
    """The dataset as a view of the file; `None` if it is small, or in another form than memory's."""
    offset = dataset.id.get_offset()
    if (
        offset is None  # in chunks, perhaps compressed
        or dataset.external is not None
        or dataset.dtype != numpy.dtype("float32")
        or dataset.nbytes < BYTES_WORTH_MAPPING
    ):
        return None
    return numpy.memmap(weight_file, numpy.float32, "c", offset, dataset.shape)


def _check_finite(dataset: h5py.Dataset, path: str, weight_file: Union[str, PathLike]) -> None:
    """In parts, so that it takes little memory."""
    rows_per_part = max(1, dataset.shape[0] * BYTES_PER_PART // max(1, dataset.nbytes))
    for first in range(0, dataset.shape[0], rows_per_part):
        # What overflows is found.
        with numpy.errstate(over="ignore"):
            part = dataset[first : first + rows_per_part].astype(numpy.float32, copy=False)
        # NaN and infinity make their sum NaN or infinite, and sums are several times as fast as isfinite.
        if not numpy.isfinite(part.sum(dtype=numpy.float64)):
            raise ConfigurationError(
                f"{weight_file}: dataset {path} holds NaN or infinite values, expected finite float32 "
                "weights. The file is damaged, or its training diverged; get another copy."
            )


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
