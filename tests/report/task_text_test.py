import json
from pathlib import Path
from typing import Callable, Dict, List

import pytest

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report.perplexity import TEXT_KINDS, TaskText, TextFiles, write_task_text

Write = Callable[[str, str], str]

TREES = "(3 (2 A) (4 (3 -LRB-) (2 film)))\n(1 Bad)\n(1 Bad)\n"
PAIRS = [
    {"sentence1": "A man sleeps.", "sentence2": "He's outside.", "gold_label": "neutral"},
    {"sentence1": "A man sleeps.", "sentence2": "A man\n sleeps.", "gold_label": "-"},
]
CONLL_2012 = """#begin document (d); part 000
d 0 0 The DT * - - - - * -
d 0 1 cat NN * - - - - * -

d 0 0 Yes UH * - - - - * -

#end document
"""
CONLL_2003 = "-DOCSTART- -X- O O\n\nAda -X- O I-PER\nslept -X- O O\n\nYes -X- O O\n"
SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "It rained.  In Paris!",
                    "qas": [
                        {"id": "1", "question": "Did it?", "answers": []},
                        {"id": "2", "question": "Where?", "answers": []},
                    ],
                }
            ]
        }
    ]
}
# Of each kind: a file, and the text in it.
DATA: Dict[str, tuple] = {
    "lines": ("a  b\n\nc d\na b\n", ["a b", "c d"]),
    "trees": (TREES, ["A ( film", "Bad"]),
    "pairs": ("\n".join(map(json.dumps, PAIRS)), ["A man sleeps .", "He 's outside ."]),
    "conll2012": (CONLL_2012, ["The cat", "Yes"]),
    "conll2003": (CONLL_2003, ["Ada slept", "Yes"]),
    "squad-contexts": (json.dumps(SQUAD), ["It rained . In Paris !"]),
    "squad-questions": (json.dumps(SQUAD), ["Did it ?", "Where ?"]),
}


def text_files(kind: str, train: str, held_out: str, folder: Path) -> TextFiles:
    return write_task_text(TaskText("name", kind, train, held_out), folder)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: str) -> str:
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return str(path)

    return write


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_each_sentence_of_the_data_is_written_once(kind: str, write: Write, tmp_path: Path) -> None:
    content, expected = DATA[kind]
    path = write("data", content)
    files = text_files(kind, path, path, tmp_path / "texts")
    for text_file in (files.train, files.held_out):
        assert text_file.read_text(encoding="utf-8").splitlines() == expected
    num_words = sum(len(sentence.split()) for sentence in expected)
    assert (files.num_train_words, files.num_held_out_words) == (num_words, num_words)


def test_other_text_has_another_folder_and_the_same_text_the_same(
    write: Write, tmp_path: Path
) -> None:
    texts: List[tuple] = [("a b\n", "c\n"), ("a b\n", "c\n"), ("a b\n", "d\n"), ("a b\nc\n", "d\n")]
    folders = [
        text_files("lines", write("a", train), write("b", held_out), tmp_path / "texts").train
        for train, held_out in texts
    ]
    assert folders[0] == folders[1]
    assert len(set(folders)) == 3


def test_a_no_break_space_is_a_part_of_a_word(write: Write, tmp_path: Path) -> None:
    path = write("data", "(2 (2 8\u00a01\\/2) (2 stars))\n")
    files = text_files("trees", path, path, tmp_path / "texts")
    assert files.train.read_text(encoding="utf-8") == "8\u00a01/2 stars\n"
    assert files.num_train_words == 2


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_a_file_without_text_is_refused(kind: str, write: Write, tmp_path: Path) -> None:
    path = write("data", "\n\n")
    with pytest.raises(ConfigurationError, match="data"):
        text_files(kind, path, path, tmp_path / "texts")


@pytest.mark.parametrize(
    "kind, content, message",
    [
        ("snli", "", "found the kind 'snli', expected one of lines, tr"),
        ("conll2003", "-DOCSTART- -X- O O\n", "data"),
        ("pairs", '{"sentence1": "A"}\n', r"data, line 1: .*'sentence2'.*Correct the line"),
        ("trees", "a film\n", "data, line 1"),
    ],
)
def test_what_is_no_text_of_this_kind_is_refused(
    kind: str, content: str, message: str, write: Write, tmp_path: Path
) -> None:
    path = write("data", content)
    with pytest.raises(ConfigurationError, match=message):
        text_files(kind, path, path, tmp_path / "texts")
