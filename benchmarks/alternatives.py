"""
The section alternatives: words per second and memory of ELMo beside what a reader would choose instead, all
with random weights, each in a process of its own (contender.py).
"""

import importlib.util
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import pandas
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from measurement import RANDOM, Options, Sentence, float32_files, num_words
from tokenizers import BertWordPieceTokenizer
from tqdm import tqdm

from elmo_plugin.bilm.processor import has_bfloat16_products
from elmo_plugin.report.tables import Part

CONTENDER = Path(__file__).with_name("contender.py")
WORDS_PER_BATCH = 1024
# With a vocabulary learnt from so little text, this many entries give about as many pieces per word as
# those of published models.
VOCABULARY_SIZE = 12_000
BILMS = {"ELMo, original": RANDOM, "ELMo, elmo_mini": "elmo_mini"}
COLORS = {
    "elmo_plugin": "#0b3c5d",
    "allennlp": "#999999",
    "transformers": "#d9b310",
    "model2vec": "#3a7d44",
}
LABELS = {
    "elmo_plugin": "ELMo, elmo_plugin",
    "allennlp": "ELMo, AllenNLP",
    "transformers": "transformers",
    "model2vec": "static, model2vec",
}


class Contender(NamedTuple):
    """A row of the table: its label, library, precision, and the settings that are its own."""

    label: str
    library: str
    precision: str
    settings: Dict[str, Any]


def alternatives_parts(options: Options, sentences: List[Sentence]) -> Iterator[Tuple[str, Part]]:
    """Yield the table again after each contender, so that an interrupt loses one of them only."""
    sentences = sentences[: options.effort.alternatives]
    batches = batches_by_words(sentences)
    rows: List[Dict[str, Any]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        tokenizer = trained_tokenizer(options.text)
        tokenizer.save(str(folder / "tokenizer.json"))
        pieces = num_pieces(tokenizer, sentences) / num_words(sentences)
        (folder / "batches.json").write_text(json.dumps(batches), encoding="utf-8")
        files = {
            label: [str(file) for file in stack.enter_context(float32_files(name))]
            for label, name in BILMS.items()
        }
        common = {
            "tokenizer": str(folder / "tokenizer.json"),
            "batches": str(folder / "batches.json"),
            "repetitions": options.effort.rounds,
            "threads": torch.get_num_threads(),
        }
        contenders, missing = all_contenders(files, options.precisions)
        failed: List[str] = []
        for contender in tqdm(contenders, desc="alternatives", unit="process", file=sys.stderr):
            label, library, precision, settings = contender
            try:
                result = measure({"library": library, "precision": precision, **common, **settings})
            except subprocess.CalledProcessError as error:
                print(error.stderr, file=sys.stderr)
                failed.append(f"{label}, {precision}: {error.stderr.strip().splitlines()[-1:]}")
                continue
            has_pieces = library in ("transformers", "model2vec")
            rows.append(
                {
                    "contender": label,
                    "library": library,
                    "precision": precision,
                    "million parameters": round(result["parameters"] / 1e6, 1),
                    "words/s": round(num_words(sentences) / result["seconds"]),
                    "pieces per word": round(pieces, 2) if has_pieces else None,
                    "peak memory, MiB": round(result["peak"]),
                    "of which libraries, MiB": round(result["libraries"]),
                }
            )
            notes = [
                *notes_of(sentences, options),
                *missing,
                *(f"Not measured: {one}" for one in failed),
            ]
            frame = pandas.DataFrame(rows)
            yield "alternatives", Part("ELMo and its alternatives", frame, notes, figure_of(frame))
    if failed:
        raise RuntimeError("; ".join(failed))


def all_contenders(
    files: Dict[str, List[str]], precisions: Sequence[str]
) -> Tuple[List[Contender], List[str]]:
    """Return the contenders that can run here, and a note on those that cannot."""
    contenders: List[Contender] = []
    missing: List[str] = []
    for label, bilm_files in files.items():
        contenders.append(Contender(label, "allennlp", "float32", {"files": bilm_files}))
        contenders += [
            Contender(label, "elmo_plugin", precision, {"files": bilm_files})
            for precision in precisions
        ]
    shown = list(precisions)
    if "bfloat16" in shown and not has_bfloat16_products():
        shown.remove("bfloat16")
        missing.append(
            "This processor has no products in bfloat16, so transformers run in float32 and int8."
        )
    for shape in ("BERT-base", "DistilBERT", "MiniLM"):
        label = "MiniLM, 6 layers of 384" if shape == "MiniLM" else shape
        contenders += [
            Contender(label, "transformers", precision, {"shape": shape}) for precision in shown
        ]
    if importlib.util.find_spec("model2vec") is None:
        missing.append("model2vec is not installed: `pip install --no-deps model2vec`.")
    else:
        contenders.append(Contender("static embedding", "model2vec", "float32", {}))
    return contenders, missing


def batches_by_words(sentences: Sequence[Sentence]) -> List[List[Sentence]]:
    """Sort sentences by length and cut them into batches of at most `WORDS_PER_BATCH` words."""
    batches: List[List[Sentence]] = [[]]
    for sentence in sorted(sentences, key=len):
        if batches[-1] and num_words(batches[-1]) + len(sentence) > WORDS_PER_BATCH:
            batches.append([])
        batches[-1].append(sentence)
    return batches


def trained_tokenizer(text: str) -> BertWordPieceTokenizer:
    """Return BERT's tokenizer with a vocabulary learnt from the text, for real numbers of pieces."""
    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train([text], vocab_size=VOCABULARY_SIZE, show_progress=False)
    return tokenizer


def num_pieces(tokenizer: BertWordPieceTokenizer, sentences: Sequence[Sentence]) -> int:
    """Return the number of pieces of all words, without BERT's marks around each sentence."""
    texts = [" ".join(sentence) for sentence in sentences]
    return sum(len(found.ids) for found in tokenizer.encode_batch(texts, add_special_tokens=False))


def measure(settings: Dict[str, Any]) -> Dict[str, float]:
    """Run a contender in a process, and return what it prints."""
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", str(CONTENDER), json.dumps(settings)],
        env={**os.environ, "RAYON_NUM_THREADS": str(settings["threads"])},  # of tokenizers
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(finished.stdout.splitlines()[-1])


def notes_of(sentences: Sequence[Sentence], options: Options) -> List[str]:
    return [
        f"{len(sentences):,} sentences ({num_words(sentences):,} words), sorted by length, in batches of at "
        f"most {WORDS_PER_BATCH:,} words, the same for all; from words to vectors of every word or piece, "
        "tokenization included; our word cache is empty at first. Random weights: speed and memory do not "
        "depend on them, and quality is not compared. Each in a process of its own, median of "
        f"{options.effort.rounds} runs after an untimed one. Peak memory is the whole process's; libraries: "
        "after imports, before any model. The tokenizer is BERT's, with a vocabulary of "
        f"{VOCABULARY_SIZE:,} learnt from the text; models of transformers have the 30,522 rows of BERT's. "
        "Their int8 is torch's dynamic quantization of linear layers."
    ]


def figure_of(frame: pandas.DataFrame) -> Figure:
    """Draw two bars for each contender: words per second and peak memory."""
    frame = frame.sort_values("words/s")
    names = [
        f"{row.contender}, {'AllenNLP' if row.library == 'allennlp' else row.precision}"
        for row in frame.itertuples()
    ]
    figure = Figure(figsize=(10, 1.5 + 0.32 * len(frame)), layout="constrained", facecolor="white")
    speeds, memory = figure.subplots(1, 2, sharey=True)
    colors = [COLORS[library] for library in frame["library"]]
    for axes, column, title in (
        (speeds, "words/s", "words per second (logarithmic)"),
        (memory, "peak memory, MiB", "peak memory of the process, MiB (light: libraries)"),
    ):
        bars = axes.barh(names, frame[column], color=colors)
        axes.bar_label(bars, [f"{value:,}" for value in frame[column]], padding=3, fontsize=9)
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.15)
    memory.barh(names, frame["of which libraries, MiB"], color="white", alpha=0.45)
    speeds.set_xscale("log")
    speeds.set_xlim(frame["words/s"].min() / 2, frame["words/s"].max() * 5)
    shown = {
        LABELS[library]: color
        for library, color in COLORS.items()
        if library in set(frame["library"])
    }
    handles = [Patch(color=color, label=label) for label, color in shown.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure
