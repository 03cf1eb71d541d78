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

from elmo_plugin.modules.text_encoder import TextEncoder
from elmo_plugin.tasks.checks import check_choice
from elmo_plugin.tasks.tags import LABEL_SCHEMES, Tagger


@Model.register("elmo_ner")
class NerTagger(Tagger):
    """
    Text encoder, linear layer and linear-chain CRF (paper, section 4). The tags of a sentence are predicted
    jointly, and only sequences that the tag scheme allows are decoded.

    The loss is the negative log-likelihood of the gold tags, averaged over the sentences of the batch.
    AllenNLP's `crf_tagger` sums it over the batch. With the mean, gradient clipping and regularization have
    the same effect for every batch size. Divide settings from a `crf_tagger` config by its batch size to keep
    their effect.

    # Parameters

    label_scheme : `str`, optional (default = `"BIOUL"`)
        `BIO` or `BIOUL`, the reader's `label_scheme`.
    dropout : `float`, optional (default = `0.0`)
        On the output of the text encoder, in addition to the text encoder's own.
    include_start_end_transitions : `bool`, optional (default = `True`)
        Whether the CRF learns a score for each tag at the start and at the end of a sentence. The configs of
        this project have `False`, like AllenNLP's experiment with ELMo; the default is that of its
        `crf_tagger`.

    The other parameters are those of `Tagger`.
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
        super().__init__(vocab, **kwargs)
        check_choice("label_scheme", label_scheme, LABEL_SCHEMES)
        self._set_scheme(label_scheme)
        self.text_encoder = text_encoder
        self.dropout = torch.nn.Dropout(dropout)
        num_tags = len(self.tags)
        constraints = allowed_transitions(label_scheme, dict(enumerate(self.tags)))
        self.tag_projection = torch.nn.Linear(text_encoder.get_output_dim(), num_tags)
        self.crf = ConditionalRandomField(num_tags, constraints, include_start_end_transitions)
        self._span_f1 = SpanBasedF1Measure(
            vocab, tag_namespace=self.label_namespace, label_encoding=label_scheme
        )
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
        output = self._output(logits, mask, tags, metadata)
        if tags is not None:
            # AllenNLP's CRF returns the sum over the batch.
            output["loss"] = -self.crf(logits, tags, mask) / logits.size(0)
            if "tags" in output:
                best = pad_sequence(list(map(torch.tensor, output["tags"])), batch_first=True)
                # The metric expects scores, and takes the best itself.
                self._span_f1(one_hot(best, len(self.tags)), tags, mask)
        return output

    def _best_tags(self, logits: Tensor, mask: BoolTensor) -> List[List[int]]:
        return [tags for tags, _ in self.crf.viterbi_tags(logits, mask)]

    def _span_metrics(self, reset: bool) -> Dict[str, float]:
        # AllenNLP's names, in random order, are such as `f1-measure-overall` and `f1-measure-PER`.
        measured = sorted(self._span_f1.get_metric(reset).items())
        return {
            name.replace("f1-measure", "f1", 1).removesuffix("-overall"): value
            for name, value in measured
        }
