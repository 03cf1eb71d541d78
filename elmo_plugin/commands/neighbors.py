"""`elmo neighbors`: find the nearest occurrences of a word in context, or sentences, and cluster them."""

import argparse
from dataclasses import asdict, dataclass
from typing import Any, Iterable, Optional, Sequence, Tuple

from elmo_plugin.arguments import add_options, option, option_group, options_from
from elmo_plugin.embedding.elmo_embedder import BiLMFiles, DeviceOptions, ElmoEmbedder
from elmo_plugin.embedding.layers import POOLS
from elmo_plugin.embedding.neighbors import (
    AVERAGE,
    TOP_LAYER,
    Layer,
    Occurrence,
    cluster_vectors,
    embed_occurrences,
    find_occurrences,
    nearest_occurrences,
)
from elmo_plugin.embedding.sentences import InputOptions, Sentence, SentenceSource
from elmo_plugin.errors import ConfigurationError, needing
from elmo_plugin.files.text import split_tokens

_DEFAULT_NUM_CLUSTERS = 2

_USAGE = "%(prog)s TEXT (--word WORD | --pool POOL) [--sentence SENTENCE] [options]"

_DESCRIPTION = """\
examples:
  %(prog)s news.txt --word play --sentence "They saw a play at the theatre ."
  %(prog)s news.txt.gz --word bank --clusters 3
  %(prog)s news.txt --pool mean --sentence "The bank raised its rates ."

Compare the occurrences of a word in TEXT by their vectors. With --sentence: show the occurrences that
are most similar to the word in this sentence, by cosine similarity (the paper's table 4). Without: show
clusters of the occurrences, the largest first, each with those that are most similar to its mean.
With --pool in place of --word, compare whole sentences.

An occurrence is shown with its similarity (from -1 to 1), its line number (from 1) and its sentence.
Only sentences that hold the word are embedded: time and memory grow with their number.
"""


def _layer(text: str) -> Layer:
    return int(text) if text.lstrip("-").isdigit() else text


@dataclass(frozen=True)
class NeighborsOptions:
    """
    What to compare, and what to show.

    # Raises

    `ConfigurationError` for options that exclude each other, numbers below 1, and clusters without
    scikit-learn.
    """

    word: Optional[str] = option("one token, whose occurrences are compared", None)
    pool: Optional[str] = option(
        "compare whole sentences, by the mean or maximum over tokens, or the last states of both directions",
        None,
        choices=POOLS,
    )
    sentence: Sequence[str] = option(
        "tokenized sentence, with the word: show what is nearest; can be repeated", (), repeat=True
    )
    ignore_case: bool = option("match upper and lower case", False)
    layer: Any = option(
        "0: token representation, which does not depend on the context; 1, 2, ...: LSTM layers; "
        f"{TOP_LAYER}: the last layer; {AVERAGE}: the mean of all",
        TOP_LAYER,
        parse=_layer,
    )
    top: int = option("show at most N occurrences for a sentence or cluster", 10, metavar="N")
    clusters: Optional[int] = option(
        f"number of clusters (default: {_DEFAULT_NUM_CLUSTERS} without --sentence, otherwise none)",
        None,
        metavar="K",
    )
    max_occurrences: int = option(
        "compare at most N, a random sample if there are more", 5000, metavar="N"
    )
    files: BiLMFiles = option_group("the biLM", BiLMFiles())
    device: DeviceOptions = option_group("what runs it", DeviceOptions())

    def __post_init__(self) -> None:
        if (self.word is None) == (self.pool is None):
            raise ConfigurationError(
                f"--word is {self.word} and --pool is {self.pool}, expected one of them. Give --word to "
                "compare the occurrences of a word, or --pool to compare whole sentences."
            )
        for name in ("top", "clusters", "max_occurrences"):
            number = getattr(self, name)
            if number is not None and number < 1:
                flag = name.replace("_", "-")
                raise ConfigurationError(f"--{flag}: found {number}, expected a positive number.")
        if self.num_clusters is not None:
            advice = ", or give --sentence for neighbors alone."
            with needing("Clusters need scikit-learn", "elmo-plugin[sklearn]", advice):
                import sklearn.cluster  # noqa: F401

    @property
    def num_clusters(self) -> Optional[int]:
        """Number of clusters, `None` for no clusters."""
        return self.clusters if self.clusters or self.sentence else _DEFAULT_NUM_CLUSTERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.usage, parser.description = _USAGE, _DESCRIPTION
    parser.add_argument_group("files").add_argument(
        "text",
        metavar="TEXT",
        help="UTF-8, plain or .gz, a tokenized sentence on each line; - for standard input; blank lines are "
        "skipped",
    )
    add_options(parser, NeighborsOptions, "what to compare")


def run(args: argparse.Namespace) -> None:
    """
    Print the nearest occurrences of a word in a text to that in sentences, and clusters of them. A word that
    is not in the text or in a sentence is an error before a biLM is loaded.
    """
    options = options_from(NeighborsOptions, args)
    queries = [_query(sentence, options) for sentence in options.sentence]
    source = SentenceSource(args.text, InputOptions(skip_blank=True))
    occurrences, num_found = find_occurrences(
        source.sentences(), options.word, source.name, options.ignore_case, options.max_occurrences
    )
    embedder = ElmoEmbedder(**options.files.arguments, **asdict(options.device))
    # (num_occurrences + num_queries, dim)
    all_vectors = embed_occurrences(embedder, [*occurrences, *queries], options.layer, options.pool)
    vectors, query_vectors = all_vectors[: len(occurrences)], all_vectors[len(occurrences) :]

    found = _counted(num_found, options)
    sample = f", of which {len(occurrences):,} are compared, a random sample"
    print(f"{options.word or args.text}: {found}{sample if len(occurrences) < num_found else ''}")
    for number, (query, query_vector) in enumerate(zip(queries, query_vectors), start=1):
        print(f"\nsentence {number}: {query.marked_sentence}")
        neighbors = nearest_occurrences(query, query_vector, occurrences, vectors, options.top)
        _print_rows(neighbors)
        if not neighbors:
            print(f"  no other {_unit(options)}")
    num_clusters = options.num_clusters
    clusters = [] if num_clusters is None else cluster_vectors(vectors, num_clusters)
    for number, (members, similarities) in enumerate(clusters, start=1):
        print(f"\ncluster {number}: {_counted(len(members), options)}")
        shown = members[: options.top]
        _print_rows(zip([occurrences[index] for index in shown], similarities))


def _query(sentence: str, options: NeighborsOptions) -> Occurrence:
    """Return the first occurrence of the word in a sentence of the command line; or the sentence."""
    sentences = [Sentence(0, sentence, split_tokens(sentence))]
    place = f"--sentence '{sentence}'"
    return find_occurrences(sentences, options.word, place, options.ignore_case).occurrences[0]


def _unit(options: NeighborsOptions) -> str:
    return "sentence" if options.word is None else "occurrence"


def _counted(number: int, options: NeighborsOptions) -> str:
    return f"{number:,} {_unit(options)}{'s' * (number != 1)}"


def _print_rows(rows: Iterable[Tuple[Occurrence, float]]) -> None:
    for occurrence, similarity in rows:
        assert occurrence.line_index is not None
        line = occurrence.line_index + 1
        print(f"  {similarity:6.3f}  line {line:<7} {occurrence.marked_sentence}")
