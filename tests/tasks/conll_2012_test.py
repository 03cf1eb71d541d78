from pathlib import Path
from typing import List

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.tasks.conll_2012 import Conll2012Sentence, read_conll_2012


def row(index: int, word: str, *more: str) -> str:
    return "\t".join(["bc/x/1", "0", str(index), word, "NN", "*", "-", "-", "-", "Ann", "*", *more])


DOCUMENT = [
    "#begin document (bc/x/1); part 000",
    row(0, "Ann", "(ARG0*)", "*", "(1)"),
    row(1, "ran", "(V*)", "*", "-"),
    "",
    row(0, "8\u00a01/2", "-"),
    "",
    "#end document",
]


def write(path: Path, lines: List[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def sentences_of(path: Path) -> List[Conll2012Sentence]:
    return [sentence for document in read_conll_2012(path) for sentence in document.sentences()]


def test_documents_have_names_parts_and_sentences_with_columns(tmp_path: Path) -> None:
    second = ["#begin document (b); part 012", row(0, "Hm", "-"), "#end document"]
    path = write(tmp_path / "a.gold_conll", [*DOCUMENT, *second])
    documents = list(read_conll_2012(path))
    assert [(document.name, document.part) for document in documents] == [
        ("bc/x/1", "000"),
        ("b", "012"),
    ]
    assert documents[1].place == f"{path}, line 8, document b, part 012"
    first, number = documents[0].sentences()
    assert first.words == ["Ann", "ran"]
    assert first.arguments == [["(ARG0*)", "(V*)"], ["*", "*"]]
    assert first.coreference == ["(1)", "-"]
    assert first.speakers == ["Ann", "Ann"]
    assert first.place.of_token(1) == f"{path}, line 3"
    assert number.words == ["8\u00a01/2"] and number.arguments == []
    assert number.place.first_line == 5
    # The last sentence needs no blank line after it.
    assert documents[1].sentences()[0].words == ["Hm"]


def test_columns_may_be_set_apart_by_any_number_of_spaces(tmp_path: Path) -> None:
    lines = [line.replace("\t", "   ") for line in DOCUMENT]
    spaced = sentences_of(write(tmp_path / "spaced", lines))
    tabbed = sentences_of(write(tmp_path / "tabbed", DOCUMENT))
    assert [sentence[1:] for sentence in spaced] == [sentence[1:] for sentence in tabbed]


def test_a_folder_stands_for_the_files_below_it(tmp_path: Path) -> None:
    (tmp_path / "cnn").mkdir()
    write(tmp_path / "cnn" / "1.gold_conll", DOCUMENT)
    write(tmp_path / "a.v4_gold_conll", DOCUMENT)
    write(tmp_path / "a.auto_conll", ["something else"])
    paths = [Path(document.file_path).name for document in read_conll_2012(tmp_path)]
    assert paths == ["a.v4_gold_conll", "1.gold_conll"]


def test_a_bad_document_does_not_spoil_the_others(tmp_path: Path) -> None:
    unended = DOCUMENT[:-1]
    documents = list(read_conll_2012(write(tmp_path / "a", [*unended, *DOCUMENT])))
    assert len(documents) == 2
    with pytest.raises(
        ConfigurationError, match=r"line 1, document bc/x/1, .*found no end, expected"
    ):
        documents[0].sentences()
    assert len(documents[1].sentences()) == 2


@pytest.mark.parametrize(
    "lines, message",
    [
        (["Ann NNP"], r"line 1: found 'Ann NNP', expected '#begin document \(NAME\)"),
        ([*DOCUMENT, row(0, "x", "-")], "line 8: found 'bc/x/1"),
        ([""], "found no document, expected '#begin document"),
        ([DOCUMENT[0], "", DOCUMENT[-1]], "line 1, document bc/x/1, part 000: found no sentence"),
        ([*DOCUMENT[:2], row(1, "ran", "*", "-"), "#end document"], "line 3: found 13 columns"),
        ([DOCUMENT[0], "Ann NNP", "#end document"], r"found 2 columns .* expected at least 12"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_the_line(
    lines: List[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        sentences_of(write(tmp_path / "a.gold_conll", lines))
