"""What the vectors of a sentence depend on, so that a run goes on only with its own."""

import hashlib

import torch

from elmo_plugin.bilm import BiLM


class SentenceDigest:
    """A digest of sentences that were read one after the other."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, index: int, text: str) -> None:
        """Take up a sentence: the number of its line, and what stands there."""
        self._hash.update(f"{index}\t{text}\n".encode("utf-8", "surrogatepass"))

    def __str__(self) -> str:
        return self._hash.hexdigest()


def bilm_digest(bilm: BiLM) -> str:
    """A digest of a biLM's weights and of what it does with them."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr(bilm.options).encode())
    for name, tensor in sorted(bilm.state_dict().items()):
        digest.update(name.encode())
        # As bytes, since numpy has no bfloat16.
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
