"""The JSON lines that predictors read and write, and checks of their content."""

import json
from typing import Any, Dict, List, Sequence, Union

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import is_unicode, parse_json

_MAX_SHOWN = 100  # characters of an invalid input in an error
TEXT = "a text that is not empty and is valid Unicode"
_WORD = "a word that is not empty and is valid Unicode"


class LinePredictor:
    """
    What predictors of AllenNLP have in common here, to be inherited before `Predictor`: an invalid line of a
    file does not stop the others. Its answer is `{"error": ...}`, which says what was expected.

    A subclass defines `answers_or_errors`.
    """

    def answers_or_errors(
        self, inputs: Sequence[Union[Dict[str, Any], str]]
    ) -> List[Union[Dict[str, Any], ConfigurationError]]:
        """Return for each input, or line of a file, its answer, or the error that says why it is invalid."""
        raise NotImplementedError

    def predict_json(self, inputs: Union[Dict[str, Any], str]) -> Dict[str, Any]:
        """Return the answer to an input. Raise `ConfigurationError` if it is invalid and not a line."""
        return self.predict_batch_json([inputs])[0]

    def predict_batch_json(self, inputs: List[Union[Dict[str, Any], str]]) -> List[Dict[str, Any]]:
        """Return the answers to any number of inputs, or lines of a file, in their order."""
        answers = []
        for one_input, answer in zip(inputs, self.answers_or_errors(inputs)):
            if isinstance(answer, ConfigurationError):
                if not isinstance(one_input, str):
                    raise answer
                answer = {"error": str(answer)}
            answers.append(answer)
        return answers

    def load_line(self, line: str) -> Any:
        """Return the line itself, which `answers_or_errors` parses, so that an error is its answer."""
        return line.strip()

    def dump_line(self, outputs: Dict[str, Any]) -> str:
        """Return the line of an answer."""
        return dump_json_line(outputs)


# All functions raise `ConfigurationError` for invalid input, with a valid input, the `example`.


def parse_json_object(line: Union[str, Dict[str, Any]], example: str) -> Dict[str, Any]:
    """Parse a line of a JSON lines file that holds an object. One that is parsed already is returned."""
    try:
        inputs = parse_json(line) if isinstance(line, str) else line
    except ValueError as error:
        text = str(line).strip()
        found = f"line that is not JSON ({error}): {_shown(text)}" if text else "blank line"
        raise ConfigurationError(
            f"Found a {found}. Expected one JSON object per line, such as {example}"
        ) from error
    if not isinstance(inputs, dict):
        raise _wrong_input("The input", inputs, "a JSON object", example)
    return inputs


def find_key(inputs: Dict[str, Any], keys: Sequence[str], example: str) -> str:
    """Return the one of `keys` that is in `inputs`. Other keys are ignored."""
    found = [key for key in keys if key in inputs]
    if len(found) != 1:
        expected = "exactly one of " * (len(keys) > 1) + ", ".join(map(repr, keys))
        raise ConfigurationError(
            f"Found the keys {', '.join(map(repr, inputs)) or '(none)'} in the input, expected "
            f"{expected}, as in {example}"
        )
    return found[0]


def get_text(inputs: Dict[str, Any], key: str, example: str) -> str:
    """Return the text at `key`, see `is_text`."""
    text = inputs[find_key(inputs, [key], example)]
    if not is_text(text):
        raise _wrong_input(f"'{key}'", text, TEXT, example)
    return text


def get_words(inputs: Dict[str, Any], key: str, example: str) -> List[str]:
    """Return the words at `key`, at least one."""
    words = inputs[find_key(inputs, [key], example)]
    if not isinstance(words, list) or not words:
        raise _wrong_input(f"'{key}'", words, "a list of words that is not empty", example)
    for index, word in enumerate(words):
        if not is_text(word):
            raise _wrong_input(f"'{key}'[{index}]", word, _WORD, example)
    return words


def dump_json_line(outputs: Dict[str, Any]) -> str:
    """Return a line of JSON in which letters of all languages are not escaped, for people to read."""
    return json.dumps(outputs, ensure_ascii=False) + "\n"


def is_text(value: Any) -> bool:
    """Return whether a JSON value is valid Unicode text, and not only white space."""
    return isinstance(value, str) and bool(value.strip()) and is_unicode(value)


def shown_json(value: Any) -> str:
    """Return a value as JSON for an error, shortened if it is long."""
    return _shown(json.dumps(value, default=repr))


def _wrong_input(place: str, found: Any, expected: str, example: str) -> ConfigurationError:
    return ConfigurationError(
        f"{place} is {shown_json(found)}, expected {expected}, as in {example}"
    )


def _shown(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
