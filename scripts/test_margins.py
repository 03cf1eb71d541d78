"""
Run tests under settings that stand in for other processors, and list comparisons that come near their limit.

    scripts/test_margins.py [--tests PATH ...] [OPTION OF PYTEST ...]
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Tuple

REPOSITORY = Path(__file__).parents[1]

# A comparison that uses more of its limit on one processor may fail on the next.
LARGEST_SHARE = 1 / 3

# Environment variables and options of pytest. Each changes the order of sums, or the instructions.
SETTINGS: List[Tuple[Dict[str, str], List[str]]] = [
    ({}, []),
    ({"MKL_CBWR": "COMPATIBLE"}, []),
    ({"MKL_CBWR": "AVX2"}, []),
    ({"ATEN_CPU_CAPABILITY": "default"}, []),
    ({"ATEN_CPU_CAPABILITY": "avx2"}, []),
    ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, []),
    ({"ELMO_CPU_CAPABILITY": "default"}, []),
    ({"ELMO_CPU_CAPABILITY": "avx2"}, []),
    ({"ELMO_CPU_CAPABILITY": "avx512"}, []),
    ({}, ["--threads", "2"]),
    ({}, ["--threads", "3"]),
]


class Comparison(NamedTuple):
    """One call of `tests.closeness.assert_close` under one setting."""

    share: float
    place: str
    test: str
    setting: str


def main(arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--tests", nargs="+", default=["tests"], metavar="PATH")
    options, pytest_options = parser.parse_known_args(arguments)
    tests, comparisons, failed = options.tests, [], []
    for variables, setting_options in SETTINGS:
        names = [*(f"{name}={value}" for name, value in variables.items()), *setting_options]
        setting = " ".join(names) or "unchanged"
        print(f"== {setting}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            margins = Path(folder) / "margins.jsonl"
            margins.touch()
            status = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "pytest",
                    "--quiet",
                    *pytest_options,
                    *setting_options,
                    *tests,
                ],
                cwd=REPOSITORY,
                env={**os.environ, **variables, "ELMO_TEST_MARGINS": str(margins)},
            ).returncode
            found = read_comparisons(margins, setting)
        if status != 0:
            failed.append(setting)
        if not comparisons:
            # Other settings change nothing in files that neither compare numbers nor draw any.
            tests = [name for name in test_files(tests) if draws(name)]
            tests = sorted({*tests, *(comparison.test.partition("::")[0] for comparison in found)})
        comparisons += found
    print(f"{len(comparisons)} comparisons in {len(SETTINGS)} settings.")
    near = near_their_limit(comparisons)
    for comparison in near:
        place, test, setting = comparison.place, comparison.test, comparison.setting
        print(f"{comparison.share:5.0%} of its limit: {place} in {test} ({setting})")
    for setting in failed:
        print(f"Tests failed: {setting}")
    return 1 if near or failed or not comparisons else 0


def test_files(tests: List[str]) -> Iterator[str]:
    for test in tests:
        path = REPOSITORY / test.partition("::")[0]
        files = path.rglob("*_test.py") if path.is_dir() else [path]
        yield from (str(file.relative_to(REPOSITORY)) for file in files)


def draws(test_file: str) -> bool:
    """Return whether tests of a file have random inputs, or those that hypothesis makes."""
    text = (REPOSITORY / test_file).read_text(encoding="utf-8")
    return re.search("seed|rand|@given", text) is not None


def read_comparisons(margins: Path, setting: str) -> List[Comparison]:
    lines = map(json.loads, margins.read_text(encoding="utf-8").splitlines())
    return [Comparison(line["share"], line["place"], line["test"], setting) for line in lines]


def near_their_limit(comparisons: List[Comparison]) -> List[Comparison]:
    """Return the nearest comparison of each place and test function that uses too much, nearest first."""
    nearest: Dict[Tuple[str, str], Comparison] = {}
    for comparison in comparisons:
        function = re.sub(r"\[.*", "", comparison.test)
        key = (comparison.place, function)
        if comparison.share > LARGEST_SHARE:
            nearest[key] = max(comparison, nearest.get(key, comparison))
    return sorted(nearest.values(), reverse=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
