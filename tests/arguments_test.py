"""Arguments from dataclasses: which values they accept, and what the help says."""

import argparse
from dataclasses import dataclass
from typing import Any, Dict, NamedTuple, Optional, Sequence

import pytest
from allennlp.commands import ArgumentParserWithDefaults

from elmo_plugin.arguments import Options, add_options, option, option_group, options_from
from elmo_plugin.errors import ConfigurationError


class Text(NamedTuple):
    name: str
    path: str


@dataclass(frozen=True)
class Model(Options):
    precision: str = option("of products", "float32", choices=("float32", "int8"))
    cuda_device: int = option("which GPU", -1)
    batch_size: Optional[int] = option("of sentences", None, positive=True)


@dataclass(frozen=True)
class Command(Options):
    files: Sequence[str] = option("what to read", positional=True, metavar="FILE")
    output: str = option("where results go", short="-s", metavar="DIR")
    seeds: Sequence[int] = option("one run for each", (1, 2))
    share: Optional[float] = option("of the data, 50 % is 0.5", None)
    overrides: Optional[Dict[str, Any]] = option("of the config", None)
    control: bool = option("measure a control too", True)
    dry_run: bool = option("do nothing", False)
    packages: Sequence[str] = option("to import", (), repeat=True)
    texts: Sequence[Text] = option("name and path", ())
    model: Model = option_group("the model", Model())
    hidden: int = 7


def parser() -> argparse.ArgumentParser:
    result = ArgumentParserWithDefaults()
    add_options(result, Command)
    return result


def parsed(arguments: str) -> Command:
    return options_from(Command, parser().parse_args(arguments.split()))


ALL = (
    "a --output out --seeds 3 --share 0.25 --no-control --packages x --packages y "
    '--texts t1 p1 --texts t2 p2 --precision int8 --cuda-device 0 --overrides {"x.y":[1]}'
)


def test_every_kind_of_argument() -> None:
    assert parsed("a b -s out") == Command(files=("a", "b"), output="out")
    expected = Command(
        files=("a",),
        output="out",
        seeds=(3,),
        share=0.25,
        overrides={"x.y": [1]},
        control=False,
        packages=("x", "y"),
        texts=(Text("t1", "p1"), Text("t2", "p2")),
        model=Model("int8", 0),
    )
    assert parsed(ALL) == expected
    # A list that arguments are appended to is not shared between calls.
    assert parsed(ALL) == expected


@pytest.mark.parametrize(
    "arguments, match",
    [
        ("-s out", "FILE"),
        ("a", "-s/--output"),
        ("a -s o --precision int4", "invalid choice: 'int4'"),
        ("a -s o --seeds x", "invalid int value"),
        ("a -s o --overrides {", "which is not JSON"),
        ("a -s o --overrides [1]", "expected a JSON object of keys and values"),
        (f"a -s o --overrides {'[' * 10_000}", "which is not JSON (more than 100 levels)"),
        ("a -s o --texts t", "expected 2 arguments"),
    ],
)
def test_invalid_arguments_are_errors(
    arguments: str, match: str, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parsed(arguments)
    assert match in capsys.readouterr().err


def test_the_help_gives_each_default_once() -> None:
    text = " ".join(parser().format_help().split())
    assert text.count("default") == 4
    assert "one run for each (default: 1 2)" in text
    assert "measure a control too (default: yes)" in text
    assert "of the data, 50 % is 0.5 --overrides" in text
    assert "the model: --precision" in text
    assert "which GPU (default: -1)" in text
    assert "--texts NAME PATH" in text


def test_values_are_checked_in_calls_from_python_too() -> None:
    for values in ({"precision": "int8"}, {"batch_size": 3}, {}):
        Model(**values)
    for values, match in [
        ({"precision": "int4"}, "precision is 'int4', expected one of float32, int8"),
        ({"batch_size": 0}, "batch_size is 0, expected a positive whole number"),
        ({"batch_size": 2.5}, "batch_size is 2.5, expected a positive whole number"),
    ]:
        with pytest.raises(ConfigurationError, match=match):
            Model(**values)
