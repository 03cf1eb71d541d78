"""Reading and writing bilm-tf's weight files."""

import json
import os
import tempfile
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Iterator, List, Union

import h5py
import numpy
import torch
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.options import BiLMOptions
from elmo_plugin.bilm.weight_layout import BILM_GROUPS, WeightEntry, weight_layout


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


def save_model(
    bilm: torch.nn.Module,
    options: BiLMOptions,
    options_file: Union[str, PathLike],
    weight_file: Union[str, PathLike],
) -> None:
    """
    Write options and weights, float32, in bilm-tf's form. Both files appear complete, or neither does.

    # Raises

    `OSError` if a file cannot be written.
    """
    with _replacing(options_file) as new_options, _replacing(weight_file) as new_weights:
        new_options.write_text(json.dumps(options.to_dict(), indent=2) + "\n", encoding="utf-8")
        with h5py.File(new_weights, "w") as file:
            for entry in weight_layout(options):
                parameter = bilm.get_parameter(entry.parameter).detach().float().cpu().numpy()
                file.create_dataset(
                    entry.dataset, data=entry.to_dataset(parameter), dtype=numpy.float32
                )


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


@contextmanager
def _replacing(path: Union[str, PathLike]) -> Iterator[Path]:
    """A path to write to; on success it replaces `path`, on failure it goes."""
    path = Path(path)
    handle, partial_name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    partial_file = Path(partial_name)
    try:
        yield partial_file
        # mkstemp makes files that only their owner may read; an ordinary file follows the umask.
        umask = os.umask(0)
        os.umask(umask)
        partial_file.chmod(0o666 & ~umask)
        os.replace(partial_file, path)
    except BaseException:
        partial_file.unlink(missing_ok=True)
        raise
