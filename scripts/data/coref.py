"""LitBank's coreference in the rows of CoNLL-2012."""

import hashlib
import re
from collections import defaultdict
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Set, Tuple

from sources import LITBANK, list_files, read_text

BRACKET = re.compile(r"\((\d+)\)?|(\d+)\)")
DOCUMENT_SUFFIX = "_brat.conll"

# First word, last word, cluster.
Mention = Tuple[int, int, int]
# Words, each with its cell in the coreference column.
Sentence = List[Tuple[str, str]]


def order_by_hash(names: Iterable[str]) -> List[str]:
    """Return a fixed pseudo-random order that depends on the names alone."""
    return sorted(names, key=lambda name: hashlib.sha1(name.encode("utf-8")).hexdigest())


def document_names(litbank: Path) -> List[str]:
    paths = list_files(litbank / "coref" / "conll", "*")
    return [path.name[: -len(DOCUMENT_SUFFIX)] for path in paths]


def split_documents(names: List[str]) -> Dict[str, List[str]]:
    """Split the documents of LitBank 80/10/10, by the hashes of their names."""
    order = order_by_hash(names)
    num_dev = len(order) // 10
    num_train = len(order) - 2 * num_dev
    return {
        "train": sorted(order[:num_train]),
        "dev": sorted(order[num_train : num_train + num_dev]),
        "test": sorted(order[num_train + num_dev :]),
    }


def find_mentions(cells: List[str]) -> Set[Mention]:
    """Return the mentions of a sentence; brackets without a partner are ignored."""
    open_brackets: Dict[int, List[int]] = defaultdict(list)
    mentions = set()
    for i, cell in enumerate(cells):
        if BRACKET.sub("", cell).strip("|"):
            raise ValueError(f"'{cell}' is no cell of a coreference column")
        for match in BRACKET.finditer(cell):
            cluster = int(match.group(1) or match.group(2))
            if match.group(1) and match.group(0).endswith(")"):
                mentions.add((i, i, cluster))
            elif match.group(1):
                open_brackets[cluster].append(i)
            elif open_brackets[cluster]:
                mentions.add((open_brackets[cluster].pop(), i, cluster))
    return mentions


def coreference_column(length: int, mentions: Set[Mention]) -> List[str]:
    """Write mentions as brackets; outer spans open first and close last."""
    cells: List[List[str]] = [[] for _ in range(length)]
    for start, end, cluster in sorted(mentions, key=lambda mention: (mention[0], -mention[1])):
        cells[start].append(f"({cluster})" if start == end else f"({cluster}")
    for start, end, cluster in sorted(mentions, key=lambda mention: (mention[1], -mention[0])):
        if start != end:
            cells[end].append(f"{cluster})")
    return ["|".join(cell) or "-" for cell in cells]


def read_sentences(text: str) -> Iterator[Sentence]:
    sentence: Sentence = []
    for line in [*text.split("\n"), ""]:
        if line.startswith("#"):
            continue
        if line.strip():
            cells = line.split("\t")
            sentence.append(("".join(cells[3].split()) or "_", cells[-1].strip().strip("_")))
        elif sentence:
            yield sentence
            sentence = []


def document_rows(identity: str, sentences: Iterable[Sentence]) -> str:
    lines = [f"#begin document ({identity}); part 000"]
    for sentence in sentences:
        column = coreference_column(len(sentence), find_mentions([cell for _, cell in sentence]))
        last = len(sentence) - 1
        for i, (token, _) in enumerate(sentence):
            parse = ("(TOP" if i == 0 else "") + "*" + (")" if i == last else "")
            fields = [identity, "0", str(i), token, "XX", parse, "-", "-", "-", "-", "*", column[i]]
            lines.append("\t".join(fields))
        lines.append("")
    return "\n".join(lines) + "\n#end document\n"


def coref(sources: Path, data: Path) -> Dict[str, str]:
    folder = LITBANK.folder(sources)
    files = {}
    for part, names in split_documents(document_names(folder)).items():
        documents = []
        for name in names:
            text = read_text(folder / "coref" / "conll" / f"{name}{DOCUMENT_SUFFIX}")
            documents.append(document_rows(f"litbank/{name}", read_sentences(text)))
        files[f"{part}.gold_conll"] = "".join(documents)
    return files
