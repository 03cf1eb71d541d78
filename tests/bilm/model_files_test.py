import shutil
import zipfile
from pathlib import Path
from typing import Optional, Tuple

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.modules.token_embedders import TokenEmbedder

from elmo_plugin import BiLM, batch_to_ids
from elmo_plugin.bilm import model_files
from elmo_plugin.modules.placed_elmo import PlacedElmo
from tests.conftest import SENTENCES, BiLMFiles


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allennlp.common.file_utils.CACHE_DIRECTORY", str(tmp_path / "cache"))


def make_zip(path: Path, **files: str) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name, source in files.items():
            archive.write(source, name.replace("__", "."))
    return str(path)


def test_a_zip_with_options_and_weights_is_a_model(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    options_file, weight_file = bilm_files
    name = make_zip(
        tmp_path / "209.zip",
        options__json=options_file,
        model__hdf5=weight_file,
        LICENSE=options_file,
    )
    character_ids = batch_to_ids(SENTENCES)
    expected = BiLM.from_files(*bilm_files)(character_ids)["activations"][-1]
    for options in (None, name):
        assert torch.equal(
            BiLM.from_files(options, name)(character_ids)["activations"][-1], expected
        )


def test_a_zip_without_weights_is_refused(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    name = make_zip(tmp_path / "half.zip", options__json=bilm_files.options_file)
    with pytest.raises(
        ConfigurationError, match=r"half\.zip: found 0 files named \*\.hdf5 \(none\)"
    ):
        BiLM.from_files(None, name)


def test_a_zip_with_two_weights_is_refused(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    options_file, weight_file = bilm_files
    name = make_zip(
        tmp_path / "two.zip", options__json=options_file, a__hdf5=weight_file, b__hdf5=weight_file
    )
    with pytest.raises(
        ConfigurationError, match=r"found 2 files named \*\.hdf5 \(a\.hdf5, b\.hdf5\)"
    ):
        BiLM.from_files(None, name)


def test_a_zip_beside_other_options_is_refused(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    name = make_zip(tmp_path / "m.zip", options__json=bilm_files.options_file)
    with pytest.raises(ConfigurationError, match=r"but .*m\.zip stands for both files"):
        BiLM.from_files(bilm_files.options_file, name)


@pytest.mark.parametrize("kept_share", [0.0, 0.7])
def test_a_zip_that_is_none_or_cut_short_is_refused(
    kept_share: float, bilm_files: BiLMFiles, tmp_path: Path
) -> None:
    options_file, weight_file = bilm_files
    path = Path(make_zip(tmp_path / "m.zip", options__json=options_file, weights__hdf5=weight_file))
    path.write_bytes(path.read_bytes()[: int(kept_share * path.stat().st_size)])
    with pytest.raises(
        ConfigurationError, match=r"weight_file: .*m\.zip is no zip file, or one cut"
    ):
        BiLM.from_files(None, str(path))


def test_a_malformed_hub_name_is_named(bilm_files: BiLMFiles) -> None:
    with pytest.raises(ConfigurationError, match=r"^weight_file: cannot find hf://a b/c"):
        BiLM.from_files(bilm_files.options_file, "hf://a b/c/d")


def test_weights_without_options_are_refused(bilm_files: BiLMFiles) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^Found \{'options_file': None, .* expected the op"
    ):
        BiLM.from_files(None, bilm_files.weight_file)


def test_nothing_at_all_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'weight_file': None\}, expected the options"):
        BiLM.from_files(None)


@pytest.fixture
def pretrained(bilm_files: BiLMFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BiLMFiles:
    """A biLM that comes with the package, by the name `elmo_test`."""
    folder = tmp_path / "pretrained" / "elmo_test"
    folder.mkdir(parents=True)
    shutil.copy(bilm_files.options_file, folder / "options.json")
    shutil.copy(bilm_files.weight_file, folder / "weights.hdf5")
    monkeypatch.setattr(model_files, "PRETRAINED_FOLDER", folder.parent)
    return bilm_files


@pytest.mark.parametrize(
    "names", [("elmo_test",), ("elmo_test", "elmo_test"), (None, "elmo_test"), ("elmo_test", None)]
)
def test_one_name_stands_for_both_files(
    names: Tuple[Optional[str], ...], pretrained: BiLMFiles
) -> None:
    expected = BiLM.from_files(*pretrained)
    assert_same_weights(BiLM.from_files(*names), expected)


def test_a_name_beside_another_file_is_refused(pretrained: BiLMFiles) -> None:
    with pytest.raises(ConfigurationError, match=r"but elmo_test stands for both files"):
        BiLM.from_files("elmo_test", pretrained.weight_file)


def test_an_unknown_name_is_no_file(pretrained: BiLMFiles) -> None:
    with pytest.raises(ConfigurationError, match=r"this package: elmo_test\."):
        BiLM.from_files("elmo_tset")


@pytest.mark.parametrize("key", ["options_file", "weight_file"])
def test_configs_name_it_by_either_key(key: str, pretrained: BiLMFiles) -> None:
    expected = BiLM.from_files(*pretrained)
    embedder = TokenEmbedder.from_params(Params({"type": "elmo", key: "elmo_test"}))
    assert_same_weights(embedder.elmo.bilm, expected)
    placed = PlacedElmo.from_params(Params({"placement": "both", key: "elmo_test"}))
    assert placed.elmo is not None
    assert_same_weights(placed.elmo.bilm, expected)


def assert_same_weights(bilm: torch.nn.Module, expected: torch.nn.Module) -> None:
    for name, tensor in expected.state_dict().items():
        assert torch.equal(bilm.state_dict()[name], tensor), name


@pytest.mark.parametrize("key", ["options_file", "weight_file"])
def test_a_missing_file_is_named_with_its_key(key: str, bilm_files: BiLMFiles) -> None:
    files = {**bilm_files._asdict(), key: "no/such/file"}
    with pytest.raises(ConfigurationError, match=f"^{key}: cannot find no/such/file"):
        BiLM.from_files(**files)


def test_an_unreachable_url_is_named(
    bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr("elmo_plugin.bilm.model_files.cached_path", refuse)
    with pytest.raises(ConfigurationError, match=r"weight_file|options_file.*no route to host"):
        BiLM.from_files(bilm_files.options_file, "https://example.org/weights.hdf5")
