"""How long the speed of a machine is measured."""

import pytest

from elmo_plugin.pretraining import process


@pytest.mark.parametrize(
    "num_words, seconds",
    [
        (10**9, 30.0),  # much text: half a minute
        (100_000, 10.0),  # a tenth of 100 seconds at 1,000 words a second
        (1_000, 0.1),
    ],
)
def test_a_short_training_is_not_measured_for_longer_than_a_tenth_of_it(
    num_words: int, seconds: float
) -> None:
    record = {"words": 5000, "seconds": 5.0}
    assert process._seconds_to_measure(num_words, record) == pytest.approx(seconds)
