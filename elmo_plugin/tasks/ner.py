"""Named entity recognition: reader, model and predictor, all registered as `elmo_ner`."""

import logging
from collections import Counter
from pathlib import PurePath
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch
from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader, Instance, TextFieldTensors, Vocabulary
from allennlp.data.fields import Field, MetadataField, TextField
from allennlp.data.tokenizers import Token
from allennlp.models import Model
from allennlp.modules.conditional_random_field import ConditionalRandomField
from allennlp.modules.conditional_random_field.conditional_random_field import allowed_transitions
from allennlp.nn import InitializerApplicator
from allennlp.predictors import Predictor
from torch import BoolTensor, Tensor
from torch.nn.functional import one_hot

from elmo_plugin.errors import ConfigurationError, check_choice
from elmo_plugin.files.text import FileName
from elmo_plugin.modules.text_encoder import TextEncoder
from elmo_plugin.tasks.conll import ConllSentence, SentencePlace, read_conll_sentences
from elmo_plugin.tasks.models import Tagger
from elmo_plugin.tasks.predicting import TaggerPredictor, bracketed, described_span
from elmo_plugin.tasks.reading import TaskReader, character_offsets, checked_words
from elmo_plugin.tasks.tags import (
    SCHEME_RULES,
    TagField,
    find_tag_fault,
    spans_to_tags,
    tags_to_spans,
)

logger = logging.getLogger(__name__)

# A sentence, the scheme of its tags, and the classes that they do not mark.
_Record = Tuple[ConllSentence, str, List[str]]


@DatasetReader.register("elmo_ner")
class NerReader(TaskReader):
    """
    Reads files in CoNLL format: one token per line, columns separated by spaces or tabs, a blank line after
    each sentence, `-DOCSTART-` lines between documents. The first column is the token and the last its tag:
    `TOKEN POS CHUNK TAG` as in CoNLL-2003, `TOKEN TAG`, or any other number of columns.

    Every sentence is an instance with the fields `tokens`, `tags` and `metadata` (`words`;
    `character_offsets`, one `(start, end)` per token, or `None`; `unmarked`, the classes that its file does
    not mark; and `gold_tags`, the names of `tags`, which the vocabulary need not have).

    # Parameters

    input_scheme : `str`, optional
        The tag scheme of the files: `IOB1` (CoNLL-2003 as published), `BIO` (also called IOB2) or `BIOUL`. By
        default, for each file, the scheme that fits most of its sentences, which is logged with how many fit
        each. Sentences that do not fit it are invalid.
    unmarked : `Dict[str, List[str]]`, optional
        Classes that some files do not mark, such as `{"uner_ewt/*.conll": ["MISC"]}`, so that files with
        different classes can be combined: a token that such a file tags `O` may be in an entity of these
        classes. Neither training nor metrics treat it as outside of them. Keys are patterns of
        `PurePath.match`, compared with the end of a file's path.

    The other parameters are those of `TaskReader`, whose records are sentences here.
    """

    def __init__(
        self,
        input_scheme: Optional[str] = None,
        unmarked: Optional[Dict[str, List[str]]] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if input_scheme is not None:
            check_choice("input_scheme", input_scheme, SCHEME_RULES)
        self._input_scheme = input_scheme
        self._unmarked = unmarked or {}

    def text_to_instance(
        self,
        tokens: List[Token],
        tags: Optional[List[str]] = None,
        unmarked: Sequence[str] = (),
    ) -> Instance:
        """
        Make an instance. The scheme of `tags` is BIOUL. `unmarked` are the classes that they do not mark.
        """
        text_field = TextField(tokens)
        metadata = {
            "words": checked_words(tokens),
            "character_offsets": character_offsets(tokens),
            "unmarked": list(unmarked),
            "gold_tags": tags,
        }
        fields: Dict[str, Field] = {"tokens": text_field, "metadata": MetadataField(metadata)}
        if tags is not None:
            fields["tags"] = TagField(tags, text_field)
        return Instance(fields)

    def _records(self, file_path: FileName) -> Iterator[Tuple[str, _Record]]:
        scheme = self._input_scheme or _detected_scheme(file_path)
        path = PurePath(file_path)
        unmarked = [
            label for key, labels in self._unmarked.items() if path.match(key) for label in labels
        ]
        if unmarked:
            logger.info("%s: does not mark %s.", file_path, ", ".join(unmarked))
        for number, sentence in enumerate(read_conll_sentences(file_path)):
            if number == 0:
                _check_first_column(sentence)
            yield sentence.place.of_token(0), (sentence, scheme, unmarked)

    def _instances(self, record: _Record, counts: Counter) -> Iterable[Instance]:
        sentence, scheme, unmarked = record
        words, *_, tags = sentence.columns()
        _check_tags(tags, scheme, sentence.place)
        spans = tags_to_spans(tags, scheme)
        for span in spans:
            if span.label in unmarked:
                raise ConfigurationError(
                    f"{sentence.place.of_token(span.start)}: found an entity of class {span.label}, which by "
                    "dataset_reader.unmarked this file does not mark. Correct the tag, or the patterns and "
                    "classes of unmarked."
                )
        label_tags = spans_to_tags(spans, len(tags), "BIOUL")
        tokens = [Token(word) for word in words]
        yield self.text_to_instance(tokens, label_tags, unmarked)


def _check_first_column(sentence: ConllSentence) -> None:
    """Raise `ConfigurationError` if it numbers the tokens of the first sentence of a file."""
    # Not `columns`: if the sentence is invalid, that is for `_instances` to say, as of any other.
    rows = enumerate(sentence.rows(), start=1)
    if all(len(row) > 2 and row[0] == str(number) for number, row in rows):
        raise ConfigurationError(
            f"{sentence.place.of_token(0)}: the first column numbers the tokens, expected the tokens "
            "themselves. Remove this column: the first is the token, the last its tag."
        )


def _check_tags(tags: Sequence[str], scheme: str, place: SentencePlace) -> None:
    """Raise `ConfigurationError` for the first tag of a sentence that is impossible in a scheme."""
    fault = find_tag_fault(tags, scheme)
    if fault is None:
        return
    index, description = fault
    fitting = [other for other in SCHEME_RULES if find_tag_fault(tags, other) is None]
    advice = f", or give the reader the input_scheme {' or '.join(fitting)}" if fitting else ""
    raise ConfigurationError(
        f"{place.of_token(index)}: found {description}, impossible in the {scheme} scheme: a token outside "
        f"of spans is tagged O, {SCHEME_RULES[scheme]}. Correct the tag{advice}."
    )


def _detected_scheme(file_path: FileName) -> str:
    """Read a file, and return and log the scheme in which most of its sentences are possible."""
    num_possible = Counter(
        scheme
        for sentence in read_conll_sentences(file_path)
        for scheme in SCHEME_RULES
        if find_tag_fault(sentence.last_column(), scheme) is None
    )
    best = max(SCHEME_RULES, key=num_possible.__getitem__)
    fitting = ", ".join(f"{num_possible[scheme]} fit {scheme}" for scheme in SCHEME_RULES)
    logger.info("%s: reading tags in the %s scheme; of the sentences %s.", file_path, best, fitting)
    return best


# The score of impossible tags: far below any other, and finite, since sums of infinite ones give NaN.
_IMPOSSIBLE = -1e4


class PartialCRF(ConditionalRandomField):
    """AllenNLP's CRF, which can also learn from tags that are known in part (Tsuboi et al. 2008)."""

    def partial_log_likelihood(self, logits: Tensor, allowed: Tensor, mask: BoolTensor) -> Tensor:
        """
        Return the log-likelihood, summed over the batch, that the tags of a sentence are any of its `allowed`
        sequences, of those that the constraints of the CRF allow. `logits` and `allowed`, the tags that a
        token may have, are `(batch_size, timesteps, num_tags)`.
        """
        start, end = self.num_tags, self.num_tags + 1
        constraints = self._constraint_mask.bool()  # (num_tags + 2, num_tags + 2)
        sentences = torch.arange(mask.size(0), device=mask.device)
        allowed = allowed.clone()
        allowed[:, 0] &= constraints[start, :start]
        allowed[sentences, mask.sum(dim=1) - 1] &= constraints[:start, end]
        numerator = self._input_likelihood(
            logits.masked_fill(~allowed, _IMPOSSIBLE),
            self.transitions.masked_fill(~constraints[:start, :start], _IMPOSSIBLE),
            mask,
        )  # (batch_size,)
        # Over all sequences, as AllenNLP's: its constraints are for decoding.
        denominator = self._input_likelihood(logits, self.transitions, mask)
        return (numerator - denominator).sum()


@Model.register("elmo_ner")
class NerTagger(Tagger):
    """
    Text encoder, linear layer and linear-chain CRF (paper, section 4). The tags of a sentence are predicted
    jointly, and only sequences that the tag scheme allows are decoded.

    The loss is the negative log-likelihood of the gold tags, averaged over the sentences of the batch.
    AllenNLP's `crf_tagger` sums it over the batch. With the mean, gradient clipping and regularization have
    the same effect for every batch size. Divide settings from a `crf_tagger` config by its batch size to keep
    their effect.

    Of a sentence whose file does not mark all classes (the reader's `unmarked`), the likelihood is that of
    all sequences that agree with its tags, where a token with the tag `O` may be in an entity of an unmarked
    class. Predicted entities of these classes are left out of its metrics.

    # Parameters

    dropout : `float`, optional (default = `0.0`)
        On the output of the text encoder, in addition to the text encoder's own.
    include_start_end_transitions : `bool`, optional (default = `True`)
        Whether the CRF learns a score for each tag at the start and at the end of a sentence. The default is
        that of AllenNLP's `crf_tagger`; its experiment with ELMo, and the configs here, have `False`.
    """

    default_predictor = "elmo_ner"
    label_scheme = "BIOUL"

    def __init__(
        self,
        vocab: Vocabulary,
        text_encoder: TextEncoder,
        dropout: float = 0.0,
        include_start_end_transitions: bool = True,
        initializer: InitializerApplicator = InitializerApplicator(),
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        self.text_encoder = text_encoder
        self.dropout = torch.nn.Dropout(dropout)
        num_tags = len(self.tags)
        constraints = allowed_transitions(self.label_scheme, dict(enumerate(self.tags)))
        self.tag_projection = torch.nn.Linear(text_encoder.get_output_dim(), num_tags)
        self.crf = PartialCRF(num_tags, constraints, include_start_end_transitions)
        initializer(self)

    def forward(
        self,
        tokens: TextFieldTensors,
        tags: Optional[Tensor] = None,
        metadata: Optional[List[Dict[str, Any]]] = None,
    ) -> Dict[str, Any]:
        """Return `Tagger._output`, and the `loss` of gold `tags`, ids of shape `(batch_size, timesteps)`."""
        encoded = self.text_encoder(tokens)
        mask = encoded.mask  # (batch_size, timesteps)
        # (batch_size, timesteps, num_tags)
        logits = self.tag_projection(self.dropout(encoded.contextualized))
        output = self._output(logits, mask, metadata)
        if tags is not None:
            tags = self._known_tags(tags, metadata)
            allowed = self._allowed_tags(tags, metadata or [])
            # Both return the sum over the batch.
            if allowed is None:
                log_likelihood = self.crf(logits, tags, mask)
            else:
                log_likelihood = self.crf.partial_log_likelihood(logits, allowed, mask)
            output["loss"] = -log_likelihood / logits.size(0)
            if "tags" in output:
                for sentence in zip(output["tags"], tags.tolist(), metadata or [{}] * len(tags)):
                    self._measure(*sentence)
        return output

    def _best_tags(self, logits: Tensor, mask: BoolTensor) -> List[List[int]]:
        return [tags for tags, _ in self.crf.viterbi_tags(logits, mask)]

    def _allowed_tags(self, tags: Tensor, metadata: List[Dict[str, Any]]) -> Optional[Tensor]:
        """
        Return which tags each token may have, `(batch_size, timesteps, num_tags)`: its gold tag, and if
        that is `O`, those of classes that the file of its sentence does not mark; `None` if all are marked.
        Raise `ConfigurationError` for a class that the model does not learn.
        """
        unmarked = [sentence.get("unmarked", ()) for sentence in metadata]
        if not any(unmarked):
            return None
        for name in {name for names in unmarked for name in names}:
            if name not in self._classes:
                raise ConfigurationError(
                    f"dataset_reader.unmarked has the class '{name}', expected one that the model learns: "
                    f"{', '.join(sorted({*self._classes} - {''}))}. Correct it."
                )
        # (batch_size, num_tags)
        is_unmarked = torch.tensor(
            [[name in names for name in self._classes] for names in unmarked], device=tags.device
        )
        is_outside = (tags == self._outside).unsqueeze(-1)  # (batch_size, timesteps, 1)
        return one_hot(tags, len(self.tags)).bool() | (is_outside & is_unmarked.unsqueeze(1))

    def _measure(self, tag_ids: List[int], gold_ids: List[int], sentence: Dict[str, Any]) -> None:
        """Leave out predicted entities of classes that the file of the sentence does not mark."""
        unmarked = sentence.get("unmarked", ())
        marked_ids = [
            self._outside if self._classes[tag_id] in unmarked else tag_id for tag_id in tag_ids
        ]
        super()._measure(marked_ids, gold_ids, sentence)


@Predictor.register("elmo_ner")
class NerPredictor(TaggerPredictor):
    """
    Predicts from a sentence or its tokens, see `SentencePredictor`. The output has

    - `words` and `tags`, one of each per token;
    - `spans`, a list with `label` and `described_span` of each;
    - `tagged`, the words with spans in brackets: `[PER John Smith] lives in [LOC Paris] .`.
    """

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        answer = super().readable_output(instances, outputs)
        metadata = instances[0]["metadata"].metadata
        spans = tags_to_spans(answer["tags"], "BIOUL")
        return {
            **answer,
            "spans": [
                {"label": label, **described_span(metadata, start, end)}
                for start, end, label in spans
            ],
            "tagged": bracketed(answer["words"], spans),
        }
