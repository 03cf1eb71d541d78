"""Files of the CoNLL shared tasks, a token per line: sentences, and documents of CoNLL-2012."""

import re
from itertools import chain
from os import PathLike
from typing import Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.files.text_lines import decoded_lines
from elmo_plugin.tasks.reading import data_file, data_files

# Other white space, such as a no-break space, is a part of the token.
_COLUMN_SEPARATOR = re.compile(r"[ \t]+")
_MAX_SHOWN = 60  # characters of a wrong line that an error repeats

# Before the arguments; the coreference column stands behind them.
_COLUMN_NAMES = (
    *("document", "part", "word number", "word", "part of speech", "parse bit", "predicate lemma"),
    *("frameset", "word sense", "speaker", "named entity"),
)
MIN_COLUMNS = len(_COLUMN_NAMES) + 1
_BEGIN = re.compile(r"#begin document \((?P<name>.*)\);(?:\s*part\s+(?P<part>\d+))?\s*")
_END = "#end document"


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
    num_sentences = 0
    for sentence in _sentences(enumerate(_lines(file_path), start=1), str(file_path)):
        num_sentences += 1
        yield sentence
    if num_sentences == 0:
        raise ConfigurationError(
            f"{file_path}: found no sentence, expected a token on each line and a blank line after "
            "each sentence. Give the path of a file with data."
        )


def _sentences(
    numbered_lines: Iterable[Tuple[int, str]], file_path: str
) -> Iterator[ConllSentence]:
    """Group lines into sentences, which end at a blank line, a line `-DOCSTART-` or the last line."""
    lines: List[str] = []
    for number, line in chain(numbered_lines, [(0, "")]):
        if line and _COLUMN_SEPARATOR.split(line, maxsplit=1)[0] != "-DOCSTART-":
            if not lines:
                first_line = number
            lines.append(line)
        elif lines:
            yield ConllSentence(SentencePlace(file_path, first_line), lines)
            lines = []


def _lines(file_path: Union[str, PathLike]) -> Iterator[str]:
    """Lines without the white space around them."""
    with open(data_file(file_path), "rb") as file:
        for line in decoded_lines(file, file_path, "one token"):
            yield line.strip(" \t\r")


class Conll2012Sentence(NamedTuple):
    """
    The columns of a sentence, each with one entry per token.

    # Parameters

    place : `SentencePlace`
        Where the sentence stands.
    """

    place: SentencePlace
    words: List[str]
    parts_of_speech: List[str]
    predicate_lemmas: List[str]
    speakers: List[str]
    arguments: List[List[str]]  # one column for each predicate
    coreference: List[str]


class Conll2012Document(NamedTuple):
    """The lines of a document between its `#begin document` and `#end document`, not yet validated."""

    file_path: str
    first_line: int
    name: str
    part: str
    lines: List[str]
    is_ended: bool

    @property
    def place(self) -> str:
        """File, line and name, as errors name them."""
        return f"{self.file_path}, line {self.first_line}, document {self.name}, part {self.part}"

    def sentences(self) -> List[Conll2012Sentence]:
        """
        # Raises

        `ConfigurationError` as for `unsplit_sentences` and `split_columns`.
        """
        return [split_columns(sentence) for sentence in self.unsplit_sentences()]

    def unsplit_sentences(self) -> List[ConllSentence]:
        """
        The sentences, not yet split into columns, so that a wrong line makes only its own sentence invalid.

        # Raises

        `ConfigurationError` if the document has no end or no sentence.
        """
        if not self.is_ended:
            raise ConfigurationError(
                f"{self.place}: found no end, expected a line '{_END}' before the next document and "
                "before the end of the file. Complete the file."
            )
        # The lines stand after `#begin document`.
        numbered_lines = enumerate(self.lines, start=self.first_line + 1)
        sentences = list(_sentences(numbered_lines, self.file_path))
        if not sentences:
            raise ConfigurationError(
                f"{self.place}: found no sentence, expected a token on each line and a blank line after "
                "each sentence. Remove the document."
            )
        return sentences


def read_conll_2012(path: Union[str, PathLike]) -> Iterator[Conll2012Document]:
    """
    The documents of a file, or of all files below a folder whose names end in `gold_conll`, such as
    `a.gold_conll` and `b.v4_gold_conll`, one at a time.

    # Raises

    `ConfigurationError` if there is no such file; if a file holds no document, or a token outside of one, or
    is not UTF-8. File and line are named.
    """
    for file_path in data_files(path, "gold_conll"):
        yield from _documents(str(file_path))


def _documents(file_path: str) -> Iterator[Conll2012Document]:
    begun: Optional[Conll2012Document] = None
    num_documents = 0
    with open(data_file(file_path), "rb") as file:
        for number, line in enumerate(decoded_lines(file, file_path, "one token"), start=1):
            line = line.strip(" \t\r")
            match = _BEGIN.fullmatch(line)
            if match is not None:
                if begun is not None:
                    yield begun
                begun = Conll2012Document(
                    file_path, number, match["name"], match["part"] or "0", [], is_ended=False
                )
                num_documents += 1
            elif begun is None:
                if line and line != _END:
                    raise ConfigurationError(
                        f"{file_path}, line {number}: found '{line[:_MAX_SHOWN]}', expected "
                        "'#begin document (NAME); part 000' before the tokens of a document, as in "
                        "CoNLL-2012. Give a *.gold_conll file."
                    )
            elif line == _END:
                yield begun._replace(is_ended=True)
                begun = None
            else:
                begun.lines.append(line)
    if begun is not None:
        yield begun
    if num_documents == 0:
        raise ConfigurationError(
            f"{file_path}: found no document, expected '#begin document (NAME); part 000' before the "
            "tokens of each, as in CoNLL-2012. Give a *.gold_conll file."
        )


def split_columns(sentence: ConllSentence) -> Conll2012Sentence:
    """
    The columns of a sentence.

    # Raises

    `ConfigurationError`, naming the line, if there are too few columns, or another number than on the first
    line of the sentence.
    """
    names = f"{', '.join(_COLUMN_NAMES)}, arguments of each predicate, coreference"
    rows = sentence.rows(MIN_COLUMNS, names)
    columns: List[Tuple[str, ...]] = list(zip(*rows))
    return Conll2012Sentence(
        sentence.place,
        words=list(columns[3]),
        parts_of_speech=list(columns[4]),
        predicate_lemmas=list(columns[6]),
        speakers=list(columns[9]),
        arguments=[list(column) for column in columns[len(_COLUMN_NAMES) : -1]],
        coreference=list(columns[-1]),
    )
