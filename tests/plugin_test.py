"""What loading the plugin does: names that configs can use, ours alone, and the number of threads."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Union

import pytest
import torch
from allennlp.common import FromParams, Params, Registrable

import elmo_plugin.errors
from elmo_plugin import plugin


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
        assert name in dir(elmo_plugin)
    with pytest.raises(AttributeError, match="has no attribute 'Bilm'"):
        _ = elmo_plugin.Bilm


# The plugin without the extras and Triton; then its other modules, without jinja2 too.
USE_THE_PLUGIN = """
import sys
from elmo_plugin import cpus

cpus.cpu_quota = lambda: 1.0
missing = ["fastapi", "matplotlib", "pyarrow", "ray", "starlette", "triton", "uvicorn"]
sys.modules.update(dict.fromkeys(missing))

import elmo_plugin.plugin
import torch
from allennlp.common.util import import_module_and_submodules
from allennlp.models import Model, load_archive

assert torch.get_num_threads() == 1  # of the quota
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
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    program = [sys.executable, "-c", USE_THE_PLUGIN]
    subprocess.run(program, cwd=tmp_path, env=environment, check=True)


@pytest.mark.parametrize("most, chosen", [(1, [1]), (3, [3]), (4, []), (8, [])])
def test_torch_has_no_more_threads_than_a_quota_allows(
    most: int, chosen: List[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to: List[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    monkeypatch.setattr(plugin, "most_threads", lambda: most)
    plugin.limit_threads()
    assert set_to == chosen


def test_allennlp_handles_our_error_as_its_own() -> None:
    """Of a union of types, AllenNLP builds the first one whose constructor raises no error of a config."""

    class Strict(FromParams):
        def __init__(self, size: int) -> None:
            raise elmo_plugin.errors.ConfigurationError("size: found 3, expected 4.")

    class Model(FromParams):
        def __init__(self, part: Union[Strict, Dict[str, int]]) -> None:
            self.part = part

    assert Model.from_params(Params({"part": {"size": 3}})).part == {"size": 3}
