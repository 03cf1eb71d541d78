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


UNFINISHED = '{"sentence": "It rains."'
KEYS = "Found the keys {} in the input, expected exactly one of 'sentence', 'words'"


@pytest.mark.parametrize(
    "line, message",
    [
        (
            f"{UNFINISHED}\n",
            f"): {UNFINISHED}. Expected one JSON object per line, such as {EXAMPLE}",
        ),
        ("x" * 10_000, f"): {'x' * 100}.... Expected one JSON object per line"),
        *(
            (line, f"The input is {line}, expected a JSON object, as in {EXAMPLE}")
            for line in ('"It rains."', '["It", "rains"]', "3", "null")
        ),
        ("{}", KEYS.format("(none)")),
        ('{"text": "It rains."}', KEYS.format("'text'")),
        ('{"sentence": "It rains.", "words": ["It"]}', KEYS.format("'sentence', 'words'")),
        *(
            (f'{{"sentence": {text}}}', f"'sentence' is {text}, expected a text that is not empty")
            for text in ('""', '" \\n\\t"', "3", "null", '["It", "rains"]', '"\\ud83d"')
        ),
        *(
            (f'{{"words": {words}}}', f"'words' is {words}, expected a list of words that is not")
            for words in ('"It rains."', "[]", "null", '{"It": "rains"}')
        ),
        *(
            (f'{{"words": ["It", {word}]}}', f"'words'[1] is {word}, expected a word that is not")
            for word in ('""', '" "', "3", "null", '["rains"]', '"\\ud83d"')
        ),
    ],
)
def test_a_wrong_input_is_named(line, message):
    with pytest.raises(ConfigurationError) as error:
        inputs = parse_json_object(line, EXAMPLE)
        read = (
            get_text
            if find_key(inputs, ["sentence", "words"], EXAMPLE) == "sentence"
            else get_words
        )
        read(inputs, next(iter(inputs)), EXAMPLE)
    assert message in str(error.value)


def test_output_is_one_line_that_people_can_read():
    assert dump_json_line({"words": ["São", "\n"]}) == '{"words": ["São", "\\n"]}\n'
