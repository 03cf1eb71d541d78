import logging
from collections import Counter
from pathlib import Path
from typing import Any, Iterable, Iterator, List

import pytest
from allennlp.common.checks import ConfigurationError
from allennlp.data import Instance
from allennlp.data.data_loaders import MultiProcessDataLoader
from allennlp.data.fields import TextField
from allennlp.data.tokenizers import Token

from elmo_plugin.tasks.data_files import numbered_lines
from elmo_plugin.tasks.task_reader import TaskReader


class WordReader(TaskReader):
    """A line is a unit; each word an instance. `bad` is bad at the end of a line, `-` has no label."""

    def _units(self, file_path: Any) -> Iterator[Any]:
        return numbered_lines(file_path, "words")

    def _instances(self, unit: Any, left_out: Counter) -> Iterable[Instance]:
        number, line = unit
        for word in line.split():
            if word == "bad":
                raise ConfigurationError(f"line {number} is bad")
            if word == "-":
                left_out["without a label"] += 1
            else:
                yield Instance(
                    {"word": TextField([Token(word)]), "other": TextField([Token(word)])}
                )


def words(instances: Iterable[Instance]) -> List[str]:
    return [instance["word"].tokens[0].text for instance in instances]


def write(folder: Path, text: str) -> Path:
    path = folder / "words.txt"
    path.write_text(text)
    return path


def test_a_bad_unit_stops_reading(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="line 2 is bad"):
        list(WordReader().read(write(tmp_path, "a b\nc bad\nd\n")))


def test_bad_units_are_left_out_whole_where_asked_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, "a b\nc bad\nd -\nbad\n")
    with caplog.at_level(logging.WARNING):
        assert words(WordReader(skip_invalid=True).read(path)) == ["a", "b", "d"]
    assert "Left out (skip_invalid): line 2 is bad" in caplog.text
    assert f"{path}: left out: 2 invalid (4 units read)" in caplog.text
    assert f"{path}: left out: 1 without a label (4 units read)" in caplog.text


def test_a_file_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "bad\n-\n")
    message = (
        r"words\.txt: nothing to learn from is left of 2 read \(1 invalid, 1 without a label\)"
    )
    with pytest.raises(ConfigurationError, match=message):
        list(WordReader(skip_invalid=True).read(path))


def test_workers_share_the_units_and_may_find_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "a b\n-\nc\n-\n")
    reader = WordReader()
    loader = MultiProcessDataLoader(
        reader, path, batch_size=1, num_workers=2, max_instances_in_memory=2, quiet=True
    )
    assert sorted(words(loader.iter_instances())) == ["a", "b", "c"]


def test_every_text_field_gets_the_indexers(tmp_path: Path) -> None:
    reader = WordReader()
    [instance] = reader.read(write(tmp_path, "a\n"))
    reader.apply_token_indexers(instance)
    assert (
        set(instance["word"].token_indexers) == set(instance["other"].token_indexers) == {"tokens"}
    )
