"""Label the arguments of a predicate."""

from typing import Any, Dict, List, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors, Vocabulary
from allennlp.models import Model
from allennlp.modules.conditional_random_field.conditional_random_field import allowed_transitions
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import sequence_cross_entropy_with_logits, viterbi_decode
from torch import BoolTensor, Tensor

from elmo_plugin.modules.text_encoder import TextEncoder
from elmo_plugin.tasks.srl.span_f1 import SrlSpanF1
from elmo_plugin.tasks.tags import check_gold_labels, check_tag_vocabulary


@Model.register("elmo_srl")
class SrlTagger(Model):
    """
    Text encoder that is told which word is the predicate, and a linear layer; at evaluation the best sequence
    of tags that is possible in BIO (paper, section 4; He et al. 2017, "Deep Semantic Role Labeling").

    The loss is the cross entropy of the gold tags, averaged over the tokens of a sentence and then over the
    sentences of a batch, as AllenNLP's `srl` has it.

    Registered as a `Model` with name `elmo_srl`.

    # Parameters

    vocab : `Vocabulary`
        Its `label_namespace` holds the tags.
    text_encoder : `TextEncoder`
        From tokens to contextual vectors, with ELMo where wanted. Its `feature_dim` is the width of the
        embedding that tells the predicate's word from the others.
    label_namespace : `str`, optional (default = `"labels"`)
        The reader's `label_namespace`.
    verbose_metrics : `bool`, optional (default = `False`)
        Show the metrics of each role in progress bars. They are measured in any case, see `get_metrics`.
    initializer : `InitializerApplicator`, optional
        Initial values of parameters; PyTorch's and AllenNLP's by default.

    # Raises

    `ConfigurationError` if the vocabulary has no tags, or tags that are not BIO; or if the text encoder's
    `feature_dim` is 0.
    """

    default_predictor = "elmo_srl"

    def __init__(
        self,
        vocab: Vocabulary,
        text_encoder: TextEncoder,
        label_namespace: str = "labels",
        verbose_metrics: bool = False,
        initializer: Optional[InitializerApplicator] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        tags = check_tag_vocabulary(vocab, label_namespace, "BIO")
        if text_encoder.feature_dim == 0:
            raise ConfigurationError(
                "text_encoder.feature_dim is 0, expected the width of the predicate indicator's embedding: "
                "without it the model does not know whose arguments to label. The paper has 100."
            )
        self.label_namespace = label_namespace
        self.text_encoder = text_encoder
        self.num_tags = len(tags)
        # Row 0: other words; row 1: the predicate's.
        self.predicate_embedding = torch.nn.Embedding(2, text_encoder.feature_dim)
        self.tag_projection = torch.nn.Linear(text_encoder.get_output_dim(), self.num_tags)
        self._decoder = BioDecoder(dict(enumerate(tags)))
        self._span_f1 = SrlSpanF1(tags)
        self._role_metric_prefix = "" if verbose_metrics else "_"
        if initializer is not None:
            initializer(self)

    def forward(
        self,
        tokens: TextFieldTensors,
        predicate_indicator: Tensor,
        tags: Optional[Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, Any]:
        """
        # Parameters

        tokens : `TextFieldTensors`
            The sentences, each once for each of its predicates.
        predicate_indicator : `LongTensor`
            `(batch_size, timesteps)`. 1 on the predicate's word, 0 on the others.
        tags : `LongTensor`, optional
            `(batch_size, timesteps)`. Gold tag ids.
        metadata : `List[Dict[str, Any]]`, optional
            Of each sentence, with its `words`; and `num_skipped_predicates`, where the reader gives it.

        # Returns

        `logits` `(batch_size, timesteps, num_tags)`; `mask` `(batch_size, timesteps)`; `loss`, if gold tags
        are given; `words`, if metadata is given. Not while training, when nobody needs them and decoding is
        slow: `tags`, for each sentence the list of the best tag ids.

        # Raises

        `ConfigurationError` if, not while training, a gold tag is none of those the model was built for.
        """
        features = self.predicate_embedding(predicate_indicator)  # (batch_size, timesteps, dim)
        encoded = self.text_encoder(tokens, features)
        mask = encoded.mask  # (batch_size, timesteps)
        logits = self.tag_projection(encoded.contextualized)  # (batch_size, timesteps, num_tags)
        output: Dict[str, Any] = {"logits": logits, "mask": mask}
        if metadata is not None:
            output["words"] = [sentence["words"] for sentence in metadata]
        if not self.training:
            output["tags"] = self._decoder.decode(logits, mask)
        if tags is not None:
            if not self.training:
                check_gold_labels(tags, self.num_tags, self.vocab, self.label_namespace)
                gold_tags = [row[: len(best)] for row, best in zip(tags.tolist(), output["tags"])]
                num_skipped = sum(
                    sentence.get("num_skipped_predicates", 0) for sentence in metadata or ()
                )
                self._span_f1(self._names(output["tags"]), self._names(gold_tags), num_skipped)
            output["loss"] = sequence_cross_entropy_with_logits(logits, tags, mask)
        return output

    def make_output_human_readable(self, output_dict: Dict[str, Any]) -> Dict[str, Any]:
        """The output of `forward` with tags in place of their ids; decoded here, if the model is training."""
        best_tags = output_dict.get("tags")
        if best_tags is None:
            best_tags = self._decoder.decode(output_dict["logits"], output_dict["mask"])
        return {**output_dict, "tags": self._names(best_tags)}

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Metrics of arguments since the last reset, counted as CoNLL-2005's scorer does, see `SrlSpanF1`.

        # Returns

        `precision`, `recall` and `f1` over all roles; and the same of each role with a gold or a predicted
        argument, such as `_f1-ARG0`, with `verbose_metrics` `f1-ARG0`. AllenNLP writes all of them to its
        metrics files, but leaves names with a leading underscore out of progress bars. Also, if there are
        any, `num_skipped_predicates`: those of the data that are not measured, since their argument columns
        could not be read. Nothing while training, when nothing is decoded.
        """
        if self.training:
            return {}
        measured = self._span_f1.get_metric(reset)
        return {
            f"{self._role_metric_prefix}{name}" if "-" in name else name: value
            for name, value in measured.items()
        }

    def _names(self, tag_ids: List[List[int]]) -> List[List[str]]:
        names = self.vocab.get_index_to_token_vocabulary(self.label_namespace)
        return [[names[tag_id] for tag_id in sentence] for sentence in tag_ids]


class BioDecoder:
    """
    The most probable tags under constraints: `I-X` is only possible after `B-X` or `I-X` (He et al. 2017,
    "Deep Semantic Role Labeling": the constraints of Viterbi decoding; there are no learned transitions).

    # Parameters

    tags : `Dict[int, str]`
        All tags by their ids, from 0 on.
    """

    def __init__(self, tags: Dict[int, str]) -> None:
        num_tags = len(tags)
        # AllenNLP's transitions have two more states, for start and end. Every tag may be the last.
        scores = torch.full((num_tags + 2, num_tags + 2), float("-inf"))
        for from_tag, to_tag in allowed_transitions("BIO", tags):
            scores[from_tag, to_tag] = 0.0
        # 0 where allowed, minus infinity where not. On the CPU, where AllenNLP's function decodes.
        self._transitions = scores[:num_tags, :num_tags]  # (num_tags, num_tags)
        self._starts = scores[num_tags, :num_tags]  # (num_tags,)

    def decode(self, logits: Tensor, mask: BoolTensor) -> List[List[int]]:
        """
        # Parameters

        logits : `Tensor`
            `(batch_size, timesteps, num_tags)`.
        mask : `BoolTensor`
            `(batch_size, timesteps)`. `True` on real tokens, which come first.

        # Returns

        For each sentence the ids of its tags, one per real token: the most probable of all allowed sequences.
        """
        # (batch_size, timesteps, num_tags)
        log_probabilities = torch.log_softmax(logits.detach().float(), dim=-1).cpu()
        lengths = mask.sum(dim=1).tolist()
        return [self._decode(scores[:length]) for scores, length in zip(log_probabilities, lengths)]

    def _decode(self, scores: Tensor) -> List[int]:
        best = scores.argmax(dim=-1)  # (length,)
        # The best tag of each token is the best sequence if it is allowed, as mostly it is. To find that out
        # takes a thirtieth of the time of AllenNLP's search.
        penalty = self._starts[best[0]] + self._transitions[best[:-1], best[1:]].sum()
        if penalty == 0:
            return best.tolist()
        # Not as `allowed_start_transitions`: with those AllenNLP adds 100,000 to every score, beside which
        # float32 cannot tell sequences apart.
        scores = torch.cat([scores[:1] + self._starts, scores[1:]])  # (length, num_tags)
        tag_ids, _ = viterbi_decode(scores, self._transitions)
        return [int(tag_id) for tag_id in tag_ids]
