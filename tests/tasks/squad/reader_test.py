import json
import re

import pytest
from allennlp.data.tokenizers import Token, Tokenizer, WhitespaceTokenizer

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.reading import RuleBasedTokenizer
from elmo_plugin.tasks.squad import SquadPredictor, SquadReader
from elmo_plugin.tasks.squad.reader import Answer, TokenizedPassage
from tests.tasks.task_testing import FIXTURES

TINY_FILE = FIXTURES / "squad" / "tiny" / "train.json"
PASSAGE = "It rained in Paris."
PARIS = {"text": "Paris", "answer_start": 13}


class LettersOnlyTokenizer(Tokenizer):
    def tokenize(self, text):
        return [Token(match[0], idx=match.start()) for match in re.finditer(r"\w+", text)]


def id_of(instance):
    return instance["metadata"]["id"]


def spans_of(instance):
    return list(map(tuple, instance["answer_spans"].tensor.tolist()))


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


def test_articles_of_different_files_are_different(tmp_path):
    files = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        files.append(write(tmp_path / name, question("a"), question("b")))
    articles = [instance["metadata"]["article"] for instance in read(files)]
    assert articles[0] == articles[1] != articles[2] == articles[3]


def test_the_id_of_a_question_can_be_a_number(tmp_path):
    assert [id_of(instance) for instance in read(write(tmp_path, question(7)))] == ["7"]


def test_questions_passages_and_answers_are_read():
    instances = read(TINY_FILE)
    assert [id_of(instance) for instance in instances] == (
        ["paris", "sun", "hours", "snow", "wrote", "work", "left", "year"]
    )
    assert [spans_of(instance) for instance in instances] == [
        [(3, 3)],
        [(8, 9), (7, 9)],
        [(15, 15)],
        [(0, 0)],
        [(0, 1)],
        [(7, 10), (8, 9)],
        [(21, 22)],
        [(24, 24)],
    ]
    wrote = instances[4]
    assert " ".join(token.text for token in wrote["question"]) == 'Who wrote " The Storm " ?'
    assert [token.text for token in wrote["passage"]][:4] == ["Mary", "Smith", "(", "born"]
    metadata = instances[1]["metadata"].metadata
    offsets = metadata.pop("token_offsets")
    assert metadata == {
        "id": "sun",
        "question": "Where did the sun shine?",
        "passage": "It rained in Paris on Monday. In São Paulo, the sun shone for 6½ hours.",
        "answers": ["São Paulo", "In São Paulo"],
        "article": f"{TINY_FILE}, data[0]",
    }
    words = [metadata["passage"][start:end] for start, end in offsets[7:11]]
    assert words == ["In", "São", "Paulo", ","]
    # Questions about a passage share its field.
    passages = [id(instance["passage"]) for instance in instances]
    assert [passages.index(passage) for passage in passages] == [0, 0, 0, 3, 4, 4, 4, 4]


def test_long_passages_are_cut_and_answers_beyond_left_out(caplog):
    instances = read(TINY_FILE, max_passage_tokens=10)
    assert [id_of(instance) for instance in instances] == ["paris", "sun", "snow", "wrote", "work"]
    assert [len(instance["passage"]) for instance in instances] == [10, 10, 2, 10, 10]
    assert spans_of(instances[-1]) == [(8, 9)]  # the other answer ends later
    assert (
        "3 questions with all answers beyond max_passage_tokens, 10 left out (8 records"
        in caplog.text
    )


@pytest.mark.parametrize(
    "tokenizer, message",
    [
        (LettersOnlyTokenizer(), r"\(id q1\): the tokenizer makes no token of the answer '\.'"),
        (WhitespaceTokenizer(), "WhitespaceTokenizer does not give the position of each token"),
    ],
)
def test_a_tokenizer_that_cannot_place_the_answer_is_refused(tmp_path, tokenizer, message):
    dot = question(answers=[{"text": ".", "answer_start": 18}])
    with pytest.raises(ConfigurationError, match=message):
        read(write(tmp_path, dot), tokenizer=tokenizer)


PLACE = r"data\.json, data\[0\], paragraphs\[0\], qas\[1\]"


def answer(text, start):
    return {"answers": [{"text": text, "answer_start": start}]}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"answers": []}, r"\(id q2\): found no answers, as in SQuAD 2.0, expected at least one"),
        ({"answers": "Paris"}, r"'answers' is \"Paris\" \(Input should be a valid list\), expected"),
        ({"answers": [PARIS, {"text": "Paris"}]}, r"'answers\[1\]\.answer_start' is missing"),
        (answer("Paris", "13"), r"'answers\[0\]\.answer_start' is \"13\" \(Input should be a valid int"),
        (answer(" ", 2), r"'answers\[0\]\.text' is \" \""),
        (answer("Paris", 12), r"' 12, where the passage of 19 .* has \" Pari\"; .* \(the text is at 13\)"),
        (answer("Lyon", 13), r"' 13, where the .* has \"Pari\"; .* the text starts\. Correct the file"),
        (answer(".", -1), r"' -1, where the passage of 19 characters has \"\""),
        ({"question": "\ud83d"}, r"'question' is \"\\ud83d\" \(Input should be a valid string"),
        ({"question": ...}, "'question' is missing, expected a question of SQuAD 1.1"),
        ({"id_": ...}, "'id' is missing"),
        (None, "found null .*, expected a question of SQuAD 1.1"),
    ],
)  # fmt: skip
def test_a_bad_question_is_named_and_can_be_left_out(tmp_path, caplog, changes, message):
    bad = None if changes is None else question(**{"id_": "q2", **changes})
    file_path = write(tmp_path, question(), bad, question("q3"))
    with pytest.raises(ConfigurationError, match=f"{PLACE}.*{message}"):
        read(file_path)
    assert [id_of(instance) for instance in read(file_path, skip_invalid=True)] == ["q1", "q3"]
    assert "1 invalid left out (3 records read)" in caplog.text


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
    answer = Answer(text=TEXT[start:end], answer_start=start)
    passage = TokenizedPassage.from_text(TEXT, RuleBasedTokenizer())
    assert passage.covering_tokens(answer) == tokens
    last_is_kept = tokens[1] < 4
    cut = TokenizedPassage.from_text(TEXT, RuleBasedTokenizer(), max_tokens=4)
    assert cut.covering_tokens(answer) == (tokens if last_is_kept else None)


@pytest.mark.parametrize(
    "content, message",
    [
        (
            {"data": [{"paragraphs": [{"context": " ", "qas": [question()]}]}]},
            r"'data\[0\]\.paragraphs\[0\]\.context' is \" \" .*, expected SQuAD 1\.1",
        ),
        ({"data": [{"title": "Rain"}]}, r"'data\[0\]\.paragraphs' is missing, expected SQuAD 1\.1"),
        (["rain"], r"data\.json: found \[\"rain\"\] \(Input should be .*\), expected SQuAD 1\.1"),
        (
            {"data": [{"paragraphs": []}]},
            r"data\.json: found no data, expected a file as SquadReader",
        ),
        (
            '{"data": [\n  {"paragraphs": [}]}',
            r"found no JSON in UTF-8 \(Expecting value: line 2 col",
        ),
        ("\udcff", r"found no JSON in UTF-8 \('utf-8' codec can't decode byte 0xff"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, content, message):
    text = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(ConfigurationError, match=message):
        read(write_text(tmp_path, "\ufeff" + text))


def test_a_number_of_tokens_is_positive():
    with pytest.raises(ConfigurationError, match="max_passage_tokens is -2, expected a positive"):
        SquadReader(max_passage_tokens=-2)


def test_an_answer_can_end_with_what_the_tokenizer_leaves_out():
    answer = Answer(text="Paris.", answer_start=13)
    for max_tokens, tokens in ((None, (3, 3)), (4, (3, 3)), (3, None)):
        passage = TokenizedPassage.from_text(PASSAGE, LettersOnlyTokenizer(), max_tokens)
        assert passage.covering_tokens(answer) == tokens


def test_an_answer_of_white_space_has_no_tokens():
    passage = TokenizedPassage.from_text("a \x1c b", RuleBasedTokenizer())
    assert passage.covering_tokens(Answer(text="\x1c", answer_start=2)) is None


# What is asserted holds for any weights.
OVERFITTING = {"num_steps": 1}


def test_an_answer_is_cut_from_the_passage(predictor):
    passage = "It rained in Paris on Monday. In São  Paulo, the sun shone for 6½ hours."
    output = predictor.predict_json({"passage": passage, "question": "Where did the sun shine?"})
    assert output["question"] == "Where did the sun shine?"
    answer = output["best_span_text"]
    assert answer == passage[output["start_char"] : output["end_char"]]
    assert answer.split() == output["passage_words"][output["start"] : output["end"]]
    assert 0 < output["probability"] <= 1
    other = SquadPredictor(
        predictor._model, predictor._dataset_reader, tokenizer=LettersOnlyTokenizer()
    )
    assert other.predict("Where?", PASSAGE)["passage_words"] == ["It", "rained", "in", "Paris"]
