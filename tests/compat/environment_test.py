import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, Optional, Type

import pytest
from packaging.specifiers import SpecifierSet

from elmo_plugin.compat.environment import (
    INSTALL_ALLENNLP,
    INSTALL_TORCH_PAIR,
    REQUIREMENTS,
    check_environment,
)

PROJECT_ROOT = Path(__file__).parents[2]

FITTING_VERSIONS = {
    "torch": "2.12.1",
    "torchvision": "0.27.1",
    "transformers": "4.49.0",
    "huggingface-hub": "0.36.2",
    "allennlp": "2.10.1",
}


def version_lookup(**changes: str) -> Callable[[str], str]:
    """Look versions up in `FITTING_VERSIONS` with some changed (`_` for `-`), or missing where ''."""
    versions = {
        **FITTING_VERSIONS,
        **{key.replace("_", "-"): version for key, version in changes.items()},
    }

    def version_of(package: str) -> str:
        if not versions[package]:
            raise importlib.metadata.PackageNotFoundError(package)
        return versions[package]

    return version_of


def nothing() -> None:
    """A torchvision that imports well."""


def pinned_versions() -> Dict[str, str]:
    """What requirements*.txt pin: package to version."""
    lines = [
        line
        for file in PROJECT_ROOT.glob("requirements*.txt")
        for line in file.read_text().splitlines()
        if "==" in line and not line.startswith("#")
    ]
    return dict(line.split("==") for line in lines)


def test_what_is_installed_is_accepted() -> None:
    check_environment()


@pytest.mark.parametrize(
    "changes",
    [
        {"torch": "2.12.1+cpu", "torchvision": "0.27.1+cpu"},
        {"torch": "2.13.0.dev20260101+cu130"},
        {"transformers": "4.40.0"},
    ],
)
def test_local_builds_nightly_builds_and_older_versions_are_accepted(
    changes: Dict[str, str],
) -> None:
    check_environment(version_lookup(**changes), nothing)


OTHER_BUILD = (
    r"torchvision: found 0.27.1, which fails on import beside torch 2.12.1\+cpu \(no torchvision::nms\), "
    r"expected the build published together with that torch\. "
    rf"Run: pip uninstall --yes torch torchvision && {INSTALL_TORCH_PAIR}"
)


@pytest.mark.parametrize(
    "changes, torchvision_error, message",
    [
        (
            {"allennlp": ""},
            None,
            rf"allennlp: found none, expected ==2.10.1\. Run: {INSTALL_ALLENNLP}",
        ),
        (
            {"torch": "1.12.1+cu116"},
            None,
            rf"torch: found 1.12.1\+cu116, expected >=2.4\. Run: {INSTALL_TORCH_PAIR}",
        ),
        (
            {"transformers": "4.50.0"},
            None,
            r"found 4.50.0, expected >=4.40,<4.50\. Run: pip install transformers==4.49.0",
        ),
        (
            {"huggingface_hub": "1.2.0"},
            None,
            r"huggingface-hub: found 1.2.0, expected <1\. Run: pip install huggingface-hub==0.36.2",
        ),
        (
            {"torch": "", "transformers": "", "allennlp": ""},
            None,
            r"(?s)- torch: .*- transformers: .*- allennlp: ",
        ),
        (
            {"torchvision": ""},
            ModuleNotFoundError,
            rf"torchvision: found none, expected the one that fits torch 2.12.1\. Run: {INSTALL_TORCH_PAIR}",
        ),
        ({"torch": "2.12.1+cpu"}, ImportError, OTHER_BUILD),
        ({"torch": "2.12.1+cpu"}, OSError, OTHER_BUILD),
        ({"torch": "2.12.1+cpu"}, RuntimeError, OTHER_BUILD),
    ],
)
def test_a_missing_or_wrong_package_is_named_with_the_command_that_installs_it(
    changes: Dict[str, str], torchvision_error: Optional[Type[Exception]], message: str
) -> None:
    def import_torchvision() -> None:
        if torchvision_error is not None:
            raise torchvision_error("no torchvision::nms")

    with pytest.raises(ImportError, match=message):
        check_environment(version_lookup(**changes), import_torchvision)


def test_importing_the_plugin_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('no torchvision::nms')")
    python_path = os.pathsep.join([str(tmp_path), str(PROJECT_ROOT)])
    result = subprocess.run(
        [sys.executable, "-c", "import elmo_plugin.plugin"],
        env={**os.environ, "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert "ImportError: elmo_plugin cannot run in this environment" in result.stderr
    assert "pip uninstall --yes torch torchvision" in result.stderr


def test_requirements_files_pin_what_the_check_accepts_and_recommends() -> None:
    pinned = pinned_versions()
    for requirement in REQUIREMENTS:
        assert SpecifierSet(requirement.versions).contains(pinned[requirement.package])
        for package, version in re.findall(r"(\S+)==(\S+)", requirement.command):
            assert pinned[package] == version
