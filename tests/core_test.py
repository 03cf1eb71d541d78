"""The language model and ELMo run without AllenNLP."""

import subprocess
import sys
from pathlib import Path

import elmo_plugin

# The package's own __init__ files load the plugin, so that bare packages stand in for them.
WITHOUT_ALLENNLP = """
import sys, types
for name in ("elmo_plugin", "elmo_plugin.modules"):
    package = types.ModuleType(name)
    package.__path__ = [sys.argv[1] + "/" + "/".join(name.split(".")[1:])]
    sys.modules[name] = package
sys.modules["allennlp"] = None
from elmo_plugin.bilm import BiLM, batch_to_ids
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.elmo import Elmo
for precision in ("float32", "int8"):
    elmo = Elmo("elmo_mini", None, 1, do_layer_norm=True, precision=precision)
    vectors = elmo(batch_to_ids([["Hello", "world"]]))["elmo_representations"][0]
    assert vectors.shape == (1, 2, 256)
try:
    BiLM.from_files("no/such/file", "weights.hdf5")
except ConfigurationError as error:
    assert "cannot find no/such/file" in str(error)
assert not any(name.startswith("allennlp.") for name in sys.modules)
"""


def test_elmo_runs_without_allennlp() -> None:
    folder = str(Path(elmo_plugin.__file__).parent)
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_ALLENNLP, folder]
    subprocess.run(command, check=True, timeout=300)
