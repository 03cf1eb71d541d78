"""Prepare text for pretraining: count its words, hold out sentences, choose the vocabulary, and cut it up."""

import gzip
import random
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN
from elmo_plugin.bilm.lm_vocabulary import SPECIALS, LMVocabulary
from elmo_plugin.bilm.model_files import VOCABULARY_NAME
from elmo_plugin.embedding.sentences import CORPUS_OPTIONS, SentenceSource, read_sentences
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.progress import progress_bar

# In the folder that `prepare_text` writes.
TEXT_NAME = "text"
TRAIN_PATTERN, HELDOUT_NAME = f"{TEXT_NAME}/train-*.txt.gz", f"{TEXT_NAME}/heldout.txt"

MAX_HELDOUT_SENTENCES = 2000
# A share of the sentences. Whole files are held out if there are so many that a file is about this share.
HELDOUT_SHARE = 0.05

# A file of sentences of ordinary length has some 13 MB, which training holds in memory for each direction.
SENTENCES_PER_FILE = 100_000
# All files are open at the same time, and some systems allow a process 256.
MAX_FILES = 200

# A softmax learns little about words that are rarer.
MIN_COUNT, MIN_COUNT_OF_LITTLE_TEXT = 3, 2
LITTLE_TEXT = 1_000_000  # words

# What a biLM reads of a word. Text that is split into words has next to none that are longer.
MAX_WORD_BYTES = MAX_CHARACTERS_PER_TOKEN - 2
MIN_CUT_SHARE = 0.01  # from which a plan says so


@dataclass(frozen=True)
class PreparedText:
    """The numbers of a prepared text."""

    train_sentences: int
    train_words: int
    heldout_sentences: int
    heldout_words: int
    heldout_from: str  # where the held-out sentences were
    heldout_seen: int  # sentences: those that are also trained on, such as copies in other files
    distinct_words: int
    vocabulary_words: int  # without the special entries
    coverage: float  # share of the training words that are in the vocabulary
    cut_share: float  # of the training words: those of which the biLM reads a part

    @property
    def predictions(self) -> int:
        """What a pass over the training text predicts in each direction: words and sentence ends."""
        return self.train_words + self.train_sentences

    def lines(self) -> Dict[str, str]:
        """Return the numbers as lines of a plan, by what they say."""
        seen = f"; {self.heldout_seen:,} of them are trained on too" if self.heldout_seen else ""
        lines = {
            "text": f"{self.train_words:,} words in {self.train_sentences:,} sentences",
            "held out": f"{self.heldout_words:,} words in {self.heldout_sentences:,} sentences, "
            f"{self.heldout_from}{seen}",
            "vocabulary": f"{self.vocabulary_words:,} words, which are {self.coverage:.1%} of the text; "
            f"it has {self.distinct_words:,} distinct words; others are predicted as {SPECIALS[2]}",
        }
        if self.cut_share >= MIN_CUT_SHARE:
            lines["cut words"] = (
                f"{self.cut_share:.1%} of the text, as they have more than {MAX_WORD_BYTES} bytes, and a "
                "biLM reads no more of a word. Is the text split into words? Languages without spaces need "
                "a segmenter"
            )
        return lines


def prepare_text(
    sources: Sequence[SentenceSource],
    heldout_sources: Sequence[SentenceSource],
    folder: Path,
    max_vocabulary: int,
    words: Optional[Sequence[str]] = None,
) -> PreparedText:
    """
    Write the text for a training into a folder: training sentences in files of about equal length, each with
    sentences from everywhere in the text; held-out sentences; and a vocabulary.

    Sources are read twice; those that are no files are copied first.

    # Parameters

    heldout_sources
        If there are none, sentences of the text are held out, at most 2,000 and at most 5 %: from whole
        files, drawn at random, if there are at least 20; otherwise the last sentences.
    max_vocabulary : `int`
        Entries of the vocabulary, with the special ones. Words that occur less than three times are left out
        (twice in text of less than a million words).
    words : `Sequence[str]`, optional
        All entries of a vocabulary that is used in place of one of the text.

    # Raises

    `ConfigurationError` as `SentenceSource`, and if too few sentences are left.
    """
    (folder / TEXT_NAME).mkdir(parents=True, exist_ok=True)
    sources = [
        source if source.is_file else _copy(source, folder / TEXT_NAME / f"input-{number}.txt.gz")
        for number, source in enumerate(sources)
    ]
    num_sentences = [
        sum(1 for _ in _progress(source.texts(), f"counting {source.name}")) for source in sources
    ]
    if heldout_sources:
        train, heldout = read_sentences(sources), read_sentences(heldout_sources)
        heldout_from = f"from {', '.join(source.name for source in heldout_sources)}"
    else:
        train, heldout, heldout_from = _split(sources, num_sentences)
    num_files = min(-(-sum(num_sentences) // SENTENCES_PER_FILE), MAX_FILES)
    counts, num_train = _write_train(train, folder, num_files)
    num_heldout, num_heldout_words = _write_heldout(heldout, folder / HELDOUT_NAME)
    for copied in (folder / TEXT_NAME).glob("input-*"):
        copied.unlink()
    if num_train == 0 or num_heldout == 0:
        raise ConfigurationError(
            f"TEXT: {sum(num_sentences)} sentences are too few to train on some and hold out "
            "others, expected thousands. Give more text."
        )
    if words is None:
        is_little = counts.total() < LITTLE_TEXT
        min_count = MIN_COUNT_OF_LITTLE_TEXT if is_little else MIN_COUNT
        largest = max((counts[word] for word in counts if word not in SPECIALS), default=1)
        min_count = min(min_count, largest)
        vocabulary = LMVocabulary.from_counts(counts, min_count, max_vocabulary)
    else:
        vocabulary = LMVocabulary(words)
    vocabulary.to_file(folder / VOCABULARY_NAME)
    known = vocabulary.words[len(SPECIALS) :]
    num_cut = sum(count for word, count in counts.items() if len(word.encode()) > MAX_WORD_BYTES)
    return PreparedText(
        train_sentences=num_train,
        train_words=counts.total(),
        heldout_sentences=num_heldout,
        heldout_words=num_heldout_words,
        heldout_from=heldout_from,
        heldout_seen=_num_seen(folder),
        distinct_words=len(counts),
        vocabulary_words=len(known),
        coverage=sum(counts[word] for word in known) / counts.total(),
        cut_share=num_cut / counts.total(),
    )


def _copy(source: SentenceSource, path: Path) -> SentenceSource:
    """Copy what can be read only once, such as standard input. The copy is of tokens."""
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        for tokens in _progress(read_sentences([source]), f"reading {source.name}"):
            file.write(" ".join(tokens) + "\n")
    return SentenceSource(path, CORPUS_OPTIONS)


def _split(
    sources: Sequence[SentenceSource], num_sentences: Sequence[int]
) -> Tuple[Iterator[List[str]], Iterator[List[str]], str]:
    """Return training and held-out sentences, to be read in this order, and where the latter are."""
    wanted = min(MAX_HELDOUT_SENTENCES, max(1, int(sum(num_sentences) * HELDOUT_SHARE)))
    if len(sources) * HELDOUT_SHARE >= 1:
        chosen: Set[int] = set()
        num_chosen, most = 0, 2 * HELDOUT_SHARE * sum(num_sentences)
        for index in random.Random(0).sample(range(len(sources)), len(sources)):
            if num_chosen < wanted and num_chosen + num_sentences[index] <= most:
                chosen.add(index)
                num_chosen += num_sentences[index]
        of_chosen = [sources[index] for index in sorted(chosen)]
        others = [source for index, source in enumerate(sources) if index not in chosen]
        where = f"from {len(chosen)} of {len(sources)} files, which are not trained on"
        return read_sentences(others), islice(read_sentences(of_chosen), wanted), where
    sentences = read_sentences(sources)
    return islice(sentences, sum(num_sentences) - wanted), sentences, "the last"


def _write_heldout(sentences: Iterable[List[str]], path: Path) -> Tuple[int, int]:
    num_sentences = num_words = 0
    with open(path, "w", encoding="utf-8") as file:
        for tokens in sentences:
            file.write(" ".join(tokens) + "\n")
            num_sentences, num_words = num_sentences + 1, num_words + len(tokens)
    return num_sentences, num_words


def _write_train(
    sentences: Iterable[List[str]], folder: Path, num_files: int
) -> Tuple["Counter[str]", int]:
    """Write sentences into files in turn, so that each has some from everywhere. Return their words."""
    counts: Counter[str] = Counter()
    num_sentences = 0
    with ExitStack() as stack:
        files = [
            stack.enter_context(
                gzip.open(
                    folder / TRAIN_PATTERN.replace("*", f"{number:04}"),
                    "wt",
                    encoding="utf-8",
                    compresslevel=1,
                )
            )
            for number in range(num_files)
        ]
        for tokens in _progress(sentences, "counting words"):
            files[num_sentences % num_files].write(" ".join(tokens) + "\n")
            counts.update(tokens)
            num_sentences += 1
    return counts, num_sentences


def _num_seen(folder: Path) -> int:
    """Return the number of held-out sentences that are also among those to train on."""
    heldout = (folder / HELDOUT_NAME).read_bytes().splitlines(keepends=True)
    wanted = set(heldout)
    seen: Set[bytes] = set()
    paths = list(folder.glob(TRAIN_PATTERN))
    for path in progress_bar(paths, "comparing with held-out text", unit=" files", leave=False):
        with gzip.open(path) as sentences:
            seen.update(wanted.intersection(sentences))
    return sum(sentence in seen for sentence in heldout)


def _progress(items: Iterable, description: str) -> Iterable:
    return progress_bar(items, description, unit=" sentences", leave=False)
