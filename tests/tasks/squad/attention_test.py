import torch
from allennlp.modules.seq2seq_encoders import GruSeq2SeqEncoder

from elmo_plugin.tasks.squad.attention import BidirectionalAttention, ResidualSelfAttention
from tests.closeness import assert_close


def tri_linear(attention, one, other):
    weights = attention.similarity._weight_vector.detach()
    return weights @ torch.cat([one, other, one * other])


def test_attention_is_what_a_slow_loop_computes():
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
        # A similarity sums three vectors of four; then vectors of words are summed.
        largest = max(expected.abs().max().item(), similarity.abs().max().item())
        assert_close(attended[0, index], expected, terms=3 * 4 + passage_length, scale=largest)


def build_block(dropout=0.0):
    torch.manual_seed(13)
    encoder = GruSeq2SeqEncoder(input_size=6, hidden_size=2, bidirectional=True)
    return ResidualSelfAttention(encoder, dropout)


def test_self_attention_is_what_a_slow_loop_computes():
    block = build_block()
    inputs = torch.randn(1, 5, 6)
    mask = (torch.arange(5) < 4).unsqueeze(0)  # the last is padding
    with torch.no_grad():
        outputs = block(inputs, mask)
        encoded = block.encoder(inputs, mask)[0]
        weights = block.similarity._weight_vector
        for index in range(4):
            others = [other for other in range(4) if other != index]
            scores = [
                weights @ torch.cat([encoded[index], encoded[o], encoded[index] * encoded[o]])
                for o in others
            ]
            attention = torch.stack([*scores, block.nothing_score]).softmax(dim=0)
            attended = sum(w * encoded[other] for w, other in zip(attention, others))
            merged = torch.cat([attended, encoded[index], attended * encoded[index]])
            expected = inputs[0, index] + block.projection(merged).relu()
            # A score and the projection sum three vectors of four; attention sums vectors of three words.
            assert_close(outputs[0, index], expected, terms=2 * 3 * 4 + 3)
