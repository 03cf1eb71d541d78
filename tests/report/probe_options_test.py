import argparse
import shlex
import sys
from pathlib import Path
from typing import List

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from elmo_plugin import ElmoEmbedder
from elmo_plugin.report.probe_options import ProbeOptions, add_probe_arguments, probe_options
from tests.conftest import BiLMFiles


def parsed(*arguments: str) -> ProbeOptions:
    parser = argparse.ArgumentParser()
    add_probe_arguments(parser)
    return probe_options(parser.parse_args(arguments))


def test_the_arguments_have_the_defaults_of_the_options() -> None:
    assert parsed("-s", "results") == ProbeOptions("results", seeds=[1, 2, 3])


def test_every_argument_is_an_option() -> None:
    arguments = [
        *("-s", "results", "--bilm", "b", "--options-file", "o", "--weight-file", "w"),
        *("--cuda-device", "2", "--precision", "int8", "--kernel", "reference"),
        *("--seeds", "7", "8", "--no-control"),
    ]
    expected = ProbeOptions("results", "b", "o", "w", [7, 8], False, 2, "int8", "reference")
    assert parsed(*arguments) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        ["-s", "my results"],
        ["-s", "r", "--bilm", "mine", "--seeds", "5", "--no-control"],
        ["-s", "r", "--options-file", "o", "--weight-file", "w", "--kernel", "reference"],
        ["-s", "r", "--precision", "bfloat16", "--cuda-device", "1"],
    ],
)
def test_the_settings_hold_the_command(arguments: List[str], bilm_files: BiLMFiles) -> None:
    options = parsed(*arguments)
    bilm = ElmoEmbedder(*bilm_files).elmo_bilm
    settings = options.settings("wsd", ["a file"], bilm)
    command = shlex.split(settings["command"])
    assert command[:4] == ["allennlp", "elmo-report", "wsd", "a file"]
    assert parsed(*command[4:]) == options
    assert settings["seeds"] == list(options.seeds)
    assert settings["sizes"] == {
        "LSTM layers": 2,
        "cells": 20,
        "projection": 6,
        "character filters": 24,
    }


@pytest.mark.parametrize(
    "options, name",
    [
        (ProbeOptions("r"), "elmo_mini"),
        (ProbeOptions("r", bilm="a/folder"), "a/folder"),
        (ProbeOptions("r", options_file="o", weight_file="w"), "w"),
        (ProbeOptions("r", options_file="both.zip"), "both.zip"),
    ],
)
def test_the_bilm_is_called_as_it_was_given(options: ProbeOptions, name: str) -> None:
    assert options.bilm_names == [name, "random weights"]
    assert options._replace(control=False).bilm_names == [name]


def test_the_control_has_other_weights_and_the_same_sizes(bilm_files: BiLMFiles) -> None:
    options = ProbeOptions("r", None, *bilm_files)
    bilm = options.load()
    controls = [options.control_embedder(bilm, seed).elmo_bilm for seed in (1, 2)]
    weights = [next(model.forward_layers.parameters()) for model in (bilm, *controls)]
    assert all(control.options == bilm.options for control in controls)
    assert not torch.equal(weights[0], weights[1]) and not torch.equal(weights[1], weights[2])


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1], [2**32]])
def test_seeds_that_make_no_series_are_refused(seeds: List[int]) -> None:
    with pytest.raises(ConfigurationError, match=r"--seeds: found .* each once"):
        ProbeOptions("r", seeds=seeds).check()


def test_a_file_is_no_results_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"--output: .* is a file, expected a folder"):
        ProbeOptions(str(tmp_path / "file")).check()


def test_without_matplotlib_nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigurationError, match="matplotlib cannot be imported"):
        ProbeOptions("r").check()
