"""Which tokenizer a predictor uses on the sentences that it is given."""

from typing import Any, Dict, Optional, Union

import spacy
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data.tokenizers import SpacyTokenizer, Tokenizer

from elmo_plugin.tasks.rule_based_tokenizer import RuleBasedTokenizer


def build_sentence_tokenizer(
    tokenizer: Optional[Union[Tokenizer, Dict[str, Any]]] = None,
    spacy_model: Optional[str] = None,
) -> Tokenizer:
    """
    The tokenizer that a predictor's arguments ask for; `RuleBasedTokenizer` if they ask for none.

    # Parameters

    tokenizer : `Tokenizer` or `dict`, optional
        A tokenizer, or the configuration of one: `allennlp predict --predictor-args` hands its JSON
        to the predictor as it is.
    spacy_model : `str`, optional
        Name or folder of a spaCy model on this machine whose own tokenizer is wanted.

    # Raises

    `ConfigurationError` if both are given, or the model is not on this machine. It is never
    downloaded.
    """
    if tokenizer is not None and spacy_model is not None:
        raise ConfigurationError(
            f"tokenizer and spacy_model ('{spacy_model}') are both given, expected at most one. "
            "Leave one of them out."
        )
    if spacy_model is not None:
        return _load_spacy_tokenizer(spacy_model)
    if isinstance(tokenizer, dict):
        # A copy, since building from `Params` empties them.
        return Tokenizer.from_params(Params(dict(tokenizer)))
    return tokenizer or RuleBasedTokenizer()


def _load_spacy_tokenizer(spacy_model: str) -> Tokenizer:
    try:
        # AllenNLP's tokenizer would answer a missing model by downloading it.
        spacy.load(spacy_model)
    except OSError as error:
        raise ConfigurationError(
            f"spacy_model is '{spacy_model}', expected a spaCy model on this machine. Run "
            f"`python -m spacy download {spacy_model}`, or leave spacy_model out for spaCy's rules."
        ) from error
    return SpacyTokenizer(spacy_model, pos_tags=False)
