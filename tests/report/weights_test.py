import json
import shutil
import statistics
from pathlib import Path
from typing import Any, Dict, List, Sequence

import pandas
import pytest
import torch
from allennlp.common import Params
from allennlp.models import load_archive

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.report import weights as weights_report
from elmo_plugin.report.figures import draw_weights
from elmo_plugin.report.tables import Report, read_table
from elmo_plugin.report.weights import MixWeights, WeightsOptions, default_name, mixes_of
from tests.report.conftest import column
from tests.tasks.task_testing import FIXTURES, overfitted_archive

TINY = FIXTURES / "ner" / "tiny"
MIX = "text_encoder.elmo.elmo.scalar_mix"
EMBEDDER = "model.text_encoder.text_field_embedder.token_embedders.elmo"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    """The folders of models that learnt a little, so that their mixes are not what they were."""
    folders = {}
    for name, experiment, num_steps in (
        ("ner-both-seed1", "experiment_elmo.jsonnet", 3),
        ("ner-both-seed2", "experiment_elmo.jsonnet", 6),
        ("inside", "experiment_elmo_inside.jsonnet", 3),
        ("baseline", "experiment.jsonnet", 1),
    ):
        folder = tmp_path_factory.mktemp("archives") / name
        folder.mkdir()
        overfitted_archive(TINY / experiment, folder, num_steps)
        folders[name] = folder
    return folders


def compare(archives: Sequence[Any], output: Path, **changes: Any) -> Report:
    options = WeightsOptions(archives=tuple(map(str, archives)), output=str(output), **changes)
    return weights_report.compare_weights(options)


def expected_row(folder: Path, mix: int) -> List[float]:
    state = load_archive(folder).model.state_dict()
    parameters = [state[f"{MIX}_{mix}.scalar_parameters.{layer}"] for layer in range(3)]
    shares = torch.softmax(torch.cat(parameters), dim=0).tolist()
    return [*shares, state[f"{MIX}_{mix}.gamma"].item()]


def test_each_place_has_its_shares_and_its_gamma(archives: Dict[str, Path], tmp_path: Path) -> None:
    (table,), files, _ = compare([archives["ner-both-seed1"] / "model.tar.gz"], tmp_path)
    assert table.columns == [
        *("task", "ELMo at", "archives", "layer 0", "layer 1", "layer 2", "gamma")
    ]
    assert [row[:3] for row in table.rows] == [["ner-both", "input", 1], ["ner-both", "output", 1]]
    for mix, row in enumerate(table.rows):
        assert row[3:] == pytest.approx(expected_row(archives["ner-both-seed1"], mix), abs=1e-4)
        assert sum(row[3:6]) == pytest.approx(1.0, abs=2e-4)
        assert max(row[3:6]) > 0.34, "the mix did not learn"
    assert [path.name for path in files] == [
        f"weights{suffix}" for suffix in (".md", ".csv", ".json", ".png", ".svg")
    ]
    assert read_table(files[2]) == table


def test_seeds_are_averaged(archives: Dict[str, Path], tmp_path: Path) -> None:
    folders = [archives["ner-both-seed1"], archives["ner-both-seed2"]]
    ((table,), *_) = compare(folders, tmp_path)
    assert column(table, "task") == ["ner-both"] * 2
    assert column(table, "archives") == [2, 2]
    for mix in range(2):
        rows = [expected_row(folder, mix) for folder in folders]
        for layer, values in enumerate(zip(*rows)):
            found = table.rows[mix][3 + layer]
            assert found == pytest.approx(statistics.mean(values), abs=1e-4)
            assert table.rows[mix][7 + layer] == pytest.approx(statistics.stdev(values), abs=1e-4)


def test_names_can_be_given(archives: Dict[str, Path], tmp_path: Path) -> None:
    folders = [archives["ner-both-seed1"], archives["ner-both-seed2"]]
    ((table,), *_) = compare(folders, tmp_path, names=("first", "second"))
    assert column(table, "task") == ["first", "first", "second", "second"]
    assert column(table, "gamma")[0] == pytest.approx(expected_row(folders[0], 0)[3], abs=1e-4)


def test_elmo_among_the_embedders_counts_as_a_place(
    archives: Dict[str, Path], tmp_path: Path
) -> None:
    ((table,), *_) = compare([archives["inside"], archives["ner-both-seed1"]], tmp_path)
    assert column(table, "ELMo at") == ["embedder", "input", "output"]


def test_allennlps_own_embedder_is_read_with_its_type_changed(
    archives: Dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "own"
    shutil.copytree(archives["inside"], folder)
    config = Params.from_file(folder / "config.json", json.dumps({f"{EMBEDDER}.type": "elmo"}))
    values = config.as_dict(quiet=True)
    embedders = values["model"]["text_encoder"]["text_field_embedder"]["token_embedders"]
    embedders["elmo"]["type"] = "elmo_token_embedder"
    (folder / "config.json").write_text(json.dumps(values))
    state = torch.load(folder / "weights.th", weights_only=True)
    own = {key: value for key, value in state.items() if "bilm_source" not in key}
    torch.save(own, folder / "weights.th")
    with pytest.raises(Exception):  # noqa: B017  AllenNLP's biLM has other names for its weights
        mixes_of(str(folder))
    (mix,) = mixes_of(str(folder), {f"{EMBEDDER}.type": "elmo"})
    (expected,) = mixes_of(str(archives["inside"]))
    assert mix == expected


def test_fixed_shares_are_named_in_a_note(archives: Dict[str, Path], tmp_path: Path) -> None:
    overrides = {"model.text_encoder.elmo.scalar_mix_parameters": [0.0, 1.0, 0.0]}
    folders = [archives["ner-both-seed1"]]
    ((table,), *_) = compare(folders, tmp_path, names=("fixed",), overrides=overrides)
    assert "fixed, input: the shares are fixed by the config." in table.notes


def test_models_may_have_other_numbers_of_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mixes(archive: str, overrides: Any) -> List[MixWeights]:
        shares = {"two": [0.25, 0.75], "three": [0.5, 0.3, 0.2]}[archive]
        return [MixWeights("input", shares, 1.5, True)]

    monkeypatch.setattr(weights_report, "mixes_of", mixes)
    ((table,), *_) = compare(["two", "three"], tmp_path, names=("two", "three"))
    assert [row[3:] for row in table.rows] == [[0.25, 0.75, None, 1.5], [0.5, 0.3, 0.2, 1.5]]


def test_those_of_one_name_may_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mixes(archive: str, overrides: Any) -> List[MixWeights]:
        num_layers = int(archive)
        return [MixWeights("input", [1 / num_layers] * num_layers, 1.0, True)]

    monkeypatch.setattr(weights_report, "mixes_of", mixes)
    with pytest.raises(ConfigurationError, match="2 have ELMo at 'input', with 2 and 3 layers"):
        compare(["2", "3"], tmp_path, names=("same", "same"))


def test_the_picture_has_a_field_for_each_share() -> None:
    rows = {
        ("ner", "input"): [0.2, 0.7, 0.1, 1.25],
        ("a name that is long", "input"): [0.4, 0.6, None, 0.5],
        ("sst", "output"): [1.0, None, None, 2.0],
    }
    columns = ["layer 0", "layer 1", "layer 2", "gamma"]
    weights = pandas.DataFrame.from_dict(rows, orient="index", columns=columns)
    weights.index = pandas.MultiIndex.from_tuples(rows)
    at_input, at_output = draw_weights("Weights", weights).axes[:2]
    assert at_input.get_title() == "input" and at_output.get_title() == "output"
    texts = sorted(text.get_text() for text in at_input.texts)
    assert texts == ["0.10", "0.20", "0.40", "0.60", "0.70"]
    labels = at_input.get_xticklabels()
    expected = ["ner\nγ 1.25", "a name that\nis long\nγ 0.50"]
    assert [label.get_text() for label in labels] == expected
    assert len(at_output.get_yticklabels()) == 3
    # The last layer is on top, as in the paper.
    assert at_input.get_ylim()[0] < at_input.get_ylim()[1]


@pytest.mark.parametrize(
    "path, name",
    [
        ("runs/ner-both-seed13/model.tar.gz", "ner-both"),
        ("runs/ner/model.tar.gz", "ner"),
        ("runs/seed1-ner/model.tar.gz", "seed1-ner"),
    ],
)
def test_a_name_is_that_of_the_folder_without_the_seed(path: str, name: str) -> None:
    assert default_name(path) == name


def test_a_folder_has_its_own_name(
    archives: Dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert default_name(str(archives["ner-both-seed1"])) == "ner-both"
    monkeypatch.chdir(archives["inside"])
    assert default_name(".") == default_name("model.tar.gz") == "inside"


class TestBadInput:
    def test_an_unknown_file(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"no/model\.tar\.gz: cannot be loaded"):
            compare(["no/model.tar.gz"], tmp_path)

    def test_an_archive_without_elmo(self, archives: Dict[str, Path], tmp_path: Path) -> None:
        with pytest.raises(
            ConfigurationError, match=r"model has no mix .*, expected a task's model with ELMo"
        ):
            compare([archives["baseline"]], tmp_path / "results")
        assert not (tmp_path / "results").exists()

    def test_as_many_names_as_archives(self, archives: Dict[str, Path], tmp_path: Path) -> None:
        with pytest.raises(
            ConfigurationError, match="--names: found 2 for 1 archives, expected one for"
        ):
            compare([archives["baseline"]], tmp_path, names=("a", "b"))

    def test_one_name_for_models_that_differ(
        self, archives: Dict[str, Path], tmp_path: Path
    ) -> None:
        folders = [archives["ner-both-seed1"], archives["inside"]]
        with pytest.raises(
            ConfigurationError, match=r"of the 2 archives called 'a', 1 have ELMo at 'input'"
        ):
            compare(folders, tmp_path, names=("a", "a"))
