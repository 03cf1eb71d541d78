"""PropBank's English Web Treebank with the words of UD English-EWT, in the rows of CoNLL-2012."""

import re
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

from sources import PROPBANK, UD_EWT, list_files, read_text

MIN_TAG_AGREEMENT = 0.6

# The cells of a sentence's rows.
Rows = List[List[str]]
# Words with their parts of speech.
Words = List[Tuple[str, str]]
# First word, last word, label.
Span = Tuple[int, int, str]


class UnusableSentenceError(ValueError):
    """A sentence whose columns are inconsistent."""


def skeleton_sentences(text: str) -> Iterator[Rows]:
    for block in re.split(r"\n\s*\n", text):
        rows = [line.split() for line in block.split("\n") if line.strip()]
        if rows:
            yield rows


def ud_sentences(text: str) -> Iterator[Words]:
    for block in re.split(r"\n\s*\n", text):
        rows = [line.split("\t") for line in block.split("\n") if line.strip() and line[0] != "#"]
        words = [(cells[1], cells[4]) for cells in rows if cells[0].isdigit()]
        if words:
            yield words


def tag_agreement(skeleton: Rows, words: Words) -> float:
    """Return the share of equal parts of speech; 0 for sentences of different lengths."""
    if len(skeleton) != len(words):
        return 0.0
    return sum(row[4] == tag for row, (_, tag) in zip(skeleton, words)) / len(words)


def align(skeletons: List[Rows], sentences: List[Words]) -> Dict[int, int]:
    """Pair the two lists of sentences in order, with the most words in sentences that agree."""
    n, m = len(skeletons), len(sentences)
    best = [[0.0] * (m + 1) for _ in range(n + 1)]
    gains: Dict[Tuple[int, int], float] = {}
    for i in range(n - 1, -1, -1):
        for j in range(m - 1, -1, -1):
            agreement = tag_agreement(skeletons[i], sentences[j])
            gain = agreement * len(sentences[j]) if agreement >= MIN_TAG_AGREEMENT else 0.0
            gains[i, j] = gain
            paired = best[i + 1][j + 1] + gain if gain else 0.0
            best[i][j] = max(best[i + 1][j], best[i][j + 1], paired)
    pairs = {}
    i = j = 0
    while i < n and j < m:
        if gains[i, j] and best[i][j] == best[i + 1][j + 1] + gains[i, j]:
            pairs[i] = j
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return pairs


def read_spans(column: List[str]) -> List[Span]:
    """Return the spans of an argument column."""
    spans = []
    label, start = "", -1
    for i, cell in enumerate(column):
        match = re.fullmatch(r"(?:\(([A-Za-z0-9-]+))?\*(\))?", cell)
        if not match:
            raise UnusableSentenceError(f"'{cell}' is no cell of an argument column")
        if match.group(1):
            if label:
                raise UnusableSentenceError("nested span")
            label, start = match.group(1), i
        if match.group(2):
            if not label:
                raise UnusableSentenceError("span that is not opened")
            spans.append((start, i, label))
            label = ""
    if label:
        raise UnusableSentenceError("span that is not closed")
    return spans


def check_parse_bits(bits: List[str]) -> None:
    depth = 0
    for bit in bits:
        depth += bit.count("(") - bit.count(")")
        if depth < 0 or bit.count("*") != 1:
            raise UnusableSentenceError("wrong parse bits")
    if depth:
        raise UnusableSentenceError("wrong parse bits")


def conll_2012_rows(skeleton: Rows, words: List[str], identity: str) -> str:
    """
    Return the rows of a sentence. The first word of a predicate's `V` span has its lemma and frameset.

    # Raises

    `UnusableSentenceError` if columns and predicates do not belong together.
    """
    if any(re.search(r"\s", word) or not word for word in words):
        raise UnusableSentenceError("word with a space")
    if len({len(row) for row in skeleton}) != 1:
        raise UnusableSentenceError("rows of different lengths")
    check_parse_bits([row[5] for row in skeleton])
    predicates = [i for i, row in enumerate(skeleton) if row[7] != "-"]
    columns = []
    for k in range(8, len(skeleton[0])):
        column = [row[k] for row in skeleton]
        verb_spans = [span for span in read_spans(column) if span[2] == "V"]
        if len(verb_spans) != 1:
            raise UnusableSentenceError("column without exactly one V")
        start, end, _ = verb_spans[0]
        columns.append((start, end, column))
    columns.sort(key=lambda entry: entry[0])
    rolesets = {}
    if len({start for start, _, _ in columns}) != len(columns) or len(columns) != len(predicates):
        raise UnusableSentenceError("not one column for each predicate")
    for (start, end, _), predicate in zip(columns, predicates):
        if not start <= predicate <= end:
            raise UnusableSentenceError("predicate outside its V span")
        rolesets[start] = skeleton[predicate][7]
    lines = []
    for i, (row, word) in enumerate(zip(skeleton, words)):
        lemma, frameset = rolesets[i].rsplit(".", 1) if i in rolesets else ("-", "-")
        arguments = [column[i] for _, _, column in columns]
        fields = [identity, "0", str(i), word, row[4], row[5], lemma, frameset, "-", "-", "*"]
        lines.append("\t".join([*fields, *arguments, "-"]) + "\n")
    return "".join(lines) + "\n"


def document_rows(identity: str, skeletons: List[Rows], sentences: List[Words]) -> str:
    """Return a document without the sentences that cannot be used; empty if there are no others."""
    blocks = []
    for i, j in align(skeletons, sentences).items():
        try:
            blocks.append(
                conll_2012_rows(skeletons[i], [word for word, _ in sentences[j]], identity)
            )
        except UnusableSentenceError:
            continue
    if not blocks:
        return ""
    return f"#begin document ({identity}); part 000\n" + "".join(blocks) + "#end document\n"


def srl(sources: Path, data: Path) -> Dict[str, str]:
    """Make the files, with UD's split; documents without a skeleton are left out."""
    propbank = PROPBANK.folder(sources) / "data" / "google" / "ewt"
    skeleton_files = {}
    for path in list_files(propbank, "*.gold_skel"):
        name = path.relative_to(propbank).as_posix()
        skeleton_files[re.sub(r"/00(?=/)|\.gold_skel$", "", name)] = path
    ewt = UD_EWT.folder(sources) / "not-to-release"
    files = {}
    for part in ("train", "dev", "test"):
        documents = []
        for name in read_text(ewt / "file-lists" / f"files.{part}").split():
            key = re.sub(r"/00(?=/)|\.conllu$", "", name)
            words_file = ewt / "sources" / name.replace("/00/", "/")
            if key in skeleton_files and words_file.exists():
                skeletons = list(skeleton_sentences(read_text(skeleton_files[key])))
                sentences = list(ud_sentences(read_text(words_file)))
                identity = "ewt/" + re.sub(r"\.xml$", "", key)
                documents.append(document_rows(identity, skeletons, sentences))
        files[f"{part}.gold_conll"] = "".join(documents)
    return files
