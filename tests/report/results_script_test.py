"""scripts/results.sh: its commands parse, and read what its earlier steps write."""

import subprocess
from pathlib import Path
from typing import List

import pytest

from elmo_plugin.commands.main import LazyParser, declare_command
from elmo_plugin.commands.report import REPORTS

SCRIPT = Path(__file__).parents[2] / "scripts" / "results.sh"


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> List[List[str]]:
    """The arguments of the commands that the script runs, without running them."""
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data" / "squad" / "official_dev"
    data.mkdir(parents=True)
    for part in ("train", "dev", "test"):
        (data / f"{part}-v1.1.json").touch()
    (tmp_path / "bin").mkdir()
    for name in ("elmo", "python"):
        stub = tmp_path / "bin" / name
        # An argument on each line, and a blank line. There are 50 calls, for which Python would take seconds.
        stub.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\" '' >> calls\n")
        stub.chmod(0o755)
    monkeypatch.setenv("BIN", "bin")
    run_script()
    text = Path("calls").read_text().removesuffix("\n\n")
    return [call.split("\n") for call in text.split("\n\n")]


def run_script(*steps: str) -> None:
    subprocess.run(["bash", SCRIPT, "data", *steps], check=True)


def test_its_commands_parse(calls: List[List[str]]) -> None:
    parsers = {name: LazyParser(prog=name) for name in ("report", "export")}
    for name, parser in parsers.items():
        declare_command(name, parser)
    reports = []
    for call in calls:
        if call[0] in parsers:
            parsers[call[0]].parse_args(call[1:])
            reports.append(call[1])
    assert set(REPORTS) <= set(reports)


def test_its_steps_give_what_the_next_ones_read(calls: List[List[str]]) -> None:
    written = {call[2] for call in calls if call[0] == "export"}
    written.update(call[1] for call in calls if call[0].endswith("word_vectors.py"))
    random = next(call[2] for call in calls if call[0].endswith("random_bilm.py"))
    written.add(str(Path(random).parent))
    vectors = [call for call in calls if call[:2] == ["report", "vectors"]]
    read = {word for call in vectors for word in call if word.startswith("runs/results/")}
    assert read == written
    others = [call for call in calls if "--word-vectors" in call]
    assert {call[call.index("--word-vectors") + 1] for call in others} <= written
    assert all((SCRIPT.parents[1] / call[2]).is_file() for call in vectors)


def test_word_vectors_are_trained_once(calls: List[List[str]]) -> None:
    # Others would be other data, with which no finished run goes on.
    trained = [call[1] for call in calls if call[0].endswith("word_vectors.py")]
    assert len(trained) == len(set(trained)) > 1
    for file in trained:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).touch()
    Path("calls").unlink()
    run_script("static")
    assert not Path("calls").exists()
