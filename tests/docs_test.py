"""
What the pages in docs/ show works as it stands there.

The configs and modules that a page shows are written first (`// NAME` or `# NAME` is their first line), and
then its commands and Python snippets are run in order. The texts are small, cut from fixtures.
"""

import json
import re
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, Iterator, List

import h5py
import numpy
import pytest

from elmo_plugin.errors import ConfigurationError
from tests.how_to_troubles import TROUBLES
from tests.how_tos import (
    DOCS,
    HOW_TOS,
    PROGRAMS,
    FinishedHowTo,
    build_training,
    configs_of,
    how_to,
    prepare,
    run_how_to,
    script_of,
)
from tests.markdown_blocks import code_blocks, local_links, section_anchors
from tests.warm_programs import warm_programs


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Dict[str, "Future[FinishedHowTo]"]]:
    """All how-tos, two at a time; the first steps with programs that start as users start them."""
    with warm_programs() as programs, ThreadPoolExecutor(max_workers=2) as pool:
        futures = {
            name: pool.submit(
                run_how_to,
                name,
                tmp_path_factory.mktemp(name),
                PROGRAMS if name == "start" else programs,
            )
            for name in HOW_TOS
        }
        yield futures
        for future in futures.values():
            future.cancel()


@pytest.mark.slow
def test_add_elmo_to_your_config(running: Dict[str, Any]) -> None:
    done = running["add_elmo_to_your_config"].result()
    with_elmo = json.loads((done.folder / "runs" / "with_elmo" / "config.json").read_text())
    assert with_elmo["model"]["encoder"]["input_size"] == 50 + 256
    both = json.loads((done.folder / "runs" / "both" / "config.json").read_text())
    assert both["model"]["text_encoder"]["elmo"]["placement"] == "both"
    for run in ("with_elmo", "both"):
        assert (done.folder / "runs" / run / "model.tar.gz").exists()
    mix = re.search(r"scalar_mix_0: .+ layers (.+); gamma (\d\.\d{3})\n", done.printed)
    assert mix
    shares = [float(share) for share in mix[1].split(", ")]
    assert len(shares) == 3
    assert sum(shares) == pytest.approx(1, abs=0.002)
    # Something reaches the mix.
    assert mix[2] != "1.000"


@pytest.mark.slow
def test_pretrain_for_your_language(running: Dict[str, Any]) -> None:
    done = running["pretrain_for_your_language"].result()
    exported = {path.name for path in (done.folder / "my_bilm").iterdir()}
    assert exported == {"options.json", "weights.hdf5", "vocab.txt", "README.md"}
    assert re.search(r": .*perplexity \d", (done.folder / "my_bilm" / "README.md").read_text())
    assert re.search(r"^files +2$", done.printed, flags=re.MULTILINE)
    assert re.search(r"^ +0\.\d{3}  line \d+ .*\*\*was\*\*", done.printed, flags=re.MULTILINE)
    assert (done.folder / "sentences.txt").read_text(encoding="utf-8").splitlines() == [
        "Es regnet in Paris .",
        "Wir bleiben zu Hause !",
    ]


@pytest.mark.slow
def test_adapt_to_your_domain(running: Dict[str, Any]) -> None:
    done = running["adapt_to_your_domain"].result()
    match = re.search(r"held-out perplexity: ([\d.]+) -> ([\d.]+)\n", done.printed)
    assert match
    assert float(match[2]) < float(match[1])
    assert (done.folder / "my_domain_bilm" / "weights.hdf5").exists()


@pytest.mark.slow
def test_embed_a_corpus(running: Dict[str, Any]) -> None:
    done = running["embed_a_corpus"].result()
    with h5py.File(done.folder / "vectors.hdf5") as file:
        assert len(file) == 60 + 1
    assert "(9, 256)\nbank, bank: 0.72\n" in done.printed


# Pages on which every block of text is what their commands and snippets print.
PAGES_WITH_OUTPUT = ("embed_a_corpus", "install", "models", "other_languages", "start")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(HOW_TOS))
def test_pages_run_and_print_what_they_say(name: str, running: Dict[str, Any]) -> None:
    done = running[name].result()
    if name in PAGES_WITH_OUTPUT:
        blocks = code_blocks(how_to(name), "text")
        assert blocks
        for block in blocks:
            assert block.text in done.printed


@pytest.mark.slow
def test_tasks(running: Dict[str, Any]) -> None:
    done = running["tasks"].result()
    assert (done.folder / "runs" / "sst" / "model.tar.gz").exists()
    # The same sentence by the archive, and by the folder that was exported.
    tagged = [line for line in done.printed.splitlines() if '["Ada", "Lovelace", "lived"' in line]
    assert len(tagged) == 2
    words = ["Ada", "Lovelace", "lived", "in", "London", "."]
    assert [json.loads(line.partition(" ")[2])["words"] for line in tagged] == [words, words]


@pytest.mark.slow
def test_write_a_task(running: Dict[str, Any]) -> None:
    done = running["write_a_task"].result()
    (line,) = (line for line in done.printed.splitlines() if line.startswith("prediction: "))
    prediction = json.loads(line.partition(" ")[2])
    assert prediction["label"] in ("name", "none")
    assert sum(prediction["probabilities"]) == pytest.approx(1, abs=1e-4)
    without = json.loads((done.folder / "runs" / "without" / "config.json").read_text())
    assert without["model"]["text_encoder"]["elmo"]["placement"] == "none"


@pytest.mark.slow
def test_from_allennlp(running: Dict[str, Any]) -> None:
    done = running["from_allennlp"].result()
    config = json.loads((done.folder / "runs" / "new" / "config.json").read_text())
    embedders = config["model"]["text_field_embedder"]["token_embedders"]
    assert embedders["elmo"]["type"] == "elmo"
    # The archive that AllenNLP's own embedder has trained.
    metrics = json.loads((done.folder / "metrics.json").read_text())
    expected = json.loads((done.folder / "old_model" / "metrics.json").read_text())
    assert metrics["loss"] == pytest.approx(expected["validation_loss"], rel=0.01)


@pytest.mark.slow
def test_measure(running: Dict[str, Any]) -> None:
    done = running["measure"].result()
    commands = [line for line in done.printed.splitlines() if "allennlp train" in line]
    assert len(commands) == 4 * 5


@pytest.mark.slow
def test_serve_a_model(running: Dict[str, Any]) -> None:
    done = running["serve_a_model"].result()
    started, answer, stopped = (
        block.text for block in code_blocks(how_to("serve_a_model"), "text")
    )
    log = (done.folder / "serve.log").read_text("utf-8")
    assert re.sub(r":\d+/", ":8000/", log) == started + stopped
    assert answer.rstrip("\n") in done.printed
    assert done.printed.endswith(stopped)


@pytest.mark.slow
def test_sentence_vectors_and_scores(running: Dict[str, Any]) -> None:
    done = running["sentence_vectors_and_scores"].result()
    assert numpy.load(done.folder / "vectors.npy" / "vectors.npy").shape == (60, 256)
    for block in code_blocks(how_to("sentence_vectors_and_scores"), "text"):
        assert block.text in done.printed
    assert "\n0.750  Subsequently , a CD version was " in done.printed
    assert "least expected: " in done.printed
    assert "\n     9.8  He opened the door .\n   441.8  He door the opened .\n" in done.printed


@pytest.mark.slow
def test_outside_allennlp(running: Dict[str, Any]) -> None:
    done = running["outside_allennlp"].result()
    assert done.printed.endswith("\n(6, 128)\n['river']\n")


@pytest.mark.slow
def test_export(running: Dict[str, Any]) -> None:
    done = running["export"].result()
    assert done.printed == "elmo_mini.pt2\n(2, 3, 6, 256)\n[6, 3]\n"


@pytest.mark.slow
def test_configs_that_no_command_uses_can_be_trained(
    running: Dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unused = [
        (name, config)
        for name in HOW_TOS
        for config in configs_of(name)
        if config not in script_of(name)
    ]
    assert {config for _, config in unused} == {"my_bilm.jsonnet", "from_published.jsonnet"}
    for name, config in unused:
        done = running[name].result()
        monkeypatch.chdir(done.folder)
        build_training(config, tmp_path / config, done.environment)


def errors_in(name: str) -> List[str]:
    """What the table at the end of a how-to says that errors say."""
    table = how_to(name).partition("| The error says |")[2]
    return re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE)


def test_every_documented_error_is_provoked() -> None:
    documented = {(name, error) for name in HOW_TOS for error in errors_in(name)}
    assert documented == set(TROUBLES)


@pytest.mark.parametrize("name, error", TROUBLES)
def test_errors_match_the_how_tos(
    name: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run = tmp_path / "folder", tmp_path / "run"
    folder.mkdir()
    prepare(name, folder)
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigurationError, match=re.escape(error)):
        TROUBLES[name, error](run, monkeypatch)


@pytest.mark.parametrize("name", HOW_TOS)
def test_linked_files_exist(name: str) -> None:
    links = local_links(how_to(name))
    assert links
    for link in links:
        assert (DOCS / link).exists(), link


def test_every_page_with_snippets_is_run() -> None:
    with_snippets = {
        path.relative_to(DOCS).with_suffix("").as_posix()
        for path in DOCS.rglob("*.md")
        if code_blocks(path.read_text(encoding="utf-8"), "bash", "python", "jsonnet")
    }
    # Its commands start a cluster; what they do is tested in tests/embedding.
    assert with_snippets - {"scaling"} == set(HOW_TOS)


@pytest.mark.parametrize("name", sorted(set(HOW_TOS) - {"concepts"}))
def test_a_how_to_starts_from_a_command(name: str) -> None:
    assert code_blocks(how_to(name))[0].language == "bash"


@pytest.mark.parametrize("name", HOW_TOS)
def test_linked_sections_exist(name: str) -> None:
    for file, anchor in re.findall(r"\]\(([^)#:]+\.md)#([^)]+)\)", how_to(name)):
        assert anchor in section_anchors((DOCS / file).read_text("utf-8")), f"{file}#{anchor}"
