"""What the sections of performance.py share: options, sentences, biLMs, timing in turns, machine facts."""

import itertools
import os
import platform
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import h5py
import pandas
import torch
from torch.utils.benchmark import Measurement, Timer
from tqdm import tqdm

from elmo_plugin import BiLM
from elmo_plugin.arguments import option
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.kernels import AUTO, KERNEL_NAMES, PRECISIONS, choose_kernel, choose_precision
from elmo_plugin.bilm.model_files import names_both_files, resolve_model_files
from elmo_plugin.bilm.processor import processor_features
from elmo_plugin.bilm.simd.library import best_unit
from elmo_plugin.embedding.sentences import InputOptions, SentenceSource
from elmo_plugin.report.tables import check_option

SECTIONS = ("inference", "layers", "training", "alternatives", "precision", "memory")
CASES = ("batches", "single", "file", "fine_tuning")
ALLENNLP, FLOAT32 = "AllenNLP", "float32"
# In place of a biLM's name: random weights of the original's shape.
RANDOM = "random"
ORIGINAL = BiLMOptions()
COLORS = {FLOAT32: "#0b3c5d", "bfloat16": "#328cc1", "int8": "#d9b310"}  # also distinct in grey

Sentence = List[str]
Run = Callable[[], Any]


@dataclass(frozen=True)
class Options:
    """What is measured, and how."""

    text: str = option("UTF-8 text, one tokenized sentence on each line", metavar="FILE")
    sections: Sequence[str] = option("what to measure, see above", SECTIONS, choices=SECTIONS)
    bilm: Sequence[str] = option(
        "biLMs of the sections inference, layers, precision and memory: a name such as elmo_mini, a .zip, a "
        f"folder with options.json and weights.hdf5, or {RANDOM}: random weights of the original's shape",
        (RANDOM, "elmo_mini"),
        metavar="NAME_OR_FOLDER",
    )
    cases: Sequence[str] = option("of the section inference", CASES, choices=CASES)
    precisions: Sequence[str] = option("of ours", PRECISIONS, choices=PRECISIONS)
    kernel: str = option("what runs our frozen layers", AUTO, choices=KERNEL_NAMES)
    device: str = option(
        "of the sections inference, layers and training: cpu, cuda or cuda:N", "cpu"
    )
    threads: Optional[int] = option("CPU threads (default: torch's choice)", None)
    quick: bool = option("a first impression: fewer sentences, and each measured once", False)
    output: str = option("folder for tables and pictures", "runs/performance", metavar="DIR")

    def __post_init__(self) -> None:
        is_count = self.threads is None or self.threads > 0
        check_option("--threads", self.threads, is_count, "at least 1")
        is_folder = Path(self.output).is_dir() or not Path(self.output).exists()
        check_option("--output", f"the file {self.output}", is_folder, "a folder")
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:  # torch raises either
            check_option("--device", f"{self.device} ({error})", False, "a device that torch has")

    @property
    def effort(self) -> "Effort":
        return QUICK if self.quick else FULL


@dataclass(frozen=True)
class Effort:
    """How much is measured: numbers of sentences, rounds, and the least time of a contender in a round."""

    rounds: int
    seconds: float
    batches: int  # of 32 sentences
    single: int
    file: int
    alternatives: int
    precision: int
    processes: int


FULL = Effort(3, 2.0, batches=4, single=16, file=640, alternatives=320, precision=1000, processes=3)
QUICK = Effort(1, 0.1, batches=1, single=4, file=64, alternatives=64, precision=64, processes=1)


def time_in_turns(
    title: str, runs: Dict[str, Run], effort: Effort, environment: str = ""
) -> Dict[str, Measurement]:
    """
    Return the times of each contender. In a round each has its turn, every second round in reverse order, so
    that what slows the machine for a while slows all. A turn begins with an untimed run.
    """
    timers = [
        Timer(
            "run()",
            globals={"run": run},
            description=name,
            num_threads=torch.get_num_threads(),
        )
        for name, run in runs.items()
    ]
    turns = [timers[:: -1 if number % 2 else 1] for number in range(effort.rounds)]
    measurements = []
    with tqdm(
        total=effort.rounds * len(timers), desc=title, unit="turn", file=sys.stderr
    ) as progress:
        for timer in itertools.chain(*turns):
            measurements.append(timer.blocked_autorange(min_run_time=effort.seconds))
            progress.update()
    merged = {result.task_spec.description: result for result in Measurement.merge(measurements)}
    return {name: merged[name] for name in runs}


def spread_note(measurements: Sequence[Measurement]) -> str:
    """Return a note on how many times the medians are of, and how much these vary."""
    fewest = min(len(measurement.times) for measurement in measurements)
    widest = max(measurement.iqr / measurement.median for measurement in measurements)
    return (
        f"Medians of at least {fewest} runs of each contender, in turns; the widest interquartile range is "
        f"{widest:.0%} of its median."
    )


def read_sentences(text: str) -> List[Sentence]:
    """
    Return the sentences of a file; blank lines are left out.

    # Raises

    `ConfigurationError` if it cannot be read, is not text, or has fewer than a batch.
    """
    source = SentenceSource(text, InputOptions(skip_blank=True))
    sentences = [sentence.tokens for sentence in source.sentences()]
    check_option("--text", f"{len(sentences)} sentences", len(sentences) >= 32, "at least 32")
    return sentences


def num_words(sentences: Sequence[Sentence]) -> int:
    return sum(map(len, sentences))


def check_bilms(names: Sequence[str]) -> None:
    """Load each biLM once: an error names what is wrong with its files before anything is measured."""
    for name in names:
        if name != RANDOM:
            BiLM.from_files(*model_files(name))


def model_files(name: str) -> Tuple[Path, Path]:
    """Return options and weights of a biLM that `--bilm` names; an error if there are none."""
    if names_both_files(name):
        return resolve_model_files(name, None)
    return resolve_model_files(Path(name, "options.json"), Path(name, "weights.hdf5"))


@contextmanager
def float32_files(name: str) -> Iterator[Tuple[Path, Path]]:
    """
    Yield options and weights that AllenNLP reads as we do. Random weights, and a float32 copy of weights in
    float16 (AllenNLP would add to the forget bias in float16), are written for as long as the context lasts.
    """
    with TemporaryDirectory() as folder:
        if name == RANDOM:
            torch.manual_seed(0)
            bilm = BiLM(ORIGINAL)
        else:
            files = model_files(name)
            with h5py.File(files[1]) as file:
                if file["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B"].dtype == "float32":
                    yield files
                    return
            bilm = BiLM.from_files(*files)
        files = Path(folder, "options.json"), Path(folder, "weights.hdf5")
        bilm.save(*files)
        del bilm
        yield files


def bilm_title(name: str, options: BiLMOptions) -> str:
    """Return a biLM's name and shape, for the title of a table."""
    label = "random weights" if name == RANDOM else Path(name).name
    shape = f"{options.num_layers} layers of {options.cell_size} cells"
    return f"{label}: {shape}, projection {options.projection_dim}"


def file_label(name: str) -> str:
    """Return a biLM's name as a part of a file name."""
    return re.sub(r"\W+", "_", Path(name).stem)


def machine_facts(options: Options) -> Dict[str, str]:
    """Return what the figures depend on: processor, instructions, threads, kernels, versions."""
    model_name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"model name\s*: (.+)", cpuinfo.read_text(encoding="utf-8"))
        model_name = found[1] if found else model_name
    instructions = ("avx", "amx", "fma", "sve", "asimd", "bf16", "i8mm")
    facts = {
        "processor": f"{model_name}, {len(available_cores())} cores for this process",
        "instructions": " ".join(
            sorted(name for name in processor_features() if name.startswith(instructions))
        ),
        "vector unit of the simd kernel": best_unit(),
        "torch's own products": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "kernels": ", ".join(
            f"{precision}: {what_runs(options.kernel, precision, torch.device(options.device))}"
            for precision in options.precisions
        ),
    }
    if options.device != "cpu":
        facts["GPU"] = f"{torch.cuda.get_device_name(options.device)}, CUDA {torch.version.cuda}"
    packages = ("elmo_plugin", "torch", "allennlp", "transformers")
    facts["versions"] = ", ".join(
        [*(f"{name} {version(name)}" for name in packages), f"Python {platform.python_version()}"]
    )
    return facts


def what_runs(kernel: str, precision: str, device: torch.device) -> str:
    """Return the kernel that runs a precision, with the precision that replaces it where it would be slow."""
    chosen = choose_precision(kernel, precision, device)
    name = choose_kernel(kernel, chosen, device).name
    return name if chosen == precision else f"{name} in {chosen}"


def markdown(frame: pandas.DataFrame) -> str:
    """Return a table in Markdown: commas between thousands, large numbers without decimals."""
    rows = [frame.columns, ["---"] * len(frame.columns), *frame.astype(object).to_numpy()]
    return "\n".join(f"| {' | '.join(map(format_cell, row))} |" for row in rows)


def format_cell(cell: Any) -> str:
    if cell is None or cell != cell:  # NaN: no value
        return ""
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def available_cores() -> Sequence[int]:
    """Return the processor cores that this process may use."""
    return (
        sorted(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else range(os.cpu_count() or 1)
    )
