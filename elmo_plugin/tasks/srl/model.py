"""Label the arguments of a predicate."""

from itertools import compress
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules import FeedForward
from allennlp.modules.conditional_random_field.conditional_random_field import allowed_transitions
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import sequence_cross_entropy_with_logits, viterbi_decode
from torch import BoolTensor, Tensor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.text_encoder import TextEncoder
from elmo_plugin.tasks.metrics import SpanF1
from elmo_plugin.tasks.models import Tagger
from elmo_plugin.tasks.tags import tags_to_spans

_CONTINUATION = "C-"
_EXCLUDED_ROLE = "V"
_PREDICATE = "predicate"


@Model.register("elmo_srl")
class SrlTagger(Tagger):
    """
    Text encoder with an indicator of the predicate's word, and a linear layer. Evaluation predicts the best
    sequence of tags that BIO allows (paper, section 4; He et al. 2017, "Deep Semantic Role Labeling").

    The loss is the cross entropy of the gold tags, averaged over the tokens of a sentence and then over the
    sentences of a batch, as in AllenNLP's `srl`.

    Arguments are counted like `srl-eval.pl` of CoNLL-2005 does, which the paper used:

    - an argument is correct if its role and words are those of a gold argument of the same predicate;
    - `C-X` continues the last `X` before it: both are one argument, which is correct as a whole or not at
      all; without an `X` before it, it is an `X` itself;
    - a reference `R-X` is a separate role;
    - `V`, the predicate, and its continuations are not counted.

    AllenNLP's `SpanBasedF1Measure` differs: if there is a `C-X`, it makes one span from the first to the last
    span with `X` in its label, including `R-X` and all words between.

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
            self._predicate_f1 = SpanF1([_PREDICATE])
        # 0 where a tag may follow another one, minus infinity elsewhere; the last two are the start and the
        # end of a sentence. On the CPU, where AllenNLP decodes.
        num_states = len(self.tags) + 2
        transitions = torch.full((num_states, num_states), -torch.inf)
        for from_tag, to_tag in allowed_transitions("BIO", dict(enumerate(self.tags))):
            transitions[from_tag, to_tag] = 0.0
        self._transitions = transitions[:-2, :-2]  # (num_tags, num_tags)
        self._starts = transitions[-2, :-2]  # (num_tags,)
        self._span_f1 = SpanF1(role.removeprefix(_CONTINUATION) for role in self._classes)
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
        Label sentences, once for each predicate, and return `Tagger._output`; `loss`, if gold labels are
        given; and `predicate_probabilities`, if the model finds predicates.

        All are `(batch_size, timesteps)`: `predicate_indicator`, 1 at the predicate's word, 0 elsewhere; the
        ids of gold `tags`; and `predicates`, 1 at all predicates of the sentence in the first instance of
        each sentence, -1 in the others.
        """
        features = self.predicate_embedding(predicate_indicator)  # (batch_size, timesteps, dim)
        encoded = self.text_encoder(tokens, features)
        mask = encoded.mask  # (batch_size, timesteps)
        # (batch_size, timesteps, num_tags); float32 under autocast too
        logits = self.tag_projection(encoded.contextualized).float()
        output = self._output(logits, mask, metadata)
        if tags is not None:
            tags = self._known_tags(tags, metadata)
            output["loss"] = sequence_cross_entropy_with_logits(logits, tags, mask)
            if "tags" in output:
                sentences = zip(output["tags"], tags.tolist(), metadata or [{}] * len(tags))
                # Sentences without a predicate, which the finder needs, have no arguments to be found.
                for sentence in compress(sentences, predicate_indicator.any(dim=1).tolist()):
                    self._measure(*sentence)
        if self.predicate_finder is not None:
            embedded = encoded.embedded[:, :, : -self.text_encoder.feature_dim]
            found = self.predicate_finder(embedded).float()  # (batch_size, timesteps, 2)
            output["predicate_probabilities"] = found.softmax(dim=-1)[:, :, 1]
            if predicates is not None:
                is_counted = mask & (predicates >= 0)
                predicates = predicates.clamp(min=0)
                finder_loss = sequence_cross_entropy_with_logits(found, predicates, is_counted)
                output["loss"] = output.get("loss", 0.0) + finder_loss
                if not self.training:
                    is_found = found.argmax(dim=-1) == 1
                    masks = (is_found & is_counted, (predicates == 1) & is_counted)
                    self._predicate_f1(*map(_places, masks))
        return output

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """Return the metrics of `Tagger`, and those of the predicates that the model finds."""
        metrics = super().get_metrics(reset)
        if self.predicate_finder is not None and not self.training:
            found = self._predicate_f1.get_metric(reset)
            for name in ("precision", "recall", "f1"):
                metrics[f"predicate_{name}"] = found[name]
        return metrics

    def _best_tags(self, logits: Tensor, mask: BoolTensor) -> List[List[int]]:
        # (batch_size, timesteps, num_tags)
        log_probabilities = torch.log_softmax(logits.detach().float(), dim=-1).cpu()
        lengths = mask.sum(dim=1).tolist()
        return [self._decode(scores[:length]) for scores, length in zip(log_probabilities, lengths)]

    def _decode(self, scores: Tensor) -> List[int]:
        """
        Return the most probable of all sequences in which `I-X` is only after `B-X` or `I-X` (He et al. 2017:
        constrained Viterbi decoding, without learned transitions), from `(length, num_tags)` scores.
        """
        best = scores.argmax(dim=-1)  # (length,)
        # The best tags of single tokens are the best sequence if it is allowed, which is usually so. This
        # check takes a thirtieth of the time of AllenNLP's search.
        if self._starts[best[0]] + self._transitions[best[:-1], best[1:]].sum() == 0:
            return best.tolist()
        # Not as `allowed_start_transitions`: with those AllenNLP adds 100,000 to every score, where float32
        # cannot distinguish sequences.
        scores = torch.cat([scores[:1] + self._starts, scores[1:]])
        tag_ids, _ = viterbi_decode(scores, self._transitions)
        return list(map(int, tag_ids))

    def _spans(self, tags: List[str]) -> List[Tuple[str, Any]]:
        arguments = tags_to_arguments(tags)
        return [argument for argument in arguments if argument.role != _EXCLUDED_ROLE]


def _places(mask: Tensor) -> List[Tuple[str, Any]]:
    """Return where a mask is true, as `SpanF1` counts it."""
    return [(_PREDICATE, tuple(place)) for place in mask.nonzero().tolist()]


class Argument(NamedTuple):
    """
    A role, such as `ARG0`, `R-ARG0` or `ARGM-TMP`, but never one that starts with `C-`; and start and end
    (exclusive) of its pieces. There are several pieces if other words stand between them.
    """

    role: str
    pieces: Tuple[Tuple[int, int], ...]


def tags_to_arguments(tags: Sequence[str]) -> List[Argument]:
    """Return the arguments that BIO tags mark, including `V`, in the order of their first pieces."""
    arguments: List[Tuple[str, List[Tuple[int, int]]]] = []
    pieces_of: Dict[str, List[Tuple[int, int]]] = {}  # of the last argument of each role
    for start, end, label in tags_to_spans(tags, "BIO"):
        role = label.removeprefix(_CONTINUATION)
        if label == role or role not in pieces_of:
            pieces_of[role] = []
            arguments.append((role, pieces_of[role]))
        pieces_of[role].append((start, end))
    return [Argument(role, tuple(pieces)) for role, pieces in arguments]
