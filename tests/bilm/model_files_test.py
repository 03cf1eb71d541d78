import shutil
import sys
import zipfile
from pathlib import Path
from typing import Callable, List, Optional, Tuple

import pytest
import torch

from elmo_plugin import BiLM, ElmoEmbedder, batch_to_ids
from elmo_plugin.bilm import model_files
from elmo_plugin.errors import ConfigurationError
from tests.conftest import SENTENCES, BiLMFiles, of_allennlp


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLENNLP_CACHE_ROOT", str(tmp_path / "allennlp"))


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


def test_a_folder_stands_for_both_files(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    folder = tmp_path / "my_bilm"
    folder.mkdir()
    shutil.copy(bilm_files.options_file, folder / "options.json")
    with pytest.raises(
        ConfigurationError, match=r"my_bilm: the folder holds no weights\.hdf5, exp"
    ):
        BiLM.from_files(folder)
    shutil.copy(bilm_files.weight_file, folder / "weights.hdf5")
    character_ids = batch_to_ids(SENTENCES)
    expected = BiLM.from_files(*bilm_files)(character_ids)["activations"][-1]
    for names in ((folder, None), (None, folder), (str(folder), str(folder))):
        assert torch.equal(BiLM.from_files(*names)(character_ids)["activations"][-1], expected)
    # Beside the embedder's default of the other file, too.
    assert ElmoEmbedder(folder).get_output_dim() == expected.shape[-1]
    with pytest.raises(ConfigurationError, match="my_bilm names both files"):
        BiLM.from_files(folder, bilm_files.weight_file)


@pytest.mark.parametrize(
    "weight_files, message",
    [
        ([], r"m\.zip: found 0 files named \*\.hdf5 \(none\)"),
        (["a__hdf5", "b__hdf5"], r"found 2 files named \*\.hdf5 \(a\.hdf5, b\.hdf5\)"),
    ],
)
def test_a_zip_without_a_single_weight_file_is_refused(
    weight_files: List[str], message: str, bilm_files: BiLMFiles, tmp_path: Path
) -> None:
    files = dict.fromkeys(weight_files, bilm_files.weight_file)
    name = make_zip(tmp_path / "m.zip", options__json=bilm_files.options_file, **files)
    with pytest.raises(ConfigurationError, match=message):
        BiLM.from_files(None, name)


def test_a_zip_beside_other_options_is_refused(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    name = make_zip(tmp_path / "m.zip", options__json=bilm_files.options_file)
    with pytest.raises(ConfigurationError, match=r"but .*m\.zip names both files"):
        BiLM.from_files(bilm_files.options_file, name)


def test_names_in_a_zip_are_not_followed(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    options_file, weight_file = bilm_files
    inside = tmp_path / "a" / "b" / "c"
    inside.mkdir(parents=True)
    before = {path for path in tmp_path.rglob("*") if "allennlp" not in path.parts}
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.write(options_file, "../../options.json")
        archive.writestr("../../../planted.txt", "x")
        archive.writestr(str(tmp_path / "planted_too.txt"), "x")
        # ZipFile.write would remove the slash.
        archive.writestr(str(tmp_path / "weights.hdf5"), Path(weight_file).read_bytes())
    bilm = BiLM.from_files(None, tmp_path / "m.zip")
    assert_same_weights(bilm, BiLM.from_files(*bilm_files))
    after = {path for path in tmp_path.rglob("*") if "allennlp" not in path.parts}
    assert after - before == {tmp_path / "m.zip"}
    extracted = [path for path in (tmp_path / "allennlp").rglob("*") if path.is_file()]
    assert sorted(path.name for path in extracted) == ["options.json", "weights.hdf5"]


def test_a_changed_zip_is_extracted_again(
    write_bilm: Callable[..., BiLMFiles], tmp_path: Path
) -> None:
    for seed in (1, 2):
        options_file, weight_file = files = write_bilm(seed=seed)
        name = make_zip(tmp_path / "m.zip", options__json=options_file, weights__hdf5=weight_file)
        assert_same_weights(BiLM.from_files(name), BiLM.from_files(*files))


def with_flipped_bytes(content: bytes) -> bytes:
    middle = len(content) // 2
    flipped = bytes(255 - byte for byte in content[middle : middle + 8])
    return content[:middle] + flipped + content[middle + 8 :]


def with_flags(content: bytes, flags: int) -> bytes:
    """Set flags of each member, in its own header and in the directory."""
    changed = bytearray(content)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        position = content.find(signature)
        while position >= 0:
            changed[position + offset] |= flags & 0xFF
            changed[position + offset + 1] |= flags >> 8
            position = content.find(signature, position + 1)
    return bytes(changed)


def as_encrypted(content: bytes) -> bytes:
    return with_flags(content, 0x1)


def with_names_that_are_not_utf8(content: bytes) -> bytes:
    return with_flags(content.replace(b"options.json", b"options\xffjson"), 0x800)


@pytest.mark.parametrize(
    "change, compression",
    [
        (lambda content: b"", zipfile.ZIP_STORED),
        (lambda content: content[: int(0.7 * len(content))], zipfile.ZIP_STORED),
        (as_encrypted, zipfile.ZIP_STORED),
        (with_names_that_are_not_utf8, zipfile.ZIP_STORED),
        *(
            (with_flipped_bytes, compression)
            for compression in (
                *(zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA),
            )
        ),
    ],
)
def test_a_damaged_zip_is_refused_and_leaves_nothing(
    change: Callable[[bytes], bytes], compression: int, bilm_files: BiLMFiles, tmp_path: Path
) -> None:
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.write(bilm_files.options_file, "options.json")
        archive.write(bilm_files.weight_file, "weights.hdf5")
    path.write_bytes(change(path.read_bytes()))
    assert_refused(path)


def test_a_zip_with_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (model_files.ENCODER_NAME, "config.json", f"{'x' * 300}.json"):
            archive.writestr(name, "{}")
    assert_refused(path)


def assert_refused(path: Path) -> None:
    """Check that a zip is refused, and that nothing of it remains."""
    message = r"weight_file: .*m\.zip cannot be extracted \(.+\), expected a zip with options"
    with pytest.raises(ConfigurationError, match=message):
        BiLM.from_files(None, str(path))
    cache = path.parent / "allennlp" / "cache"
    assert not cache.exists() or list(cache.iterdir()) == []


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
    with pytest.raises(ConfigurationError, match=r"but elmo_test names both files"):
        BiLM.from_files("elmo_test", pretrained.weight_file)


def test_an_unknown_name_is_no_file(pretrained: BiLMFiles) -> None:
    with pytest.raises(ConfigurationError, match=r"this package: elmo_test\."):
        BiLM.from_files("elmo_tset")


@pytest.mark.parametrize("key", ["options_file", "weight_file"])
def test_configs_name_it_by_either_key(key: str, pretrained: BiLMFiles) -> None:
    Params = of_allennlp("common.Params")
    TokenEmbedder = of_allennlp("modules.token_embedders.TokenEmbedder")
    from elmo_plugin.modules.placed_elmo import PlacedElmo

    expected = BiLM.from_files(*pretrained)
    embedder = TokenEmbedder.from_params(Params({"type": "elmo", key: "elmo_test"}))
    assert_same_weights(embedder.elmo.bilm, expected)
    placed = PlacedElmo.from_params(Params({"placement": "both", key: "elmo_test"}))
    assert placed.elmo is not None
    assert_same_weights(placed.elmo.bilm, expected)


def assert_same_weights(bilm: torch.nn.Module, expected: torch.nn.Module) -> None:
    for name, tensor in expected.state_dict().items():
        assert torch.equal(bilm.state_dict()[name], tensor), name


def test_downloads_need_the_package_cached_path(
    bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cached_path", None)
    with pytest.raises(
        ConfigurationError, match=r"https://x\.org/w\.hdf5.*cached_path.*elmo-plugin\[url\]"
    ):
        BiLM.from_files(bilm_files.options_file, "https://x.org/w.hdf5")


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

    pytest.importorskip("cached_path")
    monkeypatch.setattr("cached_path.cached_path", refuse)
    with pytest.raises(ConfigurationError, match=r"weight_file|options_file.*no route to host"):
        BiLM.from_files(bilm_files.options_file, "https://example.org/weights.hdf5")
