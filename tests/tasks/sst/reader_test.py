import logging
from pathlib import Path

import pytest
from allennlp.data import Instance, Vocabulary
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.sst import SstReader
from elmo_plugin.tasks.sst.reader import Phrase, SentimentField, SentimentTree

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


def test_two_classes_leave_out_what_is_neutral_and_count_it(tmp_path, caplog):
    file_path = write(tmp_path, *TREES)
    with caplog.at_level(logging.WARNING):
        sentences = read(SstReader(granularity="2-class"), file_path)
    assert sentences == [("A good film", "positive"), ("So awful", "negative")]
    assert "left out: 1 neutral sentences (3 records read)" in caplog.text
    with caplog.at_level(logging.WARNING):
        phrases = read(SstReader(granularity="2-class", subtrees=True), file_path)
    assert phrases == [
        ("A good film", "positive"),
        ("good film", "positive"),
        ("good", "positive"),
        ("So awful", "negative"),
        ("awful", "negative"),
    ]
    assert "left out: 8 neutral phrases (3 records read)" in caplog.text


@pytest.mark.parametrize(
    "options, message",
    [
        ({"granularity": "3-class"}, "granularity is '3-class', expected one of: 5-class, 2-class"),
        ({"min_phrase_length": 4}, "min_phrase_length is 4, but subtrees is false"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        SstReader(**options)


@pytest.mark.parametrize("labels", [["good"], ["good", "good", "bad"], ["so_so", "good", "bad"]])
def test_the_vocabulary_always_has_all_classes_in_order(labels):
    fields = [SentimentField(label, ("bad", "so_so", "good")) for label in labels]
    vocab = Vocabulary.from_instances([Instance({"label": field}) for field in fields])
    assert vocab.get_index_to_token_vocabulary("labels") == {0: "bad", 1: "so_so", 2: "good"}


PLACE = "trees.txt, line 7"

LABELS = st.integers(0, 4)
# Any character that can be part of a word, including white space that does not separate words.
WORDS = st.text(
    st.characters(blacklist_characters="() \t\r\n\\`'", blacklist_categories=["Cs"]), min_size=1
).filter(lambda word: not word.startswith("-"))
RANDOM_TREES = st.recursive(
    st.tuples(LABELS, WORDS),
    lambda trees: st.tuples(LABELS, st.lists(trees, min_size=1, max_size=3)),
    max_leaves=12,
)


def write_tree(tree, gap=" "):
    label, content = tree
    if isinstance(content, str):
        return f"({label}{gap}{content})"
    return f"({label}{gap}{gap.join(write_tree(child, gap) for child in content)})"


def words_of(tree):
    _, content = tree
    if isinstance(content, str):
        return [content]
    return [word for child in content for word in words_of(child)]


def phrases_of(tree):
    """Label and words of each node, from the top."""
    label, content = tree
    yield label, words_of(tree)
    if not isinstance(content, str):
        for child in content:
            yield from phrases_of(child)


def read_tree(line):
    return SentimentTree.from_line(line, PLACE)


@given(tree=RANDOM_TREES, gap=st.sampled_from([" ", "\t", "  \t"]))
def test_a_tree_that_is_written_is_read(tree, gap):
    words, phrases = read_tree(write_tree(tree, gap))
    assert words == words_of(tree)
    assert [(label, words[start:end]) for label, start, end in phrases] == list(phrases_of(tree))


def test_trees_are_as_deep_as_they_like():
    depth = 10_000
    tree = read_tree("(2 (1 a) " * depth + "(3 b)" + ")" * depth)
    assert len(tree.words) == depth + 1
    assert tree.phrases[0] == Phrase(2, 0, depth + 1)


@pytest.mark.parametrize(
    "spelling, word",
    [
        ("-LRB-", "("),
        ("-RRB-", ")"),
        ("-LSB-", "["),
        ("-RCB-", "}"),
        (r"writer\/director\/star", "writer/director/star"),
        (r"\*\*\*", "***"),
        ("8\u00a01\\/2", "8\u00a01/2"),
        ("``", '"'),
        ("''", '"'),
        ("`", "'"),
        # These are unchanged.
        ("'", "'"),
        ("'s", "'s"),
        ("--", "--"),
        ("-lrb-", "-lrb-"),
        ("L.\u3000A.", "L.\u3000A."),
        ("3", "3"),
    ],
)
def test_words_are_spelled_as_in_running_text(spelling, word):
    assert read_tree(f"(3 (2 {spelling}) (2 .))").words == [word, "."]


@pytest.mark.parametrize(
    "line, column, found",
    [
        # Brackets
        ("(3 (2 A) (3 good)))", 19, r"\)"),
        (")", 1, r"\)"),
        # Labels
        ("(3 (5 A) (3 good))", 4, r"\(5 A\) \(3 good\)\)"),
        ("(-1 A)", 1, r"\(-1 A\)"),
        ("(03 A)", 1, r"\(03 A\)"),
        ("(² A)", 1, r"\(² A\)"),
        ("(3 ((2 A) (2 b)))", 4, r"\(\(2 A\) \(2 b\)\)\)"),
        ("(good)", 1, r"\(good\)"),
        # Empty trees
        ("()", 1, r"\(\)"),
        ("(3 (2 A) (2))", 10, r"\(2\)\)"),
        ("(2 )", 1, r"\(2 \)"),
        ("(3", 1, r"\(3"),
        # Text where none can be
        ("(3 A) good", 7, "good"),
        ("(3 A) (2 b)", 7, r"\(2 b\)"),
        ("A (3 good)", 1, r"A \(3 good\)"),
        ("(3 New York)", 1, r"\(3 New York\)"),
        ("(3 (2 A) good)", 10, r"good\)"),
        # Other tasks
        ('{"sentence1": "A man"}', 1, '{"sentence1": "A man"}'),
        ("-DOCSTART- -X- O O", 1, "-DOCSTART- -X- O O"),
    ],
)
def test_an_invalid_tree_is_refused_with_its_column(line, column, found):
    message = (
        rf"^{PLACE}, column {column}: found '{found}', expected one tree on each line, such as"
    )
    with pytest.raises(ConfigurationError, match=message):
        read_tree(line)


@pytest.mark.parametrize("line, count", [("(3 (2 A) (3 (3 good)", 2), ("", 0)])
def test_an_incomplete_tree_is_refused(line, count):
    with pytest.raises(ConfigurationError, match=rf"^{PLACE}: found {count} brackets without"):
        read_tree(line)


def test_an_error_repeats_only_the_start_of_a_long_line():
    with pytest.raises(ConfigurationError, match=r"found 'good good .*\.\.\.', expected") as error:
        read_tree("good " * 10_000)
    assert len(str(error.value)) < 400


@given(st.text(alphabet="()03a \t"))
def test_any_line_is_a_tree_or_a_clear_error(line):
    try:
        words, phrases = read_tree(line)
    except ConfigurationError as error:
        assert str(error).startswith(PLACE)
    else:
        assert phrases[0][1:] == (0, len(words))
        assert all(start < end for _, start, end in phrases)
