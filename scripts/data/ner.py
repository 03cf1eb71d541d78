"""WikiGold, WNUT 2017 and UniversalNER's English web text as files of four columns, as in CoNLL-2003."""

from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Tuple

from sources import ENTITY_DATASETS, UNIVERSAL_NER, read_text

DOCUMENT_START = "-DOCSTART-"

# Tokens with their tags. The start of a document is a separate sentence.
Sentence = List[Tuple[str, str]]
START: Sentence = [(DOCUMENT_START, "O")]


def read_sentences(text: str, separator: str) -> Iterator[Sentence]:
    """Read `TOKEN<separator>TAG` rows; blank lines end sentences."""
    sentence: Sentence = []
    for line in [*text.split("\n"), ""]:
        is_start = bool(line.strip()) and line.rsplit(separator, 1)[0] == DOCUMENT_START
        if line.strip() and not is_start:
            token, tag = line.rsplit(separator, 1)
            sentence.append(("".join(token.split()) or "_", tag.strip()))
            continue
        if sentence:
            yield sentence
        sentence = []
        if is_start:
            yield START


def four_columns(sentences: List[Sentence]) -> str:
    """Write sentences in columns, a document line first, none without a sentence."""
    if not sentences or sentences[0] is not START:
        sentences = [START, *sentences]
    blocks = []
    for i, sentence in enumerate(sentences):
        if sentence is START and (i + 1 == len(sentences) or sentences[i + 1] is START):
            continue
        blocks.append("".join(f"{token} -X- O {tag}\n" for token, tag in sentence))
    return "\n".join(blocks) + "\n"


def documents(sentences: Iterable[Sentence]) -> List[List[Sentence]]:
    """Group sentences by document."""
    groups: List[List[Sentence]] = [[]]
    for sentence in sentences:
        if sentence is START and groups[-1]:
            groups.append([])
        groups[-1].append(sentence)
    return groups


def wikigold(sources: Path, data: Path) -> Dict[str, str]:
    """Blocks of whole documents in the source's order, cut where 70 and 80 % of the sentences are reached."""
    folder = ENTITY_DATASETS.folder(sources) / "data" / "wikigold" / "CONLL-format" / "data"
    groups = documents(read_sentences(read_text(folder / "wikigold.conll.txt"), " "))
    lengths = [sum(sentence is not START for sentence in group) for group in groups]
    parts: Dict[str, List[Sentence]] = {"train": [], "dev": [], "test": []}
    num_before = 0
    for group, length in zip(groups, lengths):
        share = num_before / sum(lengths)
        parts["train" if share < 0.7 else "dev" if share < 0.8 else "test"] += group
        num_before += length
    return {f"{part}.conll": four_columns(sentences) for part, sentences in parts.items()}


def wnut17(sources: Path, data: Path) -> Dict[str, str]:
    folder = ENTITY_DATASETS.folder(sources) / "data" / "WNUT17" / "CONLL-format" / "data"
    paths = {
        "train": "train/wnut17train.conll",
        "dev": "dev/emerging.dev.conll",
        "test": "test/emerging.test.annotated",
    }
    return {
        f"{part}.conll": four_columns(list(read_sentences(read_text(folder / path), "\t")))
        for part, path in paths.items()
    }


def uner_documents(text: str) -> List[str]:
    """Return a file of UniversalNER as documents in four columns; words of several tokens are left out."""
    blocks: List[str] = []
    rows: List[str] = []
    for line in text.split("\n"):
        if line.startswith("# newdoc"):
            blocks.append(f"{DOCUMENT_START} -X- O O")
        elif line[:1].isdigit():
            number, word, tag = line.split("\t")[:3]
            if number.isdigit():
                rows.append(f"{word.replace(' ', '_')} -X- O {tag}")
        elif not line and rows:
            blocks.append("\n".join(rows))
            rows = []
    return "\n\n".join(blocks).split(f"{DOCUMENT_START} -X- O O")[1:]


def uner_ewt(sources: Path, data: Path) -> Dict[str, str]:
    """Its dev file, cut into train and dev after 85 % of the documents, and its test file."""
    folder = UNIVERSAL_NER.folder(sources)
    dev = uner_documents(read_text(folder / "en_ewt-ud-dev.iob2"))
    cut = int(len(dev) * 0.85)
    parts = {
        "train": dev[:cut],
        "dev": dev[cut:],
        "test": uner_documents(read_text(folder / "en_ewt-ud-test.iob2")),
    }
    return {
        f"{part}.conll": "".join(
            f"{DOCUMENT_START} -X- O O\n\n{document.strip()}\n\n" for document in texts
        )
        for part, texts in parts.items()
    }
