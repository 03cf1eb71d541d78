"""What a model finds in a text as HTML, by displaCy's renderers."""

import html
import re
import zlib
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

# Not `displacy.render`: it keeps its result in a global variable, by which threads would exchange texts.
from spacy.displacy.render import EntityRenderer, SpanRenderer

NUM_HUES = 8  # classes hue-0 to hue-7 of page.html
# So that the most frequent labels differ. Others have a hue by their spelling.
_HUES = {
    "PER": 0,
    "LOC": 1,
    "ORG": 2,
    "MISC": 3,
    "V": 4,
    "ARG0": 0,
    "ARG1": 1,
    "ARG2": 2,
    "ARGM-TMP": 3,
    "ARGM-LOC": 5,
    "ARGM-MNR": 6,
    "answer": 1,
}

# The page allows no style attributes, so templates have classes in place of displaCy's colours and offsets.
_MARK = '<mark class="hue-{bg}">{text} <small>{label}</small></mark>'
_STACKED = {
    "span": '<span class="stacked deep-{total_height}">{text}{span_slices}{span_starts}</span>',
    "slice": '<i class="line hue-{bg} slot-{top_offset}"></i>',
    "start": '<b class="hue-{bg} slot-{top_offset}">{label}</b>',
}
# displaCy's own, of the element around a text.
_STYLE_ATTRIBUTE = re.compile(r'\s+style="[^"]*"')


class Span(NamedTuple):
    """Tokens from `start` to `end`, exclusive, with a label."""

    start: int
    end: int
    label: str


def character_offsets(words: Sequence[str], text: str) -> Optional[List[Tuple[int, int]]]:
    """Return the start and end of each word in a text; `None` if it does not hold the words in this order."""
    offsets = []
    end = 0
    for word in words:
        start = text.find(word, end)
        if start < 0:
            return None
        end = start + len(word)
        offsets.append((start, end))
    return offsets


def marked(words: Sequence[str], spans: Sequence[Span], text: Optional[str] = None) -> str:
    """Return HTML of a text with spans that do not overlap, each with its label."""
    text, offsets = _placed(words, text)
    ents = [
        {
            "start": offsets[span.start][0],
            "end": offsets[span.end - 1][1],
            "label": html.escape(span.label),
        }
        for span in sorted(spans)
    ]
    renderer = EntityRenderer({"colors": _hues(spans), "template": _MARK})
    return _without_style(renderer.render_ents(text, ents, None))


def stacked(words: Sequence[str], spans: Sequence[Span], text: Optional[str] = None) -> str:
    """Return HTML of a text with spans that may overlap: lines below the words, with the labels."""
    text, offsets = _placed(words, text)
    pieces: List[str] = []  # a token of a span each, or the text between them
    piece_of: Dict[int, int] = {}  # of a token
    is_in_span = [False] * (len(words) + 1)
    for span in spans:
        is_in_span[span.start : span.end] = [True] * (span.end - span.start)
    done = 0
    for token, (start, end) in enumerate(offsets):
        if not is_in_span[token]:
            continue
        if start > done:
            pieces.append(text[done:start])
        # With the space before the next word of a span, so that its line has no gap.
        done = offsets[token + 1][0] if is_in_span[token + 1] else end
        piece_of[token] = len(pieces)
        pieces.append(text[start:done])
    pieces.append(text[done:])
    placed = [
        {
            "start_token": piece_of[span.start],
            "end_token": piece_of[span.end - 1] + 1,
            "label": html.escape(span.label),
        }
        for span in spans
    ]
    renderer = SpanRenderer(
        {
            "colors": _hues(spans),
            "template": _STACKED,
            # Not pixels: the number of a line, and with `total_height` how many there are.
            "top_offset": 1,
            "top_offset_step": 1,
            "span_label_offset": 0,
        }
    )
    return _without_style(renderer.render_spans(pieces, placed, None))


def _placed(words: Sequence[str], text: Optional[str]) -> Tuple[str, List[Tuple[int, int]]]:
    offsets = None if text is None else character_offsets(words, text)
    if text is None or offsets is None:
        text = " ".join(words)
        offsets = character_offsets(words, text)
    assert offsets is not None
    return text, offsets


def _hues(spans: Sequence[Span]) -> Dict[str, Any]:
    """Return the number of a hue for each label, as displaCy gets them."""
    return {html.escape(span.label): hue_of(span.label) for span in spans}


def hue_of(label: str) -> int:
    """Return the number of the hue that a label always has."""
    if label.isdecimal():
        return int(label) % NUM_HUES
    return _HUES.get(label, zlib.crc32(label.encode()) % NUM_HUES)


def _without_style(rendered: str) -> str:
    # Text and labels are escaped: a quotation mark is of displaCy's templates.
    return _STYLE_ATTRIBUTE.sub("", rendered).strip()
