"""
Read variables of a TensorFlow checkpoint, without TensorFlow.

A checkpoint `PREFIX` is a file `PREFIX.index` and one or more `PREFIX.data-00000-of-00001`. The index is a
table of LevelDB's format: blocks of sorted keys and values, an index of the blocks, and a footer. Keys are
names of variables, and values messages of protocol buffers (`BundleEntryProto`), which say where the values
of the variable are. The key "" has a message of the whole checkpoint (`BundleHeaderProto`).
"""

import math
import struct
from os import PathLike
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple, Union

import numpy
import torch
from torch import Tensor

from elmo_plugin.errors import ConfigurationError

_INDEX_ENDING = ".index"
_MAGIC = 0xDB4775248B80FB57
_FOOTER_BYTES = 48
# Of TensorFlow's enumeration of types.
_TYPES = {1: "<f4", 2: "<f8", 19: "<f2"}


def is_checkpoint(prefix: Union[str, PathLike]) -> bool:
    """Return whether there is a checkpoint of this prefix: a path without `.index`."""
    return Path(f"{prefix}{_INDEX_ENDING}").is_file()


def read_variables(prefix: Union[str, PathLike], names: Sequence[str]) -> Dict[str, Tensor]:
    """
    Read variables of a checkpoint as float32.

    # Parameters

    prefix : `str` or `PathLike`
        The path of the checkpoint, such as `checkpoint/model.ckpt-935588`, without `.index`.
    names : `Sequence[str]`
        Names of variables.

    # Raises

    `ConfigurationError` naming the file, if it is missing, damaged or of another kind, or lacks a variable.
    """
    index_file = f"{prefix}{_INDEX_ENDING}"
    try:
        entries = dict(_entries(Path(index_file).read_bytes()))
    except (OSError, IndexError, ValueError, struct.error) as error:
        raise ConfigurationError(
            f"{index_file}: cannot be read as the index of a TensorFlow checkpoint ({error}). The file may "
            "be missing, damaged or of another kind; give the path of a checkpoint without .index."
        ) from error
    missing = [name for name in names if name.encode() not in entries]
    if missing:
        found = ", ".join(sorted(key.decode("utf-8", "replace") for key in entries if key))
        raise ConfigurationError(
            f"{index_file}: has no variable {missing[0]}, expected a checkpoint of bilm-tf's training. Its "
            f"variables are {found}."
        )
    return {name: _variable(str(prefix), name, entries) for name in names}


def _variable(prefix: str, name: str, entries: Dict[bytes, bytes]) -> Tensor:
    try:
        header, entry = _message(entries[b""]), _message(entries[name.encode()])
        num_shards = _number(header, 1)
        shape = [_number(_message(dim), 1) for dim in _message(_bytes(entry, 2)).get(2, [])]
        size, offset = _number(entry, 5), _number(entry, 4)
        type_name = _TYPES.get(_number(entry, 1))
        if type_name is None:
            raise ValueError(
                f"its type is number {_number(entry, 1)} of TensorFlow's, no float type"
            )
        if 7 in entry or _number(header, 2) != 0:
            raise ValueError("it is partitioned, or in another byte order")
        if size != math.prod(shape) * numpy.dtype(type_name).itemsize:
            raise ValueError(f"{size} bytes for the shape {tuple(shape)}")
        path = f"{prefix}.data-{_number(entry, 3):05d}-of-{num_shards:05d}"
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(size)
        values = numpy.frombuffer(data, type_name).reshape(shape)
    except (OSError, IndexError, KeyError, ValueError, struct.error) as error:
        raise ConfigurationError(
            f"{prefix}: the variable {name} cannot be read ({error}), expected a complete checkpoint with "
            "float variables. Get another copy of its files."
        ) from error
    return torch.from_numpy(values.astype(numpy.float32))


def _entries(table: bytes) -> Iterator[Tuple[bytes, bytes]]:
    """Yield the keys and values of a table."""
    footer = table[-_FOOTER_BYTES:]
    if len(footer) < _FOOTER_BYTES or struct.unpack("<Q", footer[-8:])[0] != _MAGIC:
        raise ValueError("the end of the file is not that of a table")
    place = 0
    handle: List[int] = []
    for _ in range(4):  # offset and size of the meta index, then of the index
        number, place = _varint(footer, place)
        handle.append(number)
    for _, block_handle in _block(table, *handle[2:]):
        offset, after = _varint(block_handle, 0)
        size, _ = _varint(block_handle, after)
        yield from _block(table, offset, size)


def _block(table: bytes, offset: int, size: int) -> Iterator[Tuple[bytes, bytes]]:
    """Yield the keys and values of a block. A key shares its beginning with the one before it."""
    block, compression = table[offset : offset + size], table[offset + size]
    if compression != 0:
        raise ValueError("its blocks are compressed")
    (num_restarts,) = struct.unpack("<I", block[-4:])
    end = size - 4 * (num_restarts + 1)
    place, key = 0, b""
    while place < end:
        num_shared, place = _varint(block, place)
        num_own, place = _varint(block, place)
        num_value, place = _varint(block, place)
        key = key[:num_shared] + block[place : place + num_own]
        place += num_own
        yield key, block[place : place + num_value]
        place += num_value


def _message(data: bytes) -> Dict[int, List[Any]]:
    """Return the fields of a message of protocol buffers by number: numbers, or bytes."""
    fields: Dict[int, List[Any]] = {}
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, kind = tag >> 3, tag & 7
        value: Any
        if kind == 0:
            value, place = _varint(data, place)
        elif kind == 2:
            length, place = _varint(data, place)
            value, place = data[place : place + length], place + length
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
            value, place = data[place : place + length], place + length
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        fields.setdefault(number, []).append(value)
    return fields


def _number(fields: Dict[int, List[Any]], number: int) -> int:
    """Return a field that is a number; zeros are left out of messages."""
    return int(fields.get(number, [0])[-1])


def _bytes(fields: Dict[int, List[Any]], number: int) -> bytes:
    return bytes(fields.get(number, [b""])[-1])


def _varint(data: bytes, place: int) -> Tuple[int, int]:
    """Return a number of 7 bits in each byte, the lowest first, and the place after it."""
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
        shift += 7
