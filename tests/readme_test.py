"""What README.md and CONTRIBUTING.md show works as it stands there."""

import re
import shutil
from pathlib import Path
from typing import Any, Dict

import pytest
from allennlp.common import Params
from allennlp.modules import TextFieldEmbedder

from tests.conftest import REPOSITORY
from tests.markdown_blocks import code_blocks

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
TINY_BILM = REPOSITORY / "fixtures" / "bilm" / "tiny"


@pytest.fixture(autouse=True)
def folder_with_a_bilm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("options.json", "weights.hdf5"):
        shutil.copy(TINY_BILM / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_python_snippets_run(folder_with_a_bilm: Path) -> None:
    names: Dict[str, Any] = {}
    for snippet in code_blocks(README, "python"):
        exec(snippet.text, names)
    assert names["result"]["elmo_representations"][0].shape == (2, 3, 16)
    assert len(names["layers"]) == 3
    assert (folder_with_a_bilm / "copy.hdf5").exists()
    tagged = names["predictor"].predict("Maria Lopez visited Oxford.")["tagged"]
    assert f'["tagged"]  # {tagged}\n' in README


def test_the_config_snippet_builds(folder_with_a_bilm: Path) -> None:
    (token_embedders,) = code_blocks(README, "jsonnet")
    path = folder_with_a_bilm / "config.jsonnet"
    path.write_text("{" + token_embedders.text + "}")
    embedder = TextFieldEmbedder.from_params(Params.from_file(path))
    assert embedder.get_output_dim() == 16


def test_make_targets_exist() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    for target in set(re.findall(r"`?make (\w+)", README)):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_walks_of_contributing_name_what_is_there() -> None:
    """Each file, and behind it what is defined in it."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    places = re.findall(r"\]\((elmo_plugin/[\w/]+\.py)\)((?:,? `\w+`)+)", text.replace("\n  ", " "))
    assert len(places) >= 25
    for file, names in places:
        source = (REPOSITORY / file).read_text(encoding="utf-8")
        for name in re.findall(r"\w+", names):
            defined = re.search(rf"^ *(def|class) {name}\b|^{name} = ", source, re.MULTILINE)
            assert defined, f"{file}: {name}"
