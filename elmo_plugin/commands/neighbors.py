"""`elmo neighbors`: find the nearest occurrences of a word in context, or sentences, and cluster them."""

import argparse
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Iterable, Optional, Sequence, Tuple

import numpy

from elmo_plugin.arguments import add_options, option, option_group, options_from
from elmo_plugin.embedding.elmo_embedder import BiLMFiles, DeviceOptions, ElmoEmbedder
from elmo_plugin.embedding.layers import POOLS
from elmo_plugin.embedding.neighbors import (
    AVERAGE,
    TOP_LAYER,
    Cluster,
    Layer,
    Occurrence,
    cluster_vectors,
    embed_occurrences,
    find_occurrences,
    nearest_occurrences,
)
from elmo_plugin.embedding.sentences import InputOptions, Sentence, SentenceSource
from elmo_plugin.errors import ConfigurationError, needing
from elmo_plugin.files.output import FIGURE_SUFFIXES, check_output_file, save_figure
from elmo_plugin.files.text import split_tokens

_DEFAULT_NUM_CLUSTERS = 2

# Of a plot's legend: words on each side of the word, characters of a line, and inches that a line takes.
_WORDS_OF_CONTEXT = 4
_CHARACTERS = 80
_INCHES_PER_LINE = 0.22

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
    return int(text) if text.lstrip("-").isdigit() else text


@dataclass(frozen=True)
class NeighborsOptions:
    """
    What to compare, and what to show.

    # Raises

    `ConfigurationError` for options that exclude each other, numbers below 1, a plot that cannot be written,
    and clusters or a plot without the packages that make them.
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
    plot: Optional[str] = option(
        "draw two principal components of the vectors, as .png or .svg", None, metavar="FILE"
    )
    overwrite: bool = option("replace FILE of --plot if it exists", False)
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
        if self.plot is not None:
            if Path(self.plot).suffix.lower() not in FIGURE_SUFFIXES:
                raise ConfigurationError(
                    f"--plot: found {self.plot}, expected a name that ends in "
                    f"{' or '.join(FIGURE_SUFFIXES)}. Give another name."
                )
            check_output_file(self.plot, self.overwrite, "--overwrite", "--plot")
            _figure_class()
        if self.plot is not None or self.num_clusters is not None:
            advice = ", or give --sentence for neighbors alone."
            with needing("Clusters and plots need scikit-learn", "elmo-plugin[plots]", advice):
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
    if options.plot is not None and len(occurrences) < 2:
        raise ConfigurationError(
            f"--plot: {source.name} has one point to plot, expected at least two. Omit --plot."
        )
    embedder = ElmoEmbedder(**options.files.arguments, **asdict(options.device))
    # (num_occurrences + num_queries, dim)
    all_vectors = embed_occurrences(embedder, [*occurrences, *queries], options.layer, options.pool)
    vectors, query_vectors = all_vectors[: len(occurrences)], all_vectors[len(occurrences) :]

    found = _counted(num_found, options)
    sample = f", of which {len(occurrences):,} are compared, a random sample"
    title = f"{options.word or args.text}: {found}{sample if len(occurrences) < num_found else ''}"
    print(title)
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
    if options.plot is not None:
        figure = _figure(occurrences, vectors, clusters, queries, query_vectors)
        figure.axes[0].set_title(title).set_parse_math(False)
        save_figure(figure, options.plot)
        print(f"\n{options.plot}: written")


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


def _figure(
    occurrences: Sequence[Occurrence],
    vectors: numpy.ndarray,
    clusters: Sequence[Cluster],
    queries: Sequence[Occurrence],
    query_vectors: numpy.ndarray,
) -> Any:
    """
    Plot the first two principal components of the vectors of occurrences, `(num_occurrences, dim)`. Members
    of a cluster have its number as their marker; queries are stars, and do not change the components.
    """
    from sklearn.decomposition import PCA

    pca = PCA(n_components=2).fit(vectors)
    points = pca.transform(vectors)  # (num_occurrences, 2)
    num_lines = len(clusters) + len(queries)
    figure = _figure_class()(figsize=(8, 5.5 + _INCHES_PER_LINE * num_lines), layout="constrained")
    axes = figure.subplots()
    if not clusters:
        axes.scatter(*points.T, alpha=0.6)
    for number, cluster in enumerate(clusters, start=1):
        example = _context(occurrences[cluster.members[0]])
        label = f"cluster {number} ({len(cluster.members):,}), such as: {example}"
        axes.scatter(*points[cluster.members].T, marker=f"${number}$", alpha=0.6, label=label)
    for number, query in enumerate(queries, start=1):
        point = pca.transform(query_vectors[number - 1 : number])[0]
        label = f"sentence {number}: {_context(query)}"
        axes.scatter(*point, s=160, marker="*", edgecolors="black", label=label)
    first, second = pca.explained_variance_ratio_
    axes.set_xlabel(f"first principal component ({first:.0%} of the variance)")
    axes.set_ylabel(f"second principal component ({second:.0%} of the variance)")
    legend = figure.legend(loc="outside lower left", fontsize="small", frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a dollar sign is a word, not math
    return figure


def _context(occurrence: Occurrence) -> str:
    """Return the word with a few words before and after it, or the first words of a whole sentence."""
    position = occurrence.position or 0
    first = max(0, position - _WORDS_OF_CONTEXT)
    words = occurrence.tokens[first : position + 1 + _WORDS_OF_CONTEXT]
    return textwrap.shorten(" ".join(words), _CHARACTERS, placeholder=" …")


def _figure_class() -> Any:
    # Not pyplot, which keeps figures in memory and may need a display.
    with needing("Figures need matplotlib", "elmo-plugin[plots]", ", or omit --plot."):
        from matplotlib.figure import Figure
    return Figure
