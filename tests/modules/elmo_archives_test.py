from pathlib import Path
from typing import Callable, Dict

import pytest
import torch

from elmo_plugin import Elmo, batch_to_ids
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.elmo_archives import archived_bilm, as_bytes, from_bytes
from tests.conftest import SENTENCES, BiLMFiles


@pytest.fixture
def two_elmos(write_bilm: Callable[..., BiLMFiles]) -> Dict[str, BiLMFiles]:
    return {
        "source": write_bilm(seed=1, name="source"),
        "target": write_bilm(seed=2, name="target"),
    }


def save_state_dict(
    elmos: Dict[str, BiLMFiles], path: Path, legacy: bool = False
) -> torch.nn.Module:
    model = torch.nn.ModuleDict(
        {name: Elmo(*files, 1, dropout=0.0) for name, files in elmos.items()}
    )
    torch.save(model.state_dict(), path, _use_new_zipfile_serialization=not legacy)
    return model


@pytest.mark.parametrize("weights_name, legacy", [("weights.th", True), ("best.th", False)])
def test_each_bilm_is_found_by_the_names_of_its_files(
    weights_name: str, legacy: bool, two_elmos: Dict[str, BiLMFiles], tmp_path: Path
) -> None:
    path = tmp_path / weights_name
    model = save_state_dict(two_elmos, path, legacy)
    random_state = torch.get_rng_state()
    bilms = {name: archived_bilm(tmp_path, *files) for name, files in two_elmos.items()}
    # No initial values are drawn, which would take most of the time.
    assert torch.equal(torch.get_rng_state(), random_state)
    assert archived_bilm(tmp_path, *two_elmos["source"], stateful=True).stateful
    # Later changes of the file do not change the biLMs.
    path.write_bytes(bytes(path.stat().st_size))
    character_ids = batch_to_ids(SENTENCES)
    for name, bilm in bilms.items():
        assert bilm is not None
        assert bilm.is_frozen
        # The same weights in the same batch: the same bits.
        expected = model[name].bilm(character_ids)["activations"][-1]
        assert torch.equal(bilm(character_ids)["activations"][-1], expected)


@pytest.mark.parametrize("kept_share", [0.0, 0.99])
def test_a_damaged_file_is_named(
    kept_share: float, two_elmos: Dict[str, BiLMFiles], tmp_path: Path
) -> None:
    path = tmp_path / "weights.th"
    save_state_dict(two_elmos, path)
    path.write_bytes(path.read_bytes()[: int(kept_share * path.stat().st_size)])
    with pytest.raises(ConfigurationError, match=r"weights\.th: cannot be read as weights"):
        archived_bilm(tmp_path, *two_elmos["source"])


def test_other_names_and_other_folders_find_nothing(
    two_elmos: Dict[str, BiLMFiles], tmp_path: Path
) -> None:
    source, target = two_elmos["source"], two_elmos["target"]
    for folder in (None, tmp_path / "nowhere", tmp_path):
        assert archived_bilm(folder, *source) is None
    save_state_dict(two_elmos, tmp_path / "weights.th")
    assert archived_bilm(tmp_path, source.options_file, target.weight_file) is None
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "weights.th")
    assert archived_bilm(tmp_path, *source) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_cast_description_is_read(dtype: torch.dtype) -> None:
    description = {"options_file": "options.json", "options": {"a": [1, 2.5]}}
    assert from_bytes(as_bytes(description).to(dtype)) == description
    third = as_bytes(description).to(dtype) / 3
    assert from_bytes(third + third + third) == description


def test_an_averaged_description_is_an_error() -> None:
    overflowed = as_bytes({"options_file": "options.json"}) * 3 // 3
    with pytest.raises(ConfigurationError, match=r"bilm_source.* was changed .*Copy it from there"):
        from_bytes(overflowed)
