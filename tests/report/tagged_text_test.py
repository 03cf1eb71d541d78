from pathlib import Path
from typing import Callable, List, Tuple

import pytest
from allennlp.common.checks import ConfigurationError

from elmo_plugin.report.tagged_text import FrequentTags, TaggedSentence, read_tagged, tags_of

FIXTURES = Path(__file__).parents[2] / "fixtures"
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(sentences: List[List[Tuple[str, str]]], name: str = "a.gold_conll") -> str:
        lines = ["#begin document (d); part 000"]
        for sentence in sentences:
            for number, (word, tag) in enumerate(sentence):
                lines.append(f"d 0 {number} {word} {tag} * - - - - * -")
            lines.append("")
        path = tmp_path / name
        path.write_text("\n".join([*lines, "#end document", ""]))
        return str(path)

    return write


def test_words_have_the_tags_of_the_fifth_column(write: Write) -> None:
    first = write([[("the", "DT"), ("cat", "NN")], [("Run", "VB")]])
    second = write([[("no", "UH")]], "b.gold_conll")
    sentences = read_tagged([first, second])
    assert sentences == [
        TaggedSentence(["the", "cat"], ["DT", "NN"]),
        TaggedSentence(["Run"], ["VB"]),
        TaggedSentence(["no"], ["UH"]),
    ]
    assert tags_of(sentences).tolist() == ["DT", "NN", "VB", "UH"]


def test_a_column_that_is_not_filled_is_named(write: Write) -> None:
    path = write([[("the", "XX"), ("cat", "XX")]])
    message = r"a\.gold_conll: the fifth column holds nothing but XX, expected the parts of speech"
    with pytest.raises(ConfigurationError, match=message):
        read_tagged([path])


def test_a_file_of_other_columns_is_refused() -> None:
    path = str(FIXTURES / "ner" / "tiny" / "train.conll")
    with pytest.raises(ConfigurationError, match=r"train\.conll, line 1: .*#begin document"):
        read_tagged([path])


def test_a_file_with_too_few_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gold_conll"
    path.write_text("#begin document (d); part 000\nd 0 0 the\n\n#end document\n")
    with pytest.raises(ConfigurationError, match=r"line 2: found 4 columns .* part of speech"):
        read_tagged([str(path)])


class TestFrequentTags:
    TAGS = FrequentTags(
        [
            TaggedSentence(["run", "run", "a"], ["VB", "NN", "DT"]),
            TaggedSentence(["run", "can", "can"], ["VB", "NN", "MD"]),
        ]
    )

    def test_a_word_has_the_tag_that_it_has_most_often(self) -> None:
        assert self.TAGS.tag("run") == "VB"
        assert self.TAGS.tag("a") == "DT"

    def test_of_equally_frequent_tags_the_first_by_name_is_taken(self) -> None:
        assert self.TAGS.tag("can") == "MD"

    def test_a_word_that_is_not_there_has_the_most_frequent_tag(self) -> None:
        assert self.TAGS.tag("other") == "NN"  # as often as VB
        assert self.TAGS.knows("run") and not self.TAGS.knows("other")
