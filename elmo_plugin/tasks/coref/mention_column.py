"""The coreference column of CoNLL-2012: where mentions begin and end, and of which entity."""

import re
from typing import Dict, List, NamedTuple, Sequence

from allennlp.common.checks import ConfigurationError

from elmo_plugin.tasks.conll_file import SentencePlace

# `(12` opens a mention of entity 12, `12)` closes one, `(12)` is one of a single token.
_BRACKET = re.compile(r"(?P<opens>\()?(?P<entity>\d+)(?P<closes>\))?")
_NO_BRACKETS = "-"
_MAX_SHOWN = 60  # characters of a wrong entry that an error repeats


class EntityMention(NamedTuple):
    """A mention: tokens `start` to `end`, exclusive, of a sentence; and the entity that it names."""

    start: int
    end: int
    entity: str


def read_mentions(
    column: Sequence[str], place: SentencePlace, document_name: str
) -> List[EntityMention]:
    """
    The mentions of a sentence, in the order in which they begin, longer ones first.

    Mentions may nest and cross. Where two mentions of one entity are open, a bracket closes the one
    that was opened last.

    # Parameters

    column : `Sequence[str]`
        One entry for each token, such as `-`, `(12`, or `(12|(3)|4)`.
    place : `SentencePlace`
        Where the sentence stands, to be named in errors.
    document_name : `str`
        The document, to be named in errors.

    # Raises

    `ConfigurationError` naming line and document, if an entry holds something else than brackets, or
    brackets do not match.
    """

    def fault(index: int, found: str, expected: str) -> ConfigurationError:
        return ConfigurationError(
            f"{place.of_token(index)}, document {document_name}: found {found}, expected {expected}. "
            "Correct the coreference column, the last one."
        )

    mentions: List[EntityMention] = []
    starts_of: Dict[str, List[int]] = {}  # of the open mentions of an entity
    for index, entry in enumerate(column):
        if entry == _NO_BRACKETS:
            continue
        for piece in entry.split("|"):
            match = _BRACKET.fullmatch(piece)
            if match is None or not (match["opens"] or match["closes"]):
                raise fault(
                    index,
                    f"'{entry[:_MAX_SHOWN]}' in the coreference column",
                    "- or brackets such as (12|(3)|4)",
                )
            entity = match["entity"]
            if match["opens"]:
                starts_of.setdefault(entity, []).append(index)
            if match["closes"]:
                if not starts_of.get(entity):
                    raise fault(
                        index,
                        f"the closing bracket '{piece}'",
                        f"that a mention of {entity} was opened before in the sentence",
                    )
                mentions.append(EntityMention(starts_of[entity].pop(), index + 1, entity))
    for entity, starts in starts_of.items():
        if starts:
            raise fault(
                starts[-1],
                f"the opening bracket '({entity}' without a closing one",
                f"'{entity})' on the same or a later token of the sentence",
            )
    return sorted(mentions, key=lambda mention: (mention.start, -mention.end))
