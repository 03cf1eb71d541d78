"""The language model, ELMo and the embedder run without AllenNLP."""

import subprocess
import sys

import pytest

# As in an environment that lacks it.
WITHOUT_ALLENNLP = """
import sys
sys.modules["allennlp"] = None
"""

LAYERS_AND_MIXES = """
from elmo_plugin import BiLM, Elmo, batch_to_ids
from elmo_plugin.errors import ConfigurationError
for precision in ("float32", "int8"):
    elmo = Elmo("elmo_mini", None, 1, do_layer_norm=True, precision=precision)
    vectors = elmo(batch_to_ids([["Hello", "world"]]))["elmo_representations"][0]
    assert vectors.shape == (1, 2, 256)
try:
    BiLM.from_files("no/such/file", "weights.hdf5")
except ConfigurationError as error:
    assert "cannot find no/such/file" in str(error)
else:
    raise AssertionError("a missing file was accepted")
"""

EMBEDDED_SENTENCES = """
from elmo_plugin import ElmoEmbedder
embedder = ElmoEmbedder("elmo_mini")
assert embedder.embed_sentence(["Hello", "world"]).shape == (3, 2, 256)
"""

EMBEDDED_FILE = """
import io, h5py
from elmo_plugin import ElmoEmbedder
ElmoEmbedder("elmo_mini").embed_file(io.StringIO("Hello world"), "vectors.hdf5")
with h5py.File("vectors.hdf5") as vectors:
    assert vectors["0"].shape == (3, 2, 256)
"""


@pytest.mark.parametrize("program", [LAYERS_AND_MIXES, EMBEDDED_SENTENCES, EMBEDDED_FILE])
def test_the_core_runs_without_allennlp(program: str, tmp_path: str) -> None:
    program = (
        f"{WITHOUT_ALLENNLP}{program}assert not any(n.startswith('allennlp.') for n in sys.modules)"
    )
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 0, process.stderr
