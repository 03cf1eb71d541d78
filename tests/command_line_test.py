"""The `allennlp` command as users call it. Separate processes show each way to load the plugin."""

import json
import sys
from pathlib import Path

from elmo_plugin.bilm.model_files import PRETRAINED_FOLDER
from tests.conftest import REPOSITORY, run_program


def test_the_plugin_is_loaded_in_any_folder_without_a_clash(tmp_path: Path) -> None:
    """Predict in the folder of the project. (Tests of reports train in another one.)"""
    sentences = [{"sentence": "Mary Smith visited New York."}, {"tokens": ["Rain", "in", "Łódź"]}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, sentences)))
    predicted = run_program(
        *(sys.executable, "-m", "allennlp", "predict", PRETRAINED_FOLDER / "elmo_ner_small"),
        *(tmp_path / "in.jsonl", "--silent", "--batch-size", 2),
        *("--output-file", tmp_path / "out.jsonl"),
        cwd=REPOSITORY,
        OMP_NUM_THREADS="1",
    )
    assert predicted.returncode == 0, predicted.stderr
    assert "could not be loaded" not in predicted.stdout + predicted.stderr
    outputs = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [len(output["tags"]) for output in outputs] == [6, 3]
    assert outputs[1]["words"] == ["Rain", "in", "Łódź"]
