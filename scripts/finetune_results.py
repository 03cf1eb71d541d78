"""
Adapt a biLM to text with training_configs/bilm_finetune.jsonnet, one epoch each, and print the table of
RESULTS.md: held-out perplexity before and after. The text is that of a folder, or of a task:

    python scripts/finetune_results.py --start elmo_mini --vocabulary elmo_mini \\
        --text wikitext=data/lm/wikitext:lines sst=data/sst:trees snli=data/snli:snli srl=data/srl:conll

`lines` reads train.txt and heldout.txt of the folder, `trees` train.txt and dev.txt of the Stanford Sentiment
Treebank, `snli` both sentences of each pair in train.jsonl and dev.jsonl, `conll` the fourth column of
train.gold_conll and dev.gold_conll. Each sentence is taken once. Finished runs are kept.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Tuple

from elmo_plugin.tasks.conll_2012 import read_conll_2012
from elmo_plugin.tasks.rule_based_tokenizer import RuleBasedTokenizer

CONFIG = "training_configs/bilm_finetune.jsonnet"


def lines(path: Path) -> Iterator[str]:
    """Text that is ready."""
    yield from path.read_text(encoding="utf-8").splitlines()


def trees(path: Path) -> Iterator[str]:
    """The leaves of each bracketed tree."""
    for tree in lines(path):
        leaves = re.findall(r"\(\d ([^()]+)\)", tree)
        yield " ".join(leaf.replace("-LRB-", "(").replace("-RRB-", ")") for leaf in leaves)


def snli(path: Path) -> Iterator[str]:
    """The sentences of each pair, split by rule."""
    tokenizer = RuleBasedTokenizer()
    for line in lines(path):
        pair = json.loads(line)
        for key in ("sentence1", "sentence2"):
            yield " ".join(token.text for token in tokenizer.tokenize(pair[key]))


def conll(path: Path) -> Iterator[str]:
    """The words of each sentence of a CoNLL-2012 file."""
    for document in read_conll_2012(path):
        for sentence in document.sentences():
            yield " ".join(sentence.words)


KINDS: Dict[str, Tuple[Callable[[Path], Iterator[str]], str, str]] = {
    "lines": (lines, "train.txt", "heldout.txt"),
    "trees": (trees, "train.txt", "dev.txt"),
    "snli": (snli, "train.jsonl", "dev.jsonl"),
    "conll": (conll, "train.gold_conll", "dev.gold_conll"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--start", required=True, help="as LM_START in the config")
    parser.add_argument("--vocabulary", required=True, help="as LM_VOCABULARY in the config")
    parser.add_argument("--text", nargs="+", required=True, metavar="NAME=FOLDER:KIND")
    parser.add_argument("--output", type=Path, default=Path("runs/finetune_results"))
    parser.add_argument("--overrides", default="{}", help="of the config")
    args = parser.parse_args()
    rows = [
        "| text | training words | perplexity before | after one epoch |",
        "|---|---|---|---|",
    ]
    for text in args.text:
        name, _, source = text.partition("=")
        folder, _, kind = source.rpartition(":")
        if kind not in KINDS:
            parser.error(f"--text {text}: expected NAME=FOLDER:KIND, a kind of {', '.join(KINDS)}")
        read, *files = KINDS[kind]
        corpora = [args.output / name / part for part in ("train.txt", "heldout.txt")]
        corpora[0].parent.mkdir(parents=True, exist_ok=True)
        for corpus, file in zip(corpora, files):
            sentences = dict.fromkeys(
                sentence for sentence in read(Path(folder) / file) if sentence
            )
            corpus.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
        num_words = sum(len(line.split(" ")) for line in lines(corpora[0]))
        before, after = finetune(args, corpora, args.output / name / "run")
        rows.append(f"| {name} | {num_words:,} | {before:.1f} | {after:.1f} |")
    print("\n".join(rows))


def finetune(args: argparse.Namespace, corpora: List[Path], folder: Path) -> Tuple[float, float]:
    """Held-out perplexity before and after, of a run that is trained unless it is done."""
    if not (folder / "metrics.json").exists():
        environment = {
            **os.environ,
            "LM_START": args.start,
            "LM_VOCABULARY": args.vocabulary,
            "LM_TRAIN": str(corpora[0]),
            "LM_HELDOUT": str(corpora[1]),
        }
        command = [
            *(sys.executable, "-m", "allennlp", "train", CONFIG, "--force", "-s", str(folder)),
            *("--include-package", "elmo_plugin", "--file-friendly-logging"),
            *("--overrides", args.overrides),
        ]
        with open(f"{folder}.log", "w") as log:
            subprocess.run(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, check=True
            )
        print(f"done: {folder}", file=sys.stderr, flush=True)
    before = json.loads((folder / "metrics_before.json").read_text())
    after = json.loads((folder / "metrics.json").read_text())
    return before["perplexity"], after["best_validation_perplexity"]


if __name__ == "__main__":
    main()
