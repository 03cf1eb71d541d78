from pathlib import Path
from typing import List

import pytest

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.srl import SrlPredictor, SrlReader
from tests.tasks.task_testing import FIXTURES, build_tiny, overfit, read_tiny

TINY_FILE = FIXTURES / "srl" / "tiny" / "train.gold_conll"


def words_of(instance):
    return [token.text for token in instance["tokens"]]


def row(word: str, *arguments: str, lemma: str = "-") -> str:
    """A line of CoNLL-2012."""
    frameset = "-" if lemma == "-" else "01"
    columns = ["tale", "0", "0", word, "XX", "*", lemma, frameset, "-", "-", "*", *arguments, "-"]
    return "\t".join(columns)


def write(folder: Path, *lines: str) -> Path:
    """A file of one document, whose lines start on line 2."""
    path = folder / "data.gold_conll"
    content = "\n".join(["#begin document (tale); part 003", *lines, "", "#end document"]) + "\n"
    path.write_text(content, encoding="utf-8")
    return path


def sentence(*cells: str, predicate: int = 1) -> List[str]:
    """Words with one argument column, of which one is the predicate."""
    return [
        row(f"w{index}", cell, lemma="run" if index == predicate else "-")
        for index, cell in enumerate(cells)
    ]


def read(path: Path, **options):
    return list(SrlReader(**options).read(path))


def test_each_predicate_of_each_sentence_is_an_instance():
    instances = read(TINY_FILE)
    metadata = [instance["metadata"].metadata for instance in instances]
    predicates = ["sat", "slept", "carried", "made", "said", "was", "fell", "chase", "Look"]
    indices = [2, 4, 1, 8, 4, 6, 2, 1, 0]
    assert [m["words"][m["predicate_index"]] for m in metadata] == predicates
    assert [m["predicate_index"] for m in metadata] == indices
    assert [i["predicate_indicator"].labels.index(1) for i in instances] == indices
    assert all(sum(instance["predicate_indicator"].labels) == 1 for instance in instances)
    assert words_of(instances[0]) == words_of(instances[1]) == metadata[0]["words"]
    assert words_of(instances[0]) == ["The", "cat", "sat", "and", "slept", "."]
    assert list(instances[0]["tags"]) == ["B-ARG0", "I-ARG0", "B-V", "O", "O", "O"]
    assert list(instances[1]["tags"]) == ["B-ARG0", "I-ARG0", "O", "O", "B-V", "O"]


def test_predicates_of_several_words_continued_arguments_and_references_are_read():
    instances = read(TINY_FILE)
    _, _, carried, made, said, _, _, _, look = (" ".join(i["tags"].labels) for i in instances)
    assert carried == "B-ARG0 B-V I-V B-ARG1 I-ARG1 I-ARG1 I-ARG1 I-ARG1 I-ARG1 O"
    assert made == "O O O B-ARG1 I-ARG1 B-R-ARG1 B-ARG0 O B-V O"
    assert said == "B-ARG1 I-ARG1 O B-ARG0 B-V O B-C-ARG1 I-C-ARG1 I-C-ARG1 O"
    assert look == "B-V B-ARG1 B-C-V B-ARGM-TMP O"


def test_sentences_without_a_predicate_are_left_out_and_counted(tmp_path, caplog):
    # The columns of coreference, without arguments.
    path = write(tmp_path, row("Rain"), row("fell"), "", row("Hail"))
    message = r"no instance is left of 2 records read \(2 sentences without a predicate left out\)"
    with pytest.raises(ConfigurationError, match=message):
        read(path)
    assert "Hello" not in {word for instance in read(TINY_FILE) for word in words_of(instance)}
    assert "1 sentences without a predicate left out" in caplog.text


def test_the_predicate_is_the_first_word_with_a_lemma_in_its_span(tmp_path):
    lines = [row("run", "*", lemma="run"), row("fed", "(V*"), row("up", "*)", lemma="feed")]
    [instance] = read(write(tmp_path, *lines))
    assert instance["metadata"].metadata["predicate_index"] == 2
    assert list(instance["tags"]) == ["O", "B-V", "I-V"]


def test_a_predicate_without_a_v_is_left_out_and_counted(tmp_path, caplog):
    lines = [row("Run", "*", "(V*)", lemma="run"), row("!", "(ARG1*)", "*")]
    instances = read(write(tmp_path, *lines, "", *sentence("*", "(V*)")))
    assert [words_of(instance) for instance in instances] == [["Run", "!"], ["w0", "w1"]]
    assert "line 2, column 12, document tale, part 003: found no span (V*" in caplog.text
    assert "1 predicates without a V left out" in caplog.text


NESTED = "1 nested spans left out"


@pytest.mark.parametrize(
    "cells, predicate, tags, oddity",
    [
        (["(ARG1*", "(V*)", "*)"], 1, "O B-V O", NESTED),
        (["(V*)", "(ARG1*", "(ARG2*)", "*)"], 0, "B-V B-ARG1 I-ARG1 I-ARG1", NESTED),
        (["(V*)", "(ARG1(ARG2*)", "*)"], 0, "B-V B-ARG1 I-ARG1", NESTED),
        (["(V*)", "(ARG1*", "(ARG2*))"], 0, "B-V B-ARG1 I-ARG1", NESTED),
        (["(V*)", "(ARG0*)", "(V*)"], 2, "O B-ARG0 B-V", "1 further spans (V* left out"),
        (["(V*)", "(ARG0*)", "(V*)"], 0, "B-V B-ARG0 O", "1 further spans (V* left out"),
        (["*", "(V*", "*)"], 1, "O B-V I-V", "1 predicates without a lemma read"),
    ],
)
def test_odd_columns_are_read_and_counted(tmp_path, caplog, cells, predicate, tags, oddity):
    has_lemma = "lemma" not in oddity
    path = write(tmp_path, *sentence(*cells, predicate=predicate if has_lemma else -1))
    [instance] = read(path)
    assert instance["metadata"].metadata["predicate_index"] == predicate
    assert " ".join(instance["tags"].labels) == tags
    assert caplog.messages == [f"{path}: {oddity} (1 records read)"]


@pytest.mark.parametrize(
    "cells, predicates",
    [
        # Words with a lemma, and the columns. The second column has two spans V, then the first.
        ([("go", "(V*)", "(V*)"), ("and", "*", "*"), ("get", "*", "(V*)")], [0, 2]),
        ([("go", "(V*)", "(V*)"), ("and", "*", "*"), ("get", "(V*)", "*")], [2, 0]),
        ([("go", "(V*)", "(V*)"), ("and", "*", "*"), ("get", "(V*)", "(V*)")], [0, 2]),
        (
            [("a", "(V*)", "(V*)", "*"), ("b", "*", "(V*)", "(V*)"), ("c", "*", "*", "(V*)")],
            [0, 1, 2],
        ),
        # A long span V over the predicate of another column.
        ([("go", "(V*", "(V*)"), ("and", "*", "*"), ("get", "*)", "*")], [2, 0]),
    ],
)
def test_a_further_v_is_not_the_predicate_of_another_column(tmp_path, cells, predicates):
    lines = [row(*line, lemma="-" if line[0] == "and" else line[0]) for line in cells]
    instances = read(write(tmp_path, *lines))
    assert [one["metadata"].metadata["predicate_index"] for one in instances] == predicates
    for instance, predicate in zip(instances, predicates):
        assert instance["tags"].labels[predicate] in ("B-V", "I-V")


def test_predicates_are_marked_once_in_each_sentence(tmp_path):
    path = write(
        tmp_path,
        row("It", "(ARG0*)", "(ARG0*)"),
        row("ran", "(V*)", "*", lemma="run"),
        row("won", "*", "(V*)", lemma="win"),
        "",
        row("Hello"),
    )
    assert [one["predicates"].labels for one in read(path)] == [[0, 1, 1], [-1, -1, -1]]
    *_, last = read(path, with_all_sentences=True)
    assert words_of(last) == ["Hello"]
    assert last["predicates"].labels == last["predicate_indicator"].labels == [0]
    assert last["tags"].labels == ["O"]


@pytest.mark.parametrize(
    "lines, line, column, problem",
    [
        (sentence("(ARG0*", "(V*)"), 2, 12, r"found no end of the span \(ARG0\*, expected each"),
        (sentence("(ARG0(ARG1*)))", "(V*)"), 2, 12, r"found '\(ARG0\(ARG1\*\)\)\)' without a start"),
        (sentence("*)", "(V*)"), 2, 12, r"found '\*\)' without a start, expected each span as"),
        (sentence("*", "(V*)", "(ARG1*"), 4, 12, r"found no end of the span \(ARG1\*, expected each"),
        (sentence("(*)", "(V*)"), 2, 12, r"found '\(\*\)', expected each span as"),
        (sentence("-", "(V*)"), 2, 12, r"found '-', expected each span as"),
        ([row("Run", "(V*)", "(*", lemma="run")], 2, 13, r"found '\(\*', expected each span as"),
        ([row("Run", "(V*)", "(V*)", lemma="run")], 2, 12, "found a predicate with several columns"),
    ],
)  # fmt: skip
def test_an_invalid_line_is_named_with_its_column_and_document(
    tmp_path, lines, line, column, problem
):
    place = rf"data\.gold_conll, line {line}, column {column}, document tale, part 003: "
    with pytest.raises(ConfigurationError, match=place + problem):
        read(write(tmp_path, *lines))


OVERFITTING = {"num_steps": 150}
WORDS = ["The", "cat", "sat", "and", "slept", "."]


def described(index, description):
    """The answer for a predicate of `WORDS` whose subject is the cat."""
    tags = ["B-ARG0", "I-ARG0", "O", "O", "O", "O"]
    tags[index] = "B-V"
    return {
        "predicate": WORDS[index],
        "index": index,
        "tags": tags,
        "arguments": [
            {"role": "ARG0", "start": 0, "end": 2, "text": "The cat"},
            {"role": "V", "start": index, "end": index + 1, "text": WORDS[index]},
        ],
        "description": description,
    }


def placed(answer, *places):
    """An answer with the places of its arguments in the characters of a sentence."""
    arguments = [
        {**argument, "start_char": start, "end_char": end}
        for argument, (start, end) in zip(answer["arguments"], places)
    ]
    return {**answer, "arguments": arguments}


SAT = described(2, "[ARG0: The cat] [V: sat] and slept .")
SLEPT = described(4, "[ARG0: The cat] sat and [V: slept] .")


def predict(predictor, predicates, **text):
    return predictor.predict_json({**text, "predicates": predicates})


def test_each_predicate_gets_its_roles(predictor):
    assert predict(predictor, [2, 4], tokens=WORDS) == {"words": WORDS, "predicates": [SAT, SLEPT]}
    sentence = "The cat  sat and slept."
    given = {"words": WORDS, "sentence": sentence}
    answer = {**given, "predicates": [placed(SAT, (0, 7), (9, 12))]}
    assert predict(predictor, [2], sentence=sentence) == answer
    assert predict(predictor, [], sentence=sentence) == {**given, "predicates": []}


def test_predicates_of_several_words_and_continued_arguments_are_described(predictor):
    for sentence, index, description in (
        (
            "She carried out the plan that Ann had made .",
            *(1, "[ARG0: She] [V: carried out] [ARG1: the plan that Ann had made] ."),
        ),
        (
            "The plan , Ann said , was José 's .",
            *(4, "[ARG1: The plan] , [ARG0: Ann] [V: said] , [C-ARG1: was José 's] ."),
        ),
    ):
        [predicate] = predict(predictor, [index], tokens=sentence.split())["predicates"]
        assert predicate["description"] == description


def test_a_model_with_a_finder_needs_no_predicates():
    instances, vocab = read_tiny("srl")
    model = build_tiny("srl", vocab, finder_dim=12)
    overfit(model, instances, **OVERFITTING)
    predictor = SrlPredictor(model.eval(), SrlReader())
    expected = {"words": WORDS, "predicates": [SAT, SLEPT]}
    assert predictor.predict_tokens(WORDS) == expected
    in_text = [placed(SAT, (0, 7), (8, 11)), placed(SLEPT, (0, 7), (16, 21))]
    assert predictor.predict("The cat sat and slept.")["predicates"] == in_text
    # What is given is not looked for.
    assert predict(predictor, [4], tokens=WORDS)["predicates"] == [SLEPT]
    assert predict(predictor, [], tokens=WORDS)["predicates"] == []
    with pytest.raises(ConfigurationError, match=r'as in \{"sentence": "The cat'):
        predictor.predict("")
    # In two passes, one to find and one to label, whatever the number of sentences.
    passes = []
    model.register_forward_hook(lambda *_: passes.append(None))
    given = {"tokens": WORDS, "predicates": [4]}
    answers = predictor.predict_batch_json([{"tokens": WORDS}, given, {"tokens": WORDS}, "{}"])
    assert answers[:3] == [expected, {"words": WORDS, "predicates": [SLEPT]}, expected]
    assert list(answers[3]) == ["error"]
    assert len(passes) == 2
