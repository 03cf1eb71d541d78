import json

import pytest

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import (
    dump_json_line,
    find_key,
    get_text,
    get_words,
    parse_json_object,
)

EXAMPLE = '{"sentence": "It rains."}'


def test_an_object_is_parsed():
    assert parse_json_object('{"sentence": "S\\u00e3o Paulo", "id": 3}\n', EXAMPLE) == {
        "sentence": "São Paulo",
        "id": 3,
    }


@pytest.mark.parametrize("line", ["It rains.", '{"sentence": "It rains."', "{'sentence': ''}"])
def test_a_line_that_is_not_json_is_shown(line):
    with pytest.raises(ConfigurationError, match="Found a line that is not JSON") as error:
        parse_json_object(line + "\n", EXAMPLE)
    assert f"): {line}. Expected one JSON object per line, such as {EXAMPLE}" in str(error.value)


@pytest.mark.parametrize("line", ['"It rains."', '["It", "rains"]', "3", "null"])
def test_json_that_is_no_object_is_shown(line):
    with pytest.raises(
        ConfigurationError, match=r"The input is .*, expected a JSON object"
    ) as error:
        parse_json_object(line, EXAMPLE)
    assert line in str(error.value)


@pytest.mark.parametrize("line", ["x" * 10_000, "1" * 10_000, "[" * 100_000])
def test_a_long_line_is_shortened_in_errors(line):
    with pytest.raises(ConfigurationError, match="a line that is not JSON") as error:
        parse_json_object(line, EXAMPLE)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    "inputs, found",
    [
        ({}, r"\(none\)"),
        ({"text": "It rains."}, "'text'"),
        ({"sentence": "It rains.", "words": ["It", "rains", "."]}, "'sentence', 'words'"),
    ],
)
def test_none_or_two_of_the_keys_are_refused(inputs, found):
    message = f"Found the keys {found} in the input, expected exactly one of 'sentence', 'words'"
    with pytest.raises(ConfigurationError, match=message):
        find_key(inputs, ["sentence", "words"], EXAMPLE)


@pytest.mark.parametrize("text", ["", " \n\t", 3, None, ["It", "rains"], "\ud83d"])
def test_what_is_no_text_is_refused(text):
    with pytest.raises(ConfigurationError, match=r"'sentence' is .*, expected a text that is not"):
        get_text({"sentence": text}, "sentence", EXAMPLE)


@pytest.mark.parametrize("words", ["It rains.", [], None, {"It": "rains"}])
def test_what_is_no_list_of_words_is_refused(words):
    with pytest.raises(ConfigurationError, match=r"'words' is .*, expected a list of words"):
        get_words({"words": words}, "words", EXAMPLE)


@pytest.mark.parametrize("word", ["", " ", 3, None, ["rains"], "\ud83d"])
def test_the_invalid_word_is_named(word):
    with pytest.raises(
        ConfigurationError, match=r"'words'\[1\] is .*, expected a word that is not"
    ):
        get_words({"words": ["It", word]}, "words", EXAMPLE)


def test_output_is_one_line_that_people_can_read():
    line = dump_json_line({"words": ["São", "\n"]})
    assert line == '{"words": ["São", "\\n"]}\n'
    assert json.loads(line) == {"words": ["São", "\n"]}
