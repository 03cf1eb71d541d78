"""Answer questions with spans of a passage."""

import re
import string
from collections import Counter
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import torch
from allennlp.common import Lazy
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import FeedForward, InputVariationalDropout, Seq2SeqEncoder
from allennlp.modules.matrix_attention import LinearMatrixAttention
from allennlp.nn import Initializer, InitializerApplicator
from allennlp.nn.util import masked_max, min_value_of_dtype
from torch import BoolTensor, Tensor
from torch.nn.functional import pad

from elmo_plugin.errors import check_positive
from elmo_plugin.modules.text_encoder import TextEncoder, built
from elmo_plugin.tasks.metrics import Counts, SumMetric, ratio
from elmo_plugin.tasks.models import attend


@Model.register("elmo_squad")
class QuestionAnswerer(Model):
    """
    Clark and Gardner's simplification of BiDAF (2018; paper, section 4). One text encoder reads question and
    passage, and their tokens attend to each other. A projection and a residual block with self-attention
    follow. The output of an encoder then scores each token as the start of the answer; a second encoder,
    which also reads the output of the first, scores the end.

    The loss is the cross entropy of the start plus that of the end, averaged over the questions of the batch.
    For a question with several answers, the probabilities of all their starts, or ends, are summed.
    The predicted span is the exact maximum: the span of at most `max_answer_tokens` tokens with the highest
    sum of scores. Passages are read whole: memory grows with the square of their length, by about 14 bytes
    for each pair of tokens, 22 in training.

    In a config, no part has an input width. Each placement of ELMo has one mix for questions and passages.

    # Parameters

    max_answer_tokens : `int`, optional (default = `17`)
        Length of the longest span that is predicted.
    dropout : `float`, optional (default = `0.0`)
        Variational dropout on the output of the text encoder's RNN, around the encoder in the self-attention
        block, and on that block's output, in addition to the text encoder's own.
    """

    default_predictor = "elmo_squad"

    def __init__(
        self,
        vocab: Vocabulary,
        text_encoder: TextEncoder,
        projection: Union[Lazy[FeedForward], FeedForward],
        self_attention_encoder: Union[Lazy[Seq2SeqEncoder], Seq2SeqEncoder],
        start_encoder: Union[Lazy[Seq2SeqEncoder], Seq2SeqEncoder],
        end_encoder: Union[Lazy[Seq2SeqEncoder], Seq2SeqEncoder],
        max_answer_tokens: int = 17,
        dropout: float = 0.0,
        initializer: InitializerApplicator = InitializerApplicator(),
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        check_positive("max_answer_tokens", max_answer_tokens)
        self.text_encoder = text_encoder
        token_dim = text_encoder.get_output_dim()
        self.attention = BidirectionalAttention(token_dim)
        self.projection = built(projection, 4 * token_dim, "attention output", "projection")
        block_dim = self.projection.get_output_dim()
        self.self_attention = ResidualSelfAttention(
            built(self_attention_encoder, block_dim, "projection output", "self-attention encoder"),
            dropout,
        )
        self.start_encoder = built(
            start_encoder, block_dim, "self-attention output", "start encoder"
        )
        self.end_encoder = built(
            end_encoder,
            block_dim + self.start_encoder.get_output_dim(),
            "self-attention output and start encoder output",
            "end encoder",
        )
        # Without a bias, which a softmax over the tokens would ignore.
        self.start_score = torch.nn.Linear(self.start_encoder.get_output_dim(), 1, bias=False)
        self.end_score = torch.nn.Linear(self.end_encoder.get_output_dim(), 1, bias=False)
        self.max_answer_tokens = max_answer_tokens
        self.dropout = InputVariationalDropout(dropout)
        self._answer_metrics = AnswerMetrics()
        initializer(self)

    def forward(
        self,
        question: TextFieldTensors,
        passage: TextFieldTensors,
        answer_spans: Optional[Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, Any]:
        """
        Answer questions, each about its passage. Gold answers are `answer_spans`, `(batch_size, num_answers,
        2)`, the first and the last token of each, -1 at padding; each question has at least one.

        # Returns

        `start_logits` and `end_logits` `(batch_size, passage_length)`, the lowest number at padding;
        `best_span` `(batch_size, 2)`, the first and the last token of the answer; `span_probability`
        `(batch_size,)`, the product of the probabilities of its start and its end; `loss`, if the answers are
        given. If metadata is given, `best_span_text`, the answer cut from the passage of each question.
        """
        passage_mask, vectors = self._read(question, passage)
        start_encoded = self.start_encoder(vectors, passage_mask)
        end_encoded = self.end_encoder(torch.cat([vectors, start_encoded], dim=-1), passage_mask)
        start_logits = _masked(self.start_score(start_encoded).squeeze(-1), passage_mask)
        end_logits = _masked(self.end_score(end_encoded).squeeze(-1), passage_mask)
        spans = best_span(start_logits, end_logits, self.max_answer_tokens)  # (batch_size, 2)
        output: Dict[str, Any] = {
            "start_logits": start_logits,
            "end_logits": end_logits,
            "best_span": spans,
            "span_probability": _probability(start_logits, spans[:, 0])
            * _probability(end_logits, spans[:, 1]),
        }
        if answer_spans is not None:
            starts, ends = answer_spans.unbind(dim=-1)
            output["loss"] = _loss(start_logits, starts) + _loss(end_logits, ends)
        if metadata is not None:
            output["best_span_text"] = []
            for span, question in zip(spans.tolist(), metadata, strict=True):
                answer = _cut_answer(span, question)
                output["best_span_text"].append(answer)
                self._answer_metrics(answer, question["answers"])
        return output

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """Return the metrics of `AnswerMetrics` since the last reset."""
        return self._answer_metrics.get_metric(reset)

    def counts(self) -> Dict[str, Counts]:
        """Return the counts of `f1` since the last reset."""
        return {"f1": self._answer_metrics.counts()}

    def _read(
        self, question: TextFieldTensors, passage: TextFieldTensors
    ) -> Tuple[BoolTensor, Tensor]:
        """Return the mask of the passage, and its vectors after the attention to the question."""
        encoded_question = self.text_encoder(question)
        encoded_passage = self.text_encoder(passage)
        passage_mask = encoded_passage.mask  # (batch_size, passage_length)
        # (batch_size, passage_length, attention_dim)
        attended = self.attention(
            self._with_dropout(encoded_passage.contextualized),
            self._with_dropout(encoded_question.contextualized),
            passage_mask,
            encoded_question.mask,
        )
        # (batch_size, passage_length, block_dim)
        vectors = self.self_attention(self.projection(attended), passage_mask)
        return passage_mask, self.dropout(vectors)

    def _with_dropout(self, contextualized: Tensor) -> Tensor:
        # Output ELMo follows the output of the RNN, and has its own dropout.
        rnn_dim = self.text_encoder.encoder.get_output_dim()
        rnn_output, output_elmo = contextualized[..., :rnn_dim], contextualized[..., rnn_dim:]
        return torch.cat([self.dropout(rnn_output), output_elmo], dim=-1)


def _masked(logits: Tensor, mask: BoolTensor) -> Tensor:
    """Return scores in float32, with padding at the lowest number: `(batch_size, passage_length)`."""
    logits = logits.float()
    return logits.masked_fill(~mask, min_value_of_dtype(logits.dtype))


def _loss(logits: Tensor, gold: Tensor) -> Tensor:
    """
    Return the negative log of the probability of the gold tokens of each passage together, averaged. They are
    `(batch_size, num_answers)`, -1 at padding.
    """
    tokens = torch.arange(logits.size(1), device=logits.device)
    is_gold = (gold.unsqueeze(-1) == tokens).any(dim=1)  # (batch_size, passage_length)
    log_probabilities = logits.log_softmax(dim=-1)
    return -log_probabilities.masked_fill(~is_gold, -torch.inf).logsumexp(dim=-1).mean()


def _probability(logits: Tensor, indices: Tensor) -> Tensor:
    """Return the probability of one token in each passage, `(batch_size,)`."""
    return logits.softmax(dim=-1).gather(1, indices.unsqueeze(-1)).squeeze(-1)


def _cut_answer(span: Tuple[int, int], question: Dict[str, Any]) -> str:
    first, last = (question["token_offsets"][index] for index in span)
    return question["passage"][first[0] : last[1]]


def best_span(start_logits: Tensor, end_logits: Tensor, max_length: int) -> Tensor:
    """
    Return the span of at most `max_length` tokens with the highest sum of start and end score. Ties go to the
    earliest start, then to the shortest span.

    Scores are `(batch_size, timesteps)`, and very low at steps where no span may start or end; there must be
    other steps. The result is a `LongTensor` `(batch_size, 2)`: the first and the last token.
    """
    # A start goes with the next max_length ends only: a band of the square of all pairs.
    # (batch_size, timesteps + max_length - 1)
    padded_ends = pad(end_logits, (0, max_length - 1), value=-torch.inf)
    ends = padded_ends.unfold(1, max_length, 1)  # (batch_size, timesteps, max_length)
    scores = start_logits.unsqueeze(-1) + ends  # (batch_size, timesteps, max_length)
    best = scores.flatten(1).argmax(dim=1)  # (batch_size,)
    start = torch.div(best, max_length, rounding_mode="floor")
    return torch.stack([start, start + best % max_length], dim=1)  # (batch_size, 2)


@Initializer.register("elmo_truncated_normal")
class TruncatedNormalInitializer(Initializer):
    """
    A normal distribution around 0, cut at two standard deviations, like TensorFlow's `TruncatedNormal`. `std`
    is the value before the tails are cut. AllenNLP has no such initializer.
    """

    def __init__(self, std: float = 0.05) -> None:
        self._std = std

    def __call__(self, tensor: Tensor, **kwargs: Any) -> None:
        torch.nn.init.trunc_normal_(tensor, std=self._std, a=-2 * self._std, b=2 * self._std)


class BidirectionalAttention(torch.nn.Module):
    """
    BiDAF's attention (Seo et al. 2017, section 2): each passage token attends to the question, and the
    question as a whole to the passage. Similarity is tri-linear, `w . [p; q; p * q]`.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        # A matrix product sums the products p * q, which are never in memory.
        self.similarity = LinearMatrixAttention(dim, dim, combination="x,y,x*y")

    def forward(
        self,
        passage: Tensor,
        question: Tensor,
        passage_mask: BoolTensor,
        question_mask: BoolTensor,
    ) -> Tensor:
        """
        Return `(batch_size, passage_length, 4 * dim)`: for each passage token its vector, its attention over
        the question, the product of the two, and the product of its vector with the question's attention over
        the passage. Inputs are `(batch_size, passage_length, dim)` and `(batch_size, question_length, dim)`.
        """
        # (batch_size, passage_length, question_length)
        similarity = self.similarity(passage, question)
        # (batch_size, passage_length, dim)
        attended_question = attend(similarity, question, question_mask)
        # (batch_size, passage_length)
        highest_similarity = masked_max(similarity, question_mask.unsqueeze(1), dim=-1)
        # (batch_size, 1, dim)
        attended_passage = attend(highest_similarity, passage, passage_mask).unsqueeze(1)
        return torch.cat(
            [passage, attended_question, passage * attended_question, passage * attended_passage],
            dim=-1,
        )


class ResidualSelfAttention(torch.nn.Module):
    """
    Encoder, self-attention and a linear layer with ReLU, added to the input (Clark and Gardner 2018, section
    3.1): `x + relu(W [a; h; a * h])`, where `h` is the encoded input, and `a` the vector that a token attends
    to. Similarity is tri-linear. A token does not attend to itself. It can attend to nothing, with a learned
    score, as in the authors' code.

    The encoder's input is as wide as the block's input and output. Variational dropout is on the input and
    the output of the encoder.
    """

    def __init__(self, encoder: Seq2SeqEncoder, dropout: float = 0.0) -> None:
        super().__init__()
        dim = encoder.get_output_dim()
        self.encoder = encoder
        self.dropout = InputVariationalDropout(dropout)
        self.similarity = LinearMatrixAttention(dim, dim, combination="x,y,x*y")
        self.nothing_score = torch.nn.Parameter(torch.tensor(-1.0))  # the authors' initial value
        self.projection = torch.nn.Linear(3 * dim, encoder.get_input_dim())

    def forward(self, inputs: Tensor, mask: BoolTensor) -> Tensor:
        """Transform `(batch_size, timesteps, dim)` to the same shape. Padded positions are not zeroed."""
        # (batch_size, timesteps, encoder_dim)
        encoded = self.dropout(self.encoder(self.dropout(inputs), mask))
        attended = torch.matmul(self._attention(encoded, mask), encoded)
        merged = torch.cat([attended, encoded, attended * encoded], dim=-1)
        return inputs + torch.relu(self.projection(merged))

    def _attention(self, encoded: Tensor, mask: BoolTensor) -> Tensor:
        """Return attention weights `(batch_size, timesteps, timesteps)`, whose rows sum to less than 1."""
        scores = self.similarity(encoded, encoded)  # (batch_size, timesteps, timesteps)
        itself = torch.eye(scores.size(-1), dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(itself | ~mask.unsqueeze(1), min_value_of_dtype(scores.dtype))
        # A softmax over the tokens and nothing.
        log_sum = torch.logaddexp(
            torch.logsumexp(scores, dim=-1, keepdim=True), self.nothing_score.to(scores.dtype)
        )
        return torch.exp(scores - log_sum)


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
        scores.append(ratio(2 * num_common, len(predicted_words) + len(answer_words)))
    return max(scores)


class AnswerMetrics(SumMetric):
    """
    Means of exact match and F1 over questions, `em` and `f1`, between 0 and 1, for the best answer of each
    question (Rajpurkar et al. 2016, section 6.1).
    """

    def __init__(self) -> None:
        super().__init__(3)  # sums of exact match and F1, and number of questions

    def __call__(self, predicted: str, answers: Sequence[str]) -> None:
        """Count a question, unless it has no answers."""
        if answers:
            measured = exact_match(predicted, answers), word_f1(predicted, answers), 1
            self._sums += torch.tensor(measured, dtype=torch.double)

    def counts(self) -> Counts:
        _, f1_sum, num_questions = self._sums.tolist()
        return [(f1_sum, num_questions, f1_sum, num_questions)]

    def _from_sums(self, sums: Tensor) -> Dict[str, float]:
        exact_match_sum, f1_sum, num_questions = sums.tolist()
        return {"em": ratio(exact_match_sum, num_questions), "f1": ratio(f1_sum, num_questions)}
