"""The `allennlp` command as users call it. Separate processes show each way to load the plugin."""

import json
import os
import subprocess
import sys
from pathlib import Path

from elmo_plugin.bilm.model_files import PRETRAINED_FOLDER
from tests.conftest import REPOSITORY


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
    """Predict in the folder of the project. (Tests of reports train in another one.)"""
    sentences = [{"sentence": "Mary Smith visited New York."}, {"tokens": ["Rain", "in", "Łódź"]}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, sentences)))
    predicted = allennlp(
        *("predict", str(PRETRAINED_FOLDER / "elmo_ner_small"), str(tmp_path / "in.jsonl")),
        *("--silent", "--batch-size", "2", "--output-file", str(tmp_path / "out.jsonl")),
        folder=REPOSITORY,
    )
    assert predicted.returncode == 0, predicted.stderr
    assert "could not be loaded" not in predicted.stdout + predicted.stderr
    outputs = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [len(output["tags"]) for output in outputs] == [6, 3]
    assert outputs[1]["words"] == ["Rain", "in", "Łódź"]
