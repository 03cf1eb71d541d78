"""Embedding with Ray: outputs, runs whose workers or main process die, full disks, and connections."""

import errno
import glob
import gzip
import multiprocessing
import os
import random
import re
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy
import pytest
import torch

from elmo_plugin import ElmoEmbedder, FrozenBiLM
from elmo_plugin.commands.main import INTERRUPTED
from elmo_plugin.embedding import engines
from elmo_plugin.embedding.engines import EngineOptions, cores_of_worker, make_engine
from elmo_plugin.embedding.layers import LayerChoice
from elmo_plugin.embedding.parts import PartialOutput
from elmo_plugin.embedding.run import EmbeddedFile
from elmo_plugin.errors import ConfigurationError
from tests.closeness import assert_accurate
from tests.conftest import REPOSITORY, BiLMFiles, write_parquet
from tests.embedding import run_test
from tests.embedding.run_test import contents, remove
from tests.markdown_blocks import code_blocks

parquet = pytest.importorskip("pyarrow.parquet", reason="elmo_plugin[parquet] is not installed")

# Of three kinds of files; a blank line in the first, which is skipped.
LINES = {
    "a.txt": [" ".join(["word"] * (number % 6 + 1)) + f" no {number}" for number in range(30)],
    "b.txt.gz": [f"naïve {number} 日本語 ." for number in range(20)],
    "c.parquet": [f"token {number}" for number in range(10)],
}
LINES["a.txt"][11] = " "
NUM_SENTENCES = 59
NUM_TOKENS = sum(len(line.split()) for lines in LINES.values() for line in lines)
# Runs of each format and signal. For more: ELMO_RAY_INTERRUPTS=200 pytest -k RandomTimes ...
NUM_INTERRUPTS = int(os.environ.get("ELMO_RAY_INTERRUPTS", 1))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a test, with the folder `texts`."""
    texts = tmp_path / "work" / "texts"
    texts.mkdir(parents=True)
    text = {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in LINES.items()}
    (texts / "a.txt").write_bytes(text["a.txt"])
    (texts / "b.txt.gz").write_bytes(gzip.compress(text["b.txt.gz"]))
    write_parquet(texts / "c.parquet", sentence=[line.split() for line in LINES["c.parquet"]])
    monkeypatch.chdir(texts.parent)
    return texts.parent


def embed(
    bilm: FrozenBiLM, layers: Any = "top", inputs: Any = "texts", **options: Any
) -> EmbeddedFile:
    settings = {"format": "parquet", "engine": "ray", "skip_blank": True, "layers": layers}
    return run_test.embed(ElmoEmbedder.from_bilm(bilm), source=inputs, **{**settings, **options})


def finished_parts(pattern: str = "out.partial/parts*/descriptions/*") -> Dict[str, int]:
    """Return the names of parts, and the inode of each."""
    return {path.name: path.stat().st_ino for path in map(Path, glob.glob(pattern))}


class TestRuns:
    def test_rows_equal_those_of_one_process_even_if_a_worker_is_killed(
        self, ray_on_two_cores: Any, bilm: FrozenBiLM, folder: Path
    ) -> None:
        driver = os.getpid()
        workers = folder / "workers"
        workers.mkdir()

        def top(layers: numpy.ndarray) -> numpy.ndarray:
            if os.getpid() != driver:
                with open(workers / str(os.getpid()), "a") as calls:
                    calls.write("x")
                # In its second part, and once.
                if os.path.getsize(workers / str(os.getpid())) == 10:
                    with suppress(FileExistsError):
                        (folder / "killed").touch(exist_ok=False)
                        os.kill(os.getpid(), signal.SIGKILL)
            return layers[-1]

        result = embed(bilm, LayerChoice("top", top), num_workers=2)
        (folder / "killed").unlink()
        # Its part is computed again.
        assert sum(path.stat().st_size for path in workers.iterdir()) > NUM_SENTENCES
        assert result == EmbeddedFile(NUM_SENTENCES, NUM_TOKENS)
        rows = parquet.read_table("out").to_pylist()
        assert [(row["source"], row["line"], row["sentence"]) for row in rows] == [
            (f"texts/{name}", number, line)
            for name, lines in LINES.items()
            for number, line in enumerate(lines, start=1)
            if line.strip()
        ]
        embedder = ElmoEmbedder.from_bilm(bilm)
        for row in rows:
            assert row["tokens"] == row["sentence"].split()
            expected = embedder.embed_sentence(row["tokens"])[-1]
            assert_accurate(row["vectors"], expected)
        before = finished_parts("out/*.parquet")
        assert len(before) == 5 + 3 + 2  # of 29, 20 and 10 sentences
        assert sorted(os.listdir()) == ["out", "texts", "workers"]

        # What is complete is not done again; and only the same counts as complete.
        assert embed(bilm, num_workers=2, resume=True) == result
        with open("texts/a.txt", "a") as file:
            file.write("one more\n")
        with pytest.raises(ConfigurationError, match="out is complete, and was made from another"):
            embed(bilm, resume=True)
        assert finished_parts("out/*.parquet") == before

    def test_parts_written_before_the_disk_is_full_are_kept(
        self, ray_on_two_cores: Any, bilm: FrozenBiLM, folder: Path
    ) -> None:
        driver = os.getpid()
        calls: List[int] = []

        def signs(layers: numpy.ndarray) -> numpy.ndarray:
            if os.getpid() != driver:
                calls.append(1)
                if len(calls) > 7 * 2:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return numpy.sign(layers[-1])

        match = r"out: cannot be written \(No space left .*\); 2 parts are kept in .*Make room on the disk"
        with pytest.raises(OSError, match=match) as raised:
            embed(bilm, LayerChoice("signs", signs), "texts/a.txt")
        assert raised.value.errno == errno.ENOSPC
        assert PartialOutput("out").parts_folder.num_parts == 2
        assert sorted(os.listdir()) == ["out.partial", "texts"]


def slow_signs() -> LayerChoice:
    """
    The signs of the top layer, some milliseconds after they were asked for. They do not have the rounding of
    the batch that a word was first in, so that outputs can be compared byte for byte.
    """

    # A function that is sent by value: workers need not import this module.
    def signs(layers: numpy.ndarray) -> numpy.ndarray:
        time.sleep(0.005)
        return numpy.sign(layers[-1])

    return LayerChoice("signs", signs)


def embed_in_process(
    has_begun: Any, address: str, files: BiLMFiles, options: Dict[str, Any]
) -> None:
    """Call `embed` in a process that will be interrupted; what it writes to stderr is in the file `log`."""
    # A process in the background of a shell ignores the signal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open("log", "a") as sys.stderr:
        try:
            has_begun.set()
            embed(FrozenBiLM.from_files(*files), slow_signs(), ray_address=address, **options)
        except KeyboardInterrupt:
            os._exit(INTERRUPTED)
        except Exception:
            traceback.print_exc()
            raise


class TestInterruptsAtRandomTimes:
    """Interrupt the process that makes a run. The cluster stays, and workers may outlive that process."""

    NUM_SENTENCES, NUM_PARTS = 29, 5  # of texts/a.txt

    # Parts are written in the same way in all formats, and by all engines.
    @pytest.mark.parametrize(
        "format, number",
        [("hdf5", signal.SIGKILL), ("npy", signal.SIGINT)],
    )
    def test_the_resumed_output_equals_that_of_an_uninterrupted_run(
        self,
        ray_on_two_cores: Any,
        bilm: FrozenBiLM,
        bilm_files: BiLMFiles,
        folder: Path,
        format: str,
        number: int,
    ) -> None:
        address = ray_on_two_cores.get_runtime_context().gcs_address
        context = multiprocessing.get_context("forkserver")  # of processes not connected to Ray
        options = {"inputs": "texts/a.txt", "format": format}
        embed(bilm, slow_signs(), engine="local", **options)
        expected = contents()
        remove()
        generator = random.Random(number)
        for count in range(NUM_INTERRUPTS):
            # Every second run is interrupted again, while it is resumed.
            for resume in (False, True)[: 1 + count % 2]:
                has_begun = context.Event()
                arguments = (has_begun, address, bilm_files, {**options, "resume": resume})
                process = context.Process(target=embed_in_process, args=arguments)
                process.start()
                # Before that an interrupt would end Python itself.
                assert has_begun.wait(timeout=120)
                # At a random number of parts, at least one: at a random time, most runs would have none yet.
                num_parts = generator.randint(1, self.NUM_PARTS)
                while process.is_alive() and len(finished_parts()) < num_parts:
                    time.sleep(0.002)
                time.sleep(generator.uniform(0, 0.1))
                with suppress(ProcessLookupError):  # it may be done
                    os.kill(process.pid, number)
                process.join()
                log = Path("log").read_text()
                assert process.exitcode in (0, INTERRUPTED, -signal.SIGKILL), log
            engine = ("local", "ray")[(count // 2 + (number == signal.SIGINT)) % 2]
            result = embed(bilm, slow_signs(), engine=engine, resume=True, **options)
            assert result.num_sentences == self.NUM_SENTENCES
            assert contents() == expected
            assert sorted(os.listdir()) == ["log", "out", "texts"]
            remove()


def test_an_unexpected_error_of_a_worker_keeps_its_traceback(
    ray_on_two_cores: Any, bilm: FrozenBiLM, folder: Path
) -> None:
    driver = os.getpid()

    def wrong(layers: numpy.ndarray) -> numpy.ndarray:
        if os.getpid() != driver:
            raise KeyError("a bug")
        return layers[-1]

    with pytest.raises(ray_on_two_cores.exceptions.RayTaskError, match="a bug"):
        embed(bilm, LayerChoice("wrong", wrong))


def test_workers_share_the_memory_of_tensors_of_any_type_and_order(ray_on_two_cores: Any) -> None:
    module = torch.nn.Module()
    module.rounded = torch.nn.Parameter(torch.randn(3, 4).bfloat16(), requires_grad=False)
    module.bytes = torch.arange(6, dtype=torch.uint8).reshape(2, 3).T
    module.same = module.bytes
    shared = engines.shared_embedder(module)
    copy, other = ray_on_two_cores.get(shared), ray_on_two_cores.get(shared)
    assert isinstance(copy.rounded, torch.nn.Parameter)
    assert torch.equal(copy.rounded, module.rounded)  # bits are copied
    assert torch.equal(copy.bytes, module.bytes) and copy.bytes.stride() == (1, 3)
    assert copy.same is copy.bytes
    for name in ("rounded", "bytes"):
        assert getattr(copy, name).data_ptr() == getattr(other, name).data_ptr()


@pytest.mark.parametrize(
    "cores, number, num_cpus",
    [
        ([2], 1, 2),
        ([2], 8, 0.25),
        ([16, 16, 16, 16], 6, 8),
        ([16, 8], 2, 8),
        ([0, 16, 16], 2, 16),  # as of a head node that runs no workers
        ([], 2, 0.5),
    ],
)
def test_workers_share_the_cores_of_a_node(
    monkeypatch: pytest.MonkeyPatch, cores: List[int], number: int, num_cpus: float
) -> None:
    ray = pytest.importorskip("ray")
    nodes = [{"Alive": True, "Resources": {"CPU": float(number)}} for number in cores]
    nodes.append({"Alive": False, "Resources": {"CPU": 1000.0}})
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    assert cores_of_worker(number) == num_cpus


@pytest.mark.parametrize(
    "usable, num_cpus, num_threads", [(4, 2.0, 2), (2, 8.0, 2), (8, 0.25, 1), (1, 0.5, 1)]
)
def test_a_worker_has_no_more_threads_than_it_may_use(
    monkeypatch: pytest.MonkeyPatch, usable: int, num_cpus: float, num_threads: int
) -> None:
    """Ray counts the cores of the machine where it does not know a quota or affinity."""
    chosen: List[int] = []
    monkeypatch.setattr(engines, "usable_cpus", lambda: usable)
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    engines._Worker(None, num_cpus, writer=None)  # type: ignore[arg-type]
    assert chosen == [num_threads]


@pytest.mark.parametrize(
    "address, num_cpus, match",
    [
        (None, 3, r"^--engine ray: Ray cannot start here \(refused\)"),
        ("10.0.0.1:1", None, r"^--ray-address: cannot connect .* at 10\.0\.0\.1:1 \(refused\)"),
    ],
)
def test_ray_is_started_with_the_cores_that_may_be_used_and_its_refusal_is_named(
    monkeypatch: pytest.MonkeyPatch, address: Optional[str], num_cpus: Optional[int], match: str
) -> None:
    ray = pytest.importorskip("ray")
    given: Dict[str, Any] = {}

    def init(**arguments: Any) -> None:
        given.update(arguments)
        raise ConnectionError("refused")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(engines, "usable_cpus", lambda: 3)
    options = EngineOptions(engine="ray", ray_address=address)
    with pytest.raises(ConfigurationError, match=match), make_engine(None, options):
        pass
    assert given["num_cpus"] == num_cpus


def test_the_recipe_with_ray_data(
    ray_on_two_cores: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What docs/scaling.md shows, on a small dataset."""
    monkeypatch.chdir(tmp_path)
    texts = [" ".join(["word"] * (number % 7 + 1)) + f" no {number} ." for number in range(60)]
    Path("texts").mkdir()
    write_parquet("texts/a.parquet", id=range(60), text=texts)
    (recipe,) = code_blocks((REPOSITORY / "docs" / "scaling.md").read_text("utf-8"), "python")
    # Absolute: the workers of this cluster run in another folder.
    exec(re.sub(r'"(\w+/)"', rf'"{tmp_path}/\1"', recipe.text), {"__name__": "__main__"})
    rows = parquet.read_table("vectors").to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(60))
    embedder = ElmoEmbedder("elmo_mini")
    for row in rows:
        assert row["text"] == texts[row["id"]]
        expected = embedder.embed_sentence(row["text"].split(), pool="mean").mean(axis=0)
        assert_accurate(row["vector"], expected)
