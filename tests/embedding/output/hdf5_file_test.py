import json
import logging
from pathlib import Path
from typing import Any, Dict, List

import h5py
import numpy
import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.embedding import sentence_keys
from elmo_plugin.embedding.output.hdf5_file import HDF5Writer, about_hdf5
from elmo_plugin.embedding.sentence_file import Sentence


def write(path: Path, lines: List[str], **arguments: Any) -> None:
    """Writes vectors `(2, 3)` that hold the number of the line to a file."""
    writer = HDF5Writer(**arguments)
    for index, line in enumerate(lines):
        writer.check(index, line)
    with writer.open(path.parent, None):
        for index, line in enumerate(lines):
            vectors = numpy.full((2, 3), index, dtype="float32")
            writer.write(Sentence(index, line, line.split()), vectors)
        writer.finish({"made": "so"}).rename(path)


def read(path: Path) -> Dict[str, Any]:
    with h5py.File(path) as file:
        return {key: file[key][...] for key in file}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.hdf5"


def test_keys_are_line_numbers_and_the_index_has_the_last_of_equal_lines(path: Path) -> None:
    write(path, ["a b", "é", "a b"])
    datasets = read(path)
    index = datasets.pop("sentence_to_index")
    assert datasets.keys() == {"0", "1", "2"}
    assert all((datasets[key] == int(key)).all() for key in datasets)
    assert all(vectors.dtype == "float32" for vectors in datasets.values())
    assert index.shape == (1,)
    assert json.loads(index[0]) == {"a b": "2", "é": "1"}


def test_sentences_can_be_forgotten(path: Path) -> None:
    write(path, ["a b", "a b"], forget_sentences=True)
    assert read(path).keys() == {"0", "1"}


def test_lines_can_be_keys(path: Path) -> None:
    lines = ["a b", "é : .", "sentence_to_index", "x" * 10_000, "..", "0"]
    write(path, lines, use_sentence_keys=True)
    datasets = read(path)
    assert datasets.keys() == set(lines)
    assert all((datasets[line] == index).all() for index, line in enumerate(lines))


def test_lines_with_slashes_are_found_by_themselves(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = ["60 km / h", "and/or", "/ a", "60 km / s", "./b", "a", "1//2", ". / ."]
    with caplog.at_level(logging.WARNING):
        write(path, lines, use_sentence_keys=True)
    with h5py.File(path) as file:
        for index, line in enumerate(lines):
            assert (file[line][...] == index).all()
        assert "60 km " in set(file)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert warnings[0].startswith("line 1: '60 km / h' has a slash, of which HDF5 makes groups")


@pytest.mark.parametrize(
    "lines, match",
    [
        (["a", "b", "a"], "line 3: 'a' stands in an earlier line too.*--use-sentence-keys"),
        (["a/b", "a//b"], "line 2: 'a//b' stands in an earlier line"),
        (["a/b", "./a/./b"], "line 2: './a/./b' stands in an earlier line"),
        (["a", "a/b"], "line 2: 'a/b' and an earlier line start alike up to a slash"),
        (["a/b/c", "a/b"], "line 2: 'a/b' and an earlier line start alike"),
        (["a", "."], "line 2: '.' is no key in HDF5"),
        (["/"], "line 1: '/' is no key in HDF5"),
        (["a /"], "line 1: 'a /' is no key in HDF5"),
    ],
)
def test_lines_that_hdf5_cannot_tell_apart_are_refused_as_keys(
    path: Path, lines: List[str], match: str
) -> None:
    with pytest.raises(ConfigurationError, match=match):
        write(path, lines, use_sentence_keys=True)
    assert not path.exists()


def test_an_index_that_hdf5_cannot_hold_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["a b"] * 10 + ["é"]
    monkeypatch.setattr(sentence_keys, "MAX_INDEX_BYTES", 100)
    with pytest.raises(ConfigurationError, match=r"line 9: .* 100 bytes.*--forget-sentences"):
        write(path, lines)
    write(path, lines, forget_sentences=True)


def test_it_says_how_it_was_made_where_readers_of_datasets_do_not_meet_it(path: Path) -> None:
    write(path, ["a b"])
    assert about_hdf5(path) == {"made": "so"}
    with h5py.File(path, "w"):
        pass
    assert about_hdf5(path) is None
    path.write_text("no HDF5")
    assert about_hdf5(path) is None


def test_an_error_within_leaves_nothing_open(tmp_path: Path) -> None:
    writer = HDF5Writer()
    with pytest.raises(KeyboardInterrupt), writer.open(tmp_path, None):
        raise KeyboardInterrupt
    (path,) = tmp_path.iterdir()
    with h5py.File(path, "a") as file:  # fails if it is still open
        assert not file.keys()
