import torch
from numpy.testing import assert_allclose

from elmo_plugin.tasks.squad.bidirectional_attention import BidirectionalAttention


def tri_linear(attention, one, other):
    weights = attention.similarity._weight_vector.detach()
    return weights @ torch.cat([one, other, one * other])


def test_it_is_what_a_slow_loop_computes():
    torch.manual_seed(13)
    attention = BidirectionalAttention(4)
    passage, question = torch.randn(1, 5, 4), torch.randn(1, 3, 4)
    passage_length, question_length = 4, 2  # the rest is padding
    passage_mask = (torch.arange(5) < passage_length).unsqueeze(0)
    question_mask = (torch.arange(3) < question_length).unsqueeze(0)
    with torch.no_grad():
        attended = attention(passage, question, passage_mask, question_mask)

    similarity = torch.tensor(
        [
            [tri_linear(attention, p, q) for q in question[0, :question_length]]
            for p in passage[0, :passage_length]
        ]
    )
    passage_weights = similarity.max(dim=1).values.softmax(dim=0)
    seen_passage = sum(w * p for w, p in zip(passage_weights, passage[0]))
    for index in range(passage_length):
        seen_question = sum(w * q for w, q in zip(similarity[index].softmax(dim=0), question[0]))
        own = passage[0, index]
        expected = torch.cat([own, seen_question, own * seen_question, own * seen_passage])
        # Sums of a dozen float32 numbers.
        assert_allclose(attended[0, index].numpy(), expected.numpy(), atol=1e-6)


def test_widths():
    attention = BidirectionalAttention(4)
    assert (attention.get_input_dim(), attention.get_output_dim()) == (4, 16)
