"""Attention between a passage and a question, both ways."""

import torch
from allennlp.modules.matrix_attention import LinearMatrixAttention
from allennlp.nn.util import masked_max, masked_softmax, weighted_sum
from torch import BoolTensor, Tensor


class BidirectionalAttention(torch.nn.Module):
    """
    BiDAF's attention (Seo et al. 2017, section 2): each passage token attends to the question, and the
    question as a whole to the passage. Similarity is tri-linear, `w . [p; q; p * q]`.

    # Parameters

    dim : `int`
        Width of the vectors of passage and question.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self._dim = dim
        # The products p * q are summed by a matrix product, and never stand in memory.
        self.similarity = LinearMatrixAttention(dim, dim, combination="x,y,x*y")

    def get_input_dim(self) -> int:
        return self._dim

    def get_output_dim(self) -> int:
        return 4 * self._dim

    def forward(
        self,
        passage: Tensor,
        question: Tensor,
        passage_mask: BoolTensor,
        question_mask: BoolTensor,
    ) -> Tensor:
        """
        # Parameters

        passage : `Tensor`
            `(batch_size, passage_length, dim)`
        question : `Tensor`
            `(batch_size, question_length, dim)`
        passage_mask : `BoolTensor`
            `(batch_size, passage_length)`
        question_mask : `BoolTensor`
            `(batch_size, question_length)`

        # Returns

        `Tensor` of shape `(batch_size, passage_length, 4 * dim)`: of each passage token its own vector, the
        question as it sees it, and the products of its own vector with that and with the passage as the
        question sees it.
        """
        # (batch_size, passage_length, question_length)
        similarity = self.similarity(passage, question)
        token_question_attention = masked_softmax(
            similarity, question_mask.unsqueeze(1), memory_efficient=True
        )
        # (batch_size, passage_length, dim)
        attended_question = weighted_sum(question, token_question_attention)

        # (batch_size, passage_length)
        highest_similarity = masked_max(similarity, question_mask.unsqueeze(1), dim=-1)
        question_passage_attention = masked_softmax(
            highest_similarity, passage_mask, memory_efficient=True
        )
        # (batch_size, 1, dim)
        attended_passage = weighted_sum(passage, question_passage_attention).unsqueeze(1)
        return torch.cat(
            [passage, attended_question, passage * attended_question, passage * attended_passage],
            dim=-1,
        )
