"""Files of the CoNLL shared tasks: a token per line, a blank line after a sentence."""

import re
from os import PathLike
from typing import Iterator, List, NamedTuple, Tuple, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.files.text_lines import decoded_lines
from elmo_plugin.tasks.data_files import data_file

# Other white space, such as a no-break space, is a part of the token.
_COLUMN_SEPARATOR = re.compile(r"[ \t]+")
_MAX_SHOWN = 60  # characters of a wrong line that an error repeats


class SentencePlace(NamedTuple):
    """Where a sentence stands. Its tokens stand on lines that follow each other."""

    file_path: str
    first_line: int

    def of_token(self, index: int) -> str:
        """File and line of a token, as errors name them."""
        return f"{self.file_path}, line {self.first_line + index}"


class ConllSentence(NamedTuple):
    """The lines of a sentence, not yet split into columns: workers split only their own."""

    place: SentencePlace
    lines: List[str]

    def rows(self, min_columns: int, column_names: str) -> List[List[str]]:
        """
        The columns of each line.

        # Parameters

        min_columns : `int`
            How many columns there must be at least.
        column_names : `str`
            What they hold, for errors.

        # Raises

        `ConfigurationError`, naming the line, if there are too few columns, or another number than on the
        first line of the sentence.
        """
        rows = [_COLUMN_SEPARATOR.split(line) for line in self.lines]
        num_columns = len(rows[0])
        for index, row in enumerate(rows):
            if len(row) < min_columns or len(row) != num_columns:
                expected = (
                    f"{num_columns}, as on the first line of the sentence"
                    if num_columns >= min_columns
                    else f"at least {min_columns} ({column_names}), set apart by spaces or tabs"
                )
                raise ConfigurationError(
                    f"{self.place.of_token(index)}: found {len(row)} columns "
                    f"('{self.lines[index][:_MAX_SHOWN]}'), expected {expected}. Correct the line."
                )
        return rows

    def last_column(self) -> List[str]:
        """What stands last on each line, however many columns it has."""
        return [_COLUMN_SEPARATOR.split(line)[-1] for line in self.lines]

    def tokens_and_tags(self) -> List[Tuple[str, str]]:
        """
        The first and the last column of each line.

        # Raises

        As `rows`, if there are fewer than two columns.
        """
        return [(row[0], row[-1]) for row in self.rows(2, "a token first, its tag last")]


def read_conll_sentences(file_path: Union[str, PathLike]) -> Iterator[ConllSentence]:
    """
    The sentences of a file. A line whose first column is `-DOCSTART-` ends a sentence as a blank
    one does.

    # Parameters

    file_path : `str` or `PathLike`
        A path, or a URL that `cached_path` can fetch.

    # Raises

    `ConfigurationError` if there is no such file, if it has no sentence, or if a line, which it
    names, is not UTF-8.
    """
    lines: List[str] = []
    first_line, num_sentences = 0, 0
    for line_number, line in enumerate(_lines(file_path), start=1):
        if line and _COLUMN_SEPARATOR.split(line, maxsplit=1)[0] != "-DOCSTART-":
            if not lines:
                first_line = line_number
            lines.append(line)
        elif lines:
            num_sentences += 1
            yield ConllSentence(SentencePlace(str(file_path), first_line), lines)
            lines = []
    if lines:
        num_sentences += 1
        yield ConllSentence(SentencePlace(str(file_path), first_line), lines)
    if num_sentences == 0:
        raise ConfigurationError(
            f"{file_path}: found no sentence, expected a token on each line and a blank line after "
            "each sentence. Give the path of a file with data."
        )


def _lines(file_path: Union[str, PathLike]) -> Iterator[str]:
    """Lines without the white space around them."""
    with open(data_file(file_path), "rb") as file:
        for line in decoded_lines(file, file_path, "one token"):
            yield line.strip(" \t\r")
