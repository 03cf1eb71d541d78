import pytest
from allennlp.common.checks import ConfigurationError
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.tasks.conll_file import SentencePlace
from elmo_plugin.tasks.coref.mention_column import EntityMention, read_mentions

PLACE = SentencePlace("data.gold_conll", 11)


def read(column):
    return [tuple(mention) for mention in read_mentions(column.split(), PLACE, "bc/a")]


@pytest.mark.parametrize(
    "column, mentions",
    [
        ("- -", []),
        ("(12) -", [(0, 1, "12")]),
        ("(12 - 12)", [(0, 3, "12")]),
        # As in the CoNLL-2012 description: several brackets of one token.
        ("(4 (12|(3)|4) 12)", [(0, 2, "4"), (1, 3, "12"), (1, 2, "3")]),
        # Nested, of one entity: the bracket that was opened last is closed first.
        ("(1 (1 1) 1)", [(0, 4, "1"), (1, 3, "1")]),
        ("(1|(1 1) 1)", [(0, 3, "1"), (0, 2, "1")]),
        ("(1 1)|(1 1)", [(0, 2, "1"), (1, 3, "1")]),
        # Crossing, of two entities.
        ("(1 (2 1) 2)", [(0, 3, "1"), (1, 4, "2")]),
        # In either order.
        ("(1 (2) (3)|1)", [(0, 3, "1"), (1, 2, "2"), (2, 3, "3")]),
    ],
)
def test_mentions_are_read(column, mentions):
    assert read(column) == mentions


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(0, 9)), max_size=6, unique=True
    )
)
def test_mentions_of_different_entities_may_stand_in_any_way(triples):
    mentions = [
        EntityMention(start, start + width, f"{index}{entity}")
        for index, (start, width, entity) in enumerate(triples)
    ]
    column = [[] for _ in range(10)]
    for start, end, entity in mentions:
        if end - start == 1:
            column[start].append(f"({entity})")
        else:
            column[start].append(f"({entity}")
            column[end - 1].append(f"{entity})")
    entries = ["|".join(pieces) or "-" for pieces in column]
    assert sorted(read_mentions(entries, PLACE, "bc/a")) == sorted(mentions)


@pytest.mark.parametrize(
    "column, message",
    [
        (
            "- 3)",
            r"line 12, document bc/a: found the closing bracket '3\)', expected that a mention of 3 was",
        ),
        (
            "(3 4)",
            r"line 12, document bc/a: found the closing bracket '4\)', expected that a mention of 4",
        ),
        (
            "- (3 -",
            r"line 12, document bc/a: found the opening bracket '\(3' without a closing one",
        ),
        (
            "(3 (3 3)",
            r"line 11, document bc/a: found the opening bracket '\(3' without a closing one",
        ),
        (
            "- 3",
            "line 12, document bc/a: found '3' in the coreference column, expected - or brackets",
        ),
        ("- (A)", r"line 12, document bc/a: found '\(A\)' in the coreference column"),
        ("- (3)|", r"line 12, document bc/a: found '\(3\)\|' in the coreference column"),
        ("_", "line 11, document bc/a: found '_' in the coreference column"),
    ],
)
def test_brackets_that_do_not_match_are_named_with_line_and_document(column, message):
    with pytest.raises(ConfigurationError, match=f"data.gold_conll, {message}"):
        read(column)
