"""The language model, ELMo, the embedder and their commands run without AllenNLP."""

import re
import sys
from pathlib import Path

from tests.conftest import run_program

# As in an environment that lacks AllenNLP.
WITHOUT_ALLENNLP = """
import io, sys
import h5py
sys.modules["allennlp"] = None

from elmo_plugin import BiLM, Elmo, ElmoEmbedder, SentenceScorer, batch_to_ids
from elmo_plugin.errors import ConfigurationError

for precision in ("float32", "int8"):
    elmo = Elmo("elmo_mini", None, 1, do_layer_norm=True, precision=precision)
    vectors = elmo(batch_to_ids([["Hello", "world"]]))["elmo_representations"][0]
    assert vectors.shape == (1, 2, 256)

embedder = ElmoEmbedder("elmo_mini")
assert embedder.embed_sentence(["Hello", "world"]).shape == (3, 2, 256)
assert SentenceScorer.from_files("elmo_mini").score_sentence(["Hello", "world"]).num_unknown == 0
embedder.embed_file(io.StringIO("Hello world"), "vectors.hdf5")
with h5py.File("vectors.hdf5") as vectors:
    assert vectors["0"].shape == (3, 2, 256)

try:
    BiLM.from_files("no/such/file", "weights.hdf5")
except ConfigurationError as error:
    assert "cannot find no/such/file" in str(error)
else:
    raise AssertionError("a missing file was accepted")

# The console script.
from elmo_plugin.commands.main import COMMANDS, main

with open("in.txt", "w") as file:
    file.write("They play and play .\\nA play\\n")
main(["embed", "in.txt", "out.hdf5", "--top", "--model", "elmo_mini"])
words = ["--word", "play", "--sentence", "A play"]
main(["neighbors", "in.txt", *words, "--model", "elmo_mini"])
main(["score", "in.txt", "--model", "elmo_mini"])
main(["models"])
main(["vocab", "in.txt", "--output", "vocab.txt"])
# Torch's compiler, which takes a second to import.
assert "torch._dynamo" not in sys.modules
try:
    main(["embed", "in.txt", "o.hdf5", "--mix", "m.gz"])
except SystemExit as error:
    assert error.code == 2
assert not any(name.startswith("allennlp.") for name in sys.modules)
"""


def test_the_core_runs_without_allennlp(tmp_path: Path) -> None:
    process = run_program(sys.executable, "-W", "ignore", "-c", WITHOUT_ALLENNLP, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert "out.hdf5: 2 sentences, 7 tokens" in process.stdout
    assert "play: 3 occurrences" in process.stdout
    assert "2 sentences, 7 words, 0 of them unknown: perplexity " in process.stdout
    assert re.search(r"^elmo_mini +biLM +10\.\d MB  ", process.stdout, re.MULTILINE)
    advice = 'pip install "elmo-plugin[allennlp]" && pip install --no-deps allennlp==2.10.1'
    (error,) = [line for line in process.stderr.splitlines() if "error: " in line]
    assert error.startswith("elmo embed: error: --mix needs AllenNLP, which ")
    assert error.endswith(advice)
