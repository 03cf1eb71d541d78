"""`scripts/release_check.py`, with a program in the place of uv that makes or refuses environments."""

import sys
from pathlib import Path
from typing import List

import pytest

from elmo_plugin import __version__
from scripts import release_check

ARCHIVES = [f"elmo_plugin-{__version__}-py3-none-manylinux_2_28_x86_64.whl"]
ARCHIVES += [f"elmo_plugin-{__version__}-py3-none-any.whl", f"elmo_plugin-{__version__}.tar.gz"]

# `uv venv` fails for Python 3.12. An environment's `elmo` and `python` print what the page shows, and a
# warning where the wheel without libraries was installed.
UV = """\
#!/bin/sh
echo "$@" >> {log}
last=; for word in "$@"; do last=$word; done
case "$1 $2 $*" in
  *"venv --quiet --python 3.12 "*) echo "error: No download found for 3.12" >&2; exit 2 ;;
  venv*) mkdir -p "$last/bin"; printf '#!/bin/sh\\n:\\n' > "$last/bin/elmo"; chmod +x "$last/bin/elmo" ;;
  *"pip list"*) printf 'numpy==2.2.6\\npip==1\\ntorch==2.4.0\\n' ;;
  *.whl|*.tar.gz)
    warning=; case "$last" in *-any.whl) warning="{warning}" ;; esac
    printf '#!/bin/sh\\necho "%s"\\ncat {printed}\\n' "$warning" > environment/bin/python
    chmod +x environment/bin/python ;;
esac
"""


@pytest.fixture
def uv_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the program in the place of uv; return the file where it writes its arguments."""
    (tmp_path / "printed").write_text(release_check.core_of_start_page()[1])
    (tmp_path / "dist").mkdir()
    for name in ARCHIVES:
        (tmp_path / "dist" / name).touch()
    write_uv(tmp_path, release_check.WITHOUT_LIBRARIES)
    monkeypatch.setattr(release_check, "UV", str(tmp_path / "uv"))
    monkeypatch.setattr(
        release_check,
        "archives_for",
        lambda machine, folder: [tmp_path / "dist" / name for name in ARCHIVES],
    )
    return tmp_path / "log"


def write_uv(folder: Path, warning: str) -> None:
    script = folder / "uv"
    script.write_text(UV.format(log=folder / "log", printed=folder / "printed", warning=warning))
    script.chmod(0o755)


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["release_check", *words])
    try:
        release_check.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_it_runs_the_part_of_the_page_that_needs_no_allennlp() -> None:
    script, printed = release_check.core_of_start_page()
    assert "elmo embed sentences.txt" in script
    assert "ElmoEmbedder" in script
    assert "predict" not in script
    assert printed.startswith("opened, performed: ")


def test_each_archive_is_checked_and_a_python_that_cannot_be_had_is_named(
    uv_log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "--python", "3.12", "--python", "3.13", "--torch", "oldest") == 0
    output = capsys.readouterr().out
    for name in ARCHIVES:
        assert f"{name} runs docs/start.md" in output
    skipped, passed = output.splitlines()[-2:]
    assert skipped.startswith("skipped: Python 3.12, oldest torch: no Python 3.12: ")
    assert "No download found" in skipped
    assert passed == "passed: Python 3.13, oldest torch: numpy==2.2.6 torch==2.4.0"


@pytest.mark.parametrize(
    "torch, options",
    [
        ("oldest", ["--resolution lowest-direct"]),
        ("newest", []),
        ("2.8.0", ["torch==2.8.0"]),
    ],
)
def test_torch_is_the_one_that_was_named(
    torch: str, options: List[str], uv_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(monkeypatch, "--python", "3.13", "--torch", torch) == 0
    (dependencies,) = [line for line in uv_log.read_text().splitlines() if "pyproject.toml" in line]
    assert dependencies.partition(":all:")[2].strip() == " ".join(options)


def test_nothing_that_was_checked_is_a_failure(
    uv_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(monkeypatch, "--python", "3.12") == 1


def test_other_output_than_the_page_shows_is_a_failure(
    uv_log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (uv_log.parent / "printed").write_text("opened, performed: 0.5\n")
    assert call(monkeypatch, "--python", "3.13") == 1
    assert "docs/start.md shows\nopened, performed: 0." in capsys.readouterr().err


def test_a_wheel_without_libraries_that_does_not_say_so_is_a_failure(
    uv_log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_uv(uv_log.parent, "")
    assert call(monkeypatch, "--python", "3.13") == 1
    assert "expected a warning of missing libraries" in capsys.readouterr().err


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / ARCHIVES[1]).touch()
    with pytest.raises(
        SystemExit, match=r"has 0 files \*_x86_64.whl, expected one. Run `make wheels`"
    ):
        release_check.archives_for("x86_64", tmp_path)
    for name in ARCHIVES:
        (tmp_path / name).touch()
    found = release_check.archives_for("x86_64", tmp_path)
    assert [path.name for path in found] == ARCHIVES
