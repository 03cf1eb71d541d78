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
        (
            {"subtrees": True, "min_phrase_length": 0},
            "min_phrase_length is 0, expected a number above 0",
        ),
        ({"min_phrase_length": 4}, "min_phrase_length is 4, but subtrees is false"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        SstReader(**options)


CLASSES = ("bad", "so_so", "good")


def field(label, place=None):
    return SentimentField(label, CLASSES, "labels", place)


def vocabulary_from(*labels):
    return Vocabulary.from_instances([Instance({"label": field(label)}) for label in labels])


@pytest.mark.parametrize("labels", [["good"], ["good", "good", "bad"], ["so_so", "good", "bad"]])
def test_the_vocabulary_always_has_all_classes_in_order(labels):
    vocab = vocabulary_from(*labels)
    assert vocab.get_index_to_token_vocabulary("labels") == {0: "bad", 1: "so_so", 2: "good"}


def test_a_label_that_the_model_does_not_know_is_refused():
    vocab = Vocabulary(tokens_to_add={"labels": ["bad", "good"]})
    message = (
        r"^a\.txt, line 3: found the label 'so_so', expected one in the namespace 'labels' of the "
        r"model's vocabulary: bad, good\. Give the reader the granularity"
    )
    with pytest.raises(ConfigurationError, match=message):
        field("so_so", "a.txt, line 3").index(vocab)


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
        # These are as they are.
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
    "line, column, found, expected",
    [
        # Brackets
        ("(3 (2 A) (3 (3 good)", 10, r"'\(' without its '\)'", "the whole tree on one line"),
        ("(3", 1, r"'\(' without its '\)'", "as many closing brackets"),
        ("(3 (2 A) (3 good)))", 19, r"'\)' after the tree", "one tree on the line"),
        (")", 1, r"'\)'", r"a tree, such as \(3"),
        # Labels
        ("(3 (5 A) (3 good))", 5, "'5'", r"a label from 0 to 4 after '\('"),
        ("(-1 A)", 2, "'-1'", "a label from 0 to 4"),
        ("(03 A)", 2, "'03'", "a label from 0 to 4"),
        ("(² A)", 2, "'²'", "a label from 0 to 4"),
        ("(S (NP (DT A)))", 2, "'S'", "a label from 0 to 4"),
        ("(3 ((2 A) (2 b)))", 5, r"'\('", "a label from 0 to 4"),
        ("(good)", 2, "'good'", "a label from 0 to 4"),
        # Empty trees
        ("()", 2, r"'\(\)', an empty tree", "a label from 0 to 4"),
        ("(3 (2 A) (2))", 12, r"'\(2\)', an empty tree", "a word or trees after the label"),
        ("(2 )", 4, r"'\(2\)', an empty tree", "a word or trees after the label"),
        ("", None, "no tree", r"one, such as \(3"),
        # Text where none can be
        ("(3 A) good", 7, "'good' after the tree", "one tree on the line"),
        ("(3 A) (2 b)", 7, r"'\(2 b\)' after the tree", "one tree on the line"),
        ("A (3 good)", 1, r"'A \(3 good\)'", r"a tree, such as \(3"),
        ("(3 New York)", 8, "'York' after the word 'New'", r"'\)' after the word"),
        ("(3 New (2 York))", 8, r"'\(' after the word 'New'", r"'\)' after the word"),
        ("(3 (2 A) good)", 10, "'good' after a tree", r"'\(' or '\)'"),
        # Other tasks
        ('{"sentence1": "A man"}', 1, '\'{"sentence1": "A man"}\'', "a tree, such as"),
        ("-DOCSTART- -X- O O", 1, "'-DOCSTART- -X- O O'", "a tree, such as"),
    ],
)
def test_what_is_no_tree_is_refused_with_its_column(line, column, found, expected):
    place = PLACE if column is None else f"{PLACE}, column {column}"
    message = rf"^{place}: found {found}, expected .*{expected}.* (Correct|Give) "
    with pytest.raises(ConfigurationError, match=message):
        read_tree(line)


def test_an_error_repeats_only_the_start_of_a_long_line():
    with pytest.raises(ConfigurationError, match=r"found 'good good .*\.\.\.', expected") as error:
        read_tree("good " * 10_000)
    assert len(str(error.value)) < 300


@given(st.text(alphabet="()03a \t"))
def test_any_line_is_a_tree_or_a_clear_error(line):
    try:
        words, phrases = read_tree(line)
    except ConfigurationError as error:
        assert str(error).startswith(PLACE)
    else:
        assert phrases[0][1:] == (0, len(words))
        assert all(start < end for _, start, end in phrases)
