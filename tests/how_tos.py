"""Pages of docs/ as readers run them: in one shell, in a folder with small files of what they ask for."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import zipfile
from itertools import groupby
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple

from allennlp.commands.train import TrainModel
from allennlp.common import Params

from tests.markdown_blocks import code_blocks

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
FIXTURES = REPOSITORY / "fixtures"
_MODULE_NAME = re.compile(r"# (\w+\.py)\n")
# More than ten times what the longest page takes on two idle cores.
TIMEOUT_SECONDS = 3000


class FinishedHowTo(NamedTuple):
    """The folder in which a how-to was run, what it printed, and the variables that it set."""

    folder: Path
    printed: str
    environment: Dict[str, str]


def how_to(name: str) -> str:
    """Return the text of a how-to."""
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def configs_of(name: str) -> Dict[str, str]:
    """Return the configs that a how-to shows, by the name in their first line, `// NAME.jsonnet`."""
    configs = {}
    for block in code_blocks(how_to(name), "jsonnet"):
        match = re.match(r"// (\S+\.jsonnet)\n", block.text)
        assert match, f"{name}: the first line of a config is not // NAME.jsonnet"
        configs[match[1]] = block.text
    return configs


def script_of(name: str) -> str:
    """
    Return the commands and Python snippets of a how-to as one script; snippets in a row are one program. A
    module, whose first line is `# NAME.py`, is a file and not part of the script.
    """
    parts = []
    blocks = [
        block
        for block in code_blocks(how_to(name), "bash", "python")
        if not _MODULE_NAME.match(block.text)
    ]
    for language, group in groupby(blocks, key=lambda block: block.language):
        text = "".join(block.text for block in group)
        if language == "python":
            text = f"python - <<'END_OF_SNIPPET'\n{text}END_OF_SNIPPET\n"
        parts.append(text)
    return "".join(parts)


def columns(path: Path) -> List[List[List[str]]]:
    """Return the sentences of a file in columns: each word with its tag."""
    blocks = path.read_text(encoding="utf-8").split("\n\n")
    rows = [[line.split() for line in block.splitlines()] for block in blocks if block.strip()]
    return [[[row[0], row[-1]] for row in sentence] for sentence in rows]


def write_lines(path: Path, lines: List[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def prepare(name: str, folder: Path) -> None:
    """Write what a how-to needs: training configs, the files that it shows, and small texts."""
    (folder / "training_configs").symlink_to(REPOSITORY / "training_configs")
    shutil.copy(REPOSITORY / ".allennlp_plugins", folder)
    modules = {
        match[1]: block.text
        for block in code_blocks(how_to(name), "python")
        if (match := _MODULE_NAME.match(block.text))
    }
    for file, text in {**configs_of(name), **modules}.items():
        (folder / file).write_text(text, encoding="utf-8")
    HOW_TOS[name](folder)


def _nothing(folder: Path) -> None:
    """Write nothing: the page makes what it needs."""


def _wikigold() -> Dict[str, List[List[List[str]]]]:
    return {
        part: columns(FIXTURES / "ner" / "wikigold" / f"{part}.conll")
        for part in ("train", "dev", "test")
    }


def _wikipedia() -> Dict[str, List[str]]:
    return {
        part: [" ".join(word for word, _ in sentence) for sentence in sentences]
        for part, sentences in _wikigold().items()
    }


def _few_wikigold() -> Dict[str, List[List[List[str]]]]:
    return {
        part: sentences[: 24 if part == "train" else 8] for part, sentences in _wikigold().items()
    }


def _tagged_lines(folder: Path) -> None:
    for part, sentences in _few_wikigold().items():
        lines = [" ".join(f"{word}###{tag}" for word, tag in sentence) for sentence in sentences]
        write_lines(folder / "data" / f"{part}.txt", lines)


def _write_conll(folder: Path, parts: Dict[str, List[List[List[str]]]]) -> None:
    for part, sentences in parts.items():
        rows = ["\n".join(f"{word} -X- O {tag}" for word, tag in sent) + "\n" for sent in sentences]
        write_lines(folder / "data" / "ner" / f"{part}.conll", rows)


def _conll_files(folder: Path) -> None:
    _write_conll(folder, _few_wikigold())


def _names_to_learn(folder: Path) -> None:
    """Enough of them for a tagger to find some after two epochs."""
    _write_conll(folder, {part: sentences[:300] for part, sentences in _wikigold().items()})


def _tagged_files(folder: Path) -> None:
    _tagged_lines(folder)
    _conll_files(folder)


def _sentences(folder: Path) -> None:
    write_lines(folder / "sentences.txt", _wikipedia()["test"][:60])


def _bilm_files(folder: Path) -> None:
    """Write elmo_mini as two files, and as one."""
    with zipfile.ZipFile(folder / "model.zip", "w") as archive:
        for name in ("options.json", "weights.hdf5"):
            path = REPOSITORY / "elmo_plugin" / "pretrained" / "elmo_mini" / name
            shutil.copy(path, folder)
            archive.write(path, name)


def _for_other_languages(folder: Path) -> None:
    _sentences(folder)
    _bilm_files(folder)
    shutil.copytree(FIXTURES / "bilm" / "many_langs" / "both", folder / "zh_model")
    write_lines(folder / "chinese.txt", ["今天 天氣 真 好 阿", "潮水 退 了"])


def _for_pretraining(folder: Path) -> None:
    novels = [
        line
        for path in sorted((FIXTURES / "lm").glob("*-of-*.txt"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    heldout = (FIXTURES / "lm" / "heldout.txt").read_text(encoding="utf-8").splitlines()
    wikipedia = _wikipedia()
    write_lines(folder / "corpus" / "novels.txt", novels + heldout)
    write_lines(folder / "corpus" / "wikipedia.txt", wikipedia["train"] + wikipedia["dev"])
    write_lines(folder / "heldout.txt", wikipedia["test"])
    write_lines(folder / "raw.txt", ["Es regnet in Paris. Wir bleiben zu Hause!", "", "Ja."])


def _for_adapting(folder: Path) -> None:
    """Write text unlike that of elmo_mini: in small letters only, as in chats."""
    wikipedia = _wikipedia()
    for file, part, count in (
        ("domain/train.txt", "train", 300),
        ("domain_heldout.txt", "test", 60),
    ):
        write_lines(folder / file, [line.lower() for line in wikipedia[part][:count]])


def _for_tasks(folder: Path) -> None:
    _conll_files(folder)
    trees = (FIXTURES / "sst" / "tiny" / "train.txt").read_text(encoding="utf-8").splitlines()
    for part in ("train", "dev", "test"):
        write_lines(folder / "data" / "sst" / f"{part}.txt", trees)


def _for_a_task_of_ones_own(folder: Path) -> None:
    """Write sentences of two classes: with names, and without."""
    for part, sentences in _few_wikigold().items():
        lines = [
            f"{'name' if {tag for _, tag in sentence} - {'O'} else 'none'}\t"
            + " ".join(word for word, _ in sentence)
            for sentence in sentences
        ]
        write_lines(folder / "data" / f"{part}.tsv", lines)


def _for_old_models(folder: Path) -> None:
    _sentences(folder)
    _tagged_lines(folder)
    _bilm_files(folder)


# What writes the files that a page needs.
HOW_TOS: Dict[str, Callable[[Path], None]] = {
    "adapt_to_your_domain": _for_adapting,
    "add_elmo_to_your_config": _tagged_files,
    "concepts": _nothing,
    "embed_a_corpus": _sentences,
    "export": _nothing,
    "from_allennlp": _for_old_models,
    "index": _nothing,
    "install": _nothing,
    "measure": _conll_files,
    "models": _bilm_files,
    "other_languages": _for_other_languages,
    "outside_allennlp": _names_to_learn,
    "pretrain_for_your_language": _for_pretraining,
    "sentence_vectors_and_scores": _sentences,
    "serve_a_model": _sentences,
    "speed": _sentences,
    "start": _nothing,
    "tasks": _for_tasks,
    "write_a_task": _for_a_task_of_ones_own,
}


def free_port() -> str:
    """Return a port that is free: another test may use the default one."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return str(bound.getsockname()[1])


def run_how_to(name: str, folder: Path) -> FinishedHowTo:
    """Run a how-to in a folder, with the programs of this environment."""
    prepare(name, folder)
    script = script_of(name)
    if name == "from_allennlp":  # with an archive that AllenNLP's own embedder has trained
        script = f"allennlp train old.jsonnet -s old_model\n{script}"
    if name == "serve_a_model":
        port = free_port()
        script = script.replace("8000", port).replace("elmo serve", f"elmo serve --port {port}")
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{script}\nenv -0 > environment"],
        cwd=folder,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    failure = f"{script}\nexit status {result.returncode}:\n"
    assert result.returncode == 0, failure + result.stdout[-2000:] + result.stderr[-4000:]
    variables = (folder / "environment").read_text(encoding="utf-8").split("\0")
    environment = dict(line.split("=", 1) for line in variables if line)
    return FinishedHowTo(folder, result.stdout, environment)


def build_training(
    config: str, folder: Path, environment: Dict[str, str], **overrides: Any
) -> TrainModel:
    """Return what `allennlp train` builds before the first step, with these overrides of the config."""
    overrides = {"trainer.cuda_device": -1, **overrides}
    params = Params.from_file(config, json.dumps(overrides), ext_vars=environment)
    for key in ("random_seed", "numpy_seed", "pytorch_seed", "evaluate_on_test"):
        params.pop(key, None)
    folder.mkdir(exist_ok=True)
    return TrainModel.from_params(params=params, serialization_dir=str(folder), local_rank=0)
