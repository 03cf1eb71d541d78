"""The `allennlp` command as users call it, in processes of its own."""

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
        timeout=300,
    )


def test_help_from_the_projects_folder_loads_the_plugin_without_a_clash() -> None:
    result = allennlp("--help", folder=REPOSITORY)
    assert result.returncode == 0, result.stderr
    assert "train" in result.stdout
    assert "could not be loaded" not in result.stdout + result.stderr
    assert "ConfigurationError" not in result.stderr


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
    assert "Word-type cache: hit rate" in result.stdout
    return folder / "run" / "model.tar.gz"


def test_evaluate_prints_f1(archive_file: Path) -> None:
    result = allennlp(
        *("evaluate", str(archive_file), str(TINY / "train.conll")),
        *("--include-package", "elmo_plugin", "--output-file", "metrics.json"),
        folder=archive_file.parent,
    )
    assert result.returncode == 0, result.stderr
    metrics = json.loads((archive_file.parent / "metrics.json").read_text())
    assert {"precision", "recall", "f1", "loss"} <= metrics.keys()


def test_predict_writes_one_line_for_each_sentence(archive_file: Path) -> None:
    folder = archive_file.parent
    sentences = [{"sentence": "Mary Smith visited New York."}, {"tokens": ["Rain", "in", "Łódź"]}]
    (folder / "in.jsonl").write_text("\n".join(json.dumps(sentence) for sentence in sentences))
    result = allennlp(
        *("predict", str(archive_file), "in.jsonl", "--output-file", "out.jsonl", "--silent"),
        *("--include-package", "elmo_plugin", "--batch-size", "2"),
        folder=folder,
    )
    assert result.returncode == 0, result.stderr
    outputs = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [len(output["tags"]) for output in outputs] == [6, 3]
    assert outputs[1]["words"] == ["Rain", "in", "Łódź"]


def test_a_missing_weight_file_is_named_before_training(tmp_path: Path) -> None:
    overrides = json.dumps({"model.text_encoder.elmo.weight_file": "no/weights.hdf5"})
    result = allennlp(
        *("train", str(TINY / "experiment_elmo.jsonnet"), "-s", "run"),
        *("--include-package", "elmo_plugin", "--overrides", overrides),
        folder=tmp_path,
    )
    assert result.returncode != 0
    assert "weight_file: cannot find no/weights.hdf5" in result.stderr
