"""`elmo score`: probabilities and perplexity of sentences, and the best words for a blank."""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from itertools import tee
from typing import Any, Dict, Iterator, List, Optional, Sequence, TextIO, Tuple

from tqdm import tqdm

from elmo_plugin.arguments import add_options, option, option_group, options_from
from elmo_plugin.embedding.bilm_options import DeviceOptions
from elmo_plugin.embedding.scoring import (
    BLANK,
    DEFAULT_MODEL,
    ScoreTotals,
    SentenceScorer,
    check_blank,
)
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.embedding.sentences import WHITESPACE, InputOptions, SentenceSource
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import check_output_file, replaced_file

STANDARD_OUTPUT = "-"

_HEADER = " perplexity    forward   backward  unknown  sentence"
_BEST_HEADER = "probability    forward   backward  word"

# Each sentence as JSON, and as the lines of a table.
_Rows = Iterator[Tuple[Dict[str, Any], List[str]]]

_DESCRIPTION = f"""\
examples:
  %(prog)s sentences.txt
  %(prog)s sentences.txt --words --output scores.jsonl --options-file my_bilm
  echo "She opened the {BLANK} and went in ." | %(prog)s - --best 5

Print for each sentence of INPUT its perplexity, the mean of both directions', and its log-probability
(natural logarithm) in each: forward, of the words and the sentence's end; backward, of the words and the
sentence's begin. Words outside of the vocabulary count as <UNK>. The LSTMs start each sentence from zeros.
With --best each sentence holds one {BLANK}; the words for it are ranked by the product of the probabilities
of both directions. JSON lines have the number of the line, from 0, and the same values, unrounded.
"""


@dataclass(frozen=True)
class LanguageModelFiles:
    """The files of a biLM with its softmax, see `SentenceScorer.from_files`."""

    options_file: str = option(
        "sizes, JSON: path, URL or hf:// name; elmo_mini, or a folder that elmo export wrote, stands for "
        "all files",
        DEFAULT_MODEL,
        metavar="FILE",
    )
    weight_file: Optional[str] = option(
        "weights, HDF5: path, URL or hf:// name", None, metavar="FILE"
    )
    softmax_file: Optional[str] = option(
        "HDF5 with softmax/W and softmax/b, such as AI2's, or a checkpoint of TensorFlow, without .index "
        "(default: the weights)",
        None,
        metavar="FILE",
    )
    vocabulary_file: Optional[str] = option(
        "the words of the softmax (default: vocab.txt beside the weights)", None, metavar="FILE"
    )


@dataclass(frozen=True)
class ScoreOptions:
    """
    What `score_text` writes.

    # Raises

    `ConfigurationError` for options that exclude each other, and for an output that cannot be written.
    """

    words: bool = option("show each word of each sentence", False)
    best: Optional[int] = option(f"show the K best words for {BLANK}", None, metavar="K")
    output: Optional[str] = option(
        "write JSON lines to FILE, or with - to standard output, in place of the table",
        None,
        metavar="FILE",
    )
    overwrite: bool = option("replace FILE if it exists", False)
    files: LanguageModelFiles = option_group("the biLM", LanguageModelFiles())
    device: DeviceOptions = option_group("what runs it", DeviceOptions())
    input: InputOptions = option_group("input", InputOptions())
    batches: BatchOptions = option_group("speed", BatchOptions())

    def __post_init__(self) -> None:
        if self.best is not None and self.best < 1:
            raise ConfigurationError(f"--best: found {self.best}, expected a positive number.")
        if self.best is not None and self.words:
            raise ConfigurationError(
                "--words and --best are given, expected one of them: --words scores the words of whole "
                f"sentences, --best finds words for {BLANK}."
            )
        if self.best is not None and self.input.tokenizer != WHITESPACE:
            raise ConfigurationError(
                f"--tokenizer is {self.input.tokenizer}, expected {WHITESPACE} with --best: spaCy splits "
                f"{BLANK} into three tokens. Leave it out, and give tokenized sentences."
            )
        if self.output is not None and self.output != STANDARD_OUTPUT:
            check_output_file(self.output, self.overwrite, "--overwrite", "--output")
        elif self.overwrite:
            raise ConfigurationError(
                "--overwrite is given without a file to replace. Give --output FILE, or leave it out."
            )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = _DESCRIPTION
    parser.add_argument_group("files").add_argument(
        "input_file",
        metavar="INPUT",
        help="UTF-8 text, plain or .gz, a tokenized sentence on each line; .parquet; -, standard input",
    )
    add_options(parser, ScoreOptions, "what to write")


def run(args: argparse.Namespace) -> None:
    """Score the sentences."""
    score_text(args.input_file, options_from(ScoreOptions, args))


def score_text(input_file: Any, options: ScoreOptions = ScoreOptions()) -> None:
    """
    Score the sentences of a file, and print a table or write JSON lines, in memory that does not grow with
    the file.

    # Parameters

    input_file
        See `SentenceSource`.
    options : `ScoreOptions`, optional
        What is written.

    # Raises

    `ConfigurationError` for an invalid file or sentence, and as `SentenceScorer.from_files`. Then an output
    file is not changed.
    """
    source = SentenceSource(input_file, options.input)
    if options.output is not None and source.is_same_file(options.output):
        raise ConfigurationError(
            f"--output: {options.output} is the file that is read. Give another path."
        )
    scorer = SentenceScorer.from_files(**asdict(options.files), **asdict(options.device))
    totals = ScoreTotals()
    rows = (
        _scored(scorer, source, options, totals)
        if options.best is None
        else _with_best_words(scorer, source, options, options.best)
    )
    if options.output is None:
        print(_BEST_HEADER if options.best is not None else _HEADER)
        for _, lines in rows:
            print("\n".join(lines))
    elif options.output == STANDARD_OUTPUT:
        _write_json(rows, sys.stdout)
    else:
        with replaced_file(options.output) as path, open(path, "w", encoding="utf-8") as file:
            _write_json(rows, file)
    if options.best is None:
        # Beside JSON lines on standard output, it is no part of them.
        print(
            _summary(totals),
            file=sys.stderr if options.output == STANDARD_OUTPUT else sys.stdout,
        )


def _scored(
    scorer: SentenceScorer, source: SentenceSource, options: ScoreOptions, totals: ScoreTotals
) -> _Rows:
    sentences, tokens_of = tee(source.sentences())  # as far apart as `score_sentences` reads ahead
    scores = scorer.score_sentences(
        (sentence.tokens for sentence in tokens_of), **asdict(options.batches)
    )
    for sentence, score in zip(sentences, scores):
        totals.add(score)
        content = score.as_json(options.words)
        yield {"line": sentence.line_index, **content}, _score_lines(content)


def _with_best_words(
    scorer: SentenceScorer, source: SentenceSource, options: ScoreOptions, num_words: int
) -> _Rows:
    sentences, tokens_of = tee(source.sentences())
    checked = (
        check_blank(sentence.tokens, f"{source.name}, line {sentence.line_index + 1}")
        for sentence in tokens_of
    )
    all_best = scorer.best_words_of_sentences(checked, num_words, **asdict(options.batches))
    for sentence, best in zip(sentences, all_best):
        content = {
            "line": sentence.line_index,
            "tokens": sentence.tokens,
            "best": [word._asdict() for word in best],
        }
        lines = [
            f"{word.probability:11.4f}{word.forward:11.2f}{word.backward:11.2f}  {word.word}"
            for word in best
        ]
        yield content, [" ".join(sentence.tokens), *lines]


def _write_json(rows: _Rows, file: TextIO) -> None:
    for content, _ in tqdm(rows, unit=" sentences", desc="scoring"):
        file.write(json.dumps(content, ensure_ascii=False) + "\n")


def _score_lines(content: Dict[str, Any]) -> List[str]:
    """Return the rows of a sentence, and of its words if `content` has them."""

    def row(perplexity: str, directions: Sequence[str], num_unknown: str, text: str) -> str:
        columns = [f"{perplexity:>11}", *(f"{number:>11}" for number in directions)]
        return "".join([*columns, f"{num_unknown:>9}", f"  {text}"])

    def directions_of(values: Dict[str, Any]) -> List[str]:
        return [f"{values[direction]:.2f}" for direction in ("forward", "backward")]

    perplexity, text = f"{content['perplexity']:.2f}", " ".join(content["tokens"])
    lines = [row(perplexity, directions_of(content), str(content["num_unknown"]), text)]
    for word in content.get("words", []):
        mark = "1" * word["is_unknown"]
        lines.append(row("", directions_of(word), mark, f"  {word['word']}"))
    if "words" in content:
        lines.append(row("", [f"{content['end']:.2f}", ""], "", "  </S>"))
        lines.append(row("", ["", f"{content['begin']:.2f}"], "", "  <S>"))
    return lines


def _summary(totals: ScoreTotals) -> str:
    values = {name: f"{value:,.2f}" for name, value in totals.perplexities().items()}
    return (
        f"{totals.num_sentences:,} sentences, {totals.num_words:,} words, {totals.num_unknown:,} of them "
        f"unknown: perplexity {values['perplexity']} (forward {values['forward_perplexity']}, backward "
        f"{values['backward_perplexity']}; as bilm-tf counts {values['bilm_tf_perplexity']})"
    )
