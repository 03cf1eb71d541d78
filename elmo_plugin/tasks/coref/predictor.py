"""Finds which words of a document name the same person or thing."""

from typing import Any, Dict, List, Optional, Sequence, Union

from allennlp.common.checks import ConfigurationError
from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader, Field, Instance
from allennlp.data.tokenizers import Token, Tokenizer
from allennlp.models import Model
from allennlp.predictors import Predictor

from elmo_plugin.tasks.coref.reader import mention_field
from elmo_plugin.tasks.coref.sentence_splitter import SentenceSplitter
from elmo_plugin.tasks.json_input import dump_json_line, find_key, get_text, get_words
from elmo_plugin.tasks.task_predictor import TaskPredictor

EXAMPLE = (
    '{"document": "Mary Smith slept. She was tired."} or '
    '{"sentences": [["Mary", "slept", "."], ["She", "snored", "."]]}'
)


@Predictor.register("elmo_coref")
class CoreferencePredictor(TaskPredictor):
    """
    Predicts from `{"document": "Mary Smith slept. She was tired."}`, which is split into sentences by rule,
    see `SentenceSplitter`, or from `{"sentences": [["Mary", "slept", "."], ["She", ...]]}`. `"genre": "bc"`
    may stand beside either, if the model was trained on documents with genres. The output has

    - `words`, the tokens of the whole document;
    - `clusters`, for each entity that is named more than once the list of its mentions, each as `[start,
      end]`: the tokens of `words` from `start` to `end`, exclusive;
    - `mentions`, all of them in the order of the document, with `cluster` (from 1 on, in the order of
      `clusters`), `start`, `end`, and `text`;
    - `marked`, the words with mentions in brackets: `[1 Mary Smith] slept . [1 She] was tired .`;
    - for a text also `document` as given, and in each mention `start_char`, `end_char` (characters of
      `document`, `end_char` exclusive), if the tokenizer knows where tokens stand.

    Registered as a `Predictor` with name `elmo_coref`; its arguments are those of `TaskPredictor`.
    """

    example = EXAMPLE

    def __init__(
        self,
        model: Model,
        dataset_reader: DatasetReader,
        frozen: bool = True,
        tokenizer: Optional[Union[Tokenizer, Dict[str, Any]]] = None,
        spacy_model: Optional[str] = None,
    ) -> None:
        super().__init__(model, dataset_reader, frozen, tokenizer, spacy_model)
        self._sentence_splitter = SentenceSplitter()

    def predict_document(self, document: str) -> JsonDict:
        """The entities of a text."""
        return self.predict_json({"document": document})

    def predict_sentences(self, sentences: List[List[str]]) -> JsonDict:
        """The entities of a text that is split into sentences and tokens."""
        return self.predict_json({"sentences": sentences})

    def instances_from_json(self, inputs: JsonDict) -> List[Instance]:
        key = find_key(inputs, ("document", "sentences"), EXAMPLE)
        genre = get_text(inputs, "genre", EXAMPLE) if "genre" in inputs else None
        if key == "sentences":
            sentences = [
                [Token(word) for word in words] for words in _get_sentences(inputs["sentences"])
            ]
            return [self._dataset_reader.text_to_instance(sentences, genre=genre)]
        document = get_text(inputs, key, EXAMPLE)
        sentences = []
        for first_character, sentence in self._sentence_splitter.split(document):
            tokens = self._tokenizer.tokenize(sentence)
            if tokens:
                sentences.append([_moved(token, first_character) for token in tokens])
        if not sentences:
            raise ConfigurationError(
                f"'document' is {document[:100]!r}, in which the tokenizer finds no token, expected text "
                f"as in {EXAMPLE}"
            )
        instance = self._dataset_reader.text_to_instance(sentences, genre=genre)
        metadata = instance["metadata"].metadata
        metadata["document"] = document
        tokens = [token for sentence in sentences for token in sentence]
        if all(token.idx is not None for token in tokens):
            metadata["character_offsets"] = [
                (token.idx, token.idx + len(token.text)) for token in tokens
            ]
        return [instance]

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        [instance], [output] = instances, outputs
        metadata = instance["metadata"].metadata
        words, clusters = output["words"], output["clusters"]
        mentions = sorted(
            (
                {"cluster": number, "start": start, "end": end}
                for number, cluster in enumerate(clusters, start=1)
                for start, end in cluster
            ),
            key=lambda mention: (mention["start"], -mention["end"]),
        )
        readable = {
            "words": words,
            "clusters": clusters,
            "mentions": [{**mention, **_describe(mention, metadata)} for mention in mentions],
            "marked": _mark_mentions(words, mentions),
        }
        if "document" in metadata:
            readable["document"] = metadata["document"]
        return readable

    def predicted_labels(self, instance: Instance, output: Dict[str, Any]) -> Dict[str, Field]:
        return {"mentions": mention_field(output["clusters"])}


def _get_sentences(sentences: Any) -> List[List[str]]:
    if not isinstance(sentences, list) or not sentences:
        shown = dump_json_line({"sentences": sentences}).strip()[:100]
        raise ConfigurationError(
            f"Found {shown}, expected a list of sentences that is not empty, each of them a list of "
            f"words, as in {EXAMPLE}"
        )
    return [
        get_words({f"sentences[{index}]": words}, f"sentences[{index}]", EXAMPLE)
        for index, words in enumerate(sentences)
    ]


def _moved(token: Token, num_characters: int) -> Token:
    """A token of a sentence as one of the document."""
    if token.idx is None:
        return token
    return Token(token.text, idx=token.idx + num_characters)


def _describe(mention: JsonDict, metadata: Dict[str, Any]) -> JsonDict:
    start, end = mention["start"], mention["end"]
    if "character_offsets" not in metadata:
        return {"text": " ".join(metadata["words"][start:end])}
    start_char, _ = metadata["character_offsets"][start]
    _, end_char = metadata["character_offsets"][end - 1]
    # As it is written, which need not be with one space between tokens.
    text = metadata["document"][start_char:end_char]
    return {"text": text, "start_char": start_char, "end_char": end_char}


def _mark_mentions(words: Sequence[str], mentions: List[JsonDict]) -> str:
    """Mentions come with outer ones before inner ones, and do not cross."""
    pieces = list(words)
    # The innermost first, so that brackets of outer ones stand outside.
    for mention in reversed(mentions):
        start, end = mention["start"], mention["end"]
        pieces[start] = f"[{mention['cluster']} {pieces[start]}"
        pieces[end - 1] += "]"
    return " ".join(pieces)
