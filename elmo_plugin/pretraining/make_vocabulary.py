"""Make the vocabulary file of a biLM from a corpus."""

from collections import Counter
from os import PathLike
from typing import NamedTuple, Optional, Sequence, Union

from allennlp.common.tqdm import Tqdm

from elmo_plugin.bilm.lm_vocabulary import SPECIALS, LMVocabulary
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import check_output_file
from elmo_plugin.pretraining.sentence_streams import find_corpus, read_sentences


class VocabularySummary(NamedTuple):
    """Numbers of words in the corpus and in the vocabulary."""

    num_files: int
    num_sentences: int
    num_tokens: int
    num_types: int
    num_kept_types: int
    num_kept_tokens: int

    def __str__(self) -> str:
        rows = {
            "files": f"{self.num_files:,}",
            "sentences": f"{self.num_sentences:,}",
            "tokens": f"{self.num_tokens:,}",
            "types": f"{self.num_types:,}",
            "types kept": f"{self.num_kept_types:,}",
            f"entries, with {', '.join(SPECIALS)}": f"{self.num_kept_types + len(SPECIALS):,}",
            "coverage of the tokens": f"{self.num_kept_tokens / self.num_tokens:.2%}",
        }
        return "\n".join(f"{label:<32}{value:>14}" for label, value in rows.items())


def make_vocabulary(
    patterns: Sequence[str],
    output: Union[str, PathLike],
    min_count: int = 1,
    max_size: Optional[int] = None,
    overwrite: bool = False,
) -> VocabularySummary:
    """
    Count the words of a corpus and write an `LMVocabulary`.

    Counts are exact. Memory grows with the number of distinct words, not with the corpus. Words of equal
    frequency are sorted by their code points. The parameters are the arguments of `elmo vocab`; `patterns`
    are those of `find_corpus`.

    # Raises

    `ConfigurationError`, before any work, if a number is out of range, or if `output` cannot be written,
    exists and may not be replaced, or is a file of the corpus; during reading, as `read_sentences`, and
    if no word is left to write. Then `output` is not changed.
    """
    if min_count < 1:
        raise ConfigurationError(
            f"--min-count: found {min_count}, expected at least 1. Give 1 to keep every word."
        )
    if max_size is not None and max_size <= len(SPECIALS):
        raise ConfigurationError(
            f"--max-size: found {max_size}, expected at least {len(SPECIALS) + 1}, as "
            f"{', '.join(SPECIALS)} take {len(SPECIALS)} places. Leave it out for no limit."
        )
    check_output_file(output, overwrite, "--overwrite", what="--output")
    files = find_corpus(patterns)
    if any(file.is_same_file(output) for file in files):
        raise ConfigurationError(
            f"--output: {output} is a file of the corpus, expected another file. Give another name, or "
            "corpus files without it."
        )
    counts: Counter[str] = Counter()
    num_sentences = 0
    for words in Tqdm.tqdm(read_sentences(files), desc="counting words", unit=" sentences"):
        counts.update(words)
        num_sentences += 1
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
        num_files=len(files),
        num_sentences=num_sentences,
        num_tokens=num_tokens,
        num_types=num_types,
        num_kept_types=len(kept),
        num_kept_tokens=sum(-negative_count for negative_count, _ in kept),
    )
