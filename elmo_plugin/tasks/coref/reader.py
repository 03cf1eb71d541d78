"""Reads documents with coreference."""

from collections import Counter
from os import PathLike
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Union

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import Field, ListField, MetadataField, TensorField, TextField
from allennlp.data.token_indexers import TokenIndexer
from allennlp.data.tokenizers import Token

from elmo_plugin.tasks.conll_2012 import Conll2012Document, read_conll_2012
from elmo_plugin.tasks.coref.clusters import Cluster
from elmo_plugin.tasks.coref.genre_field import GenreField
from elmo_plugin.tasks.coref.gold_clusters import read_clusters
from elmo_plugin.tasks.task_reader import TaskReader

UNKNOWN_SPEAKER = "-"
_LINE_ENDS_OF_MENTIONS = (")", *"0123456789")  # of `(12)` and of `(12`


@DatasetReader.register("elmo_coref")
class CoreferenceReader(TaskReader):
    """
    Reads documents in the format of CoNLL-2012: a file, or all `*gold_conll` files below a folder. Words,
    speakers and coreference are used, and the genre, which is the first part of a document's name
    (`bc/cctv/00/cctv_0000`); a name without a slash has none.

    Every document (in OntoNotes, every part of one) is an instance, with the fields

    - `sentences`, a list of text fields;
    - `mentions`, `(num_mentions, 3)`: start, end (exclusive) and cluster of each, counted from 0, padded with
      -1; not there without gold clusters;
    - `speakers`, `(num_words)`: numbers within the document, 0 for `-`;
    - `genre`, a label;
    - `metadata`: `words` of the document, `sentence_lengths`, `name`; and `clusters`, if there are gold
      clusters.

    A mention that is marked twice for one entity counts once, and two entities that share a mention are
    taken as one (this occurs in OntoNotes); either is logged with its line.

    Registered as a `DatasetReader` with name `elmo_coref`.

    # Parameters

    keep_singletons : `bool`, optional (default = `False`)
        Keep gold clusters of one mention, which OntoNotes does not mark and other corpora do. The model
        predicts none: they are not learnt from, but count in its scores. If not kept, their number is
        logged.

    The others are those of `TaskReader`, whose units are documents here.

    # Raises

    While reading: `ConfigurationError` for a file or folder that is missing, empty or not UTF-8, lines with
    another number of columns, brackets that do not match, and files in which no document has coreference.
    Document, file and line are named.
    """

    def __init__(
        self,
        token_indexers: Optional[Dict[str, TokenIndexer]] = None,
        keep_singletons: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(token_indexers, **kwargs)
        self._keep_singletons = keep_singletons

    def text_to_instance(
        self,
        sentences: List[List[Token]],
        clusters: Optional[Sequence[Cluster]] = None,
        speakers: Optional[Sequence[Sequence[str]]] = None,
        genre: Optional[str] = None,
        name: str = "",
    ) -> Instance:
        """
        # Parameters

        sentences : `List[List[Token]]`
            The sentences of a document, at least one, none of them empty.
        clusters : `Sequence[Cluster]`, optional
            Gold clusters: lists of mentions `(start, end)`, counted in tokens of the document, `end`
            exclusive.
        speakers : `Sequence[Sequence[str]]`, optional
            For each sentence the speakers of its tokens, `-` if not known.
        genre : `str`, optional
            One that occurs in the training data, if it is to be of use.
        name : `str`, optional
            Of the document.

        # Raises

        `ConfigurationError` if there is no sentence, or an empty one.
        """
        if not sentences or not all(sentences):
            raise ConfigurationError(
                f"Found {'an empty sentence' if sentences else 'no sentence'} in document '{name}', "
                "expected at least one sentence, and at least one token in each."
            )
        words = [token.text for sentence in sentences for token in sentence]
        metadata: Dict[str, Any] = {
            "words": words,
            "sentence_lengths": [len(sentence) for sentence in sentences],
            "name": name,
        }
        fields: Dict[str, Field] = {
            "sentences": ListField([TextField(sentence) for sentence in sentences]),
            "speakers": TensorField(_speaker_ids(speakers, len(words))),
            "genre": GenreField(genre),
            "metadata": MetadataField(metadata),
        }
        if clusters is not None:
            kept = [cluster for cluster in clusters if self._keep_singletons or len(cluster) > 1]
            metadata["clusters"] = kept
            fields["mentions"] = mention_field(kept)
        return Instance(fields)

    def apply_token_indexers(self, instance: Instance) -> None:
        for sentence in instance["sentences"]:
            sentence.token_indexers = self._token_indexers

    def _units(self, file_path: Union[str, PathLike]) -> Iterator[Conll2012Document]:
        any_brackets = False
        for document in read_conll_2012(file_path):
            any_brackets = any_brackets or any(
                line.endswith(_LINE_ENDS_OF_MENTIONS) for line in document.lines
            )
            yield document
        if not any_brackets:
            raise ConfigurationError(
                f"{file_path}: found no mention in any document, expected brackets such as (12|(3)|4) in the "
                "last column, coreference. Give files with coreference; documents without, to predict on, "
                'are given as JSON, {"sentences": [["A", "word"], ...]}.'
            )

    def _instances(self, unit: Conll2012Document, left_out: Counter) -> Iterable[Instance]:
        sentences = unit.sentences()
        genre, slash, _ = unit.name.partition("/")
        name = f"{unit.name}, part {unit.part}"
        clusters = read_clusters(sentences, name)
        instance = self.text_to_instance(
            [[Token(word) for word in sentence.words] for sentence in sentences],
            clusters,
            [sentence.speakers for sentence in sentences],
            genre if slash else None,
            name,
        )
        num_singletons = len(clusters) - len(instance["metadata"].metadata["clusters"])
        if num_singletons:
            left_out["clusters of one mention (keep_singletons is false)"] += num_singletons
        yield instance


def mention_field(clusters: Sequence[Cluster]) -> TensorField:
    """`(num_mentions, 3)`: start, end (exclusive) and cluster of each, counted from 0, padded with -1."""
    mentions = [
        (*mention, number) for number, cluster in enumerate(clusters) for mention in cluster
    ]
    return TensorField(torch.tensor(mentions, dtype=torch.long).view(-1, 3), padding_value=-1)


def _speaker_ids(
    speakers: Optional[Sequence[Sequence[str]]], num_words: int
) -> torch.Tensor:  # (num_words)
    if speakers is None:
        return torch.zeros(num_words, dtype=torch.long)
    ids: Dict[str, int] = {UNKNOWN_SPEAKER: 0}
    return torch.tensor(
        [ids.setdefault(speaker, len(ids)) for sentence in speakers for speaker in sentence]
    )
