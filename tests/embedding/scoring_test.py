"""Scores of sentences, with pretraining's model and its perplexity as the oracle."""

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import List

import h5py
import numpy
import pytest
import torch
from allennlp.data import Batch

from elmo_plugin import BiLM, SentenceScorer
from elmo_plugin.bilm import BiLMOptions, batch_to_ids
from elmo_plugin.bilm.lm_vocabulary import LMVocabulary
from elmo_plugin.bilm.softmax import ExactSoftmax
from elmo_plugin.embedding.scoring import ScoreTotals, SentenceScore
from elmo_plugin.embedding.sentences import read_sentences
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import (
    BiLMReader,
    BiLMTrainingModel,
    FullSoftmax,
    LMSoftmax,
    LMWordVocabulary,
)
from elmo_plugin.pretraining.corpus import find_corpus
from tests.closeness import DOCUMENTED_ACCURACY, assert_accurate
from tests.conftest import FIXTURES, SENTENCES, TINY_OPTIONS, randomize

LM = FIXTURES / "lm"
VOCABULARY_FILE = LM / "vocab.txt"
VOCABULARY = LMVocabulary.from_file(VOCABULARY_FILE)


def random_softmax() -> LMSoftmax:
    sizes = {"num_words": len(VOCABULARY), "input_dim": TINY_OPTIONS.projection_dim}
    torch.manual_seed(0)
    softmax = FullSoftmax(**sizes)
    torch.nn.init.normal_(softmax.word_biases.weight)
    return softmax


def write_model(folder: Path, softmax: LMSoftmax) -> Path:
    """A folder as `elmo export` writes it, with random weights."""
    folder.mkdir()
    datasets = {"softmax/W": softmax.exact().weight, "softmax/b": softmax.exact().bias}
    bilm = randomize(BiLM(TINY_OPTIONS))
    files = folder / "options.json", folder / "weights.hdf5"
    bilm.save(*files, extra=datasets)
    VOCABULARY.to_file(folder / "vocab.txt")
    return folder


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "my_bilm", random_softmax())


@pytest.fixture(scope="module")
def scorer(model_folder: Path) -> SentenceScorer:
    return SentenceScorer.from_files(model_folder)


def heldout() -> List[List[str]]:
    return list(read_sentences(find_corpus(LM / "heldout.txt")))


def assert_equal(found: SentenceScore, expected: SentenceScore) -> None:
    assert found.tokens == expected.tokens
    assert found.is_unknown.tolist() == expected.is_unknown.tolist()
    for ours, theirs in ((found.forward, expected.forward), (found.backward, expected.backward)):
        assert ours.dtype == numpy.float64
        assert_accurate(ours, theirs)


def test_perplexities_are_those_of_pretrainings_evaluation_on_whole_sentences(
    tmp_path: Path,
) -> None:
    softmax = random_softmax()
    folder = write_model(tmp_path / "model", softmax)
    vocab = LMWordVocabulary.from_vocabulary_file(str(VOCABULARY_FILE))
    model = BiLMTrainingModel(vocab, randomize(BiLM(TINY_OPTIONS)), softmax).eval()
    reader = BiLMReader(str(VOCABULARY_FILE))
    batch = Batch([reader.text_to_instance(tokens) for tokens in heldout()])
    with torch.no_grad():
        model(**batch.as_tensor_dict())
    expected = model.get_metrics(reset=True)

    totals = ScoreTotals()
    for score in SentenceScorer.from_files(folder).score_sentences(heldout()):
        totals.add(score)
    found = totals.perplexities()
    assert totals.num_sentences == 60
    assert totals.num_words + 60 == expected.pop("num_predictions")
    # An error of a log-probability is a relative one of its exponential.
    assert found == pytest.approx(expected, rel=DOCUMENTED_ACCURACY)


@pytest.mark.parametrize(
    "options", [TINY_OPTIONS, replace(TINY_OPTIONS, num_lstm_layers=3, use_skip_connections=False)]
)
def test_the_last_layer_predicts_the_next_and_the_previous_word(options: BiLMOptions) -> None:
    bilm, softmax = randomize(BiLM(options)), random_softmax().exact()
    tokens = ["It", "was", "qwertyish", "."]
    with torch.no_grad():
        top = bilm(batch_to_ids([tokens]))["activations"][-1][0]  # (6, 2 * projection_dim)
    # Of each word in the place after a position, and before it: (6, num_words)
    following, preceding = (softmax.log_probabilities(states) for states in top.chunk(2, dim=1))
    words = [VOCABULARY.index_of(token) for token in tokens]
    forward = [following[position, word] for position, word in enumerate([*words, VOCABULARY.end])]
    backward = [preceding[position, word] for position, word in enumerate(words, start=2)]
    score = SentenceScorer(bilm.freeze(), softmax, VOCABULARY).score_sentence(tokens)
    assert_accurate(score.forward, forward)
    assert_accurate(score.backward, [*backward, preceding[1, VOCABULARY.begin]])


def test_marks_are_found_by_their_names() -> None:
    """Also in another order, in which the softmax has its rows."""
    bilm, softmax = randomize(BiLM(TINY_OPTIONS)).freeze(), random_softmax().exact()
    tokens = ["It", "was", "qwertyish", "."]
    expected = SentenceScorer(bilm, softmax, VOCABULARY).score_sentence(tokens)
    order = [1, 0, *range(2, len(VOCABULARY))]
    other_vocabulary = LMVocabulary([VOCABULARY.words[index] for index in order])
    other_softmax = ExactSoftmax(softmax.weight[order], softmax.bias[order])
    assert_equal(
        SentenceScorer(bilm, other_softmax, other_vocabulary).score_sentence(tokens), expected
    )


def test_json_has_an_object_for_each_word_and_the_marks_apart() -> None:
    forward, backward = numpy.array([-1.0, -2.0, -4.0]), numpy.array([-8.0, -16.0, -32.0])
    score = SentenceScore(["a", "b"], numpy.array([False, True]), forward, backward)
    totals = {"tokens": ["a", "b"], "num_unknown": 1, "forward": -7.0, "backward": -56.0}
    perplexities = score.perplexities()
    assert perplexities["forward_perplexity"] == pytest.approx(numpy.exp(7 / 3))
    assert score.as_json() == {**totals, **perplexities}
    words = [
        {"word": "a", "forward": -1.0, "backward": -8.0, "is_unknown": False},
        {"word": "b", "forward": -2.0, "backward": -16.0, "is_unknown": True},
    ]
    expected = {**totals, **perplexities, "words": words, "end": -4.0, "begin": -32.0}
    assert score.as_json(with_words=True) == expected


class TestScores:
    @pytest.mark.parametrize("batch_size", [64, 1, 3])
    def test_they_depend_neither_on_batches_nor_on_order(
        self, scorer: SentenceScorer, batch_size: int
    ) -> None:
        sentences = [*SENTENCES, *heldout()[:20], ["."], []]
        alone = [scorer.score_sentence(tokens) for tokens in sentences]
        order = random.Random(0).sample(range(len(sentences)), len(sentences))
        shuffled = scorer.score_sentences([sentences[index] for index in order], batch_size)
        for index, score in zip(order, shuffled, strict=True):
            assert_equal(score, alone[index])

    def test_unknown_words_are_marked_and_share_a_probability(self, scorer: SentenceScorer) -> None:
        score, other = (
            scorer.score_sentence(["It", word, "zxcvbish"]) for word in ("qwertyish", "zxcvbish")
        )
        assert score.is_unknown.tolist() == [False, True, True]
        assert score.num_unknown == 2
        # After the same words; what follows depends on the spelling.
        assert_accurate(score.forward[1], other.forward[1])
        assert abs(score.forward[2] - other.forward[2]) > 2 * DOCUMENTED_ACCURACY


def test_best_words_are_those_of_a_slow_loop_over_the_vocabulary(scorer: SentenceScorer) -> None:
    tokens = ["It", "was", "___", "."]
    scores = {}
    for word in VOCABULARY.words[3:]:
        score = scorer.score_sentence([word if token == "___" else token for token in tokens])
        scores[word] = (score.forward[2], score.backward[2])
    ranked = sorted(scores, key=lambda word: -sum(scores[word]))
    best = scorer.best_words(tokens, num_words=7)
    assert [word.word for word in best] == ranked[:7]
    total = sum(numpy.exp(sum(pair)) for pair in scores.values())
    for word in best:
        forward, backward = scores[word.word]
        assert_accurate(word.forward, forward)
        assert_accurate(word.backward, backward)
        expected = numpy.exp(forward + backward) / total
        # A relative error of the exponentials: of two log-probabilities, and of as many in the total.
        assert word.probability == pytest.approx(expected, rel=2 * 2 * DOCUMENTED_ACCURACY)
    with pytest.raises(ConfigurationError, match="num_words is 0, expected"):
        scorer.best_words(tokens, num_words=0)


class TestFiles:
    def test_a_softmax_in_a_file_of_its_own_is_that_of_the_weights(
        self, model_folder: Path, tmp_path: Path, scorer: SentenceScorer
    ) -> None:
        """As AI2 publishes it beside the weights of its biLMs."""
        weights, softmax = tmp_path / "w.hdf5", tmp_path / "softmax.hdf5"
        BiLM.from_files(model_folder).save(tmp_path / "options.json", weights)
        with h5py.File(model_folder / "weights.hdf5") as source, h5py.File(softmax, "w") as target:
            source.copy("softmax", target)
        files = {"options_file": tmp_path / "options.json", "weight_file": weights}
        vocabulary = {"vocabulary_file": VOCABULARY_FILE}
        other = SentenceScorer.from_files(**files, softmax_file=softmax, **vocabulary)
        assert_equal(other.score_sentence(["It", "was"]), scorer.score_sentence(["It", "was"]))
        missing = {"softmax_file": tmp_path / "none.hdf5"}
        for others, message in (
            ({"softmax_file": softmax}, r"vocab\.txt: there is no vocabulary beside"),
            ({**vocabulary, **missing}, r"softmax_file: cannot find .*none\.hdf5"),
            (vocabulary, r"w\.hdf5: has no group 'softmax', expected"),
        ):
            with pytest.raises(ConfigurationError, match=message):
                SentenceScorer.from_files(**files, **others)

    def test_elmo_mini_knows_english(self) -> None:
        scorer = SentenceScorer.from_files("elmo_mini")
        sentences = [["He", "opened", "the", "door", "."], [".", "door", "the", "opened", "He"]]
        good, bad = (
            score.perplexities()["perplexity"] for score in scorer.score_sentences(sentences)
        )
        assert good * 5 < bad
        best = scorer.best_words(["He", "opened", "the", "___", "and", "went", "in", "."], 5)
        assert "door" in [word.word for word in best]

    @pytest.mark.parametrize("name", ["elmo_mini", "elmo_small"])
    def test_marks_are_not_offered_for_a_blank(self, name: str) -> None:
        scorer = SentenceScorer.from_files(name)
        assert "<unk>" in scorer.vocabulary.words  # WikiText's word for rare words
        tokens = ["The", "family", "name", "was", "___", "and", "<unk>", "."]
        best = scorer.best_words(tokens, len(scorer.vocabulary))
        assert not any("<unk>" in word.word.lower() for word in best)
        holders = [
            word for word in scorer.vocabulary.words if re.search("<(s|/s|unk)>", word, re.I)
        ]
        assert len(best) == len(scorer.vocabulary) - len(holders)

    def test_the_vocabulary_of_a_bilm_by_its_name(self) -> None:
        scorer = SentenceScorer.from_files("elmo_mini", vocabulary_file="elmo_mini")
        assert scorer.vocabulary.words == SentenceScorer.from_files("elmo_mini").vocabulary.words

    def test_sizes_that_contradict_each_other(self, model_folder: Path, tmp_path: Path) -> None:
        LMVocabulary(VOCABULARY.words[:-1]).to_file(tmp_path / "vocab.txt")
        message = rf"has {len(VOCABULARY) - 1:,} words, expected the {len(VOCABULARY):,} that"
        with pytest.raises(ConfigurationError, match=message):
            SentenceScorer.from_files(model_folder, vocabulary_file=tmp_path / "vocab.txt")
        softmax = ExactSoftmax(torch.zeros(len(VOCABULARY), 5), torch.zeros(len(VOCABULARY)))
        with pytest.raises(ConfigurationError, match=r"states of width 5, expected .* 6"):
            SentenceScorer(BiLM(TINY_OPTIONS).freeze(), softmax, VOCABULARY)
