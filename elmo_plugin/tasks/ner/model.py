"""Tag named entities with a CRF over contextual vectors."""

from typing import Any, Dict, List, Optional

import torch
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules.conditional_random_field import ConditionalRandomField
from allennlp.modules.conditional_random_field.conditional_random_field import allowed_transitions
from allennlp.nn import InitializerApplicator
from allennlp.training.metrics import SpanBasedF1Measure
from torch import BoolTensor, Tensor
from torch.nn.functional import one_hot
from torch.nn.utils.rnn import pad_sequence

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.text_encoder import TextEncoder
from elmo_plugin.tasks.checks import check_choice
from elmo_plugin.tasks.tags import LABEL_SCHEMES, Tagger

# The score of impossible tags: far below any other, and finite, since sums of infinite ones give NaN.
_IMPOSSIBLE = -1e4


class PartialCRF(ConditionalRandomField):
    """AllenNLP's CRF, which can also learn from tags that are known in part (Tsuboi et al. 2008)."""

    def partial_log_likelihood(self, logits: Tensor, allowed: Tensor, mask: BoolTensor) -> Tensor:
        """
        Return the log-likelihood, summed over the batch, that the tags of a sentence are any of its `allowed`
        sequences, of those that the constraints of the CRF allow. `logits` and `allowed`, the tags that a
        token may have, are `(batch_size, timesteps, num_tags)`.
        """
        start, end = self.num_tags, self.num_tags + 1
        constraints = self._constraint_mask.bool()  # (num_tags + 2, num_tags + 2)
        sentences = torch.arange(mask.size(0), device=mask.device)
        allowed = allowed.clone()
        allowed[:, 0] &= constraints[start, :start]
        allowed[sentences, mask.sum(dim=1) - 1] &= constraints[:start, end]
        numerator = self._input_likelihood(
            logits.masked_fill(~allowed, _IMPOSSIBLE),
            self.transitions.masked_fill(~constraints[:start, :start], _IMPOSSIBLE),
            mask,
        )  # (batch_size,)
        # Over all sequences, as AllenNLP's: its constraints are for decoding.
        denominator = self._input_likelihood(logits, self.transitions, mask)
        return (numerator - denominator).sum()


@Model.register("elmo_ner")
class NerTagger(Tagger):
    """
    Text encoder, linear layer and linear-chain CRF (paper, section 4). The tags of a sentence are predicted
    jointly, and only sequences that the tag scheme allows are decoded.

    The loss is the negative log-likelihood of the gold tags, averaged over the sentences of the batch.
    AllenNLP's `crf_tagger` sums it over the batch. With the mean, gradient clipping and regularization have
    the same effect for every batch size. Divide settings from a `crf_tagger` config by its batch size to keep
    their effect.

    Of a sentence whose file does not mark all classes (the reader's `unmarked`), the likelihood is that of
    all sequences that agree with its tags, where a token with the tag `O` may be in an entity of an unmarked
    class. Predicted entities of these classes are left out of its metrics.

    # Parameters

    label_scheme : `str`, optional (default = `"BIOUL"`)
        `BIO` or `BIOUL`, the reader's `label_scheme`.
    dropout : `float`, optional (default = `0.0`)
        On the output of the text encoder, in addition to the text encoder's own.
    include_start_end_transitions : `bool`, optional (default = `True`)
        Whether the CRF learns a score for each tag at the start and at the end of a sentence. The configs of
        this project have `False`, like AllenNLP's experiment with ELMo; the default is that of its
        `crf_tagger`.
    """

    default_predictor = "elmo_ner"

    def __init__(
        self,
        vocab: Vocabulary,
        text_encoder: TextEncoder,
        label_scheme: str = "BIOUL",
        dropout: float = 0.0,
        include_start_end_transitions: bool = True,
        initializer: Optional[InitializerApplicator] = None,
        **kwargs: Any,
    ) -> None:
        check_choice("label_scheme", label_scheme, LABEL_SCHEMES)
        super().__init__(vocab, label_scheme, **kwargs)
        self.text_encoder = text_encoder
        self.dropout = torch.nn.Dropout(dropout)
        num_tags = len(self.tags)
        constraints = allowed_transitions(label_scheme, dict(enumerate(self.tags)))
        self.tag_projection = torch.nn.Linear(text_encoder.get_output_dim(), num_tags)
        self.crf = PartialCRF(num_tags, constraints, include_start_end_transitions)
        # The class of each tag; "" for O.
        self._outside = self.tags.index("O")
        self._classes = [tag.partition("-")[2] for tag in self.tags]
        self._span_f1 = SpanBasedF1Measure(vocab, "labels", label_encoding=label_scheme)
        if initializer is not None:
            initializer(self)

    def forward(
        self,
        tokens: TextFieldTensors,
        tags: Optional[Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, Any]:
        """Return `Tagger._output`, and the `loss` of gold `tags`, ids of shape `(batch_size, timesteps)`."""
        encoded = self.text_encoder(tokens)
        mask = encoded.mask  # (batch_size, timesteps)
        # (batch_size, timesteps, num_tags)
        logits = self.tag_projection(self.dropout(encoded.contextualized))
        output = self._output(logits, mask, metadata)
        if tags is not None:
            unmarked = self._unmarked_tags(metadata or [])
            # Both return the sum over the batch.
            if unmarked is None:
                log_likelihood = self.crf(logits, tags, mask)
            else:
                is_outside = (tags == self._outside).unsqueeze(-1)  # (batch_size, timesteps, 1)
                allowed = one_hot(tags, len(self.tags)).bool()
                allowed |= is_outside & unmarked.to(tags.device).unsqueeze(1)
                log_likelihood = self.crf.partial_log_likelihood(logits, allowed, mask)
            output["loss"] = -log_likelihood / logits.size(0)
            if "tags" in output:
                best = pad_sequence(list(map(torch.tensor, output["tags"])), batch_first=True)
                if unmarked is not None:
                    best = best.masked_fill(unmarked.gather(1, best), self._outside)
                # The metric expects scores, and takes the best itself.
                self._span_f1(one_hot(best, len(self.tags)), tags, mask)
        return output

    def _best_tags(self, logits: Tensor, mask: BoolTensor) -> List[List[int]]:
        return [tags for tags, _ in self.crf.viterbi_tags(logits, mask)]

    def _unmarked_tags(self, metadata: List[Dict[str, Any]]) -> Optional[Tensor]:
        """
        Return which tags are of classes that the file of a sentence does not mark, `(batch_size, num_tags)`;
        `None` if all are marked. Raise `ConfigurationError` for a class that the model does not learn.
        """
        unmarked = [sentence.get("unmarked", ()) for sentence in metadata]
        if not any(unmarked):
            return None
        for name in {name for names in unmarked for name in names}:
            if name not in self._classes:
                raise ConfigurationError(
                    f"dataset_reader.unmarked has the class '{name}', expected one that the model learns: "
                    f"{', '.join(sorted({*self._classes} - {''}))}. Correct it."
                )
        return torch.tensor([[name in names for name in self._classes] for names in unmarked])

    def _span_metrics(self, reset: bool) -> Dict[str, float]:
        # AllenNLP's names, in random order, are such as `f1-measure-overall` and `f1-measure-PER`.
        measured = sorted(self._span_f1.get_metric(reset).items())
        return {
            name.replace("f1-measure", "f1", 1).removesuffix("-overall"): value
            for name, value in measured
        }
