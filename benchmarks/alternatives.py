"""
Measure words per second and memory of ELMo beside what a reader would choose instead: BERT-base, DistilBERT,
a small MiniLM and a static embedding, all with random weights, each in a separate process (contender.py).

    python benchmarks/alternatives.py --text DATA/lm/wikitext/heldout.txt
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

import torch
from measurement import RANDOM, Table, float32_files, num_words, read_sentences, run_benchmark
from tokenizers import BertWordPieceTokenizer

from elmo_plugin.bilm.processor import CPU, has_bfloat16_products
from elmo_plugin.bilm.runners import AUTO, choose_runner
from elmo_plugin.embedding.sentence_batches import consecutive_groups

CONTENDER = Path(__file__).with_name("contender.py")
NUM_SENTENCES = 320
WORDS_PER_BATCH = 1024
# With a vocabulary learned from so little text, this many entries give about as many pieces per word as
# those of published models.
VOCABULARY_SIZE = 12_000
BILMS = {"ELMo, original": RANDOM, "ELMo, elmo_mini": "elmo_mini"}


class Contender(NamedTuple):
    """A row of the table: its label, library, precision, and a biLM's files or a transformer's shape."""

    label: str
    library: str
    precision: str
    files: Sequence[str] = ()
    shape: str = ""


def main(argv: Optional[List[str]] = None) -> None:
    run_benchmark(__doc__, ("text", "precisions", "threads", "rounds"), tables, argv)


def tables(settings: argparse.Namespace) -> Iterator[Table]:
    """Yield one table; each row is also printed to stderr as soon as it is measured."""
    sentences = read_sentences(settings.text)[:NUM_SENTENCES]
    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train([settings.text], vocab_size=VOCABULARY_SIZE, show_progress=False)
    texts = [" ".join(sentence) for sentence in sentences]
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    pieces_per_word = sum(len(encoding.ids) for encoding in encodings) / num_words(sentences)
    rows: List[Dict[str, Any]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        tokenizer.save(str(folder / "tokenizer.json"))
        by_length = sorted(sentences, key=len)
        batches = list(consecutive_groups(by_length, len(sentences), WORDS_PER_BATCH))
        (folder / "batches.json").write_text(json.dumps(batches), encoding="utf-8")
        files = {label: stack.enter_context(float32_files(name)) for label, name in BILMS.items()}
        for contender in all_contenders(files, settings.precisions):
            result = measure({
                **contender._asdict(),
                "tokenizer": str(folder / "tokenizer.json"),
                "batches": str(folder / "batches.json"),
                "repetitions": settings.rounds,
                "threads": torch.get_num_threads(),
            })  # fmt: skip
            has_pieces = contender.library in ("transformers", "model2vec")
            rows.append(
                {
                    "contender": contender.label,
                    "library": contender.library,
                    "precision": contender.precision,
                    "million parameters": round(result["parameters"] / 1e6, 1),
                    "words/s": round(num_words(sentences) / result["seconds"]),
                    "pieces per word": round(pieces_per_word, 2) if has_pieces else None,
                    "peak memory, MiB": round(result["peak"]),
                    "of which libraries, MiB": round(result["libraries"]),
                }
            )
            print(rows[-1], file=sys.stderr)
    yield Table(
        "ELMo and its alternatives",
        rows,
        f"{len(sentences):,} sentences ({num_words(sentences):,} words), sorted by length, in batches of at "
        f"most {WORDS_PER_BATCH:,} words, the same for all; from words to vectors of every word or piece, "
        "tokenization included; no word is known to ELMo at first. Random weights: speed and memory do not "
        f"depend on them, and quality is not compared. Medians of {settings.rounds} runs after an untimed "
        "one. Peak memory is that of the whole process; libraries: after imports, before any model. The "
        f"tokenizer is BERT's, with a vocabulary of {VOCABULARY_SIZE:,} learned from the text; models of "
        "transformers have the 30,522 rows of BERT's, and their int8 is torch's dynamic quantization of "
        "linear layers. What is not installed, or has no fast products here, is left out.",
    )


def all_contenders(files: Dict[str, Sequence[str]], precisions: Sequence[str]) -> List[Contender]:
    """Return the contenders that can run here."""
    contenders: List[Contender] = []
    for label, bilm_files in files.items():
        contenders.append(Contender(label, "allennlp", "float32", bilm_files))
        contenders += [
            Contender(label, "elmo_plugin", precision, bilm_files)
            for precision in precisions
            if choose_runner(AUTO, precision, CPU)[1] == precision
        ]
    contenders += [
        Contender(shape, "transformers", precision, shape=shape)
        for shape in ("BERT-base", "DistilBERT", "MiniLM")
        for precision in precisions
        if precision != "bfloat16" or has_bfloat16_products()
    ]
    if importlib.util.find_spec("model2vec") is not None:
        contenders.append(Contender("static embedding", "model2vec", "float32"))
    return contenders


def measure(settings: Dict[str, Any]) -> Dict[str, float]:
    """Run a contender in a process, and return what it prints."""
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", str(CONTENDER), json.dumps(settings)],
        env={**os.environ, "RAYON_NUM_THREADS": str(settings["threads"])},  # of tokenizers
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(finished.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
