import torch
from allennlp.modules.seq2seq_encoders import GruSeq2SeqEncoder
from numpy.testing import assert_allclose

from elmo_plugin.tasks.squad.residual_self_attention import ResidualSelfAttention


def build_block(dropout=0.0):
    torch.manual_seed(13)
    encoder = GruSeq2SeqEncoder(input_size=6, hidden_size=2, bidirectional=True)
    return ResidualSelfAttention(encoder, dropout)


def test_it_is_what_a_slow_loop_computes():
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
            # Sums of a dozen float32 numbers.
            assert_allclose(outputs[0, index].numpy(), expected.numpy(), atol=1e-6)


def test_a_passage_of_one_token_attends_to_nothing():
    block = build_block()
    inputs = torch.randn(1, 1, 6)
    mask = torch.ones(1, 1, dtype=torch.bool)
    encoded = block.encoder(inputs, mask)
    merged = torch.cat([torch.zeros_like(encoded), encoded, torch.zeros_like(encoded)], dim=-1)
    assert_allclose(
        block(inputs, mask).detach().numpy(),
        (inputs + block.projection(merged).relu()).detach().numpy(),
        atol=1e-6,
    )


def test_gradients_are_finite_and_reach_all_parameters():
    block = build_block(dropout=0.2)
    inputs = torch.randn(2, 5, 6, requires_grad=True)
    mask = torch.tensor([[True] * 5, [True] + [False] * 4])
    block(inputs, mask)[mask].sum().backward()
    for tensor in (inputs, *block.parameters()):
        assert torch.isfinite(tensor.grad).all()
    # A bias of all scores weighs against the score of nothing.
    assert all((parameter.grad != 0).any() for parameter in block.parameters())


def test_no_product_of_all_pairs_of_vectors_is_made():
    """Only the scores of pairs take memory that grows with the square of the length."""
    length, dim = 200, 4

    class LargestTensor(torch.utils._python_dispatch.TorchDispatchMode):
        num_elements = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, (tuple, list)) else [result]:
                if isinstance(tensor, torch.Tensor):
                    self.num_elements = max(self.num_elements, tensor.numel())
            return result

    block = build_block()
    inputs, mask = torch.randn(1, length, 6), torch.ones(1, length, dtype=torch.bool)
    with LargestTensor() as largest:
        block(inputs, mask).sum().backward()
    assert length**2 <= largest.num_elements < dim * length**2
