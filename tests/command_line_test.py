"""The `allennlp` command as users call it. Separate processes show each way to load the plugin."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
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


@pytest.fixture(scope="module")
def archive_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny tagger, trained from a folder that is not the project's."""
    folder = tmp_path_factory.mktemp("elsewhere")
    overrides = json.dumps({"trainer.num_epochs": 1, "trainer.cuda_device": -1})
    result = allennlp(
        *("train", str(TINY / "experiment_elmo.jsonnet"), "-s", "run"),
        *("--include-package", "elmo_plugin", "--overrides", overrides),
        folder=folder,
    )
    assert result.returncode == 0, result.stderr
    assert "The frozen biLM runs in float32" in result.stdout
    return folder / "run" / "model.tar.gz"


def test_predict_from_the_projects_folder_loads_the_plugin_without_a_clash(
    archive_file: Path,
) -> None:
    folder = archive_file.parent
    sentences = [{"sentence": "Mary Smith visited New York."}, {"tokens": ["Rain", "in", "Łódź"]}]
    (folder / "in.jsonl").write_text("\n".join(json.dumps(sentence) for sentence in sentences))
    result = allennlp(
        *("predict", str(archive_file), str(folder / "in.jsonl"), "--silent", "--batch-size", "2"),
        *("--output-file", str(folder / "out.jsonl")),
        folder=REPOSITORY,
    )
    assert result.returncode == 0, result.stderr
    assert "could not be loaded" not in result.stdout + result.stderr
    outputs = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [len(output["tags"]) for output in outputs] == [6, 3]
    assert outputs[1]["words"] == ["Rain", "in", "Łódź"]
