import pytest
from allennlp.common.checks import ConfigurationError
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.tasks.sst.sentiment_tree import Phrase, SentimentTree

PLACE = "trees.txt, line 7"

LABELS = st.integers(0, 4)
# Any character that can stand in a word: white space too, but for that which divides words.
WORDS = st.text(
    st.characters(blacklist_characters="() \t\r\n\\`'", blacklist_categories=["Cs"]), min_size=1
).filter(lambda word: not word.startswith("-"))
TREES = st.recursive(
    st.tuples(LABELS, WORDS),
    lambda trees: st.tuples(LABELS, st.lists(trees, min_size=1, max_size=3)),
    max_leaves=12,
)


def write(tree, gap=" "):
    label, content = tree
    if isinstance(content, str):
        return f"({label}{gap}{content})"
    return f"({label}{gap}{gap.join(write(child, gap) for child in content)})"


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


def read(line):
    return SentimentTree.from_line(line, PLACE)


def test_words_and_phrases_are_read_with_the_sentence_first():
    assert read("(3 (2 A) (4 (3 good) (2 film)))") == SentimentTree(
        words=["A", "good", "film"],
        phrases=[
            Phrase(label=3, start=0, end=3),
            Phrase(label=2, start=0, end=1),
            Phrase(label=4, start=1, end=3),
            Phrase(label=3, start=1, end=2),
            Phrase(label=2, start=2, end=3),
        ],
    )


def test_a_word_alone_is_a_tree():
    assert read("(4 Brilliant)") == (["Brilliant"], [(4, 0, 1)])


@given(tree=TREES, gap=st.sampled_from([" ", "\t", "  \t"]))
def test_a_tree_that_is_written_is_read(tree, gap):
    words, phrases = read(write(tree, gap))
    assert words == words_of(tree)
    assert [(label, words[start:end]) for label, start, end in phrases] == list(phrases_of(tree))


def test_trees_are_as_deep_as_they_like():
    depth = 10_000
    tree = read("(2 (1 a) " * depth + "(3 b)" + ")" * depth)
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
    assert read(f"(3 (2 {spelling}) (2 .))").words == [word, "."]


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
        read(line)


def test_an_error_repeats_only_the_start_of_a_long_line():
    with pytest.raises(ConfigurationError, match=r"found 'good good .*\.\.\.', expected") as error:
        read("good " * 10_000)
    assert len(str(error.value)) < 300


@given(st.text(alphabet="()03a \t"))
def test_any_line_is_a_tree_or_a_clear_error(line):
    try:
        words, phrases = read(line)
    except ConfigurationError as error:
        assert str(error).startswith(PLACE)
    else:
        assert phrases[0][1:] == (0, len(words))
        assert all(start < end for _, start, end in phrases)
