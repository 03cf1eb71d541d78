"""spaCy's rules of a language, without a trained model and in bounded memory."""

import sys
from typing import Any, List

# spaCy keeps each word that it has met, with about 400 bytes, as long as a pipeline lives.
MAX_WORDS = 200_000


class SpacyRules:
    """
    Holds `spacy.blank(language)`, for which nothing is downloaded, with components that are added by name. A
    pipeline that has met `MAX_WORDS` words is replaced: servers and corpora have no end of new words.

    # Raises

    `ImportError` if spaCy is not installed, or lacks what the language needs.
    """

    def __init__(self, language: str, *components: str) -> None:
        self._language = language
        self._components = components
        self._pipeline = self._new_pipeline()

    def pipeline(self) -> Any:
        """Return the pipeline, for one text."""
        if len(self._pipeline.vocab.strings) > MAX_WORDS:
            self._pipeline = self._new_pipeline()
        return self._pipeline

    def tokens(self, text: str) -> List[Any]:
        """Return the tokens of a text, as spaCy's, without those that are white space."""
        return [token for token in self.pipeline().tokenizer(text) if not token.is_space]

    def _new_pipeline(self) -> Any:
        import spacy

        pipeline = spacy.blank(self._language)
        for component in self._components:
            pipeline.add_pipe(component)
        # spaCy refuses texts over a limit because of components that need much memory: rules do not.
        pipeline.max_length = sys.maxsize
        return pipeline
