"""Compressed files of strangers expand to a bounded size."""

import gzip
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from elmo_plugin import BiLM
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.compressed import MAX_EXPANSION, BoundedGzipFile, check_expansion
from elmo_plugin.files.text import MAX_BYTES
from tests.conftest import FIXTURES

BOMB = bytes(2 * MAX_BYTES)  # of zeros, which shrink a thousandfold


def test_a_file_may_expand_as_far_as_weights_do(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(bytes(50))
    check_expansion(path, MAX_BYTES + 50 * MAX_EXPANSION)
    with pytest.raises(ConfigurationError, match="50 bytes expand to 10,005,001 or more"):
        check_expansion(path, MAX_BYTES + 50 * MAX_EXPANSION + 1)


def test_too_much_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(BOMB))
    with BoundedGzipFile(path) as file:
        assert file.read(MAX_BYTES) == bytes(MAX_BYTES)
        with pytest.raises(
            ConfigurationError, match=f"{re.escape(str(path))}: its .* bytes expand"
        ):
            file.read(MAX_BYTES)
        assert file.tell() == MAX_BYTES


def test_a_zip_that_expands_too_far_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elmo_plugin.bilm.model_files.cache_folder", lambda: tmp_path / "cache")
    with zipfile.ZipFile(tmp_path / "m.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(FIXTURES / "bilm" / "tiny" / "options.json", "options.json")
        archive.writestr("weights.hdf5", BOMB)
    with pytest.raises(
        ConfigurationError, match=r"m\.zip: its .* bytes expand to 20,000,\d+ or more"
    ):
        BiLM.from_files(tmp_path / "m.zip")
    assert list((tmp_path / "cache").rglob("*")) == []


def test_an_archive_that_expands_too_far_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archives = pytest.importorskip("elmo_plugin.compat.archives", reason="needs AllenNLP")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    (tmp_path / "weights.th").write_bytes(BOMB)
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "weights.th", "weights.th")
    with pytest.raises(ConfigurationError, match=r"model\.tar\.gz: its .* bytes expand"):
        archives.opened_archive(tmp_path / "model.tar.gz")
    assert list(temporary.iterdir()) == []
