"""The formats that embedded sentences are written in."""

from os import PathLike
from pathlib import Path
from typing import Any, Dict, Optional, Tuple, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding.output.about_file import FILE_NAME, read_about
from elmo_plugin.embedding.output.embedding_writer import EmbeddingWriter
from elmo_plugin.embedding.output.hdf5_file import HDF5Writer, about_hdf5
from elmo_plugin.embedding.output.npy_folder import NpyWriter
from elmo_plugin.embedding.output.parquet_folder import ParquetWriter
from elmo_plugin.files.output_file import check_output_file, check_output_folder

FORMATS = ("hdf5", "parquet", "npy")


def format_of(output: Union[str, PathLike], format: Optional[str] = None) -> str:
    """
    The format of that name; without a name, the one by which `output` ends, or else `hdf5`.

    # Raises

    `ConfigurationError` if there is no such format.
    """
    if format is None:
        ending = Path(output).suffix.lstrip(".").lower()
        return ending if ending in FORMATS else "hdf5"
    if format not in FORMATS:
        raise ConfigurationError(f"format is '{format}', expected one of {', '.join(FORMATS)}.")
    return format


def embedding_writer(
    format: str,
    source: str,
    vector_shape: Tuple[int, ...],
    dtype: str,
    forget_sentences: bool = False,
    use_sentence_keys: bool = False,
) -> EmbeddingWriter:
    """
    The writer of a format; see there for the parameters.

    # Raises

    `ConfigurationError` if one is not for that format, or a package that it needs is missing.
    """
    if format == "hdf5":
        return HDF5Writer(forget_sentences, use_sentence_keys)
    if forget_sentences or use_sentence_keys:
        raise ConfigurationError(
            "--forget-sentences and --use-sentence-keys (forget_sentences, use_sentence_keys) are about keys "
            f"in HDF5, and the format is {format}. Leave them out."
        )
    if format == "npy":
        return NpyWriter(vector_shape, dtype)
    return ParquetWriter(source, vector_shape, dtype)


def check_output(
    output: Union[str, PathLike], format: str, overwrite: bool, resume: bool = False
) -> None:
    """
    # Parameters

    output : `str` or `PathLike`
        Where it is to be: a file for HDF5, otherwise a folder.
    format : `str`
        One of `FORMATS`.
    overwrite, resume : `bool`
        Whether it may be replaced, or be there complete.

    # Raises

    `ConfigurationError` if nothing can or should be written there.
    """
    advice = "--overwrite (overwrite=True)"
    if format == "hdf5":
        check_output_file(output, overwrite or resume, advice)
        return
    check_output_folder(output, overwrite or resume, advice)
    if Path(output).exists() and read_about(output) is None:
        raise ConfigurationError(
            f"output: {output} is a folder without {FILE_NAME}, expected one that this command has made. "
            "Remove it, or give another path."
        )


def about_output(output: Union[str, PathLike], format: str) -> Optional[Dict[str, Any]]:
    """How a complete output was made; `None` if this package did not make it."""
    return about_hdf5(Path(output)) if format == "hdf5" else read_about(output)
