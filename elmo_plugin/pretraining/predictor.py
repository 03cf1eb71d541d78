"""Score sentences, and find words for blanks, with the model of a pretraining run."""

from typing import List, Sequence, Union

from allennlp.common.util import JsonDict
from allennlp.data import Instance
from allennlp.predictors import Predictor

from elmo_plugin.bilm.lm_vocabulary import LMVocabulary
from elmo_plugin.embedding.scoring import SentenceScorer
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import (
    LinePredictor,
    find_key,
    get_text,
    get_words,
    parse_json_object,
    shown_json,
)
from elmo_plugin.files.text import split_tokens
from elmo_plugin.pretraining.corpus import BiLMReader, predicted_words
from elmo_plugin.pretraining.model import BiLMTrainingModel

EXAMPLE = '{"sentence": "The cat sat ."} or {"tokens": ["The", "___", "sat", "."], "best": 5}'


@Predictor.register("elmo_bilm")
class BiLMPredictor(LinePredictor, Predictor):
    """
    Does what `elmo score --words` and `elmo score --best` do, a sentence at a time.

    The input is `{"sentence": ...}`, tokens separated by white space, or `{"tokens": [...]}`. The answer has
    the probabilities of the sentence and of its words, see `SentenceScore.as_json`. With `"best": K` the
    sentence holds one token `___`, and the answer has the K words that fit it best, see `WordForBlank`.
    """

    def __init__(
        self, model: BiLMTrainingModel, dataset_reader: BiLMReader, frozen: bool = True
    ) -> None:
        super().__init__(model, dataset_reader, frozen)
        vocabulary = LMVocabulary(predicted_words(model.vocab))
        self._scorer = SentenceScorer(model.bilm.freeze(), model.softmax.exact(), vocabulary)

    def answers_or_errors(
        self, inputs: Sequence[Union[JsonDict, str]]
    ) -> List[Union[JsonDict, ConfigurationError]]:
        answers: List[Union[JsonDict, ConfigurationError]] = []
        for one_input in inputs:
            try:
                answers.append(self._answer(parse_json_object(one_input, EXAMPLE)))
            except ConfigurationError as error:
                answers.append(error)
        return answers

    def _answer(self, inputs: JsonDict) -> JsonDict:
        if find_key(inputs, ("sentence", "tokens"), EXAMPLE) == "tokens":
            tokens = get_words(inputs, "tokens", EXAMPLE)
        else:
            tokens = split_tokens(get_text(inputs, "sentence", EXAMPLE))
        if "best" not in inputs:
            return self._scorer.score_sentence(tokens).as_json(with_words=True)
        number = inputs["best"]
        if type(number) is not int or number < 1:  # bool is a subclass of int
            raise ConfigurationError(
                f"'best' is {shown_json(number)}, expected a positive whole number, as in {EXAMPLE}"
            )
        best = self._scorer.best_words(tokens, number)
        return {"tokens": tokens, "best": [word._asdict() for word in best]}

    def predict_instance(self, instance: Instance) -> JsonDict:
        # Instances hold no words that an answer could name.
        raise ConfigurationError(
            "--use-dataset-reader: the predictor elmo_bilm reads JSON lines only, such as "
            f"{EXAMPLE}. Leave it out, or use `allennlp evaluate` for the perplexity of text."
        )

    def predict_batch_instance(self, instances: List[Instance]) -> List[JsonDict]:
        return [self.predict_instance(instance) for instance in instances]
