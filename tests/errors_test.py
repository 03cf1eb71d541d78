import logging
import pickle

import pytest

from elmo_plugin.errors import ConfigurationError, advising, errors_at, warn_once

logger = logging.getLogger(__name__)


def test_a_message_is_logged_once_at_the_line_of_its_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for message in ("slow: no compiler", "slow: no compiler", "no room for 100% of the words"):
        warn_once(logger, message)
    assert caplog.messages == ["slow: no compiler", "no room for 100% of the words"]
    assert {(record.levelname, record.filename) for record in caplog.records} == {
        ("WARNING", "errors_test.py")
    }


def test_a_message_controls_no_terminal_and_can_be_written() -> None:
    error = ConfigurationError(
        "a.txt, line 2: found 'a\x1b[2J\tb\ud83d\u200b é😀'.\nCorrect the line."
    )
    expected = "a.txt, line 2: found 'a\\x1b[2J\\tb\\ud83d\\u200b é😀'.\nCorrect the line."
    # Workers pickle their errors.
    for found in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(found, ValueError)
        assert str(found) == found.message == expected


def test_a_message_is_short_whatever_it_quotes() -> None:
    path = "a/" * 1000 + "a.txt"
    message = ConfigurationError(f"{path}: found {'1' * 5000} as the count, expected 1.").message
    assert message == f"{path}: found {'1' * 200} ... {'1' * 100} as the count, expected 1."


@pytest.mark.parametrize(
    "message, expected",
    [
        ("found no word", "f, line 3: found no word. Correct the line."),
        ("f, line 5: found no word", "f, line 5: found no word. Correct the line."),
    ],
)
def test_an_error_names_its_place_once(message: str, expected: str) -> None:
    with (
        pytest.raises(ConfigurationError) as error,
        errors_at("f, line 3"),
        advising("Correct the line."),
    ):
        raise ConfigurationError(message)
    assert error.value.message == expected
