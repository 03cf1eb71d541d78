import json
import logging
from pathlib import Path
from typing import Any, Dict, List

import pytest
from allennlp.data import Instance

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.tasks.snli import SnliReader

FIXTURES = Path(__file__).parents[3] / "fixtures"
TINY_FILE = FIXTURES / "snli" / "tiny" / "train.jsonl"

PAIR = {"gold_label": "neutral", "sentence1": "It rains.", "sentence2": "It rains hard."}


def words_of(instance: Instance) -> List[str]:
    return [" ".join(token.text for token in instance[name]) for name in ("premise", "hypothesis")]


def write(folder: Path, *lines: str) -> Path:
    file_path = folder / "data.jsonl"
    file_path.write_text("".join(f"{line}\n" for line in lines))
    return file_path


def write_pairs(folder: Path, *pairs: Dict[str, Any]) -> Path:
    return write(folder, *map(json.dumps, pairs))


def read(file_path: Path, **reader_options: Any) -> List[Instance]:
    return list(SnliReader(**reader_options).read(file_path))


def test_pairs_and_labels_are_read() -> None:
    instances = read(TINY_FILE)
    assert [instance["label"].label for instance in instances] == [
        *("entailment", "neutral", "contradiction", "entailment"),
        *("contradiction", "neutral", "entailment", "contradiction"),
    ]
    assert words_of(instances[0]) == [
        "Two women are reading in a park .",
        "People are reading outside .",
    ]
    assert words_of(instances[3]) == [
        "São Paulo 's buses do n't run at night .",
        "Buses rest at night .",
    ]
    assert words_of(instances[4])[0] == words_of(instances[3])[0]
    assert words_of(instances[7]) == ["A dog sleeps .", "The dog is awake ."]
    assert instances[6]["metadata"].metadata == {
        "premise_words": ["Rain"],
        "hypothesis_words": ["Rain"],
    }


def test_pairs_without_a_gold_label_are_left_out_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert len(read(TINY_FILE)) == 8
    [message] = caplog.messages
    assert message.startswith(f"{TINY_FILE}: left out")
    assert "2 without a gold label" in message


@pytest.mark.parametrize("label", ["entails", "Neutral", "0", "hidden", "neutral "])
def test_an_unknown_label_is_named_with_its_line(tmp_path: Path, label: str) -> None:
    file_path = write_pairs(tmp_path, PAIR, {**PAIR, "gold_label": label})
    message = (
        rf"data\.jsonl, line 2: found the gold_label '{label}', expected entailment, neutral, "
        "contradiction, or - for a pair"
    )
    with pytest.raises(ConfigurationError, match=message):
        read(file_path)


@pytest.mark.parametrize("key", ["gold_label", "sentence1", "sentence2"])
@pytest.mark.parametrize("text", ["", " \t", 3, None, ["It", "rains"], "\ud83d"])
def test_what_is_no_text_is_named_with_its_line_and_key(
    tmp_path: Path, key: str, text: Any
) -> None:
    message = rf"data\.jsonl, line 2: '{key}' is .*, expected a text that is not empty"
    with pytest.raises(ConfigurationError, match=message):
        read(write_pairs(tmp_path, PAIR, {**PAIR, key: text}))


@pytest.mark.parametrize(
    "line, found",
    [
        ('{"gold_label": "neutral", "sentence1": "It', "Found a line that is not JSON"),
        ("gold_label\tsentence1_binary_parse", "Found a line that is not JSON"),
        ('["neutral", "It rains.", "It snows."]', r"The input is \[.*, expected a JSON object"),
        ("3", "The input is 3, expected a JSON object"),
    ],
)
def test_a_line_that_is_no_object_is_named(tmp_path: Path, line: str, found: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"data\.jsonl, line 2: {found}") as error:
        read(write(tmp_path, json.dumps(PAIR), line))
    assert "give a file of JSON lines in SNLI's format" in str(error.value)
