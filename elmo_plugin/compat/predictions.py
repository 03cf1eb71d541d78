"""Predictions of a trained model for the lines of a file, one answer for each line."""

import json
import logging
import sys
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Sequence

from allennlp.common.util import lazy_groups_of
from allennlp.models import Archive
from allennlp.predictors import Predictor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import byte_lines, open_text

STANDARD_INPUT = "-"

logger = logging.getLogger(__name__)


def build_predictor(
    archive: Archive, name: Optional[str], reader_choice: str, arguments: Dict[str, Any]
) -> Predictor:
    """
    Build the predictor of a model.

    # Parameters

    archive : `Archive`
        The loaded model.
    name : `str`, optional
        A registered name; by default that of the model.
    reader_choice : `str`
        Whether it has the reader of the `"train"` or of the `"validation"` data.
    arguments : `Dict[str, Any]`
        More arguments of its constructor.

    # Raises

    `ConfigurationError` if the constructor has no such arguments.
    """
    try:
        return Predictor.from_archive(archive, name, reader_choice, extra_args=arguments)
    except TypeError as error:
        raise ConfigurationError(
            f"predictor_args: found {arguments}, expected arguments of the predictor ({error}). Correct them."
        ) from error


def predict_lines(predictor: Predictor, input_file: str, batch_size: int) -> Iterator[str]:
    """
    Yield the answer to each line of a file, as a line of JSON. The answer to an invalid line, also to a blank
    one, is `{"error": ...}`.

    # Parameters

    predictor : `Predictor`
        Reads a line by `load_line`.
    input_file : `str`
        JSON lines, plain or `.gz`; `-` for standard input.
    batch_size : `int`
        Number of lines that are read before they are predicted.

    # Raises

    `ConfigurationError` if the file cannot be read, or has a line of more than `MAX_LINE_BYTES`.
    """
    with _opened(input_file) as file:
        for lines in lazy_groups_of(byte_lines(file, input_file, "a JSON object"), batch_size):
            for answer in _answers(predictor, lines):
                yield predictor.dump_line(answer)


def predict_data(predictor: Predictor, data_file: str, batch_size: int) -> Iterator[str]:
    """
    Yield the prediction for each instance that the predictor's dataset reader makes of a file, as a line of
    JSON.
    """
    for instances in lazy_groups_of(predictor._dataset_reader.read(data_file), batch_size):
        for output in predictor.predict_batch_instance(instances):
            yield predictor.dump_line(output)


def _answers(predictor: Predictor, lines: Sequence[bytes]) -> List[Dict[str, Any]]:
    inputs: Dict[int, Any] = {}
    answers: Dict[int, Dict[str, Any]] = {}
    for position, line in enumerate(lines):
        try:
            inputs[position] = predictor.load_line(line.decode("utf-8"))
        # Predictors of other packages parse the line here, those of this package later.
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            message = f"Found a line that is not JSON in UTF-8 ({error})."
            logger.error("No prediction for a line: %s", message)
            answers[position] = {"error": message}
    if inputs:
        answers.update(zip(inputs, predictor.predict_batch_json(list(inputs.values()))))
    return [answers[position] for position in range(len(lines))]


def _opened(input_file: str) -> BinaryIO:
    if input_file == STANDARD_INPUT:
        return sys.stdin.buffer
    return open_text(input_file)
