"""`allennlp elmo-neighbors`: a word's nearest occurrences in context, and clusters of them."""

import argparse
import logging
from os import PathLike
from typing import List, NamedTuple, Optional, Sequence, Union

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.kernels import AUTO
from elmo_plugin.commands.bilm_arguments import (
    add_device_arguments,
    add_file_arguments,
    named_files,
)
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.neighbor_plot import check_plot, plot_occurrences
from elmo_plugin.embedding.neighbors import (
    AVERAGE,
    TOKEN_REPRESENTATION,
    TOP_LAYER,
    FoundOccurrences,
    Layer,
    Neighbor,
    Occurrence,
    check_layer,
    check_positive,
    cluster_occurrences,
    embed_occurrences,
    find_in_sentence,
    find_occurrences,
    nearest_occurrences,
    num_distinct_contexts,
)
from elmo_plugin.embedding.sentence_file import SentenceFile

DEFAULT_TOP = 10
DEFAULT_NUM_CLUSTERS = 2
DEFAULT_MAX_OCCURRENCES = 5000

logger = logging.getLogger(__name__)

_DESCRIPTION = """
Show what a biLM sees in the contexts of a word: which of its occurrences in TEXT are nearest to the word
in a sentence of yours, by cosine similarity (the paper's table 4); or, without a sentence, into which
clusters they fall.

TEXT is UTF-8, one sentence on each line, tokens set apart by white space; plain or .gz, or - for
standard input. Blank lines are left out, and counted.
"""

_EPILOG = """
examples:
  allennlp elmo-neighbors news.txt --word play \\
      --sentence "Chico Ruiz made a spectacular play on Alusik 's grounder ."
  allennlp elmo-neighbors news.txt.gz --word bank --clusters 3 --plot bank.png

Each neighbour has its similarity, from -1 to 1, the number of its line, from 1, and its sentence with
**word** marked. The word's own place in a --sentence that is in TEXT too is not a neighbour. In a
--sentence that holds the word several times, the first is meant; in TEXT, each is an occurrence.

Clusters are those of k-means over vectors of length 1, the largest first, with the occurrences that are
most similar to their mean. The picture is a projection (PCA) of the vectors; it needs matplotlib:
  pip install elmo-plugin[plots]

Only sentences that hold the word are embedded. Of more than --max-occurrences a random sample is taken,
the same for the same --seed; memory and time grow with it, not with TEXT.
"""


class QueryNeighbors(NamedTuple):
    """A sentence that was asked about, and its nearest occurrences."""

    query: Occurrence
    neighbors: List[Neighbor]


class OccurrenceCluster(NamedTuple):
    """The size of a cluster, and its most central occurrences."""

    num_occurrences: int
    central: List[Neighbor]


class ComparedOccurrences(NamedTuple):
    """
    # Parameters

    num_found, num_compared : `int`
        Occurrences in the text, and those of them that were embedded.
    queries : `List[QueryNeighbors]`
        One for each sentence.
    clusters : `List[OccurrenceCluster]`
        The largest first; none if none were asked for.
    """

    num_found: int
    num_compared: int
    queries: List[QueryNeighbors]
    clusters: List[OccurrenceCluster]


@Subcommand.register("elmo-neighbors")
class ElmoNeighbors(Subcommand):
    """Compares a word's contexts: `allennlp elmo-neighbors TEXT --word WORD [--sentence SENTENCE]`."""

    # It builds nothing that a config names, so --include-package would change nothing.
    requires_plugins = False

    def add_subparser(self, parser: argparse._SubParsersAction) -> argparse.ArgumentParser:
        subparser: argparse.ArgumentParser = parser.add_parser(
            self.name,
            description=_DESCRIPTION,
            epilog=_EPILOG,
            help="Find a word's nearest occurrences in context, or clusters of them.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subparser.add_argument("text", metavar="TEXT", help="sentences; - for standard input")
        _add_comparison(subparser)
        _add_plot(subparser)
        _add_model(subparser)
        subparser.set_defaults(func=_compare_from_args)
        return subparser


def _add_comparison(subparser: argparse.ArgumentParser) -> None:
    comparison = subparser.add_argument_group("what to compare")
    comparison.add_argument("--word", required=True, help="one token; required")
    comparison.add_argument(
        "--sentence",
        action="append",
        default=[],
        help="in tokens, with the word: its nearest occurrences are shown; may be given several times",
    )
    comparison.add_argument(
        "--ignore-case",
        action="store_true",
        help="the word matches in any case (default: only as it is spelled)",
    )
    comparison.add_argument(
        "--layer",
        type=_layer,
        default=TOP_LAYER,
        help="0, the token representation, which is the same in every context; 1, 2, ..., LSTM layers; "
        f"{TOP_LAYER}, the last; {AVERAGE}, of all (default = {TOP_LAYER})",
    )
    comparison.add_argument(
        "--top",
        type=int,
        default=DEFAULT_TOP,
        metavar="N",
        help=f"show at most N occurrences for a sentence or cluster (default = {DEFAULT_TOP})",
    )
    comparison.add_argument(
        "--clusters",
        type=int,
        metavar="K",
        help="show K clusters, and draw them (default: draw, and without --sentence show, "
        f"{DEFAULT_NUM_CLUSTERS})",
    )
    comparison.add_argument(
        "--max-occurrences",
        type=int,
        default=DEFAULT_MAX_OCCURRENCES,
        metavar="N",
        help=f"of more than N, compare a random sample of N (default = {DEFAULT_MAX_OCCURRENCES})",
    )
    comparison.add_argument(
        "--seed", type=int, default=0, help="of the sample and of the clusters (default = 0)"
    )


def _add_plot(subparser: argparse.ArgumentParser) -> None:
    plot = subparser.add_argument_group("picture")
    plot.add_argument(
        "--plot",
        metavar="FILE",
        help="draw the occurrences in two dimensions, coloured by cluster: a .png or .svg",
    )
    plot.add_argument(
        "--overwrite",
        action="store_true",
        help="replace FILE if it exists (default: stop before any work)",
    )


def _add_model(subparser: argparse.ArgumentParser) -> None:
    model = subparser.add_argument_group("the biLM")
    add_file_arguments(model)
    model.add_argument(
        "--batch-tokens",
        type=int,
        metavar="N",
        help="at most N tokens in a batch, padding included (default: as many as have vectors of 256 MiB)",
    )
    add_device_arguments(model)


def compare_occurrences(
    text: Union[str, PathLike],
    word: str,
    sentences: Sequence[str] = (),
    ignore_case: bool = False,
    layer: Layer = TOP_LAYER,
    top: int = DEFAULT_TOP,
    num_clusters: Optional[int] = None,
    max_occurrences: int = DEFAULT_MAX_OCCURRENCES,
    seed: int = 0,
    plot: Optional[Union[str, PathLike]] = None,
    overwrite: bool = False,
    options_file: Optional[Union[str, PathLike]] = None,
    weight_file: Optional[Union[str, PathLike]] = None,
    batch_tokens: Optional[int] = None,
    cuda_device: int = -1,
    precision: str = "float32",
    kernel: str = AUTO,
) -> ComparedOccurrences:
    """
    Compare the occurrences of a word in a text by their vectors in context.

    # Parameters

    text : `str` or `PathLike`
        One sentence on each line, see `SentenceFile`; `-` for standard input. Blank lines are left out.
    word : `str`
        One token.
    sentences : `Sequence[str]`, optional (default = none)
        To find the nearest occurrences of. Tokens are set apart by white space; the first that is the word
        is meant.
    ignore_case, max_occurrences, seed
        See `find_occurrences`.
    layer : `int` or `str`, optional (default = `-1`)
        See `embed_occurrences`.
    top : `int`, optional (default = 10)
        At most so many occurrences are given for a sentence or a cluster.
    num_clusters : `int`, optional (default = 2 without sentences, for `plot` 2 too, otherwise no clusters)
        Clusters to make, see `cluster_occurrences`.
    plot : `str` or `PathLike`, optional
        The picture to write, see `plot_occurrences`.
    overwrite : `bool`, optional (default = `False`)
        Replace `plot` if it is there.
    options_file, weight_file : `str` or `PathLike`, optional (default = the paper's model)
        The files of the biLM.
    batch_tokens, cuda_device, precision, kernel
        See `ElmoEmbedder`.

    # Raises

    `ConfigurationError`, before a model is loaded, for arguments and text that are not as described, a word
    that is not in the text or a sentence, and more clusters than distinct contexts; and as `ElmoEmbedder`
    does.
    """
    check_layer(layer)
    check_positive("--top", top)
    gives_clusters = num_clusters is not None or not sentences
    if num_clusters is None:
        num_clusters = DEFAULT_NUM_CLUSTERS
    check_positive("--clusters", num_clusters)
    if not 0 <= seed < 2**32:
        raise ConfigurationError(
            f"--seed: found {seed}, expected a number from 0 to {2**32 - 1}, as k-means takes."
        )
    if plot is not None:
        check_plot(plot, overwrite)
    elif overwrite:
        raise ConfigurationError(
            "--overwrite is about the file of --plot, and there is none. Give --plot FILE, or leave it out."
        )
    queries = [find_in_sentence(sentence, word, ignore_case) for sentence in sentences]
    with SentenceFile(text, skip_blank=True) as source:
        found = find_occurrences(source, word, ignore_case, max_occurrences, seed)
    occurrences = found.occurrences
    if gives_clusters or plot is not None:
        _check_contexts(occurrences, layer, num_clusters, plot is not None)
    _say_what_limits(found, layer)

    embedder = ElmoEmbedder(
        **named_files(options_file, weight_file),
        cuda_device=cuda_device,
        precision=precision,
        kernel=kernel,
    )
    # (num_occurrences + num_queries, dim)
    all_vectors = embed_occurrences(embedder, [*occurrences, *queries], layer, batch_tokens)
    vectors, query_vectors = all_vectors[: len(occurrences)], all_vectors[len(occurrences) :]

    neighbors = [
        QueryNeighbors(query, nearest_occurrences(query, query_vector, occurrences, vectors, top))
        for query, query_vector in zip(queries, query_vectors)
    ]
    clusters = []
    if gives_clusters or plot is not None:
        clusters = cluster_occurrences(vectors, num_clusters, seed)
    if plot is not None:
        plot_occurrences(plot, word, occurrences, vectors, clusters, queries, query_vectors)
    shown_clusters = [
        OccurrenceCluster(
            len(cluster.members),
            [
                Neighbor(occurrences[index], similarity)
                for index, similarity in zip(cluster.members[:top], cluster.similarities)
            ],
        )
        for cluster in clusters
        if gives_clusters
    ]
    return ComparedOccurrences(found.num_found, len(occurrences), neighbors, shown_clusters)


def _layer(text: str) -> Layer:
    try:
        return int(text)
    except ValueError:
        return text  # which check_layer refuses, if it is not AVERAGE


def _compare_from_args(args: argparse.Namespace) -> None:
    compared = compare_occurrences(
        text=args.text,
        word=args.word,
        sentences=args.sentence,
        ignore_case=args.ignore_case,
        layer=args.layer,
        top=args.top,
        num_clusters=args.clusters,
        max_occurrences=args.max_occurrences,
        seed=args.seed,
        plot=args.plot,
        overwrite=args.overwrite,
        options_file=args.options_file,
        weight_file=args.weight_file,
        batch_tokens=args.batch_tokens,
        cuda_device=args.cuda_device,
        precision=args.precision,
        kernel=args.kernel,
    )
    sample = (
        f", of which {compared.num_compared:,} are compared, a random sample"
        if compared.num_compared < compared.num_found
        else ""
    )
    print(f"{args.word}: {_counted(compared.num_found)}{sample}")
    for number, (query, neighbors) in enumerate(compared.queries, start=1):
        print(f"\nsentence {number}: {query.marked_sentence}")
        _print_rows(neighbors)
        if not neighbors:
            print("  no occurrence in another context")
    for number, cluster in enumerate(compared.clusters, start=1):
        print(f"\ncluster {number}: {_counted(cluster.num_occurrences)}")
        _print_rows(cluster.central)
    if args.plot is not None:
        print(f"\n{args.plot}: written")


def _counted(num_occurrences: int) -> str:
    return f"{num_occurrences:,} occurrence{'s' * (num_occurrences != 1)}"


def _print_rows(neighbors: List[Neighbor]) -> None:
    for occurrence, similarity in neighbors:
        assert occurrence.line_index is not None
        print(
            f"  {similarity:6.3f}  line {occurrence.line_index + 1:<7} {occurrence.marked_sentence}"
        )


def _check_contexts(
    occurrences: List[Occurrence], layer: Layer, num_clusters: int, draws: bool
) -> None:
    num_contexts = num_distinct_contexts(occurrences, layer)
    reason = (
        "; the token representation, layer 0, does not see the context"
        if layer == TOKEN_REPRESENTATION
        else ""
    )
    if num_clusters > num_contexts:
        raise ConfigurationError(
            f"--clusters: found {num_clusters}, expected at most {num_contexts:,}, as so many of the vectors "
            f"of the word's occurrences ({len(occurrences):,}) are distinct{reason}. Give a smaller number, "
            "another --layer, or more text."
        )
    if draws and num_contexts < 2:
        raise ConfigurationError(
            f"--plot: the occurrences of the word ({len(occurrences):,}) have one distinct vector{reason}, "
            "expected at least 2. Give another --layer or more text, or leave --plot out."
        )


def _say_what_limits(found: FoundOccurrences, layer: Layer) -> None:
    if len(found.occurrences) < found.num_found:
        logger.warning(
            "The word occurs %d times: a random sample of %d is compared. Raise --max-occurrences for more.",
            found.num_found,
            len(found.occurrences),
        )
    if layer == TOKEN_REPRESENTATION:
        logger.warning(
            "Layer 0, the token representation, does not see the context: all occurrences of one spelling "
            "are equally near. Give another --layer to compare contexts."
        )
