"""The JSON that predictors are given, checked, and the JSON that they give back."""

import json
from typing import Any, List, Sequence

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import JsonDict

_MAX_SHOWN = 100  # characters of a wrong input that an error repeats
TEXT = "a text that is not empty (nor half of a surrogate pair)"
_WORD = "a word that is not empty (nor half of a surrogate pair)"

# What is wrong raises `ConfigurationError`, which repeats a correct input, the `example` of all functions.


def parse_json_object(line: str, example: str) -> JsonDict:
    """One line of a JSON lines file as a dictionary."""
    try:
        inputs = json.loads(line)
    # Also numbers with thousands of digits, and brackets nested as deeply.
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"Found a line that is not JSON ({error}): {_shown(line.strip())}. "
            f"Expected one JSON object per line, such as {example}"
        ) from error
    if not isinstance(inputs, dict):
        raise _wrong_input("The input", inputs, "a JSON object", example)
    return inputs


def find_key(inputs: JsonDict, keys: Sequence[str], example: str) -> str:
    """The one of `keys` that is in `inputs`. Keys that are not asked for may stand beside it."""
    found = [key for key in keys if key in inputs]
    if len(found) != 1:
        raise ConfigurationError(
            f"Found the keys {', '.join(map(repr, inputs)) or '(none)'} in the input, expected "
            f"exactly one of {', '.join(map(repr, keys))}, as in {example}"
        )
    return found[0]


def get_text(inputs: JsonDict, key: str, example: str) -> str:
    """The text at `key`, see `is_text`."""
    text = inputs[find_key(inputs, [key], example)]
    if not is_text(text):
        raise _wrong_input(f"'{key}'", text, TEXT, example)
    return text


def get_words(inputs: JsonDict, key: str, example: str) -> List[str]:
    """The words at `key`, at least one."""
    words = inputs[find_key(inputs, [key], example)]
    if not isinstance(words, list) or not words:
        raise _wrong_input(f"'{key}'", words, "a list of words that is not empty", example)
    for index, word in enumerate(words):
        if not is_text(word):
            raise _wrong_input(f"'{key}'[{index}]", word, _WORD, example)
    return words


def dump_json_line(outputs: JsonDict) -> str:
    """A line of JSON in which letters of all languages stand as they are, for people to read."""
    return json.dumps(outputs, ensure_ascii=False) + "\n"


def is_text(value: Any) -> bool:
    """Whether a value of JSON is Unicode text that is more than white space."""
    if not isinstance(value, str) or not value.strip():
        return False
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        # JSON can spell half of a surrogate pair, "\\ud83d", which no file can hold.
        return False
    return True


def shown_json(value: Any) -> str:
    """A value as errors show it: JSON, cut where it is long."""
    return _shown(json.dumps(value, default=repr))


def _wrong_input(place: str, found: Any, expected: str, example: str) -> ConfigurationError:
    return ConfigurationError(
        f"{place} is {shown_json(found)}, expected {expected}, as in {example}"
    )


def _shown(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
