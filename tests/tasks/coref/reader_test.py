import pytest
from allennlp.data import Batch, Vocabulary
from allennlp.data.tokenizers import Token

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.conll import SentencePlace
from elmo_plugin.tasks.coref import CoreferenceReader
from elmo_plugin.tasks.coref.reader import read_mentions
from tests.tasks.task_testing import FIXTURES

TINY_FILE = FIXTURES / "coref" / "tiny" / "train.gold_conll"


def metadata_of(instance):
    return instance["metadata"].metadata


def texts_of(instance):
    """The clusters with words in place of numbers."""
    metadata = metadata_of(instance)
    return [
        [" ".join(metadata["words"][start:end]) for start, end in cluster]
        for cluster in metadata["clusters"]
    ]


def write(path, *columns, name="bc/a", speaker="-"):
    """A file with a document, of which a sentence is a list of (word, coreference)."""
    lines = [f"#begin document ({name}); part 000"]
    for sentence in columns:
        for index, (word, coreference) in enumerate(sentence):
            lines.append(f"{name} 0 {index} {word} XX * - - - {speaker} * {coreference}")
        lines.append("")
    path.write_text("\n".join([*lines, "#end document", ""]))
    return path


def test_documents_sentences_and_clusters_are_read():
    instances = list(CoreferenceReader().read(TINY_FILE))
    lengths = [metadata_of(instance)["sentence_lengths"] for instance in instances]
    assert lengths == [[6, 6, 6, 2, 7], [3, 9, 4], [10, 6, 13, 3]]
    words = [token.text for token in instances[0]["sentences"][1]]
    assert words == ["He", "lives", "in", "São", "Paulo", "."]
    assert texts_of(instances[0]) == [
        ["Mary Smith", "her", "she", "Mary", "her"],
        ["her brother", "He", "her brother"],
        ["São Paulo", "the city", "it"],
    ]
    assert texts_of(instances[2]) == [
        ["A man of whom nobody knew", "whom", "He", "his"],
        ["The old tall grey sad house by the wide sea", "It"],
    ]
    assert metadata_of(instances[2])["name"] == "nw/tiny/00/tiny_0002, part 000"


def test_tensors_have_mentions_speakers_and_genre():
    reader = CoreferenceReader()
    instances = list(reader.read(TINY_FILE))
    vocab = Vocabulary.from_instances(instances)
    batch = Batch(instances[1:])
    batch.index_instances(vocab)
    tensors = batch.as_tensor_dict()
    # (batch_size, num_sentences, timesteps)
    assert tensors["sentences"]["tokens"]["tokens"].shape == (2, 4, 13)
    # Start, end and cluster; the king and Spain of `The King of Spain 's wife left him .`, and padding.
    assert tensors["mentions"][0].tolist() == (
        [[3, 7, 0], [10, 11, 0], [3, 9, 1], [12, 13, 1], [6, 7, 2], [14, 15, 2]]
    )
    # Bob says 12 tokens, then Ann 4; there are 32 of no known speaker in the other document.
    assert tensors["speakers"].tolist() == [[1] * 12 + [2] * 4 + [0] * 16, [0] * 32]
    genres = [vocab.get_token_from_index(genre, "genres") for genre in tensors["genre"].tolist()]
    assert genres == ["bc", "nw"]


def test_unknown_genres_are_allowed():
    vocab = Vocabulary.from_instances(CoreferenceReader().read(TINY_FILE))
    instances = [
        CoreferenceReader().text_to_instance([[Token("Rain")]], genre=genre)
        for genre in (None, "unheard of", "nw")
    ]
    for instance in instances:
        instance["genre"].index(vocab)
    ids = [int(instance["genre"].as_tensor({})) for instance in instances]
    assert ids[0] == ids[1] == vocab.get_token_index("@@UNKNOWN@@", "genres") != ids[2]


def test_clusters_of_one_mention_are_left_out_and_counted(caplog):
    list(CoreferenceReader().read(TINY_FILE))
    reason = "clusters of one mention"
    assert caplog.messages == [f"{TINY_FILE}: left out: 3 {reason} (3 records read)"]


def test_entities_that_share_a_mention_are_merged_and_repeated_marks_count_once(tmp_path, caplog):
    file_path = write(
        tmp_path / "a.gold_conll",
        [("She", "(1)"), ("and", "-"), ("Mary", "(1)|(2)"), ("and", "-"), ("her", "(2)")],
        [
            ("It", "(3)"),
            ("is", "-"),
            ("hers", "(2)"),
            ("it", "(3)"),
            ("it", "(1)|(3)"),
            ("I", "(1)|(1)"),
        ],
        name="bleak_house",
    )
    [instance] = CoreferenceReader().read(file_path)
    assert instance["genre"].label == "@@UNKNOWN@@"  # a name without a slash
    assert texts_of(instance) == [["She", "Mary", "her", "It", "hers", "it", "it", "I"]]
    place = f"{file_path}, line %d, document bleak_house, part 000: "
    assert caplog.messages == [
        place % 4 + "'Mary' is marked as 1 and 2, merged",
        place % 12 + "'it' is marked as 1 and 2 and 3, merged",
    ]


@pytest.mark.parametrize(
    "sentences, message",
    [
        ([], "Found no sentence in document 'bc/a', expected at least one"),
        ([[Token("Rain")], []], "Found a sentence without tokens"),
    ],
)
def test_documents_and_sentences_without_tokens_are_refused(sentences, message):
    with pytest.raises(ConfigurationError, match=message):
        CoreferenceReader().text_to_instance(sentences, name="bc/a")


PLACE = SentencePlace("data.gold_conll", 11, "bc/a")


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
    assert read_mentions(column.split(), PLACE) == mentions


@pytest.mark.parametrize(
    "column, message",
    [
        ("- 3)", r"12, .*found the closing bracket '3\)', expected that a mention of 3 was"),
        ("(3 4)", r"12, .*found the closing bracket '4\)', expected that a mention of 4"),
        ("(3 (3 3)", r"11, .*found the opening bracket '\(3' without a closing one"),
        ("- 3", "12, .*found '3' in the coreference column, expected - or brackets"),
        ("- (3)|", r"12, .*found '\(3\)\|' in the coreference column"),
    ],
)
def test_brackets_that_do_not_match_are_named_with_line_and_document(column, message):
    with pytest.raises(ConfigurationError, match=f"data.gold_conll, line {message}") as error:
        read_mentions(column.split(), PLACE)
    assert ", document bc/a: " in str(error.value)


def test_a_file_without_mentions_is_refused(tmp_path):
    no_mentions = write(tmp_path / "srl.gold_conll", [("Rain", "-"), ("fell", "-")])
    with pytest.raises(ConfigurationError, match=r"srl\.gold_conll: found no mention in any doc"):
        list(CoreferenceReader().read(no_mentions))
