import errno
import io
import json
import os
import shutil
import weakref
from collections import namedtuple
from pathlib import Path
from typing import Any, Dict, Iterator, List

import h5py
import numpy
import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules.elmo import Elmo as AllenNlpElmo

from elmo_plugin.bilm import batch_to_ids
from elmo_plugin.embedding import ElmoEmbedder
from elmo_plugin.embedding.embed_file import EmbeddedFile, embed_file
from elmo_plugin.embedding.layer_choice import layer_choice
from elmo_plugin.embedding.sentence_file import SentenceFile
from tests.conftest import BiLMFiles

LINES = [
    "The naïve 日本語 cat .",
    "Hi",
    "a b a b a b a",
    "x" * 10_000 + " y",
    "Hi",
    *(f"{number} " * (number % 7 + 1) for number in range(200)),
]


@pytest.fixture
def embedder(bilm_files: BiLMFiles) -> ElmoEmbedder:
    return ElmoEmbedder(*bilm_files)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tests run, with sentences in `in.txt`."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "in.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    return folder


def embed(embedder: Any, choice: str = "all", source: Any = "in.txt", **arguments: Any) -> Any:
    with SentenceFile(source) as file:
        return embed_file(embedder, file, "out.hdf5", layer_choice(choice), **arguments)


def read(path: str = "out.hdf5") -> Dict[str, Any]:
    with h5py.File(path) as file:
        return {key: file[key][...] for key in file}


def test_each_line_has_the_layers_that_allennlp_computes(
    embedder: ElmoEmbedder, bilm_files: BiLMFiles, folder: Path
) -> None:
    num_tokens = sum(len(line.split()) for line in LINES)
    assert embed(embedder) == EmbeddedFile(len(LINES), num_tokens)
    datasets = read()
    assert json.loads(datasets.pop("sentence_to_index")[0]) == {
        line.strip(): str(index) for index, line in enumerate(LINES)
    }
    assert datasets.keys() == {str(index) for index in range(len(LINES))}
    # One mix for each layer, which it selects.
    elmos = [
        AllenNlpElmo(
            *bilm_files, 1, dropout=0.0, scalar_mix_parameters=[9e10 * (i == j) for j in range(3)]
        ).eval()
        for i in range(3)
    ]
    for index, line in enumerate(LINES):
        expected = []
        for elmo in elmos:
            elmo._elmo_lstm._elmo_lstm._states = None  # AllenNLP's biLM is stateful
            with torch.no_grad():
                output = elmo(batch_to_ids([line.split()]))["elmo_representations"][0][0]
            expected.append(output.numpy())
        assert datasets[str(index)].dtype == "float32"
        numpy.testing.assert_allclose(datasets[str(index)], numpy.stack(expected), atol=1e-5)


@pytest.mark.parametrize("choice", ["top", "average"])
def test_a_choice_of_layers_is_written(embedder: ElmoEmbedder, folder: Path, choice: str) -> None:
    embed(embedder, choice)
    datasets = read()
    for index, line in enumerate(LINES):
        layers = embedder.embed_sentence(line.split())
        expected = layers[-1] if choice == "top" else layers.mean(axis=0)
        # Rows of other batches are summed in another order.
        numpy.testing.assert_allclose(datasets[str(index)], expected, atol=1e-5)
        assert datasets[str(index)].dtype == "float32"


def test_float16_takes_half_the_bytes(embedder: ElmoEmbedder, folder: Path) -> None:
    embed(embedder, "top")
    exact = read()["0"]
    embed(embedder, "top", dtype="float16", overwrite=True)
    lowered = read()["0"]
    assert lowered.dtype == "float16"
    assert (lowered == exact.astype("float16")).all()


def test_a_pipe_is_embedded_like_a_file(embedder: ElmoEmbedder, folder: Path) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    embed(embedder)
    expected = read()
    embed(embedder, source=Pipe(Path("in.txt").read_bytes()), overwrite=True)
    datasets = read()
    assert datasets.keys() == expected.keys()
    assert all((datasets[key] == expected[key]).all() for key in expected)
    with pytest.raises(ConfigurationError, match="line 5: 'Hi' stands in an earlier line"):
        source = Pipe(Path("in.txt").read_bytes())
        embed(embedder, source=source, overwrite=True, use_sentence_keys=True)
    assert sorted(os.listdir()) == ["in.txt", "out.hdf5"]


def test_batches_do_not_change_what_is_written(embedder: ElmoEmbedder, folder: Path) -> None:
    embed(embedder, "top", batch_size=1)
    expected = read()
    embed(embedder, "top", batch_size=100, batch_tokens=30, overwrite=True)
    datasets = read()
    for index in range(len(LINES)):
        numpy.testing.assert_allclose(datasets[str(index)], expected[str(index)], atol=1e-5)


class Unused:
    """An embedder that must not be asked for anything, as the error comes before work starts."""

    def __init__(self, embedder: ElmoEmbedder) -> None:
        self.elmo_bilm = embedder.elmo_bilm

    def embed_sentences(self, sentences: Any, *limits: Any) -> Iterator[Any]:
        yield from ()
        raise AssertionError("work was started")


class TestBadInput:
    @pytest.fixture
    def unused(self, embedder: ElmoEmbedder, folder: Path) -> Unused:
        return Unused(embedder)

    @pytest.mark.parametrize(
        "content, arguments, match",
        [
            (b"a\n\nb\n\n", {}, r"2 lines \(2, 4\) are blank"),
            (b"a\n\xff\n", {}, "line 2: found the bytes"),
            (b"a\nb \x00\n", {}, "line 2: found the control character"),
            (b"", {}, "found no sentence"),
            (b"a\nb\na\n", {"use_sentence_keys": True}, "line 3: 'a' stands in an earlier line"),
            (b"a\n", {"dtype": "int8"}, "dtype is 'int8', expected one of float32, float16"),
        ],
    )
    def test_it_is_refused_before_work_starts(
        self, unused: Unused, content: bytes, arguments: Any, match: str
    ) -> None:
        Path("in.txt").write_bytes(content)
        with pytest.raises(ConfigurationError, match=match):
            embed(unused, **arguments)
        assert os.listdir() == ["in.txt"]

    def test_sizes_of_batches_are_checked_before_the_input_is(
        self, embedder: ElmoEmbedder, folder: Path
    ) -> None:
        Path("in.txt").write_text("\n")
        for arguments in ({"batch_size": 0}, {"batch_tokens": -1}):
            with pytest.raises(ConfigurationError, match="expected a positive whole number"):
                embed(embedder, **arguments)

    def test_the_output_is_replaced_on_request_only(self, unused: Unused) -> None:
        Path("out.hdf5").write_text("former")
        with pytest.raises(ConfigurationError, match=r"output: out\.hdf5 exists.*--overwrite"):
            embed(unused)
        assert Path("out.hdf5").read_text() == "former"

    def test_the_input_is_not_overwritten(self, unused: Unused) -> None:
        os.link("in.txt", "out.hdf5")
        with pytest.raises(ConfigurationError, match=r"output: out\.hdf5 is the input"):
            embed(unused, overwrite=True)

    def test_a_missing_folder_a_folder_and_one_that_is_closed_are_named(
        self, unused: Unused, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with SentenceFile("in.txt") as source:
            for output, match in [("no/out", "no folder no to write out"), (".", "is a folder")]:
                with pytest.raises(ConfigurationError, match=match):
                    embed_file(unused, source, output, layer_choice("all"))
        # Not by permissions: the superuser, as whom tests may run, writes anywhere.
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        with pytest.raises(ConfigurationError, match="nothing may be written in the folder"):
            embed(unused)

    def test_a_disk_without_room_is_noticed_before_work_starts(
        self, unused: Unused, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usage = namedtuple("usage", "free")
        num_tokens = sum(len(line.split()) for line in LINES)
        needed = num_tokens * 3 * 12 * 4
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(needed - 1))
        with pytest.raises(
            ConfigurationError, match=r"out\.hdf5 needs at least .* are free.*--top"
        ):
            embed(unused)
        with pytest.raises(AssertionError, match="work was started"):
            embed(unused, dtype="float16")


class TestFailure:
    def test_a_full_disk_leaves_the_former_file(
        self, embedder: ElmoEmbedder, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pwrite = os.pwrite

        def limited(handle: int, data: Any, position: int) -> int:
            if position > 50_000:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return pwrite(handle, data, position)

        monkeypatch.setattr(os, "pwrite", limited)
        Path("out.hdf5").write_text("former")
        match = r"out\.hdf5: cannot be written after \d+ sentences \(No space left on device\)"
        with pytest.raises(OSError, match=match) as raised:
            embed(embedder, overwrite=True)
        assert raised.value.errno == errno.ENOSPC
        assert sorted(os.listdir()) == ["in.txt", "out.hdf5"]
        assert Path("out.hdf5").read_text() == "former"

    def test_a_vector_beyond_float16_is_an_error(
        self, embedder: ElmoEmbedder, folder: Path
    ) -> None:
        class Large(Unused):
            def embed_sentences(self, sentences: Any, *limits: Any) -> Iterator[Any]:
                for tokens in sentences:
                    yield numpy.full((3, len(tokens), 12), 1e5, dtype="float32")

        with pytest.raises(ConfigurationError, match=r"line 1: a vector holds 100000.*65504"):
            embed(Large(embedder), dtype="float16")
        assert os.listdir() == ["in.txt"]


def test_vectors_that_are_written_are_not_kept(embedder: ElmoEmbedder, folder: Path) -> None:
    class Watching(Unused):
        def embed_sentences(self, sentences: Any, *limits: Any) -> Iterator[Any]:
            given: List[Any] = []
            for tokens in sentences:
                assert sum(reference() is not None for reference in given[-100:]) <= 1
                layers = numpy.zeros((3, len(tokens), 12), dtype="float32")
                given.append(weakref.ref(layers))
                yield layers

    Path("in.txt").write_text("a\n" * 500)
    assert embed(Watching(embedder)).num_sentences == 500
    assert len(read()) == 501
