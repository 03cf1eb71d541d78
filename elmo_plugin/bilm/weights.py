"""Weight files of bilm-tf: their layout in HDF5, and how they are checked, read and written."""

import hashlib
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Union

import h5py
import numpy
import torch
from torch import Tensor
from torch.nn import Parameter

from elmo_plugin.bilm.characters import NUM_CHARACTER_IDS
from elmo_plugin.bilm.many_langs import ManyLangsEncoder
from elmo_plugin.bilm.options import (
    BiLMOptions,
    CharacterEncoderOptions,
    ManyLangsEncoderOptions,
)
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import replaced_file

# The groups of a biLM in a weight file. Others, such as a softmax, are ignored.
MANY_LANGS_GROUP = "token_embedder"
BILM_GROUPS = ("char_embed", "CNN", "CNN_high_", "CNN_proj", "RNN_", MANY_LANGS_GROUP)

# Large datasets are read in parts of this size: only one part is in memory twice.
BYTES_PER_PART = 2**21

FileName = Union[str, PathLike]


@dataclass(frozen=True)
class WeightEntry:
    """
    One row of the layout: which dataset holds which parameter.

    # Parameters

    dataset : `str`
        Path of the dataset in the file.
    parameter : `str`
        Name of the parameter in `BiLM`.
    shape : `Tuple[int, ...]`
        Shape of the dataset.
    as_dataset : `Callable[[Tensor], Tensor]`
        Returns a view of the parameter in the shape of the dataset. Loading writes to it, saving reads it.
    """

    dataset: str
    parameter: str
    shape: Tuple[int, ...]
    as_dataset: Callable[[Tensor], Tensor]


def weight_layout(options: BiLMOptions) -> List[WeightEntry]:
    """Return a row for each dataset of a weight file with these options."""
    projection_dim = options.projection_dim
    cell_size = options.cell_size
    if isinstance(options.encoder, ManyLangsEncoderOptions):
        entries = _many_langs_encoder_layout(options.encoder, projection_dim)
    else:
        entries = _encoder_layout(options.encoder, projection_dim)
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


class WeightFile:
    """
    An open weight file whose names, shapes and types are those of the options; made by `opened_weights`.
    `name` is that of the file, for errors.
    """

    def __init__(self, file: h5py.File, layout: List[WeightEntry], name: FileName) -> None:
        self._file = file
        self._layout = layout
        self._name = name
        self._checksum = hashlib.sha256()

    # Parameters made in inference mode have no version.
    @torch.inference_mode(False)
    def load(self, bilm: torch.nn.Module, part: str) -> None:
        """
        Replace the parameters of a submodule of `bilm`, of that name, by those of the file, as float32 copies
        on the CPU, frozen. The parts of a biLM are loaded in the order of `BiLM.names_of_parts`.

        # Raises

        `ConfigurationError` if a weight is NaN or infinite in float32.
        """
        for entry in self._layout:
            owner, _, name = entry.parameter.rpartition(".")
            if not entry.parameter.startswith(f"{part}."):
                continue
            shape = bilm.get_parameter(entry.parameter).shape
            # Zeros: the embedding of padding is not in the file.
            tensor = torch.zeros(shape, dtype=torch.float32, device="cpu")
            self._read(entry, entry.as_dataset(tensor))
            setattr(bilm.get_submodule(owner), name, Parameter(tensor, requires_grad=False))

    def sha256(self) -> str:
        """Return the checksum of what was loaded, that of `weights_checksum`."""
        return self._checksum.hexdigest()

    def _read(self, entry: WeightEntry, target: Tensor) -> None:
        """Copy a dataset into `target`, a tensor of its shape, and check that it is finite."""
        dataset = self._file[entry.dataset]
        self._checksum.update(_checksum_header(entry.dataset, dataset.shape))
        rows_per_part = max(1, len(dataset) * BYTES_PER_PART // max(1, dataset.nbytes))
        for first in range(0, len(dataset), rows_per_part):
            rows = slice(first, first + rows_per_part)
            # Overflows become infinite, and are found below.
            with numpy.errstate(over="ignore"):
                part = dataset[rows].astype("<f4", copy=False)
            # NaN and infinity make their sum NaN or infinite, and sums are several times as fast as isfinite.
            if not numpy.isfinite(part.sum(dtype=numpy.float64)):
                raise ConfigurationError(
                    f"{self._name}: dataset {entry.dataset} holds NaN or infinite values, expected finite "
                    "float32 weights. The file is damaged, or its training diverged; get another copy."
                )
            self._checksum.update(part.tobytes())
            target[rows] = torch.from_numpy(part)


@contextmanager
def opened_weights(options: BiLMOptions, weight_file: FileName) -> Iterator[WeightFile]:
    """
    Open a local HDF5 file within the context, and compare names, shapes and types with `options`. After the
    context the file may be overwritten or deleted.

    # Raises

    `ConfigurationError` naming the file and the dataset if the file cannot be read, lacks a dataset, has
    one of another shape or type, or is of a larger model; and at the end of the context, if the file was
    changed within it.
    """
    with _opened(weight_file) as file:
        identity = _identity(file)
        layout = weight_layout(options)
        _check_datasets(file, layout, weight_file)
        yield WeightFile(file, layout, weight_file)
        if _identity(file) != identity:
            raise ConfigurationError(
                f"{weight_file}: the file changed while it was read. Load it again when it is complete."
            )


def read_group(weight_file: FileName, group: str) -> Dict[str, Tensor]:
    """
    Return the datasets of a group beside the biLM, such as a softmax, as float32; empty if the group does not
    exist.

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
    options_file: FileName,
    weight_file: FileName,
    dtype: str = "float32",
    extra: Optional[Mapping[str, Tensor]] = None,
) -> None:
    """
    Write options and weights in bilm-tf's form. Both files appear complete, or neither does.

    # Parameters

    bilm, options
        The model.
    options_file, weight_file : `str` or `PathLike`
        The files to write. Existing ones are replaced.
    dtype : `str`, optional (default = `"float32"`)
        `float32` or `float16`.
    extra : `Mapping[str, Tensor]`, optional
        Further datasets by path, such as a softmax. Loading ignores them.

    # Raises

    `OSError` if a file cannot be written.
    """
    arrays = {
        entry.dataset: entry.as_dataset(bilm.get_parameter(entry.parameter))
        for entry in weight_layout(options)
    }
    with replaced_file(options_file) as new_options, replaced_file(weight_file) as new_weights:
        new_options.write_text(json.dumps(options.to_dict(), indent=2) + "\n", encoding="utf-8")
        try:
            with h5py.File(new_weights, "w") as file:
                for path, tensor in {**arrays, **(extra or {})}.items():
                    file.create_dataset(path, data=_as_array(tensor), dtype=dtype)
        # h5py raises it when the disk is full or a limit of file sizes is exceeded while the file is closed.
        except RuntimeError as error:
            raise OSError(f"{weight_file}: cannot be written ({error}).") from error


def weights_checksum(bilm: Any) -> str:
    """
    Return the SHA-256 of the weights of a `BiLM` in float32, by the names of datasets. It is the same
    whatever the type in the file that they were read from.
    """
    checksum = hashlib.sha256()
    for entry in weight_layout(bilm.options):
        array = _as_array(entry.as_dataset(bilm.get_parameter(entry.parameter)))
        checksum.update(_checksum_header(entry.dataset, array.shape))
        checksum.update(array.astype("<f4").tobytes())
    return checksum.hexdigest()


def _checksum_header(dataset: str, shape: Tuple[int, ...]) -> bytes:
    return f"{dataset} {shape}".encode()


def _encoder_layout(options: CharacterEncoderOptions, output_dim: int) -> List[WeightEntry]:
    character_dim = options.character_embedding_dim
    num_filters = options.num_filters
    entries = [
        WeightEntry(
            "char_embed",
            "character_encoder.character_embedding.weight",
            (NUM_CHARACTER_IDS - 1, character_dim),
            _without_padding,
        )
    ]
    for i, (width, count) in enumerate(options.filters):
        convolution = f"character_encoder.convolutions.{i}"
        entries += [
            WeightEntry(
                f"CNN/W_cnn_{i}",
                f"{convolution}.weight",
                (1, width, character_dim, count),
                _as_tensorflow_convolution,
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
    if output_dim != num_filters:
        projection = "character_encoder.projection"
        entries += [
            _transposed("CNN_proj/W_proj", f"{projection}.weight", (num_filters, output_dim)),
            _same("CNN_proj/b_proj", f"{projection}.bias", (output_dim,)),
        ]
    return entries


def _many_langs_encoder_layout(
    options: ManyLangsEncoderOptions, output_dim: int
) -> List[WeightEntry]:
    """Return a layout of this package: bilm-tf has no such encoder."""
    with torch.device("meta"):
        parameters = ManyLangsEncoder(options, output_dim).named_parameters()
    return [
        _same(f"{MANY_LANGS_GROUP}/{name}", f"character_encoder.{name}", tuple(parameter.shape))
        for name, parameter in parameters
    ]


def _same(dataset: str, parameter: str, shape: Tuple[int, ...]) -> WeightEntry:
    return WeightEntry(dataset, parameter, shape, lambda tensor: tensor)


def _transposed(dataset: str, parameter: str, shape: Tuple[int, ...]) -> WeightEntry:
    # TensorFlow multiplies x @ W, torch W @ x.
    return WeightEntry(dataset, parameter, shape, torch.t)


def _without_padding(embedding: Tensor) -> Tensor:
    return embedding[1:]


def _as_tensorflow_convolution(weight: Tensor) -> Tensor:
    # (count, character_dim, width) -> (1, width, character_dim, count)
    return weight.permute(2, 1, 0).unsqueeze(0)


def _as_array(tensor: Tensor) -> numpy.ndarray:
    return tensor.detach().float().cpu().numpy()


def _check_datasets(file: h5py.File, entries: List[WeightEntry], weight_file: FileName) -> None:
    """Compare names, shapes and types before anything is read."""
    same_model = "Options and weights must belong to the same model."
    for entry in entries:
        dataset = file.get(entry.dataset)
        is_dataset = isinstance(dataset, h5py.Dataset)
        if not is_dataset or dataset.shape != entry.shape:
            found = f"has shape {dataset.shape}" if is_dataset else "is missing"
            raise ConfigurationError(
                f"{weight_file}: dataset {entry.dataset} {found}, expected shape {entry.shape} from the "
                f"options. {same_model}"
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
            f"{weight_file}: found the dataset {surplus[0]}, expected the smaller model of the options, "
            f"which has none of this name. {same_model}"
        )


def _identity(file: h5py.File) -> Tuple[Any, ...]:
    found = os.fstat(file.id.get_vfd_handle())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def _opened(weight_file: FileName) -> Iterator[h5py.File]:
    """Open a file to read. All errors within the context become a `ConfigurationError`."""
    try:
        with h5py.File(weight_file, "r") as file:
            yield file
    except ConfigurationError:
        raise
    # In damaged files h5py finds errors of nearly every class.
    except Exception as error:
        raise ConfigurationError(
            f"{weight_file}: cannot be read as an HDF5 file ({error}). Expected bilm-tf's weights; the "
            "file may be missing, cut short by a broken download, or of another kind. "
            "Were options_file and weight_file swapped?"
        ) from error
