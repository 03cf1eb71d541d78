"""How-tos as their readers would run them: in a folder with what they ask for, in small, in one shell."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

from allennlp.commands.train import TrainModel
from allennlp.common import Params

from tests.markdown_blocks import code_blocks

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
FIXTURES = REPOSITORY / "fixtures"
HOW_TOS = (
    "add_elmo_to_your_config",
    "pretrain_for_your_language",
    "adapt_to_your_domain",
    "embed_a_corpus",
    "serve_a_model",
    "sentence_vectors_and_scores",
)
# Ten times what the longest takes on two idle cores and more.
TIMEOUT_SECONDS = 3000


class FinishedHowTo(NamedTuple):
    """The folder in which a how-to was run, what it printed, and the variables that it set."""

    folder: Path
    printed: str
    environment: Dict[str, str]


def how_to(name: str) -> str:
    """The text of a how-to."""
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def configs_of(name: str) -> Dict[str, str]:
    """The configs that a how-to shows, by the name in their first line."""
    configs = {}
    for block in code_blocks(how_to(name), "jsonnet"):
        match = re.match(r"// (\S+\.jsonnet)\n", block.text)
        assert match, f"{name}: the first line of a config is not // NAME.jsonnet"
        configs[match[1]] = block.text
    return configs


def script_of(name: str) -> str:
    """The commands and Python snippets of a how-to as one script; snippets in a row are one program."""
    parts = []
    blocks = code_blocks(how_to(name), "bash", "python")
    for language, group in groupby(blocks, key=lambda block: block.language):
        text = "".join(block.text for block in group)
        if language == "python":
            text = f"python - <<'END_OF_SNIPPET'\n{text}END_OF_SNIPPET\n"
        parts.append(text)
    return "".join(parts)


def columns(path: Path) -> List[List[List[str]]]:
    """The sentences of a file in columns: each word with its tag."""
    blocks = path.read_text(encoding="utf-8").split("\n\n")
    rows = [[line.split() for line in block.splitlines()] for block in blocks if block.strip()]
    return [[[row[0], row[-1]] for row in sentence] for sentence in rows]


def write_lines(path: Path, lines: List[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def prepare(name: str, folder: Path) -> None:
    """What a how-to says that is needed: the project's configs, and text in small."""
    (folder / "training_configs").symlink_to(REPOSITORY / "training_configs")
    shutil.copy(REPOSITORY / ".allennlp_plugins", folder)
    wikigold = {
        part: columns(FIXTURES / "ner" / "wikigold" / f"{part}.conll")
        for part in ("train", "dev", "test")
    }
    wikipedia = {
        part: [" ".join(word for word, _ in sentence) for sentence in sentences]
        for part, sentences in wikigold.items()
    }
    novels = [
        line
        for path in sorted((FIXTURES / "lm").glob("*-of-*.txt"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    for config, text in configs_of(name).items():
        (folder / config).write_text(text, encoding="utf-8")
    if name == "add_elmo_to_your_config":
        for part, sentences in wikigold.items():
            few = sentences[: 24 if part == "train" else 8]
            write_lines(
                folder / "data" / f"{part}.txt",
                [" ".join(f"{word}###{tag}" for word, tag in sentence) for sentence in few],
            )
            rows = ["\n".join(f"{word} -X- O {tag}" for word, tag in sent) + "\n" for sent in few]
            write_lines(folder / "data" / "ner" / f"{part}.conll", rows)
    elif name == "pretrain_for_your_language":
        heldout = (FIXTURES / "lm" / "heldout.txt").read_text(encoding="utf-8").splitlines()
        write_lines(folder / "corpus" / "novels.txt", novels + heldout)
        write_lines(folder / "corpus" / "wikipedia.txt", wikipedia["train"] + wikipedia["dev"])
        write_lines(folder / "heldout.txt", wikipedia["test"])
        write_lines(folder / "raw.txt", ["Es regnet in Paris. Wir bleiben zu Hause!", "", "Ja."])
    elif name == "adapt_to_your_domain":
        # Text unlike what elmo_mini has read: all in small letters, as in chats.
        for file, part, count in (
            ("domain/train.txt", "train", 300),
            ("domain_heldout.txt", "test", 60),
        ):
            write_lines(folder / file, [line.lower() for line in wikipedia[part][:count]])
    else:
        write_lines(folder / "sentences.txt", wikipedia["test"][:60])


def free_port() -> str:
    """A port that nothing listens at, for the default one of a how-to: other tests may have that."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return str(bound.getsockname()[1])


def run_how_to(name: str, folder: Path) -> FinishedHowTo:
    prepare(name, folder)
    script = script_of(name)
    if name == "serve_a_model":
        port = free_port()
        script = script.replace("8000", port).replace("elmo serve", f"elmo serve --port {port}")
    programs = Path(sys.executable).parent  # where `allennlp` and `python` are
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{script}\nenv -0 > environment"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    failure = f"{name}, exit status {result.returncode}:\n"
    assert result.returncode == 0, failure + result.stdout[-2000:] + result.stderr[-4000:]
    variables = (folder / "environment").read_text(encoding="utf-8").split("\0")
    return FinishedHowTo(
        folder, result.stdout, dict(line.split("=", 1) for line in variables if line)
    )


def build_training(
    config: str, folder: Path, environment: Dict[str, str], **overrides: Any
) -> TrainModel:
    """All that `allennlp train` makes before the first step, with these overrides of the config."""
    overrides = {"trainer.cuda_device": -1, **overrides}
    params = Params.from_file(config, json.dumps(overrides), ext_vars=environment)
    for key in ("random_seed", "numpy_seed", "pytorch_seed", "evaluate_on_test"):
        params.pop(key, None)
    folder.mkdir(exist_ok=True)
    return TrainModel.from_params(params=params, serialization_dir=str(folder), local_rank=0)
