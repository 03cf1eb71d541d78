"""Which spans of a document may be mentions, and which of them are kept."""

from typing import Dict, List

import torch
from torch import Tensor


def enumerate_spans(sentence_lengths: Tensor, max_width: int) -> Tensor:
    """
    All spans of 1 to `max_width` tokens within sentences, in the order of their starts, then of their ends.

    # Parameters

    sentence_lengths : `LongTensor`
        `(num_sentences)`. Tokens of each sentence of a document.
    max_width : `int`

    # Returns

    `LongTensor` of shape `(num_spans, 2)`: start and end (exclusive) of each, counted in tokens of the
    document.
    """
    sentence_ends = sentence_lengths.cumsum(0)  # (num_sentences)
    # (num_words, 1)
    last_ends = sentence_ends.repeat_interleave(sentence_lengths).unsqueeze(-1)
    starts = torch.arange(len(last_ends), device=last_ends.device).unsqueeze(-1)  # (num_words, 1)
    widths = torch.arange(1, max_width + 1, device=last_ends.device)  # (max_width)
    ends = starts + widths  # (num_words, max_width)
    spans = torch.stack([starts.expand_as(ends), ends], dim=-1)  # (num_words, max_width, 2)
    return spans[ends <= last_ends]


def best_spans(spans: Tensor, scores: Tensor, max_spans: int) -> Tensor:
    """
    The spans with the highest scores, but none that crosses a better one (Lee et al. 2017, section 5):
    spans may nest, but not overlap in part.

    # Parameters

    spans : `LongTensor`
        `(num_spans, 2)`. Starts and ends (exclusive).
    scores : `Tensor`
        `(num_spans)`.
    max_spans : `int`

    # Returns

    `LongTensor` of shape `(num_kept)`: the indices of at most `max_spans` spans, in the order of `spans`.
    """
    bounds = spans.tolist()
    longest_end: Dict[int, int] = {}  # of the spans kept so far that start at a token
    earliest_start: Dict[int, int] = {}  # of those that end at a token
    kept: List[int] = []
    for index in scores.argsort(descending=True, stable=True).tolist():
        if len(kept) == max_spans:
            break
        start, end = bounds[index]
        inside = range(start + 1, end)
        if any(longest_end.get(token, end) > end for token in inside) or any(
            earliest_start.get(token, start) < start for token in inside
        ):
            continue
        kept.append(index)
        longest_end[start] = max(end, longest_end.get(start, end))
        earliest_start[end] = min(start, earliest_start.get(end, start))
    return torch.tensor(sorted(kept), dtype=torch.long, device=spans.device)
