"""Read pairs of sentences with their entailment labels."""

from collections import Counter
from os import PathLike
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, LabelField, MetadataField, TextField
from allennlp.data.tokenizers import Token, Tokenizer

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import errors_at, get_text, parse_json_object
from elmo_plugin.tasks.reading import (
    RuleBasedTokenizer,
    TaskReader,
    checked_words,
    placed_lines,
)

LABELS = ("entailment", "neutral", "contradiction")

NO_GOLD_LABEL = "-"
"""The label of pairs on which the annotators did not agree."""

_EXAMPLE = '{"gold_label": "entailment", "sentence1": "A man sleeps outside.", "sentence2": "A man sleeps."}'


@DatasetReader.register("elmo_snli")
class SnliReader(TaskReader):
    """
    Reads the JSON lines of SNLI, and of data sets of the same format, such as MultiNLI: one pair per line,
    with the keys `gold_label`, `sentence1` (the premise) and `sentence2` (the hypothesis). Other keys are
    ignored. Pairs labelled `-`, on which the annotators did not agree, are left out and counted.

    Every other pair is an instance with the fields `premise`, `hypothesis`, `label` and `metadata`
    (`premise_words` and `hypothesis_words`).

    The parameters are those of `TaskReader`, whose records are lines here, and `tokenizer`, by default
    `RuleBasedTokenizer`.
    """

    tokenizer: Tokenizer

    def __init__(self, tokenizer: Optional[Tokenizer] = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tokenizer = tokenizer or RuleBasedTokenizer()

    def text_to_instance(
        self,
        premise: List[Token],
        hypothesis: List[Token],
        label: Optional[str] = None,
        place: Optional[str] = None,
    ) -> Instance:
        """Make an instance. `label` is one of `LABELS`."""
        metadata = {
            "premise_words": checked_words(premise, "premise", place),
            "hypothesis_words": checked_words(hypothesis, "hypothesis", place),
        }
        fields: Dict[str, Field] = {
            "premise": TextField(premise),
            "hypothesis": TextField(hypothesis),
            "metadata": MetadataField(metadata),
        }
        if label is not None:
            if label not in LABELS:
                raise ConfigurationError(
                    f"{f'{place}: ' if place else ''}found the gold_label '{label}', expected "
                    f"{', '.join(LABELS)}, or {NO_GOLD_LABEL} for a pair to be left out. Correct the label."
                )
            fields["label"] = LabelField(label)
        return Instance(fields)

    def _records(self, file_path: Union[str, PathLike]) -> Iterator[Tuple[str, str]]:
        return placed_lines(file_path, "a JSON object")

    def _instances(self, record: Tuple[str, str], left_out: Counter) -> Iterable[Instance]:
        place, line = record
        with errors_at(place, "Correct the line, or give a file of JSON lines in SNLI's format."):
            pair = parse_json_object(line, _EXAMPLE)
            label, *sentences = (
                get_text(pair, key, _EXAMPLE) for key in ("gold_label", "sentence1", "sentence2")
            )
        if label == NO_GOLD_LABEL:
            left_out["without a gold label"] += 1
        else:
            premise, hypothesis = map(self.tokenizer.tokenize, sentences)
            yield self.text_to_instance(premise, hypothesis, label, place)
