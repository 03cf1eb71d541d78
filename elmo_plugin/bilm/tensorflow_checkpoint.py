"""
Read variables of a TensorFlow checkpoint, without TensorFlow.

A checkpoint `PREFIX` is a file `PREFIX.index` and one or more `PREFIX.data-00000-of-00001`. The index is a
table of LevelDB's format: blocks of sorted keys and values, an index of the blocks, and a footer. Keys are
names of variables, and values messages of protocol buffers (`BundleEntryProto`), which say where the values
of the variable are. The key "" has a message of the whole checkpoint (`BundleHeaderProto`).
"""

import io
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Sequence, Tuple, Union

import numpy
import torch
from torch import Tensor

from elmo_plugin.errors import ConfigurationError

_INDEX_ENDING = ".index"
_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER_BYTES = 48
# Of TensorFlow's enumeration of types.
_TYPES = {1: "<f4", 2: "<f8", 19: "<f2"}
# Of protocol buffers: kinds of fields that have a fixed size.
_BYTES_OF_KIND = {1: 8, 5: 4}


def is_checkpoint(prefix: Union[str, PathLike]) -> bool:
    """Return whether this is the prefix of a checkpoint: a path without `.index`."""
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
    except (OSError, IndexError, ValueError) as error:
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
        type_number, shard, offset, num_bytes = (_number(entry, field) for field in (1, 3, 4, 5))
        shape = [
            _number(_message(dim), 1)
            for message in entry.get(2, [])
            for dim in _message(message).get(2, [])
        ]
        if type_number not in _TYPES:
            raise ValueError(f"its type is number {type_number} of TensorFlow's, no float type")
        if 7 in entry or _number(header, 2) != 0:
            raise ValueError("it is partitioned, or in another byte order")
        with open(f"{prefix}.data-{shard:05d}-of-{_number(header, 1):05d}", "rb") as file:
            file.seek(offset)
            values = numpy.frombuffer(file.read(num_bytes), _TYPES[type_number]).reshape(shape)
    except (OSError, KeyError, ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"{prefix}: the variable {name} cannot be read ({error}), expected a complete checkpoint with "
            "float variables. Get another copy of its files."
        ) from error
    return torch.from_numpy(values.astype(numpy.float32))


def _entries(table: bytes) -> Iterator[Tuple[bytes, bytes]]:
    """Yield the keys and values of a table."""
    if not table.endswith(_MAGIC):
        raise ValueError("the end of the file is not that of a table")
    footer = io.BytesIO(table[-_FOOTER_BYTES:])
    # The offset and size of the meta index, then of the index.
    handle = [_varint(footer) for _ in range(4)]
    for _, block_handle in _block(table, *handle[2:]):
        stream = io.BytesIO(block_handle)
        yield from _block(table, _varint(stream), _varint(stream))


def _block(table: bytes, offset: int, size: int) -> Iterator[Tuple[bytes, bytes]]:
    """Yield the keys and values of a block. A key shares its beginning with the one before it."""
    if table[offset + size] != 0:
        raise ValueError("its blocks are compressed")
    block = table[offset : offset + size]
    num_restarts = int.from_bytes(block[-4:], "little")  # positions for searching, at the end
    content = block[: size - 4 * (num_restarts + 1)]
    stream, key = io.BytesIO(content), b""
    while stream.tell() < len(content):
        num_shared, num_own, num_value = _varint(stream), _varint(stream), _varint(stream)
        key = key[:num_shared] + stream.read(num_own)
        yield key, stream.read(num_value)


def _message(data: bytes) -> Dict[int, List[Any]]:
    """Return the fields of a message of protocol buffers by number: integers, or bytes."""
    fields: Dict[int, List[Any]] = {}
    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        number, kind = divmod(_varint(stream), 8)
        if kind == 0:
            value: Any = _varint(stream)
        elif kind == 2:
            value = stream.read(_varint(stream))
        elif kind in _BYTES_OF_KIND:
            value = stream.read(_BYTES_OF_KIND[kind])
        else:
            raise ValueError(f"a field of the unknown kind {kind}")
        fields.setdefault(number, []).append(value)
    return fields


def _number(fields: Dict[int, List[Any]], number: int) -> int:
    """Return a field that is an integer; zeros are left out of messages."""
    return int(fields.get(number, [0])[-1])


def _varint(stream: BinaryIO) -> int:
    """Read an integer of 7 bits in each byte, the lowest first. The last byte is below 128."""
    number = shift = 0
    while True:
        byte = stream.read(1)
        if not byte:
            raise ValueError("it is cut short")
        number |= (byte[0] & 127) << shift
        if byte[0] < 128:
            return number
        shift += 7
