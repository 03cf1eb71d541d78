"""`elmo models` lists folders of models."""

from pathlib import Path
from typing import Any

import pytest

from elmo_plugin.bilm.model_files import ORIGINAL_MODEL, PRETRAINED_FOLDER, names_both_files
from elmo_plugin.commands import models
from elmo_plugin.commands.main import main
from elmo_plugin.commands.published_models import MODELS, SOURCES, languages, matching


def test_the_models_of_the_package(capsys: Any) -> None:
    assert models.FOLDER.samefile(PRETRAINED_FOLDER)
    main(["models"])
    titles, *lines = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert titles.split() == ["name", "kind", "size", "about"]
    (line,) = (line for line in lines if line.startswith("elmo_mini "))
    words = line.split(maxsplit=4)
    assert words[:4] == ["elmo_mini", "biLM", "10.8", "MB"]
    assert words[4].startswith("English Wikipedia, conversations and novels; ")
    assert words[4].endswith("; en; cc-by-sa-4.0")


@pytest.mark.parametrize(
    "card, about",
    [
        (None, ""),
        ("# Tagger\n", ""),
        ("---\nlanguage: de\ntags:\n- elmo\n---\nlicense: none\n", "de"),
        ('---\nlicense: "mit"\nsummary: Named: entities\n---\n', "Named: entities; mit"),
        ("---\nlicense: mit\n", "mit"),  # the end is missing
    ],
)
def test_kinds_sizes_and_cards(card: Any, about: str, tmp_path: Path) -> None:
    for name, file in (("tagger", "config.json"), ("a_bilm", "options.json"), ("other", "x")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_bytes(bytes(1_250_000))
    if card is not None:
        (tmp_path / "tagger" / "README.md").write_text(card)
    assert models.model_lines(tmp_path) == [
        "name    kind        size    about",
        "a_bilm  biLM        1.2 MB",
        f"tagger  task model  1.3 MB  {about}".rstrip() if card else "tagger  task model  1.2 MB",
    ]


def test_published_models_of_a_language(capsys: Any) -> None:
    main(["models", "FINNISH"])
    facts = capsys.readouterr().out.split("\n\n")
    assert [text.partition("\n")[0] for text in facts] == ["embeddia-finnish", "hit-finnish"]
    assert "  width       1024\n" in facts[0]
    assert "  licence     ?\n" in facts[0]
    assert "  not checked address, size, licence\n" in facts[0]
    assert "--weight-file finnish/finnish-elmo-weights.hdf5" in facts[0]
    assert "options     --options-file http://vectors.nlpl.eu/repository/11/149.zip" in facts[1]


def test_a_model_that_cannot_be_loaded(capsys: Any) -> None:
    main(["models", "deeppavlov-news"])
    assert "none: it cannot be loaded" in capsys.readouterr().out


def test_all_languages_are_listed(capsys: Any) -> None:
    main(["models"])
    listed = capsys.readouterr().out.partition("published biLMs, in\n")[2]
    assert " ".join(listed.split()) == ", ".join(languages())
    assert len(languages()) > 40


def test_an_unknown_language(capsys: Any) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["models", "klingon"])
    assert exit_info.value.code == 2
    error = capsys.readouterr().err
    assert "klingon: no published model has this language or name" in error
    assert error.count("\n") == 1


def test_published_models_are_complete_and_distinct() -> None:
    assert len({model.name for model in MODELS}) == len(MODELS)
    assert {model.source for model in MODELS} == set(SOURCES)
    assert len(matching("hit-")) == 45
    for model in MODELS:
        assert model.addresses, model.name
        assert all(address.startswith("http") for address in model.addresses), model.name


def test_options_of_published_models_name_both_files() -> None:
    for model in MODELS:
        words = model.options.split()
        if words:
            flags = dict(zip(words[::2], words[1::2]))
            if not names_both_files(flags["--options-file"]) and model.source != "hit":
                assert flags["--options-file"].endswith(".json")
                assert flags["--weight-file"].endswith(".hdf5")
                assert set(flags) == {"--options-file", "--weight-file"}
    (original,) = matching("ai2-original")
    assert original.addresses == (ORIGINAL_MODEL + "options.json", ORIGINAL_MODEL + "weights.hdf5")
