"""Make the vocabulary file of a biLM from a corpus."""

from collections import Counter
from os import PathLike
from pathlib import Path
from typing import List, NamedTuple, Optional, Sequence, Tuple, Union

from allennlp.common.tqdm import Tqdm

from elmo_plugin.bilm.lm_vocabulary import SPECIALS, LMVocabulary
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import check_output_file
from elmo_plugin.pretraining.corpus_files import CorpusFile, expand_corpus

_SENTENCES_PER_UPDATE = 2048  # between updates of the progress bar


class VocabularySummary(NamedTuple):
    """Numbers of words in the corpus and in the vocabulary."""

    num_files: int
    num_sentences: int
    num_tokens: int
    num_types: int
    num_kept_types: int
    num_kept_tokens: int

    @property
    def coverage(self) -> float:
        """Share of the tokens that are in the vocabulary, from 0 to 1."""
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


def make_vocabulary(
    patterns: Sequence[str],
    output: Union[str, PathLike],
    min_count: int = 1,
    max_size: Optional[int] = None,
    overwrite: bool = False,
) -> VocabularySummary:
    """
    Count the words of a corpus and write an `LMVocabulary`.

    Counts are exact. Memory grows with the number of distinct words, not with the corpus.

    # Parameters

    patterns : `Sequence[str]`
        Files or patterns, see `expand_corpus`.
    output : `str` or `PathLike`
        The file to write. It appears when it is complete.
    min_count : `int`, optional (default = `1`)
        Words that occur less often are left out.
    max_size : `int`, optional (default = `None`)
        Maximum number of entries, including the three special ones; `None` for no limit. Words of equal
        frequency are kept in the order of their code points.
    overwrite : `bool`, optional (default = `False`)
        Replace an existing file.

    # Raises

    `ConfigurationError`, before any work, if a number is out of range, or if `output` cannot be written,
    exists and may not be replaced, or is a file of the corpus; during reading, as `CorpusFile.sentences`, and
    if no word is left to write. Then `output` is not changed.
    """
    _check_limits(min_count, max_size)
    output = Path(output)
    check_output_file(output, overwrite, "--overwrite", what="--output")
    paths = expand_corpus(patterns)
    if output.exists() and any(output.samefile(path) for path in paths):
        raise ConfigurationError(
            f"--output: {output} is a file of the corpus, expected another file. Give another name, or "
            "corpus files without it."
        )
    counts, num_sentences = _count_words(paths)
    # The special entries are counted here: in a corpus that holds them they are tokens.
    num_tokens, num_types, largest_count = counts.total(), len(counts), max(counts.values())
    frequent = sorted(
        (-count, word)
        for word, count in counts.items()
        if count >= min_count and word not in SPECIALS
    )
    kept = frequent[: None if max_size is None else max_size - len(SPECIALS)]
    if not kept:
        raise ConfigurationError(
            f"--min-count: no word of the corpus occurs {min_count} times, expected at most {largest_count}, "
            "the largest count. Give a smaller number, or more text."
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


def _count_words(paths: List[Path]) -> Tuple[Counter[str], int]:
    """Return the count of each word, and the number of sentences."""
    counts: Counter[str] = Counter()
    num_sentences = 0
    num_bytes = sum(path.stat().st_size for path in paths)
    with Tqdm.tqdm(total=num_bytes, unit="B", unit_scale=True, desc="counting words") as progress:
        for path in paths:
            bytes_before = progress.n
            with CorpusFile(path) as file:
                for sentence in file.sentences():
                    counts.update(sentence)
                    num_sentences += 1
                    if num_sentences % _SENTENCES_PER_UPDATE == 0:
                        progress.update(bytes_before + file.bytes_read - progress.n)
                progress.set_postfix_str(f"{num_sentences:,} sentences", refresh=False)
                progress.update(bytes_before + file.bytes_read - progress.n)
    return counts, num_sentences
