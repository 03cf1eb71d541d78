from collections import Counter
from typing import Any, List

import numpy
import pytest
import torch

from elmo_plugin import ElmoEmbedder
from elmo_plugin.embedding.neighbors import (
    embed_occurrences,
    find_occurrences,
    nearest_occurrences,
)
from elmo_plugin.embedding.sentences import Sentence
from tests.closeness import assert_accurate
from tests.conftest import BiLMFiles

LINES = ["a play by him", "they play and play", "Play on", "a play by him"]


def find(word: Any, lines: List[str] = LINES, **arguments: Any) -> Any:
    sentences = [Sentence(index, line, line.split()) for index, line in enumerate(lines)]
    return find_occurrences(sentences, word, "lines", **arguments)


def test_each_occurrence_has_the_same_chance_to_be_in_a_sample() -> None:
    lines = [f"{n} play" for n in range(8000)]
    sample, num_found = found = find("play", lines, max_occurrences=800)
    assert found == find("play", lines, max_occurrences=800)
    assert num_found == 8000
    indices = [occurrence.line_index for occurrence in sample]
    assert len(indices) == 800
    assert indices == sorted(set(indices))
    counts = Counter(index // 1000 for index in indices)
    # 100 are expected in each eighth of the text; five times the standard deviation, which is 8.9.
    assert all(abs(counts[eighth] - 100) < 5 * 8.9 for eighth in range(8)), counts
    assert find("play", max_occurrences=4) == find("play")


@pytest.mark.parametrize("num_occurrences", [7, 13, 50])
def test_equal_vectors_are_in_the_order_of_the_text(num_occurrences: int) -> None:
    occurrences = find("play", [f"play {n}" for n in range(num_occurrences + 1)]).occurrences
    query, *others = occurrences
    for seed, width in enumerate((256, 512, 1024)):
        # The product of such a vector with itself can exceed 1 by rounding.
        vector = numpy.random.default_rng(seed).standard_normal(width, dtype=numpy.float32)
        vector /= numpy.linalg.norm(vector)
        vectors = numpy.tile(vector, (len(occurrences), 1))
        found = nearest_occurrences(query, vector, occurrences, vectors, num_occurrences)
        assert [neighbor.occurrence for neighbor in found] == others
        assert {neighbor.similarity for neighbor in found} == {1.0}
        reversed_found = nearest_occurrences(
            query, vector[::-1].copy(), occurrences, vectors, num_occurrences
        )
        assert [neighbor.occurrence for neighbor in reversed_found] == others


class TestEmbedOccurrences:
    @pytest.mark.parametrize("layer", [-1, 0, 1, 2, "average"])
    def test_vectors_are_those_of_the_sentence_at_the_word(
        self, bilm_files: BiLMFiles, layer: Any
    ) -> None:
        embedder = ElmoEmbedder(*bilm_files)
        occurrences = find("play").occurrences
        vectors = embed_occurrences(embedder, occurrences, layer)
        assert vectors.shape == (4, embedder.get_output_dim())
        assert vectors.dtype == numpy.float32
        for occurrence, vector in zip(occurrences, vectors, strict=True):
            layers = embedder.embed_sentence(occurrence.tokens)
            chosen = layers.mean(axis=0) if layer == "average" else layers[layer]
            expected = chosen[occurrence.position]
            expected = expected / numpy.linalg.norm(expected)
            assert_accurate(vector, expected)

    def test_equal_sentences_are_embedded_once(
        self, bilm_files: BiLMFiles, shapes_run: List[torch.Size]
    ) -> None:
        embed_occurrences(ElmoEmbedder(*bilm_files), find("play").occurrences)
        assert shapes_run == [(2, 4, 50)]  # the first two lines
