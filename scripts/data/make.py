"""
Make the folder that commands in this project call DATA, from public repositories on GitHub.

    python scripts/data/make.py DATA                          # all of it
    python scripts/data/make.py DATA ner/wikigold sst         # some of it
    python scripts/data/make.py DATA --check                  # compare what is there with SHA256SUMS

It needs git and a network. Files that exist are kept, so the same command resumes an interrupted run.
It prints a line for each data set. The exit status is 1 if one was not made or differs from SHA256SUMS.

README.md in this folder names the sources and their licenses, and says what was not tested.
"""

import argparse
import gzip
import hashlib
import sys
from pathlib import Path
from subprocess import CalledProcessError
from typing import Callable, Dict, List, NamedTuple, Tuple

import modern_text
import ner
import novels
import sources
import squad
from coref import coref
from pairs_and_trees import snli, sst
from sources import Source, fetch
from srl import srl
from wsd import wsd

CHECKSUMS = Path(__file__).parent / "SHA256SUMS"


class DataSet(NamedTuple):
    """
    # Parameters

    make : `Callable[[Path, Path], Dict[str, str]]`
        Takes the folder of sources and the data folder; returns the text of each file by its name.
    sources : `Tuple[Source, ...]`
        The repositories that it reads.
    needs : `Tuple[str, ...]`
        Other data sets, whose files it reads.
    """

    make: Callable[[Path, Path], Dict[str, str]]
    sources: Tuple[Source, ...]
    needs: Tuple[str, ...] = ()


EVALUATED = (
    "lm",
    "lm/wikitext",
    "lm/wikisplit",
    "ner/wikigold",
    "ner/wnut17",
    "srl",
    "coref",
    "squad",
)

# By folder within DATA.
DATA_SETS: Dict[str, DataSet] = {
    "lm": DataSet(novels.novels, (sources.LITBANK,)),
    "lm/wikitext": DataSet(novels.wikitext, (sources.WIKITEXT,)),
    "lm/wikisplit": DataSet(novels.wikisplit, (sources.WIKISPLIT,)),
    "ner/wikigold": DataSet(ner.wikigold, (sources.ENTITY_DATASETS,)),
    "ner/wnut17": DataSet(ner.wnut17, (sources.ENTITY_DATASETS,)),
    "ner/uner_ewt": DataSet(ner.uner_ewt, (sources.UNIVERSAL_NER,)),
    "sst": DataSet(sst, (sources.SST_TREES,)),
    "snli": DataSet(snli, (sources.SNLI_DEV, sources.SNLI_TEST, sources.SNLI_FIELDS)),
    "srl": DataSet(srl, (sources.PROPBANK, sources.UD_EWT)),
    "coref": DataSet(coref, (sources.LITBANK,)),
    "wsd": DataSet(wsd, (sources.NLTK_DATA,)),
    "squad": DataSet(squad.xquad, (sources.XQUAD,)),
    "squad/official_dev": DataSet(squad.official_dev, (sources.SQUAD_EXPLORER,), ("squad",)),
    "lm/wikipedia": DataSet(
        modern_text.wikipedia, (sources.WIKIPEDIA_CORE, sources.WIKIPEDIA_TAIL), EVALUATED
    ),
    "lm/spoken": DataSet(modern_text.spoken, (sources.TRANSCRIPTS,), EVALUATED),
}


def read_checksums(path: Path) -> Dict[str, Dict[str, str]]:
    """Return the expected checksum of each file, by data set and name."""
    checksums: Dict[str, Dict[str, str]] = {}
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            digest, name = line.split()
            folder, _, file_name = name.rpartition("/")
            checksums.setdefault(folder, {})[file_name] = digest
    return checksums


def checksum(path: Path) -> str:
    """SHA-256 of the text in a file: compressed bytes depend on the version of zlib."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    return hashlib.sha256(content).hexdigest()


def compare(folder: Path, expected: Dict[str, str]) -> Tuple[List[str], List[str]]:
    """Return the files of a data set that are missing, and those that differ."""
    missing = [name for name in expected if not (folder / name).exists()]
    differing = [
        name
        for name, digest in expected.items()
        if name not in missing and checksum(folder / name) != digest
    ]
    return missing, differing


def write(path: Path, text: str) -> None:
    """Write a whole file or none; keep an existing file."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode("utf-8")
    partial = path.with_name(path.name + ".partial")
    if path.suffix == ".gz":
        with partial.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
            file.write(content)
    else:
        partial.write_bytes(content)
    partial.rename(path)


def make(name: str, data: Path, sources_folder: Path) -> None:
    """Fetch the sources of a data set and write its files."""
    data_set = DATA_SETS[name]
    for source in data_set.sources:
        fetch(source, sources_folder)
    for file_name, text in data_set.make(sources_folder, data).items():
        write(data / name / file_name, text)


def with_needs(names: List[str]) -> List[str]:
    """Return the data sets with those that they need, in the order in which they are made."""
    wanted = {need for name in names for need in (name, *DATA_SETS[name].needs)}
    return [name for name in DATA_SETS if name in wanted]


def report(
    name: str, data: Path, expected: Dict[str, str], sources_folder: Path, check: bool
) -> bool:
    """Make a data set if files are missing, print its state, and return whether it is as expected."""
    missing, differing = compare(data / name, expected)
    problems = []
    if missing and not check:
        try:
            make(name, data, sources_folder)
        except CalledProcessError as error:
            problems.append(f"not fetched, {' '.join(error.cmd)}: {error.stderr.strip()}")
        except (OSError, LookupError, ValueError) as error:
            # The file of a source that has changed since.
            problems.append(f"not made, {type(error).__name__}: {error}")
        missing, differing = compare(data / name, expected)
    if missing:
        problems.append(f"{len(missing)} of {len(expected)} files missing (first: {missing[0]})")
    if differing:
        problems.append(f"{len(differing)} of {len(expected)} files differ (first: {differing[0]})")
    print(f"{name}: {'; '.join(problems) or f'{len(expected)} files as expected'}", flush=True)
    return not problems


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="the folder to make")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"data sets (default: all): {', '.join(DATA_SETS)}"
    )
    parser.add_argument(
        "--sources", type=Path, help="where repositories are kept (default: DATA/.sources)"
    )
    parser.add_argument("--check", action="store_true", help="only check the files that are there")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(DATA_SETS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}. Known: {', '.join(DATA_SETS)}")
    names = arguments.names or list(DATA_SETS)
    if not arguments.check:
        names = with_needs(names)
    checksums = read_checksums(CHECKSUMS)
    sources_folder = arguments.sources or arguments.data / ".sources"
    complete = [
        report(name, arguments.data, checksums[name], sources_folder, arguments.check)
        for name in names
    ]
    return 0 if all(complete) else 1


if __name__ == "__main__":
    sys.exit(main())
