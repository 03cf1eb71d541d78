import importlib.metadata
import os
import re
import sys
from pathlib import Path
from typing import Callable, Dict

import pytest
from packaging.specifiers import SpecifierSet

from elmo_plugin.compat.environment import (
    INSTALL_ALLENNLP,
    INSTALL_TORCH_PAIR,
    REQUIREMENTS,
    check_environment,
)
from tests.conftest import run_program

PROJECT_ROOT = Path(__file__).parents[2]


def pinned_versions(files: str = "requirements*.txt") -> Dict[str, str]:
    """What these files pin: package to version."""
    lines = [
        line
        for file in PROJECT_ROOT.glob(files)
        for line in file.read_text().splitlines()
        if "==" in line and not line.startswith("#")
    ]
    return dict(line.split("==") for line in lines)


def test_the_environment_has_all_that_the_plugin_needs() -> None:
    """`make demo` installs `requirements.txt`, users the extra `allennlp`."""
    project = (PROJECT_ROOT / "pyproject.toml").read_text()
    extra = re.search(r"^allennlp = \[(.*?)^\]", project, flags=re.MULTILINE | re.DOTALL)
    assert extra is not None
    needed = set(re.findall(r'"([\w-]+)[<>=]', extra[1]))
    assert needed and needed <= pinned_versions("requirements.txt").keys()


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that the pinned versions are installed, but these (`_` for `-`), or none where ''."""

    def pretend(**changes: str) -> None:
        versions = {**pinned_versions(), **{key.replace("_", "-"): changes[key] for key in changes}}

        def version(package: str) -> str:
            if not versions[package]:
                raise importlib.metadata.PackageNotFoundError(package)
            return versions[package]

        monkeypatch.setattr(importlib.metadata, "version", version)
        if versions["torchvision"] != pinned_versions()["torchvision"]:
            monkeypatch.setitem(sys.modules, "torchvision", None)  # an import fails

    return pretend


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"torch": "2.12.1+cpu"},
        {"torch": "2.13.0.dev20260101+cu130"},
        {"transformers": "4.40.0"},
    ],
)
def test_local_builds_nightly_builds_and_older_versions_are_accepted(
    changes: Dict[str, str], install: Callable[..., None]
) -> None:
    install(**changes)
    check_environment()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"allennlp": ""}, f"allennlp: found none, expected ==2.10.1. Run: {INSTALL_ALLENNLP}"),
        ({"torch": "1.12.1+cu116"}, f"expected >=2.6. Run: {INSTALL_TORCH_PAIR}"),
        ({"transformers": "4.50.0"}, "found 4.50.0, expected >=4.40,<4.50. Run: pip install tra"),
        (
            {"huggingface_hub": "1.2.0"},
            "found 1.2.0, expected <1. Run: pip install huggingface-hub",
        ),
        ({"torch": "", "transformers": ""}, "- transformers: found none"),
        ({"torchvision": ""}, "found none, which cannot be imported beside torch 2.12.1"),
        (
            {"torchvision": "0.27.1+cpu"},
            "Run: pip uninstall --yes torch torchvision && pip install",
        ),
    ],
)
def test_a_missing_or_wrong_package_is_named_with_the_command_that_installs_it(
    changes: Dict[str, str], message: str, install: Callable[..., None]
) -> None:
    install(**changes)
    with pytest.raises(ImportError, match=re.escape(message)):
        check_environment()


def test_without_packaging_the_error_has_the_command_that_installs_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """packaging compares the versions. An environment of the core does not have it."""
    monkeypatch.setitem(sys.modules, "packaging.specifiers", None)
    command = f'Run: pip install "elmo-plugin[allennlp]" && {INSTALL_ALLENNLP}'
    with pytest.raises(ImportError, match=re.escape(command)):
        check_environment()


def test_importing_the_plugin_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('no torchvision::nms')")
    python_path = os.pathsep.join([str(tmp_path), str(PROJECT_ROOT)])
    result = run_program(sys.executable, "-c", "import elmo_plugin.plugin", PYTHONPATH=python_path)
    assert result.returncode == 1
    assert "ImportError: elmo_plugin cannot run in this environment" in result.stderr
    assert "(no torchvision::nms), expected the build published with that torch." in result.stderr


def test_requirements_files_pin_what_the_check_accepts_and_recommends() -> None:
    pinned = pinned_versions()
    for package, (versions, command) in REQUIREMENTS.items():
        assert SpecifierSet(versions).contains(pinned[package])
        for named, version in re.findall(r"(\S+)==(\S+)", command):
            assert pinned[named] == version
