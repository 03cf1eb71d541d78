"""What the sentences that a user gives must look like, said where they do not."""

from typing import Iterable, List


def checked_tokens(sentence: Iterable[str], position: int) -> List[str]:
    """
    The tokens of a sentence as a list.

    # Parameters

    sentence : `Iterable[str]`
        Its tokens.
    position : `int`
        Where it stands in its batch or stream, from 0; for errors.

    # Raises

    `ValueError` for a string in place of tokens, and for a token that is no string or cannot be encoded as
    UTF-8.
    """
    if isinstance(sentence, (str, bytes)):
        raise ValueError(
            f"Sentence {position} is the string {sentence[:40]!r}, expected a list of tokens. Split it into "
            "tokens first."
        )
    try:
        tokens = list(sentence)
    except TypeError as error:
        raise ValueError(
            f"Sentence {position} is {sentence!r}, expected a list of tokens."
        ) from error
    try:
        "".join(tokens).encode()
    except (TypeError, UnicodeEncodeError):
        _raise_for_token(tokens, position)
    return tokens


def _raise_for_token(tokens: List[str], position: int) -> None:
    for index, token in enumerate(tokens):
        where = f"Token {index} of sentence {position} is {token!r}"
        if not isinstance(token, str):
            raise ValueError(f"{where}, of type {type(token).__name__}, expected a string.")
        try:
            token.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{where}, which cannot be encoded as UTF-8 ({error.reason}): text was read in another "
                "encoding. Read it in its own, or replace such characters."
            ) from error
