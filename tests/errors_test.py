import logging

import pytest

from elmo_plugin.errors import warn_once

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
