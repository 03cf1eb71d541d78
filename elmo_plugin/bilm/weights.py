"""Weight files of bilm-tf: the layout of a biLM in them, and how it is checked, read and written."""

import ctypes
import hashlib
import json
import os
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import h5py
import numpy
import torch
from torch import Tensor
from torch.nn import Parameter

from elmo_plugin.bilm.hdf5 import check_holds_floats, opened_hdf5, reading_hdf5, write_datasets
from elmo_plugin.bilm.steps import LSTMTensors
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import replaced_files
from elmo_plugin.files.text import FileName

MANY_LANGS_GROUP = "token_embedder"
# How the paths of a biLM's datasets begin. Others, such as those of a softmax, are ignored.
BILM_PREFIXES = ("char_embed", "CNN", "RNN_", MANY_LANGS_GROUP)

# Large datasets are read in parts of this size.
BYTES_PER_PART = 2**20


def _same(parameter: Tensor) -> Tensor:
    return parameter


def _transposed(weight: Tensor) -> Tensor:
    # TensorFlow multiplies x @ W, torch W @ x.
    return weight.t()


def _without_padding(embedding: Tensor) -> Tensor:
    return embedding[1:]


def _convolution(weight: Tensor) -> Tensor:
    # (count, character_dim, width) -> (1, width, character_dim, count)
    return weight.permute(2, 1, 0).unsqueeze(0)


# The layout: a pattern of names of parameters in `BiLM`, the path of the dataset, and the view of the
# parameter in the shape of the dataset.
_ENCODER_LAYOUT = (
    (r"character_encoder\.character_embedding\.weight", "char_embed", _without_padding),
    (r"character_encoder\.convolutions\.(\d+)\.weight", r"CNN/W_cnn_\1", _convolution),
    (r"character_encoder\.convolutions\.(\d+)\.bias", r"CNN/b_cnn_\1", _same),
    (r"character_encoder\.highways\.(\d+)\.(\w+)\.weight", r"CNN_high_\1/W_\2", _transposed),
    (r"character_encoder\.highways\.(\d+)\.(\w+)\.bias", r"CNN_high_\1/b_\2", _same),
    (r"character_encoder\.projection\.weight", "CNN_proj/W_proj", _transposed),
    (r"character_encoder\.projection\.bias", "CNN_proj/b_proj", _same),
)
# This package's own: bilm-tf has no such encoder.
_MANY_LANGS_ENCODER_LAYOUT = ((r"character_encoder\.(.+)", rf"{MANY_LANGS_GROUP}/\1", _same),)
_LSTM_LAYOUT = tuple(
    (
        rf"{direction}_layers\.(\d+)\.{name}",
        rf"RNN_{number}/RNN/MultiRNNCell/Cell\1/LSTMCell/{dataset}",
        as_dataset,
    )
    for number, direction in enumerate(("forward", "backward"))
    for name, dataset, as_dataset in (
        ("gate_weight", "W_0", _transposed),
        ("gate_bias", "B", _same),
        ("projection", "W_P_0", _transposed),
    )
)


class WeightEntry(NamedTuple):
    """A row of the layout of one biLM: the path of a dataset, and the name of its parameter in `BiLM`."""

    dataset: str
    parameter: str
    # Returns a view of the parameter in the shape of the dataset. Loading writes to it, saving reads it.
    as_dataset: Callable[[Tensor], Tensor]


def weight_layout(bilm: Any) -> List[WeightEntry]:
    """
    Return a row for each parameter of a `BiLM`.

    # Raises

    `ValueError` if it has parameters that `BiLM` does not have, as after a change of its modules.
    """
    is_many_langs = bilm.options.is_many_langs
    encoder_rows = _MANY_LANGS_ENCODER_LAYOUT if is_many_langs else _ENCODER_LAYOUT
    entries: List[WeightEntry] = []
    for parameter, _ in bilm.named_parameters(remove_duplicate=False):
        for pattern, dataset, as_dataset in (*encoder_rows, *_LSTM_LAYOUT):
            match = re.fullmatch(pattern, parameter)
            if match is not None:
                entries.append(WeightEntry(match.expand(dataset), parameter, as_dataset))
                break
        else:
            raise ValueError(
                f"The biLM has a parameter {parameter}, which has no place in a weight file."
            )
    return entries


class WeightFile:
    """
    An open weight file whose names and shapes are those of the options; made by `opened_weights`. `name` is
    that of the file, for errors.
    """

    def __init__(self, file: h5py.File, layout: List[WeightEntry], name: FileName) -> None:
        self._file = file
        self._layout = {entry.parameter: entry for entry in layout}
        self._name = name

    # Parameters made in inference mode have no version.
    @torch.inference_mode(False)
    def load(self, bilm: torch.nn.Module, prefix: str = "") -> None:
        """
        Replace the parameters of `bilm` whose names begin with `prefix` by those of the file, frozen.

        # Raises

        `ConfigurationError` as `read`.
        """
        for parameter in self._layout:
            owner, _, name = parameter.rpartition(".")
            if parameter.startswith(prefix):
                tensor = self.read(bilm, parameter)
                setattr(bilm.get_submodule(owner), name, Parameter(tensor, requires_grad=False))

    def lstm(self, bilm: Any, part: str, device: torch.device) -> "StoredLSTM":
        """
        Return an LSTM layer on a device, in place of the submodule of `bilm` of that name, which is on the
        meta device. Each of its matrices is read when it is requested.

        # Raises

        `ConfigurationError` as `read`, also when a matrix is requested.
        """
        self.load(bilm, f"{part}.gate_bias")
        layer = bilm.get_submodule(part).tensors()

        def read(name: str, columns: slice) -> Tensor:
            release_freed_memory()
            return self.read(bilm, f"{part}.{name}", columns).to(device)

        return StoredLSTM(**{**vars(layer), "bias": layer.bias.to(device), "read": read})

    def read(self, bilm: torch.nn.Module, parameter: str, columns: slice = slice(None)) -> Tensor:
        """
        Return a parameter, or some columns of the weight of an LSTM, as a float32 copy on the CPU.

        # Raises

        `ConfigurationError` if a weight is NaN or infinite in float32.
        """
        entry = self._layout[parameter]
        shape = bilm.get_parameter(parameter)[..., columns].shape
        # Zeros: the embedding of padding is not in the file.
        tensor = torch.zeros(shape, dtype=torch.float32, device="cpu")
        target, first = entry.as_dataset(tensor), 0
        for part in self._parts(entry.dataset, columns):
            if not is_finite(part):
                raise ConfigurationError(
                    f"{self._name}: dataset {entry.dataset} holds NaN or infinite values, expected finite "
                    "float32 weights. The file is damaged, or its training diverged; get another copy."
                )
            target[first : first + len(part)] = torch.from_numpy(part)
            first += len(part)
        return tensor

    def sha256(self) -> str:
        """Return the checksum of the file, that of `weights_checksum`."""
        names = [entry.dataset for entry in self._layout.values()]
        return _sha256((name, self._file[name].shape, self._parts(name)) for name in names)

    def _parts(self, name: str, rows: slice = slice(None)) -> Iterator[numpy.ndarray]:
        """Yield a dataset, or some of its rows, in float32, a part at a time."""
        dataset = self._file[name]
        rows_per_part = max(1, len(dataset) * BYTES_PER_PART // max(1, dataset.nbytes))
        start, stop, _ = rows.indices(len(dataset))
        for first in range(start, stop, rows_per_part):
            # Overflows become infinite, which `read` finds.
            with reading_hdf5(self._name), numpy.errstate(over="ignore"):
                part = dataset[first : min(first + rows_per_part, stop)].astype("<f4", copy=False)
            yield part


@dataclass(frozen=True)
class StoredLSTM(LSTMTensors):
    """
    An LSTM layer whose `weight` and `projection` stay on the meta device; `matrices` reads each matrix from
    the file.
    """

    read: Callable[[str, slice], Tensor]

    def matrices(self) -> Iterator[Tensor]:
        yield self.read("gate_weight", slice(self.input_dim))
        yield self.read("gate_weight", slice(self.input_dim, None))
        if self.projection is not None:
            yield self.read("projection", slice(None))


@contextmanager
def opened_weights(bilm: Any, weight_file: FileName) -> Iterator[WeightFile]:
    """
    Open a file as `opened_hdf5` does, and compare names and shapes with the parameters of a `BiLM`.

    # Raises

    `ConfigurationError` as that function; and naming the dataset if the file lacks one, has one of another
    shape or without floating-point numbers, or is of a larger model.
    """
    with opened_hdf5(weight_file) as file:
        layout = weight_layout(bilm)
        with reading_hdf5(weight_file):
            _check_datasets(file, bilm, layout, weight_file)
        yield WeightFile(file, layout, weight_file)


def release_freed_memory() -> None:
    """Return freed memory to the system. glibc would keep it: 26 MB after loading the paper's model."""
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)


def save_model(
    bilm: Any,
    options_file: FileName,
    weight_file: FileName,
    dtype: str = "float32",
    extra: Optional[Mapping[str, Tensor]] = None,
) -> None:
    """
    Write options and weights in bilm-tf's form. Both files appear complete, or neither does. A process that
    is killed leaves the previous files, the new ones, or no options.

    # Parameters

    options_file, weight_file : `str` or `PathLike`
        The files to write. Existing ones are replaced.
    dtype : `str`, optional (default = `"float32"`)
        `float32` or `float16`. Datasets with numbers beyond those of float16 are float32.
    extra : `Mapping[str, Tensor]`, optional
        Further datasets by path, such as a softmax. Loading ignores them.

    # Raises

    `OSError` if a file cannot be written, and `ConfigurationError` if both are one file or if a weight is NaN
    or infinite.
    """
    if os.path.realpath(options_file) == os.path.realpath(weight_file):
        raise ConfigurationError(
            f"options_file and weight_file are both {weight_file}, expected two files. Give another path."
        )
    tensors = {
        entry.dataset: entry.as_dataset(bilm.get_parameter(entry.parameter))
        for entry in weight_layout(bilm)
    }

    def arrays() -> Iterator[Tuple[str, numpy.ndarray]]:
        for path, tensor in {**tensors, **(extra or {})}.items():
            array = _as_array(tensor)
            if not is_finite(array):
                raise ConfigurationError(
                    f"The biLM cannot be saved: {path} holds NaN or infinite values, as its training "
                    "diverged. Save an earlier state."
                )
            yield path, in_type(torch.from_numpy(array), dtype).numpy()

    with replaced_files(weight_file, options_file) as (new_weights, new_options):
        new_options.write_text(
            json.dumps(bilm.options.to_dict(), indent=2) + "\n", encoding="utf-8"
        )
        write_datasets(new_weights, weight_file, arrays())


def weights_checksum(bilm: Any) -> str:
    """
    Return the SHA-256 of the weights of a `BiLM` in float32, by the names of datasets. It is the same
    whatever the type in the file that they were read from.
    """
    arrays = (
        (entry.dataset, _as_array(entry.as_dataset(bilm.get_parameter(entry.parameter))))
        for entry in weight_layout(bilm)
    )
    return _sha256((name, array.shape, [array]) for name, array in arrays)


def _sha256(datasets: Iterable[Tuple[str, Tuple[int, ...], Iterable[numpy.ndarray]]]) -> str:
    """Return the checksum of datasets: names, shapes, and their values, given in parts."""
    checksum = hashlib.sha256()
    for name, shape, parts in datasets:
        checksum.update(f"{name} {shape}".encode())
        for part in parts:
            checksum.update(numpy.ascontiguousarray(part, "<f4").data)
    return checksum.hexdigest()


def _as_array(tensor: Tensor) -> numpy.ndarray:
    return tensor.detach().float().cpu().numpy()


def is_finite(array: numpy.ndarray) -> bool:
    """Return whether there is neither NaN nor infinity among floating-point numbers."""
    # NaN and infinity make their sum NaN or infinite, and sums are several times as fast as isfinite.
    with numpy.errstate(invalid="ignore"):  # infinities of both signs
        return bool(numpy.isfinite(array.sum(dtype=numpy.float64)))


def in_type(tensor: Tensor, dtype: str) -> Tensor:
    """Cast floating-point numbers to `dtype`, unless one would overflow. Return other tensors unchanged."""
    cast = tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor
    return cast if bool(cast.isfinite().all()) else tensor


def _check_datasets(
    file: h5py.File, bilm: Any, entries: List[WeightEntry], weight_file: FileName
) -> None:
    """Compare names, shapes and types before anything is read."""
    same_model = "Options and weights must belong to the same model."
    for entry in entries:
        dataset = file.get(entry.dataset)
        shape = tuple(entry.as_dataset(bilm.get_parameter(entry.parameter)).shape)
        if dataset is None or dataset.shape != shape:
            fault = "is missing" if dataset is None else f"has shape {dataset.shape}"
            raise ConfigurationError(
                f"{weight_file}: dataset {entry.dataset} {fault}, expected shape {shape} from the options. "
                f"{same_model}"
            )
        check_holds_floats(dataset, weight_file)
    expected = {entry.dataset for entry in entries}
    found: List[str] = []
    file.visititems(
        lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None
    )
    surplus = [name for name in found if name.startswith(BILM_PREFIXES) and name not in expected]
    if surplus:
        raise ConfigurationError(
            f"{weight_file}: found the dataset {surplus[0]}, expected the smaller model of the options, "
            f"which has none of this name. {same_model}"
        )
