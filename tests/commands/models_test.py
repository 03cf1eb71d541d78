"""`elmo models` lists folders of models."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from allennlp.common import Params

from elmo_plugin.bilm.model_files import ORIGINAL, ORIGINAL_MODEL, PRETRAINED_FOLDER
from elmo_plugin.commands import models
from elmo_plugin.commands.main import main
from tests.commands.conftest import error_of_command


def test_the_models_of_the_package(capsys: Any) -> None:
    assert models.FOLDER.samefile(PRETRAINED_FOLDER)
    assert models.ORIGINAL == ORIGINAL
    main(["models"])
    output = capsys.readouterr().out
    assert re.search(r"^original +biLM +374 MB  .*not included, downloaded", output, re.MULTILINE)
    (line,) = re.findall(r"^elmo_mini .+$", output, re.MULTILINE)
    words = line.split(maxsplit=4)
    assert words[:4] == ["elmo_mini", "biLM", "10.8", "MB"]
    assert words[4].startswith("English Wikipedia, conversations and novels; ")
    assert words[4].endswith("; en; cc-by-sa-4.0")


def test_the_last_line_is_a_folder_of_configs_to_copy(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["models"])
    last = capsys.readouterr().out.splitlines()[-1]
    match = re.fullmatch(r"configs: (.+) \(copy the whole folder: (cp -r \1 \.)\)", last)
    assert match
    subprocess.run(match[2].split(), cwd=tmp_path, check=True)
    monkeypatch.setenv("NER_DATA", "data")
    monkeypatch.setenv("ELMO", "elmo_mini")
    config = Params.from_file(tmp_path / "training_configs" / "ner_small.jsonnet")
    assert config["model"]["type"] == "elmo_ner"


def test_the_command_that_copies_configs_quotes_a_space(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "CONFIGS", Path("/my models/configs"))
    main(["models"])
    assert capsys.readouterr().out.endswith("cp -r '/my models/configs' .)\n")


def test_a_name_shows_the_folder_and_the_card(capsys: Any) -> None:
    main(["models", "elmo_mini"])
    folder, _, card = capsys.readouterr().out.partition("\n\n")
    assert Path(folder).samefile(PRETRAINED_FOLDER / "elmo_mini")
    assert card == (PRETRAINED_FOLDER / "elmo_mini" / "README.md").read_text(encoding="utf-8")
    main(["models", "original"])
    assert capsys.readouterr().out.splitlines()[1] == f"{ORIGINAL_MODEL}options.json"
    error = error_of_command(["models", "elmo_tset"], capsys)
    assert "elmo_tset: no such model, expected one of elmo_coref_small, " in error


@pytest.mark.parametrize(
    "card, about",
    [
        ("# Tagger\n", ""),
        ("---\nlanguage: de\ntags:\n- elmo\n---\nlicense: none\n", "de"),
        ('---\nlicense: "mit"\nsummary: Named: entities\n---\n', "Named: entities; mit"),
        ("---\nlicense: 'mit'\n", "mit"),  # the end is missing
        ('---\nsummary: "a \\"b\\" 😀"  \nlicense: "mit" # mine\n---\n', 'a "b" 😀; mit" # mine'),
    ],
)
def test_kinds_sizes_and_cards(card: str, about: str, tmp_path: Path) -> None:
    for name, file in (("tagger", "config.json"), ("a_bilm", "options.json"), ("other", "x")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_bytes(bytes(1_250_000))
    (tmp_path / "tagger" / "README.md").write_text(card)
    assert models.model_lines(tmp_path)[:-1] == [
        "name      kind        size    about",
        "a_bilm    biLM        1.2 MB",
        f"tagger    task model  1.3 MB  {about}".rstrip(),
    ]
