"""Options of pytest, and what tests of several folders share: random biLMs in files, and a corpus."""

import functools
import gzip
import importlib.util
import multiprocessing
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Union

import pytest
import torch
import torch.multiprocessing
from hypothesis import HealthCheck, settings

from elmo_plugin import BiLM, FrozenBiLM
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.lm_vocabulary import SPECIALS, LMVocabulary
from elmo_plugin.bilm.options import CharacterEncoderOptions
from elmo_plugin.bilm.simd.library import VECTOR_UNITS, unsupported_reason
from elmo_plugin.errors import warn_once

# Without AllenNLP the core is tested (`make test-torch`), and these are about AllenNLP's names and archives.
if importlib.util.find_spec("allennlp") is None:
    collect_ignore = [
        "modules/elmo_archives_test.py",
        "modules/elmo_token_embedder_test.py",
        "modules/model_mixes_test.py",
        "modules/text_encoder_test.py",
    ]

# Their tests take minutes: at the end, one worker would have nothing else to do.
_FIRST = (
    "docs_test.py",
    "pretrain_test.py",
    "engines_test.py",
    "attacks_test.py",
    "wheels_test.py",
)

# Ray: no file in the user's home, and no attempt to reach the network; the same for all that start it.
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# By default Ray's workers get what processor time other programs leave: none, on a machine with enough to do.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 - the name is Ray's

# The start method "forkserver" forks a process that has imported these, and has no threads.
multiprocessing.set_forkserver_preload(["elmo_plugin.plugin", "ray"])

# The same examples in each run, however long each takes: results depend neither on chance nor on load.
settings.register_profile(
    "tests",
    max_examples=50,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tests")

REPOSITORY = Path(__file__).parents[1]
FIXTURES = REPOSITORY / "fixtures"

TINY_OPTIONS = BiLMOptions(
    CharacterEncoderOptions("relu", 4, ((1, 4), (2, 8), (3, 12)), num_highway=1),
    cell_size=20,
    projection_dim=6,
)


# Values in such biLMs reach about this.
SCALE = 10.0


def terms_of(num_steps: int) -> int:
    """
    Return the sums on the way to a vector of `TINY_OPTIONS`: encoder, highway and projection; gates and
    projections of each step, of a sentence with its marks, in two layers.
    """
    return 24 + 24 + 24 + 2 * num_steps * (6 + 6 + 20)


def roundings_of(num_steps: int) -> int:
    """Return the roundings to a low precision on the same way."""
    return 1 + 1 + 1 + 2 * num_steps * 2


def with_encoder(options: BiLMOptions, **changes: Any) -> BiLMOptions:
    """Return options with some sizes of the character encoder changed."""
    return replace(options, encoder=replace(options.encoder, **changes))


# Non-ASCII words, words over 48 bytes, one-character words, sentence marks as words, an empty sentence.
SENTENCES = [
    ["The", "naïve", "日本語", "the", "x" * 80, "é" * 30, "."],
    ["Hi"],
    [],
    ["<S>", "the", "</S>", "<UNK>", ""],
    ["a", "b", "a", "b", "a", "b", "a"],
]


def pytest_configure(config: pytest.Config) -> None:
    # Configs of tests name our classes. A process that only starts workers runs no tests.
    runs_tests = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    if runs_tests and importlib.util.find_spec("allennlp") is not None:
        importlib.import_module("elmo_plugin.plugin")
    # Tensors here are tiny: threads that wait for each other cost more than they give.
    torch.set_num_threads(1)


def pytest_make_parametrize_id(val: Any) -> Union[str, None]:
    """Name bytes by their number: compressed ones hold the time, and workers of xdist compare names."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


def of_allennlp(name: str) -> Any:
    """Return what AllenNLP has under a name such as `modules.elmo.Elmo`; skip the test without AllenNLP."""
    module, _, attribute = name.rpartition(".")
    return getattr(pytest.importorskip(f"allennlp.{module}"), attribute)


def pytest_report_header() -> str:
    """Return the vector units that are tested; tests of others are skipped."""
    units = [unit.name for unit in VECTOR_UNITS if unsupported_reason(unit.name) is None]
    return (
        f"vector units of simd: {', '.join(units) or 'none is compiled'}; "
        f"torch's own products: {torch.backends.cpu.get_cpu_capability()}"
    )


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in _FIRST)


def pytest_collection_finish() -> None:
    """Cache two slow steps of AllenNLP: looking for plugins, and evaluating the same Jsonnet."""
    commands, params = (
        sys.modules.get(f"allennlp.{name}") for name in ("commands", "common.params")
    )
    if commands is not None:
        commands.import_plugins = functools.lru_cache(commands.import_plugins)
    if params is not None:
        for name in ("evaluate_file", "evaluate_snippet"):
            setattr(params, name, evaluated_once(getattr(params, name)))


def evaluated_once(evaluate: Callable[..., str]) -> Callable[..., str]:
    """Return a function of Jsonnet with a cache, whose keys have the files' state and the variables."""
    results: Dict[Any, str] = {}

    def evaluate_or_remember(*texts: str, ext_vars: Dict[str, str]) -> str:
        stats = [os.stat(text) for text in texts if os.path.isfile(text)]
        files = [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]
        variables = sorted(item for item in ext_vars.items() if item[0] != "PYTEST_CURRENT_TEST")
        key = (texts, os.getcwd(), *files, *variables)
        if key not in results:
            results[key] = evaluate(*texts, ext_vars=ext_vars)
        return results[key]

    return evaluate_or_remember


class BiLMFiles(NamedTuple):
    """Paths of a biLM's files, as strings, because configs hold strings."""

    options_file: str
    weight_file: str


def randomize(bilm: BiLM, seed: int = 0, scale: float = 0.5) -> BiLM:
    """Give every parameter values large enough that clips and gates matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in bilm.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
        bilm.character_encoder.character_embedding.weight[0] = 0.0
    return bilm


def allennlp_elmo(files: BiLMFiles, *args: Any, stateful: bool = False, **kwargs: Any) -> Any:
    """AllenNLP's `Elmo`, which by itself is stateful."""
    elmo = of_allennlp("modules.elmo.Elmo")(*files, *args, **kwargs)
    elmo._elmo_lstm._elmo_lstm.stateful = stateful
    return elmo


def run_program(
    *words: object, cwd: Union[str, Path, None] = None, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run a program until it ends, with these variables added to the environment. Keep what it prints."""
    return subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=1200,
    )


@contextmanager
def file_size_limit(num_bytes: int) -> Iterator[None]:
    """Let writes beyond that many bytes of a file fail, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture
def quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `allennlp train`: otherwise each imports AllenNLP anew."""
    start = functools.partial(torch.multiprocessing.start_processes, start_method="forkserver")
    monkeypatch.setattr("torch.multiprocessing.spawn", start)


@pytest.fixture(autouse=True)
def each_test_warns() -> None:
    """Let a test see a warning that an earlier one has logged."""
    warn_once.cache_clear()


@pytest.fixture
def write_bilm(tmp_path: Path) -> Callable[..., BiLMFiles]:
    """Write a random biLM: `write_bilm(options, seed=0, scale=0.5)`."""

    def write(
        options: BiLMOptions = TINY_OPTIONS, seed: int = 0, scale: float = 0.5, name: str = "bilm"
    ) -> BiLMFiles:
        files = BiLMFiles(
            str(tmp_path / f"{name}_options.json"), str(tmp_path / f"{name}_weights.hdf5")
        )
        randomize(BiLM(options), seed, scale).save(*files)
        return files

    return write


@pytest.fixture
def bilm_files(write_bilm: Callable[..., BiLMFiles]) -> BiLMFiles:
    """The files of one tiny random biLM."""
    return write_bilm()


@pytest.fixture
def shapes_run(monkeypatch: pytest.MonkeyPatch) -> List[torch.Size]:
    """The shapes of the character ids that frozen biLMs run from now on."""
    shapes: List[torch.Size] = []
    run = FrozenBiLM._run

    def record(bilm: FrozenBiLM, character_ids: torch.Tensor, *others: Any) -> Any:
        shapes.append(character_ids.shape)
        return run(bilm, character_ids, *others)

    monkeypatch.setattr(FrozenBiLM, "_run", record)
    return shapes


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A glob of two files: `the` 4 times, `b` and `a` 2, `z` and `é` 1."""
    (tmp_path / "1.txt").write_text("the b a the\nz the\n", encoding="utf-8")
    (tmp_path / "2.txt.gz").write_bytes(gzip.compress("the b\n\na é\n".encode()))
    monkeypatch.chdir(tmp_path)
    return "[12].txt*"


def write_parquet(path: Union[str, Path], row_group_size: Any = None, **columns: Any) -> Path:
    """Write columns to a Parquet file; skip the test without pyarrow."""
    pyarrow = pytest.importorskip("pyarrow", reason="elmo_plugin[parquet] is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is built without Parquet")
    parquet.write_table(pyarrow.table(columns), path, row_group_size=row_group_size)
    return Path(path)


def vocabulary_words(path: Union[str, Path] = "vocab.txt") -> List[str]:
    """Return the words of a vocabulary, without the special ones."""
    words = LMVocabulary.from_file(path).words
    assert tuple(words[:3]) == SPECIALS
    return words[3:]
