"""Label the arguments of a predicate, and count them like CoNLL-2005's scorer does."""

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import FeedForward
from allennlp.modules.conditional_random_field.conditional_random_field import allowed_transitions
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import dist_reduce_sum, sequence_cross_entropy_with_logits, viterbi_decode
from allennlp.training.metrics import F1Measure, Metric
from torch import BoolTensor, Tensor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.text_encoder import TextEncoder
from elmo_plugin.tasks.models import Tagger
from elmo_plugin.tasks.tags import split_tag, tags_to_spans

_CONTINUATION = "C-"
_EXCLUDED_ROLE = "V"


@Model.register("elmo_srl")
class SrlTagger(Tagger):
    """
    Text encoder with an indicator of the predicate's word, and a linear layer. Evaluation predicts the best
    sequence of tags that BIO allows (paper, section 4; He et al. 2017, "Deep Semantic Role Labeling").

    The loss is the cross entropy of the gold tags, averaged over the tokens of a sentence and then over the
    sentences of a batch, as in AllenNLP's `srl`. Arguments are counted like CoNLL-2005's scorer does, see
    `SrlSpanF1`.

    # Parameters

    text_encoder : `TextEncoder`
        Its `feature_dim` is the width of the embedding that marks the predicate's word.
    finder_dim : `int`, optional (default = `0`)
        Learn to find predicates, too: a layer of this width over the input vectors of the task RNN, ELMo's
        among them, predicts for each word whether it is one. Its loss is added to that of the tags, and its
        metrics are `predicate_precision`, `predicate_recall` and `predicate_f1`. 0: predicates are given.
    """

    default_predictor = "elmo_srl"
    label_scheme = "BIO"

    def __init__(
        self,
        vocab: Vocabulary,
        text_encoder: TextEncoder,
        finder_dim: int = 0,
        initializer: InitializerApplicator = InitializerApplicator(),
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        if text_encoder.feature_dim == 0:
            raise ConfigurationError(
                "text_encoder.feature_dim is 0, expected the width of the predicate indicator's embedding: "
                "without it the model does not know whose arguments to label. The paper has 100."
            )
        self.text_encoder = text_encoder
        # Row 0: other words; row 1: the predicate's.
        self.predicate_embedding = torch.nn.Embedding(2, text_encoder.feature_dim)
        self.tag_projection = torch.nn.Linear(text_encoder.get_output_dim(), len(self.tags))
        self.predicate_finder: Optional[FeedForward] = None
        if finder_dim > 0:
            word_dim = text_encoder.get_input_dim() - text_encoder.feature_dim
            activations = [torch.nn.ReLU(), torch.nn.Identity()]
            self.predicate_finder = FeedForward(word_dim, 2, [finder_dim, 2], activations)
            self._predicate_f1 = F1Measure(positive_label=1)
        self._decoder = BioDecoder(self.tags)
        self._span_f1 = SrlSpanF1(self.tags)
        initializer(self)

    def forward(
        self,
        tokens: TextFieldTensors,
        predicate_indicator: Tensor,
        tags: Optional[Tensor] = None,
        predicates: Optional[Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, Any]:
        """
        Label sentences, once for each predicate, and return `Tagger._output`; `loss`, if gold tags are given;
        and `predicate_probabilities`, if the model finds predicates.

        All are `(batch_size, timesteps)`: `predicate_indicator`, 1 at the predicate's word, 0 elsewhere; the
        ids of gold `tags`; and `predicates`, 1 at all predicates of the sentence in the first instance of
        each sentence, -1 in the others.
        """
        features = self.predicate_embedding(predicate_indicator)  # (batch_size, timesteps, dim)
        encoded = self.text_encoder(tokens, features)
        mask = encoded.mask  # (batch_size, timesteps)
        logits = self.tag_projection(encoded.contextualized)  # (batch_size, timesteps, num_tags)
        output = self._output(logits, mask, metadata)
        finder_loss: Union[float, Tensor] = 0.0
        if self.predicate_finder is not None:
            # (batch_size, timesteps, 2)
            found = self.predicate_finder(encoded.embedded[:, :, : -self.text_encoder.feature_dim])
            output["predicate_probabilities"] = found.softmax(dim=-1)[:, :, 1]
            if predicates is not None:
                is_counted = mask & (predicates >= 0)
                predicates = predicates.clamp(min=0)
                if not self.training:
                    self._predicate_f1(found, predicates, is_counted)
                finder_loss = sequence_cross_entropy_with_logits(found, predicates, is_counted)
        if tags is not None:
            output["loss"] = sequence_cross_entropy_with_logits(logits, tags, mask) + finder_loss
            if "tags" in output:
                gold_tags = [row[: len(best)] for row, best in zip(tags.tolist(), output["tags"])]
                self._span_f1(self._names(output["tags"]), self._names(gold_tags))
        return output

    def _best_tags(self, logits: Tensor, mask: BoolTensor) -> List[List[int]]:
        return self._decoder.decode(logits, mask)

    def _span_metrics(self, reset: bool) -> Dict[str, float]:
        metrics = self._span_f1.get_metric(reset)
        if self.predicate_finder is not None:
            found = self._predicate_f1.get_metric(reset)
            metrics.update({f"predicate_{name}": value for name, value in found.items()})
        return metrics


class BioDecoder:
    """
    Finds the most probable of all allowed sequences of `tags`: `I-X` is only allowed after `B-X` or `I-X` (He
    et al. 2017: constrained Viterbi decoding, without learned transitions).
    """

    def __init__(self, tags: List[str]) -> None:
        num_tags = len(tags)
        # AllenNLP's transitions have two more states, for start and end. Every tag may be the last.
        scores = torch.full((num_tags + 2, num_tags + 2), float("-inf"))
        for from_tag, to_tag in allowed_transitions("BIO", dict(enumerate(tags))):
            scores[from_tag, to_tag] = 0.0
        # 0 where allowed, minus infinity where not. On the CPU, where AllenNLP's function decodes.
        self._transitions = scores[:num_tags, :num_tags]  # (num_tags, num_tags)
        self._starts = scores[num_tags, :num_tags]  # (num_tags,)

    def decode(self, logits: Tensor, mask: BoolTensor) -> List[List[int]]:
        """
        Return the tag ids of each sentence, one per real token, from `logits` `(batch_size, timesteps,
        num_tags)` and a `mask` `(batch_size, timesteps)` in which real tokens come first.
        """
        # (batch_size, timesteps, num_tags)
        log_probabilities = torch.log_softmax(logits.detach().float(), dim=-1).cpu()
        lengths = mask.sum(dim=1).tolist()
        return [self._decode(scores[:length]) for scores, length in zip(log_probabilities, lengths)]

    def _decode(self, scores: Tensor) -> List[int]:
        best = scores.argmax(dim=-1)  # (length,)
        # The best tags of single tokens are the best sequence if it is allowed, which is usually so. This
        # check takes a thirtieth of the time of AllenNLP's search.
        penalty = self._starts[best[0]] + self._transitions[best[:-1], best[1:]].sum()
        if penalty == 0:
            return best.tolist()
        # Not as `allowed_start_transitions`: with those AllenNLP adds 100,000 to every score, where float32
        # cannot distinguish sequences.
        scores = torch.cat([scores[:1] + self._starts, scores[1:]])  # (length, num_tags)
        tag_ids, _ = viterbi_decode(scores, self._transitions)
        return [int(tag_id) for tag_id in tag_ids]


class Argument(NamedTuple):
    """
    A role, such as `ARG0`, `R-ARG0` or `ARGM-TMP`, but never one that starts with `C-`; and start and end
    (exclusive) of its pieces. There are several pieces if other words stand between them.
    """

    role: str
    pieces: Tuple[Tuple[int, int], ...]


@Metric.register("elmo_srl_span_f1")
class SrlSpanF1(Metric):
    """
    Precision, recall and F1 of arguments, overall and for each role, counted like `srl-eval.pl` of
    CoNLL-2005, which the paper used:

    - an argument is correct if its role and words are those of a gold argument of the same predicate;
    - `C-X` continues the last `X` before it: both are one argument, which is correct as a whole or not at
      all; without an `X` before it, it is an `X` itself;
    - a reference `R-X` is a separate role;
    - `V`, the predicate, and its continuations are not counted.

    AllenNLP's `SpanBasedF1Measure` differs: if there is a `C-X`, it makes one span from the first to the last
    span with `X` in its label, including `R-X` and all words between.

    In distributed training the counts of all workers are summed. `tags` are all BIO tags that may be gold or
    predicted, the same in all workers.
    """

    supports_distributed = True

    def __init__(self, tags: Iterable[str]) -> None:
        parts = (split_tag(tag, "BIO") for tag in tags if tag != "O")
        roles = {label.removeprefix(_CONTINUATION) for _, label in filter(None, parts)}
        self._roles = sorted(roles - {_EXCLUDED_ROLE})
        self._row_of = {role: row for row, role in enumerate(self._roles)}
        self.reset()

    def reset(self) -> None:
        # (num_roles, 3): how many arguments are correct, in excess, missed
        self._counts = torch.zeros(len(self._roles), 3, dtype=torch.long)

    def __call__(
        self, predicted_tags: Sequence[Sequence[str]], gold_tags: Sequence[Sequence[str]]
    ) -> None:
        """Count the arguments of predicates, from the predicted and the gold BIO tags of their sentences."""
        for predicted_of_one, gold_of_one in zip(predicted_tags, gold_tags, strict=True):
            predicted, gold = (
                {
                    argument
                    for argument in tags_to_arguments(tags)
                    if argument.role != _EXCLUDED_ROLE
                }
                for tags in (predicted_of_one, gold_of_one)
            )
            columns = (predicted & gold, predicted - gold, gold - predicted)
            for column, arguments in enumerate(columns):
                for argument in arguments:
                    self._counts[self._row_of[argument.role], column] += 1

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """
        Return the metrics since the last reset: `precision`, `recall` and `f1` over all roles, and the same
        for each role that was gold or predicted, such as `f1-ARG0`.
        """
        counts = dist_reduce_sum(self._counts)  # (num_roles, 3)
        metrics = _scores(counts.sum(dim=0).tolist(), "")
        for role, counts_of_role in zip(self._roles, counts.tolist()):
            if any(counts_of_role):
                metrics.update(_scores(counts_of_role, f"-{role}"))
        if reset:
            self.reset()
        return metrics


def tags_to_arguments(tags: Sequence[str]) -> List[Argument]:
    """Return the arguments that BIO tags mark, including `V`, in the order of their first pieces."""
    arguments: List[Argument] = []
    # The index of the last argument of each role.
    last_of: Dict[str, int] = {}
    for start, end, label in tags_to_spans(tags, "BIO"):
        role = label.removeprefix(_CONTINUATION)
        if label != role and role in last_of:
            continued = arguments[last_of[role]]
            pieces = (*continued.pieces, (start, end))
            arguments[last_of[role]] = Argument(role, pieces)
        else:
            last_of[role] = len(arguments)
            arguments.append(Argument(role, ((start, end),)))
    return arguments


def _scores(counts: Sequence[int], suffix: str) -> Dict[str, float]:
    correct, excess, missed = counts
    precision = _ratio(correct, correct + excess)
    recall = _ratio(correct, correct + missed)
    f1 = _ratio(2 * precision * recall, precision + recall)
    return {f"precision{suffix}": precision, f"recall{suffix}": recall, f"f1{suffix}": f1}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
