"""`elmo predict`: run a trained task model on JSON lines."""

import itertools
import json
import logging
import sys
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence

from elmo_plugin.arguments import Options, option
from elmo_plugin.compat.environment import needing_allennlp
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import LinePredictor
from elmo_plugin.files.output import check_not_input, check_output_option, opened_output
from elmo_plugin.files.text import (
    MAX_LINE_BYTES,
    STANDARD_STREAM,
    byte_lines,
    file_id,
    open_text,
    standard_input,
)

DESCRIPTION = """\
examples:
  echo '{"sentence": "Ada Lovelace lived in London."}' | %(prog)s elmo_ner_small -
  %(prog)s elmo_srl_small sentences.jsonl --output-file tagged.jsonl

Run the model in an archive on each line of INPUT, a JSON object such as
  elmo_ner    {"sentence": "Ada Lovelace lived in London."}
  elmo_sst    {"sentence": "A good film."}
  elmo_srl    {"tokens": ["The", "cat", "sat"], "predicates": [2]}
              {"sentence": "The cat sat."}, if the model finds predicates itself, as elmo_srl_small does
  elmo_snli   {"premise": "A man sleeps outside.", "hypothesis": "A man sleeps."}
  elmo_squad  {"passage": "It rained in Paris.", "question": "Where did it rain?"}
  elmo_coref  {"document": "Mary slept. She was tired."}
Print one JSON object for each line. For an invalid line it is {"error": ...}, and other lines are not
affected. The exit status is 0, or 2 if no line is valid. Taggers of AllenNLP, such as simple_tagger, have the
input of elmo_ner. (allennlp predict --use-dataset-reader reads files in the format of the training data.)
"""

_BATCH_SIZE = 64
# In place of a line that is too long. No line has a line feed.
_TOO_LONG = b"\n"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PredictOptions(Options):
    """The arguments of the command."""

    archive_file: str = option(
        "model.tar.gz of a training run, its folder, or the name of a task model of this package",
        positional=True,
        metavar="ARCHIVE",
    )
    input_file: str = option(
        "JSON lines, plain or .gz; - for standard input", positional=True, metavar="INPUT"
    )
    output_file: Optional[str] = option(
        "write the predictions to FILE; by default, or with -, to standard output",
        None,
        metavar="FILE",
    )
    overwrite: bool = option("replace FILE if it exists", False)
    batch_size: Optional[int] = option(
        "number of lines that are read and predicted together (default: 64; from standard input 1, so that "
        "each line is answered at once)",
        None,
        metavar="N",
        positive=True,
    )
    overrides: Optional[Dict[str, Any]] = option(
        "changes to the config in ARCHIVE", None, short="-o", metavar="JSON"
    )
    predictor: Optional[str] = option(
        "registered name of the predictor (default: the model's)", None, metavar="NAME"
    )
    predictor_args: Optional[Dict[str, Any]] = option(
        """arguments of the predictor, such as '{"tokenizer": {"type": "whitespace"}}'""",
        None,
        metavar="JSON",
    )
    cuda_device: int = option("index of the GPU; -1 for the CPU", -1, metavar="N")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_output_option(self.output_file, self.overwrite, "--output-file")
        if self.output_file is not None and self.output_file != STANDARD_STREAM:
            check_not_input(self.output_file, [file_id(self.input_file)], "--output-file")


def run(options: PredictOptions) -> None:
    """
    Print the answers, or write them to a file.

    # Raises

    `ConfigurationError` if there is no prediction for any line. The file is written all the same.
    """
    is_stream = options.input_file == STANDARD_STREAM
    batch_size = options.batch_size or (1 if is_stream else _BATCH_SIZE)
    num_lines = num_failed = 0
    with standard_input() if is_stream else open_text(options.input_file) as input_file:
        with needing_allennlp("predict"):
            from elmo_plugin.predictors import load_predictor

        predictor = load_predictor(
            options.archive_file,
            options.overrides,
            options.cuda_device,
            options.predictor,
            options.predictor_args,
        )
        lines = byte_lines(input_file, options.input_file, "a JSON object", _TOO_LONG)
        with opened_output(options.output_file) as file:
            for answer in answers_to_lines(predictor, lines, batch_size):
                num_lines += 1
                num_failed += answer.keys() == {"error"}
                file.write(predictor.dump_line(answer))
                if file is sys.stdout:
                    file.flush()  # a program may wait for this answer
    if num_failed and num_failed == num_lines:
        raise ConfigurationError(
            f"{options.input_file}: no prediction for any of the {num_lines} lines, expected input of this "
            f"model. Correct them as their errors say; the last one is: {answer['error']}"
        )
    if num_failed:
        logger.warning("No prediction for %d of %d lines.", num_failed, num_lines)


def answers_to_lines(
    predictor: Any, lines: Iterator[bytes], batch_size: int
) -> Iterator[Dict[str, Any]]:
    """
    Yield the answer of a `Predictor` to each line. The answer to an invalid or blank line is
    `{"error": ...}`, and the log has its number. `batch_size` lines are read before they are predicted.
    """
    line_number = 0
    while batch := list(itertools.islice(lines, batch_size)):
        for answer in _answers(predictor, batch):
            line_number += 1
            if answer.keys() == {"error"}:
                logger.error("Line %d: no prediction. %s", line_number, answer["error"])
            yield answer


def _answers(predictor: Any, lines: Sequence[bytes]) -> List[Dict[str, Any]]:
    inputs: Dict[int, Any] = {}
    answers: Dict[int, Dict[str, Any]] = {}
    for position, line in enumerate(lines):
        try:
            if line == _TOO_LONG:
                answers[position] = {
                    "error": f"Found a line of more than {MAX_LINE_BYTES:,} bytes. Split it."
                }
            else:
                inputs[position] = predictor.load_line(line.decode("utf-8"))
        # Predictors of other packages parse the line here, those of this package later.
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            answers[position] = {"error": f"Found a line that is not JSON in UTF-8 ({error})."}
    if inputs:
        answers.update(zip(inputs, _predicted(predictor, list(inputs.values()))))
    return [answers[position] for position in range(len(lines))]


def _predicted(predictor: Any, inputs: List[Any]) -> List[Dict[str, Any]]:
    """Return the answers to inputs; to an invalid one the error that predictors of other packages raise."""
    if isinstance(predictor, LinePredictor):  # which answers each
        return predictor.predict_batch_json(inputs)
    from allennlp.common import checks

    errors = (AssertionError, AttributeError, LookupError, TypeError, ValueError)
    try:
        return predictor.predict_batch_json(inputs)
    except (*errors, checks.ConfigurationError) as error:
        if len(inputs) == 1:
            logger.debug("The predictor failed.", exc_info=True)
            return [{"error": f"{type(error).__name__}: {error}"}]
        return [answer for one_input in inputs for answer in _predicted(predictor, [one_input])]
