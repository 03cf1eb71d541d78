"""Plans of trainings: how often a text is read in the given time, and the config that does it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmo_plugin.compat.training_process import CONFIGS
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining.plan import (
    MAX_VOCABULARY,
    SIZES,
    VALIDATION_SHARE,
    Plan,
    Settings,
    base_config,
    fit_to_text,
    make_plan,
    write_config,
)
from elmo_plugin.pretraining.stream_data_loader import DEFAULT_ROWS, DEFAULT_UNROLL_STEPS
from elmo_plugin.pretraining.text import PreparedText

TEXT = PreparedText(
    train_sentences=200_000,
    train_words=4_800_000,
    heldout_sentences=2000,
    heldout_words=48_000,
    heldout_from="the last",
    heldout_seen=0,
    distinct_words=100_000,
    vocabulary_words=20_000,
    coverage=0.95,
    cut_share=0.0,
)
NEW = Settings("mini", None, False, 1.0, None)
ADAPTING = replace(NEW, start="elmo_small", has_softmax=True)


def planned(
    settings: Settings = NEW, text: PreparedText = TEXT, words_per_second: float = 5000.0
) -> Tuple[Dict[str, Any], Plan]:
    config = base_config(settings)
    fit_to_text(config, settings, text)
    return config, make_plan(config, settings, text, words_per_second)


def planned_with(
    changes: str, folder: Path, settings: Settings = NEW
) -> Tuple[Dict[str, Any], Plan]:
    """The plan with a config of the user, which changes that of `mini`."""
    own = folder / "own.jsonnet"
    own.write_text(f"(import '{CONFIGS}/bilm_mini.jsonnet') + {{ {changes} }}")
    return planned(replace(settings, size=str(own)))


@given(
    hours=st.floats(0.01, 1000),
    num_sentences=st.integers(100, 10**7),
    words_per_second=st.floats(100, 10**5),
    is_new=st.booleans(),
)
def test_a_plan_takes_about_the_given_time_or_reads_the_text_as_often_as_helps(
    hours: float, num_sentences: int, words_per_second: float, is_new: bool
) -> None:
    settings = replace(NEW if is_new else ADAPTING, hours=hours)
    text = replace(
        TEXT, train_sentences=num_sentences, train_words=24 * num_sentences, heldout_sentences=50
    )
    config, plan = planned(settings, text, words_per_second)
    loader = config["data_loader"]
    batch = loader["rows"] * loader["unroll_steps"]
    assert plan.words == plan.updates * batch
    epoch = min(loader.get("batches_per_epoch", 10**9), text.predictions // batch)
    assert plan.updates == epoch * plan.epochs == epoch * config["trainer"]["num_epochs"]
    validation_seconds = (text.heldout_words + text.heldout_sentences) / words_per_second
    update_seconds = batch / words_per_second
    seconds, given_seconds = plan.hours * 3600, hours * 3600
    # Updates, and validations within epochs, fit in the time. Validations at the end of epochs come on top,
    # and one update is made even if none fits. The last factor is for the order in which times are added.
    most = given_seconds + plan.epochs * validation_seconds + update_seconds
    assert seconds <= most * (1 + 1e-9)
    if plan.epochs < settings.max_epochs:
        # Left out are at most: a share of the time for validations that do not take place, a part of an
        # update, an update of each epoch (all epochs have the same number), and a last tenth of the text.
        unused_updates = 1 + max(plan.epochs, 0.1 * (text.predictions // batch))
        least = (1 - VALIDATION_SHARE) * given_seconds - unused_updates * update_seconds
        assert seconds >= least * (1 - 1e-9)


def test_an_hour_on_a_usual_text() -> None:
    config, plan = planned()
    assert config["data_loader"]["rows"] == 128
    assert config["validation_data_loader"]["rows"] == 32
    assert plan.epochs == 4
    schedule = config["trainer"]["learning_rate_scheduler"]
    assert schedule == {"type": "polynomial_decay", "power": 0.5, "warmup_steps": 200}
    # Five minutes of 5,000 words a second.
    assert config["trainer"]["checkpointer"]["save_every_num_batches"] == 300 * 5000 // 2560
    assert config["trainer"]["callbacks"][-1]["validation_interval"] == plan.updates // 10
    lines = plan.lines(NEW)
    assert lines["plan"].startswith("the text 3.5 times: 17,489,920 words in 6,832 updates")
    assert lines["plan"].endswith("about 61 minutes")
    assert "time left over" not in lines and "note" not in lines


def test_little_text_is_read_ten_times_in_small_batches_and_the_plan_says_so() -> None:
    text = replace(TEXT, train_sentences=800, train_words=20_000, vocabulary_words=1500)
    text = replace(text, heldout_sentences=7)
    config, plan = planned(text=text)
    assert config["validation_data_loader"]["rows"] == 7
    assert plan.epochs == 10
    assert config["data_loader"]["rows"] == 16  # 650 updates; 32 rows would have less than 500
    assert config["trainer"]["learning_rate_scheduler"]["warmup_steps"] == 65
    assert config["model"]["softmax"] == {"type": "elmo_full"}
    assert "validation_interval" not in config["trainer"]["callbacks"][-1]  # each epoch is one
    lines = plan.lines(NEW)
    assert "10 times is the most, as more rarely helps; --epochs N" in lines["time left over"]
    assert "too few for a good biLM" in lines["note"]
    config, plan = planned(ADAPTING, text)
    assert config["data_loader"]["rows"] == 8  # 390 updates; 16 rows would have less than 300
    assert "note" not in plan.lines(ADAPTING)
    assert planned(replace(NEW, epochs=4), text)[0]["data_loader"]["rows"] == 8  # 520 updates
    # The full softmax of fewer words than twice those that are sampled.
    for num_words, kind in ((4095, "elmo_full"), (4096, "elmo_sampled")):
        config, _ = planned(text=replace(text, vocabulary_words=num_words))
        assert config["model"]["softmax"]["type"] == kind


def test_a_part_of_much_text_is_read_in_little_time() -> None:
    config, plan = planned(replace(NEW, hours=0.1))
    assert plan.epochs == 1
    assert config["data_loader"]["batches_per_epoch"] == plan.updates
    assert "the text 0.3 times" in plan.lines(NEW)["plan"]


def test_epochs_replace_hours() -> None:
    config, plan = planned(replace(NEW, epochs=2))
    assert config["trainer"]["num_epochs"] == plan.epochs == 2
    assert "batches_per_epoch" not in config["data_loader"]


def test_the_best_biLM_is_adapted_at_the_rate_of_its_config() -> None:
    config, plan = planned(ADAPTING)
    assert config["model"]["options_file"] == "elmo_small"
    assert plan.epochs == 3
    assert config["trainer"]["optimizer"]["lr"] == 0.001
    schedule = {"type": "linear_with_warmup", "warmup_steps": 20}
    assert config["trainer"]["learning_rate_scheduler"] == schedule
    assert "softmax_first" not in config["model"]


def test_a_softmax_that_is_missing_is_trained_first() -> None:
    config, plan = planned(replace(ADAPTING, start="original", has_softmax=False))
    assert config["model"]["softmax_first"] == plan.updates // 3


@pytest.mark.parametrize("size", SIZES)
def test_each_size_has_a_config(size: str) -> None:
    config, _ = planned(replace(NEW, size=size))
    assert config["trainer"]["callbacks"][-1]["type"] == "elmo_progress"
    assert config["train_data_path"] == ["text/train-*.txt.gz"]


def test_a_config_of_ones_own_keeps_its_rows_and_rates(tmp_path: Path) -> None:
    changes = "data_loader+: { rows: 7 }, trainer+: { learning_rate_scheduler: null }"
    config, plan = planned_with(changes, tmp_path)
    assert config["data_loader"]["rows"] == 7
    assert config["trainer"]["learning_rate_scheduler"] is None
    assert plan.words == plan.updates * 7 * 20


@pytest.mark.parametrize("epochs", [2, None])
def test_epochs_of_a_config_of_ones_own_stay_short(epochs: Optional[int], tmp_path: Path) -> None:
    changes = "data_loader+: { batches_per_epoch: 50 }"
    config, plan = planned_with(changes, tmp_path, replace(NEW, epochs=epochs))
    assert plan.epochs == config["trainer"]["num_epochs"]
    assert plan.updates == config["data_loader"]["batches_per_epoch"] * plan.epochs
    if epochs is not None:
        assert (plan.epochs, plan.updates) == (2, 100)
    else:  # as many as there is time for, each with a validation
        assert plan.epochs > NEW.max_epochs
        update_seconds = plan.words / plan.updates / plan.words_per_second
        assert abs(plan.hours - NEW.hours) * 3600 <= (plan.epochs + 0.1 * 50) * update_seconds
    # An epoch ends with the text.
    of_text = "data_loader+: { batches_per_epoch: 1000000 }"
    settings = replace(NEW, epochs=epochs)
    assert planned_with(of_text, tmp_path, settings)[1] == planned_with("", tmp_path, settings)[1]


def test_an_update_of_a_config_of_ones_own_may_take_several_batches(tmp_path: Path) -> None:
    changes = "trainer+: { num_gradient_accumulation_steps: 4 }, data_loader+: { rows: 128 }"
    settings = replace(NEW, epochs=2)
    config, plan = planned_with(changes, tmp_path, settings)
    _, single = planned_with("data_loader+: { rows: 512 }", tmp_path, settings)
    assert plan == single
    assert config["trainer"]["checkpointer"]["save_every_num_batches"] == 300 * 5000 // (4 * 2560)
    config, plan = planned_with(changes, tmp_path, replace(NEW, hours=0.1))
    assert config["data_loader"]["batches_per_epoch"] == 4 * plan.updates


@pytest.mark.parametrize("num_sentences, rows", [(60, 4), (1000, 16), (10_000, 128)])
def test_rows_have_enough_sentences(num_sentences: int, rows: int) -> None:
    long = replace(TEXT, train_sentences=num_sentences, train_words=3000 * num_sentences)
    config, _ = planned(replace(NEW, epochs=100), long)
    assert config["data_loader"]["rows"] == rows


def test_a_config_of_ones_own_can_leave_out_what_has_a_default(tmp_path: Path) -> None:
    loader = "data_loader: { type: 'elmo_bilm_streams' }"
    for checkpointer in ("'elmo_atomic'", "null"):
        changes = f"{loader}, trainer+: {{ checkpointer: {checkpointer} }}"
        config, plan = planned_with(changes, tmp_path)
        assert plan.words == plan.updates * DEFAULT_ROWS * DEFAULT_UNROLL_STEPS
        assert config["trainer"]["checkpointer"]["type"] == "elmo_atomic"
        assert config["trainer"]["checkpointer"]["save_every_num_batches"] > 0


@pytest.mark.parametrize(
    "callbacks, others",
    [
        # As in the config of an earlier `elmo pretrain`.
        (
            "['a', 'elmo_bilm_state', { type: 'elmo_progress', validation_interval: 5 }]",
            ["a", "elmo_bilm_state"],
        ),
        ("['elmo_progress', { type: 'b' }]", ["elmo_bilm_state", {"type": "b"}]),
        ("null", ["elmo_bilm_state"]),
    ],
)
def test_state_and_progress_are_written_once(
    callbacks: str, others: List[Any], tmp_path: Path
) -> None:
    config, plan = planned_with(f"trainer+: {{ callbacks: {callbacks} }}", tmp_path)
    interval = plan.updates // 10
    progress = {"type": "elmo_progress", "validation_interval": interval}
    assert config["trainer"]["callbacks"] == [*others, progress]


def test_the_largest_vocabulary_is_that_of_the_size_of_a_new_biLM() -> None:
    assert replace(NEW, size="small").max_vocabulary == 30_000
    # The size of the one that is adapted is another.
    assert replace(ADAPTING, has_softmax=False).max_vocabulary == MAX_VOCABULARY
    assert replace(NEW, size="my.jsonnet").max_vocabulary == MAX_VOCABULARY


@pytest.mark.parametrize(
    "changes, match",
    [
        ("data_loader:: null", "has no data_loader of type elmo_bilm_stream"),
        ("data_loader: null", "has no data_loader of type elmo_bilm_stream"),
        ("train_data_path: 'my.txt'", r"has the train_data_path 'my\.txt', .*'LM_TRAIN'"),
        ("validation_data_path: null", "has the validation_data_path None, .*'LM_HELDOUT'"),
        (
            "dataset_reader+: { vocabulary_file: 'v' }",
            "dataset_reader.vocabulary_file 'v', .*'LM_V",
        ),
        ("vocabulary: null", "has the vocabulary.vocabulary_file None, .*'LM_VOCABULARY'"),
        ("vocabulary: 'empty'", "has the vocabulary.vocabulary_file None, .*'LM_VOCABULARY'"),
        ("validation_data_loader: null", "no validation_data_loader with shuffle: fal"),
        ("validation_data_loader:: {}", "no validation_data_loader with shuffle: fal"),
        ("validation_data_loader+: { shuffle: true }", "no validation_data_loader with shuffle: f"),
    ],
)
def test_what_is_no_config_of_a_pretraining_is_an_error(
    changes: str, match: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=match):
        planned_with(changes, tmp_path)


def test_plan_and_config_are_files(tmp_path: Path) -> None:
    config, plan = planned()
    plan.to_file(tmp_path / "plan.json", {"hours": 1})
    content = json.loads((tmp_path / "plan.json").read_text())
    assert Plan.from_dict(content["plan"]) == plan
    assert content["arguments"] == {"hours": 1}
    write_config(config, tmp_path / "config.jsonnet", "elmo pretrain 'x\nz' y")
    text = (tmp_path / "config.jsonnet").read_text()
    assert text.startswith("// Made by: elmo pretrain 'x; z' y\n")
    assert json.loads(text[text.index("{") :]) == config
