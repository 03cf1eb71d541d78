"""Sentences of the novels of LitBank; WikiText-2 and WikiSplit, which are tokenized already, as sentences."""

import random
import re
from pathlib import Path
from typing import Dict, Iterator, List

from coref import document_names, order_by_hash, split_documents
from sentence_splitting import MAX_TOKENS, MIN_TOKENS, clean, is_usable, split_sentences, tokenize
from sources import LITBANK, WIKISPLIT, WIKITEXT, list_files, read_text

SEED = 13
SHARD_BYTES = 2_000_000
HELDOUT_SHARE = 0.03
# The coreference data are the first 2,000 words or so of each novel.
OPENING_WORDS = 2600

HEADING = re.compile(
    r"^(chapter|book|part|volume|vol\.|phase|scene|act|stave|letter|canto|section|preface|epilogue|"
    r"prologue|introduction|contents|finis|the end|end of|illustration|footnote|note|by)\b",
    re.IGNORECASE,
)
NUMERAL = re.compile(r"^[\W_]*([ivxlcdm]+|\d+)[\W_]*$", re.IGNORECASE)
CONTENTS_LINE = re.compile(r"^\s*(chapter\s+)?([ivxlc]+|\d+)[.:)\s]", re.IGNORECASE)


def is_heading(paragraph: str) -> bool:
    letters = [character for character in paragraph if character.isalpha()]
    if not letters or NUMERAL.match(paragraph):
        return True
    if len(paragraph.split()) > 12:
        return False
    upper_share = sum(character.isupper() for character in letters) / len(letters)
    return bool(
        (HEADING.match(paragraph) and (upper_share > 0.5 or paragraph[-1] not in "!?\"',;"))
        or (upper_share > 0.8 and len(letters) > 3)
        or paragraph[-1].isalnum()
    )


def paragraphs(text: str) -> Iterator[str]:
    """Undo the line breaks of a novel; leave out headings and tables of contents."""
    for block in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in block.split("\n") if line.strip()]
        if not lines:
            continue
        num_contents_lines = sum(bool(CONTENTS_LINE.match(line)) for line in lines)
        if len(lines) >= 3 and num_contents_lines * 2 >= len(lines):
            continue
        # A word broken at a hyphen over a line end keeps its hyphen and loses the break.
        joined = re.sub(r"(?<=[a-z])-\n(?=[a-z])", "-", "\n".join(lines))
        paragraph = " ".join(joined.split())
        if not is_heading(paragraph):
            yield paragraph


def novel_sentences(text: str, num_skipped_words: int) -> List[str]:
    """Return the tokenized sentences of a novel, after about this many of its words."""
    num_words, found = 0, []
    for paragraph in paragraphs(clean(text)):
        if num_words < num_skipped_words:
            num_words += len(paragraph.split())
            continue
        for sentence in split_sentences(paragraph):
            tokens = tokenize(sentence)
            if is_usable(tokens):
                found.append(" ".join(tokens))
    return found


def num_bytes(text: str) -> int:
    return len(text.encode("utf-8"))


def novels(sources: Path, data: Path) -> Dict[str, str]:
    """
    100 novels in shards, four whole ones held out.

    Held-out novels are documents of the coreference test set. The openings of the other novels of its dev and
    test sets are left out of the training text.
    """
    folder = LITBANK.folder(sources)
    texts = {path.stem: read_text(path) for path in list_files(folder / "original", "*.txt")}
    documents = split_documents(document_names(folder))
    total = sum(map(num_bytes, texts.values()))
    heldout_names: List[str] = []
    size = 0
    for name in order_by_hash(documents["test"]):
        size_with_it = size + num_bytes(texts[name])
        if size < HELDOUT_SHARE * total and size_with_it <= (HELDOUT_SHARE + 0.005) * total:
            heldout_names.append(name)
            size = size_with_it
    train: List[str] = []
    heldout: List[str] = []
    for name in sorted(texts):
        if name in heldout_names:
            heldout += novel_sentences(texts[name], 0)
        else:
            is_evaluated = name in documents["dev"] or name in documents["test"]
            train += novel_sentences(texts[name], OPENING_WORDS if is_evaluated else 0)
    generator = random.Random(SEED)
    generator.shuffle(train)
    generator.shuffle(heldout)
    num_shards = round(sum(num_bytes(line) + 1 for line in train) / SHARD_BYTES)
    cuts = [len(train) * k // num_shards for k in range(num_shards + 1)]
    shards = {
        f"train-{k:05d}-of-{num_shards:05d}.txt": train[cuts[k] : cuts[k + 1]]
        for k in range(num_shards)
    }
    return {
        name: "\n".join(lines) + "\n" for name, lines in {**shards, "heldout.txt": heldout}.items()
    }


def wikitext_sentences(text: str) -> Iterator[str]:
    """Cut the paragraphs of WikiText-2, which are tokenized, into sentences."""
    for line in text.split("\n"):
        line = line.strip()
        if not line or re.match(r"^=.*=$", line):
            continue
        tokens = re.sub(r" @([-,.])@ ", r"\1", line).split()
        sentence: List[str] = []
        in_quotes = False
        for i, token in enumerate(tokens):
            if token == '"':
                in_quotes = not in_quotes
            sentence.append(token)
            following = tokens[i + 1] if i + 1 < len(tokens) else ""
            ends_with_mark = (
                token in {".", "!", "?"}
                and not (following == '"' and in_quotes)
                and following not in {")", ",", ";", ".", "!", "?"}
            )
            ends_with_quote = (
                token == '"'
                and not in_quotes
                and i > 0
                and tokens[i - 1] in {".", "!", "?"}
                and following[:1].isupper()
            )
            if (ends_with_mark or ends_with_quote) and not following[:1].islower():
                if MIN_TOKENS <= len(sentence) <= MAX_TOKENS:
                    yield " ".join(sentence)
                sentence = []
        if MIN_TOKENS <= len(sentence) <= MAX_TOKENS:
            yield " ".join(sentence)


def wikitext(sources: Path, data: Path) -> Dict[str, str]:
    """WikiText-2's valid part to train on, its test part held out."""
    folder = WIKITEXT.folder(sources) / "word_language_model" / "data" / "wikitext-2"
    return {
        ours: "\n".join(wikitext_sentences(read_text(folder / theirs))) + "\n"
        for ours, theirs in (("train.txt", "valid.txt"), ("heldout.txt", "test.txt"))
    }


def wikisplit(sources: Path, data: Path) -> Dict[str, str]:
    """Return the long sentences of WikiSplit, repeats left out."""
    folder = WIKISPLIT.folder(sources)
    seen = set()
    files = {}
    for ours, theirs in (("heldout.txt", ["test"]), ("train.txt", ["tune", "validation"])):
        lines = []
        for name in theirs:
            for row in (folder / f"{name}.tsv").read_bytes().decode("utf-8").split("\n"):
                long_sentence = row.split("\t")[0].replace("''", '"').replace("``", '"')
                sentence = " ".join(long_sentence.split())
                if MIN_TOKENS <= len(sentence.split()) <= MAX_TOKENS and sentence not in seen:
                    seen.add(sentence)
                    lines.append(sentence + "\n")
        files[ours] = "".join(lines)
    return files
