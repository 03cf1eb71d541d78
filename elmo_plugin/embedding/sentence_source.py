"""What can be embedded."""

from os import PathLike
from typing import Any, Callable, Dict, Iterator, Protocol, Union

from elmo_plugin.embedding.sentence_file import Sentence


class SentenceSource(Protocol):
    """Sentences in an order, such as a `SentenceFile`."""

    name: str

    @property
    def settings(self) -> Dict[str, Any]:
        """What makes sentences of the content; for JSON."""

    @property
    def can_be_read_again(self) -> bool:
        """Whether the sentences can be looked at before they are embedded."""

    def is_same_file(self, path: Union[str, PathLike]) -> bool:
        """Whether `path` leads to the file that is read."""

    def sentences(self) -> Iterator[Sentence]:
        """
        The sentences in order.

        # Raises

        `ConfigurationError` naming the place, if one is not as expected.
        """

    def check(self, examine: Callable[[int, str], None]) -> None:
        """
        Read all without taking sentences apart, so that it fails before any work.

        # Parameters

        examine : `Callable[[int, str], None]`
            Is given the index and the text of each sentence.

        # Raises

        As `sentences`.
        """
