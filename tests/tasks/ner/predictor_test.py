from allennlp.predictors import Predictor


def test_a_sentence_is_split_and_its_entities_have_characters(predictor):
    assert predictor.predict_sentence("Mary  Smith visited New York.") == {
        "words": ["Mary", "Smith", "visited", "New", "York", "."],
        "tags": ["B-PER", "L-PER", "O", "B-LOC", "L-LOC", "O"],
        "spans": [
            {
                "label": "PER",
                "start": 0,
                "end": 2,
                "text": "Mary  Smith",
                "start_char": 0,
                "end_char": 11,
            },
            {
                "label": "LOC",
                "start": 3,
                "end": 5,
                "text": "New York",
                "start_char": 20,
                "end_char": 28,
            },
        ],
        "tagged": "[PER Mary Smith] visited [LOC New York] .",
        "sentence": "Mary  Smith visited New York.",
    }


def test_tokens_are_taken_as_they_are(predictor):
    words = ["Her", "London", "Paris", "train", "was", "late", "."]
    expected = {
        "words": words,
        "tags": ["O", "U-LOC", "U-LOC", "O", "O", "O", "O"],
        "spans": [
            {"label": "LOC", "start": 1, "end": 2, "text": "London"},
            {"label": "LOC", "start": 2, "end": 3, "text": "Paris"},
        ],
        "tagged": "Her [LOC London] [LOC Paris] train was late .",
    }
    assert predictor.predict_tokens(words) == expected
    assert predictor.predict_json({"words": words, "id": 3}) == expected


def test_a_tokenizer_without_offsets_gives_spans_without_characters(archive):
    arguments = {"tokenizer": {"type": "whitespace"}}
    predictor = Predictor.from_archive(archive, extra_args=arguments)
    [span] = predictor.predict_sentence("Mary  Smith visited Rain")["spans"]
    assert span == {"label": "PER", "start": 0, "end": 2, "text": "Mary Smith"}
