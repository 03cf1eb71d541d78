"""Find which words of a document name the same person or thing."""

import re
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

import spacy
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader, Field, Instance
from allennlp.data.tokenizers import Token, Tokenizer
from allennlp.models import Model
from allennlp.predictors import Predictor

from elmo_plugin.tasks.coref.reader import mention_field
from elmo_plugin.tasks.json_input import dump_json_line, find_key, get_text, get_words
from elmo_plugin.tasks.predicting import TaskPredictor, bracketed, span_text
from elmo_plugin.tasks.reading import character_offsets

EXAMPLE = (
    '{"document": "Mary Smith slept. She was tired."} or '
    '{"sentences": [["Mary", "slept", "."], ["She", "snored", "."]]}'
)

_PARAGRAPH_BREAK = re.compile(r"\n[^\S\n]*\n")


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
        metadata.update(character_offsets([token for tokens in sentences for token in tokens]))
        return [instance]

    def readable_output(self, instances: List[Instance], outputs: List[JsonDict]) -> JsonDict:
        [instance], [output] = instances, outputs
        metadata = instance["metadata"].metadata
        words, clusters = output["words"], output["clusters"]
        mentions = sorted(
            (
                (start, end, number)
                for number, cluster in enumerate(clusters, start=1)
                for start, end in cluster
            ),
            key=lambda mention: (mention[0], -mention[1]),
        )
        readable = {
            "words": words,
            "clusters": clusters,
            "mentions": [
                {
                    "cluster": number,
                    "start": start,
                    "end": end,
                    **span_text(metadata, start, end, "document"),
                }
                for start, end, number in mentions
            ],
            "marked": bracketed(
                words, [(start, end, str(number)) for start, end, number in mentions]
            ),
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


class SentenceSplitter:
    """
    Splits English text into sentences by rule: at blank lines, and where spaCy's `sentencizer` does, after
    full stops, question and exclamation marks that are tokens of their own. Nothing is downloaded.
    """

    def __init__(self) -> None:
        self._pipeline = spacy.blank("en")
        self._pipeline.add_pipe("sentencizer")

    def split(self, text: str) -> Iterator[Tuple[int, str]]:
        """Each sentence with its first character in `text`. There are none of white space alone."""
        start = 0
        for end in [*(match.start() for match in _PARAGRAPH_BREAK.finditer(text)), len(text)]:
            yield from self._split_paragraph(text, start, end)
            start = end

    def _split_paragraph(self, text: str, start: int, end: int) -> Iterator[Tuple[int, str]]:
        # spaCy refuses longer texts, for the memory of pipes that this pipeline has not.
        self._pipeline.max_length = max(self._pipeline.max_length, end - start)
        for sentence in self._pipeline(text[start:end]).sents:
            if sentence.text.strip():
                yield start + sentence.start_char, sentence.text
