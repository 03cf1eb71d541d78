import re
from typing import Any, Dict, List

import pytest
from allennlp.data import Vocabulary
from allennlp.data.tokenizers import Token, WhitespaceTokenizer

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.conll import SentencePlace
from elmo_plugin.tasks.coref import CoreferencePredictor, CoreferenceReader
from elmo_plugin.tasks.coref.reader import SentenceSplitter, read_mentions
from tests.tasks.task_testing import FIXTURES, as_tensors

TINY_FILE = FIXTURES / "coref" / "tiny" / "train.gold_conll"


def metadata_of(instance):
    return instance["metadata"].metadata


def texts_of(instance):
    """The clusters with words in place of numbers."""
    metadata = metadata_of(instance)
    return [
        [" ".join(metadata["words"][start:end]) for start, end in cluster]
        for cluster in metadata["clusters"]
    ]


def write(path, *columns, name="bc/a"):
    """A file with a document, of which a sentence is a list of (word, coreference)."""
    lines = [f"#begin document ({name}); part 000"]
    for sentence in columns:
        for index, (word, coreference) in enumerate(sentence):
            lines.append(f"{name} 0 {index} {word} XX * - - - - * {coreference}")
        lines.append("")
    path.write_text("\n".join([*lines, "#end document", ""]))
    return path


def test_documents_sentences_and_clusters_are_read(caplog):
    instances = list(CoreferenceReader().read(TINY_FILE))
    left_out = "3 clusters of one mention left out (3 records read)"
    assert caplog.messages == [f"{TINY_FILE}: {left_out}"]
    lengths = [list(map(len, instance["sentences"])) for instance in instances]
    assert lengths == [[6, 6, 6, 2, 7], [3, 9, 4], [10, 6, 13, 3]]
    words = [token.text for token in instances[0]["sentences"][1]]
    assert words == ["He", "lives", "in", "São", "Paulo", "."]
    assert texts_of(instances[0]) == [
        ["Mary Smith", "her", "she", "Mary", "her"],
        ["her brother", "He", "her brother"],
        ["São Paulo", "the city", "it"],
    ]
    assert texts_of(instances[2]) == [
        ["A man of whom nobody knew", "whom", "He", "his"],
        ["The old tall grey sad house by the wide sea", "It"],
    ]
    assert metadata_of(instances[2])["name"] == "nw/tiny/00/tiny_0002, part 000"


def test_tensors_have_mentions_speakers_and_genre():
    reader = CoreferenceReader()
    instances = list(reader.read(TINY_FILE))
    vocab = Vocabulary.from_instances(instances)
    tensors = as_tensors(instances[1:], vocab)
    # (batch_size, num_sentences, timesteps)
    assert tensors["sentences"]["tokens"]["tokens"].shape == (2, 4, 13)
    # Start, end and cluster; the king and Spain of `The King of Spain 's wife left him .`, and padding.
    assert tensors["mentions"][0].tolist() == (
        [[3, 7, 0], [10, 11, 0], [3, 9, 1], [12, 13, 1], [6, 7, 2], [14, 15, 2]]
    )
    # Bob says 12 tokens, then Ann 4; there are 32 of no known speaker in the other document.
    assert tensors["speakers"].tolist() == [[1] * 12 + [2] * 4 + [0] * 16, [0] * 32]
    genres = [vocab.get_token_from_index(genre, "genres") for genre in tensors["genre"].tolist()]
    assert genres == ["bc", "nw"]


def test_unknown_genres_are_allowed():
    vocab = Vocabulary.from_instances(CoreferenceReader().read(TINY_FILE))
    instances = [
        CoreferenceReader().text_to_instance([[Token("Rain")]], genre=genre)
        for genre in (None, "unheard of", "nw")
    ]
    for instance in instances:
        instance["genre"].index(vocab)
    ids = [int(instance["genre"].as_tensor({})) for instance in instances]
    assert ids[0] == ids[1] == vocab.get_token_index("@@UNKNOWN@@", "genres") != ids[2]


def test_entities_that_share_a_mention_are_merged_and_repeated_marks_count_once(tmp_path, caplog):
    file_path = write(
        tmp_path / "a.gold_conll",
        [("She", "(1)"), ("and", "-"), ("Mary", "(1)|(2)"), ("and", "-"), ("her", "(2)")],
        [("It", "(3)"), ("is", "-"), ("hers", "(2)"), ("it", "(1)|(3)"), ("I", "(1)|(1)")],
        name="bleak_house",
    )
    [instance] = CoreferenceReader().read(file_path)
    assert instance["genre"].label == "@@UNKNOWN@@"  # a name without a slash
    assert texts_of(instance) == [["She", "Mary", "her", "It", "hers", "it", "I"]]
    place = f"{file_path}, line %d, document bleak_house, part 000: "
    assert caplog.messages == [
        place % 4 + "'Mary' is marked as 1 and 2, merged",
        place % 11 + "'it' is marked as 1 and 2 and 3, merged",
    ]


def test_marks_of_speech_are_those_of_text(tmp_path):
    file_path = write(
        tmp_path / "a.gold_conll",
        [("Rain", "(1)"), ("fell", "-"), ("/.", "-")],
        [("Did", "-"), ("it", "(1)"), ("/?", "-")],
    )
    [instance] = CoreferenceReader().read(file_path)
    assert metadata_of(instance)["words"] == ["Rain", "fell", ".", "Did", "it", "?"]


PLACE = SentencePlace("data.gold_conll", 11, "bc/a")


@pytest.mark.parametrize(
    "column, mentions",
    [
        ("- -", []),
        ("(12) -", [(0, 1, "12")]),
        ("(12 - 12)", [(0, 3, "12")]),
        # As in the CoNLL-2012 description: several brackets of one token.
        ("(4 (12|(3)|4) 12)", [(0, 2, "4"), (1, 3, "12"), (1, 2, "3")]),
        # Nested, of one entity: the bracket that was opened last is closed first.
        ("(1 (1 1) 1)", [(0, 4, "1"), (1, 3, "1")]),
        ("(1|(1 1) 1)", [(0, 3, "1"), (0, 2, "1")]),
        ("(1 1)|(1 1)", [(0, 2, "1"), (1, 3, "1")]),
        # Crossing, of two entities.
        ("(1 (2 1) 2)", [(0, 3, "1"), (1, 4, "2")]),
        # In either order.
        ("(1 (2) (3)|1)", [(0, 3, "1"), (1, 2, "2"), (2, 3, "3")]),
    ],
)
def test_mentions_are_read(column, mentions):
    assert read_mentions(column.split(), PLACE) == mentions


@pytest.mark.parametrize(
    "column, message",
    [
        ("- 3)", r"12, .*found the closing bracket '3\)' without an opening one in the coref"),
        ("(3 4)", r"12, .*found the closing bracket '4\)' without an opening one"),
        ("(3 (3 3)", r"11, .*found the opening bracket '\(3' without a closing one"),
        ("- 3", "12, .*found '3' in the coreference column, the last, expected - or brackets"),
        ("- (3)|", r"12, .*found '\(3\)\|' in the coreference column"),
    ],
)
def test_brackets_that_do_not_match_are_named_with_line_and_document(column, message):
    with pytest.raises(ConfigurationError, match=f"data.gold_conll, line {message}") as error:
        read_mentions(column.split(), PLACE)
    assert ", document bc/a: " in str(error.value)


def test_a_file_without_mentions_is_refused(tmp_path):
    no_mentions = write(tmp_path / "srl.gold_conll", [("Rain", "-"), ("fell", "-")])
    with pytest.raises(ConfigurationError, match=r"srl\.gold_conll: found no mention in any doc"):
        list(CoreferenceReader().read(no_mentions))


# Two sentences of the training data, as they might be written.
DOCUMENT = "The  King of Spain's wife left him.\n\nShe loved Spain."
SENTENCES = [
    ["The", "King", "of", "Spain", "'s", "wife", "left", "him", "."],
    ["She", "loved", "Spain", "."],
]
CLUSTERS = [[[0, 4], [7, 8]], [[0, 6], [9, 10]], [[3, 4], [11, 12]]]
MARKED = "[2 [1 The King of [3 Spain]] 's wife] left [1 him] . [2 She] loved [3 Spain] ."


# What is asserted holds for any weights.
OVERFITTING = {"num_steps": 1}


def answer(predictor: CoreferencePredictor, inputs: Dict[str, Any]) -> Dict[str, Any]:
    """The answer if the model finds the gold clusters."""
    instances = predictor.instances_from_json(inputs)
    words = metadata_of(instances[0])["words"]
    assert words == [word for sentence in SENTENCES for word in sentence]
    answer = predictor._answer(instances, [{"words": words, "clusters": CLUSTERS}])
    assert (answer["words"], answer["clusters"], answer["marked"]) == (words, CLUSTERS, MARKED)
    return answer


def test_a_document_is_split_and_its_mentions_have_characters(predictor):
    output = answer(predictor, {"document": DOCUMENT})
    assert output["document"] == DOCUMENT
    kings_wife, *others = output["mentions"]
    place = {"start": 0, "end": 6, "start_char": 0, "end_char": 25}
    assert kings_wife == {"cluster": 2, "text": "The  King of Spain's wife", **place}
    texts = ["The  King of Spain", "Spain", "him", "She", "Spain"]
    assert [mention["text"] for mention in others] == texts
    for mention in others:
        assert DOCUMENT[mention["start_char"] : mention["end_char"]] == mention["text"]


def test_sentences_are_taken_as_they_are(predictor):
    output = answer(predictor, {"sentences": SENTENCES})
    assert output["mentions"][-1] == {"cluster": 3, "start": 11, "end": 12, "text": "Spain"}
    output = predictor.predict_json({"sentences": [["rain"]]})
    assert output == {"words": ["rain"], "clusters": [], "mentions": [], "marked": "rain"}
    [of_genre] = predictor.instances_from_json({"sentences": SENTENCES, "genre": "bc"})
    assert of_genre["genre"].label == "bc"


def test_sentences_end_at_marks_and_at_blank_lines():
    text = "CHAPTER I\n\n  Mr. Smith paid $3.50 (why?). Rain!\nIt\n \nfell  \n\n\n"
    found = [sentence.split() for _, sentence in SentenceSplitter().split(text)]
    smith = ["Mr.", "Smith", "paid", "$3.50", "(why?)."]
    assert found == [["CHAPTER", "I"], smith, ["Rain!"], ["It"], ["fell"]]
    for first_character, sentence in SentenceSplitter().split(text):
        assert text[first_character:].startswith(sentence)


class NumberTokenizer(WhitespaceTokenizer):
    """Writes digits as a word, at their place in the text."""

    def tokenize(self, text: str) -> List[Token]:
        tokens = [Token(m[0], idx=m.start(), idx_end=m.end()) for m in re.finditer(r"\S+", text)]
        return [
            Token("three", idx=token.idx, idx_end=token.idx_end) if token.text == "3" else token
            for token in tokens
        ]


def test_mentions_end_where_the_tokens_of_any_tokenizer_do(predictor):
    numbers = CoreferencePredictor(
        predictor._model, predictor._dataset_reader, tokenizer=NumberTokenizer()
    )
    [instance] = numbers.instances_from_json({"document": "Rain fell.\n\nThe 3 men slept ."})
    metadata = metadata_of(instance)
    assert metadata["words"][3:5] == ["three", "men"]
    assert metadata["character_offsets"][3] == (16, 17)
