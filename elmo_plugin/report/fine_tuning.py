"""Runs that adapt a biLM to text, for `allennlp elmo-report perplexity`."""

import json
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from elmo_plugin.bilm.model_files import pretrained_names
from elmo_plugin.files.replaced_file import replaced_file
from elmo_plugin.pretraining.callbacks import METRICS_BEFORE_NAME
from elmo_plugin.pretraining.lm_vocabulary import VOCABULARY_NAME, LMVocabulary
from elmo_plugin.pretraining.starting_point import start_from_archive, start_from_files
from elmo_plugin.report.experiment import SEED_KEYS, Cell, Experiment, Variant, combined_overrides
from elmo_plugin.report.named_bilm import bilm_files, is_archive
from elmo_plugin.report.run_folder import METRICS_NAME
from elmo_plugin.report.task_text import TextFiles

CALLBACK = "elmo_validate_first"
DIRECTIONS = ("forward", "backward")


class Start(NamedTuple):
    """
    A biLM to start from.

    # Parameters

    name : `str`
        As a user gave it.
    variable : `str`
        As configs name it: `LM_START`.
    vocabulary_file : `Path`
        The words that its softmax predicts.
    """

    name: str
    variable: str
    vocabulary_file: Path

    @property
    def slug(self) -> str:
        """Its name as a part of file names."""
        return slug(self.name)


class Perplexities(NamedTuple):
    """
    On held-out text, exact, over the whole vocabulary.

    # Parameters

    mean : `float`
        Of the two directions, as the paper has it.
    forward, backward : `float`
        Of each direction.
    """

    mean: float
    forward: float
    backward: float


class FineTuning(Experiment):
    """
    A config that trains a biLM, where `Experiment` has one that trains a task.

    # Raises

    `ConfigurationError` as `Experiment` does, and if the config does not measure perplexity before training.
    """

    def _check_place(self) -> None:
        # There is no place for ELMo in a language model.
        callbacks = [
            callback if isinstance(callback, str) else callback.get("type")
            for callback in self.config.get("trainer", {}).get("callbacks") or []
        ]
        if CALLBACK not in callbacks:
            raise ConfigurationError(
                f"{self.config_file}: trainer.callbacks is {callbacks}, expected {CALLBACK} among them, "
                "which measures the perplexity before training, as in "
                "training_configs/bilm_finetune.jsonnet."
            )

    def cell_of_seed(self, seed: int) -> Cell:
        """The run with a seed."""
        changes: Dict[str, Any] = dict.fromkeys(SEED_KEYS, seed)
        if "seed" in self.config.get("data_loader", {}):
            changes["data_loader.seed"] = seed
        overrides = combined_overrides(self.overrides, changes)
        name = f"{self.name}-seed{seed}"
        return Cell(name, Variant(self.name), seed, overrides, self._evaluate(overrides))


def slug(name: str) -> str:
    """A name, or a path, as a part of file names."""
    return re.sub(r"[^\w.-]+", "_", name).strip("_.-") or "_"


def prepare_start(name: str, folder: Path) -> Start:
    """
    Find a biLM, and write the words of its softmax.

    # Parameters

    name : `str`
        See `load_named_bilm`.
    folder : `Path`
        Gets the words.

    # Raises

    `ConfigurationError` if there is no such biLM, or it has no softmax: perplexity is then not defined.
    """
    if is_archive(name):
        start = start_from_archive(name)
    elif name in pretrained_names():
        start = start_from_files(name, None)
    else:
        start = start_from_files(*bilm_files(name))
    if not start.datasets or start.words is None:
        missing = f"no {VOCABULARY_NAME} beside its weights" if start.datasets else "no softmax"
        raise ConfigurationError(
            f"--bilm {name}: found {missing}, expected the softmax that it was trained with, and its words: "
            "without them a biLM predicts nothing. Give the archive of its training, or what "
            "`allennlp elmo-export` made of that."
        )
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary_file = folder / f"{slug(name)}-{VOCABULARY_NAME}"
    LMVocabulary(start.words, name).to_file(vocabulary_file)
    variable = name
    if not is_archive(name) and name not in pretrained_names():
        # With a slash, by which configs tell a folder from a name.
        variable = f"./{name}" if "/" not in name else name.rstrip("/")
    return Start(name, variable, vocabulary_file)


def prepare_fine_tuning(
    name: str,
    config_file: str,
    overrides: Dict[str, Any],
    start: Start,
    text: TextFiles,
    folder: Path,
) -> FineTuning:
    """
    Evaluate a config for a biLM and a text, and write it as JSON: a run then needs no environment variables.

    # Parameters

    name : `str`
        Of the runs.
    config_file : `str`
        Such as `training_configs/bilm_finetune.jsonnet`: reads `LM_START`, `LM_VOCABULARY`, `LM_TRAIN` and
        `LM_HELDOUT`.
    overrides : `Dict[str, Any]`
        Of it.
    start : `Start`
        What to start from.
    text : `TextFiles`
        What to adapt it to.
    folder : `Path`
        Gets the JSON.

    # Raises

    `ConfigurationError` if the config cannot be evaluated, and as `FineTuning` does.
    """
    if not Path(config_file).is_file():
        raise ConfigurationError(
            f"--config: there is no file {config_file}, expected a config that adapts a biLM. Give the "
            "path of training_configs/bilm_finetune.jsonnet, or of one like it."
        )
    variables = {
        "LM_START": start.variable,
        "LM_VOCABULARY": str(start.vocabulary_file),
        "LM_TRAIN": str(text.train),
        "LM_HELDOUT": str(text.held_out),
    }
    try:
        params = Params.from_file(config_file, json.dumps(overrides), variables)
    except (RuntimeError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ConfigurationError(
            f"{config_file}: cannot be evaluated ({error}). Correct it, or --overrides."
        ) from error
    folder.mkdir(parents=True, exist_ok=True)
    evaluated_file = folder / f"{name}.json"
    with replaced_file(evaluated_file) as new_file:
        new_file.write_text(
            json.dumps(params.as_dict(quiet=True), indent=2) + "\n", encoding="utf-8"
        )
    return FineTuning(evaluated_file, name=name)


def perplexities_of(run_folder: Path) -> List[Perplexities]:
    """
    Before and after, for a run that is done.

    # Raises

    `ConfigurationError` if its metrics are not there.
    """
    return [
        _perplexities(run_folder / METRICS_BEFORE_NAME, ""),
        _perplexities(run_folder / METRICS_NAME, "best_validation_"),
    ]


def _perplexities(path: Path, prefix: str) -> Perplexities:
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        return Perplexities(
            metrics[f"{prefix}perplexity"],
            *(metrics[f"{prefix}{direction}_perplexity"] for direction in DIRECTIONS),
        )
    except (OSError, ValueError, KeyError) as error:
        raise ConfigurationError(
            f"{path}: cannot be read as the perplexities of a run ({error!r}). Remove {path.parent} to "
            "train it again."
        ) from error
