import logging
import pickle
from pathlib import Path

import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Vocabulary
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import Token

from elmo_plugin.tasks.sst import SstReader

FIXTURES = Path(__file__).parents[3] / "fixtures"
TINY_FILE = FIXTURES / "sst" / "tiny" / "train.txt"

TREES = [
    "(3 (2 A) (3 (3 good) (2 film)))",
    "(2 (2 Rain) (2 (2 falls) (2 .)))",
    "(0 (2 So) (0 awful))",
]


def write(folder, *lines):
    file_path = Path(folder) / "trees.txt"
    file_path.write_text("\n".join(lines), encoding="utf-8")
    return file_path


def read(reader, file_path):
    """Words and label of each instance."""
    return [
        (" ".join(token.text for token in instance["tokens"]), instance["label"].label)
        for instance in reader.read(file_path)
    ]


def test_sentences_and_their_labels_are_read():
    assert read(SstReader(), TINY_FILE) == [
        ("A warm , funny film .", "very_positive"),
        ("The plot is so awful .", "very_negative"),
        ("It runs for 8\u00a01/2 hours .", "neutral"),
        ('" Río " is charming .', "positive"),
        ("Dull ( writer/director ) .", "negative"),
        ("Then the rain starts .", "neutral"),
        ("Not very good .", "negative"),
        ("Brilliant", "very_positive"),
    ]


def test_each_instance_has_its_words():
    instance = list(SstReader().read(TINY_FILE))[2]
    assert set(instance.fields) == {"tokens", "label", "metadata"}
    assert instance["metadata"].metadata == {
        "words": ["It", "runs", "for", "8\u00a01/2", "hours", "."]
    }


def test_with_subtrees_every_phrase_is_an_instance(tmp_path):
    assert read(SstReader(subtrees=True), write(tmp_path, *TREES)) == [
        ("A good film", "positive"),
        ("A", "neutral"),
        ("good film", "positive"),
        ("good", "positive"),
        ("film", "neutral"),
        ("Rain falls .", "neutral"),
        ("Rain", "neutral"),
        ("falls .", "neutral"),
        ("falls", "neutral"),
        (".", "neutral"),
        ("So awful", "very_negative"),
        ("So", "neutral"),
        ("awful", "very_negative"),
    ]


def test_short_phrases_can_be_left_out_but_sentences_stay(tmp_path):
    file_path = write(tmp_path, *TREES, "(1 No)")
    assert read(SstReader(subtrees=True, min_phrase_length=2), file_path) == [
        ("A good film", "positive"),
        ("good film", "positive"),
        ("Rain falls .", "neutral"),
        ("falls .", "neutral"),
        ("So awful", "very_negative"),
        ("No", "negative"),
    ]
    assert read(SstReader(subtrees=True, min_phrase_length=4), file_path) == read(
        SstReader(), file_path
    )


def test_a_phrase_that_is_found_twice_is_read_twice(tmp_path):
    tree = "(3 (3 (3 good) (3 good)) (3 good))"
    texts = [text for text, _ in read(SstReader(subtrees=True), write(tmp_path, tree, tree))]
    assert texts.count("good") == 6
    assert texts.count("good good") == 2


def test_two_classes_leave_out_what_is_neutral_and_count_it(tmp_path, caplog):
    file_path = write(tmp_path, *TREES)
    with caplog.at_level(logging.WARNING):
        sentences = read(SstReader(granularity="2-class"), file_path)
    assert sentences == [("A good film", "positive"), ("So awful", "negative")]
    assert "left out: 1 neutral sentences (3 units read)" in caplog.text
    with caplog.at_level(logging.WARNING):
        phrases = read(SstReader(granularity="2-class", subtrees=True), file_path)
    assert phrases == [
        ("A good film", "positive"),
        ("good film", "positive"),
        ("good", "positive"),
        ("So awful", "negative"),
        ("awful", "negative"),
    ]
    assert "left out: 8 neutral phrases (3 units read)" in caplog.text


def test_a_neutral_sentence_can_have_phrases_of_two_classes(tmp_path):
    file_path = write(tmp_path, "(2 (4 (3 Very) (4 good)) (2 (2 but) (1 long)))")
    assert read(SstReader(granularity="2-class", subtrees=True), file_path) == [
        ("Very good", "positive"),
        ("Very", "positive"),
        ("good", "positive"),
        ("long", "negative"),
    ]


@pytest.mark.parametrize(
    "granularity, classes",
    [
        ("5-class", ["very_negative", "negative", "neutral", "positive", "very_positive"]),
        ("2-class", ["negative", "positive"]),
    ],
)
def test_the_vocabulary_has_the_classes_from_negative_to_positive(tmp_path, granularity, classes):
    file_path = write(tmp_path, TREES[0], TREES[0], TREES[2])
    instances = list(SstReader(granularity=granularity).read(file_path))
    vocab = Vocabulary.from_instances(instances)
    assert list(vocab.get_token_to_index_vocabulary("labels")) == classes


def test_namespace_and_indexers_are_those_asked_for():
    reader = DatasetReader.from_params(
        Params(
            {
                "type": "elmo_sst",
                "token_indexers": {"words": {"type": "single_id", "namespace": "words"}},
                "label_namespace": "sentiment_labels",
                "max_instances": 3,
            }
        )
    )
    instances = list(reader.read(TINY_FILE))
    vocab = Vocabulary.from_instances(instances)
    assert len(instances) == 3
    assert vocab.get_vocab_size("words") > 2
    assert vocab.get_vocab_size("sentiment_labels") == 5


def test_workers_share_the_trees():
    reader = SstReader({"tokens": SingleIdTokenIndexer()}, subtrees=True)
    loader = MultiProcessDataLoader(
        reader, TINY_FILE, batch_size=2, num_workers=2, max_instances_in_memory=2, quiet=True
    )
    phrases = [
        " ".join(token.text for token in instance["tokens"]) for instance in loader.iter_instances()
    ]
    assert sorted(phrases) == sorted(text for text, _ in read(reader, TINY_FILE))


def test_instances_can_be_sent_to_other_processes():
    instance = next(iter(SstReader().read(TINY_FILE)))
    assert pickle.loads(pickle.dumps(instance))["label"].label == "very_positive"


def test_without_a_label_there_is_no_field_for_it():
    assert set(SstReader().text_to_instance([Token("Rain")]).fields) == {"tokens", "metadata"}


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\n\n \t\n"])
def test_line_ends_and_blank_lines_change_nothing(tmp_path, ending):
    file_path = tmp_path / "trees.txt"
    file_path.write_bytes("".join(tree + ending for tree in TREES).encode())
    assert read(SstReader(), file_path) == [
        ("A good film", "positive"),
        ("Rain falls .", "neutral"),
        ("So awful", "very_negative"),
    ]


@pytest.mark.parametrize(
    "line, message",
    [
        ("(3 (2 A) (3 good)", r"line 3, column 1: found '\(' without its '\)'"),
        ("(3 (2 A) (7 good))", r"line 3, column 11: found '7', expected a label from 0 to 4"),
        ("(3 (2 A) (3 good)) !", "line 3, column 20: found '!' after the tree"),
        ("(3)", r"line 3, column 3: found '\(3\)', an empty tree"),
    ],
)
def test_a_bad_tree_is_named_or_left_out(tmp_path, caplog, line, message):
    file_path = write(tmp_path, TREES[0], "", line, TREES[2])
    with pytest.raises(ConfigurationError, match=rf"trees\.txt, {message}"):
        list(SstReader().read(file_path))
    with caplog.at_level(logging.WARNING):
        sentences = read(SstReader(skip_invalid=True), file_path)
    assert [text for text, _ in sentences] == ["A good film", "So awful"]
    assert "trees.txt, line 3" in caplog.text
    assert "left out: 1 invalid (3 units read)" in caplog.text


@pytest.mark.parametrize("file", ["ner/tiny/train.conll", "ner/tiny/inputs.jsonl", "lm/vocab.txt"])
def test_a_file_of_another_task_is_refused(file):
    message = r"line 1, column 1: found '.*', expected a tree, .* Give a file of the Stanford Sent"
    with pytest.raises(ConfigurationError, match=message):
        list(SstReader().read(FIXTURES / file))
    with pytest.raises(ConfigurationError, match=r"nothing to learn from is left .* invalid"):
        list(SstReader(skip_invalid=True).read(FIXTURES / file))


def test_a_file_of_neutral_sentences_has_nothing_for_two_classes(tmp_path):
    with pytest.raises(ConfigurationError, match=r"is left of 1 read \(1 neutral sentences\)"):
        list(SstReader(granularity="2-class").read(write(tmp_path, TREES[1])))


def test_an_empty_a_missing_and_a_broken_file_are_refused(tmp_path):
    (tmp_path / "empty.txt").write_text(" \n\n")
    (tmp_path / "latin1.txt").write_bytes("(2 São)\n".encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"empty\.txt: .*expected one tree on each line"):
        list(SstReader().read(tmp_path / "empty.txt"))
    with pytest.raises(ConfigurationError, match=r"cannot find .*missing\.txt"):
        list(SstReader().read(tmp_path / "missing.txt"))
    with pytest.raises(ConfigurationError, match=r"latin1\.txt, line 1: .*expected UTF-8"):
        list(SstReader().read(tmp_path / "latin1.txt"))


def test_a_sentence_without_tokens_is_refused():
    with pytest.raises(ConfigurationError, match="without tokens, expected at least one"):
        SstReader().text_to_instance([])


@pytest.mark.parametrize("label", ["neutral", "4", "very_positive"])
def test_a_label_of_another_granularity_is_refused(label):
    reader = SstReader(granularity="2-class")
    message = f"found the label '{label}', expected one of: negative, positive"
    with pytest.raises(ConfigurationError, match=message):
        reader.text_to_instance([Token("Rain")], label)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"granularity": "3-class"}, "granularity is '3-class', expected one of: 5-class, 2-class"),
        ({"subtrees": True, "min_phrase_length": 0}, "min_phrase_length is 0, expected 1 or more"),
        ({"min_phrase_length": 4}, "min_phrase_length is 4, but subtrees is false"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        SstReader(**options)
