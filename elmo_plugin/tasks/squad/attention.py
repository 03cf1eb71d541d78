"""Attention between a passage and a question, and of a passage to itself."""

import torch
from allennlp.modules import InputVariationalDropout, Seq2SeqEncoder
from allennlp.modules.matrix_attention import LinearMatrixAttention
from allennlp.nn.util import masked_max, masked_softmax, min_value_of_dtype, weighted_sum
from torch import BoolTensor, Tensor


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


class ResidualSelfAttention(torch.nn.Module):
    """
    Encoder, self-attention and a linear layer with ReLU, added to the input (Clark and Gardner 2018, section
    3.1): `x + relu(W [a; h; a * h])`, where `h` is the encoded input, and `a` the vector that a token attends
    to. Similarity is tri-linear. A token does not attend to itself. It can attend to nothing, with a learned
    score, as in the authors' code.

    # Parameters

    encoder : `Seq2SeqEncoder`
        Its input is as wide as the block's input and output.
    dropout : `float`, optional (default = `0.0`)
        Variational dropout on the input and the output of the encoder.
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
