import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict

import pytest
from packaging.specifiers import SpecifierSet

from elmo_plugin.compat.environment import INSTALL_TORCH_PAIR, REQUIREMENTS, check_environment

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


class TestCheckEnvironment:
    def test_accepts_what_is_installed(self) -> None:
        check_environment()

    @pytest.mark.parametrize(
        "changes",
        [
            {"torch": "2.12.1+cpu", "torchvision": "0.27.1+cpu"},
            {"torch": "2.13.0.dev20260101+cu130"},
            {"transformers": "4.40.0"},
        ],
    )
    def test_accepts_local_builds_nightly_builds_and_older_fitting_versions(
        self, changes: Dict[str, str]
    ) -> None:
        check_environment(version_lookup(**changes), nothing)

    @pytest.mark.parametrize(
        "changes, message",
        [
            (
                {"allennlp": ""},
                "allennlp: found none, expected ==2.10.1. Run: pip install --no-deps allennlp==2.10.1",
            ),
            (
                {"torch": "1.12.1+cu116"},
                "torch: found 1.12.1+cu116, expected >=2.4. "
                "Run: pip install torch==2.12.1 torchvision==0.27.1",
            ),
            (
                {"transformers": "4.50.0"},
                "transformers: found 4.50.0, expected >=4.40,<4.50. "
                "Run: pip install transformers==4.49.0",
            ),
            (
                {"huggingface_hub": "1.2.0"},
                "huggingface-hub: found 1.2.0, expected <1. "
                "Run: pip install huggingface-hub==0.36.2",
            ),
        ],
    )
    def test_a_missing_or_wrong_package_is_named_with_the_command_that_installs_it(
        self, changes: Dict[str, str], message: str
    ) -> None:
        with pytest.raises(ImportError, match=re.escape(message)):
            check_environment(version_lookup(**changes), nothing)

    def test_all_wrong_packages_are_named_at_once(self) -> None:
        with pytest.raises(ImportError, match=r"(?s)- torch: .*- transformers: .*- allennlp: "):
            check_environment(version_lookup(torch="", transformers="", allennlp=""), nothing)

    def test_a_missing_torchvision_is_named_with_the_pair_to_install(self) -> None:
        def import_torchvision() -> None:
            raise ModuleNotFoundError("No module named 'torchvision'")

        message = (
            "torchvision: found none, expected the one that fits torch 2.12.1. "
            f"Run: {INSTALL_TORCH_PAIR}"
        )
        with pytest.raises(ImportError, match=re.escape(message)):
            check_environment(version_lookup(torchvision=""), import_torchvision)

    @pytest.mark.parametrize("error_class", [ImportError, OSError, RuntimeError])
    def test_a_torchvision_of_another_build_is_reported_with_its_own_error(
        self, error_class: type
    ) -> None:
        def import_torchvision() -> None:
            raise error_class("operator torchvision::nms does not exist")

        message = (
            "torchvision: found 0.27.1, which fails on import beside torch 2.12.1+cpu "
            "(operator torchvision::nms does not exist), expected the build published together with "
            f"that torch. Run: pip uninstall --yes torch torchvision && {INSTALL_TORCH_PAIR}"
        )
        with pytest.raises(ImportError, match=re.escape(message)):
            check_environment(version_lookup(torch="2.12.1+cpu"), import_torchvision)

    def test_importing_the_package_says_what_is_wrong(self, tmp_path: Path) -> None:
        (tmp_path / "torchvision.py").write_text(
            "raise RuntimeError('operator torchvision::nms does not exist')"
        )
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

    def test_requirements_files_pin_what_the_check_accepts_and_recommends(self) -> None:
        pinned = pinned_versions()
        for requirement in REQUIREMENTS:
            assert SpecifierSet(requirement.versions).contains(pinned[requirement.package])
            for package, version in re.findall(r"(\S+)==(\S+)", requirement.command):
                assert pinned[package] == version
