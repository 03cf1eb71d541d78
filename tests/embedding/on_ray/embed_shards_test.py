import errno
import gzip
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import namedtuple
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy
import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin import BiLM, ElmoEmbedder
from elmo_plugin.embedding.embed_file import EmbeddedFile
from elmo_plugin.embedding.layer_choice import LayerChoice, layer_choice
from elmo_plugin.embedding.on_ray import embed_shards as embed_shards_module
from elmo_plugin.embedding.on_ray import ray_session as ray_session_module
from elmo_plugin.embedding.on_ray.embed_shards import embed_shards
from elmo_plugin.embedding.on_ray.ray_session import ray_session
from elmo_plugin.embedding.on_ray.ray_workers import RayWorkers
from elmo_plugin.embedding.on_ray.shared_bilm import SharedBiLM
from elmo_plugin.embedding.on_ray.worker_embedder import WorkerSettings
from elmo_plugin.embedding.output.about_file import read_about
from elmo_plugin.embedding.output.guarded_file import WriteError
from tests.conftest import BiLMFiles

pyarrow = pytest.importorskip("pyarrow", reason="pyarrow (elmo_plugin[parquet]) is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is built without Parquet")

# Of three kinds of files; a blank line in the first, which is skipped.
LINES = {
    "a.txt": [" ".join(["word"] * (number % 6 + 1)) + f" no {number}" for number in range(30)],
    "b.txt.gz": [f"naïve {number} 日本語 ." for number in range(20)],
    "c.parquet": [f"token {number}" for number in range(10)],
}
LINES["a.txt"][11] = " "
NUM_SENTENCES = 59
NUM_TOKENS = sum(len(line.split()) for lines in LINES.values() for line in lines)


@pytest.fixture(scope="module")
def bilm(tiny_files: BiLMFiles) -> BiLM:
    return BiLM.from_files(*tiny_files)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tests run, with the folder `texts`."""
    texts = tmp_path / "texts"
    texts.mkdir()
    text = {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in LINES.items()}
    (texts / "a.txt").write_bytes(text["a.txt"])
    (texts / "b.txt.gz").write_bytes(gzip.compress(text["b.txt.gz"]))
    tokens = [line.split() for line in LINES["c.parquet"]]
    parquet.write_table(pyarrow.table({"sentence": tokens}), texts / "c.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def embed(bilm: BiLM, layers: Any = "top", inputs: Any = "texts", **arguments: Any) -> EmbeddedFile:
    choice = layer_choice(layers) if isinstance(layers, str) else layers
    values = {"skip_blank": True, "sentences_per_part": 7, **arguments}
    return embed_shards(inputs, "out", bilm, choice, **values)


def check_rows(bilm: BiLM, output: str = "out") -> None:
    """Each sentence is there once, in order, with the vectors of its top layer that one process gives."""
    embedder = ElmoEmbedder.from_bilm(bilm)
    rows = parquet.read_table(output).to_pylist()
    expected = [
        (f"texts/{name}", number, line)
        for name, lines in LINES.items()
        for number, line in enumerate(lines)
        if line.strip()
    ]
    assert [(row["source"], row["line"], row["sentence"]) for row in rows] == expected
    for row in rows:
        assert row["tokens"] == row["sentence"].split()
        numpy.testing.assert_allclose(
            numpy.array(row["vectors"]), embedder.embed_sentence(row["tokens"])[-1], atol=1e-5
        )


def parts_of(folder: Path) -> Dict[str, int]:
    """The names of parts, and which file is behind each."""
    return {path.name: path.stat().st_ino for path in folder.glob("part-*.parquet")}


class TestRuns:
    def test_rows_are_those_of_one_process_and_a_killed_worker_costs_none(
        self, ray_on_two_cores: Any, bilm: BiLM, folder: Path
    ) -> None:
        driver = os.getpid()
        workers = folder / "workers"
        workers.mkdir()

        def slow_top(layers: numpy.ndarray) -> numpy.ndarray:
            if os.getpid() != driver:
                (workers / str(os.getpid())).touch()
                time.sleep(0.02)
            return layers[-1]

        killed: List[int] = []

        def kill_a_worker() -> None:
            while len(parts_of(folder / "out.partial/vectors")) < 2:
                time.sleep(0.01)
            killed.append(int(min(workers.iterdir()).name))
            os.kill(killed[0], signal.SIGKILL)

        killer = threading.Thread(target=kill_a_worker, daemon=True)
        killer.start()
        result = embed(bilm, LayerChoice("top", slow_top), num_workers=2)
        killer.join(timeout=1)
        assert killed and len(list(workers.iterdir())) > 1
        assert result == EmbeddedFile(NUM_SENTENCES, NUM_TOKENS)
        check_rows(bilm)
        # Of 29, 20 and 10 sentences.
        assert len(parts_of(folder / "out")) == 5 + 3 + 2
        assert sorted(os.listdir()) == ["out", "texts", "workers"]
        about = read_about("out")
        assert about is not None and about["num_sentences"] == NUM_SENTENCES
        assert [content["name"] for content in about["input"]] == [
            f"texts/{name}" for name in LINES
        ]
        assert about["settings"]["layers"] == "top" and about["settings"]["column"] == "sentence"

        # What is complete is not done again; and only the same counts as complete.
        before = parts_of(folder / "out")
        assert embed(bilm, num_workers=2, resume=True) == result
        assert parts_of(folder / "out") == before
        with pytest.raises(ConfigurationError, match=r"out was made with other settings.*dtype"):
            embed(bilm, dtype="float16", resume=True)
        with open("texts/a.txt", "a") as file:
            file.write("one more\n")
        with pytest.raises(ConfigurationError, match="out was made of another input: file 1 was"):
            embed(bilm, resume=True)
        with pytest.raises(ConfigurationError, match=r"output: out exists.*--overwrite"):
            embed(bilm)
        assert parts_of(folder / "out") == before

    def test_a_run_that_a_full_disk_ended_is_gone_on_with(
        self, ray_on_two_cores: Any, bilm: BiLM, folder: Path
    ) -> None:
        driver = os.getpid()
        count = folder / "count"  # a byte for each sentence, as long as the disk has little room
        count.touch()

        def failing_top(layers: numpy.ndarray) -> numpy.ndarray:
            if os.getpid() != driver and count.exists():
                with open(count, "ab") as file:
                    file.write(b".")
                if count.stat().st_size == 40:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return layers[-1]

        top = LayerChoice("top", failing_top)
        (folder / "out").mkdir()
        (folder / "out/_embedding.json").write_text("{}")
        match = r"out: cannot be written after \d+ sentences \(No space left.*--resume"
        with pytest.raises(WriteError, match=match) as raised:
            embed(bilm, top, overwrite=True)
        assert raised.value.errno == errno.ENOSPC
        count.unlink()
        assert os.listdir("out") == ["_embedding.json"]  # as it was
        partial = folder / "out.partial/vectors"
        kept = parts_of(partial)
        assert 2 <= len(kept) < 10

        # Anything but its own continuation is refused.
        shutil.rmtree("out")
        with pytest.raises(ConfigurationError, match=r"out\.partial holds .*--resume"):
            embed(bilm, top)
        with pytest.raises(
            ConfigurationError, match=r"other settings: layers was 'top', now 'all'"
        ):
            embed(bilm, "all", resume=True)
        with pytest.raises(
            ConfigurationError, match=r"out\.partial was made of another input: file"
        ):
            embed(bilm, top, ["texts/b.txt.gz", "texts"], resume=True)
        assert parts_of(partial) == kept

        # What was being written when the power went off.
        damaged = sorted(kept)[0]
        (partial / damaged).write_bytes((partial / damaged).read_bytes()[:-100])
        (partial / ".part-00002-0000000000.parquet.abc").write_bytes(b"PAR1")
        assert embed(bilm, top, resume=True) == EmbeddedFile(NUM_SENTENCES, NUM_TOKENS)
        check_rows(bilm)
        parts = parts_of(folder / "out")
        assert len(parts) == 10 and sorted(os.listdir()) == ["out", "texts"]
        assert {name for name in kept if parts[name] == kept[name]} == set(kept) - {damaged}

    def test_a_run_that_was_killed_is_gone_on_with(
        self, ray_on_two_cores: Any, bilm: BiLM, tiny_files: BiLMFiles, folder: Path
    ) -> None:
        script = """
            import sys, time
            from elmo_plugin import BiLM
            from elmo_plugin.embedding.on_ray.embed_shards import embed_shards
            from elmo_plugin.embedding.layer_choice import LayerChoice

            def slow_top(layers):
                time.sleep(0.05)
                return layers[-1]

            embed_shards(
                "texts", "out", BiLM.from_files(*sys.argv[1:]), LayerChoice("top", slow_top),
                skip_blank=True, sentences_per_part=7,
            )
        """
        command = [sys.executable, "-c", textwrap.dedent(script), *tiny_files]
        with open("log", "w") as log:
            run = subprocess.Popen(command, stdout=log, stderr=log)
        partial = folder / "out.partial/vectors"
        while run.poll() is None and not (folder / "out.partial/progress.json").exists():
            time.sleep(0.05)
        assert run.poll() is None, (folder / "log").read_text()
        run.kill()
        run.wait()
        kept = parts_of(partial)
        assert 1 <= len(kept) < 10 and not (folder / "out").exists()
        assert embed(bilm, resume=True) == EmbeddedFile(NUM_SENTENCES, NUM_TOKENS)
        check_rows(bilm)
        parts = parts_of(folder / "out")
        assert len(parts) == 10 and kept.items() <= parts.items()
        assert sorted(os.listdir()) == ["log", "out", "texts"]


class Unused:
    """A `PartWriter` that must not be made, as the error comes before work starts."""

    def __init__(self, *arguments: Any) -> None:
        raise AssertionError("work was started")


class TestBadInput:
    @pytest.fixture(autouse=True)
    def no_work(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(embed_shards_module, "_BlockWriter", Unused)

    def test_all_files_are_checked_before_work_starts(
        self, ray_on_two_cores: Any, bilm: BiLM, folder: Path
    ) -> None:
        (folder / "texts/d.txt").write_bytes(b"a\n\xff\n")
        (folder / "texts/e.txt").write_bytes(b"a\nb\x00\n")
        parquet.write_table(pyarrow.table({"text": ["a"]}), folder / "texts/f.parquet")
        with pytest.raises(ConfigurationError) as raised:
            embed(bilm, skip_blank=False)
        assert [error.split(", expected")[0] for error in raised.value.message.split("\n")] == [
            "texts/a.txt: line 12 is blank",
            "texts/d.txt, line 2: found the bytes b'\\xff'",
            "texts/e.txt, line 2: found the control character U+0000 at character 2",
            f"{folder}/texts/f.parquet: there is no column 'sentence'",
        ]
        assert os.listdir() == ["texts"]

    def test_of_many_errors_some_are_shown(
        self,
        ray_on_two_cores: Any,
        bilm: BiLM,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(embed_shards_module, "MAX_ERRORS_SHOWN", 2)
        for number in range(5):
            (folder / f"texts/d{number}.txt").touch()
        with pytest.raises(ConfigurationError) as raised:
            embed(bilm)
        assert raised.value.message.split("\n")[2:] == ["... and 3 more files"]
        assert "texts/d1.txt: found no sentence" in raised.value.message

    def test_a_disk_without_room_is_noticed_before_work_starts(
        self,
        ray_on_two_cores: Any,
        bilm: BiLM,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        usage = namedtuple("usage", "free")
        needed = NUM_TOKENS * 3 * 12 * 4
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(needed - 1))
        with pytest.raises(ConfigurationError, match=r"out needs at least .* are free.*--top"):
            embed(bilm, "all")
        assert os.listdir() == ["texts"]

    def test_what_can_be_known_at_once_needs_no_ray(
        self, bilm: BiLM, tiny_files: BiLMFiles, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(embed_shards_module, "ray_session", Unused)
        (folder / "file").touch()
        (folder / "foreign").mkdir()
        for arguments, match in [
            ({"bilm": BiLM.from_files(*tiny_files, stateful=True)}, "The biLM is stateful"),
            ({"dtype": "int8"}, "dtype is 'int8', expected one of"),
            ({"tokenizer": "moses"}, "expected one of whitespace, spacy"),
            ({"inputs": "missing.txt"}, "there is no file missing.txt"),
            ({"sentences_per_part": 0}, "sentences_per_part is 0, expected at least 1"),
            ({"overwrite": True, "resume": True}, "--overwrite starts anew and --resume"),
            ({"output": "no/out"}, "no folder no to write out in"),
            ({"output": "file"}, "file is a file, expected a new folder"),
            ({"output": "foreign", "overwrite": True}, r"foreign is a folder without _embedding"),
        ]:
            values = {"inputs": "texts", "output": "out", "bilm": bilm, **arguments}
            with pytest.raises(ConfigurationError, match=match):
                embed_shards(layers=layer_choice("top"), **values)


class TestSteps:
    """What workers do, in this process."""

    def test_a_shard_is_checked_read_and_written(
        self, ray_on_two_cores: Any, bilm: BiLM, folder: Path
    ) -> None:
        reader = embed_shards_module.ShardReader("sentence", "whitespace", True)
        (shard,) = embed_shards_module.find_shards("texts/a.txt")
        row = pyarrow.Table.from_pylist([shard._asdict()])
        (checked,) = embed_shards_module._checked(row, reader).to_pylist()
        assert (checked["num_sentences"], checked["error"]) == (29, "")
        reader = reader._replace(skip_blank=False)
        (checked,) = embed_shards_module._checked(row, reader).to_pylist()
        assert checked["error"].startswith("texts/a.txt: line 12 is blank")

        reader = reader._replace(skip_blank=True)
        row = pyarrow.Table.from_pylist([{**shard._asdict(), "done": [0, 9, 20, 25]}])
        limits = {"max_sentences": 100, "max_tokens": 1000}
        blocks = list(embed_shards_module._read(row, reader, limits))
        lines = [block.column("lines").to_pylist()[0] for block in blocks]
        assert lines == [[10, *range(12, 20)], list(range(26, 30))]

        workers = RayWorkers(1, 1, 1.0, 0)
        settings = WorkerSettings(
            SharedBiLM(bilm), layer_choice("average"), "float32", 64, None, workers
        )
        writer = embed_shards_module._BlockWriter(settings, folder)
        (part,) = writer(blocks[1]).to_pylist()
        assert (part["first_line"], part["last_line"], part["num_sentences"]) == (26, 29, 4)
        (path,) = parts_of(folder)
        assert parquet.read_table(folder / path).column("line").to_pylist() == lines[1]


class TestSession:
    """Connections, without the seconds that one takes."""

    @pytest.fixture
    def started(self, monkeypatch: pytest.MonkeyPatch) -> List[Optional[Dict[str, Any]]]:
        """The arguments of each start of Ray, and `None` for each end."""
        ray = pytest.importorskip("ray")
        started: List[Optional[Dict[str, Any]]] = []
        monkeypatch.setattr(ray, "is_initialized", lambda: False)
        monkeypatch.setattr(ray, "init", lambda **arguments: started.append(arguments))
        monkeypatch.setattr(ray, "shutdown", lambda: started.append(None))
        return started

    def test_ray_is_started_on_this_machine_and_stopped(self, started: List[Any]) -> None:
        with ray_session(shared_bytes=1000):
            (arguments,) = started
        assert arguments["object_store_memory"] == 1000 + ray_session_module.STORE_BYTES
        assert "address" not in arguments and not arguments["include_dashboard"]
        assert started[1:] == [None]

    def test_a_cluster_is_left_after_an_error_too(self, started: List[Any]) -> None:
        with pytest.raises(KeyError), ray_session("10.0.0.1:6379"):
            raise KeyError
        assert started[0]["address"] == "10.0.0.1:6379" and started[1:] == [None]

    def test_an_address_where_no_cluster_answers_is_named(
        self, started: List[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(**arguments: Any) -> None:
            raise ConnectionError("refused")

        monkeypatch.setattr(pytest.importorskip("ray"), "init", refuse)
        match = r"--ray-address: no Ray cluster answers at 10\.0\.0\.1:6379 \(refused\)"
        with pytest.raises(ConfigurationError, match=match), ray_session("10.0.0.1:6379"):
            pass

    def test_a_second_connection_is_refused(self, ray_on_two_cores: Any) -> None:
        match = "--ray-address is auto, but this process is connected to Ray already"
        with pytest.raises(ConfigurationError, match=match), ray_session("auto"):
            pass

    def test_without_ray_it_is_said_how_to_install_it(
        self, monkeypatch: pytest.MonkeyPatch, bilm: BiLM, folder: Path
    ) -> None:
        monkeypatch.setitem(sys.modules, "ray", None)
        with pytest.raises(ConfigurationError, match=r"pip install 'elmo_plugin\[ray\]'"):
            embed(bilm)

    def test_an_error_of_a_worker_that_is_not_ours_keeps_its_wrapping(
        self, ray_on_two_cores: Any
    ) -> None:
        def wrong(row: Dict[str, Any]) -> Dict[str, Any]:
            raise KeyError("a bug")

        dataset = embed_shards_module._dataset([{"number": 0}]).map(wrong)
        with pytest.raises(ray_on_two_cores.exceptions.RayTaskError, match="a bug"):
            list(embed_shards_module._rows(dataset))
