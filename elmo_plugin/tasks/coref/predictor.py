"""Find the words of a document that refer to the same person or thing."""

import re
from typing import Any, Iterator, List, Tuple

import spacy
from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.data.tokenizers import Token
from allennlp.predictors import Predictor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import find_key, get_text, get_words, shown_json
from elmo_plugin.tasks.predicting import TaskPredictor, bracketed, described_span
from elmo_plugin.tasks.reading import character_offsets

_PARAGRAPH_BREAK = re.compile(r"\n[^\S\n]*\n")


@Predictor.register("elmo_coref")
class CoreferencePredictor(TaskPredictor):
    """
    Predicts from `{"document": "Mary Smith slept. She was tired."}`, which `SentenceSplitter` splits into
    sentences, or from `{"sentences": [["Mary", "slept", "."], ["She", ...]]}`. Both can have a `"genre":
    "bc"`, if the model was trained on documents with genres. The output has

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

    def instances_from_json(self, inputs: JsonDict) -> List[Instance]:
        key = find_key(inputs, ("document", "sentences"), self.example)
        genre = get_text(inputs, "genre", self.example) if "genre" in inputs else None
        if key == "sentences":
            return [self._dataset_reader.text_to_instance(self._get_sentences(inputs), genre=genre)]
        document = get_text(inputs, key, self.example)
        sentences = []
        for first_character, sentence in self._sentence_splitter.split(document):
            tokens = self.tokenizer.tokenize(sentence)
            if tokens:
                sentences.append([_moved(token, first_character) for token in tokens])
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
        return {
            "words": words,
            "clusters": clusters,
            "mentions": [
                {"cluster": number, **described_span(metadata, start, end)}
                for start, end, number in mentions
            ],
            "marked": bracketed(
                words, [(start, end, str(number)) for start, end, number in mentions]
            ),
        }

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
    return Token(token.text, idx=token.idx + num_characters)


class SentenceSplitter:
    """
    Splits English text into sentences by rules: at blank lines, and where spaCy's `sentencizer` does, after
    full stops, question marks and exclamation marks that are separate tokens. Nothing is downloaded.
    """

    def __init__(self) -> None:
        self._pipeline = spacy.blank("en")
        self._pipeline.add_pipe("sentencizer")

    def split(self, text: str) -> Iterator[Tuple[int, str]]:
        """
        Yield each sentence that is not only white space, with the index of its first character in `text`.
        """
        start = 0
        for end in [*(match.start() for match in _PARAGRAPH_BREAK.finditer(text)), len(text)]:
            # spaCy refuses longer texts because of pipes that need much memory, but this one has none.
            self._pipeline.max_length = max(self._pipeline.max_length, end - start)
            for sentence in self._pipeline(text[start:end]).sents:
                if sentence.text.strip():
                    yield start + sentence.start_char, sentence.text
            start = end
