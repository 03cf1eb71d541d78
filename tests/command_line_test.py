"""The `allennlp` command as users call it. Separate processes show each way to load the plugin."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY

TINY = REPOSITORY / "fixtures" / "ner" / "tiny"


def allennlp(*arguments: str, folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "allennlp", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_the_plugin_is_loaded_in_any_folder_without_a_clash(tmp_path: Path) -> None:
    """Train a tiny tagger in a folder that is not the project's, and predict in that of the project."""
    overrides = json.dumps({"trainer.num_epochs": 1, "trainer.cuda_device": -1})
    trained = allennlp(
        *("train", str(TINY / "experiment_elmo.jsonnet"), "-s", "run"),
        *("--include-package", "elmo_plugin", "--overrides", overrides),
        folder=tmp_path,
    )
    assert trained.returncode == 0, trained.stderr
    assert "The frozen biLM runs in float32" in trained.stdout

    sentences = [{"sentence": "Mary Smith visited New York."}, {"tokens": ["Rain", "in", "Łódź"]}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, sentences)))
    predicted = allennlp(
        *("predict", str(tmp_path / "run" / "model.tar.gz"), str(tmp_path / "in.jsonl")),
        *("--silent", "--batch-size", "2", "--output-file", str(tmp_path / "out.jsonl")),
        folder=REPOSITORY,
    )
    assert predicted.returncode == 0, predicted.stderr
    assert "could not be loaded" not in predicted.stdout + predicted.stderr
    outputs = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [len(output["tags"]) for output in outputs] == [6, 3]
    assert outputs[1]["words"] == ["Rain", "in", "Łódź"]
