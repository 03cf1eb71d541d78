import json
import logging
from pathlib import Path
from typing import Any, List

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


@pytest.mark.parametrize(
    "line, message",
    [
        *[
            (
                {**PAIR, "gold_label": label},
                rf"found the gold_label '{label}', expected entailment, neutral, contradiction, or - for",
            )
            for label in ("entails", "Neutral", "neutral ")
        ],
        *[
            ({**PAIR, key: text}, f"'{key}' is .*, expected a text that is not empty")
            for key in PAIR
            for text in ("", " \t", 3, None, ["It", "rains"], "\ud83d")
        ],
        ('{"gold_label": "neutral", "sentence1": "It', "Found a line that is not JSON"),
        (["neutral", "It rains."], r"The input is \[.*, expected a JSON object"),
    ],
)
def test_an_invalid_line_is_named(tmp_path: Path, line: Any, message: str) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    with pytest.raises(ConfigurationError, match=rf"data\.jsonl, line 2: {message}"):
        read(write(tmp_path, json.dumps(PAIR), text))
