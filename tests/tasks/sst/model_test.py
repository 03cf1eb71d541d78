import pytest
import torch
from allennlp.data import Vocabulary

from elmo_plugin.tasks.sst import SstReader
from elmo_plugin.tasks.sst.model import FourWayPooling
from tests.closeness import assert_close
from tests.tasks.task_testing import FIXTURES, as_tensors, build_tiny, num_terms, read_tiny

CLASSES = ["very_negative", "negative", "neutral", "positive", "very_positive"]


def test_the_scores_are_those_of_a_slow_model():
    instances, vocab = read_tiny("sst")
    model = build_tiny("sst", vocab).eval()
    # Attention sums products of two tokens, then tokens. Outputs of the LSTMs are at most 1.
    longest = max(len(instance["tokens"]) for instance in instances)
    terms = num_terms(model, longest) + 12 + longest
    batched = model(**as_tensors(instances, vocab))["logits"]
    for row, instance in enumerate(instances):
        tensors = as_tensors([instance], vocab)
        encoded = model.text_encoder(tensors["tokens"])
        [tokens], mask = encoded.contextualized, encoded.mask
        compared = []
        for token in tokens:
            weights = torch.stack([token @ other for other in tokens]).softmax(0)
            attended = sum(weight * other for weight, other in zip(weights, tokens, strict=True))
            compared.append(torch.cat([token, token - attended, token * attended]))
        [integrated] = model.integrator(torch.stack(compared).unsqueeze(0), mask)
        weights = model.pooling.token_score(integrated).softmax(0)
        pooled = [integrated.amax(0), integrated.amin(0), integrated.mean(0)]
        pooled.append((weights * integrated).sum(0))
        scores = model.label_projection(model.output_layer(torch.cat(pooled)))
        output = model(**tensors)
        assert_close(output["logits"][0], scores, terms=terms, scale=1.0)
        assert_close(batched[row], scores, terms=terms, scale=1.0)
        gold = CLASSES.index(instance["label"].label)
        assert_close(output["loss"], -scores.softmax(0)[gold].log(), terms=terms)


def test_two_classes_make_a_model_of_two():
    reader = SstReader(granularity="2-class")
    instances = list(reader.read(FIXTURES / "sst" / "tiny" / "train.txt"))
    for instance in instances:
        reader.apply_token_indexers(instance)
    vocab = Vocabulary.from_instances(instances)
    output = build_tiny("sst", vocab).forward_on_instances(instances[:1])[0]
    assert list(output["probabilities"]) == ["negative", "positive"]


def pool_slowly(pooling, tokens):
    """One sentence without padding, `(timesteps, input_dim)`."""
    weights = torch.softmax(pooling.token_score(tokens).squeeze(-1), dim=0)
    weighted = sum(weight * token for weight, token in zip(weights, tokens, strict=True))
    return torch.cat([tokens.amax(0), tokens.amin(0), tokens.mean(0), weighted])


@pytest.mark.parametrize("shift", [0.0, 40.0, -40.0])
@pytest.mark.parametrize("padding", [0.0, 1e4, -1e4])
def test_pooling_a_batch_equals_pooling_single_sentences(shift, padding):
    torch.manual_seed(13)
    pooling = FourWayPooling(5)
    # Tokens of one sign, whose maximum or minimum a padding of zeros would replace; and scores far from the
    # score of such a padding.
    torch.nn.init.ones_(pooling.token_score.weight)
    lengths = [4, 1, 7, 2]
    sentences = [shift + torch.randn(length, 5) for length in lengths]
    tokens = torch.full((4, 7, 5), padding)
    mask = torch.zeros(4, 7, dtype=torch.bool)
    for row, sentence in enumerate(sentences):
        tokens[row, : len(sentence)] = sentence
        mask[row, : len(sentence)] = True
    expected = torch.stack([pool_slowly(pooling, sentence) for sentence in sentences])
    # The score of a token sums five numbers; then up to seven tokens are summed.
    scale = 5 * expected.abs().max().item()
    assert_close(pooling(tokens, mask), expected, terms=5 + 7, scale=scale)
