"""The text of a task's data without its labels, to which a biLM is adapted (the paper, section 3.4)."""

import hashlib
from pathlib import Path
from typing import Callable, Dict, Iterator, List, NamedTuple, Sequence

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import errors_at, get_text, parse_json_object
from elmo_plugin.files.output import replaced_file
from elmo_plugin.pretraining.sentence_streams import find_corpus, read_sentences
from elmo_plugin.tasks.conll import read_conll_2012, read_conll_sentences
from elmo_plugin.tasks.reading import RuleBasedTokenizer, placed_lines
from elmo_plugin.tasks.squad.reader import squad_records
from elmo_plugin.tasks.sst import SentimentTree

_PAIR = '{"sentence1": "A man sleeps outside.", "sentence2": "A man sleeps."}'
_DIGEST_LENGTH = 10


class TaskText(NamedTuple):
    """The text of a task: a name, a kind of file (one of `TEXT_KINDS`), and two files."""

    name: str
    kind: str
    train: str
    heldout: str


class TextFiles(NamedTuple):
    """Text for the training of a biLM: one tokenized sentence per line."""

    train: Path
    held_out: Path
    num_train_words: int
    num_held_out_words: int


def write_task_text(text: TaskText, folder: Path) -> TextFiles:
    """
    Write the text of a task's data, each sentence once, into a subfolder of `folder`. The name of the
    subfolder is a hash of the text, so that no text is replaced while a biLM is trained on it.
    """
    if text.kind not in TEXT_KINDS:
        raise ConfigurationError(
            f"--text: found the kind '{text.kind}', expected one of {', '.join(TEXT_KINDS)}."
        )
    texts = [_distinct_sentences(text.kind, path) for path in (text.train, text.heldout)]
    contents = ["".join(f"{sentence}\n" for sentence in sentences) for sentences in texts]
    digest = hashlib.sha256("\0".join(contents).encode("utf-8")).hexdigest()[:_DIGEST_LENGTH]
    (folder / digest).mkdir(parents=True, exist_ok=True)
    train, held_out = (folder / digest / name for name in ("train.txt", "heldout.txt"))
    for path, content in zip((train, held_out), contents):
        with replaced_file(path) as new_file:
            new_file.write_text(content, encoding="utf-8", newline="\n")
    num_words = [sum(len(sentence.split(" ")) for sentence in sentences) for sentences in texts]
    return TextFiles(train, held_out, *num_words)


def _distinct_sentences(kind: str, path: str) -> List[str]:
    sentences = dict.fromkeys(" ".join(words) for words in TEXT_KINDS[kind](path) if words)
    if not sentences:
        raise ConfigurationError(
            f"{path}: found no sentence when read as {kind}, expected text. Give a file of that kind, or "
            "another kind."
        )
    return list(sentences)


def _trees(path: str) -> Iterator[Sequence[str]]:
    for place, line in placed_lines(path, "one tree"):
        yield SentimentTree.from_line(line, place).words


def _pairs(path: str) -> Iterator[Sequence[str]]:
    tokenizer = RuleBasedTokenizer()
    for place, line in placed_lines(path, "a JSON object"):
        with errors_at(place):
            pair = parse_json_object(line, _PAIR)
            texts = [get_text(pair, key, _PAIR) for key in ("sentence1", "sentence2")]
        for text in texts:
            yield _words(tokenizer, text)


def _conll_2012(path: str) -> Iterator[Sequence[str]]:
    for document in read_conll_2012(path):
        for sentence in document.sentences():
            yield sentence.words


def _conll_2003(path: str) -> Iterator[Sequence[str]]:
    for sentence in read_conll_sentences(path):
        yield [token for token, _ in sentence.tokens_and_tags()]


def _squad(path: str, part: str) -> Iterator[Sequence[str]]:
    """Yield each paragraph or question as one sequence, as in the paper's model for this task."""
    tokenizer = RuleBasedTokenizer()
    for record in squad_records(path):
        text = record.passage if part == "passage" else record.checked().question
        yield _words(tokenizer, text)


def _words(tokenizer: RuleBasedTokenizer, text: str) -> List[str]:
    # Line breaks and other white space may be tokens.
    words = [token.ensure_text() for token in tokenizer.tokenize(text)]
    return [word for word in words if word.strip()]


# Functions that read the sentences of a file, by the kind of file.
TEXT_KINDS: Dict[str, Callable[[str], Iterator[Sequence[str]]]] = {
    "lines": lambda path: read_sentences(find_corpus(path)),
    "trees": _trees,
    "pairs": _pairs,
    "conll2012": _conll_2012,
    "conll2003": _conll_2003,
    "squad-contexts": lambda path: _squad(path, "passage"),
    "squad-questions": lambda path: _squad(path, "question"),
}
