import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.sst import FourWayPooling, SstReader, read_phrases
from tests.closeness import assert_close
from tests.tasks.task_testing import FIXTURES, as_tensors, build_tiny, num_terms, read_tiny

TINY_FILE = FIXTURES / "sst" / "tiny" / "train.txt"

TREES = [
    "(3 (2 A) (3 (3 good) (3 good)))",
    "(2\t(2 Rain) (2 \t (2 falls)(2 .)))",
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
    assert read(SstReader(min_phrase_length=2), file_path) == [
        ("A good good", "positive"),
        ("good good", "positive"),
        ("Rain falls .", "neutral"),
        ("falls .", "neutral"),
        ("So awful", "very_negative"),
        ("No", "negative"),
    ]
    assert read(SstReader(min_phrase_length=4), file_path) == read(SstReader(), file_path)


def test_two_classes_leave_out_what_is_neutral_and_count_it(tmp_path, caplog):
    file_path = write(tmp_path, *TREES, "(3 good)")
    phrases = read(SstReader(granularity="2-class", min_phrase_length=1), file_path)
    # A repeated phrase is an instance each time.
    assert phrases == [
        ("A good good", "positive"),
        ("good good", "positive"),
        ("good", "positive"),
        ("good", "positive"),
        ("So awful", "negative"),
        ("awful", "negative"),
        ("good", "positive"),
    ]
    assert "7 neutral texts left out (4 records read)" in caplog.text


def test_another_granularity_is_refused():
    with pytest.raises(ConfigurationError, match="granularity is '3-class', expected one of 5-cl"):
        SstReader(granularity="3-class")


@pytest.mark.parametrize(
    "spelling, word",
    [
        ("-LRB-", "("),
        ("-RCB-", "}"),
        (r"writer\/director\/star", "writer/director/star"),
        ("8\u00a01\\/2", "8\u00a01/2"),
        (r"\*\*\*", "***"),
        ("``", '"'),
        ("''", '"'),
        ("`", "'"),
        # These are unchanged.
        ("'s", "'s"),
        ("--", "--"),
        ("L.\u3000A.", "L.\u3000A."),
        ("a\x0b\u2028b", "a\x0b\u2028b"),
    ],
)
def test_words_are_spelled_as_in_running_text(spelling, word):
    assert read_phrases(f"(3 (2 {spelling}) (2 .))")[0].words == [word, "."]


@pytest.mark.parametrize(
    "line, reason",
    [
        # Brackets
        ("(3 (2 A) (3 good)))", r"got '\)' at index 18"),
        ("(3 (2 A) (3 (3 good)", "got 'end-of-string' at index 20"),
        # Labels
        ("(3 (5 A) (3 good))", r"in the tree \(5 A\)"),
        ("(03 A)", r"in the tree \(03 A\)"),
        ("(3 ((2 A) (2 b)))", r"in the tree \( \(2 A\) \(2 b\)\)"),
        # Neither one word nor trees
        ("(3 (2 A) (2))", r"in the tree \(2 \)"),
        ("(3 New York)", r"in the tree \(3 New York\)"),
        ("(3 (2 New) York)", r"in the tree \(3 \(2 New\) York\)"),
        # Text outside of the tree
        ("(3 A) (2 b)", r"got '\(2' at index 6"),
    ],
)
def test_an_invalid_tree_is_refused_with_the_reason(line, reason):
    message = rf"^found '{re.escape(line)}' \(.*{reason}.*\), expected one tree on each line"
    with pytest.raises(ConfigurationError, match=message):
        read_phrases(line)


def test_only_the_start_of_a_long_line_is_repeated():
    with pytest.raises(ConfigurationError, match=r"^found '(good ){12}' "):
        read_phrases("good " * 10_000)


@given(st.text(alphabet="()03a \t"))
def test_any_line_is_a_tree_or_a_clear_error(line):
    try:
        phrases = read_phrases(line)
    except ConfigurationError as error:
        assert str(error).startswith("found ")
    else:
        assert all(phrase.words for phrase in phrases)


CLASSES = ["very_negative", "negative", "neutral", "positive", "very_positive"]


def test_the_scores_are_those_of_a_slow_model():
    instances, vocab = read_tiny("sst")
    model = build_tiny("sst", vocab).eval()
    # Attention sums products of two tokens, then tokens. Outputs of the LSTMs are at most 1.
    longest = max(len(instance["tokens"]) for instance in instances)
    terms = num_terms(model, longest) + 12 + longest
    batched = model(**as_tensors(instances, vocab))["logits"]
    for row, instance in enumerate(instances):
        tensors = as_tensors([instance], vocab)
        encoded = model.text_encoder(tensors["tokens"])
        [tokens], mask = encoded.contextualized, encoded.mask
        compared = []
        for token in tokens:
            weights = torch.stack([token @ other for other in tokens]).softmax(0)
            attended = sum(weight * other for weight, other in zip(weights, tokens, strict=True))
            compared.append(torch.cat([token, token - attended, token * attended]))
        [integrated] = model.integrator(torch.stack(compared).unsqueeze(0), mask)
        weights = model.pooling.token_score(integrated).softmax(0)
        pooled = [integrated.amax(0), integrated.amin(0), integrated.mean(0)]
        pooled.append((weights * integrated).sum(0))
        scores = model.label_projection(model.output_layer(torch.cat(pooled)))
        output = model(**tensors)
        assert_close(output["logits"][0], scores, terms=terms, scale=1.0)
        assert_close(batched[row], scores, terms=terms, scale=1.0)
        gold = CLASSES.index(instance["label"].label)
        assert_close(output["loss"], -scores.softmax(0)[gold].log(), terms=terms)


# Tokens of one sign, whose maximum or minimum a padding of zeros would replace; and scores far from the score
# of such a padding.
@pytest.mark.parametrize("shift", [40.0, -40.0])
@pytest.mark.parametrize("padding", [1e4, -1e4])
def test_pooling_ignores_padding(shift, padding):
    torch.manual_seed(13)
    pooling = FourWayPooling(5)
    torch.nn.init.ones_(pooling.token_score.weight)
    tokens = shift + torch.randn(2, 4, 5)
    padded = torch.cat([tokens, torch.full((2, 3, 5), padding)], dim=1)
    mask = (torch.arange(7) < 4).expand(2, 7)
    expected = pooling(tokens, mask[:, :4])
    # The score of a token sums five numbers; then four tokens are summed.
    scale = 5 * expected.abs().max().item()
    assert_close(pooling(padded, mask), expected, terms=5 + 4, scale=scale)


OVERFITTING = {"num_steps": 150, "lr": 0.01}


def test_classes_have_probabilities(predictor):
    output = predictor.predict("The plot is  so awful.")
    assert list(output) == ["label", "probabilities", "tokens", "sentence"]
    probabilities = output["probabilities"]
    assert list(probabilities) == CLASSES
    # The softmax and this sum, over five classes.
    assert_close(sum(probabilities.values()), 1.0, terms=2 * 5, dtype="float32")
    assert output["label"] == max(probabilities, key=probabilities.get) == "very_negative"
