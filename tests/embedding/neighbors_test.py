from collections import Counter
from pathlib import Path
from typing import Any, Callable, List, Optional

import numpy
import pytest

from elmo_plugin import ElmoEmbedder
from elmo_plugin.embedding.neighbors import (
    FoundOccurrences,
    Occurrence,
    cluster_occurrences,
    embed_occurrences,
    find_occurrences,
    nearest_occurrences,
    num_distinct_contexts,
)
from elmo_plugin.embedding.sentences import InputOptions, SentenceSource
from tests.closeness import assert_close
from tests.conftest import BiLMFiles

# Documented, of sentences in any batch: `ElmoEmbedder`. Vectors of length 1 are nearer.
BATCH_ACCURACY = 1e-5

LINES = ["a play by him", "", "they play and play", "no such word", "Play on", "a play by him"]

Find = Callable[..., FoundOccurrences]


@pytest.fixture
def find(tmp_path: Path) -> Find:
    def find(word: Optional[str], lines: List[str] = LINES, **arguments: Any) -> FoundOccurrences:
        path = tmp_path / "text.txt"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        source = SentenceSource(path, InputOptions(skip_blank=True))
        return find_occurrences(source.sentences(), word, source.name, **arguments)

    return find


@pytest.fixture
def embedder(bilm_files: BiLMFiles) -> ElmoEmbedder:
    return ElmoEmbedder(*bilm_files)


class TestFindOccurrences:
    def test_each_occurrence_is_found_and_blank_lines_are_counted(self, find: Find) -> None:
        occurrences, num_found = find("play")
        assert num_found == 4
        places = [(occurrence.line_index, occurrence.position) for occurrence in occurrences]
        assert places == [(0, 1), (2, 1), (2, 3), (5, 1)]
        assert occurrences[2].marked_sentence == "they play and **play**"

    def test_case_matters_unless_it_is_ignored(self, find: Find) -> None:
        assert [place.line_index for place in find("Play").occurrences] == [4]
        assert find("PLAY", ignore_case=True).num_found == 5

    def test_a_sample_is_in_order_has_the_given_size_and_depends_on_the_seed(
        self, find: Find
    ) -> None:
        lines = [f"{number} play" for number in range(40)]
        samples = [find("play", lines, max_occurrences=10, seed=seed) for seed in (3, 3, 4)]
        assert samples[0] == samples[1] != samples[2]
        for sample in samples:
            indices = [occurrence.line_index for occurrence in sample.occurrences]
            assert sample.num_found == 40
            assert indices == sorted(set(indices))
            assert len(indices) == 10

    def test_each_occurrence_has_the_same_chance_to_be_in_a_sample(self, find: Find) -> None:
        lines = [f"{number} play" for number in range(8)]
        counts: Counter = Counter()
        for seed in range(400):
            sample = find("play", lines, max_occurrences=2, seed=seed)
            counts.update(occurrence.line_index for occurrence in sample.occurrences)
        # 100 are expected; the standard deviation is 8.7.
        assert all(65 < counts[index] < 135 for index in range(8)), counts

    def test_as_many_occurrences_as_the_maximum_are_all_kept(self, find: Find) -> None:
        assert find("play", max_occurrences=4) == find("play")


def test_a_text_without_a_word_holds_its_sentences(find: Find) -> None:
    occurrences, num_found = find(None)
    assert [occurrence.line_index for occurrence in occurrences] == [0, 2, 3, 4, 5]
    assert occurrences[0] == Occurrence(("a", "play", "by", "him"), None, 0)
    assert (occurrences[0].text, num_found) == ("a play by him", 5)


def test_distinct_contexts_are_counted_by_sentence_and_of_layer_0_by_spelling(find: Find) -> None:
    occurrences = find("play", ignore_case=True).occurrences
    assert num_distinct_contexts(occurrences, -1) == 4  # the first line is there twice
    assert num_distinct_contexts(occurrences, 0) == 2  # play, Play


class TestEmbedOccurrences:
    @pytest.mark.parametrize("layer", [-1, 0, 1, 2, "average"])
    def test_vectors_are_those_of_the_sentence_at_the_word(
        self, find: Find, embedder: ElmoEmbedder, layer: Any
    ) -> None:
        occurrences = find("play").occurrences
        vectors = embed_occurrences(embedder, occurrences, layer, batch_tokens=5)
        assert vectors.shape == (4, embedder.get_output_dim())
        assert vectors.dtype == numpy.float32
        for occurrence, vector in zip(occurrences, vectors):
            layers = embedder.embed_sentence(occurrence.tokens)
            chosen = layers.mean(axis=0) if layer == "average" else layers[layer]
            expected = chosen[occurrence.position]
            expected = expected / numpy.linalg.norm(expected)
            numpy.testing.assert_allclose(vector, expected, rtol=0, atol=BATCH_ACCURACY)

    def test_equal_sentences_are_embedded_once(
        self, find: Find, embedder: ElmoEmbedder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: List[List[str]] = []
        embed_sentences = embedder.embed_sentences

        def recorded(sentences: Any, *arguments: Any) -> Any:
            seen.extend(sentences)
            return embed_sentences(seen, *arguments)

        monkeypatch.setattr(embedder, "embed_sentences", recorded)
        embed_occurrences(embedder, find("play").occurrences)
        assert seen == [["a", "play", "by", "him"], ["they", "play", "and", "play"]]


def test_the_nearest_have_the_largest_cosine_similarity() -> None:
    occurrences = [Occurrence((name, "w"), 1, index) for index, name in enumerate("abcd")]
    vectors = numpy.array([[0, 1], [1, 0], [0.6, 0.8], [1, 0]], dtype=numpy.float32)
    query = Occurrence(("q", "w"), 1)
    neighbors = nearest_occurrences(query, vectors[1], occurrences, vectors, top=3)
    assert [neighbor.occurrence.line_index for neighbor in neighbors] == [1, 3, 2]
    # Vectors of float32 with two numbers.
    similarities = [neighbor.similarity for neighbor in neighbors]
    assert_close(similarities, [1, 1, 0.6], terms=2, dtype="float32")


def test_the_query_itself_is_not_a_neighbor() -> None:
    occurrences = [Occurrence(("w", "w"), 0, 0), Occurrence(("w", "w"), 1, 0)]
    vectors = numpy.eye(2, dtype=numpy.float32)
    query = Occurrence(("w", "w"), 1)
    neighbors = nearest_occurrences(query, vectors[1], occurrences, vectors)
    assert [neighbor.occurrence.position for neighbor in neighbors] == [0]


def test_clusters_are_sorted_by_size_and_members_by_similarity_to_the_mean() -> None:
    angles = numpy.array([1.6, 0.0, 0.1, 1.5, 0.3])
    vectors = numpy.stack([numpy.cos(angles), numpy.sin(angles)], axis=1).astype("float32")
    occurrences = [Occurrence((name, "w"), 1, index) for index, name in enumerate("abcde")]
    clusters = cluster_occurrences(occurrences, vectors, 2)
    assert clusters[0].members == [2, 1, 4]
    assert sorted(clusters[1].members) == [0, 3]
    mean = vectors[[1, 2, 4]].mean(axis=0)
    expected = vectors[[2, 1, 4]] @ mean / numpy.linalg.norm(mean)
    neighbors = clusters[0].neighbors
    assert [neighbor.occurrence for neighbor in neighbors] == [occurrences[i] for i in (2, 1, 4)]
    similarities = [neighbor.similarity for neighbor in neighbors]
    # The mean of three vectors, its norm, and products of two numbers.
    assert_close(similarities, expected, terms=3 + 2 + 2)
    assert clusters == cluster_occurrences(occurrences, vectors, 2)
