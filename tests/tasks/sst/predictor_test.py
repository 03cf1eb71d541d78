import pytest

OVERFITTING = {"num_steps": 150, "lr": 0.01}
CLASSES = ["very_negative", "negative", "neutral", "positive", "very_positive"]


def test_a_sentence_is_split_and_its_classes_have_probabilities(predictor):
    output = predictor.predict_sentence("The plot is  so awful.")
    assert list(output) == ["label", "probabilities", "tokens", "sentence"]
    assert output["label"] == "very_negative"
    assert output["tokens"] == ["The", "plot", "is", "so", "awful", "."]
    assert output["sentence"] == "The plot is  so awful."
    assert list(output["probabilities"]) == CLASSES
    assert sum(output["probabilities"].values()) == pytest.approx(1.0)
    assert max(output["probabilities"], key=output["probabilities"].get) == "very_negative"


def test_tokens_are_taken_as_they_are(predictor):
    tokens = ["Dull", "(", "writer/director", ")", "."]
    output = predictor.predict_tokens(tokens)
    assert list(output) == ["label", "probabilities", "tokens"]
    assert (output["label"], output["tokens"]) == ("negative", tokens)
    assert predictor.predict_json({"words": tokens, "id": 3}) == output
    assert predictor.predict_tokens(["-LRB-"])["tokens"] == ["-LRB-"]


def test_characters_that_the_treebank_escapes_are_known_in_plain_text(predictor):
    from_text = predictor.predict_sentence('"Río" is charming.')
    assert from_text["tokens"] == ['"', "Río", '"', "is", "charming", "."]
    assert from_text["label"] == "positive"
