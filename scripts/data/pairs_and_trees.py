"""SNLI's pairs as JSON lines, and the trees of the Stanford Sentiment Treebank."""

import csv
import io
import json
from pathlib import Path
from typing import Any, Dict, List, Tuple

from sources import SNLI_DEV, SNLI_FIELDS, SNLI_TEST, SST_TREES, read_text

LABELS = ("entailment", "neutral", "contradiction")
NUM_TRAINING_PAIRS = 8000
# The source's train.txt repeats the 1,101 trees of dev after these.
NUM_TRAINING_TREES = 8544


def sst(sources: Path, data: Path) -> Dict[str, str]:
    files = {}
    for part in ("train", "dev", "test"):
        text = read_text(SST_TREES.folder(sources) / "trees" / f"{part}.txt")
        trees = [line for line in text.split("\n") if line.strip()]
        if part == "train":
            trees = trees[:NUM_TRAINING_TREES]
        files[f"{part}.txt"] = "\n".join(trees) + "\n"
    return files


def read_json_lines(path: Path) -> List[Dict[str, Any]]:
    return [json.loads(line) for line in read_text(path).split("\n") if line.strip()]


def snli(sources: Path, data: Path) -> Dict[str, str]:
    """
    Return the official test pairs, and the official dev pairs cut into train and dev.

    Pairs whose premise first occurs among the first 8,000 are train, so that no premise is in both.
    """
    # Two pieces of the official dev file with annotators' labels, ids and parses. One is named "test".
    known_records: Dict[Tuple[str, str], Dict[str, Any]] = {}
    for piece in ("dev", "test"):
        path = SNLI_FIELDS.folder(sources) / "snli_1.0" / f"snli_1.0_{piece}.jsonl"
        for pair in read_json_lines(path):
            known_records[pair["sentence1"].strip(), pair["sentence2"].strip()] = pair

    def record(premise: str, hypothesis: str, label: str) -> Dict[str, Any]:
        known = known_records.get((premise, hypothesis))
        if known and known["gold_label"] == label:
            return known
        return {
            "annotator_labels": [],
            "gold_label": label,
            "sentence1": premise,
            "sentence2": hypothesis,
        }

    parts: Dict[str, List[Dict[str, Any]]] = {"train": [], "dev": [], "test": []}
    first_pair: Dict[str, int] = {}
    dev_file = SNLI_DEV.folder(sources) / "data" / "snli" / "dev.jsonl"
    for i, pair in enumerate(read_json_lines(dev_file)):
        premise = pair["premise"].strip()
        is_training = first_pair.setdefault(premise, i) < NUM_TRAINING_PAIRS
        parts["train" if is_training else "dev"].append(
            record(premise, pair["hypothesis"].strip(), pair["label"])
        )
    test_file = SNLI_TEST.folder(sources) / "data" / "snli" / "test.tsv"
    rows = csv.reader(io.StringIO(read_text(test_file), newline=""), delimiter="\t")
    next(rows)  # the names of the columns
    for premise, hypothesis, number in rows:
        parts["test"].append(record(premise.strip(), hypothesis.strip(), LABELS[int(number)]))
    return {
        f"{part}.jsonl": "".join(
            json.dumps(pair, ensure_ascii=False, sort_keys=True) + "\n" for pair in pairs
        )
        for part, pairs in parts.items()
    }
