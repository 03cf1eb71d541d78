"""A passage with its tokens, and where in the text each of them stands."""

from bisect import bisect_left, bisect_right
from typing import List, NamedTuple, Optional, Tuple

from allennlp.common.checks import ConfigurationError
from allennlp.data.fields import TextField
from allennlp.data.tokenizers import Tokenizer


class TokenizedPassage(NamedTuple):
    """
    # Parameters

    text : `str`
        As it was given.
    field : `TextField`
        The tokens, to be shared by all questions about the passage.
    offsets : `List[Tuple[int, int]]`
        Of each token, its first character in the text, and the one after its last.
    """

    text: str
    field: TextField
    offsets: List[Tuple[int, int]]

    @classmethod
    def from_text(
        cls, text: str, tokenizer: Tokenizer, max_tokens: Optional[int] = None
    ) -> "TokenizedPassage":
        """
        # Parameters

        text : `str`
        tokenizer : `Tokenizer`
            One that says where in the text its tokens stand.
        max_tokens : `int`, optional
            Tokens beyond these are dropped.

        # Raises

        `ConfigurationError` if there are no tokens, or the tokenizer does not say where they stand.
        """
        tokens = tokenizer.tokenize(text)
        offsets = []
        for token in tokens:
            if token.idx is None:
                raise ConfigurationError(
                    f"The tokenizer {type(tokenizer).__name__} does not say where in the passage the token "
                    f"'{token.text}' stands, expected a character offset for each token: answers are cut "
                    "from the passage. Use another tokenizer, such as elmo_rule_based."
                )
            end = token.idx + len(token.ensure_text()) if token.idx_end is None else token.idx_end
            offsets.append((token.idx, end))
        if not tokens:
            raise ConfigurationError("Found a passage without tokens, expected at least one token.")
        return cls(text, TextField(tokens[:max_tokens]), offsets[:max_tokens])

    def covering_tokens(self, start: int, end: int) -> Optional[Tuple[int, int]]:
        """
        The first and the last token of the fewest that cover characters `start` to `end` (exclusive), but
        for white space. `None` if there are no such tokens.
        """
        first = bisect_right([token_end for _, token_end in self.offsets], start)
        last = bisect_left([token_start for token_start, _ in self.offsets], end) - 1
        covered = self.text[self.offsets[last][1] : end] if first <= last else self.text[start:end]
        # Text that is left over stands behind the last token that was kept.
        return None if covered.strip() else (first, last)

    def characters_of(self, first: int, last: int) -> Tuple[int, int]:
        """The first character of a span of tokens, and the one after its last."""
        return self.offsets[first][0], self.offsets[last][1]
