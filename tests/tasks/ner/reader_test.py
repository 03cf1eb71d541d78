import logging
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.ner import NerReader
from elmo_plugin.tasks.tags import tags_to_spans
from tests.tasks.span_strategies import sentences_with_spans, write_tags

FIXTURES = Path(__file__).parents[3] / "fixtures" / "ner"
TINY_FILE = FIXTURES / "tiny" / "train.conll"

SCHEMES = ["IOB1", "BIO", "BIOUL"]


def words_of(instance):
    return [token.text for token in instance["tokens"]]


def write(folder, *columns):
    """A file of one sentence, with the given tokens and tags."""
    file_path = Path(folder) / "data.conll"
    file_path.write_text("".join(f"{column} -X- O {tag}\n" for column, tag in columns))
    return file_path


def test_sentences_words_and_tags_are_read():
    instances = list(NerReader().read(TINY_FILE))
    assert [len(instance["tokens"]) for instance in instances] == [6, 4, 4, 8, 7, 6, 7, 1]
    assert words_of(instances[3]) == ["Peter", "flew", "from", "Paris", "to", "São", "Paulo", "."]
    assert list(instances[3]["tags"]) == ["U-PER", "O", "O", "U-LOC", "O", "B-LOC", "L-LOC", "O"]
    assert list(instances[4]["tags"]) == ["O", "U-LOC", "U-LOC", "O", "O", "O", "O"]
    assert instances[7]["metadata"].metadata == {"words": ["Rain"]}


@given(
    sentences=st.lists(sentences_with_spans(min_pieces=1), min_size=1, max_size=4),
    input_scheme=st.sampled_from(SCHEMES),
    is_given=st.booleans(),
    label_scheme=st.sampled_from(["BIO", "BIOUL"]),
    separator=st.sampled_from([" ", "\t", "  \t "]),
    divider=st.sampled_from(["\n", "\n\n \n", "-DOCSTART- -X- O O\n\n"]),
)
def test_spans_written_to_a_file_are_read_from_it(
    sentences, input_scheme, is_given, label_scheme, separator, divider
):
    blocks = []
    for num_tokens, spans in sentences:
        tags = write_tags(spans, num_tokens, input_scheme)
        rows = [(f"w{index}", "NN", "I-NP", tag) for index, tag in enumerate(tags)]
        blocks.append("".join(separator.join(row) + "\n" for row in rows))
    with TemporaryDirectory() as folder:
        file_path = Path(folder) / "data.conll"
        file_path.write_text(divider.join(blocks))
        scheme = input_scheme if is_given else None  # detected, if it is not given
        reader = NerReader(input_scheme=scheme, label_scheme=label_scheme)
        instances = list(reader.read(file_path))
    assert [
        (len(instance["tokens"]), tags_to_spans(instance["tags"].labels, label_scheme))
        for instance in instances
    ] == sentences


@pytest.mark.parametrize(
    "tags, message",
    [
        (["I-PER", "O"], "found tags in the IOB1 scheme"),
        (["B-PER", "O"], "found tags in the BIO scheme"),
        (["U-PER", "O"], "found tags in the BIOUL scheme"),
        (["O", "O"], "all tags are O, which is the same in all schemes"),
    ],
)
def test_the_scheme_that_was_found_is_logged(tmp_path, caplog, tags, message):
    caplog.set_level(logging.INFO)
    list(NerReader().read(write(tmp_path, *zip(["Mary", "ran"], tags))))
    assert f"data.conll: {message}" in caplog.text
    caplog.clear()
    scheme = "IOB1" if tags[0] == "O" else message.split()[-2]
    list(NerReader(input_scheme=scheme).read(write(tmp_path, *zip(["Mary", "ran"], tags))))
    assert "data.conll: " not in caplog.text


def test_tags_of_no_one_scheme_are_counted_and_the_odd_ones_named(tmp_path, caplog):
    file_path = tmp_path / "data.conll"
    file_path.write_text("Mary B-PER\n\nPaul B-PER\n\nRain O\n\nPeter I-PER\n")
    message = r"line 7: found tag 'I-PER' at the start of a sentence, impossible in the BIO scheme"
    with pytest.raises(ConfigurationError, match=message):
        list(NerReader().read(file_path))
    assert "of 3 sentences with tags 1 fit IOB1, 2 fit BIO, 0 fit BIOUL. Reading" in caplog.text
    assert len(list(NerReader(skip_invalid=True).read(file_path))) == 3


@pytest.mark.parametrize(
    "input_scheme, tags, fault, fitting",
    [
        ("IOB1", ["O", "B-PER"], "line 2: found tag 'B-PER' after 'O'", "BIO"),
        ("BIO", ["O", "I-PER"], "line 2: found tag 'I-PER' after 'O'", "IOB1"),
        ("BIO", ["I-PER", "O"], "line 1: found tag 'I-PER' at the start", "IOB1"),
        ("BIO", ["O", "U-PER"], "line 2: found tag 'U-PER'", "BIOUL"),
        ("BIOUL", ["O", "B-PER"], "line 2: found tag 'B-PER' at the end", "BIO"),
        ("BIOUL", ["B-PER", "O"], "line 2: found tag 'O' after 'B-PER'", "BIO"),
        ("IOB1", ["I-PER", "S-PER"], "line 2: found tag 'S-PER', impossible in the IOB1", None),
        ("IOB1", ["I-PER", "I_PER"], "line 2: found tag 'I_PER', impossible in the IOB1", None),
    ],
)
def test_the_error_for_another_scheme_names_the_right_one(
    tmp_path, input_scheme, tags, fault, fitting
):
    file_path = write(tmp_path, *zip(["Mary", "ran"], tags, strict=True))
    with pytest.raises(ConfigurationError, match=fault) as error:
        list(NerReader(input_scheme=input_scheme).read(file_path))
    advice = f'give the reader "input_scheme": "{fitting}"' if fitting else ". Correct the tag."
    assert advice in str(error.value)


def test_files_are_read_one_after_another_each_with_the_classes_that_it_does_not_mark(
    tmp_path, caplog
):
    paths = []
    for source, tag in (("wiki", "I-MISC"), ("web", "B-PER"), ("chat", "O")):
        (tmp_path / source).mkdir()
        paths.append(str(write(tmp_path / source, ("Mary", tag))))
    unmarked = {"web/*.conll": ["MISC"], "chat/*": ["LOC"], "data.conl": ["ORG"]}
    reader = NerReader(unmarked={**unmarked, "a*/data.conll": ["PER"], "chat/data.conll": ["ORG"]})
    with caplog.at_level(logging.INFO):
        instances = list(reader.read(paths))
    assert [list(instance["tags"]) for instance in instances] == [["U-MISC"], ["U-PER"], ["O"]]
    found = [instance["metadata"].metadata.get("unmarked") for instance in instances]
    assert found == [None, ["MISC"], ["LOC", "ORG"]]
    assert f"{paths[2]}: does not mark LOC, ORG." in caplog.text
    with pytest.raises(
        ConfigurationError,
        match=r"wiki/data\.conll, line 1: found an entity of class MISC, which by",
    ):
        list(NerReader(unmarked={"*.conll": ["MISC"]}).read(paths))
