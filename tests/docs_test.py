"""
What the pages in docs/ show works as it stands there.

A page is run in a folder with small files of what it asks for, cut from fixtures. The configs and modules
that it shows are written first (`// NAME` or `# NAME` is their first line), and then its commands and Python
snippets are run in order, in one shell.
"""

import ast
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from itertools import groupby
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

import allennlp
import pytest

import elmo_plugin
from tests.conftest import FIXTURES, REPOSITORY
from tests.markdown_blocks import broken_links, code_blocks
from tests.warm_programs import warm_programs

DOCS = REPOSITORY / "docs"
ELMO_MINI = REPOSITORY / "elmo_plugin" / "pretrained" / "elmo_mini"

# More than ten times what the longest page takes on two idle cores.
TIMEOUT_SECONDS = 3000

# The commands of scaling.md start a cluster; tests/embedding has tests of them.
PAGES = sorted(
    path.stem
    for path in DOCS.glob("*.md")
    if path.stem != "scaling" and code_blocks(path.read_text("utf-8"), "bash", "python")
)
# Pages that make the files that they need.
SELF_CONTAINED = ("concepts", "export", "index", "install", "start")
# Pages with output of models that are trained on other data here, or of a server at another port. On all
# other pages each block of text is what commands and snippets print.
WITH_OTHER_OUTPUT = (
    *("adapt_to_your_domain", "add_elmo_to_your_config"),
    *("pretrain_for_your_language", "serve_a_model"),
)
# What a reader of a page has already: an archive that AllenNLP's own embedder has trained.
BEFORE = {"from_allennlp": "allennlp train old.jsonnet -s old_model\n"}


def page_text(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def files_and_script(name: str) -> Tuple[Dict[str, str], str]:
    """
    Return the files that a page shows, by their names, and its commands and snippets as one script; snippets
    in a row are one program. Configs that no command uses are built as for training.
    """
    files, script = {}, BEFORE.get(name, "")
    others = []
    for block in code_blocks(page_text(name), "bash", "python", "jsonnet"):
        named = re.match(r"(?://|#) (\w+\.(?:jsonnet|py))\n", block.text)
        if named:
            files[named[1]] = block.text
        else:
            others.append(block)
    for language, group in groupby(others, key=lambda block: block.language):
        assert language != "jsonnet", f"{name}: the first line of a config is not // NAME.jsonnet"
        text = "".join(block.text for block in group)
        script += text if language == "bash" else f"python - <<'SNIPPET'\n{text}SNIPPET\n"
    for file in files:
        if file not in script and file.endswith(".jsonnet"):
            on_cpu = """--overrides '{"trainer.cuda_device": -1}'"""
            script += f"allennlp train {file} --dry-run -s dry_run_{file} {on_cpu}\n"
    return files, script


def tagged_sentences(path: Path) -> List[List[Tuple[str, str]]]:
    """Return the sentences of a file in columns: each word with its tag."""
    blocks = path.read_text(encoding="utf-8").strip().split("\n\n")
    rows = [[line.split() for line in block.splitlines()] for block in blocks]
    return [[(row[0], row[-1]) for row in sentence] for sentence in rows]


def write_inputs(name: str, folder: Path) -> None:
    """Write small files of what pages ask for: sentences, a corpus, data of tasks, models."""
    parts = ("train", "dev", "test")
    wikigold = {
        part: tagged_sentences(FIXTURES / "ner" / "wikigold" / f"{part}.conll") for part in parts
    }
    plain = {
        part: [" ".join(word for word, _ in sentence) for sentence in wikigold[part]]
        for part in parts
    }
    lines = {
        "sentences.txt": plain["test"][:60],
        "chinese.txt": ["今天 天氣 真 好 阿", "潮水 退 了"],
        "corpus/a.txt": plain["dev"][:150],
        "corpus/b.txt": plain["dev"][150:],
        "heldout.txt": plain["test"],
        "raw.txt": ["Es regnet in Paris. Wir bleiben zu Hause!", "", "Ja."],
        # Unlike the text of elmo_mini: in small letters only, as in chats.
        "domain/train.txt": [line.lower() for line in plain["train"][:150]],
        "domain_heldout.txt": [line.lower() for line in plain["test"][:60]],
    }
    trees = (FIXTURES / "sst" / "tiny" / "train.txt").read_text(encoding="utf-8").splitlines()
    for part in parts:
        # A tagger must learn some names.
        number = 150 if name == "spacy" else 24 if part == "train" else 8
        sentences, texts = wikigold[part][:number], plain[part][:number]
        lines[f"data/{part}.txt"] = [
            " ".join(f"{word}###{tag}" for word, tag in sentence) for sentence in sentences
        ]
        lines[f"data/ner/{part}.conll"] = [
            "".join(f"{word} -X- O {tag}\n" for word, tag in sentence) for sentence in sentences
        ]
        lines[f"data/sst/{part}.txt"] = trees
        # Two classes of sentences: with names, and without.
        lines[f"data/{part}.tsv"] = [
            f"{'name' if any(tag != 'O' for _, tag in sentence) else 'none'}\t{text}"
            for sentence, text in zip(sentences, texts)
        ]
    for file, content in lines.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("".join(f"{line}\n" for line in content), encoding="utf-8")
    shutil.copytree(FIXTURES / "bilm" / "many_langs" / "both", folder / "zh_model")
    with zipfile.ZipFile(folder / "model.zip", "w") as archive:
        for file in ("options.json", "weights.hdf5"):
            shutil.copy(ELMO_MINI / file, folder)
            archive.write(ELMO_MINI / file, file)


class FinishedPage(NamedTuple):
    """The folder in which a page was run, and what it printed."""

    folder: Path
    printed: str


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder, warm_programs(Path(folder)):
        yield Path(folder)


def run_page(name: str, folder: Path, programs: Path) -> FinishedPage:
    """Run a page in a folder, with the programs of this environment and those of a folder."""
    (folder / "training_configs").symlink_to(REPOSITORY / "training_configs")
    shutil.copy(REPOSITORY / ".allennlp_plugins", folder)
    if name not in SELF_CONTAINED:
        write_inputs(name, folder)
    files, script = files_and_script(name)
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    if name == "serve_a_model":
        with socket.socket() as bound:  # another test may use the default port
            bound.bind(("127.0.0.1", 0))
            port = str(bound.getsockname()[1])
        script = script.replace("8000", port).replace("elmo serve", f"elmo serve --port {port}")
    script = script.replace("--hours 3", "--epochs 1")
    # Those of a server must be killed.
    first = [] if name == "serve_a_model" else [str(programs)]
    path = os.pathsep.join([*first, os.path.dirname(sys.executable), os.environ["PATH"]])
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    failure = f"{script}\nexit status {result.returncode}:\n"
    assert result.returncode == 0, failure + result.stdout[-2000:] + result.stderr[-4000:]
    return FinishedPage(folder, result.stdout)


def config_of(run: Path) -> Dict[str, Any]:
    """Return the model's config of a run that was finished."""
    assert (run / "model.tar.gz").exists()
    return json.loads((run / "config.json").read_text())["model"]


def check_add_elmo_to_your_config(done: FinishedPage) -> None:
    runs = done.folder / "runs"
    assert config_of(runs / "with_elmo")["encoder"]["input_size"] == 50 + 256
    assert config_of(runs / "both")["text_encoder"]["elmo"]["placement"] == "both"
    mix = re.search(r"scalar_mix_0: .+ layers (.+), (.+), (.+); gamma (\d\.\d{3})\n", done.printed)
    assert mix
    # Three shares, each rounded to three decimals.
    assert abs(sum(map(float, mix.groups()[:3])) - 1) <= 3 * 0.0005 + 1e-9
    assert mix[4] != "1.000"  # gradients reach the mix


def check_pretrain_for_your_language(done: FinishedPage) -> None:
    made = {path.name for path in (done.folder / "my_elmo").iterdir()}
    assert made == {"options.json", "weights.hdf5", "vocab.txt", "README.md", "training"}
    assert (done.folder / "my_other_elmo" / "weights.hdf5").exists()
    assert re.search(r"^plan +the text once: ", done.printed, flags=re.MULTILINE)
    assert re.search(r"^ +0\.\d{3}  line \d+ .*\*\*was\*\*", done.printed, flags=re.MULTILINE)
    sentences = (done.folder / "sentences.txt").read_text(encoding="utf-8")
    assert sentences == "Es regnet in Paris .\nWir bleiben zu Hause !\n"


def check_adapt_to_your_domain(done: FinishedPage) -> None:
    match = re.search(r"^perplexity +([\d.]+) of .*; ([\d.]+) before$", done.printed, re.MULTILINE)
    assert match and float(match[1]) < float(match[2])
    assert (done.folder / "my_domain_elmo" / "weights.hdf5").exists()
    text = (done.folder / "domain" / "ner.txt").read_text(encoding="utf-8").splitlines()
    sentences = tagged_sentences(done.folder / "data" / "ner" / "train.conll")
    words = [[word for word, _ in sentence] for sentence in sentences]
    assert text == [" ".join(sentence) for sentence in words if sentence != ["-DOCSTART-"]]


def check_from_allennlp(done: FinishedPage) -> None:
    embedders = config_of(done.folder / "runs" / "new")["text_field_embedder"]["token_embedders"]
    assert embedders["elmo"]["type"] == "elmo"


def check_measure(done: FinishedPage) -> None:
    commands = [line for line in done.printed.splitlines() if "allennlp train" in line]
    assert len(commands) == 4 * 5


def check_serve_a_model(done: FinishedPage) -> None:
    blocks = code_blocks(page_text("serve_a_model"), "text")
    started, answer, stopped = (block.text for block in blocks)
    log = (done.folder / "serve.log").read_text("utf-8")
    assert re.sub(r":\d+/", ":8000/", log) == started + stopped
    assert answer.rstrip("\n") in done.printed
    assert done.printed.endswith(stopped)


def check_scikit_learn_and_flair(done: FinishedPage) -> None:
    assert done.printed == "['river']\n"


def check_spacy(done: FinishedPage) -> None:
    assert done.printed.startswith("(9, 256)\nbank, bank: 0.72\n")
    assert done.printed.endswith("\n(6, 128)\n(Ada Lovelace, London)\n")
    # The tagger that is loaded is one that has learned.
    score = re.search(r"^NER F +([\d.]+)", done.printed, re.MULTILINE)
    assert score and float(score[1]) > 20


# What a page does, other than to end without an error and to print what it shows.
CHECKS: Dict[str, Callable[[FinishedPage], None]] = {
    name.removeprefix("check_"): check
    for name, check in list(globals().items())
    if name.startswith("check_")
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_pages_run_and_do_what_they_say(name: str, tmp_path: Path, programs: Path) -> None:
    done = run_page(name, tmp_path, programs)
    if name not in WITH_OTHER_OUTPUT:
        for block in code_blocks(page_text(name), "text"):
            assert block.text in done.printed
    if name in CHECKS:
        CHECKS[name](done)


def messages_in(package: Path) -> str:
    """All strings in the source of a package, with ... in place of the values in them."""
    texts = []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [getattr(part, "value", None) for part in node.values]
                texts.append("".join(part if isinstance(part, str) else "..." for part in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value.replace("%s", "..."))
    return "\n\n".join(texts)


def test_the_errors_that_pages_explain_exist() -> None:
    packages = [Path(module.__file__ or "").parent for module in (elmo_plugin, allennlp)]
    messages = "\n\n".join(map(messages_in, packages))
    quoted = [
        (page.stem, message)
        for page in DOCS.glob("*.md")
        for table in re.findall(
            r"^\| The error says \|.*\n((?:\|.*\n)+)", page.read_text("utf-8"), re.MULTILINE
        )
        for message in re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
    ]
    assert len(quoted) > 30
    assert [(page, message) for page, message in quoted if message not in messages] == []


def test_lists_name_pages() -> None:
    assert {*CHECKS, *SELF_CONTAINED, *WITH_OTHER_OUTPUT, *BEFORE} <= set(PAGES)


@pytest.mark.parametrize("page", [*DOCS.rglob("*.md"), *REPOSITORY.glob("*.md")], ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []
