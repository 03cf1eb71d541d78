"""Where the sentences of a text are."""

import re
from typing import Iterator, Tuple

import spacy

_PARAGRAPH_BREAK = re.compile(r"\n[^\S\n]*\n")


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
