import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.data.fields import TextField
from allennlp.data.tokenizers import Token

from elmo_plugin.tasks.conll_file import SentencePlace
from elmo_plugin.tasks.tag_field import TagField

TOKENS = TextField([Token("It"), Token("rains")])


def vocabulary_of(*tags):
    return Vocabulary(tokens_to_add={"labels": list(tags)})


def test_tags_become_their_ids():
    field = TagField(["O", "U-PER"], TOKENS, "labels")
    field.index(vocabulary_of("U-PER", "O"))
    assert field.as_tensor(field.get_padding_lengths()).tolist() == [1, 0]


def test_an_unknown_tag_is_named_with_its_line():
    field = TagField(["O", "U-LOC"], TOKENS, "labels", SentencePlace("test.conll", 7))
    with pytest.raises(
        ConfigurationError, match=r"^test\.conll, line 8: found tag 'U-LOC'"
    ) as error:
        field.index(vocabulary_of("U-PER", "O"))
    assert "namespace 'labels' of the model's vocabulary: O, U-PER." in str(error.value)


def test_an_unknown_tag_without_a_file_is_named():
    with pytest.raises(ConfigurationError, match=r"^found tag 'O', expected one in .*: \(none\)\."):
        TagField(["O", "U-LOC"], TOKENS, "labels").index(Vocabulary())
