"""What the benchmarks share: options, sentences, biLMs, timing in turns, tables in Markdown."""

import argparse
import itertools
import os
import platform
import re
import sys
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import h5py
import torch
from torch.utils.benchmark import Measurement, Timer
from tqdm import tqdm

from elmo_plugin import BiLM, FrozenBiLM
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.model_files import resolve_model_files
from elmo_plugin.bilm.processor import has_bfloat16_products
from elmo_plugin.bilm.simd.library import best_unit
from elmo_plugin.embedding.sentences import InputOptions, SentenceSource
from elmo_plugin.errors import ConfigurationError

ALLENNLP, FLOAT32 = "AllenNLP", "float32"
PRECISIONS = (FLOAT32, "bfloat16", "int8")
# In place of a biLM's name: random weights of the original's shape.
RANDOM = "random"
# Rows and columns of the matrices of `peak_product`, by type of device: on a GPU less is over before it can
# be timed.
PEAK_SIZES = {"cpu": 2048, "cuda": 8192}
ORIGINAL = BiLMOptions()

Sentence = List[str]
Run = Callable[[], Any]

# Each script takes some of these.
OPTIONS: Dict[str, Dict[str, Any]] = {
    "text": {"required": True, "metavar": "FILE", "help": "UTF-8, a tokenized sentence per line"},
    "bilm": {
        "default": RANDOM,
        "metavar": "NAME",
        "help": "a name such as elmo_mini, a .zip, a folder with options.json and weights.hdf5, or "
        f"{RANDOM}: random weights of the original's shape (default: {RANDOM})",
    },
    "precisions": {
        "nargs": "+",
        "choices": PRECISIONS,
        "default": list(PRECISIONS),
        "help": "of ours (default: all)",
    },
    "kernel": {
        "choices": ("auto", "simd", "reference", "triton"),
        "default": "auto",
        "help": "what runs our frozen layers (default: auto)",
    },
    "device": {"default": "cpu", "help": "cpu, cuda or cuda:N (default: cpu)"},
    "threads": {"type": int, "help": "CPU threads (default: torch's choice)"},
    "rounds": {"type": int, "default": 3, "help": "turns of each contender (default: 3)"},
    "seconds": {"type": float, "default": 2.0, "help": "the least time of a turn (default: 2)"},
}


class Table(NamedTuple):
    """A table of measurements: its title, its rows by column, and a note on how they were measured."""

    title: str
    rows: List[Dict[str, Any]]
    note: str


def run_benchmark(
    doc: Optional[str],
    options: Sequence[str],
    tables: Callable[[argparse.Namespace], Iterator[Table]],
    argv: Optional[List[str]] = None,
) -> None:
    """Parse these of `OPTIONS`, then print facts about the machine, and each table when it is measured."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in options:
        parser.add_argument(f"--{name}", **OPTIONS[name])
    settings = parser.parse_args(argv)
    if getattr(settings, "threads", None) is not None:
        torch.set_num_threads(settings.threads)
    try:
        for key, value in machine_facts().items():
            print(f"- {key}: {value}")
        for table in tables(settings):
            print(f"\n## {table.title}\n\n{markdown(table.rows)}\n\n{table.note}", flush=True)
    except (ConfigurationError, OSError) as error:
        parser.error(str(error))


def markdown(rows: Sequence[Dict[str, Any]]) -> str:
    """Return rows as a table in Markdown; a column that a row lacks stays empty."""
    columns = list(dict.fromkeys(itertools.chain(*rows)))
    cells = [columns, ["---"] * len(columns)]
    cells += [[format_cell(row.get(column)) for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def format_cell(cell: Any) -> str:
    """Return a number with commas between thousands and four digits at least, or a text unchanged."""
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.4g}"
    return "" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell)


def machine_facts() -> Dict[str, str]:
    """Return what the figures depend on: processor, instructions, threads, versions."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"model name\s*: (.+)", cpuinfo.read_text(encoding="utf-8"))
        name = found[1] if found else name
    facts = {
        "processor": f"{name}, {os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "instructions": f"{best_unit()} (simd), {torch.backends.cpu.get_cpu_capability()} (torch)",
        "versions": ", ".join(
            f"{package} {version(package)}"
            for package in ("elmo_plugin", "torch", "allennlp", "transformers")
        ),
    }
    if torch.cuda.is_available():
        facts["GPU"] = f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"
    return facts


def time_in_turns(
    title: str, runs: Dict[str, Run], rounds: int, seconds: float
) -> Dict[str, Measurement]:
    """
    Return the times of each contender. In a round each has its turn, every second round in reverse order, so
    that what slows the machine for a while slows all. A turn begins with an untimed run.
    """
    timers = [
        Timer("run()", globals={"run": run}, description=name, num_threads=torch.get_num_threads())
        for name, run in runs.items()
    ]
    turns = itertools.chain(*(timers[:: -1 if turn % 2 else 1] for turn in range(rounds)))
    progress = tqdm(turns, desc=title, total=rounds * len(timers), unit="turn", file=sys.stderr)
    measurements = [timer.blocked_autorange(min_run_time=seconds) for timer in progress]
    merged = {result.task_spec.description: result for result in Measurement.merge(measurements)}
    return {name: merged[name] for name in runs}


def peak_product(precision: str, device: torch.device) -> Run:
    """Return the product of two large matrices, by torch, in a precision."""
    size = PEAK_SIZES[device.type]
    if precision == "int8":
        factors = torch.randint(-127, 128, (2, size, size), dtype=torch.int8, device=device)
        return lambda: torch._int_mm(*factors)
    # torch imitates products that the processor lacks, at a fraction of the speed of float32.
    is_slow = precision == "bfloat16" and not has_bfloat16_products(device)
    dtype = torch.float32 if is_slow else getattr(torch, precision)
    factors = torch.randn(2, size, size, dtype=dtype, device=device)
    return lambda: torch.mm(*factors)


def peak_speed(measurement: Measurement, device: torch.device) -> float:
    """Return the operations per second of the fastest `peak_product`, multiplications and additions."""
    return float(2 * PEAK_SIZES[device.type] ** 3 / min(measurement.times))


def spread_note(measurements: Sequence[Measurement]) -> str:
    """Return a note on the number of runs behind each median, and how much they vary."""
    fewest = min(len(measurement.times) for measurement in measurements)
    widest = max(measurement.iqr / measurement.median for measurement in measurements)
    return (
        f"Medians of at least {fewest} runs of each contender, in turns; the widest interquartile range is "
        f"{widest:.0%} of its median."
    )


def read_sentences(text: str) -> List[Sentence]:
    """
    Return the sentences of a file, without blank lines.

    # Raises

    `ConfigurationError` if it cannot be read, is not text, or has fewer than a batch.
    """
    source = SentenceSource(text, InputOptions(skip_blank=True))
    sentences = [sentence.tokens for sentence in source.sentences()]
    if len(sentences) < 32:
        raise ConfigurationError(
            f"--text: {text} has {len(sentences)} sentences, expected 32 or more."
        )
    return sentences


def num_words(sentences: Sequence[Sentence]) -> int:
    return sum(map(len, sentences))


@contextmanager
def float32_files(name: str) -> Iterator[Tuple[str, str]]:
    """
    Yield options and weights that AllenNLP reads as we do. Random weights, and a float32 copy of weights in
    float16 (AllenNLP would add to the forget bias in float16), are written for as long as the context lasts.
    """
    with TemporaryDirectory() as folder:
        if name == RANDOM:
            torch.manual_seed(0)
            bilm = BiLM(ORIGINAL)
        else:
            files = resolve_model_files(name, None)
            with h5py.File(files[1]) as file:
                if file["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B"].dtype == "float32":
                    yield str(files[0]), str(files[1])
                    return
            bilm = BiLM.from_files(*files)
        copies = str(Path(folder, "options.json")), str(Path(folder, "weights.hdf5"))
        bilm.save(*copies)
        del bilm
        yield copies


def frozen_bilm(
    files: Tuple[str, Optional[str]], precision: str, kernel: str = "auto", device: str = "cpu"
) -> FrozenBiLM:
    """Return what runs frozen inference: from character ids to `activations` and `mask`."""
    bilm = FrozenBiLM.from_files(*files, device=device, precision=precision, kernel=kernel)
    return running_in(precision, bilm)


def running_in(precision: str, bilm: FrozenBiLM) -> FrozenBiLM:
    """Return a biLM. Raise `ConfigurationError` if it runs in another precision than it was asked for."""
    if bilm.precision != precision:
        raise ConfigurationError(
            f"--precisions: found {precision}, but the biLM runs in {bilm.precision}, which is faster here. "
            "Leave it out, or give --kernel reference."
        )
    return bilm


def frozen_bilms(settings: argparse.Namespace) -> Tuple[BiLMOptions, Dict[str, FrozenBiLM]]:
    """Return the options of the biLM of the settings, and what runs it, by precision."""
    device = getattr(settings, "device", "cpu")
    with float32_files(settings.bilm) as files:
        return BiLMOptions.from_file(files[0]), {
            precision: frozen_bilm(files, precision, settings.kernel, device)
            for precision in settings.precisions
        }


def bilm_title(name: str, options: BiLMOptions) -> str:
    """Return a biLM's name and shape, for the title of a table."""
    label = "random weights" if name == RANDOM else Path(name).name
    shape = f"{options.num_lstm_layers} layers of {options.cell_size} cells"
    return f"{label}: {shape}, projection {options.projection_dim}"
