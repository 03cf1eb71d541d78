"""Scores of sentences, with pretraining's model and its perplexity as the oracle."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

import h5py
import numpy
import pytest
import torch
from allennlp.data import Batch

from elmo_plugin import BiLM, FrozenBiLM, SentenceScorer
from elmo_plugin.bilm import InferenceSettings, batch_to_ids
from elmo_plugin.bilm.lm_vocabulary import LMVocabulary
from elmo_plugin.bilm.softmax import ExactSoftmax
from elmo_plugin.bilm.weights import save_model
from elmo_plugin.embedding import scoring
from elmo_plugin.embedding.scoring import ScoreTotals, SentenceScore
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining import (
    BiLMReader,
    BiLMTrainingModel,
    FullSoftmax,
    LMSoftmax,
    LMWordVocabulary,
)
from elmo_plugin.pretraining.sentence_streams import find_corpus, read_sentences
from tests.closeness import assert_close
from tests.conftest import SENTENCES, TINY_OPTIONS, randomize

LM = Path(__file__).parents[2] / "fixtures" / "lm"
CHECKPOINT = Path(__file__).parents[2] / "fixtures" / "bilm" / "tensorflow" / "model.ckpt-7"
VOCABULARY_FILE = LM / "vocab.txt"
VOCABULARY = LMVocabulary.from_file(VOCABULARY_FILE)
# Documented, of the sentence in any batch and of other implementations: `SentenceScorer`.
ACCURACY = 1e-5


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
    save_model(bilm, TINY_OPTIONS, *files, extra=datasets)
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
        numpy.testing.assert_allclose(ours, theirs, rtol=0, atol=ACCURACY)


class TestAgainstPretraining:
    def test_perplexities_are_those_of_its_evaluation_on_whole_sentences(
        self, tmp_path: Path
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
        assert totals.num_words + 60 == expected["num_predictions"]
        # An error of a log-probability is a relative one of its exponential.
        assert found == {name: pytest.approx(expected[name], rel=ACCURACY) for name in found}

    def test_each_word_has_the_loss_of_its_prediction(self, scorer: SentenceScorer) -> None:
        softmax, bilm = random_softmax(), randomize(BiLM(TINY_OPTIONS))
        vocab = LMWordVocabulary.from_vocabulary_file(str(VOCABULARY_FILE))
        model = BiLMTrainingModel(vocab, bilm, softmax).eval()
        reader = BiLMReader(str(VOCABULARY_FILE))
        tokens = ["It", "was", "qwertyish", "."]
        # A sentence cut after its first words: the loss grows by that of the words that follow.
        losses: Dict[str, List[float]] = {"forward": [0.0], "backward": [0.0]}
        tensors = Batch([reader.text_to_instance(tokens)]).as_tensor_dict()
        for direction, sums in losses.items():
            for length in range(1, len(tokens) + 2):
                windows = {
                    f"{name}_{part}": tensors[f"{direction}_{part}"][:, :length]
                    for name in losses
                    for part in ("inputs", "targets")
                }
                with torch.no_grad():
                    model(**windows)
                metrics = model.get_metrics(reset=True)
                sums.append(length * numpy.log(metrics[f"{direction}_perplexity"]))
        score = scorer.score_sentence(tokens)
        expected = -numpy.diff(losses["forward"])
        numpy.testing.assert_allclose(score.forward, expected, rtol=0, atol=ACCURACY)
        # Backward, the words come from the last to the first.
        expected = -numpy.diff(losses["backward"])
        backward = [*expected[:-1][::-1], expected[-1]]
        numpy.testing.assert_allclose(score.backward, backward, rtol=0, atol=ACCURACY)


class TestScores:
    @pytest.mark.parametrize(
        "limits",
        [{}, {"batch_size": 1}, {"batch_size": 3}, {"batch_size": None, "batch_tokens": 50}],
    )
    def test_they_depend_neither_on_batches_nor_on_order(
        self, scorer: SentenceScorer, limits: Dict[str, Any]
    ) -> None:
        sentences = [*SENTENCES, *heldout()[:20], ["."], []]
        alone = [scorer.score_sentence(tokens) for tokens in sentences]
        order = random.Random(0).sample(range(len(sentences)), len(sentences))
        shuffled = scorer.score_sentences([sentences[index] for index in order], **limits)
        for index, score in zip(order, shuffled):
            assert_equal(score, alone[index])

    def test_a_direction_ignores_what_it_has_not_read(self, scorer: SentenceScorer) -> None:
        first, second = (
            scorer.score_sentence(["It", "was", word, "house", "."]) for word in ("a", "the")
        )
        # Forward, the words up to the changed one are read and predicted alike, apart from itself.
        numpy.testing.assert_allclose(first.forward[:2], second.forward[:2], rtol=0, atol=ACCURACY)
        assert abs(first.forward[2:] - second.forward[2:]).min() > 1e-4
        numpy.testing.assert_allclose(
            first.backward[3:5], second.backward[3:5], rtol=0, atol=ACCURACY
        )
        assert abs(first.backward[[0, 1, 2, 5]] - second.backward[[0, 1, 2, 5]]).min() > 1e-4

    def test_unknown_words_are_marked_and_share_a_probability(self, scorer: SentenceScorer) -> None:
        score = scorer.score_sentence(["It", "qwertyish", "zxcvbish"])
        assert score.is_unknown.tolist() == [False, True, True]
        assert score.num_unknown == 2
        other = scorer.score_sentence(["It", "zxcvbish", "zxcvbish"])
        # After the same words; what follows depends on the spelling.
        assert score.forward[1] == pytest.approx(other.forward[1], rel=0, abs=ACCURACY)
        assert abs(score.forward[2] - other.forward[2]) > 1e-4

    def test_sums_and_perplexities_are_those_of_the_words_and_marks(
        self, scorer: SentenceScorer
    ) -> None:
        score = scorer.score_sentence(["It", "was"])
        # In float64, of three predictions.
        assert score.forward.dtype == numpy.float64
        assert_close(score.forward.sum(), numpy.float64(score.forward_log_probability), terms=3)
        perplexity = numpy.exp(-score.backward.mean())
        found = numpy.float64(score.perplexities()["backward_perplexity"])
        # An error of a logarithm is a relative one of its exponential.
        assert_close(found, perplexity, terms=3, scale=perplexity * max(1, -score.backward.min()))
        content = score.as_json(with_words=True)
        assert [row["word"] for row in content["words"]] == score.tokens == content["tokens"]
        for direction, mark in (("forward", "end"), ("backward", "begin")):
            of_words = sum(row[direction] for row in content["words"])
            sums = numpy.float64(of_words + content[mark])
            assert_close(numpy.float64(content[direction]), sums, terms=3)
        assert "words" not in score.as_json()

    def test_an_empty_sentence_is_its_end_and_its_begin(self, scorer: SentenceScorer) -> None:
        score = scorer.score_sentence([])
        assert score.forward.shape == score.backward.shape == (1,)
        # As those of a batch in which others have words.
        assert_equal(list(scorer.score_sentences([["It"], []]))[1], score)

    def test_no_more_is_read_than_a_window(self, scorer: SentenceScorer) -> None:
        num_read = 0

        def endless() -> Any:
            nonlocal num_read
            while True:
                num_read += 1
                yield ["It", "was"]

        scores = scorer.score_sentences(endless(), batch_size=2)
        next(scores)
        assert num_read == 32

    @pytest.mark.parametrize("sentence", ["It was", ["It", 5], [b"It"]])
    def test_what_is_no_list_of_tokens_is_refused(
        self, scorer: SentenceScorer, sentence: Any
    ) -> None:
        with pytest.raises(ValueError, match="entence 0 is"):
            scorer.score_sentence(sentence)
        with pytest.raises(ValueError, match="entence 0 is"):
            scorer.best_words(sentence)


class TestBestWords:
    def test_they_are_those_of_a_slow_loop_over_the_vocabulary(
        self, scorer: SentenceScorer
    ) -> None:
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
            assert word.forward == pytest.approx(forward, rel=0, abs=ACCURACY)
            assert word.backward == pytest.approx(backward, rel=0, abs=ACCURACY)
            expected = numpy.exp(forward + backward) / total
            # A relative error of the exponentials: of two log-probabilities, and of as many in the total.
            assert word.probability == pytest.approx(expected, rel=2 * 2 * ACCURACY)

    def test_the_probabilities_of_all_words_sum_to_one_without_the_marks(
        self, scorer: SentenceScorer
    ) -> None:
        best = scorer.best_words(["___"], num_words=10**6)
        assert sorted(word.word for word in best) == sorted(VOCABULARY.words[3:])
        # Sums of float32 over the vocabulary, in the total and here; logarithms of up to about 10.
        total = sum(word.probability for word in best)
        assert_close(total, 1, terms=2 * len(best), scale=10.0, dtype="float32")

    def test_they_depend_neither_on_batches_nor_on_chunks(
        self, scorer: SentenceScorer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sentences = [
            [*tokens[:2], "___", *tokens[2:]] for tokens in heldout()[:12] if len(tokens) > 2
        ]
        alone = [scorer.best_words(tokens, 3) for tokens in sentences]
        monkeypatch.setattr(scoring, "_PROBABILITIES_PER_CHUNK", 2 * len(VOCABULARY))
        together = list(scorer.best_words_of_sentences(sentences, 3, batch_size=5))
        assert [[word.word for word in best] for best in together] == [
            [word.word for word in best] for best in alone
        ]
        for ours, theirs in zip(together, alone):
            for word, other in zip(ours, theirs):
                assert word.forward == pytest.approx(other.forward, rel=0, abs=ACCURACY)

    @pytest.mark.parametrize("tokens", [["It"], ["___", "is", "___"], []])
    def test_a_sentence_without_exactly_one_blank_is_refused(
        self, scorer: SentenceScorer, tokens: List[str]
    ) -> None:
        message = rf"Sentence 0: found {tokens.count('___')} blanks, expected one token ___"
        with pytest.raises(ConfigurationError, match=message):
            scorer.best_words(tokens)

    def test_no_word_is_refused(self, scorer: SentenceScorer) -> None:
        with pytest.raises(ConfigurationError, match="num_words is 0, expected a positive"):
            scorer.best_words(["___"], 0)


class TestFiles:
    def test_a_softmax_in_a_file_of_its_own_is_that_of_the_weights(
        self, model_folder: Path, tmp_path: Path, scorer: SentenceScorer
    ) -> None:
        """As AI2 publishes it beside the weights of its biLMs."""
        weights, softmax = tmp_path / "w.hdf5", tmp_path / "softmax.hdf5"
        BiLM.from_files(model_folder).save(tmp_path / "options.json", weights)
        with h5py.File(model_folder / "weights.hdf5") as source, h5py.File(softmax, "w") as target:
            source.copy("softmax", target)
        files = {
            "options_file": tmp_path / "options.json",
            "weight_file": weights,
            "softmax_file": softmax,
        }
        other = SentenceScorer.from_files(**files, vocabulary_file=VOCABULARY_FILE)
        assert_equal(other.score_sentence(["It", "was"]), scorer.score_sentence(["It", "was"]))
        with pytest.raises(ConfigurationError, match=r"vocab\.txt: there is no vocabulary beside"):
            SentenceScorer.from_files(**files)
        files["softmax_file"] = tmp_path / "none.hdf5"
        with pytest.raises(ConfigurationError, match=r"softmax_file: cannot find .*none\.hdf5"):
            SentenceScorer.from_files(**files, vocabulary_file=VOCABULARY_FILE)
        del files["softmax_file"]
        with pytest.raises(ConfigurationError, match=r"w\.hdf5: has no group 'softmax', expected"):
            SentenceScorer.from_files(**files, vocabulary_file=VOCABULARY_FILE)

    def test_the_softmax_of_a_tensorflow_checkpoint(
        self, model_folder: Path, tmp_path: Path
    ) -> None:
        vocabulary = LMVocabulary([*VOCABULARY.words[:7], "house"])
        vocabulary.to_file(tmp_path / "vocab.txt")
        scorer = SentenceScorer.from_files(
            model_folder, softmax_file=CHECKPOINT, vocabulary_file=tmp_path / "vocab.txt"
        )
        weight = torch.arange(48.0).view(8, 6) / 16 - 1
        softmax = ExactSoftmax(weight, -torch.arange(8.0) / 4)
        expected = SentenceScorer(FrozenBiLM.from_files(model_folder), softmax, vocabulary)
        tokens = ["a", "house", "."]
        assert_equal(scorer.score_sentence(tokens), expected.score_sentence(tokens))

    def test_elmo_mini_is_the_default_and_knows_english(self) -> None:
        scorer = SentenceScorer.from_files()
        sentences = [["He", "opened", "the", "door", "."], [".", "door", "the", "opened", "He"]]
        good, bad = (
            score.perplexities()["perplexity"] for score in scorer.score_sentences(sentences)
        )
        assert good * 5 < bad
        best = scorer.best_words(["He", "opened", "the", "___", "and", "went", "in", "."], 5)
        assert "door" in [word.word for word in best]

    def test_a_vocabulary_of_another_size_is_refused(
        self, model_folder: Path, tmp_path: Path
    ) -> None:
        LMVocabulary(VOCABULARY.words[:-1]).to_file(tmp_path / "vocab.txt")
        message = rf"has {len(VOCABULARY) - 1:,} words, expected the {len(VOCABULARY):,} that"
        with pytest.raises(ConfigurationError, match=message):
            SentenceScorer.from_files(model_folder, vocabulary_file=tmp_path / "vocab.txt")

    def test_a_softmax_of_another_width_is_refused(self) -> None:
        softmax = ExactSoftmax(torch.zeros(len(VOCABULARY), 5), torch.zeros(len(VOCABULARY)))
        with pytest.raises(ConfigurationError, match=r"states of width 5, expected .* 6"):
            SentenceScorer(BiLM(TINY_OPTIONS).freeze(), softmax, VOCABULARY)

    def test_a_gpu_that_is_not_there_is_refused_before_files_are_read(self) -> None:
        with pytest.raises(ConfigurationError, match="cuda_device is 99"):
            SentenceScorer.from_files("no/such/folder", cuda_device=99)

    def test_precision_and_kernel_reach_the_bilm(self, model_folder: Path) -> None:
        half, reference = (
            SentenceScorer.from_files(model_folder, **settings)
            for settings in ({"precision": "bfloat16"}, {"kernel": "reference"})
        )
        assert half._embedder.elmo_bilm.settings == InferenceSettings(precision="bfloat16")
        assert reference._embedder.elmo_bilm.settings == InferenceSettings(kernel="reference")
        # Not a derived limit: a generous one for bfloat16.
        numpy.testing.assert_allclose(
            half.score_sentence(["It", "was"]).forward,
            reference.score_sentence(["It", "was"]).forward,
            rtol=0,
            atol=0.2,
        )


def test_any_number_of_layers_and_no_skip_connections() -> None:
    """The states that predict are those of the last layer, whatever the layers."""
    options = replace(TINY_OPTIONS, num_layers=3, use_skip_connections=False)
    bilm, softmax = randomize(BiLM(options)), random_softmax().exact()
    score = SentenceScorer(bilm.freeze(), softmax, VOCABULARY).score_sentence(["It"])
    with torch.no_grad():
        top = bilm(batch_to_ids([["It"]]))["activations"][-1][0]  # (3, 2 * projection_dim)
    after_begin = softmax.log_probabilities(top[:1, : options.projection_dim])
    expected = float(after_begin[0, VOCABULARY.index_of("It")])
    assert score.forward[0] == pytest.approx(expected, rel=0, abs=ACCURACY)
