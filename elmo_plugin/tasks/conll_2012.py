"""Documents of CoNLL-2012: semantic roles and coreference in columns, a token per line."""

import re
from os import PathLike
from typing import Iterator, List, NamedTuple, Optional, Tuple, Union

from allennlp.common.checks import ConfigurationError

from elmo_plugin.files.text_lines import decoded_lines
from elmo_plugin.tasks.conll_file import ConllSentence, SentencePlace
from elmo_plugin.tasks.data_files import data_file, data_files

# Before the arguments; the coreference column stands behind them.
_COLUMN_NAMES = (
    *("document", "part", "word number", "word", "part of speech", "parse bit", "predicate lemma"),
    *("frameset", "word sense", "speaker", "named entity"),
)
MIN_COLUMNS = len(_COLUMN_NAMES) + 1
_BEGIN = re.compile(r"#begin document \((?P<name>.*)\);(?:\s*part\s+(?P<part>\d+))?\s*")
_END = "#end document"
_MAX_SHOWN = 60  # characters of a wrong line that an error repeats


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
        The sentences, not yet split into columns, so that one with a wrong line does not spoil the others.

        # Raises

        `ConfigurationError` if the document has no end or no sentence.
        """
        if not self.is_ended:
            raise ConfigurationError(
                f"{self.place}: found no end, expected a line '{_END}' before the next document and "
                "before the end of the file. Complete the file."
            )
        sentences: List[ConllSentence] = []
        lines: List[str] = []
        first_line = 0
        # The lines stand after `#begin document`; a blank one ends the last sentence.
        for line_number, line in enumerate([*self.lines, ""], start=self.first_line + 1):
            if line:
                if not lines:
                    first_line = line_number
                lines.append(line)
            elif lines:
                place = SentencePlace(self.file_path, first_line)
                sentences.append(ConllSentence(place, lines))
                lines = []
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
