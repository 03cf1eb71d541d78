"""`elmo vocab`: make the vocabulary file of a biLM from a corpus."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Dict, Optional, Sequence

from elmo_plugin.arguments import Options, option
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import check_output_file
from elmo_plugin.files.progress import progress_bar

DESCRIPTION = """\
example:
  %(prog)s 'lm/train-*.txt.gz' --output vocab.txt --min-count 3 --max-size 100000

Count the words of a corpus and write the vocabulary of a biLM: the words that its softmax predicts.
(Its input needs no vocabulary: the biLM reads characters.) The corpus is UTF-8 text, one tokenized
sentence on each line, tokens separated by white space; blank lines are skipped. The file has the format
of bilm-tf: <S>, </S> and <UNK>, then one word on each line, by descending frequency; words of equal
frequency by code point.

Make the file from the training corpus: the sampled softmax derives the frequency of a word from its
rank. Words that are left out are predicted as <UNK>. With --min-count 1 and no --max-size no word is
left out, and <UNK> is never learned. In pretraining with a full softmax, the time of an update and memory
grow with the size of the vocabulary. This command needs about 300 bytes of memory for each distinct word.
"""


@dataclass(frozen=True)
class VocabularyOptions(Options):
    """The arguments of `make_vocabulary`."""

    patterns: Sequence[str] = option(
        "text, plain or .gz; .parquet; folders and quoted patterns; -, standard input; a file given twice is "
        "read once",
        positional=True,
        metavar="CORPUS",
    )
    output: str = option("vocabulary file to write; required", metavar="FILE")
    min_count: int = option(
        "leave out words that occur fewer than N times", 1, metavar="N", positive=True
    )
    max_size: Optional[int] = option(
        "keep the most frequent words: at most N entries, with the three special ones (default: no limit)",
        None,
        metavar="N",
    )
    column: Optional[str] = option("Parquet column of sentences", None, metavar="NAME")
    overwrite: bool = option("replace FILE if it exists", False)


def run(options: VocabularyOptions) -> None:
    """Write the vocabulary, and print how many words the corpus and it have."""
    for label, value in make_vocabulary(options).items():
        print(f"{label:<32}{value:>14}")


def make_vocabulary(options: VocabularyOptions) -> Dict[str, str]:
    """
    Count the words of a corpus and write an `LMVocabulary`. Return the numbers of the corpus and of the
    vocabulary, by what they say.

    Counts are exact. Memory grows with the number of distinct words, not with the corpus.

    # Raises

    `ConfigurationError`, before any work, if a number is out of range, or if `output` cannot be written,
    exists and may not be replaced, or is a file of the corpus; then as `SentenceSource`, and if no word is
    left to write. Then `output` is not changed.
    """
    # Here, because they import torch, which the help does without.
    from elmo_plugin.bilm.lm_vocabulary import SPECIALS, LMVocabulary
    from elmo_plugin.embedding.sentences import (
        CORPUS_OPTIONS,
        check_not_read,
        find_sources,
        read_sentences,
    )

    if options.max_size is not None and options.max_size <= len(SPECIALS):
        raise ConfigurationError(
            f"--max-size: found {options.max_size}, expected at least {len(SPECIALS) + 1}, as "
            f"{', '.join(SPECIALS)} take {len(SPECIALS)} places. Leave it out for no limit."
        )
    check_output_file(options.output, options.overwrite, "--output")
    files = find_sources(options.patterns, replace(CORPUS_OPTIONS, column=options.column))
    check_not_read(files, options.output, "--output")
    counts: Counter[str] = Counter()
    num_sentences = 0
    for words in progress_bar(read_sentences(files), desc="counting words", unit=" sentences"):
        counts.update(words)
        num_sentences += 1
    vocabulary = LMVocabulary.from_counts(counts, options.min_count, options.max_size)
    vocabulary.to_file(options.output)
    # In a corpus that holds the special entries, they are tokens like others.
    num_tokens = counts.total()
    num_kept = len(vocabulary) - len(SPECIALS)
    coverage = sum(counts[word] for word in vocabulary.words[len(SPECIALS) :]) / num_tokens
    return {
        "files": f"{len(files):,}",
        "sentences": f"{num_sentences:,}",
        "tokens": f"{num_tokens:,}",
        "types": f"{len(counts):,}",
        "types kept": f"{num_kept:,}",
        f"entries, with {', '.join(SPECIALS)}": f"{len(vocabulary):,}",
        "coverage of the tokens": f"{coverage:.2%}",
    }
