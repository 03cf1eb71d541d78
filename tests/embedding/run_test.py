"""Runs that embed text to files: outputs, errors, full disks, and interrupted runs."""

import errno
import io
import itertools
import json
import os
import shutil
import sys
import weakref
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List

import h5py
import numpy
import pytest
import torch

from elmo_plugin import Elmo, ElmoEmbedder, FrozenBiLM
from elmo_plugin.embedding.engines import EngineOptions
from elmo_plugin.embedding.formats import FORMATS, OutputOptions
from elmo_plugin.embedding.layers import LayerChoice, layer_choice
from elmo_plugin.embedding.parts import PartialOutput
from elmo_plugin.embedding.run import EmbeddedFile, EmbeddingRun
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.embedding.sentences import InputOptions
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.fail_safe import FailSafeFile
from tests.closeness import assert_accurate
from tests.commands.conftest import folder
from tests.conftest import BiLMFiles, write_parquet

__all__ = ["folder"]  # a fixture

LINES = [f"{'w' * (number % 5 + 1)} " * (number % 4 + 1) + str(number) for number in range(40)]
NUM_TOKENS = sum(len(line.split()) for line in LINES)
SENTENCES_PER_PART, NUM_PARTS = 7, 6
# Number of bytes of a file that are damaged in turn. For nearly all: ELMO_DAMAGED_BYTES=100000 pytest ...
NUM_DAMAGED = int(os.environ.get("ELMO_DAMAGED_BYTES", 5))


class QuickEmbedder(ElmoEmbedder):
    """
    Make vectors from the bytes of each token, without a biLM, and record the sentences. Before the sentence
    at an index call `action`.
    """

    def __init__(
        self,
        bilm: FrozenBiLM,
        action: Callable[[], Any] = lambda: None,
        at: int = 0,
        stateful: bool = False,
    ) -> None:
        self._set_up(bilm, stateful)
        self.embedded: List[List[str]] = []
        self._action, self._at = action, at

    def embed_sentences(self, sentences: Any, *arguments: Any) -> Iterator[numpy.ndarray]:
        for tokens in sentences:
            if len(self.embedded) == self._at:
                self._action()
            self.embedded.append(tokens)
            yield quick_layers(tokens)


def interrupt() -> None:
    raise KeyboardInterrupt


def must_not_be_used() -> None:
    raise AssertionError("work was started")


def quick_layers(tokens: List[str]) -> numpy.ndarray:
    """Layers `(3, num_tokens, 12)` of whole numbers, so that outputs can be compared byte for byte."""
    numbers = numpy.array([sum(token.encode()) for token in tokens], dtype="float32")
    layers = numpy.arange(3, dtype="float32")
    return numpy.tile((layers[:, None] + numbers)[:, :, None], 12)


@pytest.fixture
def embedder(bilm: FrozenBiLM) -> QuickEmbedder:
    return QuickEmbedder(bilm)


@pytest.fixture(params=FORMATS)
def format(request: Any) -> str:
    if request.param == "parquet":
        pytest.importorskip("pyarrow")
    return str(request.param)


@pytest.fixture
def interrupted(bilm: FrozenBiLM, folder: Path, request: Any) -> None:
    """A run was interrupted in the third of `NUM_PARTS` parts."""
    format = request.getfixturevalue("format") if "format" in request.fixturenames else "hdf5"
    with pytest.raises(KeyboardInterrupt, match=r"^2 parts are kept in out\.partial: cont"):
        embed(QuickEmbedder(bilm, interrupt, at=17), format)
    assert sorted(os.listdir()) == ["in.txt", "out.partial"]


def embed(embedder: Any, format: str = "hdf5", source: Any = "in.txt", **options: Any) -> Any:
    """Run with options of any class; `layers` are a choice or its name."""

    def given(options_class: Any) -> Any:
        names = [field.name for field in fields(options_class) if field.name in options]
        return options_class(**{name: options.pop(name) for name in names})

    layers = options.pop("layers", "all")
    if isinstance(layers, str):
        layers = layer_choice(layers, options.pop("pool", None))
    size = options.pop("sentences_per_part", SENTENCES_PER_PART)
    input_options, batches, engine = map(given, (InputOptions, BatchOptions, EngineOptions))
    output = options.pop("output", "out")
    output_options = OutputOptions(format=format, **options)
    run = EmbeddingRun(source, output, input_options, output_options, batches, engine, size)
    return run.embed(embedder, layers)


def contents(path: str = "out") -> Dict[str, bytes]:
    """Read the bytes of a file, or of all files in a folder and its subfolders."""
    files = [Path(path), *sorted(Path(path).rglob("*"))]
    return {str(file): file.read_bytes() for file in files if file.is_file()}


def remove() -> None:
    shutil.rmtree("out") if os.path.isdir("out") else os.remove("out")


def check_output(embedder: Any, format: str = "hdf5", source: Any = "in.txt") -> None:
    """Check that the output is that of a run without interrupts, and that nothing else is left."""
    assert sorted(os.listdir()) == ["in.txt", "out"]
    found = contents()
    remove()
    embed(embedder, format, source)
    assert contents() == found


@pytest.mark.parametrize("sentences_per_part", [SENTENCES_PER_PART, 2])
def test_states_are_carried_across_parts(
    sentences_per_part: int, bilm_files: BiLMFiles, folder: Path
) -> None:
    embedder = ElmoEmbedder(*bilm_files, stateful=True)
    sentences = [line.split() for line in LINES]
    expected = list(embedder.embed_sentences(sentences, batch_size=3))
    embedder.reset_states()
    embed(embedder, batch_size=3, sentences_per_part=sentences_per_part)
    with h5py.File("out") as file:
        for index, vectors in enumerate(expected):
            assert_accurate(file[str(index)][...], vectors)


# Of choices of layers only the chosen vectors are kept: the layers of one sentence are in use, and the
# embedder that watches holds those of the sentence before.
@pytest.mark.parametrize(
    "layers, bytes_per_part, most",
    [
        ("all", 2**27, SENTENCES_PER_PART + 1),
        ("all", 5 * 3 * 12 * 4, 5),  # of five tokens
        ("top", 2**27, 2),
        ("average", 2**27, 2),
    ],
)
def test_at_most_the_vectors_of_one_part_are_in_memory(
    bilm: FrozenBiLM,
    folder: Path,
    format: str,
    layers: str,
    bytes_per_part: int,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
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
    monkeypatch.setattr("elmo_plugin.embedding.run.BYTES_PER_PART", bytes_per_part)
    watching = Watching(bilm)
    embed(watching, format, layers=layers)
    assert 0 < watching.most <= most


class TestBadInput:
    @pytest.fixture
    def unused(self, bilm: FrozenBiLM, folder: Path) -> QuickEmbedder:
        """An embedder for errors that come before work starts."""
        return QuickEmbedder(bilm, must_not_be_used)

    @pytest.mark.parametrize(
        "output, options, match",
        [
            (None, {"source": "blank.txt"}, r"blank\.txt: line 2 is blank"),
            (
                None,
                {"source": ["blank.txt", "in.txt", "bad.txt"], "format": "parquet"},
                r"^blank\.txt: line 2 is blank.*\nbad\.txt, line 1: found the bytes",
            ),
            (None, {"source": ["in.txt", "blank.txt"], "format": "npy"}, "found 2 files, but npy"),
            (Path.touch, {}, r"output: out exists.*--overwrite"),
            (Path.touch, {"resume": True}, "out exists and was not written by this command"),
            (lambda path: h5py.File(path, "w").close(), {"resume": True}, "out exists and was not"),
            (lambda path: os.link("in.txt", path), {"overwrite": True}, "output: out is the input"),
            (Path.mkdir, {"overwrite": True}, "out is a folder, expected a file"),
            (os.mkfifo, {"overwrite": True}, "out is a device or a pipe"),
            (
                os.mkfifo,
                {"format": "npy", "overwrite": True},
                "out is a file, expected a new folder",
            ),
            (
                None,
                {"source": os.fsdecode(b"\xff.txt")},
                r"the file name '\\udcff.txt' is not UTF-8",
            ),
            (Path.mkdir, {"format": "npy"}, "out exists.*--overwrite"),
            (Path.mkdir, {"format": "npy", "overwrite": True}, "out exists and was not written"),
            (Path.mkdir, {"format": "npy", "resume": True}, "out exists and was not written"),
        ],
    )
    def test_it_is_an_error_before_work_starts(
        self, unused: QuickEmbedder, output: Any, options: Dict[str, Any], match: str
    ) -> None:
        pytest.importorskip("pyarrow")
        Path("blank.txt").write_text("a\n\nb\n\n")
        Path("bad.txt").write_bytes(b"\xff\n")
        Path(os.fsdecode(b"\xff.txt")).write_text("a\n")
        if output is not None:
            output(Path("out"))
        before = contents(".")
        with pytest.raises(ConfigurationError, match=match):
            embed(unused, **options)
        assert contents(".") == before

    def test_a_full_disk(
        self,
        unused: QuickEmbedder,
        format: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        needed = NUM_TOKENS * 3 * 12 * 4 * 2  # parts and what is made of them
        error, message = ConfigurationError, r"out needs at least .* are free.*--top"
        if format == "parquet":  # compressed parts, which are the output: it may still fit
            needed //= 2
            error, message = AssertionError, "work was started"
        usage = SimpleNamespace(free=needed - 1)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
        with pytest.raises(error, match=message):
            embed(unused, format)
        assert ("may still fit" in caplog.text) == (format == "parquet")
        with pytest.raises(AssertionError, match="work was started"):
            embed(unused, format, dtype="float16")

    @pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
    def test_what_an_interrupted_merge_left_takes_no_space(
        self,
        make: Callable[[Path], None],
        interrupted: None,
        embedder: QuickEmbedder,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        left = Path("out.partial", "product")
        make(left)
        monkeypatch.setattr(
            shutil, "disk_usage", lambda path: SimpleNamespace(free=0 if left.exists() else 10**9)
        )
        assert embed(embedder, resume=True).num_sentences == len(LINES)

    @pytest.mark.parametrize(
        "library, options, extra",
        [("pyarrow", {"format": "parquet"}, "parquet"), ("ray", {"engine": "ray"}, "ray")],
    )
    def test_without_a_library_the_error_says_how_to_install_it(
        self,
        library: str,
        options: Any,
        extra: str,
        unused: QuickEmbedder,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(ConfigurationError, match=rf'pip install "elmo-plugin\[{extra}\]"'):
            embed(unused, **options)


@pytest.mark.parametrize("layers", ["all", LayerChoice("negative", numpy.negative)])
def test_a_vector_beyond_float16_is_an_error(layers: Any, embedder: Any, folder: Path) -> None:
    Path("in.txt").write_text("a\n" + "\U0010ffff" * 100)
    with pytest.raises(ConfigurationError, match=r"in\.txt, line 2: a vector holds .*65504"):
        embed(embedder, dtype="float16", layers=layers)
    assert os.listdir() == ["in.txt"]


def test_of_a_file_that_changes_during_the_run_no_part_is_kept_and_of_others_all_are(
    bilm: FrozenBiLM, folder: Path
) -> None:
    pytest.importorskip("pyarrow")

    def change() -> None:
        Path("b.txt").write_text("a b\n" * 9_999 + "c d\n")

    for name in ("a.txt", "b.txt"):
        Path(name).write_text("a b\n" * 10_000)  # longer than what is read ahead
    files, options = ["a.txt", "b.txt"], {"sentences_per_part": 5_000}
    match = r"^b\.txt: was changed during the run: the 10,000 .*Give --resume"
    with pytest.raises(ConfigurationError, match=match):
        embed(QuickEmbedder(bilm, change), "parquet", source=files, **options)
    assert not os.path.exists("out")
    embedder = QuickEmbedder(bilm)
    embed(embedder, "parquet", source=files, resume=True, **options)
    assert len(embedder.embedded) == 10_000 and embedder.embedded[-1] == ["c", "d"]


def fails_at(monkeypatch: pytest.MonkeyPatch, number: int, code: int) -> None:
    """Let the n-th call of `os.fsync`, and all after it, raise an `OSError`."""
    function = os.fsync
    calls = itertools.count(1)

    def failing(handle: int) -> None:
        if next(calls) >= number:
            raise OSError(code, os.strerror(code))
        function(handle)

    monkeypatch.setattr(os, "fsync", failing)


class TestFullDisk:
    # The first call is for the settings of the run, the next twelve are for parts and their descriptions,
    # the fourteenth is for the output.
    @pytest.mark.parametrize("number", [1, 2, 3, 7, 14])
    def test_parts_are_kept_wherever_writing_fails(
        self, embedder: Any, folder: Path, format: str, number: int, monkeypatch: Any
    ) -> None:
        num_kept = max(number - 2, 0) // 2
        kept = {0: "no part is", 1: "1 part is"}.get(num_kept, f"{num_kept} parts are")
        outcome = f"{kept} kept"
        match = rf"out: cannot be written \(No space left .*\); {outcome}.*Make room on the"
        with monkeypatch.context() as patch:
            fails_at(patch, number, errno.ENOSPC)
            with pytest.raises(OSError, match=match) as raised:
                embed(embedder, format)
        assert raised.value.errno == errno.ENOSPC
        assert sorted(os.listdir()) == ["in.txt"] + ["out.partial"] * (num_kept > 0)
        embedder.embedded = []
        embed(embedder, format, resume=True)
        assert len(embedder.embedded) == max(len(LINES) - SENTENCES_PER_PART * num_kept, 0)
        check_output(embedder, format)

    def test_a_file_to_be_replaced_is_kept_if_writing_fails(
        self, embedder: QuickEmbedder, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path("out").write_text("previous")
        match = rf"\({os.strerror(errno.EIO)}\).* on a disk that is connected and intact"
        with monkeypatch.context() as patch:
            fails_at(patch, 4, errno.EIO)
            with pytest.raises(OSError, match=match):
                embed(embedder, overwrite=True)
        assert Path("out").read_text() == "previous"
        embed(embedder, resume=True)  # which was allowed to replace it
        check_output(embedder)


def test_the_output_is_synced_before_the_parts_are_removed(
    embedder: QuickEmbedder, folder: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: List[str] = []

    def recorded(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            calls.append(name)
            return function(*arguments, **keywords)

        monkeypatch.setattr(owner, name, call)

    recorded(os, "fsync")
    recorded(Path, "replace")
    recorded(PartialOutput, "remove")
    embed(embedder, format)
    # The content of the output, before it gets its name; the folder, so that the name is on the disk; that
    # nothing is left to replace.
    assert calls[-5:] == ["fsync", "replace", "fsync", "fsync", "remove"]


@pytest.mark.usefixtures("interrupted")
def test_the_same_text_under_another_name_is_resumed(embedder: QuickEmbedder, format: str) -> None:
    Path("in.txt").rename("moved.txt")
    if format == "parquet":  # which names its sources
        with pytest.raises(ConfigurationError, match=r"of in\.txt, .* are not those of moved\.txt"):
            embed(embedder, format, "moved.txt", resume=True)
        embed(embedder, format, "moved.txt", overwrite=True)
        Path("moved.txt").rename("in.txt")
        with pytest.raises(ConfigurationError, match=r"out is complete, .* other names of files"):
            embed(embedder, format, "in.txt", resume=True)
        return
    embed(embedder, format, "moved.txt", resume=True)
    assert len(embedder.embedded) < len(LINES)
    found = contents()
    remove()
    embed(embedder, format, "moved.txt")
    assert contents() == found


def test_a_call_of_the_class_is_resumed(bilm: FrozenBiLM, folder: Path) -> None:
    Path("in.txt").write_text("a b\n" * 10_000)
    with pytest.raises(KeyboardInterrupt, match="parts are kept"):
        QuickEmbedder(bilm, interrupt, at=9_000).embed_file("in.txt", "out")
    embedder = QuickEmbedder(bilm)
    embedder.embed_file("in.txt", "out", resume=True)
    assert len(embedder.embedded) < 10_000
    embedder.embed_file("in.txt", "out")
    assert len(embedder.embedded) > 10_000


def test_a_run_that_was_interrupted_after_it_replaced_an_output_is_resumed(
    embedder: QuickEmbedder,
    bilm: FrozenBiLM,
    folder: Path,
    format: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embed(embedder, format, dtype="float16")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(PartialOutput, "remove", lambda self: interrupt())
        embed(embedder, format, overwrite=True)
    embed(QuickEmbedder(bilm, must_not_be_used), format, resume=True)
    check_output(embedder, format)


def test_an_interrupt_while_parts_are_removed_says_that_the_output_is_complete(
    embedder: QuickEmbedder, folder: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command would be refused, and with --overwrite it would embed all again."""
    rmtree = shutil.rmtree

    def interrupt_once(*unused: Any) -> None:
        monkeypatch.setattr(shutil, "rmtree", rmtree)
        interrupt()

    monkeypatch.setattr(shutil, "rmtree", interrupt_once)
    with pytest.raises(KeyboardInterrupt, match=r"out is complete$"):
        embed(embedder, format)
    check_output(embedder, format)


def test_what_a_link_points_to_is_replaced(
    embedder: QuickEmbedder, folder: Path, format: str
) -> None:
    embed(embedder, format)
    expected = contents()
    Path("disk").mkdir()
    Path("out").rename("disk/vectors")
    os.symlink("disk/vectors", "out")
    for ending in ("", "/") if Path("out").is_dir() else ("",):
        embed(embedder, format, overwrite=True, output=f"out{ending}")
        assert Path("out").is_symlink() and os.listdir("disk") == ["vectors"]
        assert contents() == expected


@pytest.mark.parametrize("stateful", [False, True])
def test_sentences_are_checked_before_parts_are_removed(
    stateful: bool, interrupted: None, bilm: FrozenBiLM
) -> None:
    Path("in.txt").write_text("a\n\nb\n")
    with pytest.raises(ConfigurationError, match="line 2 is blank"):
        embed(QuickEmbedder(bilm, stateful=stateful), overwrite=True)
    assert PartialOutput("out").parts_folder.num_parts == 2


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "failed"), KeyboardInterrupt()])
def test_an_output_is_kept_until_another_one_is_in_its_place(
    bilm: FrozenBiLM,
    folder: Path,
    format: str,
    error: BaseException,
    stateful: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: Any) -> None:
        raise error

    embed(QuickEmbedder(bilm), format)
    expected = contents()
    embedder = QuickEmbedder(bilm, stateful=stateful)
    with monkeypatch.context() as patch, pytest.raises(type(error)):
        patch.setattr(Path, "replace", fail)
        embed(embedder, format, overwrite=True)
    assert contents() == expected
    embed(embedder, format, overwrite=True)
    assert sorted(os.listdir()) == ["in.txt", "out"]


@pytest.mark.parametrize("name", ["write", "truncate"])
def test_an_interrupt_while_hdf5_writes_is_no_other_error(
    name: str, embedder: QuickEmbedder, folder: Path
) -> None:
    def interrupt_call(frame: Any, event: str, function: Any) -> None:
        is_called = event == "c_call" and function.__name__ == name
        if is_called and isinstance(function.__self__, FailSafeFile):
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(interrupt_call)
    try:
        with pytest.raises(KeyboardInterrupt, match=f"{NUM_PARTS} parts are kept"):
            embed(embedder)
    finally:
        sys.setprofile(None)
    embed(embedder, resume=True)
    check_output(embedder)


def damaged(content: bytes, position: int) -> bytes:
    """Change a byte, each position in another way."""
    change = 1 << position % 8
    return content[:position] + bytes([content[position] ^ change]) + content[position + 1 :]


def restore(files: Dict[str, bytes]) -> None:
    for name, content in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content)


class TestDamagedParts:
    @pytest.fixture
    def expected(self, bilm: FrozenBiLM, folder: Path, format: str) -> Dict[str, bytes]:
        embed(QuickEmbedder(bilm), format)
        expected = contents()
        remove()
        return expected

    # The fixtures in this order: a complete run, then an interrupted one.
    def test_they_are_computed_again(
        self, expected: Any, interrupted: Any, bilm: FrozenBiLM, format: str, caplog: Any
    ) -> None:
        files = contents("out.partial")
        names = [name for name in files if "part-" in name]
        for name, other in zip(names, names[1:] + names[:1]):
            size = len(files[name])
            positions = [*range(0, size, size // NUM_DAMAGED + 1), size - 1]
            changes = [damaged(files[name], position) for position in positions]
            for content in (*changes, b"", files[name][: size // 2], files[other], None):
                restore({**files, name: content or b""})
                if content is None:
                    os.remove(name)
                caplog.clear()
                embedder = QuickEmbedder(bilm)
                embed(embedder, format, resume=True)
                assert contents() == expected
                assert len(embedder.embedded) == len(LINES) - SENTENCES_PER_PART
                # Without its description, a file is no part.
                is_known = content is not None or "descriptions" not in name
                assert caplog.text.count("is damaged: it is computed again") == is_known
                remove()

    @pytest.mark.parametrize("format", ["hdf5"])
    def test_damaged_settings_never_change_the_output(
        self, expected: Any, interrupted: Any, bilm: FrozenBiLM, format: str
    ) -> None:
        files = contents("out.partial")
        name = "out.partial/run.json"
        for position in range(0, len(files[name]), 5):
            restore({**files, name: damaged(files[name], position)})
            try:
                embed(QuickEmbedder(bilm), format, resume=True)
            except ConfigurationError as error:
                assert "--overwrite" in str(error)
            else:
                assert contents() == expected
                remove()


class TestResume:
    def test_it_starts_without_parts_and_does_nothing_with_a_complete_output(
        self, embedder: QuickEmbedder, folder: Path, format: str
    ) -> None:
        embed(embedder, format, resume=True)
        expected = contents()
        embedder.embedded = []
        with open("in.txt", "rb") as file:
            for source in ("in.txt", file):
                embedded = embed(embedder, format, source, resume=True)
                assert embedded == EmbeddedFile(len(LINES), NUM_TOKENS)
        assert embedder.embedded == []
        with pytest.raises(ConfigurationError, match="out was made with other settings: dtype was"):
            embed(embedder, format, resume=True, dtype="float16")
        Path("in.txt").write_text("other\n")
        for source in ("in.txt", io.BytesIO(b"other\n")):
            with pytest.raises(ConfigurationError, match="out is complete, and was made from ano"):
                embed(embedder, format, source, resume=True)
        assert contents() == expected and sorted(os.listdir()) == ["in.txt", "out"]

    def test_an_interrupted_run_is_not_removed_by_accident(
        self, embedder: QuickEmbedder, interrupted: None, format: str
    ) -> None:
        match = r"out\.partial holds 2 parts of a run .*--resume.*--overwrite"
        with pytest.raises(ConfigurationError, match=match):
            embed(embedder, format)
        embed(embedder, format, overwrite=True)
        assert len(embedder.embedded) == len(LINES)
        check_output(embedder, format)

    def test_a_pipe_must_be_given_again(
        self, embedder: Any, bilm: FrozenBiLM, folder: Path
    ) -> None:
        content = Path("in.txt").read_bytes()
        with pytest.raises(KeyboardInterrupt, match="2 parts are kept"):
            embed(QuickEmbedder(bilm, interrupt, at=17), source=io.BytesIO(content))
        embed(embedder, source=io.BytesIO(content), resume=True)
        assert embedder.embedded == [line.split() for line in LINES[2 * SENTENCES_PER_PART :]]
        check_output(embedder, source=io.BytesIO(content))

    def test_other_settings_are_named(
        self, embedder: Any, interrupted: None, bilm_files: BiLMFiles
    ) -> None:
        for options, match in [
            ({"dtype": "float16"}, "dtype was 'float32', now 'float16'"),
            ({"format": "npy"}, "format was 'hdf5', now 'npy'"),
            ({"layers": "top"}, "layers was 'all', now 'top'"),
            ({"pool": "max"}, "pool was None, now 'max'"),
            (
                {"tokenizer": "spacy"},
                r"tokenizer was 'whitespace', now 'spacy'; spaCy was None, now '\d",
            ),
        ]:
            with pytest.raises(ConfigurationError, match=f"out.partial was made with.*{match}"):
                embed(embedder, resume=True, **options)
        other_kernel = FrozenBiLM.from_files(*bilm_files, kernel="reference")
        low = FrozenBiLM.from_files(*bilm_files, kernel="reference", precision="bfloat16")
        match = r"settings: precision was 'float32', now 'bfloat16'\."
        with pytest.raises(ConfigurationError, match=match):
            embed(QuickEmbedder(low), resume=True)
        with h5py.File(bilm_files[1], "r+") as file:
            file["CNN_proj/b_proj"][0] += 1
        with pytest.raises(ConfigurationError, match=r"settings: biLM was '\w+', now '\w+'\."):
            embed(QuickEmbedder(FrozenBiLM.from_files(*bilm_files)), resume=True)
        embed(QuickEmbedder(other_kernel), resume=True, batch_size=3)
        check_output(embedder)

    def test_what_only_the_output_depends_on_can_be_changed(
        self, embedder: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("elmo_plugin.embedding.formats.MAX_INDEX_BYTES", 10)
            with pytest.raises(
                ConfigurationError, match=r"at most 10, .*--forget-sentences .*with --resume"
            ):
                embed(embedder)
            embedder.embedded.clear()
            embed(embedder, resume=True, forget_sentences=True)
        assert embedder.embedded == []
        with h5py.File("out") as file:
            assert set(file) == set(map(str, range(len(LINES))))

    def test_another_copy_of_a_model_is_taken_for_the_same(
        self, bilm_files: BiLMFiles, folder: Path
    ) -> None:
        """Its options file has other settings of the training, and its keys in another order."""
        embed(QuickEmbedder(FrozenBiLM.from_files(*bilm_files)))
        options = json.loads(Path(bilm_files.options_file).read_text())
        Path("options.json").write_text(
            json.dumps({"n_epochs": 10, **dict(reversed(options.items()))})
        )
        copy = FrozenBiLM.from_files("options.json", bilm_files.weight_file)
        assert copy.options.extra["n_epochs"] == 10
        embed(QuickEmbedder(copy), resume=True)

    def test_models_without_checksums_are_not_taken_for_the_same(
        self, bilm_files: BiLMFiles, folder: Path
    ) -> None:
        def embedder(factor: float) -> QuickEmbedder:
            elmo = Elmo(*bilm_files)
            with torch.no_grad():
                elmo.bilm.get_parameter("forward_layers.0.projection").mul_(factor)
            assert elmo.snapshot is not None
            return QuickEmbedder(elmo.snapshot)

        embed(embedder(1.0))
        with pytest.raises(ConfigurationError, match=r"settings: biLM was '\w+', now '\w+'\."):
            embed(embedder(2.0), resume=True)

    @pytest.mark.parametrize("content", ["other\n" + "\n".join(LINES[1:]), "\n".join(LINES[:9])])
    def test_another_input_is_an_error(
        self, embedder: Any, interrupted: None, content: str
    ) -> None:
        Path("in.txt").rename("moved")
        Path("in.txt").write_text(content)
        match = "another input: 7 sentences of in.txt, from line (1|8) on, are not"
        with pytest.raises(ConfigurationError, match=match):
            embed(embedder, resume=True)
        # The parts can still be resumed with the first input.
        Path("in.txt").unlink()
        Path("moved").rename("in.txt")
        embed(embedder, resume=True)
        check_output(embedder)

    def test_tokens_of_other_boundaries_are_another_input(
        self, embedder: QuickEmbedder, folder: Path
    ) -> None:
        write_parquet("in.parquet", sentence=[["New York", "City"]])
        embed(embedder, source="in.parquet")
        embed(embedder, source="in.parquet", resume=True)
        write_parquet("in.parquet", sentence=[["New", "York City"]])
        with pytest.raises(ConfigurationError, match="is complete, and was made from another inp"):
            embed(embedder, source="in.parquet", resume=True)

    def test_a_stateful_run_cannot_be_resumed_and_keeps_no_parts(
        self, bilm: FrozenBiLM, folder: Path
    ) -> None:
        with pytest.raises(ConfigurationError, match="states of a stateful biLM were lost"):
            embed(QuickEmbedder(bilm, stateful=True), resume=True)
        with pytest.raises(KeyboardInterrupt):
            embed(QuickEmbedder(bilm, interrupt, at=17, stateful=True), batch_size=3)
        assert os.listdir() == ["in.txt"]

    def test_two_processes_do_not_write_one_output(
        self, embedder: QuickEmbedder, folder: Path, format: str
    ) -> None:
        def run_beside() -> None:
            child = os.fork()
            if child == 0:
                try:
                    embed(embedder, format)
                except ConfigurationError as error:
                    os._exit(7 if "another process is writing" in str(error) else 1)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

        embed(QuickEmbedder(embedder.elmo_bilm, run_beside), format)
        check_output(embedder, format)
