from pathlib import Path

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, DatasetReader, Vocabulary
from allennlp.data.tokenizers import Token
from allennlp.models import Model
from allennlp.modules import FeedForward
from allennlp.modules.seq2seq_encoders import LstmSeq2SeqEncoder
from torch.testing import assert_close

from elmo_plugin.tasks.sst import BiattentiveClassifier, SstReader
from elmo_plugin.tasks.sst.model import FourWayPooling
from tests.tasks.task_testing import overfit

FIXTURES = Path(__file__).parents[3] / "fixtures"
TINY = FIXTURES / "sst" / "tiny"
EXPERIMENT = str(TINY / "experiment.jsonnet")
EXPERIMENT_WITH_ELMO = str(TINY / "experiment_elmo.jsonnet")
CLASSES = ["very_negative", "negative", "neutral", "positive", "very_positive"]


def read(experiment=EXPERIMENT):
    """The sentences of the tiny experiment, and their vocabulary."""
    reader = DatasetReader.from_params(Params.from_file(experiment)["validation_dataset_reader"])
    instances = list(reader.read(TINY / "train.txt"))
    return instances, Vocabulary.from_instances(instances)


def build_model(vocab, experiment=EXPERIMENT, overrides="{}", **model_options):
    """The model of the tiny experiment, without dropout."""
    torch.manual_seed(13)
    params = Params.from_file(experiment, params_overrides=overrides)["model"].as_dict()
    params["text_encoder"]["dropout"] = params["dropout"] = 0.0
    if params["text_encoder"].get("elmo"):
        params["text_encoder"]["elmo"]["dropout"] = 0.0
    return Model.from_params(Params({**params, **model_options}), vocab=vocab)


def as_tensors(instances, vocab):
    batch = Batch(instances)
    batch.index_instances(vocab)
    return batch.as_tensor_dict()


def vocabulary_of(*classes, namespace="labels"):
    return Vocabulary(tokens_to_add={"tokens": ["Rain"], namespace: list(classes)})


@pytest.mark.parametrize("experiment", [EXPERIMENT, EXPERIMENT_WITH_ELMO])
def test_the_sentences_can_be_learned_by_heart(experiment):
    instances, vocab = read(experiment)
    model = build_model(vocab, experiment)
    assert overfit(model, instances, num_steps=300, lr=0.01)[-1] < 0.1
    model.get_metrics(reset=True)
    model.eval()
    model(**as_tensors(instances, vocab))
    metrics = model.get_metrics()
    assert metrics["accuracy"] == 1.0
    assert all(metrics[f"_recall-{name}"] == 1.0 for name in CLASSES)


def test_gradients_reach_all_trainable_parameters():
    instances, vocab = read(EXPERIMENT_WITH_ELMO)
    model = build_model(vocab, EXPERIMENT_WITH_ELMO)
    model(**as_tensors(instances, vocab))["loss"].backward()
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert {"text_encoder.elmo.elmo.scalar_mix_1.gamma", "pooling.token_score.weight"} <= set(
        trainable
    )
    for name, parameter in trainable.items():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("experiment", [EXPERIMENT, EXPERIMENT_WITH_ELMO])
def test_padding_changes_nothing(experiment):
    instances, vocab = read(experiment)
    model = build_model(vocab, experiment)
    with torch.no_grad():
        model.pooling.token_score.weight.mul_(50)  # a model with strong opinions
        model.label_projection.weight.mul_(20)
    model.eval()
    batched = model(**as_tensors(instances, vocab))["logits"]
    alone = torch.cat([model(**as_tensors([i], vocab))["logits"] for i in instances])
    # Sums of some dozen float32 numbers.
    assert_close(batched, alone, rtol=1e-4, atol=1e-5)


def test_the_scores_are_those_of_a_slow_model():
    instances, vocab = read()
    model = build_model(vocab)
    model.eval()
    for instance in instances:
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
        # Sums of some dozen float32 numbers, in another order.
        assert_close(output["logits"][0], scores, rtol=1e-4, atol=1e-6)
        gold = CLASSES.index(instance["label"].label)
        assert_close(output["loss"], -scores.softmax(0)[gold].log(), rtol=1e-4, atol=1e-6)


def test_output_without_gold_labels_has_probabilities_but_no_loss():
    instances, vocab = read()
    tensors = as_tensors(instances, vocab)
    del tensors["label"]
    model = build_model(vocab)
    output = model(**tensors)
    assert set(output) == {"logits", "probabilities", "words"}
    assert_close(output["probabilities"].sum(dim=-1), torch.ones(len(instances)))
    assert output["words"][-1] == ["Brilliant"]
    assert model.get_metrics()["accuracy"] == 0.0
    readable = model.make_output_human_readable(output)
    assert "label" not in output
    best = output["probabilities"].argmax(dim=-1)
    assert readable["label"] == [CLASSES[class_id] for class_id in best]


def test_metrics_count_the_sentences_and_those_of_each_class():
    instances, vocab = read()
    model = build_model(vocab)
    with torch.no_grad():
        model.label_projection.weight.zero_()
        model.label_projection.bias.copy_(torch.eye(5)[CLASSES.index("negative")])
    model(**as_tensors(instances, vocab))
    metrics = model.get_metrics(reset=True)
    # 2 of the 8 sentences are negative.
    assert metrics["accuracy"] == metrics["_precision-negative"] == 2 / 8
    assert metrics["_recall-negative"] == 1.0
    assert metrics["_recall-neutral"] == 0.0
    assert model.get_metrics()["accuracy"] == 0.0


def test_verbose_metrics_shows_those_of_classes():
    instances, vocab = read()
    model = build_model(vocab, verbose_metrics=True)
    model(**as_tensors(instances, vocab))
    assert not any(name.startswith("_") for name in model.get_metrics())


def test_two_classes_make_a_model_of_two():
    reader = SstReader(granularity="2-class")
    instances = list(reader.read(TINY / "train.txt"))
    for instance in instances:
        reader.apply_token_indexers(instance)
    vocab = Vocabulary.from_instances(instances)
    output = build_model(vocab).forward_on_instances(instances[:1])[0]
    assert output["probabilities"].shape == (2,)


def test_dropout_is_on_the_pooled_sentence():
    instances, vocab = read()
    model = build_model(vocab, dropout=0.5)
    tensors = as_tensors(instances, vocab)
    assert not torch.equal(model(**tensors)["logits"], model(**tensors)["logits"])
    model.eval()
    assert torch.equal(model(**tensors)["logits"], model(**tensors)["logits"])


def test_initializer_reaches_the_parameters():
    zero = {"regexes": [["label_projection.weight", {"type": "constant", "val": 0.0}]]}
    model = build_model(vocabulary_of(*CLASSES), initializer=zero)
    assert (model.label_projection.weight == 0).all()


def test_default_predictor_is_the_tasks_own():
    assert build_model(vocabulary_of(*CLASSES)).default_predictor == "elmo_sst"


def test_parts_that_do_not_fit_are_refused():
    vocab = vocabulary_of(*CLASSES)
    text_encoder = build_model(vocab).text_encoder
    integrator = LstmSeq2SeqEncoder(input_size=36, hidden_size=4)
    with pytest.raises(ConfigurationError, match=r"three vectors of a token .* integrator input"):
        BiattentiveClassifier(
            *(vocab, text_encoder, LstmSeq2SeqEncoder(input_size=35, hidden_size=4)),
            FeedForward(16, 1, 4, torch.nn.ReLU()),
        )
    with pytest.raises(ConfigurationError, match=r"pooled sentence .* output layer input"):
        BiattentiveClassifier(
            vocab, text_encoder, integrator, FeedForward(15, 1, 4, torch.nn.ReLU())
        )


@pytest.mark.parametrize(
    "vocab, namespace, message",
    [
        (vocabulary_of(), "labels", "namespace 'labels' is empty, expected the labels"),
        (vocabulary_of(*CLASSES), "sst_labels", "namespace 'sst_labels' is empty"),
        (vocabulary_of(*CLASSES, namespace="mood"), "mood", "'mood' has an entry for padding"),
    ],
)
def test_a_vocabulary_without_classes_is_refused(vocab, namespace, message):
    with pytest.raises(ConfigurationError, match=message):
        build_model(vocab, label_namespace=namespace)


def test_gold_labels_that_the_model_was_not_built_for_are_refused():
    instances, vocab = read()
    model = build_model(vocab)
    tensors = as_tensors(instances, vocab)
    tensors["label"][0] = vocab.add_token_to_namespace("ecstatic", "labels")
    with pytest.raises(ConfigurationError, match="Found the gold label 'ecstatic', expected one"):
        model(**tensors)


def test_words_that_training_never_saw_are_classified():
    _, vocab = read()
    reader = SstReader()
    instance = reader.text_to_instance([Token("日本語")])
    reader.apply_token_indexers(instance)
    output = build_model(vocab).forward_on_instance(instance)
    assert output["label"] in CLASSES


def pool_slowly(pooling, tokens):
    """One sentence without padding, `(timesteps, input_dim)`."""
    weights = torch.softmax(pooling.token_score(tokens).squeeze(-1), dim=0)
    weighted = sum(weight * token for weight, token in zip(weights, tokens, strict=True))
    return torch.cat([tokens.amax(0), tokens.amin(0), tokens.mean(0), weighted])


@pytest.mark.parametrize("shift", [0.0, 40.0, -40.0])
@pytest.mark.parametrize("padding", [0.0, 1e4, -1e4])
def test_pooling_equals_that_of_each_sentence_alone(shift, padding):
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
    # Sums of a few float32 numbers up to 40.
    assert_close(pooling(tokens, mask), expected, rtol=1e-5, atol=1e-5)


def test_the_pooled_width_is_four_times_that_of_a_token():
    pooling = FourWayPooling(3)
    mask = torch.ones(2, 4, dtype=torch.bool)
    assert pooling(torch.randn(2, 4, 3), mask).shape == (2, pooling.get_output_dim()) == (2, 12)


def test_padding_has_no_gradient():
    tokens = torch.randn(1, 3, 4, requires_grad=True)
    FourWayPooling(4)(tokens, torch.tensor([[True, True, False]])).sum().backward()
    assert (tokens.grad[0, 2] == 0).all()
    assert (tokens.grad[0, :2] != 0).any(dim=-1).all()
