"""Natural-language inference: reader, model (ESIM) and predictor, all registered as `elmo_snli`."""

from collections import Counter
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple, Union

import torch
from allennlp.common import Lazy
from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader, Instance, TextFieldTensors, Vocabulary
from allennlp.data.fields import Field, MetadataField, TextField
from allennlp.data.tokenizers import Token
from allennlp.models import Model
from allennlp.modules import FeedForward, InputVariationalDropout, Seq2SeqEncoder
from allennlp.modules.matrix_attention import DotProductMatrixAttention
from allennlp.nn import InitializerApplicator
from allennlp.nn.util import masked_max, masked_mean
from allennlp.predictors import Predictor
from torch import LongTensor, Tensor

from elmo_plugin.errors import ConfigurationError, advising
from elmo_plugin.files.json_input import find_key, get_text, parse_json_object
from elmo_plugin.files.text import FileName
from elmo_plugin.modules.text_encoder import EncodedText, TextEncoder, built
from elmo_plugin.tasks.models import Classifier, attend
from elmo_plugin.tasks.predicting import TaskPredictor
from elmo_plugin.tasks.reading import ClassField, TaskReader, checked_words, placed_lines

LABELS = ("entailment", "neutral", "contradiction")
NO_GOLD_LABEL = "-"  # of pairs on which the annotators did not agree

_EXAMPLE = '{"gold_label": "entailment", "sentence1": "A man sleeps outside.", "sentence2": "A man sleeps."}'


@DatasetReader.register("elmo_snli")
class SnliReader(TaskReader):
    """
    Reads the JSON lines of SNLI, and of data sets of the same format, such as MultiNLI: one pair per line,
    with the keys `gold_label`, `sentence1` (the premise) and `sentence2` (the hypothesis). Other keys are
    ignored. Pairs labeled `-`, on which the annotators did not agree, are left out and counted.

    Every other pair is an instance with the fields `premise`, `hypothesis`, `label` and `metadata`
    (`premise_words` and `hypothesis_words`). The vocabulary always gets all three labels.

    The parameters are those of `TaskReader`, whose records are lines here.
    """

    def text_to_instance(
        self,
        premise: List[Token],
        hypothesis: List[Token],
        label: Optional[str] = None,
    ) -> Instance:
        """Make an instance. `label` is one of `LABELS`."""
        metadata = {
            "premise_words": checked_words(premise, "premise"),
            "hypothesis_words": checked_words(hypothesis, "hypothesis"),
        }
        fields: Dict[str, Field] = {
            "premise": TextField(premise),
            "hypothesis": TextField(hypothesis),
            "metadata": MetadataField(metadata),
        }
        if label is not None:
            if label not in LABELS:
                raise ConfigurationError(
                    f"found the gold_label '{label}', expected {', '.join(LABELS)}, or {NO_GOLD_LABEL} "
                    "for a pair to be left out. Correct the label."
                )
            fields["label"] = ClassField(label, LABELS)
        return Instance(fields)

    def _records(self, file_path: FileName) -> Iterator[Tuple[str, str]]:
        return placed_lines(file_path, "a JSON object")

    def _instances(self, record: str, counts: Counter) -> Iterable[Instance]:
        with advising("Correct the line, or give a file of JSON lines in SNLI's format."):
            pair = parse_json_object(record, _EXAMPLE)
            label, *sentences = (
                get_text(pair, key, _EXAMPLE) for key in ("gold_label", "sentence1", "sentence2")
            )
        if label == NO_GOLD_LABEL:
            counts["pairs without a gold label left out"] += 1
        else:
            premise, hypothesis = map(self.tokenizer.tokenize, sentences)
            yield self.text_to_instance(premise, hypothesis, label)


@Model.register("elmo_snli")
class SnliClassifier(Classifier):
    """
    ESIM (Chen et al. 2017, without its tree LSTM), the paper's model of textual entailment. One text encoder
    reads both sentences; each token is compared with the part of the other sentence that it is aligned with;
    the inference encoder reads the projected comparisons; its output is pooled and classified by
    `output_feedforward` and a linear layer.

    In a config no part has an input width: `projection.input_dim`, `inference_encoder.input_size` and
    `output_feedforward.input_dim` are derived.

    # Parameters

    attention_dropout : `float`, optional (default = `0.0`)
        On the comparisons.
    inference_dropout : `float`, optional (default = `0.0`)
        On the input of the inference encoder, the same units at all steps of a sentence.
    dropout : `float`, optional (default = `0.0`)
        On the inputs of `output_feedforward` and of the last layer.
    """

    default_predictor = "elmo_snli"
    word_keys = ("premise_words", "hypothesis_words")

    def __init__(
        self,
        vocab: Vocabulary,
        text_encoder: TextEncoder,
        projection: Union[Lazy[FeedForward], FeedForward],
        inference_encoder: Union[Lazy[Seq2SeqEncoder], Seq2SeqEncoder],
        output_feedforward: Union[Lazy[FeedForward], FeedForward],
        attention_dropout: float = 0.0,
        inference_dropout: float = 0.0,
        dropout: float = 0.0,
        initializer: InitializerApplicator = InitializerApplicator(),
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        self.text_encoder = text_encoder
        self.matrix_attention = DotProductMatrixAttention()
        self.attention_dropout = torch.nn.Dropout(attention_dropout)
        token_dim = text_encoder.get_output_dim()
        self.projection = built(projection, 4 * token_dim, "comparison of a token", "projection")
        self.inference_dropout = InputVariationalDropout(inference_dropout)
        token_dim = self.projection.get_output_dim()
        self.inference_encoder = built(
            inference_encoder, token_dim, "projected comparison", "inference encoder"
        )
        self.dropout = torch.nn.Dropout(dropout)
        pair_dim = 4 * self.inference_encoder.get_output_dim()
        self.output_feedforward = built(
            output_feedforward, pair_dim, "pooled pair", "output feedforward"
        )
        hidden_dim = self.output_feedforward.get_output_dim()
        self.label_projection = torch.nn.Linear(hidden_dim, len(self.classes))
        initializer(self)

    def forward(
        self,
        premise: TextFieldTensors,
        hypothesis: TextFieldTensors,
        label: Optional[LongTensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, Any]:
        """Return `Classifier._output`. `label` holds the ids of the gold labels, `(batch_size,)`."""
        first, second = self.text_encoder(premise), self.text_encoder(hypothesis)
        # (batch_size, timesteps of the premise, timesteps of the hypothesis)
        similarity = self.matrix_attention(first.contextualized, second.contextualized)
        pooled = [
            *self._compare(first, second, similarity),
            *self._compare(second, first, similarity.transpose(1, 2)),
        ]
        pair = torch.cat(pooled, dim=-1)  # (batch_size, 4 * inference_dim)
        hidden = self.output_feedforward(self.dropout(pair))  # (batch_size, hidden_dim)
        logits = self.label_projection(self.dropout(hidden))  # (batch_size, num_labels)
        return self._output(logits, label, metadata)

    def _compare(self, text: EncodedText, other: EncodedText, similarity: Tensor) -> List[Tensor]:
        """
        Compare each token with the mean of the other sentence's tokens, weighted by similarity (Chen et al.,
        equations 11 to 15), and return average and maximum over the tokens (equation 20), `(batch_size,
        inference_dim)` each. `similarity` is `(batch_size, timesteps, timesteps of the other)`.
        """
        tokens = text.contextualized  # (batch_size, timesteps, encoded_dim)
        aligned = attend(similarity, other.contextualized, other.mask)
        # (batch_size, timesteps, 4 * encoded_dim)
        comparisons = torch.cat([tokens, aligned, tokens - aligned, tokens * aligned], dim=-1)
        projected = self.projection(self.attention_dropout(comparisons))
        inferred = self.inference_encoder(self.inference_dropout(projected), text.mask)
        token_mask = text.mask.unsqueeze(-1)  # (batch_size, timesteps, 1)
        return [masked_mean(inferred, token_mask, dim=1), masked_max(inferred, token_mask, dim=1)]


# Keys of the premise, each with the key of the hypothesis that goes with it.
_HYPOTHESIS_KEYS = {"premise": "hypothesis", "sentence1": "sentence2"}


@Predictor.register("elmo_snli")
class SnliPredictor(TaskPredictor):
    """
    Predicts from `{"premise": "A man sleeps outside.", "hypothesis": "A man sleeps."}`; `sentence1` and
    `sentence2` are the same, so lines of SNLI can be given unchanged. The output has

    - `label`, the most probable of `entailment`, `neutral` and `contradiction`;
    - `probabilities`, of each label by its name;
    - `premise_words` and `hypothesis_words`, the tokens that the model read.
    """

    example = '{"premise": "A man sleeps outside.", "hypothesis": "A man sleeps."}'

    def predict(self, premise: str, hypothesis: str) -> JsonDict:
        """Return the answer for a pair of sentences."""
        return self.predict_json({"premise": premise, "hypothesis": hypothesis})

    def instances_from_json(self, inputs: JsonDict) -> List[Instance]:
        premise_key = find_key(inputs, list(_HYPOTHESIS_KEYS), self.example)
        keys = (premise_key, _HYPOTHESIS_KEYS[premise_key])
        texts = [get_text(inputs, key, self.example) for key in keys]
        return [self._dataset_reader.text_to_instance(*map(self.tokenizer.tokenize, texts))]

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        [output] = outputs
        keys = ("label", "probabilities", "premise_words", "hypothesis_words")
        return {key: output[key] for key in keys}
