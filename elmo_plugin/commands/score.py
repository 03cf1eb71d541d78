"""`elmo score`: probabilities and perplexity of sentences, and the best words for a blank."""

import sys
from dataclasses import asdict, dataclass
from itertools import tee
from typing import Any, Dict, Iterator, Optional

from elmo_plugin.arguments import Options, option, option_group
from elmo_plugin.embedding.elmo_embedder import BiLMFiles, DeviceOptions
from elmo_plugin.embedding.scoring import BLANK, ScoreTotals, SentenceScorer
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.embedding.sentences import WHITESPACE, InputOptions, SentenceSource, check_not_read
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import dump_json_line
from elmo_plugin.files.output import check_output_option, opened_output
from elmo_plugin.files.progress import progress_bar
from elmo_plugin.files.text import STANDARD_STREAM

_HEADER = " perplexity    forward   backward  unknown  sentence"
_BEST_HEADER = "probability    forward   backward  word"

DESCRIPTION = f"""\
examples:
  %(prog)s sentences.txt --model elmo_mini
  %(prog)s sentences.txt --words --output scores.jsonl --model my_bilm
  echo "She opened the {BLANK} and went in ." | %(prog)s - --best 5 --model elmo_mini

Print the perplexity of each sentence of INPUT, and its log-probability (natural logarithm) in both
directions: forward is that of the words and the end of the sentence, backward that of the words and its
begin. Perplexity is the mean of both directions. Words outside of the vocabulary count as <UNK>. The LSTM
states are zero at the start of each sentence.
With --best, each sentence contains one blank, {BLANK}. Words for it are ranked by the product of the
probabilities of both directions. JSON lines have the line number, from 1, and the same values, unrounded.
"""


@dataclass(frozen=True)
class LanguageModelFiles(BiLMFiles):
    """The files of a biLM with its softmax, see `SentenceScorer.from_files`."""

    softmax_file: Optional[str] = option(
        "HDF5 file with softmax/W and softmax/b, such as those of AI2 (default: the weights)",
        None,
        metavar="FILE",
    )
    vocabulary_file: Optional[str] = option(
        "file with the words that the softmax predicts (default: vocab.txt beside the weights)",
        None,
        metavar="FILE",
    )


@dataclass(frozen=True)
class ScoreOptions(Options):
    """What to score, how, and what to write."""

    input_file: str = option(
        "UTF-8 text, plain or .gz, a tokenized sentence on each line; .parquet; -, standard input",
        positional=True,
        metavar="INPUT",
    )
    words: bool = option("show each word of each sentence", False)
    best: Optional[int] = option(
        f"show the K best words for {BLANK}", None, metavar="K", positive=True
    )
    output: Optional[str] = option(
        "write JSON lines to FILE, or with - to standard output, in place of the table",
        None,
        metavar="FILE",
    )
    overwrite: bool = option("replace FILE if it exists", False)
    files: LanguageModelFiles = option_group("the biLM", LanguageModelFiles())
    device: DeviceOptions = option_group("device and precision", DeviceOptions())
    input: InputOptions = option_group("input", InputOptions())
    batches: BatchOptions = option_group("speed", BatchOptions())

    def __post_init__(self) -> None:
        super().__post_init__()
        self.files.check()
        is_for_scores = self.words or self.batches != BatchOptions()
        if self.best is not None and (is_for_scores or self.input.tokenizer != WHITESPACE):
            raise ConfigurationError(
                "--best is given with --words, --batch-size or --tokenizer spacy. Leave them out: the first "
                f"two are for scores of whole sentences, and spaCy splits {BLANK} into three tokens."
            )
        check_output_option(self.output, self.overwrite, "--output")


def run(options: ScoreOptions) -> None:
    """
    Score the sentences, and print a table or write JSON lines, in memory that does not grow with the file.
    On an error an output file is not changed.
    """
    source = SentenceSource(options.input_file, options.input)
    if options.output is not None:
        check_not_read([source], options.output, "--output")
    scorer = SentenceScorer.from_files(**options.files.arguments, **asdict(options.device))
    totals = ScoreTotals()
    contents = _contents(scorer, source, options, totals)
    prints_json = options.output == STANDARD_STREAM
    if options.output is None:
        print(_HEADER if options.best is None else _BEST_HEADER)
        for content in contents:
            print("\n".join(_table_rows(content)))
    else:
        with opened_output(options.output) as file:
            for content in progress_bar(contents, unit=" sentences", desc="scoring"):
                file.write(dump_json_line(content))
    if options.best is None:
        print(_summary(totals), file=sys.stderr if prints_json else sys.stdout)


def _contents(
    scorer: SentenceScorer, source: SentenceSource, options: ScoreOptions, totals: ScoreTotals
) -> Iterator[Dict[str, Any]]:
    """Yield the JSON of each sentence, and add its scores to the totals."""
    if options.best is not None:
        for line_index, _, tokens in source.sentences():
            where = f"{source.name}, {source.place} {line_index + 1}"
            best = [word._asdict() for word in scorer.best_words(tokens, options.best, where)]
            yield {"line": line_index + 1, "tokens": tokens, "best": best}
        return
    sentences, read_ahead = tee(source.sentences())  # as far apart as the scorer reads ahead
    tokens_ahead = (sentence.tokens for sentence in read_ahead)
    scores = scorer.score_sentences(tokens_ahead, **asdict(options.batches))
    for sentence, score in zip(sentences, scores):
        totals.add(score)
        yield {"line": sentence.line_index + 1, **score.as_json(options.words)}


def _table_rows(content: Dict[str, Any]) -> Iterator[str]:
    """Yield the row of a sentence, and those of its words."""
    sentence = " ".join(content["tokens"])
    if "best" in content:
        yield sentence
        for word in content["best"]:
            yield "{probability:11.4f}{forward:11.2f}{backward:11.2f}  {word}".format(**word)
        return
    yield (
        "{perplexity:11.2f}{forward:11.2f}{backward:11.2f}{num_unknown:9}  ".format(**content)
        + sentence
    )
    if "words" in content:
        for word in content["words"]:
            mark = "1" if word["is_unknown"] else ""
            yield f"{word['forward']:22.2f}{word['backward']:11.2f}{mark:>9}    {word['word']}"
        yield f"{content['end']:22.2f}{'':20}    </S>"
        yield f"{content['begin']:33.2f}{'':9}    <S>"


def _summary(totals: ScoreTotals) -> str:
    values = {name: f"{value:,.2f}" for name, value in totals.perplexities().items()}
    return (
        f"{totals.num_sentences:,} sentences, {totals.num_words:,} words, {totals.num_unknown:,} of them "
        f"unknown: perplexity {values['perplexity']} (forward {values['forward_perplexity']}, backward "
        f"{values['backward_perplexity']}; as bilm-tf counts {values['bilm_tf_perplexity']})"
    )
