"""`elmo neighbors`: find the nearest occurrences of a word in context, or sentences, and cluster them."""

import argparse
import logging
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, Union

from elmo_plugin.arguments import add_options, option, options_from
from elmo_plugin.embedding.bilm_options import BiLMFiles, DeviceOptions
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.neighbor_plot import check_plot, plot_occurrences
from elmo_plugin.embedding.neighbors import (
    AVERAGE,
    TOKEN_REPRESENTATION,
    TOP_LAYER,
    Cluster,
    FoundOccurrences,
    Layer,
    Neighbor,
    Occurrence,
    check_clustering,
    check_layer,
    cluster_occurrences,
    embed_occurrences,
    find_occurrences,
    nearest_occurrences,
    num_distinct_contexts,
)
from elmo_plugin.embedding.pooling import POOLS, check_pool
from elmo_plugin.embedding.sentences import InputOptions, Sentence, SentenceSource
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import split_tokens

DEFAULT_NUM_CLUSTERS = 2

logger = logging.getLogger(__name__)

_USAGE = "%(prog)s TEXT (--word WORD | --pool POOL) [--sentence SENTENCE] [options]"

_DESCRIPTION = """\
examples:
  %(prog)s news.txt --word play --sentence "They saw a play at the theatre ."
  %(prog)s news.txt.gz --word bank --clusters 3 --plot bank.png
  %(prog)s news.txt --pool mean --sentence "The bank raised its rates ."

Compare the occurrences of a word in TEXT by their vectors. With --sentence: show the occurrences that
are most similar to the word in this sentence, by cosine similarity (the paper's table 4). Without: show
clusters of the occurrences, the largest first, each with those that are most similar to its mean.
With --pool in place of --word, compare whole sentences.

An occurrence is shown with its similarity (from -1 to 1), its line number (from 1) and its sentence.
Only sentences that hold the word are embedded: time and memory grow with their number.
"""


def _layer(text: str) -> Layer:
    try:
        return int(text)
    except ValueError:
        return text  # check_layer rejects all words but AVERAGE


@dataclass(frozen=True)
class ComparisonOptions:
    """
    What to compare, and what to show.

    # Raises

    `ConfigurationError` for a value out of range, options that exclude each other, a plot that cannot be
    written, and clusters or a plot without the packages that make them.
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
        f"number of clusters to show and plot (default: {DEFAULT_NUM_CLUSTERS} without --sentence)",
        None,
        metavar="K",
    )
    max_occurrences: int = option(
        "compare at most N, a random sample if there are more", 5000, metavar="N"
    )
    seed: int = option("seed of the sample and of the clusters", 0, metavar="N")
    plot: Optional[str] = option(
        "draw two principal components of the vectors, as .png or .svg", None, metavar="FILE"
    )
    overwrite: bool = option("replace FILE of --plot if it exists", False)
    batch_tokens: Optional[int] = option(
        "at most N tokens in a batch, with padding (default: 256 MiB)", None, metavar="N"
    )

    def __post_init__(self) -> None:
        check_pool(self.pool)
        check_layer(self.layer)
        if (self.word is None) == (self.pool is None):
            raise ConfigurationError(
                f"--word is {self.word} and --pool is {self.pool}, expected one of them. Give --word to "
                "compare the occurrences of a word, or --pool to compare whole sentences."
            )
        for name, value, other, other_value in (
            ("--ignore-case", self.ignore_case, "--word", self.word),
            ("--overwrite", self.overwrite, "--plot", self.plot),
        ):
            if value and other_value is None:
                raise ConfigurationError(
                    f"{name} is an option of {other}, which is not given. Give {other}, or omit {name}."
                )
        if self.word is not None and split_tokens(self.word) != [self.word]:
            raise ConfigurationError(
                f"--word: found '{self.word}', expected one token, without white space. Give a single word, "
                "spelled as in the text."
            )
        for name, number in (
            ("--top", self.top),
            ("--clusters", self.num_clusters),
            ("--max-occurrences", self.max_occurrences),
        ):
            if number < 1:
                raise ConfigurationError(f"{name}: found {number}, expected a positive number.")
        if not 0 <= self.seed < 2**32:
            raise ConfigurationError(
                f"--seed: found {self.seed}, expected a number from 0 to {2**32 - 1}, as k-means takes."
            )
        if self.plot is not None:
            check_plot(self.plot, self.overwrite)
        if self.makes_clusters:
            check_clustering()

    @property
    def unit(self) -> str:
        """What is compared, in messages."""
        return "sentence" if self.word is None else "occurrence"

    @property
    def shows_clusters(self) -> bool:
        """Whether clusters are printed."""
        return self.clusters is not None or not self.sentence

    @property
    def makes_clusters(self) -> bool:
        """Whether clusters are printed or plotted."""
        return self.shows_clusters or self.plot is not None

    @property
    def num_clusters(self) -> int:
        """Number of clusters to make."""
        return DEFAULT_NUM_CLUSTERS if self.clusters is None else self.clusters


class ComparedOccurrences(NamedTuple):
    """What to print."""

    found: FoundOccurrences
    queries: List[Tuple[Occurrence, List[Neighbor]]]  # of each sentence, with its nearest neighbors
    clusters: List[Cluster]  # the largest first; empty if they are not shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.usage, parser.description = _USAGE, _DESCRIPTION
    parser.add_argument_group("files").add_argument(
        "text",
        metavar="TEXT",
        help="UTF-8, plain or .gz, a tokenized sentence on each line; - for standard input; blank lines are "
        "skipped",
    )
    add_options(parser, ComparisonOptions, "what to compare")
    add_options(parser, BiLMFiles, "the biLM")
    add_options(parser, DeviceOptions, "what runs it")


def run(args: argparse.Namespace) -> None:
    """Compare the occurrences, and print them."""
    options = options_from(ComparisonOptions, args)
    compared = compare_occurrences(
        args.text,
        options,
        options_from(BiLMFiles, args),
        options_from(DeviceOptions, args),
    )

    def counted(number: int) -> str:
        return f"{number:,} {options.unit}{'s' * (number != 1)}"

    num_compared, num_found = len(compared.found.occurrences), compared.found.num_found
    sample = (
        f", of which {num_compared:,} are compared, a random sample (--max-occurrences)"
        if num_compared < num_found
        else ""
    )
    what = args.text if options.word is None else options.word
    print(f"{what}: {counted(num_found)}{sample}")
    for number, (query, neighbors) in enumerate(compared.queries, start=1):
        print(f"\nsentence {number}: {query.marked_sentence}")
        _print_rows(neighbors)
        if not neighbors:
            print(f"  no other {options.unit}")
    for number, cluster in enumerate(compared.clusters, start=1):
        print(f"\ncluster {number}: {counted(len(cluster.members))}")
        _print_rows(cluster.neighbors[: options.top])
    if options.plot is not None:
        print(f"\n{options.plot}: written")


def _print_rows(neighbors: List[Neighbor]) -> None:
    for occurrence, similarity in neighbors:
        assert occurrence.line_index is not None
        print(
            f"  {similarity:6.3f}  line {occurrence.line_index + 1:<7} {occurrence.marked_sentence}"
        )


def compare_occurrences(
    text: Union[str, PathLike],
    options: ComparisonOptions,
    files: BiLMFiles = BiLMFiles(),
    device: DeviceOptions = DeviceOptions(),
) -> ComparedOccurrences:
    """
    Compare the occurrences of a word in a text by their vectors in context, or the sentences of a text.

    # Parameters

    text : `str` or `PathLike`
        One sentence on each line, see `SentenceSource`; `-` for standard input. Blank lines are skipped.
    options, files, device
        See their classes.

    # Raises

    `ConfigurationError` for invalid text, a word that is not in the text or in a sentence, and more clusters
    than distinct vectors (before a biLM is loaded); and as `ElmoEmbedder`.
    """
    queries = [_query(sentence, options) for sentence in options.sentence]
    source = SentenceSource(text, InputOptions(skip_blank=True))
    found = find_occurrences(
        source.sentences(),
        options.word,
        source.name,
        options.ignore_case,
        options.max_occurrences,
        options.seed,
    )
    occurrences = found.occurrences
    _check_contexts(occurrences, options)
    if options.layer == TOKEN_REPRESENTATION and options.word is not None:
        logger.warning(
            "Layer 0, the token representation, does not depend on the context: occurrences of equal "
            "spelling have equal vectors. Give another --layer to compare contexts."
        )

    embedder = ElmoEmbedder(**files.arguments, **asdict(device))
    # (num_occurrences + num_queries, dim)
    all_vectors = embed_occurrences(
        embedder, [*occurrences, *queries], options.layer, options.batch_tokens, options.pool
    )
    vectors, query_vectors = all_vectors[: len(occurrences)], all_vectors[len(occurrences) :]

    neighbors = [
        (query, nearest_occurrences(query, query_vector, occurrences, vectors, options.top))
        for query, query_vector in zip(queries, query_vectors)
    ]
    clusters = []
    if options.makes_clusters:
        clusters = cluster_occurrences(occurrences, vectors, options.num_clusters, options.seed)
    if options.plot is not None:
        plot_occurrences(
            options.plot, options.word, occurrences, vectors, clusters, queries, query_vectors
        )
    return ComparedOccurrences(found, neighbors, clusters if options.shows_clusters else [])


def _query(sentence: str, options: ComparisonOptions) -> Occurrence:
    """Return the first occurrence of the word in a sentence of the command line; or the sentence."""
    place = f"--sentence '{sentence}'"
    tokens = split_tokens(sentence)
    if not tokens:
        raise ConfigurationError(f"{place}: found no tokens, expected a sentence. Give some words.")
    found = find_occurrences(
        [Sentence(0, sentence, tokens)], options.word, place, options.ignore_case
    )
    return found.occurrences[0]


def _check_contexts(occurrences: List[Occurrence], options: ComparisonOptions) -> None:
    """Check that there are enough distinct vectors for clusters and a plot."""
    num_contexts = num_distinct_contexts(occurrences, options.layer)
    compared = f"{len(occurrences):,} {options.unit}s" + " of the word" * (options.word is not None)
    reason = (
        "; layer 0, the token representation, does not depend on the context"
        if options.layer == TOKEN_REPRESENTATION and options.word is not None
        else ""
    )
    if options.makes_clusters and options.num_clusters > num_contexts:
        raise ConfigurationError(
            f"--clusters: found {options.num_clusters}, expected at most {num_contexts:,}, the number of "
            f"distinct vectors of the {compared}{reason}. Give a smaller number, another --layer, or more "
            "text."
        )
    if options.plot is not None and num_contexts < 2:
        raise ConfigurationError(
            f"--plot: found one distinct vector of the {compared}{reason}, expected at least 2. Give another "
            "--layer or more text, or omit --plot."
        )
