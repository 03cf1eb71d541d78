"""
Modern English, shuffled, in gzipped shards: Wikipedia (two crawls, 2014/15) and podcast transcripts.

Documents that share two strings of eight words with held-out text or with most task sets, see
`evaluated_ngrams`, are left out whole.
"""

import hashlib
import json
import random
import re
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple

from sentence_splitting import clean, is_usable, split_sentences, tokenize
from sources import TRANSCRIPTS, WIKIPEDIA_CORE, WIKIPEDIA_TAIL, list_files

SEED = 13
SHARD_WORDS = 500_000
MAX_HELDOUT_SENTENCES = 12_000
MAX_TOKEN_LENGTH = 50
NGRAM_LENGTH = 8
# One document in so many is held out.
HELDOUT_EVERY = 250

WORD = re.compile(r"[a-z0-9]+")
ARTICLE = re.compile(r'<doc id="(\d+)"[^>]*title="([^"]*)">\n(.*?)\n</doc>', re.DOTALL)
ARTICLE_MARKUP = re.compile(r"<[^>]*>|\[\[|\]\]|&\w+;|\{\{.*?\}\}")

# The identity of a document and its text.
Document = Tuple[str, str]


def ngrams(text: str) -> Set[int]:
    words = WORD.findall(text.lower())
    return {hash(tuple(words[i : i + NGRAM_LENGTH])) for i in range(len(words) - NGRAM_LENGTH + 1)}


def column_sentences(path: Path, column: int) -> Iterator[str]:
    sentence: List[str] = []
    for row in path.read_text(encoding="utf-8").split("\n"):
        cells = row.split()
        if len(cells) > column:
            sentence.append(cells[column])
        elif sentence:
            yield " ".join(sentence)
            sentence = []


def evaluated_files(folder: Path, pattern: str) -> List[Path]:
    """Return the files of a data set. Raise an error if there are none: their text would not be left out."""
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise FileNotFoundError(
            f"{folder}: found no {pattern}, expected text that is to be left out"
        )
    return paths


def evaluated_ngrams(data: Path) -> Set[int]:
    """Return the n-grams of all text on which something is measured. Raises as `evaluated_files`."""
    texts: List[str] = []
    for name in ("wikitext", "wikisplit", "."):
        path = data / "lm" / name / "heldout.txt"
        texts += path.read_text(encoding="utf-8").split("\n")
    for path in evaluated_files(data / "squad", "*.json"):
        for article in json.loads(path.read_text(encoding="utf-8"))["data"]:
            texts += [paragraph["context"] for paragraph in article["paragraphs"]]
    for name in ("wikigold", "wnut17"):
        for path in evaluated_files(data / "ner" / name, "*.conll"):
            texts += column_sentences(path, 0)
    for name in ("srl", "coref"):
        for path in evaluated_files(data / name, "*.gold_conll"):
            texts += column_sentences(path, 3)
    return set().union(*map(ngrams, texts))


def articles(folder: Path) -> Iterator[Document]:
    """Articles of 60 words and more: lines of WikiExtractor with at least 8 words and an end mark."""
    for path in list_files(folder, "wiki_*"):
        for number, _, body in ARTICLE.findall(path.read_bytes().decode("utf-8", "replace")):
            lines = [
                line
                for line in body.split("\n")[1:]
                if len(line.split()) >= 8 and line.rstrip()[-1:] in ".!?\"')"
            ]
            if sum(len(line.split()) for line in lines) >= 60:
                yield "w" + number, ARTICLE_MARKUP.sub(" ", "\n".join(lines))


def episodes(folder: Path) -> Iterator[Document]:
    """Podcast transcripts, without names of speakers, marks and links."""
    for path in list_files(folder, "*.md"):
        name = path.relative_to(folder).as_posix()
        if "/" not in name:
            continue
        lines = []
        for line in path.read_bytes().decode("utf-8", "replace").split("\n"):
            line = re.sub(r"^\*\*[^*]+:\*\*\s*", "", line)
            line = re.sub(r"\\\[.*?\\\]|\[[\d:]+\]|\[unintelligible.*?\]", " ", line)
            line = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line)
            line = re.sub(r"[*`#>\\]|https?://\S+", " ", line)
            if len(line.split()) >= 4:
                lines.append(line)
        yield "s" + name, "\n".join(lines)


def random_number(identity: str) -> int:
    """Return a number below 16**12 that depends on the identity alone."""
    return int(hashlib.sha1(f"{SEED}{identity}".encode()).hexdigest()[:12], 16)


class Corpus:
    """Collect documents into a training and a held-out part, no sentence twice."""

    def __init__(self, excluded_ngrams: Set[int]) -> None:
        self.train: List[str] = []
        self.heldout: List[str] = []
        self._excluded_ngrams = excluded_ngrams
        self._identities: Set[str] = set()
        self._sentences: Set[int] = set()

    def add(self, documents: Iterator[Document], share: float, max_words: int) -> None:
        """Take this share of the documents, chosen by their identity, until there are enough words."""
        num_words = 0
        for identity, text in documents:
            if identity in self._identities or random_number(identity) / 16**12 > share:
                continue
            if len(ngrams(text) & self._excluded_ngrams) >= 2:
                continue
            self._identities.add(identity)
            is_heldout = random_number("h" + identity) % HELDOUT_EVERY == 0
            for sentence in self._new_sentences(text):
                (self.heldout if is_heldout else self.train).append(" ".join(sentence))
                num_words += len(sentence)
            if num_words >= max_words:
                break

    def _new_sentences(self, text: str) -> Iterator[List[str]]:
        for line in clean(text).split("\n"):
            for sentence in split_sentences(" ".join(line.split())):
                tokens = tokenize(sentence)
                if not is_usable(tokens) or max(map(len, tokens)) > MAX_TOKEN_LENGTH:
                    continue
                key = hash(tuple(tokens))
                if key not in self._sentences:
                    self._sentences.add(key)
                    yield tokens

    def files(self) -> Dict[str, str]:
        """Shuffle the training part and cut it into shards."""
        random.Random(SEED).shuffle(self.train)
        shards: List[List[str]] = [[]]
        num_words = 0
        for line in self.train:
            if num_words >= SHARD_WORDS:
                shards.append([])
                num_words = 0
            shards[-1].append(line)
            num_words += line.count(" ") + 1
        files = {
            f"train-{k:05d}-of-{len(shards):05d}.txt.gz": lines for k, lines in enumerate(shards)
        }
        files["heldout.txt"] = self.heldout[:MAX_HELDOUT_SENTENCES]
        return {name: "\n".join(lines) + "\n" for name, lines in files.items()}


def wikipedia(sources: Path, data: Path) -> Dict[str, str]:
    """24 million words of core articles, 8 million of the long tail."""
    corpus = Corpus(evaluated_ngrams(data))
    # 62 million words of each crawl are usable, about; 15 % more documents than needed are drawn.
    for folder, max_words in (
        (WIKIPEDIA_CORE.folder(sources) / "text", 24_000_000),
        (WIKIPEDIA_TAIL.folder(sources) / "data", 8_000_000),
    ):
        corpus.add(articles(folder), min(1.0, max_words / 62_000_000 * 1.15), max_words)
    return corpus.files()


def spoken(sources: Path, data: Path) -> Dict[str, str]:
    """8 million words of podcast transcripts."""
    corpus = Corpus(evaluated_ngrams(data))
    corpus.add(episodes(TRANSCRIPTS.folder(sources)), 8_000_000 / 20_000_000 * 1.15, 8_000_000)
    return corpus.files()
