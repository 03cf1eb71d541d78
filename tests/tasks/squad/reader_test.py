import json
import re
from pathlib import Path

import pytest
from allennlp.data.tokenizers import Token, Tokenizer, WhitespaceTokenizer

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.reading import RuleBasedTokenizer
from elmo_plugin.tasks.squad import SquadReader
from elmo_plugin.tasks.squad.reader import Answer, TokenizedPassage

FIXTURES = Path(__file__).parents[3] / "fixtures"
TINY_FILE = FIXTURES / "squad" / "tiny" / "train.json"
PASSAGE = "It rained in Paris."
PARIS = {"text": "Paris", "answer_start": 13}


class LettersOnlyTokenizer(Tokenizer):
    def tokenize(self, text):
        return [Token(match[0], idx=match.start()) for match in re.finditer(r"\w+", text)]


def id_of(instance):
    return instance["metadata"]["id"]


def span_of(instance):
    return instance["span_start"].sequence_index, instance["span_end"].sequence_index


def question(id_="q1", **changes):
    """A correct question with some keys changed; those that are `...` are left out."""
    record = {"id": id_, "question": "Where?", "answers": [PARIS], **changes}
    return {key: value for key, value in record.items() if value is not ...}


def write(folder, *questions, passage=PASSAGE):
    """A file with one paragraph."""
    paragraphs = [{"context": passage, "qas": list(questions)}]
    return write_text(folder, json.dumps({"data": [{"paragraphs": paragraphs}]}))


def write_text(folder, text):
    file_path = folder / "data.json"
    file_path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return file_path


def read(file_path, **options):
    return list(SquadReader(**options).read(file_path))


def test_questions_passages_and_answers_are_read():
    instances = read(TINY_FILE)
    assert [id_of(instance) for instance in instances] == (
        ["paris", "sun", "hours", "snow", "wrote", "work", "left", "year"]
    )
    assert [span_of(instance) for instance in instances] == (
        [(3, 3), (8, 9), (15, 15), (0, 0), (0, 1), (7, 10), (21, 22), (24, 24)]
    )
    wrote = instances[4]
    assert [token.text for token in wrote["question"]] == [
        "Who",
        "wrote",
        '"',
        "The",
        "Storm",
        '"',
        "?",
    ]
    assert [token.text for token in wrote["passage"]][:4] == ["Mary", "Smith", "(", "born"]


def test_metadata_has_what_answers_are_cut_from():
    metadata = read(TINY_FILE)[1]["metadata"].metadata
    offsets = metadata.pop("token_offsets")
    assert metadata == {
        "id": "sun",
        "question": "Where did the sun shine?",
        "passage": "It rained in Paris on Monday. In São Paulo, the sun shone for 6½ hours.",
        "answers": ["São Paulo", "In São Paulo"],
    }
    words = [metadata["passage"][start:end] for start, end in offsets[7:11]]
    assert words == ["In", "São", "Paulo", ","]


def test_questions_about_a_passage_share_its_field():
    instances = read(TINY_FILE)
    passages = [id(instance["passage"]) for instance in instances]
    assert [passages.index(passage) for passage in passages] == [0, 0, 0, 3, 4, 4, 4, 4]


def test_long_passages_are_cut_and_answers_beyond_left_out(caplog):
    instances = read(TINY_FILE, max_passage_tokens=10)
    assert [id_of(instance) for instance in instances] == ["paris", "sun", "snow", "wrote"]
    assert [len(instance["passage"]) for instance in instances] == [10, 10, 2, 10]
    assert (
        "left out: 4 questions with an answer beyond max_passage_tokens, 10 (8 records"
        in caplog.text
    )


def test_an_answer_of_which_no_token_is_made_is_named(tmp_path):
    dot = question(answers=[{"text": ".", "answer_start": 18}])
    tokenizer = LettersOnlyTokenizer()
    with pytest.raises(
        ConfigurationError, match=r"\(id q1\): the tokenizer makes no token of the answer '\.'"
    ):
        read(write(tmp_path, dot), tokenizer=tokenizer)


PLACE = r"data\.json, data\[0\], paragraphs\[0\], qas\[1\]"


def answer(text, start):
    return {"answers": [{"text": text, "answer_start": start}]}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"answers": []}, r"\(id q2\): found no answers, as in SQuAD 2.0, expected at least one"),
        ({"answers": ...}, r"\(id q2\): found no answers, .* \"require_answers\": false"),
        ({"answers": "Paris"}, r"'answers' is \"Paris\", expected a list"),
        ({"answers": ["Paris"]}, r"'answers\[0\]' is \"Paris\", expected an object"),
        ({"answers": [PARIS, {"text": "Paris"}]}, r"'answers\[1\]\.answer_start' is null"),
        (answer("Paris", "13"), r"answer_start' is \"13\", expected the number of a character"),
        (answer(" ", 2), r"'answers\[0\]\.text' is \" \""),
        (
            answer("Paris", 12),
            r"' 12, where the passage of 19 .* has \" Pari\"; .* \(the text is at 13\)",
        ),
        (
            answer("Lyon", 13),
            r"' 13, where the .* has \"Pari\"; .* the text starts\. Correct the file",
        ),
        (answer("Paris", 19), r"' 19, where the passage of 19 characters has \"\""),
        (answer(".", -1), r"' -1, where the passage of 19 characters has \"\""),
        ({"question": ""}, r"'question' is \"\", expected a text that is not empty"),
        ({"question": "\ud83d"}, r"'question' is \"\\ud83d\", .* is valid Unicode"),
        ({"question": ...}, "'question' is null, expected a text"),
        ({"id_": ...}, "'id' is null, expected a text"),
        (None, "found null, expected an object with a question"),
    ],
)
def test_a_bad_question_is_named_and_can_be_left_out(tmp_path, caplog, changes, message):
    bad = None if changes is None else question(**{"id_": "q2", **changes})
    file_path = write(tmp_path, question(), bad, question("q3"))
    with pytest.raises(ConfigurationError, match=f"{PLACE}.*{message}"):
        read(file_path)
    assert [id_of(instance) for instance in read(file_path, skip_invalid=True)] == ["q1", "q3"]
    assert "left out: 1 invalid (3 records read)" in caplog.text


def test_questions_to_predict_from_need_no_answers(tmp_path):
    file_path = write(tmp_path, question(answers=...), question("q2", answers=[]))
    instances = read(file_path, require_answers=False)
    assert [id_of(instance) for instance in instances] == ["q1", "q2"]
    assert all("span_start" not in instance for instance in instances)


TEXT = " It rained  in Paris. "
#       0123456789012345678901


@pytest.mark.parametrize(
    "start, end, tokens",
    [
        (15, 20, (3, 3)),
        (15, 21, (3, 4)),
        (12, 20, (2, 3)),
        (4, 20, (1, 3)),
        # White space around the tokens.
        (0, 4, (0, 0)),
        (10, 22, (2, 4)),
        # Inside of tokens.
        (16, 18, (3, 3)),
        (6, 13, (1, 2)),
    ],
)
def test_the_fewest_covering_tokens_are_found(start, end, tokens):
    answer = Answer(TEXT[start:end], start)
    passage = TokenizedPassage.from_text(TEXT, RuleBasedTokenizer())
    assert passage.covering_tokens(answer) == tokens
    last_is_kept = tokens[1] < 4
    cut = TokenizedPassage.from_text(TEXT, RuleBasedTokenizer(), max_tokens=4)
    assert cut.covering_tokens(answer) == (tokens if last_is_kept else None)


@pytest.mark.parametrize(
    "content, message",
    [
        *[
            (
                {"data": [{"paragraphs": [{"context": passage, "qas": [question()]}]}]},
                r"data\[0\].*qas\[0\] \(id q1\): the paragraph's 'context' is .*, expected",
            )
            for passage in ("", " \n", None, ["It", "rained"])
        ],
        (
            {"data": [{"title": "Rain"}]},
            r"data\[0\]: found {\"title\".*, expected an object with a list",
        ),
        ({"data": [["Rain"]]}, r"data\[0\]: found \[\"Rain\"\], .* a list at the key 'paragraphs'"),
        (
            {"data": [{"paragraphs": []}, {"paragraphs": [{"context": PASSAGE}]}]},
            r"data\[1\], paragraphs\[0\]: found {\"context\".*, expected .* key 'qas'",
        ),
        (
            '{"data": [\n  {"paragraphs": [}]}',
            r"found no JSON in UTF-8 \(Expecting value: line 2 column 19",
        ),
        ("", r"found no JSON in UTF-8 \(Expecting value"),
        ('{"a": 1}\n{"a": 2}\n', r"found no JSON in UTF-8 \(Extra data: line 2 column 1"),
        ("\udcff", r"found no JSON in UTF-8 \('utf-8' codec can't decode byte 0xff"),
        (
            ["rain"],
            r"data\.json: found \[\"rain\"\], expected an object with a list at the key 'data'",
        ),
        ({"data": {}}, r"data\.json: found {\"data\": {}}, expected an object with a list at"),
        ({"data": [{"paragraphs": []}]}, r"data\.json: found no question, expected SQuAD 1\.1"),
        ("[" * 100_000, r"found no JSON in UTF-8 \(more than 100 levels"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, content, message):
    text = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(ConfigurationError, match=message):
        read(write_text(tmp_path, "\ufeff" + text))


def test_tokenizers_must_know_the_characters_of_tokens(tmp_path):
    with pytest.raises(
        ConfigurationError, match=r"WhitespaceTokenizer does not give the position of .* 'It'"
    ):
        read(write(tmp_path, question()), tokenizer=WhitespaceTokenizer())
