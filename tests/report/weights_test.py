import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Sequence

import pandas
import pytest
import torch
from allennlp.models import load_archive

from elmo_plugin import BiLM
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.model_mixes import ArchivedMix
from elmo_plugin.modules.scalar_mix import ScalarMix
from elmo_plugin.report import weights as weights_report
from elmo_plugin.report.figures import draw_weights
from elmo_plugin.report.weights import WeightsOptions, default_name
from tests.conftest import TINY_OPTIONS
from tests.report.conftest import column, tables_of
from tests.tasks.task_testing import FIXTURES, overfitted_archive

TINY = FIXTURES / "ner" / "tiny"
MIX = "text_encoder.elmo.elmo.scalar_mix"


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    """The folders of models that learned a little, so that their mixes are not what they were."""
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


def compare(archives: Sequence[Any], output: Path, **changes: Any) -> SimpleNamespace:
    """Return the table of a report."""
    options = WeightsOptions(archives=tuple(map(str, archives)), output=str(output), **changes)
    return tables_of(weights_report.compare_weights(options))[0]


def expected_row(folder: Path, mix: int) -> List[float]:
    """Return shares and gamma as in the table, with four decimals."""
    state = load_archive(folder).model.state_dict()
    parameters = [state[f"{MIX}_{mix}.scalar_parameters.{layer}"] for layer in range(3)]
    shares = torch.softmax(torch.cat(parameters), dim=0).tolist()
    return [*shares, state[f"{MIX}_{mix}.gamma"].item()]


def assert_equal_to_four_decimals(found: Sequence[float], expected: Sequence[float]) -> None:
    """The table rounds by up to half of the fourth decimal; float32 adds much less than 1e-8."""
    assert all(abs(a - b) <= 0.5001e-4 for a, b in zip(found, expected, strict=True))


def test_each_place_has_its_shares_and_its_gamma(archives: Dict[str, Path], tmp_path: Path) -> None:
    table = compare([archives["ner-both-seed1"] / "model.tar.gz", archives["inside"]], tmp_path)
    assert table.columns == [
        *("task", "ELMo at", "archives", "layer 0", "layer 1", "layer 2", "gamma")
    ]
    assert [row[:3] for row in table.rows] == [
        *(["ner-both", "input", 1], ["ner-both", "output", 1], ["inside", "embedder", 1])
    ]
    for mix, row in enumerate(table.rows[:2]):
        assert_equal_to_four_decimals(row[3:], expected_row(archives["ner-both-seed1"], mix))
        assert max(row[3:6]) > 0.3334, "the mix did not learn"
    assert not any("fixed" in note for note in table.notes)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"weights{suffix}" for suffix in (".md", ".csv", ".json", ".png", ".svg")
    }


def test_archives_of_one_name_are_averaged(archives: Dict[str, Path], tmp_path: Path) -> None:
    folders = [archives["ner-both-seed1"], archives["ner-both-seed2"]]
    table = compare(folders, tmp_path)
    assert column(table, "task") == ["ner-both"] * 2
    assert column(table, "archives") == [2, 2]
    for mix, row in enumerate(table.rows):
        columns = list(zip(*[expected_row(folder, mix) for folder in folders]))
        assert_equal_to_four_decimals(row[3:7], [statistics.mean(values) for values in columns])
        assert_equal_to_four_decimals(row[7:], [statistics.stdev(values) for values in columns])
    table = compare(folders, tmp_path, names=("first", "second"))
    assert column(table, "task") == ["first", "first", "second", "second"]


def test_fixed_shares_are_named_in_a_note(archives: Dict[str, Path], tmp_path: Path) -> None:
    overrides = {"model.text_encoder.elmo.scalar_mix_parameters": [0.0, 1.0, 0.0]}
    table = compare([archives["ner-both-seed1"]], tmp_path, names=("fixed",), overrides=overrides)
    assert "fixed, input: the shares are fixed by the config." in table.notes


def test_a_model_of_the_package_has_its_own_name(tmp_path: Path) -> None:
    table = compare([Path("elmo_ner_small")], tmp_path)
    assert column(table, "task") == ["elmo_ner_small"]


def test_models_of_different_names_may_have_other_numbers_of_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mixes(model: Any, archive: str) -> List[ArchivedMix]:
        shares = torch.tensor({"two": [0.25, 0.75], "three": [0.5, 0.3, 0.2]}[archive])
        mix = ScalarMix(len(shares), initial_scalar_parameters=shares.log().tolist())
        return [ArchivedMix("elmo.input", mix, BiLM(TINY_OPTIONS))]

    monkeypatch.setattr(
        weights_report, "opened_archive", lambda *arguments: SimpleNamespace(model=None)
    )
    monkeypatch.setattr(weights_report, "mixes_in", mixes)
    table = compare(["two", "three"], tmp_path, names=("two", "three"))
    assert [row[3:] for row in table.rows] == [[0.25, 0.75, None, 1.0], [0.5, 0.3, 0.2, 1.0]]
    with pytest.raises(ConfigurationError, match="2 have ELMo at 'input', with 2 and 3 layers"):
        compare(["two", "three"], tmp_path, names=("same", "same"))


def test_several_embedders_of_a_model_have_their_own_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"embedder.token_embedder_{kind}" for kind in ("news", "novels")]
    mixes = [ArchivedMix(name, ScalarMix(2), BiLM(TINY_OPTIONS)) for name in names]
    archive = SimpleNamespace(model=None)
    monkeypatch.setattr(weights_report, "opened_archive", lambda *arguments: archive)
    monkeypatch.setattr(weights_report, "mixes_in", lambda *arguments: mixes)
    assert column(compare(["two"], tmp_path), "ELMo at") == names


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
    texts = sorted(text.get_text() for text in at_input.texts)
    assert texts == ["0.10", "0.20", "0.40", "0.60", "0.70"]
    assert [text.get_text() for text in at_output.texts] == ["1.00"]
    # The last layer is on top, as in the paper.
    assert at_input.get_ylim()[0] < at_input.get_ylim()[1]


def test_a_name_is_that_of_the_folder_without_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert default_name("runs/seed1-ner/model.tar.gz") == "seed1-ner"
    (tmp_path / "ner-both-seed13").mkdir()
    monkeypatch.chdir(tmp_path / "ner-both-seed13")
    assert default_name(".") == default_name("model.tar.gz") == "ner-both"


@pytest.mark.parametrize(
    "names, given, message",
    [
        (["no/model.tar.gz"], None, r"no/model\.tar\.gz: cannot be loaded"),
        (["baseline"], None, "model holds no mix, expected a task model with ELMo"),
        (["baseline"], ("a", "b"), "--names: found 2 for 1 archives, expected one for"),
        (["ner-both-seed1", "inside"], ("a", "a"), "of the 2 archives called 'a', 1 have ELMo at"),
    ],
)
def test_archives_that_cannot_be_compared_are_refused(
    names: List[str], given: Any, message: str, archives: Dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        compare([archives.get(name, name) for name in names], tmp_path / "results", names=given)
    assert not (tmp_path / "results").exists()
