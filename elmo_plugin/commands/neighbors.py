"""`elmo neighbors`: find the nearest occurrences of a word in context, or the nearest sentences."""

from dataclasses import asdict, dataclass
from typing import Any, Optional, Sequence

from elmo_plugin.arguments import Options, option, option_group
from elmo_plugin.embedding.elmo_embedder import BiLMFiles, DeviceOptions, ElmoEmbedder
from elmo_plugin.embedding.layers import AVERAGE, POOLS, TOP_LAYER, Layer
from elmo_plugin.embedding.neighbors import (
    Occurrence,
    embed_occurrences,
    find_occurrences,
    nearest_occurrences,
)
from elmo_plugin.embedding.sentences import InputOptions, Sentence, SentenceSource, tokenizer_of
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import is_unicode

USAGE = "%(prog)s TEXT (--word WORD | --pool POOL) --sentence SENTENCE [options]"

DESCRIPTION = """\
examples:
  %(prog)s news.txt --model elmo_mini --word play --sentence "They saw a play at the theatre ."
  %(prog)s news.txt --model elmo_mini --pool mean --sentence "The bank raised its rates ."

Show the occurrences of a word in TEXT whose vectors are most similar to that of the word in SENTENCE, by
cosine similarity (the paper's table 4). With --pool in place of --word, compare whole sentences.

An occurrence is shown with its similarity (from -1 to 1), its line number (from 1) and its sentence.
Only sentences that contain the word are embedded: time and memory grow with their number.
"""


def _layer(text: str) -> Layer:
    try:
        return int(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class NeighborsOptions(Options):
    """What to compare, and what to show."""

    text: str = option(
        "UTF-8 text, plain or .gz, a tokenized sentence on each line; .parquet; -, standard input",
        positional=True,
        metavar="TEXT",
    )
    sentence: Sequence[str] = option(
        "tokenized sentence that contains the word; give the option again for more sentences",
        repeat=True,
    )
    word: Optional[str] = option("token whose occurrences are compared", None)
    pool: Optional[str] = option(
        "compare whole sentences, by the mean or maximum over tokens, or the last states of both directions",
        None,
        choices=POOLS,
    )
    ignore_case: bool = option("treat upper and lower case as equal", False)
    layer: Any = option(
        "0: token representation, which does not depend on the context; 1, 2, ...: LSTM layers; "
        f"{TOP_LAYER}: the last layer; {AVERAGE}: the mean of all",
        TOP_LAYER,
        type=_layer,
    )
    top: int = option("show at most N occurrences for a sentence", 10, metavar="N", positive=True)
    max_occurrences: int = option(
        "compare at most N, a random sample if there are more", 5000, metavar="N", positive=True
    )
    files: BiLMFiles = option_group("the biLM", BiLMFiles())
    device: DeviceOptions = option_group("device and precision", DeviceOptions())
    input: InputOptions = option_group("input", InputOptions())

    def __post_init__(self) -> None:
        if (self.word is None) == (self.pool is None):
            found = "neither --word nor --pool" if self.word is None else "--word and --pool"
            raise ConfigurationError(
                f"found {found}, expected one of them. Give --word to compare the occurrences of a word, or "
                "--pool to compare whole sentences."
            )
        if self.ignore_case and self.word is None:
            raise ConfigurationError("--ignore-case is given without --word. Leave it out.")
        super().__post_init__()
        self.files.check()


def run(options: NeighborsOptions) -> None:
    """
    Print the nearest occurrences of a word in a text to that in sentences. A word that is not in the text or
    in a sentence is an error before a biLM is loaded.
    """
    queries = [_query(sentence, options) for sentence in options.sentence]
    source = SentenceSource(options.text, options.input)
    occurrences, num_found = find_occurrences(
        source.sentences(), options.word, source.name, options.ignore_case, options.max_occurrences
    )
    embedder = ElmoEmbedder(**options.files.arguments, **asdict(options.device))
    # (num_occurrences + num_queries, dim)
    all_vectors = embed_occurrences(embedder, [*occurrences, *queries], options.layer, options.pool)
    vectors, query_vectors = all_vectors[: len(occurrences)], all_vectors[len(occurrences) :]

    unit = "sentence" if options.word is None else "occurrence"
    title = f"{options.word or options.text}: {num_found:,} {unit}{'s' * (num_found != 1)}"
    if len(occurrences) < num_found:
        title += f", of which {len(occurrences):,} are compared, a random sample"
    print(title)
    for number, (query, query_vector) in enumerate(zip(queries, query_vectors), start=1):
        print(f"\nsentence {number}: {query.marked_sentence}")
        neighbors = nearest_occurrences(query, query_vector, occurrences, vectors, options.top)
        for occurrence, similarity in neighbors:
            line = occurrence.line_index + 1
            print(f"  {similarity:6.3f}  line {line:<7} {occurrence.marked_sentence}")
        if not neighbors:
            print(f"  no other {unit}")


def _query(sentence: str, options: NeighborsOptions) -> Occurrence:
    """Return the first occurrence of the word in a sentence of the command line; or the sentence."""
    place = f"--sentence '{sentence}'"
    if not is_unicode(sentence) or not sentence.strip():
        raise ConfigurationError(f"{place} has no words in UTF-8, expected a sentence. Correct it.")
    sentences = [Sentence(0, sentence, tokenizer_of(options.input.tokenizer)(sentence))]
    return find_occurrences(sentences, options.word, place, options.ignore_case).occurrences[0]
