from typing import Any, Dict

import pytest

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.serving.options import Limits, ServeOptions


@pytest.mark.parametrize("name", ["max_body", "max_tokens", "max_batch", "max_waiting", "timeout"])
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_limits_are_positive(name: str, value: Any) -> None:
    flag = f"--{name.replace('_', '-')}"
    with pytest.raises(ConfigurationError, match=f"{flag}: found {value}, expected"):
        Limits(**{name: value})


@pytest.mark.parametrize(
    "values, message",
    [
        ({"port": 65536}, "--port: found 65536, expected a number from 0 to 65535"),
        ({"port": -1}, "--port: found -1, expected"),
        ({"allowed_host": ["*"]}, r"--allowed-host: found '\*', expected a name"),
        ({"allowed_host": ["a.org", "b.org:80"]}, "found 'b.org:80', expected a name"),
        ({"allowed_host": ["https://a.org"]}, "found 'https://a.org', expected"),
    ],
)
def test_invalid_addresses(values: Dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ServeOptions(**values)
