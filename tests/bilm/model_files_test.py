import logging
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List, Optional, Tuple

import pytest
import torch

from elmo_plugin import BiLM, Elmo, ElmoEmbedder
from elmo_plugin.bilm import model_files
from elmo_plugin.errors import ConfigurationError
from tests.conftest import BiLMFiles, of_allennlp


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLENNLP_CACHE_ROOT", str(tmp_path / "allennlp"))


@pytest.fixture
def pretrained(bilm_files: BiLMFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a biLM that comes with the package, by the name `elmo_test`."""
    folder = tmp_path / "pretrained" / "elmo_test"
    folder.mkdir(parents=True)
    shutil.copy(bilm_files.options_file, folder / "options.json")
    shutil.copy(bilm_files.weight_file, folder / "weights.hdf5")
    monkeypatch.setattr(model_files, "PRETRAINED_FOLDER", folder.parent)
    return folder


def make_zip(path: Path, *sources: str, compression: int = zipfile.ZIP_STORED) -> str:
    """Write files into a zip, by their names without those of the test."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for source in sources:
            archive.write(source, Path(source).name.removeprefix("bilm_"))
    return str(path)


def assert_same_weights(bilm: torch.nn.Module, expected: torch.nn.Module) -> None:
    for name, tensor in expected.state_dict().items():
        assert torch.equal(bilm.state_dict()[name], tensor), name


def test_a_zip_has_the_words_of_the_softmax(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    words = tmp_path / "vocab.txt"
    words.write_text("a\n")
    zipped = make_zip(tmp_path / "m.zip", *bilm_files, str(words))
    assert (
        model_files.resolve_model_files(zipped, None)[1].with_name("vocab.txt").read_text() == "a\n"
    )


@pytest.mark.parametrize("kind", ["name", "folder", "zip"])
def test_one_name_names_both_files(kind: str, pretrained: Path, bilm_files: BiLMFiles) -> None:
    if kind == "name":
        name = "elmo_test"
    elif kind == "folder":
        name = str(pretrained)
    else:
        name = make_zip(pretrained.parent / "209.zip", *bilm_files, __file__)
    expected = BiLM.from_files(*bilm_files)
    pairs: Tuple[Tuple[Optional[str], ...], ...] = ((name,), (name, name), (None, name))
    for names in pairs:
        assert_same_weights(BiLM.from_files(*names), expected)
    assert Elmo(name, num_output_representations=2).get_output_dim() == expected.get_output_dim()
    assert ElmoEmbedder(weight_file=name).get_output_dim() == expected.get_output_dim()
    assert ElmoEmbedder(name).get_output_dim() == expected.get_output_dim()
    with pytest.raises(ConfigurationError, match=f"but {name} names both files. Leave the other"):
        BiLM.from_files(name, bilm_files.weight_file)


def test_files_of_other_names_are_found_beside_hidden_copies(
    bilm_files: BiLMFiles, tmp_path: Path
) -> None:
    options, weights = tmp_path / "options262.json", tmp_path / "de_weights.hdf5"
    shutil.copy(bilm_files.options_file, options)
    shutil.copy(bilm_files.weight_file, weights)
    hidden = tmp_path / "._de_weights.hdf5"  # as macOS puts them into a .zip
    hidden.write_bytes(b"of macOS")
    name = make_zip(tmp_path / "m.zip", str(options), str(weights), str(hidden))
    assert_same_weights(BiLM.from_files(name), BiLM.from_files(*bilm_files))


@pytest.mark.parametrize("key", ["options_file", "weight_file"])
def test_configs_name_it_by_either_key(key: str, pretrained: Path, bilm_files: BiLMFiles) -> None:
    Params = of_allennlp("common.Params")
    TokenEmbedder = of_allennlp("modules.token_embedders.TokenEmbedder")
    from elmo_plugin.modules.text_encoder import PlacedElmo

    expected = BiLM.from_files(*bilm_files)
    embedder = TokenEmbedder.from_params(Params({"type": "elmo", key: "elmo_test"}))
    assert_same_weights(embedder.elmo.bilm, expected)
    placed = PlacedElmo.from_params(Params({"placement": "both", key: "elmo_test"}))
    assert placed.elmo is not None
    assert_same_weights(placed.elmo.bilm, expected)


def test_both_files_must_be_recognized(pretrained: Path) -> None:
    # Other names are accepted, if one file of a kind is there; and others beside these two.
    weight_file = (pretrained / "weights.hdf5").rename(pretrained / "model.hdf5")
    BiLM.from_files(pretrained)
    other = shutil.copy(weight_file, pretrained / "other.hdf5")
    message = r"hdf5: model\.hdf5, other\.hdf5, expected exactly"
    with pytest.raises(ConfigurationError, match=message):
        BiLM.from_files(pretrained)
    weight_file.rename(pretrained / "weights.hdf5")
    BiLM.from_files(pretrained)
    Path(other).unlink()
    (pretrained / "options.json").unlink()
    message = r"options\*\.json: none, and \*\.hdf5: weights\.hd"
    with pytest.raises(ConfigurationError, match=message):
        BiLM.from_files(pretrained)


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
    with zipfile.ZipFile(tmp_path / "m.zip", "a") as archive:
        archive.writestr("another/options.json", "{}")
    with pytest.raises(ConfigurationError, match=r"m\.zip cannot be extracted \(.*File exists"):
        BiLM.from_files(None, tmp_path / "m.zip")


def test_a_changed_zip_is_extracted_again(
    write_bilm: Callable[..., BiLMFiles], tmp_path: Path
) -> None:
    for seed in (1, 2):
        files = write_bilm(seed=seed)
        name = make_zip(tmp_path / "m.zip", *files)
        assert_same_weights(BiLM.from_files(name), BiLM.from_files(*files))


def test_what_a_zip_holds_is_on_the_disk_before_it_is_in_the_cache(
    bilm_files: BiLMFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: List[int] = []  # of what was synced
    fsync, rename = os.fsync, Path.rename

    def recorded(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        fsync(descriptor)

    def checked(self: Path, target: Path) -> Path:
        assert sorted(sizes) == sorted(path.stat().st_size for path in self.iterdir())
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", recorded)
    monkeypatch.setattr(Path, "rename", checked)
    BiLM.from_files(make_zip(tmp_path / "m.zip", *bilm_files))
    assert len(sizes) == 2


def test_a_zip_with_many_files_is_refused(bilm_files: BiLMFiles, tmp_path: Path) -> None:
    path = make_zip(tmp_path / "m.zip", *bilm_files)
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(99):
            archive.writestr(f"{number}.json", "{}")
    with pytest.raises(ConfigurationError, match=r"m\.zip has 101 files .*, at most 100\. Extract"):
        BiLM.from_files(path)
    assert list((tmp_path / "allennlp" / "cache").iterdir()) == []


def with_flipped_bytes(content: bytes) -> bytes:
    middle = len(content) // 2
    flipped = bytes(255 - byte for byte in content[middle : middle + 8])
    return content[:middle] + flipped + content[middle + 8 :]


def as_encrypted(content: bytes) -> bytes:
    """Set that flag of each member, in its header and in the directory."""
    changed = bytearray(content)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        for match in re.finditer(re.escape(signature), content):
            changed[match.start() + offset] |= 1
    return bytes(changed)


@pytest.mark.parametrize(
    "change, compression",
    [
        (lambda content: b"", zipfile.ZIP_STORED),
        (lambda content: content[: int(0.7 * len(content))], zipfile.ZIP_STORED),
        (as_encrypted, zipfile.ZIP_STORED),
        (with_flipped_bytes, zipfile.ZIP_DEFLATED),
        (with_flipped_bytes, zipfile.ZIP_LZMA),
    ],
)
def test_a_damaged_zip_is_refused_and_leaves_nothing(
    change: Callable[[bytes], bytes], compression: int, bilm_files: BiLMFiles, tmp_path: Path
) -> None:
    path = tmp_path / "m.zip"
    make_zip(path, *bilm_files, compression=compression)
    path.write_bytes(change(path.read_bytes()))
    message = r"model: .*m\.zip cannot be extracted \(.+\), expected a zip with options"
    with pytest.raises(ConfigurationError, match=message):
        BiLM.from_files(None, str(path))
    cache = tmp_path / "allennlp" / "cache"
    assert list(cache.iterdir()) == []


CHOICES = (
    r"elmo_mini, elmo_small, original \(the paper's, which is downloaded\), or a folder or \.zip"
)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"options_file": "no/such/file"}, "^options_file: cannot find no/such/file"),
        ({"weight_file": "no/such/file"}, "^weight_file: cannot find no/such/file"),
        ({"options_file": None}, "hdf5: one file, expected both files of a model.*--weight-file"),
        ({"weight_file": None}, "json: one file, expected both files of a model.*options_file and"),
        (
            {"options_file": None, "weight_file": None},
            f"^No model is named, expected one: {CHOICES}",
        ),
        (
            {"options_file": "elmo_tset", "weight_file": None},
            f"^elmo_tset: no such model, expected {CHOICES}",
        ),
        (
            {"options_file": "", "weight_file": None},
            f"^The name of the model is empty, expected one: {CHOICES}",
        ),
        (
            {"options_file": "original", "weight_file": "w.hdf5"},
            "options_file is original and weight_file is w.hdf5, but original names both files",
        ),
    ],
)
def test_a_missing_file_is_named_with_its_key(
    changes: Any, message: str, bilm_files: BiLMFiles
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        BiLM.from_files(**{**bilm_files._asdict(), **changes})


def test_downloads_need_the_package_cached_path(
    bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cached_path", None)
    with pytest.raises(
        ConfigurationError, match=r"https://x\.org/w\.hdf5.*cached_path.*elmo-plugin\[url\]"
    ):
        BiLM.from_files(bilm_files.options_file, "https://x.org/w.hdf5")


class Refused(OSError):
    response = SimpleNamespace(status_code=403)


@pytest.mark.parametrize(
    "error, reason",
    [
        (ConnectionError("no route to 1.2.3.4\n" * 20), "ConnectionError"),
        (Refused("of requests"), "HTTP status 403"),
        (ValueError("a name of a hub"), "ValueError"),
    ],
)
def test_a_failed_download_is_one_short_line(
    error: Exception,
    reason: str,
    bilm_files: BiLMFiles,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        logging.getLogger("urllib3.connectionpool").warning("Retrying, 1.2.3.4")
        raise error

    pytest.importorskip("cached_path")
    monkeypatch.setattr("cached_path.cached_path", refuse)
    url = "https://example.org/weights.hdf5"
    with pytest.raises(ConfigurationError) as raised:
        BiLM.from_files(bilm_files.options_file, url)
    assert str(raised.value) == (
        f"weight_file: {url} could not be downloaded ({reason}). Check the address and the connection. No "
        "download is needed for elmo_mini, elmo_small."
    )
    assert caplog.records == []
    assert logging.getLogger("urllib3").level == logging.NOTSET  # silent only for the download


@pytest.mark.parametrize("names", [(), ("original",)])
def test_the_original_model_is_the_embedders_default_and_is_downloaded(
    names: Tuple[str, ...], bilm_files: BiLMFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(url: str, **unused: object) -> str:
        assert url.startswith(model_files.ORIGINAL_MODEL)
        return bilm_files.options_file if url.endswith("options.json") else bilm_files.weight_file

    pytest.importorskip("cached_path")
    monkeypatch.setattr("cached_path.cached_path", fetch)
    expected = BiLM.from_files(*bilm_files)
    embedder = ElmoEmbedder(*names)
    assert embedder.elmo_bilm.options == expected.options
    TokenEmbedder = of_allennlp("modules.token_embedders.TokenEmbedder")
    Params = of_allennlp("common.Params")
    config = {"type": "elmo", **dict(zip(["options_file"], names))}
    assert_same_weights(TokenEmbedder.from_params(Params(config)).elmo.bilm, expected)
    assert_same_weights(BiLM.from_files("original"), expected)
    # A folder of this name comes first.
    monkeypatch.chdir(tmp_path)
    Path("original").mkdir()
    with pytest.raises(ConfigurationError, match=r"^\./original: found options\*\.json: none"):
        BiLM.from_files("./original")
    hint = r"^original: .*none.*\(A folder takes precedence over the biLM of this name\.\)$"
    with pytest.raises(ConfigurationError, match=hint):
        BiLM.from_files("original")


def test_a_folder_comes_before_the_bilm_of_its_name(
    bilm_files: BiLMFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `elmo pretrain TEXT elmo_small` makes one."""
    monkeypatch.chdir(tmp_path)
    Path("elmo_small").mkdir()
    for file, name in zip(bilm_files, ("options.json", "weights.hdf5")):
        shutil.copy(file, Path("elmo_small", name))
    expected = BiLM.from_files(*bilm_files)
    for name in ("elmo_small", Path("./elmo_small")):
        assert_same_weights(BiLM.from_files(name), expected)


def test_options_alone_are_not_paired_with_the_original_weights(bilm_files: BiLMFiles) -> None:
    TokenEmbedder = of_allennlp("modules.token_embedders.TokenEmbedder")
    Params = of_allennlp("common.Params")
    for key, file in bilm_files._asdict().items():
        for make in (
            lambda files: ElmoEmbedder(**files),
            lambda files: TokenEmbedder.from_params(Params({"type": "elmo", **files})),
        ):
            with pytest.raises(ConfigurationError, match="one file, expected both files"):
                make({key: file})


def test_a_folder_may_be_named_from_the_home_folder(
    bilm_files: BiLMFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my_elmo"
    folder.mkdir()
    BiLM.from_files(*bilm_files).save(folder / "options.json", folder / "weights.hdf5")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert BiLM.from_files("~/my_elmo").options == BiLM.from_files(folder).options
