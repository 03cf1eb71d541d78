"""Contextual vectors of all words of a document, whose sentences are read one by one."""

from typing import List, Tuple

import torch
from allennlp.data import TextFieldTensors
from torch import Tensor

from elmo_plugin.modules.text_encoder import TextEncoder


def encode_document(
    text_encoder: TextEncoder, sentences: TextFieldTensors, mask: Tensor, words_per_block: int
) -> Tuple[Tensor, Tensor]:
    """
    Run the text encoder over the sentences of a document, and lay their words end to end. As in Lee et al.
    (2017), what a word means depends on its own sentence alone.

    Sentences of like length are encoded together, in blocks, so that one long sentence does not make
    padding of all others, and memory does not grow with the document.

    # Parameters

    text_encoder : `TextEncoder`
    sentences : `TextFieldTensors`
        Tensors of shape `(num_sentences, timesteps, ...)`. At least one sentence; none is empty.
    mask : `BoolTensor`
        `(num_sentences, timesteps)`.
    words_per_block : `int`
        How many words, padding included, are encoded at once. A sentence longer than that is a block.

    # Returns

    The contextualized and the embedded words of `EncodedText`, `(num_words, dim)` each.
    """
    lengths = mask.sum(dim=-1)  # (num_sentences)
    contextualized: List[Tensor] = []
    embedded: List[Tensor] = []
    positions: List[Tensor] = []
    # (num_sentences, timesteps). Where each word stands in the document.
    position_of_word = (mask.flatten().cumsum(0) - 1).view_as(mask)
    for block in _blocks_of_like_length(lengths, words_per_block):
        longest = int(lengths[block].max())
        block_mask = mask[block, :longest]
        block_sentences = {
            indexer: {
                # Word pieces, if an indexer makes them, are not counted in words, and stay as they are.
                name: tensor[block, :longest] if tensor.size(1) == mask.size(1) else tensor[block]
                for name, tensor in tensors.items()
            }
            for indexer, tensors in sentences.items()
        }
        encoded = text_encoder(block_sentences, mask=block_mask)
        contextualized.append(encoded.contextualized[block_mask])
        embedded.append(encoded.embedded[block_mask])
        positions.append(position_of_word[block, :longest][block_mask])
    order = torch.cat(positions).argsort()  # (num_words)
    return torch.cat(contextualized)[order], torch.cat(embedded)[order]


def _blocks_of_like_length(lengths: Tensor, words_per_block: int) -> List[Tensor]:
    """The indices of sentences, from the shortest to the longest, in blocks."""
    blocks: List[List[int]] = []
    for index in lengths.argsort(stable=True).tolist():
        # The last sentence of a block is its longest.
        if not blocks or (len(blocks[-1]) + 1) * int(lengths[index]) > words_per_block:
            blocks.append([])
        blocks[-1].append(index)
    return [torch.tensor(block, device=lengths.device) for block in blocks]
