"""
Train static word vectors on text like elmo_mini's, to compare with ELMo: skip-gram with negative sampling
(Mikolov et al. 2013), by gensim, of words in lower case or, with --cased, as they are written.
`pip install gensim` first.

    python scripts/word_vectors.py runs/static.txt "DATA/lm/train-*.txt" "DATA/lm/wikipedia/train-*.txt.gz"
"""

import argparse
import glob
import gzip
import logging
import sys
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import IO, Iterator, List, Sequence

try:
    from gensim.models import Word2Vec
except ImportError as missing:
    sys.exit(f"{missing}. Install it: pip install gensim")

from elmo_plugin.files.output import replaced_file


class Sentences:
    """The lines of files, as often as they are asked for; those of all files take turns."""

    def __init__(self, paths: Sequence[str], cased: bool) -> None:
        self._paths = paths
        self._cased = cased

    def __iter__(self) -> Iterator[List[str]]:
        with ExitStack() as stack:
            files = [stack.enter_context(_opened(path)) for path in self._paths]
            for lines in zip_longest(*files):
                for line in filter(None, lines):
                    yield (line if self._cased else line.lower()).split()


def _opened(path: str) -> IO[str]:
    return (
        gzip.open(path, "rt", encoding="utf-8")
        if path.endswith(".gz")
        else open(path, encoding="utf-8")
    )


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
    paths = [path for pattern in args.text for path in sorted(glob.glob(pattern))]
    if not paths:
        parser.error(f"text: found no file for {', '.join(args.text)}")
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    model = Word2Vec(
        Sentences(paths, args.cased),
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
