"""`elmo models` lists folders of models."""

import re
from pathlib import Path
from typing import Any

import pytest

from elmo_plugin.bilm.model_files import PRETRAINED_FOLDER
from elmo_plugin.commands import models
from elmo_plugin.commands.main import main


def test_the_models_of_the_package(capsys: Any) -> None:
    assert models.FOLDER.samefile(PRETRAINED_FOLDER)
    main(["models"])
    (line,) = re.findall(r"^elmo_mini .+$", capsys.readouterr().out, re.MULTILINE)
    words = line.split(maxsplit=4)
    assert words[:4] == ["elmo_mini", "biLM", "10.8", "MB"]
    assert words[4].startswith("English Wikipedia, conversations and novels; ")
    assert words[4].endswith("; en; cc-by-sa-4.0")


@pytest.mark.parametrize(
    "card, about",
    [
        ("# Tagger\n", ""),
        ("---\nlanguage: de\ntags:\n- elmo\n---\nlicense: none\n", "de"),
        ('---\nlicense: "mit"\nsummary: Named: entities\n---\n', "Named: entities; mit"),
        ("---\nlicense: 'mit'\n", "mit"),  # the end is missing
    ],
)
def test_kinds_sizes_and_cards(card: str, about: str, tmp_path: Path) -> None:
    for name, file in (("tagger", "config.json"), ("a_bilm", "options.json"), ("other", "x")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_bytes(bytes(1_250_000))
    (tmp_path / "tagger" / "README.md").write_text(card)
    assert models.model_lines(tmp_path) == [
        "name    kind        size    about",
        "a_bilm  biLM        1.2 MB",
        f"tagger  task model  1.3 MB  {about}".rstrip(),
    ]
