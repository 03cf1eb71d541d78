"""A biLM for the tests of this folder."""

import pytest

from elmo_plugin import BiLM
from tests.conftest import TINY_OPTIONS, BiLMFiles, randomize


@pytest.fixture(scope="package")
def tiny_files(tmp_path_factory: pytest.TempPathFactory) -> BiLMFiles:
    """The files of a tiny random biLM."""
    folder = tmp_path_factory.mktemp("bilm")
    files = BiLMFiles(str(folder / "options.json"), str(folder / "weights.hdf5"))
    randomize(BiLM(TINY_OPTIONS)).save(*files)
    return files
