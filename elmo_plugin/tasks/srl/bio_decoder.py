"""The best sequence of tags that the BIO scheme allows."""

from typing import Dict, List

import torch
from allennlp.modules.conditional_random_field.conditional_random_field import allowed_transitions
from allennlp.nn.util import viterbi_decode
from torch import BoolTensor, Tensor


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
