"""Label the arguments of a predicate."""

from typing import Any, Dict, List, Optional, Union

import torch
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import FeedForward
from allennlp.modules.conditional_random_field.conditional_random_field import allowed_transitions
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import sequence_cross_entropy_with_logits, viterbi_decode
from allennlp.training.metrics import F1Measure
from torch import BoolTensor, Tensor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.text_encoder import TextEncoder
from elmo_plugin.tasks.srl.span_f1 import SrlSpanF1
from elmo_plugin.tasks.tags import Tagger


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

    def __init__(
        self,
        vocab: Vocabulary,
        text_encoder: TextEncoder,
        finder_dim: int = 0,
        initializer: Optional[InitializerApplicator] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, label_scheme="BIO", **kwargs)
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
        if initializer is not None:
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
        Label sentences. Each sentence occurs once for each of its predicates.

        # Parameters

        predicate_indicator : `LongTensor`
            `(batch_size, timesteps)`. 1 at the predicate's word, 0 elsewhere.
        tags : `LongTensor`, optional
            `(batch_size, timesteps)`. Ids of the gold tags.
        predicates : `LongTensor`, optional
            `(batch_size, timesteps)`. 1 at all predicates of the sentence, in the first instance of each
            sentence; -1 in the others.

        # Returns

        `Tagger._output`; `loss`, if gold tags are given; and `predicate_probabilities`, `(batch_size,
        timesteps)`, if the model finds predicates.
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
