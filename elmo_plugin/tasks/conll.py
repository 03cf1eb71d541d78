"""Files of the CoNLL shared tasks, a token per line: sentences, and documents of CoNLL-2012."""

import glob
import re
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from more_itertools import split_at

from elmo_plugin.bilm.model_files import local_path
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import FileName
from elmo_plugin.tasks.reading import numbered_lines

# Other white space, such as a no-break space, is a part of the token.
_COLUMN_SEPARATOR = re.compile(r"[ \t]+")
_SENTENCE_END = re.compile(r"(-DOCSTART-([ \t].*)?)?")
_MAX_SHOWN = 60  # characters of an invalid line in an error

# Arguments have one column for each predicate, perhaps none.
_COLUMN_NAMES = (
    "document, part, word number, word, part of speech, parse bit, predicate lemma, frameset, word sense, "
    "speaker, named entity, arguments of each predicate, coreference"
)
FIRST_ARGUMENTS = 11  # the index of their first column
_BEGIN = re.compile(r"#begin document \((?P<name>.*)\);(?:\s*part\s+(?P<part>\d+))?\s*")
_END = "#end document"
# The placeholder of words in CoNLL-2012's files without the licensed text.
_PLACEHOLDER = "[WORD]"


class SentencePlace(NamedTuple):
    """The place of a sentence or a document: a file, consecutive lines, and perhaps a document's name."""

    file_path: str
    first_line: int
    document: str = ""

    def of_token(self, index: int, column: Optional[int] = None) -> str:
        """Return file, line, column (counted from 1) and document of a token, for errors."""
        in_column = f", column {column}" if column else ""
        in_document = f", document {self.document}" if self.document else ""
        return f"{self.file_path}, line {self.first_line + index}{in_column}{in_document}"


class ConllSentence(NamedTuple):
    """The lines of a sentence, not yet split into columns: workers split only their own."""

    place: SentencePlace
    lines: List[str]

    def rows(self) -> List[List[str]]:
        """Return the columns of each line, any number of them."""
        return [_COLUMN_SEPARATOR.split(line) for line in self.lines]

    def columns(
        self, min_columns: int = 2, names: str = "a token first, its tag last"
    ) -> List[List[str]]:
        """
        Return the columns, each with one entry per line. Raise `ConfigurationError`, naming the line, if it
        has fewer than `min_columns` (the error explains them by `names`), or another number than the first
        line of the sentence.
        """
        rows = self.rows()
        for index, row in enumerate(rows):
            if len(row) < min_columns or len(row) != len(rows[0]):
                raise ConfigurationError(
                    f"{self.place.of_token(index)}: found {len(row)} columns "
                    f"('{self.lines[index][:_MAX_SHOWN]}'), expected at least {min_columns} ({names}), "
                    "separated by spaces or tabs, as many as on the first line of the sentence. Correct the "
                    "line."
                )
        return [list(column) for column in zip(*rows)]

    def last_column(self) -> List[str]:
        """Return the last column, for any number of columns."""
        return [row[-1] for row in self.rows()]


def read_conll_sentences(file_path: FileName) -> Iterator[ConllSentence]:
    """
    Yield the sentences of a file. A blank line ends a sentence, and so does a line whose first column is
    `-DOCSTART-`.
    """
    lines = numbered_lines(file_path, "one token")
    return _sentences(lines, SentencePlace(str(file_path), 0))


def _sentences(lines: Iterable[Tuple[int, str]], place: SentencePlace) -> Iterator[ConllSentence]:
    """Group numbered lines into sentences of the file and document of `place`."""
    for sentence in split_at(lines, lambda numbered: _SENTENCE_END.fullmatch(numbered[1])):
        if sentence:
            numbers, texts = zip(*sentence)
            yield ConllSentence(place._replace(first_line=numbers[0]), list(texts))


class Conll2012Sentence(NamedTuple):
    """The columns of a sentence, each with one entry per token."""

    place: SentencePlace
    words: List[str]
    parts_of_speech: List[str]
    predicate_lemmas: List[str]
    speakers: List[str]
    arguments: List[List[str]]  # one column for each predicate
    coreference: List[str]

    @classmethod
    def split(cls, sentence: ConllSentence) -> "Conll2012Sentence":
        """Split a sentence into columns. Raise `ConfigurationError` if a line is invalid."""
        columns = sentence.columns(FIRST_ARGUMENTS + 1, _COLUMN_NAMES)
        words = columns[3]
        if _PLACEHOLDER in words:
            raise ConfigurationError(
                f"{sentence.place.of_token(words.index(_PLACEHOLDER), column=4)}: found '{_PLACEHOLDER}', "
                "expected a word. CoNLL-2012's skeleton files (*_skel) have no words: run the script that "
                "comes with them, which inserts the words of OntoNotes."
            )
        return cls(
            sentence.place,
            words,
            parts_of_speech=columns[4],
            predicate_lemmas=columns[6],
            speakers=columns[9],
            arguments=columns[FIRST_ARGUMENTS:-1],
            coreference=columns[-1],
        )


class Conll2012Document(NamedTuple):
    """The sentences between `#begin document` and `#end document`, not yet split into columns."""

    place: SentencePlace  # with the name, such as `bc/cctv/00/cctv_0000, part 000`
    unsplit: List[ConllSentence]

    def sentences(self) -> List[Conll2012Sentence]:
        """Return the sentences with their columns. Raise `ConfigurationError` if one is invalid."""
        return [Conll2012Sentence.split(sentence) for sentence in self.unsplit]


def read_conll_2012(path: FileName) -> Iterator[Conll2012Document]:
    """
    Yield the documents of a file, or of all files below a folder, also in linked folders, whose names end in
    `gold_conll` or `gold_conll.gz`, such as `a.gold_conll` and `b.v4_gold_conll`, one at a time.

    # Raises

    `ConfigurationError` if a file has a token outside of a document, or a document without an end; and if
    two files of a folder have the same document, as when one is a copy of the other, or a link to it.
    """
    local = local_path("data file", path)
    if not local.is_dir():
        yield from _documents(str(path))
        return
    below = glob.iglob(f"{glob.escape(str(local))}/**/*gold_conll*", recursive=True)
    names = (name for name in below if name.endswith(("gold_conll", "gold_conll.gz")))
    found = sorted(path for path in map(Path, names) if path.is_file())
    if not found:
        raise ConfigurationError(
            f"{path}: the folder holds no file whose name ends in gold_conll, expected at least one. "
            "Give the path of a file, or of a folder with such files."
        )
    file_of: Dict[str, str] = {}  # by the name of a document
    for file_path in map(str, found):
        for document in _documents(file_path):
            name = document.place.document
            if file_of.setdefault(name, file_path) != file_path:
                raise ConfigurationError(
                    f"{document.place.of_token(0)}: this document is also in {file_of[name]}, expected each "
                    "one once. Remove one of the files from the folder."
                )
            yield document


def _documents(file_path: str) -> Iterator[Conll2012Document]:
    lines = numbered_lines(file_path, "one token")
    for number, line in lines:
        match = _BEGIN.fullmatch(line)
        if match is not None:
            name = f"{match['name']}, part {match['part'] or '0'}"
            place = SentencePlace(file_path, number, name)
            yield Conll2012Document(place, list(_sentences(_until_end(lines, place), place)))
        elif line:
            raise ConfigurationError(
                f"{file_path}, line {number}: found '{line[:_MAX_SHOWN]}', expected '#begin document "
                "(NAME); part 000' before the tokens of a document, as in CoNLL-2012. Give a "
                "*.gold_conll file."
            )


def _until_end(lines: Iterator[Tuple[int, str]], place: SentencePlace) -> Iterator[Tuple[int, str]]:
    """Yield the lines up to the end of the document that begins at `place`."""
    for number, line in lines:
        if line == _END:
            return
        if _BEGIN.fullmatch(line):
            break
        yield number, line
    raise ConfigurationError(
        f"{place.of_token(0)}: found no end, expected a line '{_END}' before the next document and "
        "before the end of the file. Complete the file."
    )
