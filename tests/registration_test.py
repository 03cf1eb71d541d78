"""The names that configs can use: ours, and none of anybody else."""

import subprocess
import sys
from pathlib import Path
from typing import Dict, Union

import pytest
from allennlp.common import FromParams, Params, Registrable

import elmo_plugin.errors
import elmo_plugin.plugin


def test_every_registered_name_is_elmo_or_starts_with_elmo() -> None:
    names = [
        name
        for entries in Registrable._registry.values()
        for name, (registered, _) in entries.items()
        if registered.__module__.startswith("elmo_plugin.")
    ]
    assert len(names) >= 6
    for name in names:
        assert name == "elmo" or name.startswith(("elmo_", "elmo-")), name


def test_the_public_names_are_importable_from_the_top() -> None:
    for name in elmo_plugin.__all__:
        assert hasattr(elmo_plugin, name), name
    with pytest.raises(AttributeError, match="has no attribute 'Bilm'"):
        _ = elmo_plugin.Bilm


# The plugin without the extras and Triton; then its other modules, without jinja2 too.
USE_THE_PLUGIN = """
import sys

missing = ["fastapi", "matplotlib", "pandas", "pyarrow", "ray", "starlette", "triton", "uvicorn"]
sys.modules.update(dict.fromkeys(missing))

import elmo_plugin.plugin
from allennlp.common.util import import_module_and_submodules
from allennlp.models import Model, load_archive

assert Model.by_name("elmo_ner").__name__ == "NerTagger"
try:
    load_archive("no_such_model")
except elmo_plugin.errors.ConfigurationError as error:
    assert "the name of a task model" in str(error), error
loaded = [name for name in sys.modules if name.startswith("elmo_plugin.report.")]
assert loaded == ["elmo_plugin.report.share_reader"], loaded

for name in [name for name in sys.modules if name.split(".")[0] == "jinja2"]:
    del sys.modules[name]
sys.modules["jinja2"] = None
import_module_and_submodules("elmo_plugin")  # as `--include-package elmo_plugin` does
"""


def test_one_import_registers_all_names_without_the_extras(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", USE_THE_PLUGIN], cwd=tmp_path, check=True)


def test_allennlp_handles_our_error_as_its_own() -> None:
    """Of a union of types, AllenNLP builds the first one whose constructor raises no error of a config."""

    class Strict(FromParams):
        def __init__(self, size: int) -> None:
            raise elmo_plugin.errors.ConfigurationError("size: found 3, expected 4.")

    class Model(FromParams):
        def __init__(self, part: Union[Strict, Dict[str, int]]) -> None:
            self.part = part

    assert Model.from_params(Params({"part": {"size": 3}})).part == {"size": 3}
