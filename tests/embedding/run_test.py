"""Runs that embed text to files: outputs, errors, full disks, and interrupted runs."""

import errno
import gzip
import io
import os
import resource
import shutil
import signal
import sys
import threading
import weakref
from collections import namedtuple
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import h5py
import numpy
import pytest
import torch
from allennlp.modules.elmo import Elmo as AllenNlpElmo
from tqdm import tqdm

from elmo_plugin.bilm import FrozenBiLM, batch_to_ids
from elmo_plugin.embedding import ElmoEmbedder, formats, partial_output, run
from elmo_plugin.embedding.formats import FORMATS
from elmo_plugin.embedding.layers import layer_choice
from elmo_plugin.embedding.partial_output import PartialOutput, WriteError
from elmo_plugin.embedding.run import EmbeddedFile, EmbeddingRun, OutputOptions
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.embedding.sentences import InputOptions
from elmo_plugin.errors import ConfigurationError
from tests.conftest import BiLMFiles

LINES = [f"{'w' * (number % 5 + 1)} " * (number % 4 + 1) + str(number) for number in range(40)]
NUM_TOKENS = sum(len(line.split()) for line in LINES)
# Documented: in any batch (`ElmoEmbedder`), and beside AllenNLP's (docs/from_allennlp.md).
ACCURACY = 1e-5
SENTENCES_PER_PART, NUM_PARTS = 7, 6
# Distance of the bytes of a part that are damaged in turn. For all of them: ELMO_DAMAGE_STEP=1 pytest ...
DAMAGE_STEP = int(os.environ.get("ELMO_DAMAGE_STEP", 97))


class QuickEmbedder:
    """Make vectors from the bytes of each token, without a biLM, and record the sentences."""

    def __init__(
        self, bilm: FrozenBiLM, interrupt_at: Optional[int] = None, stateful: bool = False
    ) -> None:
        self.elmo_bilm = bilm
        self.stateful = stateful
        self.embedded: List[List[str]] = []
        self._interrupt_at = interrupt_at

    def embed_sentences(self, sentences: Any, *limits: Any) -> Iterator[numpy.ndarray]:
        for tokens in sentences:
            if len(self.embedded) == self._interrupt_at:
                raise KeyboardInterrupt
            self.embedded.append(tokens)
            numbers = [sum(token.encode()) for token in tokens]
            layers = numpy.arange(3, dtype="float32")[:, None, None]
            yield layers + numpy.tile(numpy.array(numbers, dtype="float32")[:, None], (3, 1, 12))


@pytest.fixture
def bilm(bilm_files: BiLMFiles) -> FrozenBiLM:
    return FrozenBiLM.from_files(*bilm_files)


@pytest.fixture
def embedder(bilm: FrozenBiLM) -> QuickEmbedder:
    return QuickEmbedder(bilm)


@pytest.fixture
def interrupted(bilm: FrozenBiLM) -> QuickEmbedder:
    """An embedder that is interrupted in the third of `NUM_PARTS` parts."""
    return QuickEmbedder(bilm, interrupt_at=17)


@pytest.fixture(autouse=True)
def own_lock_of_progress_bars() -> Iterator[None]:
    # tqdm's own is shared with forked processes: one that is killed while it holds it blocks all others.
    shared = tqdm.get_lock()
    tqdm.set_lock(threading.RLock())
    yield
    tqdm.set_lock(shared)


@pytest.fixture(params=FORMATS)
def format(request: Any) -> str:
    if request.param == "parquet":
        pytest.importorskip("pyarrow")
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a test, with `LINES` in `in.txt`."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "in.txt").write_text("\n".join(LINES) + "\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(run, "SENTENCES_PER_PART", SENTENCES_PER_PART)
    return folder


def embed(embedder: Any, format: str = "hdf5", source: Any = "in.txt", **options: Any) -> Any:
    layers = layer_choice(options.pop("layers", "all"), options.pop("pool", None))
    groups = [
        group(**{name: options.pop(name) for name in names if name in options})
        for group, names in (
            (InputOptions, ("tokenizer", "skip_blank")),
            (BatchOptions, ("batch_size", "batch_tokens")),
        )
    ]
    output_options = OutputOptions(format=format, **options)
    embedding_run = EmbeddingRun(source, "out", groups[0], output_options, groups[1])
    return embedding_run.embed(embedder, layers)


def read(format: str = "hdf5") -> Dict[int, Any]:
    """Read the vectors of each line; each sentence must be in the output once."""
    if format == "hdf5":
        with h5py.File("out") as file:
            return {int(key): file[key][...] for key in file if key != "sentence_to_index"}
    if format == "npy":
        vectors, offsets, lines = (
            numpy.load(f"out/{name}.npy") for name in ("vectors", "offsets", "lines")
        )
        assert len(Path("out/sentences.jsonl").read_text().splitlines()) == len(lines)
        return {line: vectors[offsets[line] : offsets[line + 1]].swapaxes(0, 1) for line in lines}
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table("out").to_pylist()
    return {row["line"]: numpy.array([row[f"layer_{layer}"] for layer in range(3)]) for row in rows}


def check_output(format: str) -> None:
    vectors = read(format)
    assert sorted(vectors) == list(range(len(LINES)))
    for index, line in enumerate(LINES):
        numbers = [sum(token.encode()) for token in line.split()]
        assert vectors[index].shape == (3, len(numbers), 12)
        for layer in range(3):
            assert (vectors[index][layer] == layer + numpy.array(numbers)[:, None]).all()
    assert sorted(os.listdir()) == ["in.txt", "out"]


def contents(path: str = "out") -> Dict[str, bytes]:
    """Read the bytes of a file, or of all files in a folder and its subfolders."""
    files = [Path(path), *sorted(Path(path).rglob("*"))]
    return {str(file): file.read_bytes() for file in files if file.is_file()}


def remove(path: str = "out") -> None:
    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


class Pipe(io.BytesIO):
    """A file that can be read only once."""

    def seekable(self) -> bool:
        return False


class TestVectors:
    """Outputs with a biLM."""

    LINES = ["The naïve 日本語 cat .", "Hi", "a b a b a b a", "x" * 10_000 + " y", "Hi"]

    def test_each_line_has_the_layers_that_allennlp_computes(
        self, bilm: FrozenBiLM, folder: Path, bilm_files: BiLMFiles
    ) -> None:
        Path("in.txt").write_text("\n".join(self.LINES) + "\n", encoding="utf-8")
        num_tokens = sum(len(line.split()) for line in self.LINES)
        embedded = embed(ElmoEmbedder.from_bilm(bilm))
        assert embedded == EmbeddedFile(len(self.LINES), num_tokens)
        datasets = read()
        for index, line in enumerate(self.LINES):
            # A new one for each line, as it carries states.
            allennlp = AllenNlpElmo(*bilm_files, num_output_representations=1)
            with torch.no_grad():
                layers = allennlp._elmo_lstm(batch_to_ids([line.split()]))["activations"]
            expected = numpy.stack([layer[0, 1:-1].numpy() for layer in layers])
            numpy.testing.assert_allclose(datasets[index], expected, rtol=0, atol=ACCURACY)

    def test_states_are_carried_across_parts(self, bilm_files: BiLMFiles, folder: Path) -> None:
        embedder = ElmoEmbedder(*bilm_files, stateful=True)
        expected = list(
            ElmoEmbedder(*bilm_files, stateful=True).embed_sentences(
                [line.split() for line in LINES], batch_size=3
            )
        )
        embed(embedder, batch_size=3)
        for index, vectors in read().items():
            numpy.testing.assert_allclose(vectors, expected[index], rtol=0, atol=ACCURACY)


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize(
    "layers, most",
    [
        ("all", SENTENCES_PER_PART + 1),
        # Of other choices only the chosen vectors are kept: the layers of one sentence are in use, and the
        # embedder that watches holds those of the sentence before.
        ("top", 2),
        ("average", 2),
    ],
)
def test_at_most_the_vectors_of_one_part_are_in_memory(
    bilm_files: BiLMFiles, folder: Path, format: str, stateful: bool, layers: str, most: int
) -> None:
    class Watching(QuickEmbedder):
        most = 0

        def embed_sentences(self, sentences: Any, *limits: Any) -> Iterator[Any]:
            given: List[Any] = []
            for layers in super().embed_sentences(sentences):
                num_kept = sum(reference() is not None for reference in given)
                self.most = max(self.most, num_kept)
                given.append(weakref.ref(layers))
                yield layers

    Path("in.txt").write_text("a\n" * 100)
    watching = Watching(FrozenBiLM.from_files(*bilm_files), stateful=stateful)
    embed(watching, format, layers=layers)
    assert 0 < watching.most <= most


class Unused:
    """An embedder that must not be used, because the error comes before work starts."""

    stateful = False

    def __init__(self, bilm: FrozenBiLM) -> None:
        self.elmo_bilm = bilm

    def embed_sentences(self, sentences: Any, *limits: Any) -> Iterator[Any]:
        yield from ()
        raise AssertionError("work was started")


class TestBadInput:
    @pytest.fixture
    def unused(self, bilm: FrozenBiLM, folder: Path) -> Unused:
        return Unused(bilm)

    @pytest.mark.parametrize(
        "options, match",
        [
            ({"source": "blank.txt"}, r"2 lines \(2, 4\) are blank"),
            (
                {"source": "slash.txt", "use_sentence_keys": True},
                "line 2: '/' cannot be a key in HDF5",
            ),
            ({"format": "npy", "forget_sentences": True}, "the format is npy. Leave them out"),
            ({"format": "parquet", "use_sentence_keys": True}, "the format is parquet. Leave"),
            ({"source": ["in.txt", "blank.txt"], "format": "npy"}, "found 2 files, but npy holds"),
        ],
    )
    def test_it_is_an_error_before_work_starts(
        self, unused: Unused, options: Dict[str, Any], match: str
    ) -> None:
        Path("blank.txt").write_text("a\n\nb\n\n")
        Path("slash.txt").write_text("a\n/\n")
        before = contents(".")
        with pytest.raises(ConfigurationError, match=match):
            embed(unused, **options)
        assert contents(".") == before

    def test_the_output_is_replaced_on_request_only(self, unused: Unused) -> None:
        Path("out").write_text("previous")
        with pytest.raises(ConfigurationError, match=r"output: out exists.*--overwrite"):
            embed(unused)
        assert Path("out").read_text() == "previous"

    def test_the_input_is_not_overwritten(self, unused: Unused) -> None:
        os.link("in.txt", "out")
        with pytest.raises(ConfigurationError, match=r"output: out is the input"):
            embed(unused, overwrite=True)

    def test_a_folder_that_another_program_made_is_not_replaced(self, unused: Unused) -> None:
        Path("out").mkdir()
        for format, options, match in [
            ("hdf5", {"overwrite": True}, "out is a folder, expected a file"),
            ("npy", {}, r"out exists.*--overwrite"),
            ("npy", {"overwrite": True}, "out is a folder that was not written"),
            ("npy", {"resume": True}, "out is a folder that was not written"),
        ]:
            with pytest.raises(ConfigurationError, match=match):
                embed(unused, format, **options)

    def test_a_folder_that_cannot_be_written_is_an_error(
        self, unused: Unused, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(ConfigurationError, match="no folder no to write out"):
            EmbeddingRun("in.txt", "no/out.hdf5")
        # Not by permissions: the superuser, as whom tests may run, writes anywhere.
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        with pytest.raises(ConfigurationError, match="nothing may be written in the folder"):
            embed(unused)

    def test_a_full_disk_is_an_error_before_work_starts(
        self, unused: Unused, format: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usage = namedtuple("usage", "free")
        num_copies = 1 if format == "parquet" else 2  # parts and what is made of them
        needed = NUM_TOKENS * 3 * 12 * 4 * num_copies
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(needed - 1))
        with pytest.raises(ConfigurationError, match=r"out needs at least .* are free.*--top"):
            embed(unused, format)
        with pytest.raises(AssertionError, match="work was started"):
            embed(unused, format, dtype="float16")

    def test_without_pyarrow_the_error_says_how_to_install_it(
        self, unused: Unused, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        with pytest.raises(ConfigurationError, match=r'pip install "elmo-plugin\[parquet\]"'):
            embed(unused, "parquet")

    def test_a_vector_beyond_float16_is_an_error(self, embedder: Any, folder: Path) -> None:
        Path("in.txt").write_text("a\n" + "\U0010ffff" * 100)
        with pytest.raises(ConfigurationError, match=r"in\.txt, line 2: a vector holds .*65504"):
            embed(embedder, dtype="float16")
        assert os.listdir() == ["in.txt"]

    def test_an_input_that_changes_during_the_run_is_an_error(
        self, bilm: FrozenBiLM, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Changing(QuickEmbedder):
            def embed_sentences(self, sentences: Any, *limits: Any) -> Iterator[numpy.ndarray]:
                if not self.embedded:
                    Path("in.txt").write_text("a b\n" * 9_999 + "c d\n")
                return super().embed_sentences(sentences)

        monkeypatch.setattr(run, "SENTENCES_PER_PART", 5_000)
        Path("in.txt").write_text("a b\n" * 10_000)  # longer than what is read ahead
        with pytest.raises(ConfigurationError, match=r"in\.txt: 10,000 sentences.*changed during"):
            embed(Changing(bilm), "npy")
        assert not os.path.exists("out")


def fails_at(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, number: int, code: int
) -> None:
    """Let the n-th call of `module.name`, and all after it, raise an `OSError`."""
    function = getattr(module, name)
    calls: List[int] = []

    def failing(*arguments: Any, **keywords: Any) -> Any:
        calls.append(1)
        if len(calls) >= number:
            raise OSError(code, os.strerror(code))
        return function(*arguments, **keywords)

    monkeypatch.setattr(module, name, failing)


@contextmanager
def file_size_limit(num_bytes: int) -> Iterator[None]:
    """As `ulimit -f`: longer files cannot be written."""
    previous = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, previous[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, previous)


class TestFullDisk:
    @pytest.mark.parametrize("number", [1, 2, 3, 4, 7, 13, 14])
    def test_parts_are_kept_wherever_writing_fails(
        self,
        embedder: QuickEmbedder,
        folder: Path,
        format: str,
        number: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """
        The first call is for the settings of the run, the next twelve are for parts and their descriptions,
        the fourteenth is for the output.
        """
        num_kept = max(number - 2, 0) // 2
        outcome = f"{num_kept} parts are kept in" if num_kept else "no part is kept"
        match = rf"out: cannot be written \(No space left .*\); {outcome}.*Make room on the"
        with monkeypatch.context() as patch:
            fails_at(patch, os, "fsync", number, errno.ENOSPC)
            with pytest.raises(WriteError, match=match) as raised:
                embed(embedder, format)
        assert raised.value.errno == errno.ENOSPC
        assert sorted(os.listdir()) == ["in.txt"] + ["out.partial"] * (num_kept > 0)
        embedder.embedded = []
        embed(embedder, format, resume=True)
        assert len(embedder.embedded) == max(len(LINES) - SENTENCES_PER_PART * num_kept, 0)
        check_output(format)

    # Of a description, of the vectors of a part, and of the output.
    @pytest.mark.parametrize("num_bytes", [100, 2_000, 9_000])
    def test_parts_are_kept_if_files_are_too_large(
        self, embedder: QuickEmbedder, folder: Path, format: str, num_bytes: int
    ) -> None:
        embed(embedder, format)
        expected = contents()
        remove()
        num_kept = NUM_PARTS if num_bytes == 9_000 else 0
        if format == "parquet" and num_kept:
            with file_size_limit(num_bytes):
                embed(embedder, format)  # no file is larger than a part
        else:
            outcome = f"{num_kept} parts are kept" if num_kept else "no part is kept"
            match = rf"out: cannot be written \(File too large\); {outcome}.*ulimit -f"
            with file_size_limit(num_bytes), pytest.raises(WriteError, match=match):
                embed(embedder, format)
            assert sorted(os.listdir()) == ["in.txt"] + ["out.partial"] * (num_kept > 0)
            embed(embedder, format, resume=True)
        assert contents() == expected
        check_output(format)

    @pytest.mark.parametrize(
        "code, advice",
        [
            (errno.EDQUOT, "Make room on the disk"),
            (errno.EACCES, "Change the permissions"),
            (errno.EROFS, "Change the permissions"),
            (errno.EIO, "if this disk is damaged or not connected"),
        ],
    )
    def test_the_advice_fits_the_failure(
        self,
        embedder: QuickEmbedder,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        code: int,
        advice: str,
    ) -> None:
        fails_at(monkeypatch, os, "fsync", 3, code)
        with pytest.raises(WriteError, match=rf"\({os.strerror(code)}\).*{advice}"):
            embed(embedder)

    def test_a_file_to_be_replaced_is_kept_if_writing_fails(
        self, embedder: QuickEmbedder, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path("out").write_text("previous")
        with monkeypatch.context() as patch:
            fails_at(patch, os, "fsync", 4, errno.ENOSPC)
            with pytest.raises(WriteError):
                embed(embedder, overwrite=True)
        assert Path("out").read_text() == "previous"
        embed(embedder, resume=True)  # which was allowed to replace it
        check_output("hdf5")


class Killer:
    """Send a signal to this process at the n-th operation that changes files or makes vectors."""

    def __init__(self, at: int, number: int) -> None:
        self.num_left = at
        self.signal = number

    def install(self) -> None:
        # In a child process, so that nothing has to be put back.
        for module, name in [
            *((os, name) for name in ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir")),
            (numpy, "save"),
            (numpy, "concatenate"),
            (formats, "_add_dataset"),
            (formats, "_synced_file"),
            (partial_output, "_remove"),
        ]:
            setattr(module, name, self.counted(getattr(module, name)))

    def counted(self, function: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.num_left -= 1
            if self.num_left == 0:
                os.kill(os.getpid(), self.signal)
            return function(*arguments, **keywords)

        return call


def run_and_kill(embedder: Any, format: str, at: int, number: int, **options: Any) -> bool:
    """Run in a child process, and return whether it was interrupted before it was complete."""
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115
            Killer(at, number).install()
            embed(embedder, format, **options)
            os._exit(0)
        except KeyboardInterrupt:
            os._exit(130)
        except BaseException:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    outcome = os.waitstatus_to_exitcode(status)
    assert outcome in (0, 130, -signal.SIGKILL), outcome
    return outcome != 0


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_run_can_be_interrupted_at_any_moment(
    embedder: QuickEmbedder, folder: Path, format: str, number: int
) -> None:
    embed(embedder, format)
    expected = contents()
    remove()
    Path("other.hdf5").write_text("of another program")
    at, num_interrupted, kept = 1, 0, set()
    while run_and_kill(embedder, format, at, number):
        num_interrupted += 1
        kept.add(PartialOutput("out").parts_folder.num_parts)
        if at % 2:  # interrupted a second time, while it is resumed
            run_and_kill(embedder, format, 1 + at // 2, number, resume=True)
        assert embed(embedder, format, resume=True) == EmbeddedFile(len(LINES), NUM_TOKENS)
        assert contents() == expected
        assert sorted(os.listdir()) == ["in.txt", "other.hdf5", "out"]
        remove()
        at += 1 if at < 12 else 7
    assert num_interrupted >= 10
    assert len(kept) > 3


def damaged(content: bytes, position: int) -> bytes:
    """Change a byte, each position in another way."""
    change = 1 << position % 8
    return content[:position] + bytes([content[position] ^ change]) + content[position + 1 :]


def restore(files: Dict[str, bytes]) -> None:
    for name, content in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content)


class TestDamagedParts:
    def test_they_are_computed_again(
        self, bilm: FrozenBiLM, interrupted: Any, folder: Path, format: str, caplog: Any
    ) -> None:
        embed(QuickEmbedder(bilm), format)
        expected = contents()
        remove()
        with pytest.raises(KeyboardInterrupt):
            embed(interrupted, format)
        files = contents("out.partial")
        for name in [name for name in files if "part-" in name]:
            header, size = 256, len(files[name])
            positions = {
                *range(0, header, 1 if DAMAGE_STEP == 1 else 7),
                *range(0, size, DAMAGE_STEP),
                *range(size - 64, size, 1 if DAMAGE_STEP == 1 else 5),  # the end of a footer
            }
            for position in sorted(positions):
                if 0 <= position < size:
                    restore({**files, name: damaged(files[name], position)})
                    caplog.clear()
                    embedder = QuickEmbedder(bilm)
                    embed(embedder, format, resume=True)
                    assert contents() == expected
                    assert len(embedder.embedded) == len(LINES) - SENTENCES_PER_PART
                    assert caplog.text.count("is damaged: it is computed again") == 1
                    remove()

    def test_so_are_parts_that_are_cut_short_or_missing(
        self, bilm: FrozenBiLM, interrupted: Any, folder: Path, format: str, caplog: Any
    ) -> None:
        embed(QuickEmbedder(bilm), format)
        expected = contents()
        remove()
        with pytest.raises(KeyboardInterrupt):
            embed(interrupted, format)
        files = contents("out.partial")
        for name in [name for name in files if "part-" in name]:
            for content in (b"", files[name][: len(files[name]) // 2], None):
                restore({**files, name: content or b""})
                if content is None:
                    os.remove(name)
                embed(QuickEmbedder(bilm), format, resume=True)
                assert contents() == expected
                remove()

    def test_damaged_settings_never_change_the_output(
        self, bilm: FrozenBiLM, interrupted: Any, folder: Path
    ) -> None:
        embed(QuickEmbedder(bilm))
        expected = contents()
        remove()
        with pytest.raises(KeyboardInterrupt):
            embed(interrupted)
        files = contents("out.partial")
        name = "out.partial/run.json"
        for position in range(0, len(files[name]), 5):
            restore({**files, name: damaged(files[name], position)})
            try:
                embed(QuickEmbedder(bilm, stateful=True), resume=True)
            except ConfigurationError as error:
                assert "--overwrite" in str(error)
            else:
                assert contents() == expected
                remove()


class TestResume:
    def test_finished_parts_are_not_embedded_again(
        self, embedder: Any, interrupted: Any, folder: Path, format: str
    ) -> None:
        advice = "^2 parts are kept in out.partial: continue with --resume$"
        with pytest.raises(KeyboardInterrupt, match=advice):
            embed(interrupted, format)
        assert sorted(os.listdir()) == ["in.txt", "out.partial"]
        embed(embedder, format, resume=True)
        assert embedder.embedded == [line.split() for line in LINES[2 * SENTENCES_PER_PART :]]
        check_output(format)

    def test_it_starts_without_parts_and_does_nothing_with_a_complete_output(
        self, embedder: QuickEmbedder, folder: Path, format: str
    ) -> None:
        embed(embedder, format, resume=True)
        expected = contents()
        embedder.embedded = []
        for source in ("in.txt", Pipe(Path("in.txt").read_bytes())):
            embedded = embed(embedder, format, source, resume=True)
            assert embedded == EmbeddedFile(len(LINES), NUM_TOKENS)
        assert embedder.embedded == []
        with pytest.raises(
            ConfigurationError, match=r"out was made with other settings: dtype was"
        ):
            embed(embedder, format, resume=True, dtype="float16")
        Path("in.txt").write_text("other\n")
        for source in ("in.txt", Pipe(b"other\n")):
            with pytest.raises(ConfigurationError, match="out is complete, and was made from ano"):
                embed(embedder, format, source, resume=True)
        assert contents() == expected and sorted(os.listdir()) == ["in.txt", "out"]

    @pytest.mark.parametrize("source", ["in.txt", Pipe(b"a\n")])
    def test_a_file_of_another_program_is_never_replaced(
        self, bilm: FrozenBiLM, folder: Path, source: Any
    ) -> None:
        with h5py.File("out", "w") as file:
            file["precious"] = [1]
        expected = contents()
        with pytest.raises(
            ConfigurationError, match="out exists and was not written by this command"
        ):
            embed(Unused(bilm), source=source, resume=True)
        assert contents() == expected and sorted(os.listdir()) == ["in.txt", "out"]

    def test_a_file_written_by_another_program_during_the_run_is_not_replaced(
        self, embedder: QuickEmbedder, interrupted: QuickEmbedder, folder: Path, format: str
    ) -> None:
        with pytest.raises(KeyboardInterrupt):
            embed(interrupted, format)
        Path("out").write_text("precious")
        with pytest.raises(ConfigurationError, match=r"out (exists and was not|is a file)"):
            embed(embedder, format, resume=True)
        assert Path("out").read_text() == "precious"
        Path("out").unlink()
        embed(embedder, format, resume=True)
        check_output(format)

    def test_an_interrupted_run_is_not_removed_by_accident(
        self, embedder: QuickEmbedder, interrupted: QuickEmbedder, folder: Path, format: str
    ) -> None:
        with pytest.raises(KeyboardInterrupt):
            embed(interrupted, format)
        match = r"out\.partial holds 2 parts of a run .*--resume.*--overwrite"
        with pytest.raises(ConfigurationError, match=match):
            embed(embedder, format)
        embed(embedder, format, overwrite=True)
        assert len(embedder.embedded) == len(LINES)
        check_output(format)

    def test_a_run_that_was_killed_before_its_first_part_may_still_replace_the_output(
        self, embedder: QuickEmbedder, folder: Path
    ) -> None:
        class Killed(QuickEmbedder):
            def embed_sentences(self, sentences: Any, *limits: Any) -> Iterator[numpy.ndarray]:
                os.kill(os.getpid(), signal.SIGKILL)
                return iter(())

        Path("out").write_text("previous")
        killed = Killed(embedder.elmo_bilm)
        assert run_and_kill(killed, "hdf5", sys.maxsize, signal.SIGKILL, overwrite=True)
        assert PartialOutput("out").parts_folder.num_parts == 0
        assert Path("out").read_text() == "previous"
        embed(embedder, resume=True)
        check_output("hdf5")

    @pytest.mark.parametrize("kind", ["pipe", "gzip"])
    def test_a_pipe_and_a_compressed_file_are_read_again(
        self, embedder: Any, interrupted: Any, folder: Path, format: str, kind: str
    ) -> None:
        content = Path("in.txt").read_bytes()
        Path("in.txt.gz").write_bytes(gzip.compress(content))
        with pytest.raises(KeyboardInterrupt):
            embed(interrupted, format, "in.txt.gz" if kind == "gzip" else Pipe(content))
        embed(embedder, format, "in.txt.gz" if kind == "gzip" else Pipe(content), resume=True)
        os.remove("in.txt.gz")
        check_output(format)

    def test_other_settings_are_named(
        self, embedder: Any, interrupted: Any, folder: Path, bilm_files: BiLMFiles
    ) -> None:
        with pytest.raises(KeyboardInterrupt):
            embed(interrupted)
        for options, match in [
            ({"dtype": "float16"}, "dtype was 'float32', now 'float16'"),
            ({"format": "npy"}, "format was 'hdf5', now 'npy'"),
            ({"layers": "top"}, "layers was 'all', now 'top'"),
            ({"pool": "max"}, "pool was None, now 'max'"),
            ({"tokenizer": "spacy"}, "tokenizer was 'whitespace', now 'spacy'"),
        ]:
            with pytest.raises(ConfigurationError, match=f"out.partial was made with.*{match}"):
                embed(embedder, resume=True, **options)
        with h5py.File(bilm_files[1], "r+") as file:
            file["CNN_proj/b_proj"][0] += 1
        with pytest.raises(ConfigurationError, match=r"settings: biLM was '\w+', now '\w+'\."):
            embed(QuickEmbedder(FrozenBiLM.from_files(*bilm_files)), resume=True)
        # Parts do not depend on keys.
        embed(embedder, resume=True, forget_sentences=True)
        check_output("hdf5")

    @pytest.mark.parametrize("content", ["other\n" + "\n".join(LINES[1:]), "\n".join(LINES[:9])])
    @pytest.mark.parametrize("is_pipe", [False, True])
    def test_another_input_is_an_error(
        self, embedder: Any, interrupted: Any, folder: Path, content: str, is_pipe: bool
    ) -> None:
        source: Any = Pipe(Path("in.txt").read_bytes()) if is_pipe else "in.txt"
        with pytest.raises(KeyboardInterrupt):
            embed(interrupted, source=source)
        Path("in.txt").write_text(content)
        source = Pipe(content.encode()) if is_pipe else "in.txt"
        with pytest.raises(ConfigurationError, match=r"another input: lines \d+ to \d+ of \S+ are"):
            embed(embedder, source=source, resume=True)
        # The parts can still be resumed with the first input.
        Path("in.txt").write_text("\n".join(LINES))
        source = Pipe(Path("in.txt").read_bytes()) if is_pipe else "in.txt"
        embed(embedder, source=source, resume=True)
        check_output("hdf5")

    def test_lines_added_to_the_input_are_embedded(
        self, embedder: QuickEmbedder, interrupted: QuickEmbedder, folder: Path, format: str
    ) -> None:
        with pytest.raises(KeyboardInterrupt):
            embed(interrupted, format)
        Path("in.txt").write_text("\n".join([*LINES, "more"]))
        assert embed(embedder, format, resume=True).num_sentences == len(LINES) + 1

    def test_a_stateful_run_cannot_be_resumed_and_keeps_no_parts(
        self, folder: Path, bilm_files: BiLMFiles
    ) -> None:
        bilm = FrozenBiLM.from_files(*bilm_files)
        with pytest.raises(ConfigurationError, match="states of a stateful biLM were lost"):
            embed(QuickEmbedder(bilm, stateful=True), resume=True)
        with pytest.raises(KeyboardInterrupt):
            embed(QuickEmbedder(bilm, interrupt_at=17, stateful=True))
        assert os.listdir() == ["in.txt"]

    def test_two_processes_do_not_write_one_output(
        self, embedder: QuickEmbedder, folder: Path, format: str
    ) -> None:
        class Nested(QuickEmbedder):
            def embed_sentences(self, sentences: Any, *limits: Any) -> Iterator[numpy.ndarray]:
                sentences = list(sentences)
                if sentences and not self.embedded:
                    child = os.fork()
                    if child == 0:
                        try:
                            embed(embedder, format)
                        except ConfigurationError as error:
                            os._exit(7 if "another process is writing" in str(error) else 1)
                        os._exit(0)
                    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
                yield from super().embed_sentences(sentences)

        embed(Nested(embedder.elmo_bilm), format)
        check_output(format)


def test_the_cost_of_a_part_does_not_grow_with_the_output(
    embedder: QuickEmbedder, folder: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost is the number of bytes written for a part."""
    sizes: List[int] = []
    replace = os.replace

    def noted(source: Any, target: Any) -> None:
        if "part-" in str(target) and "json" not in str(target):
            sizes.append(sum(path.stat().st_size for path in Path(source).parent.glob(".part-*")))
        replace(source, target)

    monkeypatch.setattr(os, "replace", noted)
    Path("in.txt").write_text("a b\n" * 700)
    embed(embedder, format)
    assert len(sizes) == 100
    assert max(sizes) < 1.2 * min(sizes)
