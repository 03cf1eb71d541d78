"""Read documents with coreference, from files and from JSON."""

import logging
import re
from collections import Counter
from itertools import chain
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch
from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader, Instance
from allennlp.data.fields import (
    Field,
    LabelField,
    ListField,
    MetadataField,
    TensorField,
    TextField,
)
from allennlp.data.tokenizers import Token
from allennlp.data.vocabulary import DEFAULT_OOV_TOKEN
from allennlp.predictors import Predictor
from scipy.cluster.hierarchy import DisjointSet

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import find_key, get_text, get_words, shown_json
from elmo_plugin.files.spacy_rules import SpacyRules
from elmo_plugin.files.text import FileName
from elmo_plugin.tasks.conll import (
    Conll2012Document,
    Conll2012Sentence,
    SentencePlace,
    read_conll_2012,
)
from elmo_plugin.tasks.coref.spans import Cluster
from elmo_plugin.tasks.predicting import TaskPredictor, bracketed, described_span
from elmo_plugin.tasks.reading import TaskReader, character_offsets, checked_words

logger = logging.getLogger(__name__)

# `(12` opens a mention of entity 12, `12)` closes one, `(12)` is one of a single token.
_BRACKET = re.compile(r"(?P<opens>\()?(?P<entity>\d+)(?P<closes>\))?")
_NO_BRACKETS = "-"
_MAX_SHOWN = 60  # characters of an invalid entry in an error
# OntoNotes marks these tokens of speech, which text does not have so (Lee et al. read them as here).
_PLAIN = {"/.": ".", "/?": "?"}

GENRE_NAMESPACE = "genres"
_UNKNOWN_SPEAKER = "-"
_PARAGRAPH = re.compile(r".+?(\n[^\S\n]*\n|\Z)", re.DOTALL)  # with the blank line at its end


def read_mentions(column: Sequence[str], place: SentencePlace) -> List[Tuple[int, int, str]]:
    """
    Return the mentions of a sentence, from a column with one entry for each token, such as `-`, `(12`, or
    `(12|(3)|4)`: first token, end (exclusive) and entity, in the order of the text, longer mentions first.

    Mentions may nest and cross. If two mentions of one entity are open, a bracket closes the one that was
    opened last.
    """

    def fault(index: int, found: str) -> ConfigurationError:
        return ConfigurationError(
            f"{place.of_token(index)}: found {found} in the coreference column, the last, expected - or "
            "brackets such as (12|(3)|4), each with an opening and a closing one in the same sentence. "
            "Correct the column."
        )

    mentions: List[Tuple[int, int, str]] = []
    starts_of: Dict[str, List[int]] = {}  # of the open mentions of an entity
    for index, entry in enumerate(column):
        if entry == _NO_BRACKETS:
            continue
        for piece in entry.split("|"):
            match = _BRACKET.fullmatch(piece)
            if match is None or not (match["opens"] or match["closes"]):
                raise fault(index, f"'{entry[:_MAX_SHOWN]}'")
            entity = match["entity"]
            starts = starts_of.setdefault(entity, [])
            if match["opens"]:
                starts.append(index)
            if match["closes"]:
                if not starts:
                    raise fault(index, f"the closing bracket '{piece}' without an opening one")
                mentions.append((starts.pop(), index + 1, entity))
    for entity, starts in starts_of.items():
        if starts:
            raise fault(starts[-1], f"the opening bracket '({entity}' without a closing one")
    return sorted(mentions, key=lambda mention: (mention[0], -mention[1]))


def read_clusters(sentences: Sequence[Conll2012Sentence]) -> List[Cluster]:
    """
    Return the mentions of each entity, counted in tokens of the document, ends exclusive, in the order of the
    document.

    Each mention is in one cluster, once: entities that share a mention are merged, which is logged with the
    line.
    """
    entities = DisjointSet()  # of their names and mentions
    num_words = 0
    for sentence in sentences:
        for start, end, name in read_mentions(sentence.coreference, sentence.place):
            span = (num_words + start, num_words + end)
            is_known = span in entities
            entities.add(name)
            entities.add(span)
            if entities.merge(name, span) and is_known:
                names = sorted(name for name in entities.subset(span) if isinstance(name, str))
                logger.warning(
                    "%s: '%s' is marked as %s, merged",
                    sentence.place.of_token(start),
                    " ".join(sentence.words[start:end]),
                    " and ".join(names),
                )
        num_words += len(sentence.words)
    return sorted(
        sorted(mention for mention in entity if isinstance(mention, tuple))
        for entity in entities.subsets()
    )


class GenreField(LabelField):
    """A genre. `None`, and genres that are not in the vocabulary, get the id of unknown genres."""

    def __init__(self, genre: Optional[str]) -> None:
        super().__init__(genre or DEFAULT_OOV_TOKEN, GENRE_NAMESPACE)

    def _maybe_warn_for_namespace(self, label_namespace: str) -> None:
        """Do nothing: AllenNLP warns of namespaces with an id for unknown labels, which is intended here."""


@DatasetReader.register("elmo_coref")
class CoreferenceReader(TaskReader):
    """
    Reads documents in the format of CoNLL-2012: a file, or all `*gold_conll` files below a folder. Words,
    speakers and coreference are used, and the genre, which is the first part of a document's name
    (`bc/cctv/00/cctv_0000`). A name without a slash has no genre.

    Every document (in OntoNotes, every part of one) is an instance, with the fields

    - `sentences`, a list of text fields;
    - `mentions`, `(num_mentions, 3)`: start, end (exclusive) and cluster of each, counted from 0, padded
      with -1; missing without gold clusters;
    - `speakers`, `(num_words)`: numbers within the document, 0 for `-`;
    - `genre`, a label;
    - `metadata`: `words` of the document, `name`; and `clusters`, if there are gold clusters.

    Two entities that share a mention are merged (this occurs in OntoNotes), which is logged with the line.
    Clusters of one mention, which OntoNotes does not mark and the model never predicts, are left out and
    counted.

    The parameters are those of `TaskReader`, whose records are documents here.
    """

    def text_to_instance(
        self,
        sentences: List[List[Token]],
        clusters: Optional[Sequence[Cluster]] = None,
        speakers: Optional[Sequence[str]] = None,
        genre: Optional[str] = None,
        name: str = "",
    ) -> Instance:
        """
        Make an instance of the sentences of a document, none of them empty.

        Gold `clusters` are lists of mentions `(start, end)`, counted in tokens of the document, `end`
        exclusive. `speakers` has for each token of the document its speaker, `-` if unknown.
        """
        if not sentences:
            raise ConfigurationError(
                "found a document without sentences, expected at least one. Leave it out."
            )
        words = [word for sentence in sentences for word in checked_words(sentence)]
        metadata: Dict[str, Any] = {"words": words, "name": name}
        fields: Dict[str, Field] = {
            "sentences": ListField([TextField(sentence) for sentence in sentences]),
            "speakers": TensorField(_speaker_ids(speakers or [_UNKNOWN_SPEAKER] * len(words))),
            "genre": GenreField(genre),
            "metadata": MetadataField(metadata),
        }
        if clusters is not None:
            kept = [cluster for cluster in clusters if len(cluster) > 1]
            metadata["clusters"] = kept
            mentions = [
                (*mention, number) for number, cluster in enumerate(kept) for mention in cluster
            ]
            fields["mentions"] = TensorField(
                torch.tensor(mentions, dtype=torch.long).view(-1, 3), padding_value=-1
            )
        return Instance(fields)

    def _records(self, file_path: FileName) -> Iterator[Tuple[str, Conll2012Document]]:
        has_mentions = False
        for document in read_conll_2012(file_path):
            has_mentions = has_mentions or any(
                set(sentence.last_column()) != {_NO_BRACKETS} for sentence in document.unsplit
            )
            yield document.place.of_token(0), document
        if not has_mentions:
            raise ConfigurationError(
                f"{file_path}: found no mention in any document, expected brackets such as (12|(3)|4) in the "
                "last column, coreference. Give files with coreference; documents without, to predict on, "
                'are given as JSON, {"sentences": [["A", "word"], ...]}.'
            )

    def _instances(self, record: Conll2012Document, counts: Counter) -> Iterable[Instance]:
        sentences = record.sentences()
        name = record.place.document
        genre, slash, _ = name.partition("/")
        clusters = read_clusters(sentences)
        instance = self.text_to_instance(
            [[Token(_PLAIN.get(word, word)) for word in sentence.words] for sentence in sentences],
            clusters,
            [speaker for sentence in sentences for speaker in sentence.speakers],
            genre if slash else None,
            name,
        )
        num_singletons = sum(len(cluster) == 1 for cluster in clusters)
        if num_singletons:
            counts["clusters of one mention left out"] += num_singletons
        yield instance


def _speaker_ids(speakers: Iterable[str]) -> torch.Tensor:  # (num_words)
    ids: Dict[str, int] = {_UNKNOWN_SPEAKER: 0}
    return torch.tensor([ids.setdefault(speaker, len(ids)) for speaker in speakers])


@Predictor.register("elmo_coref")
class CoreferencePredictor(TaskPredictor):
    """
    Predicts from `{"document": "Mary Smith slept. She was tired."}`, which `SentenceSplitter` splits into
    sentences, or from `{"sentences": [["Mary", "slept", "."], ["She", ...]]}`. Both can have a `"genre":
    "bc"`, if the model was trained on documents with genres. Speakers are unknown, so a model that was
    trained on speakers answers differently than in its evaluation. The output has

    - `words`, the tokens of the whole document;
    - `clusters`, for each entity with several mentions the list of them, each as `[start,
      end]`: the tokens of `words` from `start` to `end`, exclusive;
    - `mentions`, all of them in the order of the document, with `cluster` (counted from 1, in the order
      of `clusters`) and `described_span`;
    - `marked`, the words with mentions in brackets: `[1 Mary Smith] slept . [1 She] was tired .`.
    """

    example = (
        '{"document": "Mary Smith slept. She was tired."} or '
        '{"sentences": [["Mary", "slept", "."], ["She", "snored", "."]]}'
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sentence_splitter = SentenceSplitter()

    def predict(self, document: str) -> JsonDict:
        """Return the answer for a document."""
        return self.predict_json({"document": document})

    def instances_from_json(self, inputs: JsonDict) -> List[Instance]:
        key = find_key(inputs, ("document", "sentences"), self.example)
        genre = get_text(inputs, "genre", self.example) if "genre" in inputs else None
        is_text = key == "document"
        sentences = self._split(inputs) if is_text else self._get_sentences(inputs)
        instance = self._dataset_reader.text_to_instance(sentences, genre=genre)
        if is_text:
            metadata = instance["metadata"].metadata
            metadata["document"] = inputs[key]
            metadata["character_offsets"] = character_offsets(list(chain.from_iterable(sentences)))
        return [instance]

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        [instance], [output] = instances, outputs
        metadata = instance["metadata"].metadata
        words, clusters = output["words"], output["clusters"]
        mentions = [
            (start, end, number)
            for number, cluster in enumerate(clusters, start=1)
            for start, end in cluster
        ]
        mentions.sort(key=lambda mention: (mention[0], -mention[1]))
        return {
            "words": words,
            "clusters": clusters,
            "mentions": [
                {"cluster": number, **described_span(metadata, start, end)}
                for start, end, number in mentions
            ],
            "marked": bracketed(words, mentions),
        }

    def _split(self, inputs: JsonDict) -> List[List[Token]]:
        document = get_text(inputs, "document", self.example)
        sentences = []
        for first_character, sentence in self._sentence_splitter.split(document):
            tokens = self.tokenizer.tokenize(sentence)
            if tokens:
                sentences.append([_moved(token, first_character) for token in tokens])
        return sentences

    def _get_sentences(self, inputs: JsonDict) -> List[List[Token]]:
        sentences = inputs["sentences"]
        if not isinstance(sentences, list) or not sentences:
            raise ConfigurationError(
                f"'sentences' is {shown_json(sentences)}, expected a list of sentences that is not empty, "
                f"each of them a list of words, as in {self.example}"
            )
        named = {f"sentences[{index}]": words for index, words in enumerate(sentences)}
        return [[Token(word) for word in get_words(named, key, self.example)] for key in named]


def _moved(token: Token, num_characters: int) -> Token:
    """Return a copy of a sentence's token, with its offsets in the document."""
    if token.idx is None:
        return token
    end = None if token.idx_end is None else token.idx_end + num_characters
    return Token(token.text, idx=token.idx + num_characters, idx_end=end)


class SentenceSplitter:
    """
    Splits English text into sentences by rules: at blank lines, and where spaCy's `sentencizer` does, after
    full stops, question marks and exclamation marks that are separate tokens. Nothing is downloaded.
    """

    def __init__(self) -> None:
        self._rules = SpacyRules("en", "sentencizer")

    def split(self, text: str) -> Iterator[Tuple[int, str]]:
        """
        Yield each sentence that is not only white space, with the index of its first character in `text`.
        """
        for paragraph in _PARAGRAPH.finditer(text):
            for sentence in self._rules.pipeline()(paragraph[0]).sents:
                if sentence.text.strip():
                    yield paragraph.start() + sentence.start_char, sentence.text
