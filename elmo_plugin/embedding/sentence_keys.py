"""Under which keys an HDF5 file holds sentences."""

import json
import logging
from hashlib import blake2b
from typing import List, Set

from allennlp.common.checks import ConfigurationError

logger = logging.getLogger(__name__)

# HDF5 keeps the length of a string in 32 bits.
MAX_INDEX_BYTES = 2**32 - 1


class LineKeys:
    """
    The zero-based number of the line.

    # Parameters

    has_index : `bool`
        Whether the lines themselves are to be written too, as one string of JSON.
    """

    def __init__(self, has_index: bool) -> None:
        self._has_index = has_index
        self._num_index_bytes = 0

    def check(self, index: int, text: str) -> None:
        """
        # Raises

        `ConfigurationError` if the string of lines grows too long for HDF5.
        """
        if not self._has_index:
            return
        # As many as if all lines were distinct: `"text": "index", `
        self._num_index_bytes += len(json.dumps(text)) + len(str(index)) + 6
        if self._num_index_bytes > MAX_INDEX_BYTES:
            raise ConfigurationError(
                f"line {index + 1}: the lines up to here take more than {MAX_INDEX_BYTES:,} bytes, which is "
                "all that sentence_to_index can hold in HDF5. Give --forget-sentences (forget_sentences="
                "True), or split the input."
            )

    def key_of(self, index: int, text: str) -> str:
        """The key of a sentence."""
        return str(index)


class SentenceKeys:
    """
    The line itself.

    A slash in a key makes groups within the file: `file["km / h"]` finds the vectors, but the keys of the
    file list only the group `km `. A colon is a character like others.

    Memory grows by about 100 bytes for each sentence.
    """

    def __init__(self) -> None:
        # Hashes, as lines may be long. Of 16 bytes, two of a billion lines are the same by chance once in
        # 10^21 times.
        self._datasets: Set[bytes] = set()
        self._groups: Set[bytes] = set()
        self._has_warned = False

    def check(self, index: int, text: str) -> None:
        """
        # Raises

        `ConfigurationError` if HDF5 cannot tell this key from one before, or it is no key for HDF5.
        """
        # HDF5 passes over empty steps and single dots.
        steps = [step for step in text.split("/") if step not in ("", ".")]
        if not steps or text.endswith("/"):
            raise _refused(index, text, "is no key in HDF5, where it would name a group")
        if len(steps) > 1 and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "line %d: '%s' has a slash, of which HDF5 makes groups: file[line] finds its vectors, but "
                "the keys of the file do not list it. (Said once.)",
                index + 1,
                text[:80],
            )
        key = _hash(steps)
        groups = {_hash(steps[:depth]) for depth in range(1, len(steps))}
        if key in self._datasets:
            raise _refused(index, text, "stands in an earlier line too")
        if key in self._groups or groups & self._datasets:
            raise _refused(
                index, text, "and an earlier line start alike up to a slash, which HDF5 cannot hold"
            )
        self._datasets.add(key)
        self._groups |= groups

    def key_of(self, index: int, text: str) -> str:
        """The key of a sentence."""
        return text


def _hash(steps: List[str]) -> bytes:
    return blake2b("/".join(steps).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _refused(index: int, text: str, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"line {index + 1}: '{text[:80]}' {reason}, expected a key of its own for each line. Leave out "
        "--use-sentence-keys (use_sentence_keys) to have line numbers as keys, or remove the line."
    )
