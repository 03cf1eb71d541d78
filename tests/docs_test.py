"""
What the pages in docs/ show works as it stands there.

The configs and modules that a page shows are written first (`// NAME` or `# NAME` is their first line), and
then its commands and Python snippets are run in order. The texts are small, cut from fixtures.
"""

import functools
import json
import re
from pathlib import Path
from typing import Any, Callable, Dict

import h5py
import numpy
import pytest

from tests.how_tos import (
    DOCS,
    HOW_TOS,
    FinishedHowTo,
    build_training,
    configs_of,
    how_to,
    run_how_to,
    script_of,
)
from tests.markdown_blocks import code_blocks, local_links, section_anchors

# Pages on which every block of text is what their commands and snippets print.
PAGES_WITH_OUTPUT = (
    "embed_a_corpus",
    "install",
    "models",
    "other_languages",
    "sentence_vectors_and_scores",
    "start",
)


def config_of(run: Path) -> Dict[str, Any]:
    """Return the model's config of a run that was finished."""
    assert (run / "model.tar.gz").exists()
    return json.loads((run / "config.json").read_text())["model"]


def check_add_elmo_to_your_config(done: FinishedHowTo) -> None:
    runs = done.folder / "runs"
    assert config_of(runs / "with_elmo")["encoder"]["input_size"] == 50 + 256
    assert config_of(runs / "both")["text_encoder"]["elmo"]["placement"] == "both"
    mix = re.search(r"scalar_mix_0: .+ layers (.+), (.+), (.+); gamma (\d\.\d{3})\n", done.printed)
    assert mix
    # Three shares, each rounded to three decimals.
    assert abs(sum(map(float, mix.groups()[:3])) - 1) <= 3 * 0.0005 + 1e-9
    assert mix[4] != "1.000"  # gradients reach the mix


def check_pretrain_for_your_language(done: FinishedHowTo) -> None:
    exported = {path.name for path in (done.folder / "my_bilm").iterdir()}
    assert exported == {"options.json", "weights.hdf5", "vocab.txt", "README.md"}
    assert re.search(r": .*perplexity \d", (done.folder / "my_bilm" / "README.md").read_text())
    assert re.search(r"^files +2$", done.printed, flags=re.MULTILINE)
    assert re.search(r"^ +0\.\d{3}  line \d+ .*\*\*was\*\*", done.printed, flags=re.MULTILINE)
    sentences = (done.folder / "sentences.txt").read_text(encoding="utf-8")
    assert sentences == "Es regnet in Paris .\nWir bleiben zu Hause !\n"


def check_adapt_to_your_domain(done: FinishedHowTo) -> None:
    match = re.search(r"held-out perplexity: ([\d.]+) -> ([\d.]+)\n", done.printed)
    assert match and float(match[2]) < float(match[1])
    assert (done.folder / "my_domain_bilm" / "weights.hdf5").exists()


def check_embed_a_corpus(done: FinishedHowTo) -> None:
    with h5py.File(done.folder / "vectors.hdf5") as file:
        assert len(file) == 60 + 1
    assert "(9, 256)\nbank, bank: 0.72\n(Ada Lovelace, London)\n" in done.printed


def check_tasks(done: FinishedHowTo) -> None:
    config_of(done.folder / "runs" / "sst")
    # The same sentence by the archive, and by the folder that was exported.
    tagged = [line for line in done.printed.splitlines() if '["Ada", "Lovelace", "lived"' in line]
    words = ["Ada", "Lovelace", "lived", "in", "London", "."]
    assert [json.loads(line)["words"] for line in tagged] == [words, words]


def check_write_a_task(done: FinishedHowTo) -> None:
    (line,) = (line for line in done.printed.splitlines() if line.startswith('{"probabilities": '))
    prediction = json.loads(line)
    assert prediction["label"] in ("name", "none")
    without = config_of(done.folder / "runs" / "without")
    assert without["text_encoder"]["elmo"]["placement"] == "none"


def check_from_allennlp(done: FinishedHowTo) -> None:
    embedders = config_of(done.folder / "runs" / "new")["text_field_embedder"]["token_embedders"]
    assert embedders["elmo"]["type"] == "elmo"
    # The archive that AllenNLP's own embedder has trained.
    metrics = json.loads((done.folder / "metrics.json").read_text())
    expected = json.loads((done.folder / "old_model" / "metrics.json").read_text())
    assert metrics["loss"] == pytest.approx(expected["validation_loss"], rel=0.01)


def check_measure(done: FinishedHowTo) -> None:
    commands = [line for line in done.printed.splitlines() if "allennlp train" in line]
    assert len(commands) == 4 * 5


def check_serve_a_model(done: FinishedHowTo) -> None:
    blocks = code_blocks(how_to("serve_a_model"), "text")
    started, answer, stopped = (block.text for block in blocks)
    log = (done.folder / "serve.log").read_text("utf-8")
    assert re.sub(r":\d+/", ":8000/", log) == started + stopped
    assert answer.rstrip("\n") in done.printed
    assert done.printed.endswith(stopped)


def check_sentence_vectors_and_scores(done: FinishedHowTo) -> None:
    assert numpy.load(done.folder / "vectors.npy" / "vectors.npy").shape == (60, 256)
    assert "\n0.750  Subsequently , a CD version was " in done.printed
    assert "least expected: " in done.printed
    assert "\n     9.8  He opened the door .\n   441.8  He door the opened .\n" in done.printed


def check_outside_allennlp(done: FinishedHowTo) -> None:
    assert done.printed.endswith("\n(6, 128)\n['river']\n")
    # The tagger that is loaded is one that has learned.
    tagger = done.folder / "runs" / "spacy" / "model-best" / "meta.json"
    assert json.loads(tagger.read_text("utf-8"))["performance"]["ents_f"] > 0


def check_export(done: FinishedHowTo) -> None:
    assert done.printed == "elmo_mini.pt2\n(2, 3, 6, 256)\n[6, 3]\n"


# What a page does beside ending without an error.
CHECKS: Dict[str, Callable[[FinishedHowTo], None]] = {
    name.removeprefix("check_"): check
    for name, check in list(globals().items())
    if name.startswith("check_")
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], FinishedHowTo]:
    """Return a function that runs a page, once."""
    return functools.lru_cache(None)(lambda name: run_how_to(name, tmp_path_factory.mktemp(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", HOW_TOS)
def test_pages_run_and_do_what_they_say(
    name: str, finished: Callable[[str], FinishedHowTo]
) -> None:
    done = finished(name)
    if name in PAGES_WITH_OUTPUT:
        blocks = code_blocks(how_to(name), "text")
        assert blocks
        for block in blocks:
            assert block.text in done.printed
    if name in CHECKS:
        CHECKS[name](done)


@pytest.mark.slow
def test_configs_that_no_command_uses_can_be_trained(
    finished: Callable[[str], FinishedHowTo], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unused = [
        (name, config)
        for name in HOW_TOS
        for config in configs_of(name)
        if config not in script_of(name)
    ]
    assert {config for _, config in unused} == {"my_bilm.jsonnet", "from_published.jsonnet"}
    for name, config in unused:
        done = finished(name)
        monkeypatch.chdir(done.folder)
        build_training(config, tmp_path / config, done.environment)


def test_every_page_with_snippets_is_run() -> None:
    assert CHECKS.keys() <= HOW_TOS.keys()
    with_snippets = {
        path.relative_to(DOCS).with_suffix("").as_posix()
        for path in DOCS.rglob("*.md")
        if code_blocks(path.read_text(encoding="utf-8"), "bash", "python", "jsonnet")
    }
    # Its commands start a cluster; what they do is tested in tests/embedding.
    assert with_snippets - {"scaling"} == set(HOW_TOS)


@pytest.mark.parametrize("name", HOW_TOS)
def test_links_lead_somewhere(name: str) -> None:
    links = local_links(how_to(name))
    assert links
    for link in links:
        assert (DOCS / link).exists(), link
    for file, anchor in re.findall(r"\]\(([^)#:]+\.md)#([^)]+)\)", how_to(name)):
        assert anchor in section_anchors((DOCS / file).read_text("utf-8")), f"{file}#{anchor}"


@pytest.mark.parametrize("name", sorted(set(HOW_TOS) - {"concepts"}))
def test_a_how_to_starts_from_a_command(name: str) -> None:
    assert code_blocks(how_to(name))[0].language == "bash"
