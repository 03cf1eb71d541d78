"""Score sentences with a biLM and its softmax: log-probabilities of words, perplexity, the best words."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence

import numpy
import torch

from elmo_plugin.bilm import FrozenBiLM
from elmo_plugin.bilm.lm_vocabulary import LMVocabulary
from elmo_plugin.bilm.model_files import (
    VOCABULARY_NAME,
    is_many_langs_file,
    is_pretrained,
    local_path,
    resolve_model_files,
)
from elmo_plugin.bilm.processor import checked_device
from elmo_plugin.bilm.softmax import SOFTMAX_GROUP, ExactSoftmax, perplexities, read_softmax
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder, checked_tokens
from elmo_plugin.embedding.sentence_batches import DEFAULT_BATCH_SIZE
from elmo_plugin.errors import ConfigurationError, check_positive, errors_at
from elmo_plugin.files.text import FileName

# The token in the place of the word to find.
BLANK = "___"
# Words that stand for others or for sentence marks, such as WikiText's <unk>, are not offered for a blank.
_MARK = re.compile(r"</?s>|<unk>", re.IGNORECASE)


class SentenceScore(NamedTuple):
    """
    The log-probabilities (natural logarithms) of a sentence of `n` tokens.

    # Parameters

    tokens : `List[str]`
        The sentence.
    is_unknown : `numpy.ndarray`
        `(n,)`, boolean: the tokens that are not in the vocabulary of the softmax. Their scores are those of
        `<UNK>`, all such words together. (As context they are read from their characters.)
    forward : `numpy.ndarray`
        `(n + 1,)`, float64: the log-probability of each token after those before it, and last that of the
        sentence's end after all of them.
    backward : `numpy.ndarray`
        `(n + 1,)`, float64: the log-probability of each token before those after it, and last that of the
        sentence's begin before all of them.
    """

    tokens: List[str]
    is_unknown: numpy.ndarray
    forward: numpy.ndarray
    backward: numpy.ndarray

    @property
    def num_unknown(self) -> int:
        """Number of tokens that are not in the vocabulary."""
        return int(self.is_unknown.sum())

    def perplexities(self) -> Dict[str, float]:
        """Return `perplexity` and those of each direction, see `elmo_plugin.bilm.softmax.perplexities`."""
        return perplexities([-self.forward.sum(), -self.backward.sum()], len(self.forward))

    def as_json(self, with_words: bool = False) -> Dict[str, Any]:
        """
        Return values that JSON can hold: `tokens`, `num_unknown`, the log-probabilities `forward` and
        `backward`, and perplexities. With words also `words`, an object for each token with `word`,
        `forward`, `backward` and `is_unknown`; `end`, the forward log-probability of the sentence's end; and
        `begin`, the backward one of its begin.
        """
        content: Dict[str, Any] = {
            "tokens": self.tokens,
            "num_unknown": self.num_unknown,
            "forward": float(self.forward.sum()),
            "backward": float(self.backward.sum()),
            **self.perplexities(),
        }
        if with_words:
            *forward, end = self.forward.tolist()
            *backward, begin = self.backward.tolist()
            names = ("word", "forward", "backward", "is_unknown")
            rows = zip(self.tokens, forward, backward, self.is_unknown.tolist())
            content["words"] = [dict(zip(names, row)) for row in rows]
            content.update(end=end, begin=begin)
        return content


@dataclass
class ScoreTotals:
    """Sums over scored sentences."""

    num_sentences: int = 0
    num_words: int = 0
    num_unknown: int = 0
    forward: float = 0.0
    backward: float = 0.0

    def add(self, score: SentenceScore) -> None:
        self.num_sentences += 1
        self.num_words += len(score.tokens)
        self.num_unknown += score.num_unknown
        self.forward += float(score.forward.sum())
        self.backward += float(score.backward.sum())

    def perplexities(self) -> Dict[str, float]:
        """
        Return perplexities of all sentences together, see `elmo_plugin.bilm.softmax.perplexities`. They are
        those of pretraining's evaluation on whole sentences.
        """
        return perplexities([-self.forward, -self.backward], self.num_words + self.num_sentences)


class WordForBlank(NamedTuple):
    """A word for a blank. Words are ranked by `probability`."""

    word: str
    forward: float  # its log-probability after the tokens before the blank
    backward: float  # and before those after it
    # The product of both probabilities, divided by the sum of these products over all words of the
    # vocabulary that can be offered: those without `<S>`, `</S>` or `<UNK>` in them, in capital or small
    # letters.
    probability: float


class SentenceScorer:
    """
    Score sentences with a frozen biLM and the softmax that it was trained with.

    Each sentence is scored separately: the LSTMs start from zeros, so that a score depends neither on the
    other sentences nor on their order (up to rounding, 1e-5). The perplexity that pretraining reports on a
    stream of text is another one, as its LSTMs carry their states from sentence to sentence.

    # Raises

    `ConfigurationError` if the sizes of biLM, softmax and vocabulary contradict each other.
    """

    def __init__(self, bilm: FrozenBiLM, softmax: ExactSoftmax, vocabulary: LMVocabulary) -> None:
        softmax.check_fits(bilm.options.projection_dim, len(vocabulary))
        self.vocabulary = vocabulary
        self._embedder = ElmoEmbedder.from_bilm(bilm)
        self._softmax = softmax.to(bilm.device)
        # Indices of the words that are offered for a blank.
        self._offered = [
            index for index, word in enumerate(vocabulary.words) if not _MARK.search(word)
        ]

    @classmethod
    def from_files(
        cls,
        options_file: Optional[FileName],
        weight_file: Optional[FileName] = None,
        softmax_file: Optional[FileName] = None,
        vocabulary_file: Optional[FileName] = None,
        cuda_device: int = -1,
        **inference: Any,
    ) -> "SentenceScorer":
        """
        Load a biLM with its softmax.

        # Parameters

        options_file, weight_file : `str` or `PathLike`
            See `BiLM.from_files`. One name is enough for all files: `elmo_mini`, or a folder that `elmo
            export` wrote.
        softmax_file : `str` or `PathLike`, optional (default = the weight file)
            An HDF5 file with the group `softmax`, such as those that AI2 publishes.
        vocabulary_file : `str` or `PathLike`, optional (default = `vocab.txt` beside the weights)
            The words of the softmax, see `LMVocabulary`.
        cuda_device, inference
            See `ElmoEmbedder`.

        # Raises

        `ConfigurationError` if a file is missing or damaged, or if there is no softmax; and as the class.
        """
        device = checked_device(cuda_device)  # fails before files are read
        options_path, weight_path = resolve_model_files(options_file, weight_file)
        if softmax_file is None and is_many_langs_file(weight_path):
            raise ConfigurationError(
                f"{weight_path.parent}: found a model of ELMoForManyLangs, which has vectors but no softmax, "
                "expected a biLM with the softmax that it was trained with. Take one in bilm-tf's form."
            )
        source = weight_path if softmax_file is None else softmax_file
        softmax = _softmax_in(source)
        vocabulary = LMVocabulary.from_file(_vocabulary_path(vocabulary_file, weight_path))
        bilm = FrozenBiLM.from_files(options_path, weight_path, device, **inference)
        with errors_at(str(source)):
            return cls(bilm, softmax, vocabulary)

    def score_sentence(self, tokens: Sequence[str]) -> SentenceScore:
        """Score the tokens of a sentence, which may be empty. Raise as `ElmoEmbedder.embed_sentence`."""
        return next(self.score_sentences([tokens]))

    def score_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = DEFAULT_BATCH_SIZE
    ) -> Iterator[SentenceScore]:
        """
        Score any number of sentences, in bounded memory. Yield their scores in the order of the sentences.
        Arguments and errors are those of `ElmoEmbedder.embed_sentences`.
        """
        return self._embedder.map_batches(self._scores, sentences, batch_size)

    def best_words(
        self, tokens: Sequence[str], num_words: int = 10, where: str = "The sentence"
    ) -> List[WordForBlank]:
        """
        Return the best words for the blank, `___`, among the tokens of a sentence, ranked by both directions
        together; the best first. Errors name the sentence by `where`.

        # Raises

        `ConfigurationError` unless there is exactly one blank, and `num_words` is positive; `ValueError` as
        `ElmoEmbedder.embed_sentence`.
        """
        check_positive("num_words", num_words)
        sentence = checked_tokens(tokens, 0)
        num_blanks = sentence.count(BLANK)
        if num_blanks != 1:
            raise ConfigurationError(
                f"{where}: found {num_blanks} blanks, expected one token {BLANK}, in the place of the "
                "word to find. Correct the sentence."
            )
        blank = sentence.index(BLANK) + 1  # in the sentence with its marks
        forward_states, backward_states = self._embedder.run_bilm([sentence])["activations"][-1][
            0
        ].chunk(2, dim=1)
        # No state has read the blank: (2, projection_dim)
        states = torch.stack([forward_states[blank - 1], backward_states[blank + 1]])
        # (2, number of words that can be offered)
        log_probabilities = self._softmax.log_probabilities(states)[:, self._offered]
        products = log_probabilities.sum(dim=0).softmax(dim=0)
        best = products.topk(min(num_words, len(products)))
        columns = (*log_probabilities[:, best.indices], best.values)
        return [
            WordForBlank(self.vocabulary.words[self._offered[index]], *numbers)
            for index, *numbers in zip(*(row.tolist() for row in (best.indices, *columns)))
        ]

    def _scores(self, sentences: List[List[str]]) -> List[SentenceScore]:
        vocabulary = self.vocabulary
        words = [[vocabulary.index_of(token) for token in tokens] for tokens in sentences]
        output = self._embedder.run_bilm(sentences)
        top = output["activations"][-1]
        # In each direction, one prediction fewer than a sentence has positions with its marks.
        is_prediction = output["mask"][:, 1:]
        forward_states, backward_states = top.chunk(2, dim=2)
        # Forward, the state at a position predicts the next one, the last the end of the sentence; backward,
        # it predicts the previous one, the first the begin. (num_predictions, projection_dim) each
        states = [forward_states[:, :-1][is_prediction], backward_states[:, 1:][is_prediction]]
        targets = [word for row in words for word in (*row, vocabulary.end)]
        targets += [word for row in words for word in (vocabulary.begin, *row)]
        nll = self._softmax.nll(torch.cat(states), torch.tensor(targets, device=top.device))
        # An array for each direction and sentence.
        starts = numpy.cumsum([len(tokens) + 1 for tokens in sentences])[:-1]
        forward, backward = (numpy.split(row, starts) for row in (-nll.view(2, -1)).cpu().numpy())
        return [
            SentenceScore(
                tokens,
                numpy.array(row, dtype=numpy.int64) == vocabulary.unknown,
                of_forward.copy(),
                numpy.roll(of_backward, -1),  # the begin comes last
            )
            for tokens, row, of_forward, of_backward in zip(sentences, words, forward, backward)
        ]


def _softmax_in(softmax_file: FileName) -> ExactSoftmax:
    path = local_path("softmax_file", softmax_file)
    softmax = read_softmax(path)
    if softmax is None:
        raise ConfigurationError(
            f"{path}: has no group '{SOFTMAX_GROUP}', expected the softmax that the biLM was trained with, "
            "without which it predicts no word. Give its file with --softmax-file (softmax_file=...), or a "
            "model that `elmo export` wrote from its pretraining."
        )
    return softmax


def _vocabulary_path(vocabulary_file: Optional[FileName], weight_path: Path) -> FileName:
    if vocabulary_file is not None:
        is_name = is_pretrained(vocabulary_file)
        return vocabulary_file if is_name else local_path("vocabulary_file", vocabulary_file)
    path = weight_path.with_name(VOCABULARY_NAME)
    if not path.is_file():
        raise ConfigurationError(
            f"{path}: there is no vocabulary beside the weights, expected the words of the softmax. Give its "
            "file with --vocabulary-file (vocabulary_file=...)."
        )
    return path
