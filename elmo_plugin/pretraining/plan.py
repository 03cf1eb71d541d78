"""Plan the training of a biLM: its config, for a text, a speed and the time that is given."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

from allennlp.common import Params

from elmo_plugin.bilm.model_files import VOCABULARY_NAME
from elmo_plugin.compat.training_process import CONFIGS, config_path
from elmo_plugin.errors import ConfigurationError, one_line
from elmo_plugin.files.output import replaced_file
from elmo_plugin.pretraining.stream_data_loader import DEFAULT_ROWS, DEFAULT_UNROLL_STEPS
from elmo_plugin.pretraining.text import (
    HELDOUT_NAME,
    LITTLE_TEXT,
    TRAIN_PATTERN,
    PreparedText,
)

# Names in the folder of a training.
PLAN_NAME, CONFIG_NAME, RUN_NAME = "plan.json", "config.jsonnet", "run"

# Numbers of rows of a batch: the largest with which the longest training on the text, whatever the time, has
# at least this number of updates, and each row this number of sentences.
ROWS = (128, 64, 32, 16, 8, 4)
MIN_UPDATES, MIN_UPDATES_OF_ADAPTING = 500, 300
# An epoch ends when a row has no further sentence: about half a sentence of each row is not read.
MIN_SENTENCES_OF_ROW = 50

# Unless --epochs gives another number. The paper's biLM read its text 10 times, and adapted ones theirs once.
MAX_EPOCHS, MAX_EPOCHS_OF_ADAPTING = 10, 3

SECONDS_BETWEEN_CHECKPOINTS = 300
# In a training, beside those at the end of each epoch; fewer if they took more than this share of the time.
MAX_VALIDATIONS, VALIDATION_SHARE = 10, 0.1
WARMUP_STEPS = 200


class Size(NamedTuple):
    """A size of a new biLM: the file of its config, and the largest vocabulary of its softmax."""

    config: str
    max_vocabulary: int


# The paper's vocabulary has 793,471 entries.
SIZES = {
    "mini": Size("bilm_mini.jsonnet", 20_000),
    "small": Size("bilm_small.jsonnet", 30_000),
    "original": Size("bilm.jsonnet", 793_471),
}
MAX_VOCABULARY = 100_000  # of other configs, and of a biLM that is adapted

_STATE, _PROGRESS = "elmo_bilm_state", "elmo_progress"


@dataclass(frozen=True)
class Settings:
    """What is trained and for how long: the arguments of `elmo pretrain` that determine a plan."""

    size: str  # a key of SIZES, or the file of a config
    start: Optional[str]  # the biLM that is adapted
    has_softmax: bool  # of that biLM; without one a softmax is trained first
    hours: float
    epochs: Optional[int]

    @property
    def config_file(self) -> Path:
        if self.start is not None:
            return CONFIGS / "bilm_finetune.jsonnet"
        return CONFIGS / SIZES[self.size].config if self.size in SIZES else config_path(self.size)

    @property
    def has_own_config(self) -> bool:
        """Whether the config is the user's, whose sizes and rates are kept."""
        return self.start is None and self.size not in SIZES

    @property
    def max_vocabulary(self) -> int:
        """Entries of the vocabulary of a softmax that is new."""
        if self.start is not None or self.has_own_config:
            return MAX_VOCABULARY
        return SIZES[self.size].max_vocabulary

    @property
    def max_epochs(self) -> int:
        return MAX_EPOCHS if self.start is None else MAX_EPOCHS_OF_ADAPTING

    def max_words(self, text: PreparedText) -> int:
        """Return the predictions in one direction of the longest training on a text."""
        return text.predictions * (self.epochs or self.max_epochs)


@dataclass(frozen=True)
class Plan:
    """A training that is about to start."""

    text: PreparedText
    words_per_second: float
    epochs: int
    updates: int  # of all epochs
    words: int  # predictions of all epochs in one direction
    hours: float  # about

    def lines(self, settings: Settings) -> Dict[str, str]:
        """Return the plan in lines, by what they say."""
        share = self.words / self.text.predictions
        number = f"{share:.1f}" if share >= 0.1 else f"{share:.1g}"
        times = "once" if self.epochs == 1 and share > 0.9 else f"{number} times"
        updates = f"{self.words:,} words in {self.updates:,} updates"
        plan = f"the text {times}: {updates}, about {_time(self.hours)}"
        lines = {
            **self.text.lines(),
            "speed": f"{self.words_per_second:,.0f} words per second",
            "plan": plan,
        }
        if settings.epochs is None and self.hours < settings.hours / 2:
            lines["time left over"] = (
                f"{settings.max_epochs} times is the most, as more rarely helps; --epochs N overrides it"
            )
        if self.text.train_words < LITTLE_TEXT and settings.start is None:
            lines["note"] = (
                f"less than {LITTLE_TEXT:,} words are too few for a good biLM. Training works, but add "
                "other text of the language, or, for English, adapt one: --from elmo_small"
            )
        return lines

    def to_file(self, path: Path, arguments: Dict[str, Any]) -> None:
        """Write the plan, with the arguments of the command that made it."""
        with replaced_file(path) as new_file:
            content = {"arguments": arguments, "plan": asdict(self)}
            new_file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def from_dict(cls, values: Dict[str, Any]) -> "Plan":
        """Return the plan of a file."""
        return cls(**{**values, "text": PreparedText(**values["text"])})


def base_config(settings: Settings) -> Dict[str, Any]:
    """
    Return the config of a training, before it is fitted to a text and planned. Paths in it are relative to
    the folder of the training. Raise `ConfigurationError` if it is not a config of pretraining.
    """
    variables = {
        "LM_TRAIN": TRAIN_PATTERN,
        "LM_HELDOUT": HELDOUT_NAME,
        "LM_VOCABULARY": VOCABULARY_NAME,
        "LM_START": settings.start or "",
    }
    try:
        params = Params.from_file(settings.config_file, ext_vars=variables)
    except (OSError, RuntimeError) as error:  # RuntimeError: of jsonnet
        reason = str(error).split("\n")[0]
        raise ConfigurationError(
            f"--size: {settings.size} is no config ({reason}), expected {', '.join(SIZES)} or a Jsonnet "
            "file. Correct it."
        ) from error
    config: Dict[str, Any] = params.as_dict(quiet=True)
    _check_config(config, settings.size, variables)
    loader = config["data_loader"]
    for key, default in (("rows", DEFAULT_ROWS), ("unroll_steps", DEFAULT_UNROLL_STEPS)):
        if loader.get(key) is None:
            loader[key] = default
    trainer = config["trainer"] = config.get("trainer") or {}
    checkpointer = trainer.get("checkpointer") or "elmo_atomic"
    if isinstance(checkpointer, str):  # AllenNLP's short form
        trainer["checkpointer"] = {"type": checkpointer}
    given = trainer.get("callbacks") or []
    types = [one.get("type") if isinstance(one, dict) else one for one in given]
    # Training resumes by the state, which comes before others that read the metrics that it completes.
    state = [] if _STATE in types else [_STATE]
    # In the config of an earlier `elmo pretrain` the progress has the interval of that plan.
    others = [callback for callback, kind in zip(given, types) if kind != _PROGRESS]
    trainer["callbacks"] = [*state, *others, {"type": _PROGRESS}]  # last: see `make_plan`
    return config


def _check_config(config: Dict[str, Any], size: str, variables: Dict[str, str]) -> None:
    """Raise `ConfigurationError` if the config of a size does not train on the text of this command."""
    for key, kind in (("data_loader", "elmo_bilm_streams"), ("model", "elmo_bilm")):
        if (config.get(key) or {}).get("type") != kind:
            raise ConfigurationError(
                f"--size: {size} has no {key} of type {kind}, expected a config of pretraining, "
                "such as bilm_mini.jsonnet. Train it by `allennlp train`."
            )
    if config.get("distributed"):
        raise ConfigurationError(
            f"--size: {size} has the key distributed, expected a config for one process, for whose "
            "speed it is planned. Remove it, or train it by `allennlp train`."
        )
    values = Params(config).as_flat_dict()
    for key, variable in (
        ("train_data_path", "LM_TRAIN"),
        ("validation_data_path", "LM_HELDOUT"),
        ("dataset_reader.vocabulary_file", "LM_VOCABULARY"),
        ("vocabulary.vocabulary_file", "LM_VOCABULARY"),
    ):
        found = values.get(key)
        if found not in (variables[variable], [variables[variable]]):
            raise ConfigurationError(
                f"--size: {size} has the {key} {found!r}, expected std.extVar('{variable}'), as in "
                "bilm_mini.jsonnet: this command makes that file from TEXT. Correct it."
            )
    loader = config.get("validation_data_loader") or config["data_loader"]
    if loader.get("type") == "elmo_bilm_streams" and loader.get("shuffle") is not False:
        raise ConfigurationError(
            f"--size: {size} has no validation_data_loader with shuffle: false, expected one as in "
            "bilm_mini.jsonnet: shuffled streams leave out a part of the held-out text, another one in each "
            "epoch."
        )


def fit_to_text(config: Dict[str, Any], settings: Settings, text: PreparedText) -> None:
    """Set the rows of a batch and the softmax by the amount of text, except in the user's own config."""
    if settings.has_own_config:
        return
    num_words = settings.max_words(text)
    min_updates = MIN_UPDATES if settings.start is None else MIN_UPDATES_OF_ADAPTING
    loader = config["data_loader"]
    loader["rows"] = next(
        (
            rows
            for rows in ROWS
            if num_words // (rows * loader["unroll_steps"]) >= min_updates
            and text.train_sentences >= MIN_SENTENCES_OF_ROW * rows
        ),
        ROWS[-1],
    )
    config["validation_data_loader"]["rows"] = min(32, text.heldout_sentences)
    softmax = config["model"]["softmax"]
    if text.vocabulary_words < 2 * softmax["num_samples"]:
        config["model"]["softmax"] = {"type": "elmo_full"}


def make_plan(
    config: Dict[str, Any], settings: Settings, text: PreparedText, words_per_second: float
) -> Plan:
    """Choose the number of updates, and set it, the schedule and the checkpoints in the config."""
    loader, trainer = config["data_loader"], config["trainer"]
    accumulated = trainer.get("num_gradient_accumulation_steps") or 1  # batches of an update
    update_words = loader["rows"] * loader["unroll_steps"] * accumulated
    text_updates = epoch_updates = max(1, text.predictions // update_words)
    if loader.get("batches_per_epoch") is not None:  # of the user's config
        # The last update of an epoch may have fewer.
        epoch_updates = min(epoch_updates, math.ceil(loader["batches_per_epoch"] / accumulated))
    update_seconds = update_words / words_per_second
    validation_seconds = (text.heldout_words + text.heldout_sentences) / words_per_second
    if settings.epochs is not None:
        epochs = settings.epochs
        updates = epochs * epoch_updates
    else:
        seconds = settings.hours * 3600
        num_validations = min(MAX_VALIDATIONS, int(VALIDATION_SHARE * seconds / validation_seconds))
        updates = int((seconds - num_validations * validation_seconds) / update_seconds)
        if updates > num_validations * epoch_updates:  # each epoch ends with a validation
            updates = int(seconds / (update_seconds + validation_seconds / epoch_updates))
        updates = max(1, min(updates, settings.max_epochs * text_updates))
        epochs = max(1, math.ceil(updates / epoch_updates - 0.1))
        if updates < epochs * epoch_updates:
            epoch_updates = updates // epochs
            loader["batches_per_epoch"] = epoch_updates * accumulated
        updates = epochs * epoch_updates
    trainer["num_epochs"] = epochs
    if settings.start is None and settings.size in ("mini", "small"):
        trainer["learning_rate_scheduler"] = {
            # To zero, but late: 5 million words in one pass gave a held-out perplexity of 99.0, with power 1
            # 104.4, and 102.3 where the rate fell to a half only (one seed each).
            "type": "polynomial_decay",
            "power": 0.5,
            "warmup_steps": min(WARMUP_STEPS, updates // 10),
        }
    if settings.start is not None and not settings.has_softmax:
        config["model"]["softmax_first"] = updates // 3  # an update has one batch
    trainer["checkpointer"]["save_every_num_batches"] = max(
        1, int(SECONDS_BETWEEN_CHECKPOINTS / update_seconds)
    )
    train_seconds = updates * update_seconds
    num_validations = min(
        MAX_VALIDATIONS, int(VALIDATION_SHARE * train_seconds / validation_seconds)
    )
    if epochs < num_validations:
        trainer["callbacks"][-1]["validation_interval"] = max(1, updates // num_validations)
    else:
        num_validations = 0
    hours = (train_seconds + (epochs + num_validations) * validation_seconds) / 3600
    words = updates * update_words
    return Plan(text, words_per_second, epochs, updates, words, hours)


def write_config(config: Dict[str, Any], path: Path, made_by: str) -> None:
    """Write a config, with what made it and the command that trains it again in comments."""
    comment = (
        f"// Made by: {one_line(made_by)}\n// To train it again by hand, in this folder:\n"
        f"//   allennlp train {CONFIG_NAME} -s ../../another_run --include-package elmo_plugin\n"
    )
    with replaced_file(path) as new_file:
        new_file.write_text(comment + json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _time(hours: float) -> str:
    minutes = max(1, round(hours * 60))
    return f"{hours:.1f} hours" if hours >= 1.5 else f"{minutes} minute{'s' * (minutes > 1)}"
