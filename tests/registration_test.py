"""The names that configs can use: ours, and none of anybody else."""

import subprocess
import sys
from pathlib import Path
from typing import Iterator, List, Tuple

import pytest
from allennlp.commands.subcommand import Subcommand
from allennlp.common import Registrable
from allennlp.data import DatasetReader, Tokenizer
from allennlp.models import Model
from allennlp.modules import TokenEmbedder
from allennlp.predictors import Predictor

import elmo_plugin
from elmo_plugin import registration


def registered_here() -> Iterator[Tuple[type, str]]:
    registration.register()
    for base, entries in Registrable._registry.items():
        for name, (registered, _) in entries.items():
            if registered.__module__.startswith("elmo_plugin."):
                yield base, name


def test_every_registered_name_is_elmo_or_starts_with_elmo() -> None:
    names = [name for _, name in registered_here()]
    assert len(names) >= 6
    for name in names:
        assert name == "elmo" or name.startswith(("elmo_", "elmo-")), name


def test_the_names_that_configs_rely_on_are_there() -> None:
    assert TokenEmbedder.by_name("elmo") is elmo_plugin.ElmoTokenEmbedder
    for base in (DatasetReader, Model, Predictor):
        assert base.by_name("elmo_ner").__module__.startswith("elmo_plugin.tasks.ner.")
    assert Tokenizer.by_name("elmo_rule_based") is elmo_plugin.tasks.RuleBasedTokenizer
    assert "train" in Subcommand.list_available()


def test_allennlps_own_embedder_is_untouched() -> None:
    assert TokenEmbedder.by_name("elmo_token_embedder").__module__.startswith("allennlp.")


def test_the_public_names_are_importable_from_the_top() -> None:
    for name in elmo_plugin.__all__:
        assert hasattr(elmo_plugin, name), name


IMPORTS = ["import elmo_plugin, elmo_plugin.errors", "from allennlp.models import Model"]

# Without the extras and Triton, and without jinja2 once AllenNLP has imported it.
LOOK_NAMES_UP_AND_IMPORT_ALL = """
assert "elmo_plugin.tasks" not in sys.modules
assert Model.by_name("elmo_ner").__name__ == "NerTagger"
assert "elmo_sst" in Model.list_available()

from allennlp.common.checks import ConfigurationError
assert isinstance(elmo_plugin.errors.ConfigurationError("wrong key"), ConfigurationError)

loaded = [name for name in sys.modules if name.startswith("elmo_plugin.report.")]
assert loaded == ["elmo_plugin.report.share_reader"], loaded

for name in [name for name in sys.modules if name.split(".")[0] == "jinja2"]:
    del sys.modules[name]
sys.modules["jinja2"] = None
from allennlp.common.util import import_module_and_submodules
import_module_and_submodules("elmo_plugin")  # as `--include-package` does
"""


@pytest.mark.parametrize("imports", [IMPORTS, IMPORTS[::-1]], ids=["ours first", "AllenNLP first"])
def test_names_are_found_in_whichever_order_the_two_are_imported(imports: List[str]) -> None:
    blocked = [
        "fastapi",
        "matplotlib",
        "pandas",
        "pyarrow",
        "ray",
        "starlette",
        "triton",
        "uvicorn",
    ]
    first = ["import sys", f"sys.modules.update(dict.fromkeys({blocked}))"]
    program = "\n".join([*first, *imports, LOOK_NAMES_UP_AND_IMPORT_ALL])
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr


LOAD_AN_ARCHIVE = """
from allennlp.models import load_archive

try:
    load_archive("no_such_model")
except elmo_plugin.errors.ConfigurationError as error:
    assert "the name of a task model" in str(error), error
"""


@pytest.mark.slow
@pytest.mark.parametrize("imports", [IMPORTS, IMPORTS[::-1]], ids=["ours first", "AllenNLP first"])
def test_the_first_lookup_may_be_that_of_an_archive(imports: List[str], tmp_path: Path) -> None:
    program = "\n".join([*imports, LOAD_AN_ARCHIVE])
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert process.returncode == 0, process.stderr


def test_importing_the_package_loads_neither_torch_nor_allennlp() -> None:
    program = "import sys, elmo_plugin; print({'torch', 'allennlp'} & set(sys.modules))"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert process.stdout.strip() == "set()", process.stderr


def test_a_name_that_the_package_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Bilm'"):
        _ = elmo_plugin.Bilm
