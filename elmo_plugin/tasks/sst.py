"""Sentiment: reader, model and predictor, all registered as `elmo_sst`."""

import math
from collections import Counter
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

import torch
from allennlp.common import Lazy
from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader, Instance, TextFieldTensors, Vocabulary
from allennlp.data.fields import Field, MetadataField, TextField
from allennlp.data.tokenizers import Token
from allennlp.models import Model
from allennlp.modules import FeedForward, Seq2SeqEncoder
from allennlp.modules.matrix_attention import DotProductMatrixAttention
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import masked_max, masked_mean
from allennlp.predictors import Predictor
from nltk.tree import Tree
from torch import BoolTensor, Tensor

from elmo_plugin.errors import ConfigurationError, check_choice
from elmo_plugin.files.text import FileName
from elmo_plugin.modules.text_encoder import TextEncoder, built
from elmo_plugin.tasks.models import Classifier, attend
from elmo_plugin.tasks.predicting import SentencePredictor
from elmo_plugin.tasks.reading import ClassField, TaskReader, checked_words, placed_lines

# The class of each label, by granularity; neutral is not one of 2 classes. No blanks, because classes are a
# part of the names of metrics.
_CLASS_OF: Dict[str, Tuple[Optional[str], ...]] = {
    "5-class": ("very_negative", "negative", "neutral", "positive", "very_positive"),
    "2-class": ("negative", "negative", None, "positive", "positive"),
}
# A label or a word. White space other than blanks and tabs, such as the no-break space in `8 1\/2`, is a part
# of the word.
_TOKEN = r"[^() \t]+"
_MAX_SHOWN = 60  # characters of an invalid line in an error
_EXAMPLE = "(3 (2 A) (4 (3 good) (2 film)))"
# The Penn Treebank's spellings of brackets and quotes. They are replaced, because the text of biLMs and
# predictors does not have them.
_PLAIN_SPELLINGS = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
    "`": "'",
}


class Phrase(NamedTuple):
    """A node of a tree: its label, 0 (very negative) to 4, and its words."""

    label: int
    words: List[str]


def read_phrases(line: str) -> List[Phrase]:
    """
    Read a tree, and return all its phrases, words among them, in the order of their opening brackets. The
    sentence itself is the first. `(LABEL WORD)` is a word and `(LABEL TREE TREE ...)` a phrase; both are
    trees. Words are without the spellings of the Penn Treebank: `(` for `-LRB-`, `/` for `\\/`, `"` for two
    single quotes.
    """
    try:
        tree = Tree.fromstring(
            line, node_pattern=_TOKEN, leaf_pattern=_TOKEN, read_leaf=_plain_spelling
        )
        return [Phrase(_label_of(node), node.leaves()) for node in tree.subtrees()]
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError(
            f"found '{line[:_MAX_SHOWN]}' ({reason}), expected one tree on each line, such as "
            f"{_EXAMPLE}: each opening bracket before a label from 0 to 4, and then a word or trees. Correct "
            "the line, or give a file of the Stanford Sentiment Treebank."
        ) from error


def _label_of(node: Tree) -> int:
    """Return the label of a node. Raise `ValueError` if it is another one, or without a word or trees."""
    is_word = [isinstance(child, str) for child in node]
    if node.label() not in set("01234") or not is_word or (any(is_word) and len(node) > 1):
        raise ValueError(f"in the tree {' '.join(str(node).split())[:_MAX_SHOWN]}")
    return int(node.label())


def _plain_spelling(word: str) -> str:
    return _PLAIN_SPELLINGS.get(word, word).replace("\\/", "/").replace("\\*", "*")


@DatasetReader.register("elmo_sst")
class SstReader(TaskReader):
    """
    Reads the trees of the Stanford Sentiment Treebank, one per line: `(3 (2 A) (4 (3 good) (2 film)))`.
    Labels are 0, very negative, to 4, very positive; see `read_phrases` for how words are spelled.

    A sentence is an instance with the fields `tokens`, `label` and `metadata` (`words`). A repeated phrase is
    an instance each time, as in AllenNLP's reader, so frequent phrases weigh more.

    The vocabulary always gets all classes of the granularity, from negative to positive.

    # Parameters

    granularity : `str`, optional (default = `"5-class"`)
        `5-class`: `very_negative`, `negative`, `neutral`, `positive`, `very_positive`. `2-class`: `negative`
        (0 and 1) and `positive` (3 and 4); neutral sentences and phrases are left out.
    min_phrase_length : `int`, optional
        Make an instance of every phrase of at least this number of words, too (paper: 4, as CoVe did). For
        training; evaluation uses sentences, the default.

    The other parameters are those of `TaskReader`, whose records are trees here.
    """

    def __init__(
        self,
        granularity: str = "5-class",
        min_phrase_length: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_choice("granularity", granularity, _CLASS_OF)
        self._class_of = _CLASS_OF[granularity]
        # From negative to positive.
        self._classes = list(dict.fromkeys(name for name in self._class_of if name is not None))
        self._min_phrase_length = math.inf if min_phrase_length is None else min_phrase_length

    def text_to_instance(self, tokens: List[Token], label: Optional[str] = None) -> Instance:
        """Make an instance of a sentence or a phrase. `label` is one of the granularity's classes."""
        fields: Dict[str, Field] = {
            "tokens": TextField(tokens),
            "metadata": MetadataField({"words": checked_words(tokens)}),
        }
        if label is not None:
            fields["label"] = ClassField(label, self._classes)
        return Instance(fields)

    def _records(self, file_path: FileName) -> Iterator[Tuple[str, str]]:
        return placed_lines(file_path, "one tree")

    def _instances(self, record: str, counts: Counter) -> Iterable[Instance]:
        sentence, *phrases = read_phrases(record)
        minimum = self._min_phrase_length
        long_phrases = [phrase for phrase in phrases if len(phrase.words) >= minimum]
        for phrase in [sentence, *long_phrases]:
            label = self._class_of[phrase.label]
            if label is None:
                counts["neutral texts left out"] += 1
            else:
                yield self.text_to_instance([Token(word) for word in phrase.words], label)


@Model.register("elmo_sst")
class BiattentiveClassifier(Classifier):
    """
    The biattentive classification network of McCann et al. (2017, section 5) for one sentence, with the ELMo
    paper's change to its last layers: text encoder (a relu layer on each token, then a biLSTM), attention of
    the sentence to itself, integrating biLSTM, pooling, and relu layers in place of maxout.

    The text encoder places ELMo. Output ELMo is added to the output of the first biLSTM, before the
    attention, as in the paper. AllenNLP's `bcn` adds it after the integrator.

    In a config neither `integrator` nor `output_layer` has an input width. The output layer can have any
    output width, because a linear layer to the classes follows.

    For each token the integrator reads its vector, the difference to the vector that it attends to, and the
    product of the two. `dropout` is on the pooled sentence, in addition to that of the parts.
    """

    default_predictor = "elmo_sst"

    def __init__(
        self,
        vocab: Vocabulary,
        text_encoder: TextEncoder,
        integrator: Union[Lazy[Seq2SeqEncoder], Seq2SeqEncoder],
        output_layer: Union[Lazy[FeedForward], FeedForward],
        dropout: float = 0.0,
        initializer: InitializerApplicator = InitializerApplicator(),
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        self.text_encoder = text_encoder
        self.self_attention = DotProductMatrixAttention()
        token_dim = text_encoder.get_output_dim()
        self.integrator = built(integrator, 3 * token_dim, "three vectors of a token", "integrator")
        integrated_dim = self.integrator.get_output_dim()
        self.pooling = FourWayPooling(integrated_dim)
        self.dropout = torch.nn.Dropout(dropout)
        self.output_layer = built(
            output_layer, 4 * integrated_dim, "pooled sentence", "output layer"
        )
        self.label_projection = torch.nn.Linear(
            self.output_layer.get_output_dim(), len(self.classes)
        )
        initializer(self)

    def forward(
        self,
        tokens: TextFieldTensors,
        label: Optional[Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, Any]:
        """Return `Classifier._output`. `label` holds the ids of the gold classes, `(batch_size,)`."""
        encoded = self.text_encoder(tokens)
        mask = encoded.mask  # (batch_size, timesteps)
        vectors = encoded.contextualized  # (batch_size, timesteps, text_encoder_dim)
        # (batch_size, timesteps, timesteps), from each token to all
        scores = self.self_attention(vectors, vectors)
        attended = attend(scores, vectors, mask)  # (batch_size, timesteps, text_encoder_dim)
        # (batch_size, timesteps, 3 * text_encoder_dim)
        compared = torch.cat([vectors, vectors - attended, vectors * attended], dim=-1)
        integrated = self.integrator(compared, mask)  # (batch_size, timesteps, integrator_dim)
        sentence = self.dropout(self.pooling(integrated, mask))  # (batch_size, pooled_dim)
        logits = self.label_projection(self.output_layer(sentence))  # (batch_size, num_classes)
        return self._output(logits, label, metadata)


class FourWayPooling(torch.nn.Module):
    """
    Concatenates the maximum, the minimum, the mean and a weighted mean over the tokens. The weights are a
    softmax over learned linear scores of the tokens (McCann et al. 2017, section 5).
    """

    def __init__(self, input_dim: int) -> None:
        super().__init__()
        # A bias would shift all scores equally, which changes no weight.
        self.token_score = torch.nn.Linear(input_dim, 1, bias=False)

    def forward(self, tokens: Tensor, mask: BoolTensor) -> Tensor:
        """
        Pool `(batch_size, timesteps, input_dim)` to `(batch_size, 4 * input_dim)`. Padded steps are ignored.
        Each row of the mask `(batch_size, timesteps)` must have a step that is `True`.
        """
        wide_mask = mask.unsqueeze(-1)  # (batch_size, timesteps, 1)
        maximum = masked_max(tokens, wide_mask, dim=1)  # (batch_size, input_dim)
        minimum = -masked_max(-tokens, wide_mask, dim=1)  # (batch_size, input_dim)
        mean = masked_mean(tokens, wide_mask, dim=1)  # (batch_size, input_dim)
        scores = self.token_score(tokens).squeeze(-1)  # (batch_size, timesteps)
        weighted_mean = attend(scores, tokens, mask)  # (batch_size, input_dim)
        return torch.cat([maximum, minimum, mean, weighted_mean], dim=-1)


@Predictor.register("elmo_sst")
class SstPredictor(SentencePredictor):
    """
    Predicts from a sentence or its tokens, see `SentencePredictor`. The output has `label`, the most probable
    class; `probabilities` of the classes, from negative to positive; and `tokens`, as the model read them.
    """

    example = '{"sentence": "A good film."} or {"tokens": ["A", "good", "film", "."]}'

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        [output] = outputs
        return {
            "label": output["label"],
            "probabilities": output["probabilities"],
            "tokens": output["words"],
        }
