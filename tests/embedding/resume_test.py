"""Runs that are interrupted, in every format."""

import errno
import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import h5py
import numpy
import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm import BiLM
from elmo_plugin.embedding import ElmoEmbedder
from elmo_plugin.embedding.embed_file import EmbeddedFile, embed_file
from elmo_plugin.embedding.layer_choice import layer_choice
from elmo_plugin.embedding.output import embedding_output
from elmo_plugin.embedding.sentence_file import SentenceFile
from tests.conftest import BiLMFiles

FORMATS = ["hdf5", "npy", "parquet"]
LINES = [f"{'w' * (number % 5 + 1)} " * (number % 4 + 1) + str(number) for number in range(40)]
NUM_TOKENS = sum(len(line.split()) for line in LINES)


class QuickEmbedder:
    """Gives each token the vectors that its spelling says, and counts sentences."""

    def __init__(self, bilm: BiLM) -> None:
        self.elmo_bilm = bilm
        self.embedded: List[List[str]] = []

    def embed_sentences(self, sentences: Any, *limits: Any) -> Iterator[numpy.ndarray]:
        for tokens in sentences:
            self.embedded.append(tokens)
            numbers = [sum(token.encode()) for token in tokens]
            layers = numpy.arange(3, dtype="float32")[:, None, None]
            yield layers + numpy.tile(numpy.array(numbers, dtype="float32")[:, None], (3, 1, 12))


@pytest.fixture
def embedder(bilm_files: BiLMFiles) -> QuickEmbedder:
    return QuickEmbedder(BiLM.from_files(*bilm_files))


@pytest.fixture(params=FORMATS)
def format(request: Any) -> str:
    if request.param == "parquet":
        pytest.importorskip("pyarrow")
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tests run, with sentences in `in.txt`; checkpoints are after some seven sentences."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "in.txt").write_text("\n".join(LINES) + "\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(embedding_output, "BYTES_PER_CHECKPOINT", 3000)
    return folder


def embed(embedder: Any, format: str, source: Any = "in.txt", **arguments: Any) -> EmbeddedFile:
    with SentenceFile(source) as file:
        return embed_file(embedder, file, "out", layer_choice("all"), format=format, **arguments)


def read(format: str) -> Dict[int, Any]:
    """The vectors of each line, `(3, num_tokens, 12)`; each sentence must be there once."""
    if format == "hdf5":
        with h5py.File("out") as file:
            index = json.loads(file["sentence_to_index"][0])
            assert index == {line: str(number) for number, line in enumerate(LINES)}
            return {int(key): file[key][...] for key in file if key != "sentence_to_index"}
    if format == "npy":
        vectors, offsets, lines = (
            numpy.load(f"out/{name}.npy") for name in ("vectors", "offsets", "lines")
        )
        assert lines.tolist() == list(range(len(LINES)))
        assert len(Path("out/sentences.jsonl").read_text().splitlines()) == len(LINES)
        return {line: vectors[offsets[line] : offsets[line + 1]].swapaxes(0, 1) for line in lines}
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table("out").to_pylist()
    assert [row["line"] for row in rows] == list(range(len(LINES)))
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


class Killer:
    """Ends the process, as by kill -9, at the n-th operation that changes files."""

    def __init__(self, at: int) -> None:
        self.num_left = at

    def install(self) -> None:
        # In a child process, so that nothing has to be put back.
        for module, name in [
            (os, "pwrite"),
            (os, "fsync"),
            (os, "replace"),
            (os, "rename"),
            (os, "unlink"),
            (os, "ftruncate"),
            (os, "mkdir"),
            (numpy, "ascontiguousarray"),  # before each array is appended
        ]:
            setattr(module, name, self.counted(getattr(module, name)))

    def counted(self, function: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.num_left -= 1
            if self.num_left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **keywords)

        return call


def run_and_kill(embedder: Any, format: str, at: int, **arguments: Any) -> bool:
    """Whether it was killed before it was done."""
    child = os.fork()
    if child == 0:
        try:
            Killer(at).install()
            embed(embedder, format, **arguments)
            os._exit(0)
        except BaseException:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def num_kept() -> int:
    """How many sentences an interrupted run has left."""
    progress = Path("out.partial/progress.json")
    if not progress.exists():
        return 0
    return int(json.loads(progress.read_text())["progress"]["num_sentences"])


def test_a_run_can_be_killed_at_any_moment(
    embedder: QuickEmbedder, folder: Path, format: str
) -> None:
    at, num_killed, kept = 1, 0, set()
    while run_and_kill(embedder, format, at):
        num_killed += 1
        kept.add(num_kept())
        if at % 2:  # killed a second time, while it goes on
            run_and_kill(embedder, format, at, resume=True)
        assert embed(embedder, format, resume=True) == EmbeddedFile(len(LINES), NUM_TOKENS)
        check_output(format)
        shutil.rmtree("out") if os.path.isdir("out") else os.remove("out")
        at += 1 if at < 20 else 5
    assert num_killed >= 20
    assert len(kept) > 3
    check_output(format)


def test_what_is_kept_is_not_embedded_again(
    embedder: QuickEmbedder, folder: Path, format: str
) -> None:
    at = 1
    while (kept := num_kept()) == 0:
        assert run_and_kill(embedder, format, at)
        at += 1
    assert kept < len(LINES)
    embed(embedder, format, resume=True)
    assert embedder.embedded == [line.split() for line in LINES[kept:]]


class Interrupted(QuickEmbedder):
    """Is interrupted after ten sentences."""

    def embed_sentences(self, sentences: Any, *limits: Any) -> Iterator[numpy.ndarray]:
        for number, layers in enumerate(super().embed_sentences(sentences)):
            if number == 10:
                raise KeyboardInterrupt
            yield layers


def test_an_interrupt_loses_nothing(
    embedder: QuickEmbedder, folder: Path, format: str, caplog: Any
) -> None:
    with pytest.raises(KeyboardInterrupt):
        embed(Interrupted(embedder.elmo_bilm), format)
    assert sorted(os.listdir()) == ["in.txt", "out.partial"]
    assert "10 sentences are kept in out.partial, to be gone on with by --resume" in caplog.text
    embed(embedder, format, resume=True)
    assert len(embedder.embedded) == len(LINES) - 10
    check_output(format)


def test_a_full_disk_keeps_what_was_written(
    embedder: QuickEmbedder, folder: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        fsync = os.fsync

        def full(handle: int) -> None:
            if num_kept():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fsync(handle)

        patch.setattr(os, "fsync", full)
        match = r"out: cannot be written after \d+ sentences \(No space left .*\); \d+ sentences are kept"
        with pytest.raises(OSError, match=match) as raised:
            embed(embedder, format)
    assert raised.value.errno == errno.ENOSPC
    assert sorted(os.listdir()) == ["in.txt", "out.partial"]
    embed(embedder, format, resume=True)
    check_output(format)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_pipe_and_a_compressed_file_are_gone_on_with(
    embedder: QuickEmbedder, folder: Path, format: str, compressed: bool
) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    content = Path("in.txt").read_bytes()
    if compressed:
        Path("in.txt.gz").write_bytes(gzip.compress(content))
    with pytest.raises(KeyboardInterrupt):
        embed(Interrupted(embedder.elmo_bilm), format, "in.txt.gz" if compressed else Pipe(content))
    embed(embedder, format, "in.txt.gz" if compressed else Pipe(content), resume=True)
    if compressed:
        os.remove("in.txt.gz")
    check_output(format)


class TestOutputThatIsThere:
    def test_an_interrupted_run_is_not_thrown_away_by_chance(
        self, embedder: QuickEmbedder, folder: Path, format: str
    ) -> None:
        with pytest.raises(KeyboardInterrupt):
            embed(Interrupted(embedder.elmo_bilm), format)
        match = (
            r"out\.partial holds 10 sentences of a run that was interrupted.*--resume.*--overwrite"
        )
        with pytest.raises(ConfigurationError, match=match):
            embed(embedder, format)
        embed(embedder, format, overwrite=True)
        assert len(embedder.embedded) == len(LINES)
        check_output(format)

    def test_complete_output_is_left_as_it_is(
        self, embedder: QuickEmbedder, folder: Path, format: str
    ) -> None:
        embed(embedder, format, resume=True)  # begins where there is nothing
        embedder.embedded = []
        assert embed(embedder, format, resume=True) == EmbeddedFile(len(LINES), NUM_TOKENS)
        assert embedder.embedded == []
        check_output(format)
        with pytest.raises(
            ConfigurationError, match=r"out was made with other settings: dtype was"
        ):
            embed(embedder, format, resume=True, dtype="float16")
        Path("in.txt").write_text("other\n")
        with pytest.raises(
            ConfigurationError, match="out is complete, and was made of another input"
        ):
            embed(embedder, format, resume=True)

    def test_it_is_replaced_on_request(
        self, embedder: QuickEmbedder, folder: Path, format: str
    ) -> None:
        embed(embedder, format, dtype="float16")
        with pytest.raises(ConfigurationError, match=r"output: out exists.*--overwrite"):
            embed(embedder, format)
        embed(embedder, format, overwrite=True)
        check_output(format)

    def test_what_another_program_wrote_is_not_gone_on_with(
        self, embedder: QuickEmbedder, folder: Path
    ) -> None:
        Path("out").write_text("HDF5?")
        with pytest.raises(
            ConfigurationError, match="out exists and was not written by this command"
        ):
            embed(embedder, "hdf5", resume=True)
        assert Path("out").read_text() == "HDF5?"


class TestAnotherRun:
    @pytest.fixture
    def interrupted(self, embedder: QuickEmbedder, folder: Path, format: str) -> None:
        with pytest.raises(KeyboardInterrupt):
            embed(Interrupted(embedder.elmo_bilm), format)

    @pytest.mark.parametrize(
        "arguments, match",
        [
            ({"dtype": "float16"}, "dtype was 'float32', now 'float16'"),
            ({"forget_sentences": True}, "sentence_to_index was True, now False"),
            ({"use_sentence_keys": True}, "keys was 'line numbers', now 'sentences'"),
        ],
    )
    def test_other_settings_are_named(
        self, embedder: QuickEmbedder, interrupted: None, format: str, arguments: Any, match: str
    ) -> None:
        if format != "hdf5" and "dtype" not in arguments:
            pytest.skip("keys are for HDF5")
        with pytest.raises(ConfigurationError, match=f"out.partial was made with.*{match}"):
            embed(embedder, format, resume=True, **arguments)

    def test_other_formats_layers_tokens_and_models_are_named(
        self, embedder: QuickEmbedder, interrupted: None, format: str, bilm_files: BiLMFiles
    ) -> None:
        other = FORMATS[FORMATS.index(format) - 1]
        with pytest.raises(ConfigurationError, match=f"format was '{format}', now '{other}'"):
            embed(embedder, other, resume=True)
        with (
            SentenceFile("in.txt", tokenizer="spacy") as source,
            pytest.raises(ConfigurationError, match=r"layers was 'all', now 'top'.*tokenizer was"),
        ):
            embed_file(embedder, source, "out", layer_choice("top"), format=format, resume=True)
        with h5py.File(bilm_files[1], "r+") as file:
            file["CNN_proj/b_proj"][0] += 1
        with pytest.raises(ConfigurationError, match=r"settings: biLM was '\w+', now '\w+'\."):
            embed(QuickEmbedder(BiLM.from_files(*bilm_files)), format, resume=True)

    @pytest.mark.parametrize("content", ["other\n" + "\n".join(LINES[1:]), "\n".join(LINES[:9])])
    @pytest.mark.parametrize("is_pipe", [False, True])
    def test_another_input_is_refused(
        self, embedder: QuickEmbedder, interrupted: None, format: str, content: str, is_pipe: bool
    ) -> None:
        class Pipe(io.BytesIO):
            def seekable(self) -> bool:
                return False

        Path("in.txt").write_text(content)
        source = Pipe(content.encode()) if is_pipe else "in.txt"
        with pytest.raises(ConfigurationError, match=r"written \(10 sentences\) are not the first"):
            embed(embedder, format, source, resume=True)
        assert embedder.embedded == []
        # What there is can still be gone on with.
        Path("in.txt").write_text("\n".join(LINES))
        embed(embedder, format, resume=True)
        check_output(format)

    def test_more_input_at_the_end_is_embedded(
        self, embedder: QuickEmbedder, interrupted: None, format: str
    ) -> None:
        Path("in.txt").write_text("\n".join([*LINES, "more"]))
        assert embed(embedder, format, resume=True).num_sentences == len(LINES) + 1


def test_settings_that_cannot_be_gone_on_with(
    embedder: QuickEmbedder, folder: Path, bilm_files: BiLMFiles
) -> None:
    with pytest.raises(ConfigurationError, match="--overwrite starts anew and --resume goes on"):
        embed(embedder, "hdf5", resume=True, overwrite=True)
    stateful = QuickEmbedder(BiLM.from_files(*bilm_files, stateful=True))
    with pytest.raises(ConfigurationError, match="states of a stateful biLM were lost"):
        embed(stateful, "hdf5", resume=True)
    with pytest.raises(KeyboardInterrupt):
        embed(Interrupted(stateful.elmo_bilm), "hdf5")
    assert os.listdir() == ["in.txt"]


def test_damaged_progress_is_named(embedder: QuickEmbedder, folder: Path) -> None:
    Path("out.partial").mkdir()
    for content in ("{", "[]", '{"progress": {}, "settings": {}}'):
        Path("out.partial/progress.json").write_text(content)
        for resume in (False, True):
            with pytest.raises(
                ConfigurationError, match=r"progress\.json: cannot be read.*--overwrite"
            ):
                embed(embedder, "hdf5", resume=resume)
    embed(embedder, "hdf5", overwrite=True)
    check_output("hdf5")


def test_two_processes_do_not_write_one_output(
    embedder: QuickEmbedder, folder: Path, format: str
) -> None:
    class Nested(QuickEmbedder):
        def embed_sentences(self, sentences: Any, *limits: Any) -> Iterator[numpy.ndarray]:
            child = os.fork()
            if child == 0:
                try:
                    embed(embedder, format)
                except ConfigurationError as error:
                    os._exit(7 if "another process is writing out" in str(error) else 1)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            yield from super().embed_sentences(sentences)

    embed(Nested(embedder.elmo_bilm), format)
    check_output(format)


def test_the_command_goes_on_after_kill_9(folder: Path, bilm_files: BiLMFiles) -> None:
    options_file, weight_file = bilm_files
    command = [
        *("elmo", "in.txt", "out.hdf5", "--all", "--batch-size", "4"),
        *("--include-package", "elmo_plugin"),
        *("--options-file", str(options_file), "--weight-file", str(weight_file), "--resume"),
    ]
    program = textwrap.dedent(
        f"""
        import sys, time
        from allennlp.__main__ import run
        from elmo_plugin.embedding import elmo_embedder
        from elmo_plugin.embedding.output import embedding_output
        embedding_output.BYTES_PER_CHECKPOINT = 3000
        embed = elmo_embedder.ElmoEmbedder._embed
        def slow(self, sentences):
            time.sleep(0.05)
            return embed(self, sentences)
        elmo_embedder.ElmoEmbedder._embed = slow
        elmo_embedder.BATCHES_AHEAD = 1
        sys.argv = ["allennlp", *{command!r}]
        run()
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    progress = Path("out.hdf5.partial/progress.json")
    deadline = time.monotonic() + 120
    while not progress.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.kill()
    assert process.wait() == -signal.SIGKILL, process.communicate()[0]
    assert not Path("out.hdf5").exists()
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr
    assert f"out.hdf5: {len(LINES)} sentences, {NUM_TOKENS} tokens" in outcome.stdout
    Path("out.hdf5").rename("out")
    vectors = read("hdf5")
    embedder = ElmoEmbedder(*bilm_files)
    for index, line in enumerate(LINES):
        numpy.testing.assert_allclose(
            vectors[index], embedder.embed_sentence(line.split()), atol=1e-5
        )
