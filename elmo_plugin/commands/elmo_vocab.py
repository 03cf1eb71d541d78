"""`allennlp elmo-vocab`: from a corpus to the vocabulary file of a biLM."""

import argparse
import time
from collections import Counter
from os import PathLike
from pathlib import Path
from typing import List, NamedTuple, Optional, Sequence, Union

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError
from allennlp.common.tqdm import Tqdm

from elmo_plugin.commands.user_errors import add_debug_argument, exits_on_user_errors
from elmo_plugin.files.output_file import check_output_file
from elmo_plugin.pretraining.corpus_files import CorpusFile, expand_corpus
from elmo_plugin.pretraining.lm_vocabulary import SPECIALS, LMVocabulary

_SENTENCES_PER_UPDATE = 2048  # of the progress bar

_DESCRIPTION = """
Count the words of a corpus and write the vocabulary of a biLM: the words that its softmax
predicts. (Its input needs no vocabulary: words are spelled, letter by letter.)

The corpus is UTF-8 text, one tokenized sentence on each line, tokens separated by white space. The file
is bilm-tf's: <S>, </S> and <UNK>, then one word on each line by descending frequency, words of one
frequency by code point.
"""

_EPILOG = """
example:
  allennlp elmo-vocab 'lm/train-*.txt.gz' --output vocab.txt --min-count 3 --max-size 100000

The file must be made from the corpus of training: the sampled softmax takes a word's place for its
frequency. Words left out are predicted as <UNK>; with --min-count 1 and no --max-size there are
none, and <UNK> is never learned. Time per update and memory of a full softmax grow with the size.

Memory grows with the number of distinct words, under 300 bytes each, not with the corpus.
"""


class VocabularySummary(NamedTuple):
    """What was counted, and what of it the vocabulary holds."""

    num_files: int
    num_sentences: int
    num_tokens: int
    num_types: int
    num_kept_types: int
    num_kept_tokens: int

    @property
    def coverage(self) -> float:
        """Share of the tokens whose word is in the vocabulary, from 0 to 1."""
        return self.num_kept_tokens / self.num_tokens

    def __str__(self) -> str:
        rows = [
            ("files", f"{self.num_files:,}"),
            ("sentences", f"{self.num_sentences:,}"),
            ("tokens", f"{self.num_tokens:,}"),
            ("types", f"{self.num_types:,}"),
            ("types kept", f"{self.num_kept_types:,}"),
            (f"entries, with {', '.join(SPECIALS)}", f"{self.num_kept_types + len(SPECIALS):,}"),
            ("coverage of the tokens", f"{self.coverage:.2%}"),
        ]
        return "\n".join(f"{label:<32}{value:>14}" for label, value in rows)


@Subcommand.register("elmo-vocab")
class ElmoVocab(Subcommand):
    """Makes a vocabulary file: `allennlp elmo-vocab CORPUS... --output FILE`."""

    # It builds nothing that a config names, so --include-package would change nothing.
    requires_plugins = False

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        subparser: argparse.ArgumentParser = parser.add_parser(
            self.name,
            description=_DESCRIPTION,
            epilog=_EPILOG,
            help="Make a vocabulary file for training a biLM from a corpus.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subparser.add_argument(
            "corpus",
            nargs="+",
            metavar="CORPUS",
            help="files or quoted globs, plain or .gz; a file named twice is read once",
        )
        subparser.add_argument(
            "--output",
            required=True,
            metavar="FILE",
            help="the vocabulary file to write, which appears when it is complete; required",
        )
        subparser.add_argument(
            "--min-count",
            type=int,
            default=1,
            metavar="N",
            help="leave out words that occur fewer than N times in the corpus",
        )
        subparser.add_argument(
            "--max-size",
            type=int,
            metavar="N",
            help="keep the most frequent words, at most N entries with the three marks "
            "(default: no limit)",
        )
        subparser.add_argument(
            "--overwrite",
            action="store_true",
            help="replace FILE if it exists (default: stop before any work)",
        )
        add_debug_argument(subparser)
        subparser.set_defaults(func=_make_vocabulary_from_args)
        return subparser


def make_vocabulary(
    patterns: Sequence[str],
    output: Union[str, PathLike],
    min_count: int = 1,
    max_size: Optional[int] = None,
    overwrite: bool = False,
) -> VocabularySummary:
    """
    Count the words of a corpus and write those kept as an `LMVocabulary`.

    Counts are exact: memory grows with the number of distinct words, not with the corpus.

    # Parameters

    patterns : `Sequence[str]`
        Files or globs, as `expand_corpus` takes them.
    output : `str` or `PathLike`
        The file to write. It appears when it is complete.
    min_count : `int`, optional (default = `1`)
        Words that occur less often are left out.
    max_size : `int`, optional (default = `None`)
        The largest number of entries, the three marks included; `None` for no limit. Of words with
        the same count those come first, and stay, that sort first by code point.
    overwrite : `bool`, optional (default = `False`)
        Whether a file that is there is replaced.

    # Raises

    `ConfigurationError`, before any work, if a number is out of range, if `output` cannot be written,
    exists and is not to be replaced, or is a file of the corpus; and while it reads, as
    `read_sentences` does, or if no word is left to write. `output` is then as it was before.
    """
    _check_limits(min_count, max_size)
    output = Path(output)
    check_output_file(output, overwrite, "--overwrite", what="--output")
    paths = expand_corpus(patterns)
    if output.exists() and any(output.samefile(path) for path in paths):
        raise ConfigurationError(
            f"--output: {output} is a file of the corpus, expected another file. Give another name, or "
            "name the files of the corpus so that it is not among them."
        )
    counts, num_sentences = _count_words(paths)
    # Before the marks are taken out: a corpus that spells them has them as tokens.
    num_tokens, num_types, largest_count = counts.total(), len(counts), max(counts.values())
    frequent = sorted(
        (-count, word)
        for word, count in counts.items()
        if count >= min_count and word not in SPECIALS
    )
    kept = frequent[: None if max_size is None else max_size - len(SPECIALS)]
    if not kept:
        raise ConfigurationError(
            f"--min-count: no word of the corpus occurs {min_count} times, expected a number that some "
            f"reach; the largest count is {largest_count}. Lower it, or give more text."
        )
    LMVocabulary([*SPECIALS, *(word for _, word in kept)], str(output)).to_file(output)
    return VocabularySummary(
        num_files=len(paths),
        num_sentences=num_sentences,
        num_tokens=num_tokens,
        num_types=num_types,
        num_kept_types=len(kept),
        num_kept_tokens=sum(-negative_count for negative_count, _ in kept),
    )


@exits_on_user_errors
def _make_vocabulary_from_args(args: argparse.Namespace) -> None:
    summary = make_vocabulary(
        patterns=args.corpus,
        output=args.output,
        min_count=args.min_count,
        max_size=args.max_size,
        overwrite=args.overwrite,
    )
    print(summary)


def _check_limits(min_count: int, max_size: Optional[int]) -> None:
    if min_count < 1:
        raise ConfigurationError(
            f"--min-count: found {min_count}, expected at least 1. Give 1 to keep every word."
        )
    if max_size is not None and max_size <= len(SPECIALS):
        raise ConfigurationError(
            f"--max-size: found {max_size}, expected at least {len(SPECIALS) + 1}, as "
            f"{', '.join(SPECIALS)} take {len(SPECIALS)} places. Leave it out for no limit."
        )


class _WordCounts(NamedTuple):
    counts: Counter[str]
    num_sentences: int


def _count_words(paths: List[Path]) -> _WordCounts:
    counts: Counter[str] = Counter()
    num_sentences = num_tokens = bytes_before = 0
    start = time.monotonic()
    num_bytes = sum(path.stat().st_size for path in paths)
    with Tqdm.tqdm(total=num_bytes, unit="B", unit_scale=True, desc="counting words") as progress:

        def show_progress(bytes_read: int) -> None:
            seconds = max(time.monotonic() - start, 1e-9)
            progress.set_postfix_str(
                f"{num_sentences:,} sentences, {num_tokens / seconds:,.0f} tokens/s", refresh=False
            )
            progress.update(bytes_read - progress.n)

        for path in paths:
            with CorpusFile(path) as file:
                for sentence in file.sentences():
                    counts.update(sentence)
                    num_tokens += len(sentence)
                    num_sentences += 1
                    if num_sentences % _SENTENCES_PER_UPDATE == 0:
                        show_progress(bytes_before + file.bytes_read)
                bytes_before += file.bytes_read
                show_progress(bytes_before)
    return _WordCounts(counts, num_sentences)
