"""`elmo setup-allennlp` runs one command of pip, and checks what it made."""

import importlib.metadata
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, List

import pytest

from elmo_plugin.commands import setup_allennlp
from elmo_plugin.commands.main import main

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "pip", "install", "--no-deps", "allennlp==2.10.1"]


@pytest.fixture
def run_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., List[List[str]]]:
    """Run the command with these exit statuses in place of pip and of the check."""

    def run_with(*statuses: int, errors: str = "") -> List[List[str]]:
        left, commands = list(statuses), []

        def run(command: List[str], **settings: Any) -> Any:
            commands.append(command)
            return subprocess.CompletedProcess(command, left.pop(0), "", errors)

        monkeypatch.setattr(subprocess, "run", run)
        main(["setup-allennlp"])
        return commands

    return run_with


def test_a_dry_run_prints_the_command_of_the_requirements(capsys: Any) -> None:
    main(["setup-allennlp", "--dry-run"])
    assert shlex.split(capsys.readouterr().out) == COMMAND
    lines = (ROOT / "requirements-nodeps.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == [COMMAND[-1]]


def test_it_installs_checks_and_says_what_is_there(
    run_with: Callable[..., List[List[str]]], capsys: Any
) -> None:
    install, check = run_with(0, 0)
    assert install == COMMAND
    assert check == [sys.executable, "-c", "import elmo_plugin.plugin"]
    command, outcome = capsys.readouterr().out.splitlines()
    assert shlex.split(command) == COMMAND
    assert outcome.startswith("AllenNLP works here: torch ")
    assert "allennlp 2.10.1" in outcome


class TestErrors:
    def message(self, capsys: Any, function: Callable[[], Any]) -> str:
        with pytest.raises(SystemExit, match="2"):
            function()
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("elmo setup-allennlp: error: ")
        return str(line)

    def test_pip_fails(self, run_with: Callable[..., Any], capsys: Any) -> None:
        assert "pip failed; its message is above" in self.message(capsys, lambda: run_with(1))

    def test_allennlp_cannot_be_imported(self, run_with: Callable[..., Any], capsys: Any) -> None:
        errors = "Traceback\n  x\nModuleNotFoundError: No module named 'lmdb'\n"
        line = self.message(capsys, lambda: run_with(0, 1, errors=errors))
        assert "is installed, but cannot be imported: No module named 'lmdb'" in line

    def test_packages_that_it_needs_are_missing(
        self, run_with: Callable[..., Any], capsys: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def version(package: str) -> str:
            if package == "lmdb":
                raise importlib.metadata.PackageNotFoundError(package)
            return "4.50.0" if package == "transformers" else real(package)

        real = importlib.metadata.version
        monkeypatch.setattr(importlib.metadata, "version", version)
        line = self.message(capsys, run_with)
        assert "lmdb<4,>=1.4, found none" in line
        assert "transformers<4.50,>=4.40, found 4.50.0" in line
        assert line.endswith('nothing was installed. Run: pip install "elmo-plugin[allennlp]"')

    def test_packages_of_an_extra_in_the_extra_are_checked(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lines = ['elmo-plugin[url]; extra == "allennlp"', 'no-such-package>=2; extra == "url"']
        monkeypatch.setattr(importlib.metadata, "requires", lambda package: lines)
        assert setup_allennlp.missing_packages() == ["no-such-package>=2, found none"]

    def test_without_packaging_the_extra_is_missing(
        self, run_with: Callable[..., Any], capsys: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "packaging.requirements", None)
        assert "(packaging)" in self.message(capsys, run_with)

    def test_there_is_no_pip(
        self, run_with: Callable[..., Any], capsys: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(setup_allennlp, "find_spec", lambda name: None)
        line = self.message(capsys, run_with)
        assert line.endswith("for instance: uv pip install --no-deps allennlp==2.10.1")
