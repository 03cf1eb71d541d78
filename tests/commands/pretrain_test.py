"""`elmo pretrain`, as users call it."""

import errno
import gzip
import io
import json
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy
import pytest
from allennlp.commands.train import train_model_from_file
from allennlp.common import Params

from elmo_plugin import BiLM
from elmo_plugin.bilm.model_files import PRETRAINED_FOLDER
from elmo_plugin.commands.main import main
from elmo_plugin.commands.pretrain import PretrainOptions
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import claimed_folder
from elmo_plugin.pretraining import command, process
from elmo_plugin.pretraining.plan import Plan
from elmo_plugin.pretraining.progress import last_progress
from elmo_plugin.pretraining.text import PreparedText
from tests.commands.conftest import error_of_command
from tests.conftest import FIXTURES, REPOSITORY, write_parquet

TEXT = str(FIXTURES / "lm" / "train-*.txt")
TINY = f"""
local bilm = import '{REPOSITORY}/elmo_plugin/training_configs/lib/bilm.libsonnet';
bilm.experiment(
  train=std.extVar('LM_TRAIN'),
  heldout=std.extVar('LM_HELDOUT'),
  vocabulary=std.extVar('LM_VOCABULARY'),
  options=bilm.options(cell_size=24, projection_dim=12, num_highway=1, filters=[[1, 4], [2, 8]]),
  softmax={{ type: 'elmo_full' }},
  rows=8,
  unroll_steps=10,
  heldout_rows=4,
)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(process, "SECONDS_OF_MEASURING", 0.5)
    monkeypatch.setattr(process, "SECONDS_BETWEEN_POLLS", 0.05)
    (tmp_path / "tiny.jsonnet").write_text(TINY)
    distributed = f"{TINY} + {{ distributed: {{ cuda_devices: [-1, -1] }} }}"
    (tmp_path / "distributed.jsonnet").write_text(distributed)
    (tmp_path / "no_model.jsonnet").write_text(f"{TINY} + {{ model:: null }}")
    return tmp_path


def error_of(words: str, capsys: Any, status: int = 2) -> str:
    return error_of_command(["pretrain", *words.split()], capsys, status)


@pytest.mark.parametrize(
    "words, message",
    [
        ("in.txt out --hours 0", "--hours is 0.0, expected a positive number"),
        ("in.txt out --hours 1 --epochs 2", "--hours and --epochs are given"),
        ("in.txt out --resume --overwrite", "--resume and --overwrite are given"),
        ("in.txt out --from elmo_mini --size mini", "--from and --size are given"),
        ("in.txt out", "there is no file in.txt"),
        ("in.txt -", "OUTPUT: found -, standard output, expected the path"),
        ("in.txt tiny.jsonnet", "tiny.jsonnet is a file, expected a folder"),
        ("in.txt out\udcff", r"OUTPUT: 'out\udcff' is not UTF-8"),
        (f"{TEXT} out --size distributed.jsonnet", "has the key distributed"),
        (f"{TEXT} out --size no_model.jsonnet", "has no model of type elmo_bilm"),
        (f"{TEXT} out --from nothing", "nothing"),
        (f"{TEXT} out --from {FIXTURES}/bilm/many_langs/words", "which cannot be trained"),
        (f"{TEXT} elmo_small --from elmo_small", "elmo_small is the name of the biLM to adapt"),
        (
            f"{FIXTURES}/lm out --heldout {FIXTURES}/lm/heldout.txt",
            "heldout.txt is held out, and al",
        ),
    ],
)
def test_mistakes_are_one_line_before_anything_is_trained(
    words: str, message: str, capsys: Any
) -> None:
    error = error_of(words, capsys)
    assert message in error
    assert "Traceback" not in error
    # The next call needs no --overwrite.
    assert not Path("out", "training", "plan.json").exists()
    assert "exists" not in error_of(words, capsys)


@pytest.mark.parametrize(
    "file, words, message",
    [
        ("out/mine.txt", f"{TEXT} out", "OUTPUT: out exists, expected a new folder"),
        (
            "out/training/mine.txt",
            f"{TEXT} out --overwrite",
            "out/training was not written by this",
        ),
        (
            "out/README.md",
            f"{TEXT} out",
            "out has README.md, but no training/made_by_elmo_pretrain",
        ),
        ("out/README.md", f"{TEXT} out --overwrite", "out has README.md, but no training/made"),
        # The training of a finished model may have been removed, as the documentation suggests.
        ("out/weights.hdf5", f"{TEXT} out --resume", "out has weights.hdf5, but no training/made"),
        ("out/text.txt", "out out", "OUTPUT: out is the folder of the text, expected another"),
        ("out/text.txt", "./out/ out --overwrite", "OUTPUT: out is the folder of the text, exp"),
    ],
)
def test_files_that_this_command_did_not_write_are_not_replaced(
    file: str, words: str, message: str, capsys: Any
) -> None:
    Path(file).parent.mkdir(parents=True)
    Path(file).write_text("mine\n")
    assert message in error_of(words, capsys)
    assert [str(path) for path in Path("out").rglob("*") if path.is_file()] == [file]


def test_an_argument_that_is_the_default_is_the_same_as_none() -> None:
    given = PretrainOptions(["in.txt"], "out", size="mini", hours=1.0)
    assert given.plan_arguments() == PretrainOptions(["in.txt"], "out").plan_arguments()


def test_shown_words_are_those_of_several_sentences() -> None:
    sentences = [["the", "bank", "bank", "bank"], ["a", "river"], ["river"], ["the", "river"]]
    assert command._shown_words(sentences) == ["river"]
    # Vowel signs are no letters.
    assert command._shown_words([["हिन्दी", f"{number}a"] for number in range(3)]) == ["हिन्दी"]
    # The same sentence again is not another one.
    assert command._shown_words([["a", "bank"]] * 3) == []


def test_a_wrong_size_is_an_error_before_the_text_is_read(folder: Path, capsys: Any) -> None:
    assert "--size: huge is no config" in error_of(f"{TEXT} out --size huge", capsys)
    names = {path.name for path in (folder / "out" / "training").iterdir()}
    assert names <= {"lock", command.MARK_NAME}


def test_options_of_the_text_and_the_biLM_reach_the_training(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train", "_export", "_show"):
        monkeypatch.setattr(command, name, lambda *unused: None)
    monkeypatch.setattr(command, "measured_speed", lambda *unused: 1000.0)
    monkeypatch.setattr("elmo_plugin.pretraining.plan.MAX_VOCABULARY", 5)
    ids = [0] * 20  # the first column, which is not read
    text = write_parquet("in.parquet", id=ids, text=["I'm here"] * 20)
    heldout = write_parquet("heldout.parquet", id=ids[:2], text=["We're not", "They're"])
    start = FIXTURES / "bilm" / "tiny"  # which has no softmax
    options = f"--heldout {heldout} --column text --tokenizer spacy --epochs 300 --from {start}"
    main(["pretrain", str(text), "out", *options.split()])
    folder = Path("out/training")
    [path] = folder.glob("text/train-*")
    assert gzip.decompress(path.read_bytes()).decode() == "I 'm here\n" * 20
    assert (folder / "text" / "heldout.txt").read_text() == "We 're not\nThey 're\n"
    assert len((folder / "vocab.txt").read_text().split()) == 5  # of 6, with three special ones
    plan = json.loads((folder / "plan.json").read_text())["plan"]
    config = Params.from_file(folder / "config.jsonnet")
    assert config["trainer"]["num_epochs"] == plan["epochs"] == 300
    assert config["model"]["softmax_first"] == plan["updates"] // 3
    # And none of them is ignored when the training is resumed.
    other = options.replace("--epochs 300", "--epochs 2")
    error = error_of(f"{text} out {other} --resume", capsys)
    assert "was made with other settings: epochs was 300, now 2" in error


@pytest.fixture
def training(folder: Path) -> Path:
    """The folder of a training without a plan, which has no lock: older versions of filelock remove it."""
    training = folder / "out" / "training"
    (training / "run").mkdir(parents=True)
    (training / command.MARK_NAME).touch()
    (training / "run" / "metrics.json").write_text("{}")
    return training


def test_what_a_call_without_a_plan_left_is_not_resumed(
    training: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after --overwrite, if the process was killed while it removed the previous training."""
    by_hand = training / "another_run" / "model.tar.gz"
    by_hand.parent.mkdir()
    by_hand.touch()

    def nothing_is_left(*unused: Any) -> None:
        assert not (training / "run").exists()
        assert by_hand.exists()
        raise ConfigurationError("stopped")

    monkeypatch.setattr("elmo_plugin.pretraining.command.prepare_text", nothing_is_left)
    assert "stopped" in error_of(f"{TEXT} out --resume", capsys)


@pytest.mark.parametrize(
    "words, message",
    [
        ("in.txt out --overwrite", "there is no file in.txt"),
        (f"{TEXT} out --overwrite --heldout in.txt", "there is no file in.txt"),
        (f"{TEXT} out --overwrite --from nothing", "nothing: no such model"),
        ("damaged.txt out --overwrite", "damaged.txt, line 1: found the bytes"),
        (f"{TEXT} out --overwrite --size huge", "expected mini, small, original or a Jsonnet"),
        (
            "out/training/run/metrics.json out --overwrite",
            "metrics.json is inside of out/training, which this",
        ),
        (
            f"{TEXT} out --overwrite --heldout out/training/run/metrics.json",
            "metrics.json is inside of out/training, which this",
        ),
    ],
)
def test_mistakes_remove_no_earlier_training(
    words: str, message: str, training: Path, capsys: Any
) -> None:
    (training / "plan.json").write_text("{}")
    Path("damaged.txt").write_bytes(b"\xff\n")
    assert message in error_of(words, capsys)
    assert (training / "plan.json").exists() and (training / "run" / "metrics.json").exists()


def test_a_training_of_another_process_is_not_overwritten(folder: Path, capsys: Any) -> None:
    training = folder / "out" / "training"
    with claimed_folder(training, "is free"):
        (training / command.MARK_NAME).touch()
        (training / "plan.json").write_text("{}")
        error = error_of(f"{TEXT} out --overwrite", capsys)
    assert "another process is training in out/training" in error
    assert (training / "plan.json").exists()


@pytest.mark.parametrize("step", ["train", "_export", "_show"])
@pytest.mark.parametrize(
    "error, reason, status",
    [
        (KeyboardInterrupt(), "interrupted", 130),
        (OSError(errno.ENOSPC, "No space left", "out/x"), "error: out/x: No space left", 2),
    ],
)
def test_what_was_trained_is_kept_whatever_step_is_interrupted(
    step: str,
    error: BaseException,
    reason: str,
    status: int,
    training: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same command again would be refused, and with --overwrite it would remove the training."""

    def fail(*unused: Any) -> None:
        raise error

    plan = Plan(PreparedText(9, 90, 1, 10, "the last", 0, 5, 5, 1.0, 0.0), 1.0, 1, 1, 99, 0.1)
    plan.to_file(training / "plan.json", PretrainOptions([TEXT], "out").plan_arguments())
    for name in ("train", "_export", "_show"):
        monkeypatch.setattr(command, name, fail if name == step else lambda *unused: None)
    line = error_of(f"{TEXT} out --resume", capsys, status)
    assert line == f"elmo pretrain: {reason}; {process.RESUME_ADVICE}\n"


def test_neighbors_are_found_in_text_with_control_characters(folder: Path, capsys: Any) -> None:
    (folder / "heldout.txt").write_text("the bank\x07 is open\n\nthe bank shut\na bank here\n")
    command._print_neighbors(PRETRAINED_FOLDER / "elmo_mini", folder / "heldout.txt")
    assert "**bank**" not in capsys.readouterr().out  # "bank\x07" is another word
    (folder / "heldout.txt").write_text("the bank is \x07 open\nthe bank shut\na bank here\n")
    command._print_neighbors(PRETRAINED_FOLDER / "elmo_mini", folder / "heldout.txt")
    assert "'bank', and the most similar of its 2 other sentences" in capsys.readouterr().out


@pytest.mark.slow
def test_text_becomes_a_model(capsys: Any) -> None:
    main(
        ["pretrain", TEXT, "out", "--size", "tiny.jsonnet", "--epochs", "2", "--license", "cc0-1.0"]
    )
    captured = capsys.readouterr()
    found = captured.out
    text = re.search(r"^text +(8,\d{3}) words in 380 sentences$", found, re.MULTILINE)
    assert text
    assert re.search(r"^held out .* 20 sentences, the last$", found, re.MULTILINE)
    # An epoch predicts words and sentence ends, in batches of 8 rows and 10 steps; the rest is left out.
    updates = 2 * ((int(text[1].replace(",", "")) + 380) // 80)
    plan = f"the text 2.0 times: {80 * updates:,} words in {updates:,} updates, about "
    assert re.search(f"^plan +{plan}", found, re.MULTILINE)
    metrics = json.loads(Path("out/training/run/metrics.json").read_text())
    perplexity = metrics["best_validation_perplexity"]
    assert f"perplexity      {perplexity:.1f} of held-out text (forward " in found
    assert "the most similar of its" in found
    assert "out is complete" in found
    assert "perplexity=" in captured.err  # in the line of progress

    names = {path.name for path in Path("out").iterdir()}
    assert names == {"options.json", "weights.hdf5", "vocab.txt", "README.md", "training"}
    assert BiLM.from_files("out").options.cell_size == 24
    card = Path("out/README.md").read_text()
    assert "license: cc0-1.0" in card
    record = last_progress(Path("out/training/run/progress.jsonl"))
    assert f"{record['words']:,} words read in {record['updates']:,} updates" in card
    assert f"perplexity {perplexity:.4g}" in card
    # It is scored with its own softmax.
    main(["score", str(Path("out/training/text/heldout.txt")), "--model", "out"])
    assert "perplexity" in capsys.readouterr().out

    # Finished: nothing is trained again.
    words = f"{TEXT} out --size tiny.jsonnet --epochs 2 --license cc0-1.0"
    modified = Path("out/training/run/metrics.json").stat().st_mtime_ns
    Path("out/training/run/model.tar.gz").write_bytes(
        b"cut short"
    )  # and a damaged archive is replaced
    Path("out/.weights.hdf5.0123abcd.partial").touch()  # as of an export that was killed
    main(["pretrain", *words.split(), "--resume"])
    assert Path("out/training/run/metrics.json").stat().st_mtime_ns == modified
    assert {path.name for path in Path("out").iterdir()} == names
    assert "--resume to continue the training in it" in error_of(words, capsys)


@pytest.mark.slow
def test_after_ctrl_c_a_training_goes_on_as_if_nothing_had_happened(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["pretrain", "-", "out", "--epochs", "3", "--size", "tiny.jsonnet"]
    text = b"".join(path.read_bytes() for path in sorted((FIXTURES / "lm").glob("train-*.txt")))
    checkpoint = folder / "out" / "training" / "run" / "model_state_e1_b0.th"

    def press_ctrl_c() -> None:
        while not checkpoint.exists() and not is_over.wait(0.05):
            pass
        if not is_over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    is_over = threading.Event()
    keyboard = threading.Thread(target=press_ctrl_c)
    # A shell that starts its jobs in the background lets them ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(command, "measured_speed", lambda *_: 1000.0)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    keyboard.start()
    try:
        error = error_of(" ".join(words[1:]), capsys, status=130)
    finally:
        is_over.set()
        keyboard.join()
        signal.signal(signal.SIGINT, before)
    assert error.endswith(
        "interrupted; the same command with --resume (not --overwrite) continues from the last "
        "checkpoint\n"
    )
    assert not (folder / "out" / "options.json").exists()
    # Standard input is not read again.
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    main([*words, "--resume"])
    assert "out is complete" in capsys.readouterr().out

    # The same config, trained at once.
    monkeypatch.chdir("out/training")
    train_model_from_file("config.jsonnet", "at_once")
    monkeypatch.chdir(folder)
    main(["export", "out/training/at_once/model.tar.gz", "at_once"])
    with h5py.File("out/weights.hdf5") as ours, h5py.File("at_once/weights.hdf5") as theirs:
        names: Any = []
        theirs.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
        assert len(names) > 10
        for name in names:
            assert numpy.array_equal(ours[name][()], theirs[name][()]), name


def test_a_training_that_fails_is_one_line(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "echo Traceback; echo 'ValueError: it failed'; exit 1"
    monkeypatch.setattr(process, "train_command", lambda *arguments: ["sh", "-c", script])
    error = error_of(f"{TEXT} out --size tiny.jsonnet", capsys)
    assert "error: training failed: " in error and "Traceback" not in error
    assert "it failed" in error and "out/training/log.txt" in error
