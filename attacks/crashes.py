"""
Runs that are killed, interrupted, or get errors from the system at any operation lose nothing.

A disturbed run leaves the old output, the new one, or none; when it is repeated it makes the same output to
the bit as a run that nothing disturbed. Damaged parts of an output are in tests.
"""

import json
import logging
import os
import re
import shutil
import threading
import traceback
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy
import torch
from allennlp.commands.train import train_model_from_file
from allennlp.training.trainer import TrainerCheckpoint
from tqdm import tqdm

import elmo_plugin.plugin  # noqa: F401 - configs of trainings name our classes
from attacks import FIXTURES
from attacks.interrupts import (
    COMPLETE,
    ERROR,
    Counts,
    Disturbance,
    Ended,
    check_complete,
    contents,
    run_disturbed,
)
from attacks.trials import Attack, Trial, check
from elmo_plugin import BiLM, ElmoEmbedder, FrozenBiLM
from elmo_plugin.bilm.weights import save_model, weights_checksum
from elmo_plugin.commands.pretrain import PretrainOptions, run
from elmo_plugin.compat.archives import opened_archive, save_archive
from elmo_plugin.compat.training_process import CONFIGS as PRETRAINING_CONFIGS
from elmo_plugin.embedding.formats import FORMATS, OutputOptions
from elmo_plugin.embedding.layers import LAYER_CHOICES, layer_choice
from elmo_plugin.embedding.run import EmbeddingRun
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import opened_output
from elmo_plugin.pretraining import AtomicCheckpointer
from elmo_plugin.pretraining import process as process_module

MAX_DISTURBANCES = 3


class NumberEmbedder(ElmoEmbedder):
    """Makes vectors from the bytes of each token, and writes each sentence as a line of a file."""

    def __init__(self, bilm: FrozenBiLM, record: Path) -> None:
        self._set_up(bilm, stateful=False)
        self._record = record

    def embed_sentences(self, sentences: Any, *arguments: Any) -> Iterator[numpy.ndarray]:
        for tokens in sentences:
            with open(self._record, "a") as file:
                file.write(".")
            numbers = numpy.array([sum(token.encode()) for token in tokens], dtype="float32")
            layers = numpy.arange(self.num_layers, dtype="float32")[:, None] + numbers
            yield numpy.tile(layers[:, :, None], self.get_output_dim())


class EmbeddingCase(NamedTuple):
    """What is embedded, and how."""

    text: str
    previous: str  # embedded before, in the place of the output; empty for nothing
    format: str
    layers: str
    pool: Any
    options: Dict[str, Any]
    sentences_per_part: int

    @classmethod
    def draw(cls, random: Random) -> "EmbeddingCase":
        format = random.choice(FORMATS)
        options: Dict[str, Any] = {"dtype": random.choice(["float32", "float16"])}
        if format == "hdf5":
            options[random.choice(["forget_sentences", "use_sentence_keys"])] = (
                random.random() < 0.3
            )
        return cls(
            _text(random, random.randint(1, 40)),
            _text(random, 5) if random.random() < 0.3 else "",
            format,
            random.choice(LAYER_CHOICES),
            random.choice([None, None, "mean", "max"]),
            options,
            random.randint(1, 12),
        )


def _text(random: Random, num_lines: int) -> str:
    words = ["w", "ww", "km/h", "é", "a" * 60, "0"]
    return "".join(
        f"{' '.join(random.choices(words, k=random.randint(1, 5)))} {number}\n"
        for number in range(num_lines)
    )


def set_up_process() -> None:
    logging.disable(logging.CRITICAL)
    # Forked processes share tqdm's own lock: one that is killed while it holds it blocks all others.
    tqdm.set_lock(threading.RLock())
    torch.set_num_threads(1)  # a forked process has no others


def prepare_embedding(folder: Path) -> Trial:
    set_up_process()
    bilm = FrozenBiLM.from_files(FIXTURES / "bilm" / "tiny")
    place, record, log = folder / "place", folder / "record", folder / "trial.log"

    def embed(case: EmbeddingCase, **options: Any) -> None:
        EmbeddingRun(
            "in.txt",
            "out",
            output_options=OutputOptions(format=case.format, **case.options, **options),
            batches=BatchOptions(),
            sentences_per_part=case.sentences_per_part,
        ).embed(NumberEmbedder(bilm, record), layer_choice(case.layers, case.pool))

    def run(case: EmbeddingCase, disturbance: Disturbance, **options: Any) -> Ended:
        record.write_text("")
        return run_disturbed(partial(embed, case, **options), log, disturbance)

    def trial(random: Random) -> None:
        case = EmbeddingCase.draw(random)
        enter_empty(place)
        Path("in.txt").write_text(case.text)
        ended = run(case, Disturbance())
        check_complete(ended)
        counts, expected = ended.counts, contents(Path("out"))
        _remove(Path("out"))
        if random.random() < 0.15:
            check_changed_input(random, case, counts, expected)
            return
        previous: Dict[str, bytes] = {}
        if case.previous:
            Path("in.txt").write_text(case.previous)
            check_complete(run(case, Disturbance()))
            previous = contents(Path("out"))
            Path("in.txt").write_text(case.text)
        options = {"overwrite": True} if case.previous else {}
        for _ in range(random.randint(1, MAX_DISTURBANCES)):
            disturbance = Disturbance.draw(random, counts)
            ended = run(case, disturbance, **options)
            found = contents(Path("out"))
            # A folder cannot be replaced by one call: there may be none.
            allowed = [expected, previous, *([{}] if case.format != "hdf5" else [])]
            check("the complete output or the previous one", found in allowed)
            if ended.status == COMPLETE and disturbance.kind != "error":
                check("the output of an undisturbed run", found == expected)
            has_begun = Path("out.partial/run.json").exists()
            options = {"resume": True} if has_begun or not case.previous else {"overwrite": True}
        num_kept = 0 if found == expected else _num_kept()
        if not has_begun and found == previous != {}:
            options = {"overwrite": True}
        elif found == expected:
            options = {"resume": True}
        ended = run(case, Disturbance(), **options)
        check_complete(ended)
        check("the output of an undisturbed run", contents(Path("out")) == expected)
        check(f"nothing else, found {os.listdir()}", sorted(os.listdir()) == ["in.txt", "out"])
        if found != expected and "resume" in options:
            num_embedded, num_lines = len(record.read_text()), case.text.count("\n")
            check(
                f"{num_lines} sentences without the {num_kept} in parts, found {num_embedded}",
                num_embedded == num_lines - num_kept,
            )

    def check_changed_input(
        random: Random, case: EmbeddingCase, counts: Counts, expected: Dict[str, bytes]
    ) -> None:
        """Replace the input while it is read: all of the old text is embedded, all of the new, or none."""
        other = _text(random, random.randint(1, 40))
        Path("in.txt").write_text(other)
        check_complete(run(case, Disturbance()))
        allowed = [expected, contents(Path("out"))]
        _remove(Path("out"))
        Path("in.txt").write_text(case.text)
        keeps_inode = random.random() < 0.5

        def change() -> None:
            name = "in.txt" if keeps_inode else "../other.txt"
            Path(name).write_text(other)
            os.replace(name, "in.txt")

        number = random.randint(1, counts.file_calls)
        ended = run(case, Disturbance("action", number, action=change))
        if ended.status == ERROR:
            check(f"its name in: {ended.message}", "in.txt" in ended.message)
        check("the output of one text", contents(Path("out")) in [*allowed, {}])

    return trial


def _interrupted_by(error: Optional[BaseException]) -> bool:
    """
    Return whether an interrupt led to an error: AllenNLP archives its best weights then, whose name it sets
    before it writes them, and torch completes the file that it was writing. Users do not see such an error:
    their interrupt also ends the process that waits for the training.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


@contextmanager
def _training_in_this_process(folder: Path, name: str, argument: str) -> Iterator[Any]:
    """Replace `_running` of `elmo pretrain`, which starts another process."""
    process: Any = SimpleNamespace(returncode=0, poll=lambda: process.returncode)
    before = os.getcwd()
    os.chdir(folder)
    try:
        train_model_from_file(
            process_module.CONFIG_NAME,
            name,
            recover=argument == "--recover",
            force=argument == "--force",
        )
    except Exception as error:
        if _interrupted_by(error):
            raise KeyboardInterrupt from error
        process.returncode = 1
        with open(process_module.LOG_NAME, "a") as log:
            traceback.print_exception(error, file=log)
    finally:
        os.chdir(before)
    yield process


def prepare_pretraining(folder: Path) -> Trial:
    set_up_process()
    place, log = folder / "place", folder / "trial.log"
    _write_text(folder)
    # With the second, the first epoch is better than the others.
    learning_rates, expected_outputs = [0.2, 50.0], {}
    counts = {}

    def trial(random: Random) -> None:
        learning_rate = random.choice(learning_rates)
        enter_empty(place)
        if learning_rate not in counts:
            ended = run_disturbed(partial(_pretrain, learning_rate), log)
            check_complete(ended)
            counts[learning_rate] = ended.counts
            expected_outputs[learning_rate] = _pretrained(Path("out"))
            enter_empty(place)
        options: Dict[str, Any] = {}
        for _ in range(random.randint(1, MAX_DISTURBANCES)):
            disturbance = Disturbance.draw(random, counts[learning_rate])
            run_disturbed(partial(_pretrain, learning_rate, **options), log, disturbance)
            options = {"resume": True}
        check_complete(run_disturbed(partial(_pretrain, learning_rate, **options), log))
        found, expected = _pretrained(Path("out")), expected_outputs[learning_rate]
        different = [
            name for name in {**found, **expected} if found.get(name) != expected.get(name)
        ]
        check(f"the output of an undisturbed training, found others: {different}", not different)

    return trial


def _write_text(folder: Path) -> None:
    sentences = (FIXTURES / "lm" / "train-00000-of-00002.txt").read_text().splitlines()
    (folder / "in.txt").write_text("\n".join(sentences[:24]) + "\n")
    (folder / "heldout.txt").write_text("\n".join(sentences[24:32]) + "\n")


def _pretrain(learning_rate: float, **options: Any) -> None:
    """Call `elmo pretrain` in a folder beside its text."""
    process_module._running = _training_in_this_process
    process_module.measured_speed = lambda *arguments: 1000.0
    config = Path(f"../{learning_rate:g}.jsonnet")
    config.write_text(_tiny_config(learning_rate))
    text, heldout = ["../in.txt"], ["../heldout.txt"]
    run(PretrainOptions(text, "out", str(config), heldout=heldout, epochs=2, **options))


def _tiny_config(learning_rate: float) -> str:
    library = PRETRAINING_CONFIGS / "lib" / "bilm.libsonnet"
    return f"""
local bilm = import '{library}';
bilm.experiment(
  train=std.extVar('LM_TRAIN'),
  heldout=std.extVar('LM_HELDOUT'),
  vocabulary=std.extVar('LM_VOCABULARY'),
  options=bilm.options(cell_size=8, projection_dim=4, num_highway=1, filters=[[1, 4], [2, 4]]),
  softmax={{ type: 'elmo_sampled', num_samples: 16 }},
  rows=4,
  unroll_steps=20,
  heldout_rows=4,
  checkpoint_batches=3,
  optimizer={{ type: 'adagrad', lr: {learning_rate}, initial_accumulator_value: 1.0 }},
)"""


def _pretrained(output: Path) -> Dict[str, Any]:
    """Return what does not depend on times: the exported files, and the metrics of the training."""
    found: Dict[str, Any] = dict(contents(output))
    run = output / "training" / "run"
    for path in run.glob("metrics*.json"):
        for key, value in json.loads(path.read_text()).items():
            if not re.search(
                "duration|per_second|memory|training_start_epoch|training_epochs", key
            ):
                found[f"{path.name} {key}"] = value
    return {name: value for name, value in found.items() if not name.startswith("training/")}


def prepare_saving(folder: Path) -> Trial:
    set_up_process()
    place, log = folder / "place", folder / "trial.log"
    enter_empty(place)
    _write_text(folder)
    check_complete(run_disturbed(partial(_pretrain, 0.2), log))
    archive = opened_archive("out/training/run/model.tar.gz")
    models = [
        BiLM.from_files(FIXTURES / "bilm" / "tiny"),
        # Its weights fit the options of the other model.
        BiLM(replace(BiLM.from_files(FIXTURES / "bilm" / "tiny").options, proj_clip=0.5)),
    ]

    def checkpoint(version: int) -> None:
        weights, state = (torch.full((1000,), float(version)) for _ in range(2))
        completed = {"epochs_completed": 1, "batches_in_epoch_completed": 1}
        saved = TrainerCheckpoint({"weights": weights}, {**completed, "state": state})
        AtomicCheckpointer(".").save_checkpoint(SimpleNamespace(get_checkpoint_state=lambda: saved))

    def text(version: int) -> None:
        with opened_output("text") as file:
            for line in range(200):
                file.write(f"{version} {line}\n" * 10)

    def task_model(version: int) -> None:
        save_archive(archive, "task_model", ["float32", "float16"][version])

    def loaded_model() -> Any:
        bilm = BiLM.from_files("options.json", "weights.hdf5")
        return bilm.options, weights_checksum(bilm)

    def loaded_checkpoint() -> Any:
        found = AtomicCheckpointer(".").find_latest_checkpoint()
        return found and [torch.load(path) for path in found].__repr__()

    def loaded_task_model() -> Any:
        state = opened_archive("task_model").model.state_dict()
        return sorted((name, tensor.double().sum().item()) for name, tensor in state.items())

    # How each writes a version, 0 or 1, and how it is read.
    kinds: List[Tuple[Callable[[int], None], Callable[[], Any]]] = [
        (lambda version: save_model(models[version], "options.json", "weights.hdf5"), loaded_model),
        (checkpoint, loaded_checkpoint),
        (text, lambda: Path("text").read_text()),
        (task_model, loaded_task_model),
    ]

    def trial(random: Random) -> None:
        enter_empty(place)
        write, read = random.choice(kinds)
        allowed = []
        for version in (1, 0):
            ended = run_disturbed(partial(write, version), log)
            check_complete(ended)
            allowed.append(read())
        disturbance = Disturbance.draw(random, ended.counts)
        ended = run_disturbed(partial(write, 1), log, disturbance)
        try:
            found = read()
        except ConfigurationError as error:
            # Files that belong together: one is missing, and the error says so.
            is_missing = re.search("options|config|archive", str(error))
            check(f"one clear error, found {error}", bool(is_missing) and write is not text)
            found = None
        check(f"one of both versions after {disturbance}, or none", found in [*allowed, None])
        check_complete(run_disturbed(partial(write, 1), log))
        check("the new version", read() == allowed[0])

    return trial


def enter_empty(folder: Path) -> None:
    """Make a folder anew, and the working folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.chdir(folder)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _num_kept() -> int:
    """Number of sentences in finished parts, read without the package."""
    descriptions = Path("out.partial").glob("parts*/descriptions/part-*.json")
    parts = [json.loads(path.read_bytes().split(b"\n")[0]) for path in descriptions]
    return sum(part["num_sentences"] for part in parts)


ATTACKS = [
    Attack(
        "crashed_embedding",
        "an embedding run that is killed, interrupted or gets errors at any operation can be resumed, and "
        "its output is the same to the bit",
        prepare_embedding,
    ),
    Attack(
        "crashed_pretraining",
        "`elmo pretrain` that is killed, interrupted or gets errors at any operation can be resumed, and "
        "its model and metrics are the same to the bit",
        prepare_pretraining,
        max_seconds=60.0,
    ),
    Attack(
        "crashed_saving",
        "models, checkpoints and text are written as a whole: a process that is killed, interrupted or gets "
        "errors at any operation leaves the previous files or the new ones, never both mixed",
        prepare_saving,
    ),
]
