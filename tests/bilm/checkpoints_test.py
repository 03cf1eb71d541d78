import json
from pathlib import Path
from typing import Any, Callable, Dict, Optional

import pytest
import torch
from allennlp.commands.train import train_model_from_file
from allennlp.models import load_archive
from allennlp.predictors import Predictor

from elmo_plugin import BiLM, Elmo, batch_to_ids
from elmo_plugin.bilm.checkpoints import archived_bilm
from elmo_plugin.errors import ConfigurationError
from tests.conftest import SENTENCES, TINY_OPTIONS, BiLMFiles

TINY = Path(__file__).parents[2] / "fixtures" / "ner" / "tiny"


@pytest.fixture
def two_elmos(write_bilm: Callable[..., BiLMFiles]) -> Dict[str, BiLMFiles]:
    return {
        "source": write_bilm(seed=1, name="source"),
        "target": write_bilm(seed=2, name="target"),
    }


def save_state_dict(
    elmos: Dict[str, BiLMFiles], path: Path, legacy: bool = False, **arguments: Any
) -> torch.nn.Module:
    model = torch.nn.ModuleDict(
        {name: Elmo(*files, 1, dropout=0.0, **arguments) for name, files in elmos.items()}
    )
    torch.save(model.state_dict(), path, _use_new_zipfile_serialization=not legacy)
    return model


def bilm_in(folder: Any, *names: str) -> Optional[BiLM]:
    found = archived_bilm(folder, *names)
    return None if found is None else BiLM.from_state_dict(*found)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("weights_name", ["weights.th", "best.th"])
def test_each_bilm_is_found_by_the_names_of_its_files(
    weights_name: str, legacy: bool, two_elmos: Dict[str, BiLMFiles], tmp_path: Path
) -> None:
    model = save_state_dict(two_elmos, tmp_path / weights_name, legacy)
    character_ids = batch_to_ids(SENTENCES)
    for name, files in two_elmos.items():
        random_state = torch.get_rng_state()
        bilm = bilm_in(tmp_path, *files)
        # No initial values are drawn, which would take as long as all else.
        assert torch.equal(torch.get_rng_state(), random_state)
        assert bilm is not None
        assert bilm.is_frozen
        expected = model[name].bilm(character_ids)["activations"][-1]
        assert torch.equal(bilm(character_ids)["activations"][-1], expected)


def test_a_file_that_changes_does_not_change_the_bilm(
    two_elmos: Dict[str, BiLMFiles], tmp_path: Path
) -> None:
    path = tmp_path / "weights.th"
    model = save_state_dict(two_elmos, path)
    bilm = bilm_in(tmp_path, *two_elmos["source"])
    assert bilm is not None
    path.write_bytes(bytes(path.stat().st_size))
    character_ids = batch_to_ids(SENTENCES)
    expected = model["source"].bilm(character_ids)["activations"][-1]
    assert torch.equal(bilm(character_ids)["activations"][-1], expected)


@pytest.mark.parametrize("kept_share", [0.0, 0.5, 0.99])
def test_a_damaged_file_is_named(
    kept_share: float, two_elmos: Dict[str, BiLMFiles], tmp_path: Path
) -> None:
    path = tmp_path / "weights.th"
    save_state_dict(two_elmos, path)
    path.write_bytes(path.read_bytes()[: int(kept_share * path.stat().st_size)])
    with pytest.raises(ConfigurationError, match=r"weights\.th: cannot be read as weights"):
        bilm_in(tmp_path, *two_elmos["source"])


def test_a_cached_vocabulary_does_not_get_in_the_way(
    two_elmos: Dict[str, BiLMFiles], tmp_path: Path
) -> None:
    save_state_dict(two_elmos, tmp_path / "weights.th", vocab_to_cache=["@@PADDING@@", "the"])
    assert bilm_in(tmp_path, *two_elmos["source"]) is not None


def test_other_names_find_nothing(two_elmos: Dict[str, BiLMFiles], tmp_path: Path) -> None:
    save_state_dict(two_elmos, tmp_path / "weights.th")
    names = (two_elmos["source"].options_file, two_elmos["target"].weight_file)
    assert bilm_in(tmp_path, *names) is None


@pytest.mark.parametrize("folder", [None, "nowhere", ""])
def test_a_folder_without_weights_holds_nothing(
    folder: Any, bilm_files: BiLMFiles, tmp_path: Path
) -> None:
    place = None if folder is None else tmp_path / folder
    assert bilm_in(place, *bilm_files) is None


def test_a_state_dict_of_others_holds_nothing(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "weights.th")
    assert bilm_in(tmp_path, *bilm_files) is None


def test_a_tagger_with_placed_elmo_predicts_the_same_without_its_bilms_files(
    write_bilm: Callable[..., BiLMFiles], tmp_path: Path
) -> None:
    files = write_bilm(TINY_OPTIONS)
    overrides = {f"model.text_encoder.elmo.{key}": name for key, name in files._asdict().items()}
    train_model_from_file(
        TINY / "experiment_elmo.jsonnet", tmp_path / "run", overrides=json.dumps(overrides)
    )
    archive_file = tmp_path / "run" / "model.tar.gz"
    sentence = {"sentence": "Mary Smith visited New York."}
    before = Predictor.from_archive(load_archive(archive_file)).predict_json(sentence)
    for name in files:
        Path(name).unlink()
    after = Predictor.from_archive(load_archive(archive_file)).predict_json(sentence)
    assert after == before
