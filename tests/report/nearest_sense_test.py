import math
from typing import List

import numpy
import pytest

from elmo_plugin.report.nearest_sense import (
    accuracy,
    balanced_accuracy,
    by_frequency,
    nearest_senses,
)


def array(*rows: List[float]) -> numpy.ndarray:
    return numpy.array(rows, dtype=numpy.float32)


def slow_cosine(training: numpy.ndarray, senses: List[str], vector: numpy.ndarray) -> str:
    """One vector at a time, in Python's own numbers."""
    best, best_cosine = "", -2.0
    for sense in sorted(set(senses)):
        members = [row.tolist() for row, its in zip(training, senses) if its == sense]
        mean = [sum(column) / len(members) for column in zip(*members)]
        dot = sum(a * b for a, b in zip(mean, vector.tolist()))
        cosine = dot / math.hypot(*mean) / math.hypot(*vector.tolist())
        if cosine > best_cosine:
            best, best_cosine = sense, cosine
    return best


def test_it_is_the_sense_of_the_nearest_mean() -> None:
    generator = numpy.random.default_rng(1)
    training = generator.normal(size=(40, 6)).astype(numpy.float32)
    senses = generator.choice(["A", "B", "C"], size=40).tolist()
    vectors = generator.normal(size=(25, 6)).astype(numpy.float32)
    expected = [slow_cosine(training, senses, vector) for vector in vectors]
    assert len(set(expected)) == 3
    assert nearest_senses(training, senses, vectors) == expected


def test_length_matters_to_euclidean_distance_alone() -> None:
    training, senses = array([10, 0], [1, 1]), ["A", "B"]
    vectors = array([1, 0.1])
    assert nearest_senses(training, senses, vectors) == ["A"]
    assert nearest_senses(training, senses, vectors, distance="euclidean") == ["B"]


def test_centring_takes_off_what_all_have_in_common() -> None:
    # All point the same way, but for a little.
    training, senses = array([100, 1], [100, 1], [90, -1], [90, -1]), ["A", "A", "B", "B"]
    vectors = array([80, 0.2])
    assert nearest_senses(training, senses, vectors) == ["A"]
    assert nearest_senses(training, senses, vectors, centre=True) == ["B"]


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_of_equally_near_senses_it_is_the_most_frequent(distance: str) -> None:
    generator = numpy.random.default_rng(2)
    vector = generator.normal(size=(1, 50)).astype(numpy.float32)
    # The means of 3 and of 7 equal vectors differ by rounding alone.
    training = numpy.repeat(vector, 10, axis=0)
    assert nearest_senses(training, ["A"] * 3 + ["B"] * 7, vector, distance) == ["B"]
    assert nearest_senses(training, ["A"] * 7 + ["B"] * 3, vector, distance) == ["A"]
    assert nearest_senses(training, ["B"] * 5 + ["A"] * 5, vector, distance) == ["A"]


def test_vectors_of_zeros_are_near_to_nothing() -> None:
    assert nearest_senses(array([0, 0], [0, 0], [1, 0]), ["A", "A", "B"], array([0, 0])) == ["A"]


def test_senses_by_frequency() -> None:
    assert by_frequency(["b", "c", "a", "c", "a"]) == ["a", "c", "b"]


def test_accuracies_are_of_occurrences_and_of_senses() -> None:
    expected = ["A", "A", "A", "B"]
    assert accuracy(["A", "A", "B", "A"], expected) == 50
    assert balanced_accuracy(["A", "A", "B", "A"], expected) == pytest.approx(100 / 3)
    assert balanced_accuracy(["A"] * 4, expected) == 50
