"""Exact match and F1 of answers, as SQuAD 1.1 counts them."""

import re
import string
from collections import Counter
from typing import Dict, Sequence

from allennlp.nn.util import dist_reduce_sum
from allennlp.training.metrics import Metric

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalized_answer(text: str) -> str:
    """Return an answer in lower case, without ASCII punctuation and English articles, with single spaces."""
    text = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(predicted: str, answers: Sequence[str]) -> float:
    """Return 1 if the normalized prediction is one of the normalized answers, else 0."""
    return float(normalized_answer(predicted) in map(normalized_answer, answers))


def word_f1(predicted: str, answers: Sequence[str]) -> float:
    """
    Return the F1 of the words that the normalized prediction shares with an answer, for the best answer. A
    text that normalizes to nothing ("The") scores 0 even against itself, as in the official script.
    """
    predicted_words = normalized_answer(predicted).split()
    scores = []
    for answer in answers:
        answer_words = normalized_answer(answer).split()
        num_common = (Counter(predicted_words) & Counter(answer_words)).total()
        # 2 * precision * recall / (precision + recall)
        num_words = len(predicted_words) + len(answer_words)
        scores.append(2 * num_common / num_words if num_common else 0.0)
    return max(scores)


class AnswerMetrics(Metric):
    """
    Means of exact match and F1 over questions, between 0 and 1, for the best answer of each question
    (Rajpurkar et al. 2016, section 6.1). In distributed training each process must call this once per batch.
    """

    def __init__(self) -> None:
        self.reset()

    def __call__(self, predicted: Sequence[str], answers: Sequence[Sequence[str]]) -> None:
        """
        Count a batch: a text for each question, and the question's answers. A question without answers is
        left out.
        """
        measured = [pair for pair in zip(predicted, answers, strict=True) if pair[1]]
        self._exact_match_sum += dist_reduce_sum(sum(exact_match(*pair) for pair in measured))
        self._f1_sum += dist_reduce_sum(sum(word_f1(*pair) for pair in measured))
        self._num_questions += dist_reduce_sum(len(measured))

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """Return `em` and `f1` of all questions since the last reset; 0 if there were none."""
        num_questions = max(self._num_questions, 1)
        metrics = {
            "em": self._exact_match_sum / num_questions,
            "f1": self._f1_sum / num_questions,
        }
        if reset:
            self.reset()
        return metrics

    def reset(self) -> None:
        self._exact_match_sum = 0.0
        self._f1_sum = 0.0
        self._num_questions = 0
