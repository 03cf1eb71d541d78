"""
How many tokens per second workers on Ray embed, beside one process: the same text, biLM and output, Parquet
files of the average of the layers.

What is compared:
  one process       `allennlp elmo --format parquet`, on one thread; and again on as many threads as there are
                    cores, where there are several
  n workers         the same with `--engine ray`, with n workers of one thread each, on this machine

What the table shows:
  s                 all seconds of the call: checks of the input, and for workers their start, which takes
                    each some seconds of imports
  tokens/s          tokens divided by these seconds
  steady tokens/s   of workers: tokens of all parts but the first of each worker, divided by the time from the
                    last of those to the end. What is left out, starts and first batches, does not grow with
                    the text. Empty where there are too few parts
  times             the last of these numbers, as a multiple of that of one process on one thread

Rows are measured one after the other, all of them in each repetition; the table has medians. It is in
Markdown; progress goes to stderr.

    python benchmarks/scaling.py --text corpus.txt --options elmo_mini --sentences 1000 --repetitions 1
    python benchmarks/scaling.py --text corpus.txt --sentences 3000 --output runs/scaling.csv

The first takes about a minute. The second has random weights of the original's shape (2 layers of 4096 cells
projected to 512). For numbers that mean something nothing else may run, and the text should keep all workers
busy for much longer than they take to start.
"""

import argparse
import logging
import sys
import time
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, List, NamedTuple, Optional

import pandas
import ray.data
import torch
from measurement import available_cores, markdown

from elmo_plugin import BiLM, ElmoEmbedder
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.embedding.arrow import import_pyarrow
from elmo_plugin.embedding.layers import layer_choice
from elmo_plugin.embedding.ray_engine import EngineOptions
from elmo_plugin.embedding.run import EmbeddingRun, OutputOptions

AVERAGE = layer_choice("average")
PARQUET = OutputOptions(format="parquet")


class Written(NamedTuple):
    """A part: when it was complete, in seconds, and how many tokens it holds."""

    at: float
    num_tokens: int


def steady_speed(parts: List[Written], num_workers: int) -> Optional[float]:
    """
    Return tokens per second from the time when each worker had one part done; `None` if there are too few
    parts.
    """
    parts = sorted(parts)
    later = parts[num_workers:]
    if not later or later[-1].at <= parts[num_workers - 1].at:
        return None
    num_tokens = sum(part.num_tokens for part in later)
    return num_tokens / (later[-1].at - parts[num_workers - 1].at)


def parts_in(folder: Path) -> List[Written]:
    """Return the parts of a folder."""
    parts = []
    for path in folder.glob("*.parquet"):
        tokens = import_pyarrow().parquet.read_table(path, columns=["tokens"]).column("tokens")
        num_tokens = sum(len(sentence) for sentence in tokens)
        parts.append(Written(path.stat().st_mtime_ns / 1e9, num_tokens))
    return parts


def run_alone(
    text: Path, files: Dict[str, Any], output: Path, num_threads: int, _: int
) -> Dict[str, Any]:
    """Embed in one process."""
    torch.set_num_threads(num_threads)
    embedder = ElmoEmbedder(**files)
    start = time.perf_counter()
    embedded = EmbeddingRun(text, output, output_options=PARQUET).embed(embedder, AVERAGE)
    seconds = time.perf_counter() - start
    speed = embedded.num_tokens / seconds
    return {"s": seconds, "tokens/s": speed, "steady tokens/s": speed}


def run_workers(
    text: Path, files: Dict[str, Any], output: Path, num_workers: int, sentences_per_part: int
) -> Dict[str, Any]:
    """Embed by workers on the Ray that is running."""
    torch.set_num_threads(1)
    embedder = ElmoEmbedder(**files)
    start = time.perf_counter()
    run = EmbeddingRun(
        text,
        output,
        output_options=PARQUET,
        engine=EngineOptions("ray", num_workers, num_cpus_per_worker=1),
        sentences_per_part=sentences_per_part,
    )
    embedded = run.embed(embedder, AVERAGE)
    seconds = time.perf_counter() - start
    return {
        "s": seconds,
        "tokens/s": embedded.num_tokens / seconds,
        "steady tokens/s": steady_speed(parts_in(output), num_workers),
    }


def table(rows: List[Dict[str, Any]]) -> pandas.DataFrame:
    """Return medians over repetitions, and multiples of the first row's speed."""
    frame = pandas.DataFrame(rows).groupby("", sort=False).median().reset_index()
    frame["times"] = frame["steady tokens/s"] / frame["steady tokens/s"][0]
    return frame.round({"s": 1, "tokens/s": 0, "steady tokens/s": 0, "times": 2})


def main(arguments: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True, help="one sentence on each line")
    parser.add_argument("--sentences", type=int, help="number of lines to take (default: all)")
    parser.add_argument(
        "--options",
        help="options file, or a name such as elmo_mini (default: the original's shape, random weights)",
    )
    parser.add_argument("--weights", help="weight file")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="(default: 1 and 2)")
    parser.add_argument(
        "--sentences-per-part",
        type=int,
        default=128,
        help="fewer than in real use, so that parts show the speed (default: %(default)s)",
    )
    parser.add_argument("--repetitions", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, metavar="FILE.csv", help="write each repetition here"
    )
    settings = parser.parse_args(arguments)

    num_cores = len(available_cores())
    rows: List[Dict[str, Any]] = []
    ray.init(
        num_cpus=num_cores,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    with TemporaryDirectory() as folder:
        files = {"options_file": settings.options, "weight_file": settings.weights}
        if settings.options is None:
            files = {key: str(Path(folder, key)) for key in files}
            BiLM(BiLMOptions()).save(**files)
        text = Path(folder, "text.txt")
        with open(settings.text, "rb") as lines:
            text.write_bytes(b"".join(islice(lines, settings.sentences)))
        runs = {
            f"one process, {number} thread{'s' * (number > 1)}": (run_alone, number)
            for number in sorted({1, num_cores})
        }
        for number in settings.workers:
            runs[f"{number} worker{'s' * (number > 1)}"] = (run_workers, number)
        for repetition in range(settings.repetitions):
            for name, (run, number) in runs.items():
                print(f"{name}, repetition {repetition + 1}", file=sys.stderr)
                output = Path(folder, f"{repetition}-{name}")
                rows.append(
                    {"": name, **run(text, files, output, number, settings.sentences_per_part)}
                )
    ray.shutdown()
    print(markdown(table(rows)))
    if settings.output is not None:
        pandas.DataFrame(rows).to_csv(settings.output, index=False)


if __name__ == "__main__":
    main()
