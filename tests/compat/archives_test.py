"""Archives by name, and archives that refer to a biLM of the package."""

import errno
import json
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import pytest
import torch
import yaml
from allennlp.commands import main as allennlp_main
from allennlp.commands.train import train_model, train_model_from_file
from allennlp.common import Params
from allennlp.models import load_archive

from elmo_plugin import BiLM
from elmo_plugin.bilm import model_files
from elmo_plugin.commands.main import main
from elmo_plugin.compat import archives
from elmo_plugin.compat.archives import keep_only_snapshots, opened_archive, save_archive
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining.export import export_model
from elmo_plugin.pretraining.starting_point import load_start
from tests.conftest import FIXTURES, file_size_limit, randomize
from tests.tasks.task_testing import run_predict

TINY = FIXTURES / "ner" / "tiny"
ELMO = "model.text_encoder.elmo"
FILES = {
    "options_file": str(FIXTURES / "bilm" / "tiny" / "options.json"),
    "weight_file": str(FIXTURES / "bilm" / "tiny" / "weights.hdf5"),
}
BY_NAME = {f"{ELMO}.options_file": "tiny_bilm", f"{ELMO}.weight_file": None}


def train(folder: Path, **overrides: Any) -> Path:
    """An archive of the tiny tagger with ELMo of `tiny_bilm`."""
    changes = json.dumps({**BY_NAME, **overrides})
    train_model_from_file(TINY / "experiment_elmo.jsonnet", folder, overrides=changes)
    return folder / "model.tar.gz"


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in place of the package's own, with a biLM `tiny_bilm` and a tagger `tiny_ner`."""
    folder = tmp_path_factory.mktemp("pretrained")
    shutil.copytree(FIXTURES / "bilm" / "tiny", folder / "tiny_bilm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_files, "PRETRAINED_FOLDER", folder)
        export_model(train(folder / "run"), folder / "tiny_ner", task_model=True)
        # Only `pretrained_names` look here.
        shutil.move(folder / "run", folder.with_name("run"))
    return folder


@pytest.fixture(autouse=True)
def names(pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The names, in an empty folder."""
    monkeypatch.setattr(model_files, "PRETRAINED_FOLDER", pretrained)
    monkeypatch.chdir(tmp_path)
    return pretrained


def run_of(pretrained: Path) -> Path:
    return pretrained.with_name("run")


def assert_same_weights(archive_file: Any, expected_file: Any, **options: Any) -> None:
    """The same bits: weights are copied."""
    found = dict(load_archive(archive_file, **options).model.named_parameters())
    expected = dict(load_archive(expected_file).model.named_parameters())
    assert found.keys() == expected.keys()
    assert any("_elmo_lstm" in name for name in found)
    for name, parameter in found.items():
        assert torch.equal(parameter, expected[name]), name


def test_the_small_archive_lacks_the_bilm_and_loads_it(names: Path) -> None:
    weights = torch.load(names / "tiny_ner" / "weights.th")
    assert any(key.endswith(".bilm_source") for key in weights)
    assert not any("_elmo_lstm" in key for key in weights)
    for archive_file in ("tiny_ner", names / "tiny_ner"):
        assert_same_weights(archive_file, run_of(names) / "model.tar.gz")


def test_predict_evaluate_and_our_own_commands_take_the_name(
    names: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_predict("tiny_ner", TINY / "inputs.jsonl", "--output-file", "by_name.jsonl")
    run_predict(run_of(names), TINY / "inputs.jsonl", "--output-file", "by_path.jsonl")
    assert Path("by_name.jsonl").read_text() == Path("by_path.jsonl").read_text()
    arguments = ["evaluate", "tiny_ner", str(TINY / "train.conll"), "--output-file", "metrics.json"]
    monkeypatch.setattr(sys, "argv", ["allennlp", *arguments])
    allennlp_main()
    measured = json.loads(Path("metrics.json").read_text())
    trained = json.loads((run_of(names) / "metrics.json").read_text())
    assert measured["f1"] == trained["best_validation_f1"]  # a quotient of the same counts
    expected = BiLM.from_files("tiny_bilm").state_dict()
    found = load_start("tiny_ner").bilm.state_dict()
    assert all(torch.equal(found[key], expected[key]) for key in expected)


def test_a_name_hides_no_file_or_folder(names: Path) -> None:
    Path("tiny_ner").write_text("not an archive")
    with pytest.raises(Exception, match="Not a gzipped file"):
        load_archive("tiny_ner")
    Path("tiny_ner").unlink()
    Path("tiny_ner").mkdir()
    with pytest.raises(ConfigurationError, match=r"^tiny_ner: a folder without config\.json, "):
        load_archive("tiny_ner")
    Path("tiny_ner").rmdir()
    other = train(Path("other"), **{f"{ELMO}.placement": "none"}).parent
    other.rename("tiny_ner")
    assert load_archive("tiny_ner").model.text_encoder.elmo.places == ()
    # Nor does a file hide the biLM that the archive refers to.
    Path("tiny_bilm").write_text("{}")
    load_archive(names / "tiny_ner")
    with pytest.raises(ConfigurationError, match="tiny_bilm: one file, expected both files"):
        BiLM.from_files("tiny_bilm")


@pytest.mark.parametrize(
    "member, change, message",
    [
        ("config.json", lambda content: content[:-20], r"gz: config\.json: not JSON"),
        ("config.json", lambda content: b"{}", r"\("),
        ("config.json", lambda c: c.replace(b'"elmo_ner"', b'"nothing"'), "nothing"),
        ("meta.json", lambda content: b"{", r"\("),
        (
            "vocabulary/tokens.txt",
            lambda c: c + bytes(1_000_001),
            r"tokens\.txt, line \d+: found a line",
        ),
        ("vocabulary/tokens.txt", lambda c: c.partition(b"\n")[2], "OOV token not found"),
        (
            "vocabulary/labels.txt",
            lambda c: c.replace(b"U-ORG\n", b""),
            "size mismatch for .*: copying",
        ),
        ("weights.th", lambda content: content[:500], "cannot be read as weights"),
        ("weights.th", lambda c: c.replace(b"PK\1\2", b"PK\1\1"), "BadZipFile: Bad magic number"),
        ("weights.th", None, "No such file"),
    ],
)
def test_a_damaged_archive_is_one_error_and_leaves_nothing(
    member: str,
    change: Optional[Callable[[bytes], bytes]],
    message: str,
    names: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(run_of(names), "run")
    shutil.move("run/best.th", "run/weights.th")
    path = Path("run", member)
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    with tarfile.open("model.tar.gz", "w:gz") as archive:
        for name in ("config.json", "meta.json", "vocabulary", "weights.th"):
            if Path("run", name).exists():
                archive.add(f"run/{name}", name)
    Path("temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(Path("temporary").absolute()))
    with pytest.raises(ConfigurationError, match=message):
        opened_archive("model.tar.gz")
    assert list(Path("temporary").iterdir()) == []


@pytest.mark.parametrize(
    "error, message",
    [
        (
            torch.OutOfMemoryError("CUDA out of memory"),
            "^x.tar.gz: the memory of GPU -1 is full .OutOfMemoryError: CUDA out of memory.",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "x.tar.gz: there is no room to unpack it in",
        ),
        (OSError(errno.EIO, "I/O"), "x.tar.gz: cannot be loaded as an archive"),
    ],
)
def test_full_memory_or_disk_is_no_damage(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise error

    monkeypatch.setattr(archives, "load_archive", fail)
    with pytest.raises(ConfigurationError, match=message):
        opened_archive("x.tar.gz")


@pytest.mark.parametrize(
    "name, found",
    [
        ("model.tar.gz", "no such file or folder"),
        ("tiny_bilm", "that is the name of a biLM"),
    ],
)
def test_an_unknown_name_lists_the_known_ones(name: str, found: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{name}: {found}, expected an .*: tiny_ner\."):
        load_archive(name)
    with pytest.raises(ConfigurationError, match=rf"^{name}: {found}, expected an "):
        export_model(name, "output", task_model=True)
    assert not Path("output").exists()
    with pytest.raises(FileNotFoundError, match=f"no/{name}"):
        load_archive(f"no/{name}")


def test_a_bilm_that_is_not_there_is_named(
    names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "PRETRAINED_FOLDER", tmp_path)
    shutil.copytree(FIXTURES / "bilm" / "tiny", tmp_path / "other_bilm")
    message = r"^The archive refers to the biLM tiny_bilm and .* elmo_plugin: other_bilm\. Install"
    with pytest.raises(ConfigurationError, match=message):
        load_archive(names / "tiny_ner")


def test_a_bilm_of_other_weights_is_named_and_the_right_files_can_replace_it(
    names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "PRETRAINED_FOLDER", tmp_path)
    (tmp_path / "tiny_bilm").mkdir()
    bilm = BiLM.from_files(*FILES.values())
    wrong = {key: str(tmp_path / "tiny_bilm" / Path(file).name) for key, file in FILES.items()}
    randomize(bilm).save(*wrong.values())
    message = (
        r"biLM tiny_bilm and does not hold it: found weights of the SHA-256 \w+, expected \w+\."
    )
    for overrides in ("", {f"{ELMO}.{key}": file for key, file in wrong.items()}):
        with pytest.raises(ConfigurationError, match=message):
            load_archive(names / "tiny_ner", overrides=overrides)
    right = {f"{ELMO}.{key}": file for key, file in FILES.items()}
    assert_same_weights(names / "tiny_ner", run_of(names), overrides=right)


@pytest.mark.parametrize("change", ["trained with the task", "files"])
def test_other_bilms_stay_in_the_archive(change: str) -> None:
    overrides: Dict[str, Any] = {f"{ELMO}.requires_grad": True}
    if change == "files":
        overrides = {f"{ELMO}.{key}": file for key, file in FILES.items()}
    archive_file = train(Path("run"), **overrides)
    export_model(archive_file, "exported", task_model=True)
    assert_same_weights("exported", archive_file)
    assert any("_elmo_lstm" in key for key in torch.load("exported/weights.th"))


def test_the_command_writes_float16_and_a_card_with_scores(
    names: Path, capsys: pytest.CaptureFixture
) -> None:
    Path("about.md").write_text("Tags\nweather.\n\nNot for: rain.\n")
    Path("a.json").write_text('{"precision": 0.5, "f1": 0.625, "_f1-PER": 0.1, "loss": 3.0}')
    options = ["--task-model", "--dtype", "float16", "--description", "about.md"]
    scores = ["--scores", "Wiki, test=a.json", "web=a.json", "--license", "cc0-1.0"]
    main(["export", str(run_of(names)), "out", *options, *scores])
    files = ["config.json", "weights.th", "vocabulary", "meta.json", "README.md"]
    assert capsys.readouterr().out.split() == [f"out/{file}" for file in files]
    found = torch.load("out/weights.th")["tag_projection.weight"]
    expected = load_archive(run_of(names)).model.state_dict()["tag_projection.weight"]
    assert torch.equal(found, expected.half())
    card = Path("out/README.md").read_text()
    head = yaml.safe_load(card.split("---")[1])
    assert head == {
        "library_name": "allennlp",
        "license": "cc0-1.0",
        "summary": "Tags weather.",
        "tags": ["elmo", "elmo_ner"],
    }
    assert "\n# out\n\nTags\nweather.\n\nNot for: rain.\n" in card
    assert "| Wiki, test | 0.5 | 0.625 |\n| web | 0.5 | 0.625 |" in card
    metrics = json.loads((run_of(names) / "metrics.json").read_text())
    assert f"on `{TINY / 'train.conll'}`: " in card
    assert f"f1 {metrics['best_validation_f1']:.4g}" in card


def test_numbers_too_large_for_float16_stay_float32(names: Path, tmp_path: Path) -> None:
    archive = opened_archive(names / "tiny_ner")
    projection = archive.model.tag_projection
    with torch.no_grad():
        projection.bias[0] = 70_000.0
    save_archive(archive, tmp_path / "folder", "float16")
    loaded = load_archive(tmp_path / "folder").model.tag_projection
    assert torch.equal(loaded.bias, projection.bias)
    assert torch.equal(loaded.weight, projection.weight.half().float())


@pytest.mark.parametrize(
    "options, message",
    [
        (["--scores", "a.json"], "scores: found a.json, expected NAME=FILE"),
        (["--scores", "a=about.md"], "about.md: found no JSON object, expected metrics"),
        (["--scores", "a=deep.json"], "deep.json: not JSON (more than 100 levels)"),
        (["--description", "b.md"], "b.md: cannot be read (No such file or directory)"),
    ],
)
def test_wrong_facts_of_a_card_are_one_line_before_any_work(
    options: List[str], message: str, capsys: Any
) -> None:
    Path("about.md").write_text("[1]")
    Path("deep.json").write_text("[" * 10_000)
    with pytest.raises(SystemExit, match="2"):
        main(["export", "tiny_ner", "out", "--task-model", *options])
    [line] = capsys.readouterr().err.splitlines()[-1:]
    assert message in line
    assert not Path("out").exists()


def test_existing_files_are_replaced_only_on_request(names: Path) -> None:
    Path("out/vocabulary").mkdir(parents=True)
    Path("out/vocabulary/old.txt").write_text("old")
    with pytest.raises(ConfigurationError, match="out/vocabulary exists, expected a new path"):
        export_model("tiny_ner", "out", task_model=True)
    export_model("tiny_ner", "out", overwrite=True, task_model=True)
    assert not Path("out/vocabulary/old.txt").exists()
    assert_same_weights("out", "tiny_ner")


def test_a_full_disk_leaves_the_previous_folder(names: Path, tmp_path: Path) -> None:
    archive, folder = opened_archive(names / "tiny_ner"), tmp_path / "folder"
    save_archive(archive, folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with file_size_limit(100), pytest.raises(OSError, match="File too large"):
        save_archive(archive, folder, "float16")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_folder_that_was_not_completely_replaced_cannot_be_loaded(
    names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, folder = opened_archive(names / "tiny_ner"), tmp_path / "folder"
    save_archive(archive, folder)

    def interrupted(folder: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(archive.model.vocab, "save_to_files", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_archive(archive, folder)
    with pytest.raises(ConfigurationError, match=r"a folder without config\.json"):
        load_archive(folder)


def test_a_bilm_that_was_fine_tuned_runs_as_a_snapshot(names: Path, tmp_path: Path) -> None:
    archive_file = train(tmp_path / "fine_tuned", **{f"{ELMO}.requires_grad": True})
    model = opened_archive(archive_file).model
    elmo = model.text_encoder.elmo.elmo
    assert elmo.bilm.is_frozen
    snapshot = elmo.snapshot
    assert snapshot is not None
    keep_only_snapshots(model)
    assert elmo.snapshot is snapshot
    assert not [name for name, _ in model.named_parameters() if "_elmo_lstm" in name]


def change_config(change: Callable[[Dict[str, Any]], None], names: Path) -> Path:
    """An archive, as a folder, with another config."""
    folder = Path(shutil.copytree(names / "tiny_ner", "changed"))
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    "part", ["dataset_reader", "model", "model.text_encoder.encoder", "vocabulary"]
)
@pytest.mark.parametrize("kind", ["subprocess.Popen", "imported_by_name.Popen", "allennlp.data.X"])
def test_a_config_runs_only_classes_that_are_known(
    part: str, kind: str, names: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_by_name.py").write_text("open('planted', 'w')")
    monkeypatch.syspath_prepend(str(tmp_path))

    def change(config: Dict[str, Any]) -> None:
        *parents, last = part.split(".")
        for parent in parents:
            config = config[parent]
        config[last] = {"type": kind, "args": ["touch", "planted"]}

    folder = change_config(change, names)
    with pytest.raises(ConfigurationError, match=rf"config of the archive names {kind}, expected"):
        opened_archive(folder)
    assert not Path("planted").exists()


def test_classes_of_imported_modules_can_be_named(names: Path) -> None:
    def change(config: Dict[str, Any]) -> None:
        config["dataset_reader"]["type"] = "elmo_plugin.tasks.ner.NerReader"

    assert_same_weights(change_config(change, names), names / "tiny_ner")


def test_weights_that_expand_a_thousandfold_are_refused(names: Path) -> None:
    folder = change_config(lambda config: None, names)
    with zipfile.ZipFile(folder / "weights.th", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("weights/data/0", bytes(20_000_000))
    with pytest.raises(ConfigurationError, match=r"weights\.th: its .* expand to 20,000,000"):
        load_archive(folder)


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_config_that_is_a_program_is_refused(is_folder: bool, names: Path) -> None:
    folder = change_config(dict.clear, names)
    Path("changed/config.json").write_text("local f(n) = f(n + 1) + f(n); f(0)")  # without an end
    path = Path("changed")
    if not is_folder:
        path = Path("model.tar.gz")
        with tarfile.open(path, "w:gz") as archive:
            archive.add(folder, "")
    with pytest.raises(ConfigurationError, match=r"config\.json: not JSON .*, expected the config"):
        opened_archive(path)


@pytest.mark.parametrize("has_new_tag", [False, True])
def test_a_fine_tuned_model_is_exported_without_what_it_started_from(
    has_new_tag: bool, names: Path, tmp_path: Path
) -> None:
    """Unless the data have a tag that the model does not have: it is in the vocabulary alone."""
    base = shutil.copytree(names / "tiny_ner", tmp_path / "base")
    params = Params.from_file(TINY / "experiment_elmo.jsonnet")
    params["model"] = {"type": "from_archive", "archive_file": str(base)}
    if has_new_tag:
        (tmp_path / "dev.conll").write_text("Ada B-NEW\n")
        params["validation_data_path"] = str(tmp_path / "dev.conll")
    trained = train_model(params, tmp_path / "run")
    export_model(tmp_path / "run" / "model.tar.gz", tmp_path / "tuned", task_model=True)
    card = (tmp_path / "tuned" / "README.md").read_text()
    assert f"model of type `{'from_archive' if has_new_tag else 'elmo_ner'}`" in card
    if not has_new_tag:
        shutil.rmtree(base)
    exported = load_archive(tmp_path / "tuned").model
    for ours, theirs in zip(exported.parameters(), trained.parameters(), strict=True):
        assert torch.equal(ours, theirs)
