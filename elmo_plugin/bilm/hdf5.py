"""HDF5 files of weights: how they are opened and written, whatever is wrong with them."""

import os
from contextlib import ExitStack, contextmanager
from typing import Any, Iterable, Iterator, Optional, Tuple

import h5py
import numpy

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.fail_safe import FailSafeFile
from elmo_plugin.files.text import FileName


@contextmanager
def opened_hdf5(path: FileName) -> Iterator[h5py.File]:
    """
    Open a local file to read. After the context it may be overwritten or deleted.

    # Raises

    `ConfigurationError` naming the file if it cannot be opened, or refers to other files; and at the end of
    the context, if it was changed within it.
    """
    with ExitStack() as stack:
        with reading_hdf5(path):
            file = stack.enter_context(h5py.File(path, "r"))
            _check_data_are_inside(file, path)
        identity = _identity(file)
        yield file
        if _identity(file) != identity:
            raise ConfigurationError(
                f"{path}: the file changed while it was read. Load it again when it is complete."
            )


@contextmanager
def reading_hdf5(path: FileName) -> Iterator[None]:
    """Turn errors of h5py within the context, except `MemoryError`, into `ConfigurationError`."""
    try:
        yield
    except (ConfigurationError, MemoryError):
        raise
    # In damaged files h5py finds errors of nearly every class.
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # within h5py it becomes a SystemError
            raise error.__cause__ from None
        raise ConfigurationError(
            f"{path}: cannot be read as an HDF5 file ({error}). Expected bilm-tf's weights; the "
            "file may be missing, cut short by a broken download, or of another kind. "
            "Were options_file and weight_file swapped?"
        ) from error


def write_datasets(
    path: FileName, name: FileName, datasets: Iterable[Tuple[str, numpy.ndarray]]
) -> None:
    """
    Write a file of datasets, each given with its path in the file. Raise `OSError`, which calls the file
    `name`, if it cannot be written.
    """
    try:
        with FailSafeFile(path, "w+") as checked_file, h5py.File(checked_file, "w") as file:
            for dataset, array in datasets:
                file.create_dataset(dataset, data=array)
                checked_file.raise_error()
    except OSError as error:
        message = f"{name}: cannot be written ({error.strerror or error})"
        raise OSError(error.errno, message) from error


def check_holds_floats(dataset: h5py.Dataset, path: FileName) -> None:
    """Raise `ConfigurationError` for a dataset of other values than floating-point numbers."""
    # numpy would convert integers, texts, and complex numbers without their imaginary parts.
    if dataset.dtype.kind != "f":
        raise ConfigurationError(
            f"{path}: dataset {dataset.name[1:]} holds values of type {dataset.dtype}, expected "
            "floating-point numbers. Give weights that are neither quantized nor in another form."
        )


def _check_data_are_inside(file: h5py.File, path: FileName) -> None:
    """Refuse files that refer to others, whose content would be read as weights."""

    def external_link(name: str, link: Any) -> Optional[str]:
        return name if isinstance(link, h5py.ExternalLink) else None

    def external_data(name: str, item: Any) -> Optional[str]:
        is_dataset = isinstance(item, h5py.Dataset)
        return name if is_dataset and (item.is_virtual or item.external) else None

    name = file.visititems_links(external_link) or file.visititems(external_data)
    if name is not None:
        raise ConfigurationError(
            f"{path}: {name} refers to another file, expected all data in this one. Do not trust this "
            "file; get it from another source."
        )


def _identity(file: h5py.File) -> Tuple[Any, ...]:
    found = os.fstat(file.id.get_vfd_handle())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
