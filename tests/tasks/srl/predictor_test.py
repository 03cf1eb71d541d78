import pytest
from allennlp.data import DatasetReader
from allennlp.data.tokenizers import Token

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.srl import SrlPredictor
from tests.tasks.task_testing import build_tiny, experiment_of, overfit, read_tiny

OVERFITTING = {"num_steps": 150}
SAT = {
    "predicate": "sat",
    "index": 2,
    "tags": ["B-ARG0", "I-ARG0", "B-V", "O", "O", "O"],
    "arguments": [
        {"role": "ARG0", "start": 0, "end": 2, "text": "The cat"},
        {"role": "V", "start": 2, "end": 3, "text": "sat"},
    ],
    "description": "[ARG0: The cat] [V: sat] and slept .",
}
SLEPT = {
    "predicate": "slept",
    "index": 4,
    "tags": ["B-ARG0", "I-ARG0", "O", "O", "B-V", "O"],
    "arguments": [
        {"role": "ARG0", "start": 0, "end": 2, "text": "The cat"},
        {"role": "V", "start": 4, "end": 5, "text": "slept"},
    ],
    "description": "[ARG0: The cat] sat and [V: slept] .",
}
WORDS = ["The", "cat", "sat", "and", "slept", "."]


def predict(predictor, predicates, **text):
    return predictor.predict_json({**text, "predicates": predicates})


def test_each_predicate_gets_its_roles(predictor):
    expected = {"words": WORDS, "predicates": [SAT, SLEPT]}
    assert predict(predictor, [2, 4], tokens=WORDS) == expected
    assert predictor.predict_json({"words": WORDS, "predicates": [2, 4], "id": 3}) == expected


def test_predicates_of_a_sentence_are_indices_of_its_tokens(predictor):
    sentence = "The cat  sat and slept."
    assert predict(predictor, [2], sentence=sentence) == {
        "words": WORDS,
        "predicates": [SAT],
        "sentence": sentence,
    }


def test_predicates_of_several_words_and_continued_arguments_are_described(predictor):
    words = ["She", "carried", "out", "the", "plan", "that", "Ann", "had", "made", "."]
    [carried] = predict(predictor, [1], tokens=words)["predicates"]
    assert carried["description"] == (
        "[ARG0: She] [V: carried out] [ARG1: the plan that Ann had made] ."
    )
    words = ["The", "plan", ",", "Ann", "said", ",", "was", "José", "'s", "."]
    [said] = predict(predictor, [4], tokens=words)["predicates"]
    assert (
        said["description"] == "[ARG1: The plan] , [ARG0: Ann] [V: said] , [C-ARG1: was José 's] ."
    )


def test_without_predicates_the_answer_is_empty(predictor):
    assert predict(predictor, [], tokens=WORDS) == {"words": WORDS, "predicates": []}
    assert predict(predictor, [], sentence="Hello!") == {
        "words": ["Hello", "!"],
        "predicates": [],
        "sentence": "Hello!",
    }


def test_a_model_with_a_finder_needs_no_predicates():
    instances, vocab = read_tiny("srl")
    model = build_tiny("srl", vocab, finder_dim=12)
    overfit(model, instances, **OVERFITTING)
    reader = DatasetReader.from_params(experiment_of("srl")["dataset_reader"])
    predictor = SrlPredictor(model.eval(), reader)
    expected = {"words": WORDS, "predicates": [SAT, SLEPT]}
    assert predictor.predict_tokens(WORDS) == expected
    assert predictor.predict_sentence("The cat sat and slept.")["predicates"] == [SAT, SLEPT]
    # What is given is not looked for.
    assert predict(predictor, [4], tokens=WORDS)["predicates"] == [SLEPT]
    assert predict(predictor, [], tokens=WORDS)["predicates"] == []
    with pytest.raises(ConfigurationError, match=r'as in \{"sentence": "The cat'):
        predictor.predict_sentence("")
    # In two passes, one to find and one to label, whatever the number of sentences.
    passes = []
    model.register_forward_hook(lambda *_: passes.append(None))
    given = {"tokens": WORDS, "predicates": [4]}
    answers = predictor.predict_batch_json([{"tokens": WORDS}, given, {"tokens": WORDS}, "{}"])
    assert answers[:3] == [expected, {"words": WORDS, "predicates": [SLEPT]}, expected]
    assert list(answers[3]) == ["error"]
    assert len(passes) == 2


def test_the_verbs_of_a_tagger_are_predicates(predictor):
    tags = ["DET", "NOUN", "VERB", "CCONJ", "AUX", "PUNCT"]
    tokens = [Token(word, pos_=tag) for word, tag in zip(WORDS, tags)]
    instances = predictor.instances_of_tokens(tokens, {"sentence": "The cat sat and slept."})
    found = [instance["metadata"].metadata["predicate_index"] for instance in instances]
    assert found == [2, 4]
