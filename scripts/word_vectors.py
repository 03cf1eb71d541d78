"""
Train static word vectors on text like elmo_mini's, to compare with ELMo: skip-gram with negative sampling
(Mikolov et al. 2013), by gensim, of words in lower case or, with --cased, as they are written.
`pip install gensim` first.

    python scripts/word_vectors.py runs/static.txt "DATA/lm/train-*.txt" "DATA/lm/wikipedia/train-*.txt.gz"
"""

import argparse
import logging
import sys
from itertools import zip_longest
from pathlib import Path
from typing import Iterator, List, Sequence

try:
    from gensim.models import Word2Vec
except ImportError as missing:
    sys.exit(f"{missing}. Install it: pip install gensim")

from elmo_plugin.embedding.sentences import CORPUS_OPTIONS, SentenceSource, find_sources
from elmo_plugin.files.output import replaced_file


class Sentences:
    """The sentences of files, as often as they are asked for; those of all files take turns."""

    def __init__(self, sources: Sequence[SentenceSource], cased: bool) -> None:
        self._sources = sources
        self._cased = cased

    def __iter__(self) -> Iterator[List[str]]:
        for sentences in zip_longest(*(source.texts() for source in self._sources)):
            for _, text, _ in filter(None, sentences):
                yield (text if self._cased else text.lower()).split()


def main() -> None:
    """Train, and write the vectors in GloVe's text format."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", help="file to write: a word and its vector on each line")
    parser.add_argument("text", nargs="+", help="files or globs: a tokenized sentence on each line")
    parser.add_argument("--cased", action="store_true", help="keep capital letters")
    parser.add_argument("--dim", type=int, default=256, help="(default: 256)")
    parser.add_argument("--epochs", type=int, default=2, help="(default: 2)")
    parser.add_argument("--workers", type=int, default=2, help="threads (default: 2)")
    args = parser.parse_args()
    sources = find_sources(args.text, CORPUS_OPTIONS)
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    model = Word2Vec(
        Sentences(sources, args.cased),
        vector_size=args.dim,
        sg=1,
        window=5,
        negative=5,
        min_count=5,
        sample=1e-4,
        epochs=args.epochs,
        workers=args.workers,
        seed=1,
    )
    with (
        replaced_file(Path(args.output)) as partial_file,
        partial_file.open("w", encoding="utf-8") as file,
    ):
        for word, vector in zip(model.wv.index_to_key, model.wv.vectors):
            file.write(f"{word} {' '.join(f'{value:.5f}' for value in vector)}\n")


if __name__ == "__main__":
    main()
