"""`elmo vocab`: make the vocabulary file of a biLM from a corpus."""

import argparse
from dataclasses import asdict, dataclass
from typing import Optional, Sequence

from elmo_plugin.arguments import add_options, option, options_from
from elmo_plugin.commands.user_errors import needing_allennlp

_DESCRIPTION = """\
example:
  %(prog)s 'lm/train-*.txt.gz' --output vocab.txt --min-count 3 --max-size 100000

Count the words of a corpus and write the vocabulary of a biLM: the words that its softmax predicts.
(Its input needs no vocabulary: the biLM reads characters.) The corpus is UTF-8 text, one tokenized
sentence on each line, tokens separated by white space. The file has the format of bilm-tf: <S>, </S>
and <UNK>, then one word on each line, by descending frequency; words of equal frequency by code point.

Make the file from the training corpus: the sampled softmax derives the frequency of a word from its
rank. Words that are left out are predicted as <UNK>. With --min-count 1 and no --max-size no word is
left out, and <UNK> is never learned. Time per update and memory of a full softmax grow with the size of
the vocabulary. Memory of this command grows with the number of distinct words, 300 bytes each.
"""


@dataclass(frozen=True)
class VocabularyOptions:
    """The arguments of `make_vocabulary`."""

    patterns: Sequence[str] = option(
        "files or quoted patterns, plain or .gz; a file given twice is read once",
        positional=True,
        metavar="CORPUS",
    )
    output: str = option("vocabulary file to write; required", metavar="FILE")
    min_count: int = option("leave out words that occur fewer than N times", 1, metavar="N")
    max_size: Optional[int] = option(
        "keep the most frequent words, at most N entries with the three special ones (default: no limit)",
        None,
        metavar="N",
    )
    overwrite: bool = option("replace FILE if it exists", False)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = _DESCRIPTION
    add_options(parser, VocabularyOptions)


def run(args: argparse.Namespace) -> None:
    """Write the vocabulary, and print how many words the corpus and it have."""
    with needing_allennlp("vocab"):
        from elmo_plugin.pretraining.make_vocabulary import make_vocabulary
    print(make_vocabulary(**asdict(options_from(VocabularyOptions, args))))
