"""
What answers requests: trained task models, as `elmo predict` does, and occurrences of words in context, as
`elmo neighbors` finds them.
"""

import json
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Dict, List, Literal, Optional, Sequence, Union

from allennlp.common.util import JsonDict
from allennlp.predictors import Predictor
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from elmo_plugin.bilm.model_files import archive_path, is_task_model
from elmo_plugin.compat.archives import keep_only_snapshots, opened_archive
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.layers import TOP_LAYER, check_layer
from elmo_plugin.embedding.neighbors import (
    Neighbor,
    Occurrence,
    embed_occurrences,
    find_occurrences,
    nearest_occurrences,
)
from elmo_plugin.embedding.sentences import Sentence, tokenizer_of
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import shown_json
from elmo_plugin.files.text import FileName
from elmo_plugin.serving.options import MAX_SRL_TOKENS, Limits
from elmo_plugin.serving.requests import RequestError, check_length
from elmo_plugin.tasks.predicting import TaskPredictor

TASKS = ("elmo_ner", "elmo_srl", "elmo_coref", "elmo_squad", "elmo_snli", "elmo_sst")


class ModelDescription(BaseModel):
    """A task model, and what it expects."""

    name: str
    task: str
    example: Dict[str, Any] = Field(description="a valid input")
    finds_predicates: bool = Field(
        description="semantic roles only: whether an input can omit the indices of its predicates"
    )
    has_card: bool = Field(description="whether there is a card at /api/models/NAME/card")
    name_in_package: Optional[str] = Field(
        description="its name among the task models of this package; null for other models"
    )


class ModelCard(BaseModel):
    """The card of a model."""

    card: str = Field(description="Markdown, without the config of the model")


class ServedModel:
    """
    A model and its predictor, which has a name in URLs. The arguments are those of `opened_archive`.

    # Raises

    `ConfigurationError` if the archive cannot be loaded, and if its model is not of one of the six tasks.
    """

    def __init__(
        self, name: str, archive_file: FileName, limits: Limits, cuda_device: int = -1
    ) -> None:
        archive = opened_archive(archive_file, cuda_device=cuda_device)
        self.task = str(archive.model.default_predictor)
        if self.task not in TASKS:
            raise ConfigurationError(
                f"{archive_file}: the model is of class {type(archive.model).__name__}, expected one of "
                f"{', '.join(TASKS)}. Give the archive of a task model of this package."
            )
        keep_only_snapshots(archive.model)
        self.name = name
        self.card = _card_of(archive_file)
        self._name_in_package = str(archive_file) if is_task_model(archive_file) else None
        self._predictor: TaskPredictor = Predictor.from_archive(archive, self.task)
        if self.task == "elmo_srl":
            limits = replace(limits, max_tokens=min(limits.max_tokens, MAX_SRL_TOKENS))
        self._limits = limits

    @property
    def example(self) -> str:
        """Valid inputs, as errors show them."""
        return self._predictor.example

    def description(self) -> ModelDescription:
        """Describe the model to clients."""
        first_example, _ = json.JSONDecoder().raw_decode(self.example)
        return ModelDescription(
            name=self.name,
            task=self.task,
            example=first_example,
            finds_predicates=getattr(self._predictor._model, "predicate_finder", None) is not None,
            has_card=bool(self.card),
            name_in_package=self._name_in_package,
        )

    def answers(self, batch: Sequence[JsonDict]) -> List[Union[JsonDict, Exception]]:
        """
        Return the answer to each input, predicted together, or the error that says why it is too long or
        invalid.
        """
        errors = [self._length_error(inputs) for inputs in batch]
        accepted = [inputs for inputs, error in zip(batch, errors) if error is None]
        answers = iter(self._predictor.answers_or_errors(accepted))
        return [next(answers) if error is None else error for error in errors]

    def _length_error(self, inputs: JsonDict) -> Optional[RequestError]:
        try:
            for key, value in inputs.items():
                check_length(f"'{key}'", value, self._predictor.tokenizer.tokenize, self._limits)
        except RequestError as error:
            return error
        return None


def _card_of(archive_file: FileName) -> str:
    """Return the card that `elmo export` writes in the folder of a model; an empty text if there is none."""
    path = Path(archive_path(archive_file)) / "README.md"
    if not path.exists():
        return ""
    # Without the head in YAML, which is for programs.
    head = re.compile(r"\A---\n.*?^---\n", re.DOTALL | re.MULTILINE)
    return head.sub("", path.read_text("utf-8", errors="replace")).strip()


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]

EXAMPLE: Dict[str, Any] = {"word": "bank", "sentence": "They sat on the river bank."}


class WordRequest(BaseModel):
    """A word in a sentence, and the sentences whose occurrences of the word are compared with it."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": EXAMPLE})

    word: Text = Field(
        description="A token of the sentence, in upper or lower case. Its first occurrence counts."
    )
    sentence: Text = Field(description="Split into tokens by spaCy's rules for English.")
    sentences: Optional[List[Text]] = Field(
        default=None,
        min_length=1,
        description="What to compare with; by default the sentences that come with the package.",
    )
    layer: Union[int, Literal["average"]] = Field(
        default=TOP_LAYER,
        description="0: the token representation, which does not depend on the context; 1, 2, ...: LSTM "
        "layers; -1: the last one; average: the average of all.",
    )


class SimilarWord(BaseModel):
    """An occurrence of the word, and its similarity to that of the request."""

    sentence: str
    start_char: int = Field(description="in Unicode characters, not in units of UTF-16 or bytes")
    end_char: int = Field(description="exclusive")
    similarity: float = Field(description="cosine, from -1 to 1")


class WordAnswer(BaseModel):
    """The nearest occurrences."""

    neighbors: List[SimilarWord] = Field(description="the nearest first")


class WordsDescription(BaseModel):
    """The biLM that compares words, and the sentences that come with the package."""

    bilm: str
    num_layers: int
    sentences: List[str]


class WordsInContext:
    """Compares occurrences of words by their vectors in context. The name is that of the embedder's biLM."""

    def __init__(self, name: str, embedder: ElmoEmbedder, limits: Limits) -> None:
        self._name = name
        self._embedder = embedder
        self._limits = limits
        self._tokenize = tokenizer_of("spacy")
        text = resources.files("elmo_plugin.serving").joinpath("sentences.txt").read_text("utf-8")
        self._sentences = text.splitlines()

    def description(self) -> WordsDescription:
        """Describe the biLM to clients."""
        return WordsDescription(
            bilm=self._name, num_layers=self._embedder.num_layers, sentences=self._sentences
        )

    def answer(self, request: WordRequest) -> WordAnswer:
        """Return the answer to a request. Raise `ConfigurationError` if it is too long or invalid."""
        word, layer = request.word, request.layer
        check_layer(layer, self._embedder.num_layers, "'layer'")
        check_length("'word'", word, self._tokenize, self._limits)
        if self._tokenize(word) != [word]:
            raise ConfigurationError(
                f"'word' is {shown_json(word)}, expected one token. Send a single word of the sentence."
            )
        sentences = self._sentences if request.sentences is None else request.sentences
        query = self._find(word, [request.sentence], "'sentence'")[0]
        others = self._find(word, sentences, "'sentences'")
        vectors = embed_occurrences(
            self._embedder, [query, *others], layer, show_progress=False
        )  # (1 + num_others, dim)
        nearest = nearest_occurrences(query, vectors[0], others, vectors[1:], top=len(others))
        return WordAnswer(neighbors=[_similar_word(neighbor, sentences) for neighbor in nearest])

    def _find(self, word: str, texts: Sequence[str], key: str) -> List[Occurrence]:
        sentences = []
        for index, text in enumerate(texts):
            if word.casefold() in text.casefold():  # most do not hold it, and need no tokens
                place = f"{key}[{index}]" if len(texts) > 1 else key
                check_length(place, text, self._tokenize, self._limits)
                sentences.append(Sentence(index, text, self._tokenize(text)))
        found = find_occurrences(sentences, word, key, ignore_case=True)
        if len(found.occurrences) < found.num_found:  # a sample
            raise RequestError(
                413,
                f"{key} has {found.num_found:,} occurrences of the word, expected at most "
                f"{len(found.occurrences):,}. Send it in parts.",
            )
        return found.occurrences


def _similar_word(neighbor: Neighbor, sentences: Sequence[str]) -> SimilarWord:
    (words, position, index), similarity = neighbor
    assert position is not None  # a word
    start = end = 0
    # spaCy's tokens are parts of the text.
    for word in words[: position + 1]:
        start = sentences[index].index(word, end)
        end = start + len(word)
    return SimilarWord(
        sentence=sentences[index], start_char=start, end_char=end, similarity=similarity
    )
