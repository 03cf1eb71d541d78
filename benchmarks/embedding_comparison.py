"""
How long our `ElmoEmbedder` takes to embed a text file beside AllenNLP's ELMo, and whether the vectors are the
same: one process, the same weights, every layer of every sentence.

What is compared:
  AllenNLP        `allennlp.modules.elmo._ElmoBiLm`, used as AllenNLP 0.9's `ElmoEmbedder` used it: batches of
                  64 sentences in the order of the file, character ids by AllenNLP's `batch_to_ids`, sentence
                  marks removed, layers stacked, padding cut off. One thing differs: the states of its LSTMs
                  are forgotten before each batch, for ours is stateless.
  ours, float32   `ElmoEmbedder.embed_sentences` with batch_size=64, which reads ahead, puts sentences of
                  similar length into a batch and restores the order.
  ours, others    The same in the precisions that --precisions asks for.

The file is taken in slices of 1,024 sentences. All embed a slice, from its tokens to an array for each
sentence, before any goes on to the next; the order in which they do so turns round with each slice, so that
what slows the machine for a while slows all. A time is the sum over all slices. Our word cache is empty at
the start of the file and fills on the way, as in real use. (Where vectors are as wide as the original's,
slices cost ours a little: it sorts about 22,000 tokens at a time, and the rest of a slice by itself.)
Not in the times: reading the file; the comparison; and loading, which has a column of its own and goes up to
the vectors of a first word, since ours packs its weights for that.

The largest difference is between two numbers of the same place, over all layers, tokens and sentences, from
AllenNLP's. In float32 one above 1e-5 (or NaN) is an error: the table is printed all the same, and the exit
status is 1. Other precisions round weights, and how far that takes them is only shown.

Of weight files in float16 all read a copy in float32: AllenNLP's would add to the forget bias in float16.
It runs on the CPU, on as many threads as torch takes (OMP_NUM_THREADS sets that). The table is in Markdown;
progress and the time left go to stderr.

    python benchmarks/embedding_comparison.py --text corpus.txt --sentences 256 --bilm elmo_mini
    python benchmarks/embedding_comparison.py --text corpus.txt --json runs/embedding_comparison.json

The first takes seconds. The second takes the whole file, once with elmo_mini and once with random weights of
the original's shape (2 layers of 4096 cells projected to 512), which need about 5 GB of memory and, on two
cores, some 6 s for 1,000 words.
"""

import argparse
import itertools
import json
import platform
import shlex
import sys
import time
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import h5py
import numpy
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules.elmo import _ElmoBiLm, batch_to_ids
from allennlp.nn.util import remove_sentence_boundaries
from inference_cases import FLOAT32, ROWS_PER_FILE_BATCH, TOLERANCE, Sentence, num_words
from inference_report import ALLENNLP, cpu_capabilities
from inference_speed import ORIGINAL, positive, saved
from tqdm import tqdm
from training_speed import machine

from elmo_plugin import BiLM, ElmoEmbedder, __version__
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.kernels import PRECISIONS
from elmo_plugin.bilm.model_files import names_both_files, resolve_model_files
from elmo_plugin.embedding.sentences import InputOptions, SentenceSource

SENTENCES_PER_SLICE = 16 * ROWS_PER_FILE_BATCH
# In place of a biLM's name: random weights of the original's shape.
RANDOM = "random"
CPU = torch.device("cpu")

# From sentences to the vectors of each, `(num_layers, num_tokens, dim)`, in order.
Embed = Callable[[List[Sentence]], Iterable[numpy.ndarray]]


class Measured(NamedTuple):
    """
    What is known of one contender, a file embedded.

    # Parameters

    load_seconds : `float`
        Until the vectors of a first word are there.
    seconds : `List[float]`
        Of each slice.
    differences : `List[float]`
        Of each sentence: the largest from AllenNLP's vectors. Of AllenNLP's none.
    """

    load_seconds: float
    seconds: List[float]
    differences: List[float]

    @property
    def largest_difference(self) -> float:
        """Of all sentences; NaN if one is."""
        return float(numpy.max(self.differences))


def our_embed(options_file: Path, weight_file: Path, precision: str) -> Embed:
    """Ours, with weights packed and no word cached."""
    embedder = ElmoEmbedder(options_file, weight_file, precision=precision)

    def embed(sentences: List[Sentence]) -> Iterator[numpy.ndarray]:
        return embedder.embed_sentences(sentences, batch_size=ROWS_PER_FILE_BATCH)

    list(embed([["One"]]))
    embedder.elmo_bilm.word_cache.clear()
    return embed


def allennlp_embed(options_file: Path, weight_file: Path) -> Embed:
    """
    AllenNLP's.

    # Raises

    `ConfigurationError` if it cannot run this biLM.
    """
    bilm = _ElmoBiLm(str(options_file), str(weight_file)).eval()

    def embed(sentences: List[Sentence]) -> Iterator[numpy.ndarray]:
        for start in range(0, len(sentences), ROWS_PER_FILE_BATCH):
            yield from embed_batch(bilm, sentences[start : start + ROWS_PER_FILE_BATCH])

    list(embed([["One"]]))
    return embed


@torch.no_grad()
def embed_batch(bilm: _ElmoBiLm, sentences: List[Sentence]) -> List[numpy.ndarray]:
    """The vectors of each sentence from one run of AllenNLP's biLM, from zero states."""
    bilm._elmo_lstm.reset_states()
    output = bilm(batch_to_ids(sentences))
    layers = [
        remove_sentence_boundaries(layer, output["mask"])[0] for layer in output["activations"]
    ]
    vectors = torch.stack(layers, dim=1).cpu().numpy()  # (batch_size, num_layers, timesteps, dim)
    return [vectors[row, :, : len(sentence)] for row, sentence in enumerate(sentences)]


def compare(
    name: str,
    options_file: Path,
    weight_file: Path,
    precisions: List[str],
    sentences: List[Sentence],
) -> Dict[str, Measured]:
    """
    Load all contenders, and embed the sentences with each.

    # Parameters

    name : `str`
        Of the biLM, for the progress bar.
    options_file, weight_file : `Path`
        Weights in float32.
    precisions : `List[str]`
        Of ours.
    sentences : `List[Sentence]`
        At least one; none without tokens.

    # Returns

    What was measured of AllenNLP's, the first, and of ours, by precision.

    # Raises

    `ConfigurationError` if a contender cannot run this biLM.
    """
    embeds: Dict[str, Embed] = {}
    measured: Dict[str, Measured] = {}
    for contender in (ALLENNLP, *precisions):
        start = time.perf_counter()
        if contender == ALLENNLP:
            embeds[contender] = allennlp_embed(options_file, weight_file)
        else:
            embeds[contender] = our_embed(options_file, weight_file, contender)
        measured[contender] = Measured(time.perf_counter() - start, [], [])
    # Its average rate tells the time left: contenders are of different speed. Asked to look at the clock at
    # each sentence, it cannot miss the slow ones after the fast.
    with tqdm(
        total=len(sentences) * len(embeds),
        desc=name,
        unit="sentence",
        smoothing=0,
        mininterval=1.0,
        miniters=1,
        file=sys.stderr,
    ) as progress:
        for number, begin in enumerate(range(0, len(sentences), SENTENCES_PER_SLICE)):
            part = sentences[begin : begin + SENTENCES_PER_SLICE]
            turns = list(embeds) if number % 2 == 0 else list(reversed(embeds))
            vectors: Dict[str, List[numpy.ndarray]] = {}
            for contender in turns:
                progress.set_postfix_str(contender)
                vectors[contender] = []
                start = time.perf_counter()
                for vectors_of_sentence in embeds[contender](part):
                    vectors[contender].append(vectors_of_sentence)
                    progress.update()
                measured[contender].seconds.append(time.perf_counter() - start)
            for precision in precisions:
                measured[precision].differences.extend(
                    largest_difference(ours, theirs)
                    for ours, theirs in zip(vectors[precision], vectors[ALLENNLP], strict=True)
                )
    return measured


def largest_difference(ours: numpy.ndarray, theirs: numpy.ndarray) -> float:
    """Of two arrays' entries. NaN if either has one, infinite if they are not of one shape."""
    if ours.shape != theirs.shape:
        return float("inf")
    return float(numpy.abs(ours - theirs).max())


def disagreement(name: str, measured: Measured) -> Optional[str]:
    """What to say of ours in float32, if it is too far from AllenNLP's."""
    largest = measured.largest_difference
    if largest <= TOLERANCE:
        return None
    # NaN is an extreme to argmax too.
    sentence = int(numpy.argmax(measured.differences)) + 1
    return (
        f"{name}: ours in float32 and AllenNLP's do not agree: the vectors of sentence {sentence:,} differ "
        f"by {largest:.1e}, expected at most {TOLERANCE:.0e}. Their times mean nothing."
    )


HEADER = (
    "| biLM | contender | seconds | tokens/s | times AllenNLP's speed | largest difference | loading, s |\n"
    "|---|---|---|---|---|---|---|"
)


def table_rows(label: str, measured: Dict[str, Measured], num_tokens: int) -> str:
    """The lines of the table for one biLM."""
    lines = []
    for contender, result in measured.items():
        seconds = sum(result.seconds)
        cells = [
            label,
            contender if contender == ALLENNLP else f"ours, {contender}",
            f"{seconds:,.1f}",
            f"{num_tokens / seconds:,.0f}",
            f"{sum(measured[ALLENNLP].seconds) / seconds:.2f}",
            f"{result.largest_difference:.1e}" if result.differences else "–",
            f"{result.load_seconds:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def to_json(options: BiLMOptions, measured: Dict[str, Measured], num_tokens: int) -> Dict[str, Any]:
    """All that was measured of one biLM; sentences are counted from 1."""
    results: Dict[str, Any] = {}
    for contender, result in measured.items():
        seconds = sum(result.seconds)
        results[contender] = {
            "load_seconds": result.load_seconds,
            "seconds": seconds,
            "seconds_of_slices": result.seconds,
            "tokens_per_second": num_tokens / seconds,
            "speed_ratio": sum(measured[ALLENNLP].seconds) / seconds,
        }
        if result.differences:
            results[contender]["largest_difference"] = result.largest_difference
            results[contender]["sentence_of_it"] = int(numpy.argmax(result.differences)) + 1
    return {"options": options.to_dict(), "contenders": results}


def model_files(name: str) -> Tuple[Path, Path]:
    """
    Options and weights of a biLM that --bilm names.

    # Raises

    `ConfigurationError` naming what is not there.
    """
    if names_both_files(name):
        return resolve_model_files(name, None)
    return resolve_model_files(Path(name, "options.json"), Path(name, "weights.hdf5"))


@contextmanager
def float32_files(name: str) -> Iterator[Tuple[Path, Path]]:
    """Files that AllenNLP reads as ours does; those that are written for that are there for a while."""
    with TemporaryDirectory() as folder:
        if name == RANDOM:
            print("Writing random weights of the original's shape ...", file=sys.stderr)
            torch.manual_seed(0)
            yield saved(BiLM(ORIGINAL), folder)
            return
        files = model_files(name)
        bilm = BiLM.from_files(*files)
        with h5py.File(files[1]) as file:
            is_exact = file["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B"].dtype == "float32"
        yield files if is_exact else saved(bilm, folder)


def new_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    # fmt: off
    add("--text", type=Path, required=True, metavar="FILE",
        help="UTF-8 text, plain or .gz, one tokenized sentence on each line, words set apart by white space; "
        "blank lines are left out; required")
    add("--bilm", nargs="+", default=["elmo_mini", RANDOM], metavar="NAME_OR_FOLDER",
        help="biLMs, one after the other: a name such as elmo_mini, a .zip or a folder with options.json and "
        f"weights.hdf5, or {RANDOM} for random weights of the original's shape (default: elmo_mini {RANDOM})")
    others = [precision for precision in PRECISIONS if precision != FLOAT32]
    add("--precisions", nargs="+", choices=others, default=[], metavar="PRECISION",
        help=f"of ours, beside float32: {', '.join(others)} (default: none)")
    add("--sentences", type=positive, metavar="N",
        help="take the first N sentences, for a quick look (default: the whole file)")
    add("--json", type=Path, metavar="FILE",
        help="write all numbers here, with the time of each slice and what they were measured on; written "
        "anew after each biLM")
    # fmt: on
    return parser


def main(argv: Optional[List[str]] = None) -> None:
    parser = new_parser()
    arguments = parser.parse_args(argv)
    try:
        if arguments.json is not None:
            arguments.json.parent.mkdir(parents=True, exist_ok=True)
        source = SentenceSource(arguments.text, InputOptions(skip_blank=True))
        found = itertools.islice(source.sentences(), arguments.sentences)
        sentences = [sentence.tokens for sentence in found]
        for name in arguments.bilm:
            if name != RANDOM:
                BiLM.from_files(*model_files(name))
    except (ConfigurationError, OSError) as error:
        parser.error(str(error))
    precisions = [name for name in PRECISIONS if name in (FLOAT32, *arguments.precisions)]
    num_tokens = num_words(sentences)
    print(
        f"{machine(CPU)}; {len(sentences):,} sentences, {num_tokens:,} tokens\n\n{HEADER}",
        flush=True,
    )
    report: Dict[str, Any] = {
        "command": shlex.join([sys.argv[0], *(sys.argv[1:] if argv is None else argv)]),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(CPU),
        "threads": torch.get_num_threads(),
        "cpu_capabilities": cpu_capabilities(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "allennlp": metadata.version("allennlp"),
            "elmo_plugin": __version__,
        },
        "num_sentences": len(sentences),
        "num_tokens": num_tokens,
        "bilms": {},
    }
    problems: List[str] = []
    for name in arguments.bilm:
        try:
            with float32_files(name) as files:
                options = BiLMOptions.from_file(files[0])
                measured = compare(name, *files, precisions, sentences)
        except ConfigurationError as error:
            sys.exit(f"{name}: {error}")
        label = f"{name} ({options.cell_size} cells, projection {options.projection_dim})"
        print(table_rows(label, measured, num_tokens), flush=True)
        report["bilms"][name] = to_json(options, measured, num_tokens)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
        problem = disagreement(name, measured[FLOAT32])
        if problem is not None:
            problems.append(problem)
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
