import itertools
from typing import List

import pytest
import torch
from torch import Tensor

from elmo_plugin.tasks.srl.bio_decoder import BioDecoder
from elmo_plugin.tasks.tag_schemes import find_tag_fault

TAGS = dict(enumerate(["I-ARG0", "O", "B-ARG0", "B-V", "I-V"]))


def best_by_trying_all(scores: Tensor) -> List[int]:
    allowed = [
        tag_ids
        for tag_ids in itertools.product(TAGS, repeat=len(scores))
        if find_tag_fault([TAGS[tag_id] for tag_id in tag_ids], "BIO") is None
    ]
    return list(max(allowed, key=lambda tag_ids: sum(scores[range(len(scores)), tag_ids].tolist())))


@pytest.mark.parametrize("length", [1, 2, 4])
def test_the_best_allowed_sequence_is_found(length):
    torch.manual_seed(13)
    logits = torch.randn(20, length, len(TAGS))
    mask = torch.ones(20, length, dtype=torch.bool)
    decoded = BioDecoder(TAGS).decode(logits, mask)
    assert decoded == [best_by_trying_all(scores) for scores in logits.log_softmax(dim=-1)]
    # Both ways are taken: the best tags alone are allowed in some sentences only.
    as_they_are = [tags == best for tags, best in zip(decoded, logits.argmax(-1).tolist())]
    assert any(as_they_are) and not all(as_they_are)


def test_padding_is_not_decoded():
    torch.manual_seed(13)
    logits = torch.randn(2, 4, len(TAGS))
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    decoded = BioDecoder(TAGS).decode(logits, mask)
    assert [len(tags) for tags in decoded] == [4, 2]
    assert decoded[1] == best_by_trying_all(logits[1, :2].log_softmax(dim=-1))


def test_sequences_that_differ_little_are_told_apart():
    # I-ARG0 is the best tag but cannot be first; O is better than B-ARG0 by less than float32 can
    # show beside 100,000.
    scores = torch.tensor([[[2.0, 1.001, 1.0, 0.0, 0.0]]])
    [tags] = BioDecoder(TAGS).decode(scores, torch.ones(1, 1, dtype=torch.bool))
    assert [TAGS[tag_id] for tag_id in tags] == ["O"]
    scores = torch.tensor([[[2.0, 1.0, 1.001, 0.0, 0.0]]])
    [tags] = BioDecoder(TAGS).decode(scores, torch.ones(1, 1, dtype=torch.bool))
    assert [TAGS[tag_id] for tag_id in tags] == ["B-ARG0"]


def test_decoding_leaves_the_logits_as_they_are_and_needs_no_gradients():
    logits = torch.randn(1, 3, len(TAGS), requires_grad=True)
    before = logits.detach().clone()
    BioDecoder(TAGS).decode(logits, torch.ones(1, 3, dtype=torch.bool))
    assert torch.equal(logits, before)
