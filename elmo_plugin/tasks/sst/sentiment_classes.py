"""The classes that sentiment is sorted into."""

from typing import Dict, Optional, Tuple

from allennlp.common.checks import ConfigurationError

# From negative to positive. No blanks: they are a part of metrics' names.
CLASSES: Dict[str, Tuple[str, ...]] = {
    "5-class": ("very_negative", "negative", "neutral", "positive", "very_positive"),
    "2-class": ("negative", "positive"),
}
_NEUTRAL = 2


def check_granularity(granularity: str) -> None:
    """Raises `ConfigurationError` if there are no such classes."""
    if granularity not in CLASSES:
        raise ConfigurationError(
            f"granularity is '{granularity}', expected one of: {', '.join(CLASSES)}."
        )


def class_of(label: int, granularity: str) -> Optional[str]:
    """The class of a label of the treebank, 0 to 4; `None` if it has none, as neutral of 2 classes."""
    classes = CLASSES[granularity]
    if granularity == "5-class":
        return classes[label]
    if label == _NEUTRAL:
        return None
    return classes[label > _NEUTRAL]
