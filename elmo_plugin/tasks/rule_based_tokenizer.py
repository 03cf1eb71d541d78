"""spaCy's rules for splitting text into tokens, without a spaCy model."""

from typing import Any, Dict, List

import spacy
from allennlp.common.checks import ConfigurationError
from allennlp.data.tokenizers import Token, Tokenizer


@Tokenizer.register("elmo_rule_based")
class RuleBasedTokenizer(Tokenizer):
    """
    Splits text by the rules of spaCy's language class, `spacy.blank(language)`. Nothing is
    downloaded, and tags and parses are not computed.

    Registered as a `Tokenizer` with name `elmo_rule_based`.

    # Parameters

    language : `str`, optional (default = `"en"`)
        spaCy's code of a language, for instance `de`; `xx` has rules for any language. This is no
        name of a spaCy model.

    # Raises

    `ConfigurationError` if spaCy has no such language, or needs another package for it.
    """

    def __init__(self, language: str = "en") -> None:
        super().__init__()
        self._language = language
        try:
            # Only the tokenizer: the pipeline around it refuses texts of over a million characters.
            self._spacy_tokenizer = spacy.blank(language).tokenizer
        except ImportError as error:
            raise ConfigurationError(
                f"language is '{language}', expected the code of a language that spaCy can "
                f"tokenize here, such as en, de or xx. spaCy says: {error}"
            ) from error

    def tokenize(self, text: str) -> List[Token]:
        """
        Tokens of `text` in order, each with `idx` and `idx_end`, its first character in `text` and
        the one after its last. There are no tokens for white space.
        """
        return [
            Token(token.text, idx=token.idx, idx_end=token.idx + len(token.text))
            for token in self._spacy_tokenizer(text)
            if not token.is_space
        ]

    def _to_params(self) -> Dict[str, Any]:
        return {"type": "elmo_rule_based", "language": self._language}
