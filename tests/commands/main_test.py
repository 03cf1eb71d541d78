"""The console script `elmo`: help and errors; and `allennlp elmo`."""

import argparse
import functools
import gc
import os
import re
import signal
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, Callable, List, Optional

import pytest
import torch
from allennlp.commands.subcommand import Subcommand

from elmo_plugin import __version__
from elmo_plugin.commands import main as main_module
from elmo_plugin.commands import report as report_command
from elmo_plugin.commands.main import COMMANDS, LazyParser, main
from elmo_plugin.commands.report import REPORTS
from elmo_plugin.errors import ConfigurationError
from tests.conftest import run_program

LINES = ["a b", "c"]  # of `in.txt`
MODEL = ("--model", "elmo_mini")
SCREEN_LINES, COLUMNS = 75, 100  # a screen and a half
WITH_MODEL = ("embed", "neighbors", "score")
WITHOUT_TORCH = [name for name in COMMANDS if name not in (*WITH_MODEL, "export")]


pytestmark = pytest.mark.usefixtures("folder")


def help_of(words: List[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--help"])
    return str(capsys.readouterr().out)


def error_of(words: List[str], capsys: Any) -> str:
    """The one line that a user sees; the exit status is 2."""
    with pytest.raises(SystemExit, match="2"):
        main(words)
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return str(line)


def replace_run(monkeypatch: pytest.MonkeyPatch, command: str, run: Callable[[Any], Any]) -> None:
    """Let a command do something else; the class of its options remains."""
    module = main_module.module_of(command)
    monkeypatch.setattr(module, "run", functools.wraps(module.run)(run))


class TestHelp:
    @pytest.mark.parametrize(
        "words", [[], *([name] for name in COMMANDS), *(["report", name] for name in REPORTS)]
    )
    def test_it_fits_on_a_screen_and_a_half_with_an_example_before_the_options(
        self, words: List[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        text = help_of(words, monkeypatch, capsys)
        lines = text.splitlines()
        assert len(lines) <= SCREEN_LINES
        assert max(map(len, lines)) <= COLUMNS + 10  # some descriptions have lines of 110
        assert lines[0].startswith(f"usage: {' '.join(['elmo', *words])} ")
        assert "example" in text[: text.index("options:")]
        assert not re.search(r"[('\"]['\"(]", lines[0])  # no Python values

    def test_it_lists_all_commands(self, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        text = help_of([], monkeypatch, capsys)
        assert all(re.search(rf"\n    {name}\s", text) for name in COMMANDS)
        main([])
        assert capsys.readouterr().out == text

    def test_it_waits_for_torch_only_where_options_come_from_the_core(self) -> None:
        program = f"""
import sys
from elmo_plugin.commands.main import main
for words in ([], *([name] for name in {WITHOUT_TORCH})):
    try:
        main([*words, "--help"])
    except SystemExit as error:
        assert error.code == 0
main(["models"])
print({{"torch", "allennlp"}} & set(sys.modules))
"""
        process = run_program(sys.executable, "-c", program)
        assert process.stdout.splitlines()[-1] == "set()", process.stderr


@pytest.mark.parametrize(
    "chosen, usable, expected",
    [(None, 2, "2"), ("3", 2, "3"), (None, 4, None)],
    ids=["quota", "chosen", "no_quota"],
)
def test_torch_takes_as_many_threads_as_a_quota_allows(
    chosen: Optional[str], usable: int, expected: Optional[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main_module, "affinity_cpus", lambda: 4)
    monkeypatch.setattr(main_module, "usable_cpus", lambda: usable)
    monkeypatch.setenv("OMP_NUM_THREADS", chosen or "")
    if chosen is None:
        monkeypatch.delenv("OMP_NUM_THREADS")
    main(["models"])
    assert os.environ.get("OMP_NUM_THREADS") == expected


def test_the_version(capsys: Any) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"elmo_plugin {__version__}\n"


def test_allennlp_has_embed_alone_as_elmo_with_the_same_options() -> None:
    names = [name for name in Subcommand.list_available() if name.startswith("elmo")]
    assert names == ["elmo"]
    subparsers = argparse.ArgumentParser().add_subparsers(parser_class=argparse.ArgumentParser)
    theirs: Any = Subcommand.by_name("elmo")
    ours = LazyParser(prog="embed")
    main_module.declare_command("embed", ours)
    found, expected = (
        {flag for action in parser._actions for flag in action.option_strings}
        for parser in (theirs().add_subparser(subparsers), ours)
    )
    assert theirs.requires_plugins
    assert found | {"--include-package"} == expected


def test_a_short_option_has_one_meaning() -> None:
    meanings = {}
    words = [[name] for name in COMMANDS if name != "report"] + [
        ["report", name] for name in REPORTS
    ]
    for name in words:
        parser = LazyParser(prog="elmo")
        if name[0] == "report":
            report_command.declare_report(name[1], parser)
        else:
            main_module.declare_command(name[0], parser)
        for action in parser._actions:
            if len(action.option_strings) == 2:
                short, long = action.option_strings
                assert meanings.setdefault(short, long) == long
    assert meanings["-o"] == "--overrides"


@pytest.mark.parametrize(
    "words",
    [
        ["score", "in.txt"],
        ["neighbors", "in.txt", "--word", "a", "--sentence", "b a", "--top", "20"],
    ],
)
def test_numbers_that_are_printed_depend_on_the_precision(words: List[str], capsys: Any) -> None:
    # One number may be the same in all digits that are printed, but not each of 20.
    sentences = [f"{'b ' * (number % 7)}a {number} b" for number in range(20)]
    Path("in.txt").write_text("\n".join(sentences))
    outputs = []
    for precision in ("float32", "bfloat16"):
        main([*words, *MODEL, "--precision", precision, "--kernel", "reference"])
        outputs.append(capsys.readouterr().out)
    assert outputs[0] != outputs[1]


class TestErrors:
    @pytest.mark.parametrize(
        "words, message",
        [
            ("embd", "elmo: error: argument COMMAND: invalid choice: 'embd' (choose from "),
            ("--xyz", "elmo: error: unrecognized arguments: --xyz. See elmo --help."),
            (
                "--versoin",
                "elmo: error: unrecognized arguments: --versoin (did you mean --version?).",
            ),
            (
                "embed in.txt o.npy --averge",
                "elmo embed: error: unrecognized arguments: --averge (did",
            ),
            (
                "score in.txt --outptu=x",
                "--outptu=x (did you mean --output?). See elmo score --help.",
            ),
            (
                "export a.tar.gz --license mit out",
                "arguments: out (give names before options).",
            ),
            (
                "report pos --trian in.txt",
                "report pos: error: the following arguments are required",
            ),
            ("embed", "elmo embed: error: the following arguments are required: INPUT, OUTPUT"),
            ("embed in.txt o.hdf5", "found 0 of the options --all, --top, --average and --mix"),
            ("embed in.txt o.npz --top", "elmo embed: error: output: o.npz ends in '.npz', exp"),
            ("embed in.txt o.npy --top --column x", "--column is 'x', but in.txt is text"),
            ("embed in.txt o.npy --top --forget-sentences", "are options of HDF5, but the format"),
            ("embed in.txt o.npy --top --mix-name x", "--mix-name and --overrides are options of"),
            ("serve --timeout nan", "timeout is nan, expected a positive number"),
            ("serve --port 0 no.tar.gz", "no.tar.gz: no such file or folder, expected an archive"),
            ("serve --port 0 elmo_mini", "elmo_mini: that is the name of a biLM, expected an arch"),
            ("embed in.txt o.npy --top --batch-size 0", "batch_size is 0, expected a positive"),
            ("embed in.txt o.npy --top --num-workers 2", "--num-workers is 2, but the engine is"),
            ("embed in.txt o.npy --top --engine ray --num-workers 0", "num_workers is 0, expected"),
            ("embed in.txt o.npy --top --engine ray --stateful", "are not for --engine ray"),
            ("embed - o.npy --top --engine ray", "workers cannot read standard input"),
            ("embed in.txt no/o.npy --top", "output: there is no folder no to write o.npy in"),
            ("embed in.txt o.hdf5 --top --include-package no_such", "cannot import no_such (No"),
            (
                "embed in.txt o.npy --top --cuda-device 99",
                "device is 'cuda:99', which torch cannot use",
            ),
            ("score in.txt --kernel triton", "kernel is 'triton', but "),
            (
                "neighbors in.txt --sentence a --word a --kernel triton",
                "kernel is 'triton', but ",
            ),
            ("score in.txt --cuda-device 99", "device is 'cuda:99', which torch cannot use"),
            (
                "neighbors in.txt --sentence a --word a --cuda-device 99",
                "device is 'cuda:99', which torch cannot use",
            ),
            ("embed in.txt o.npy --top --resume --overwrite", "expected one of them"),
            ("embed in.txt o.npy --top --resume --stateful", "or leave out --stateful"),
            ("embed no.txt o.npy --top", "input: there is no file no.txt"),
            ("neighbors in.txt --sentence x --word x", "in.txt: does not hold the word 'x'"),
            ("neighbors in.txt --sentence x --word a", "--sentence 'x': does not hold the word"),
            ("neighbors no.txt --sentence a --word a", "no.txt: cannot be read"),
            ("neighbors in.txt --sentence a", "found neither --word nor --pool, expected one of"),
            ("neighbors in.txt --sentence a --pool mean --ignore-case", "is given without --word"),
            ("neighbors in.txt --sentence a --word a --pool mean", "found --word and --pool, ex"),
            ("neighbors in.txt --sentence a --word a --top 0", "top is 0, expected a positive wh"),
            ("score in.txt --best 0", "best is 0, expected a positive whole number."),
            ("score in.txt --best 2 --words", "--best is given with --words, --batch-size"),
            ("score in.txt --best 2 --tokenizer spacy", "spaCy splits ___ into three tokens"),
            ("score in.txt --best 2 --batch-size 3", "two are for scores of whole sentences"),
            ("score in.txt --overwrite", "--overwrite is given without --output FILE"),
            ("score in.txt --overwrite --output -", "--overwrite is given without --output FILE"),
            ("score in.txt --output in.txt", "--output: in.txt exists, expected a new path"),
            ("score in.txt --output in.txt --overwrite", "in.txt is the input, expected another"),
            ("score in.txt --output no/out", "--output: there is no folder no to write out in"),
            ("score in.txt --softmax-file in.txt", "in.txt: cannot be read as an HDF5 file"),
            ("score in.txt --vocabulary-file in.txt", "in.txt, line 1: found 'a b', expected <S"),
            ("predict m in.txt --batch-size 0", "batch_size is 0, expected a positive"),
            ("predict m in.txt --output-file in.txt --overwrite", "in.txt is the input, expected"),
            ("predict m in.txt --overwrite", "--overwrite is given without --output-file FILE. L"),
            ("vocab in.txt --output v --max-size 3", "--max-size: found 3, expected at least 4"),
            ("vocab in.txt --output -", "--output: found -, standard output, expected the path"),
            ("vocab in.txt --output no/v", "--output: there is no folder no to write v in"),
            ("vocab in.txt --output v --min-count 0", "min_count is 0, expected a positive"),
            ("vocab in.txt --output in.txt", "elmo vocab: error: --output: in.txt exists, exp"),
            ("vocab in.txt --output in.txt --overwrite", "in.txt is the input, expected another"),
            ("export no.gz o", "elmo export: error: no.gz: no such file or folder, expected an"),
            ("export --model . in.onnx --overwrite --dtype float16", "expected no other optio"),
            ("export model.tar.gz o.onnx", "expected --model for the program o.onnx. An archi"),
            ("export m.gz", "found no ARCHIVE, only FOLDER m.gz, expected both. Give the archive"),
            ("export --model elmo_mini o", "and FOLDER o, expected the name of a program, which"),
            ("report", "elmo report: error: the following arguments are required: REPORT"),
        ],
    )
    def test_they_are_one_line_and_write_nothing(
        self, words: str, message: str, capsys: Any
    ) -> None:
        if "--engine ray" in words:
            pytest.importorskip("ray")
        with_model = words.startswith(WITH_MODEL)
        assert message in error_of([*words.split(), *MODEL * with_model], capsys)
        assert os.listdir() == ["in.txt"]

    @pytest.mark.parametrize("word", ["a\u2028b", "a\r", "\x85", "\x1b[31m"])
    def test_words_that_break_lines_or_control_the_terminal_are_escaped(
        self, word: str, capsys: Any
    ) -> None:
        for words in (["score", "in.txt", word], ["score", word, *MODEL]):  # of argparse, and ours
            line = error_of(words, capsys)
            assert line.isprintable() and repr(word)[1:-1] in line

    @pytest.mark.parametrize(
        "words",
        [
            "embed in.txt o.npy --top",
            "embed in.txt o.npy --top --model=",
            "neighbors in.txt --sentence a --word a",
            "score in.txt",
            "export o.onnx",
            "report wsd in.txt -s o",
            "report pos --train in.txt --test x -s o",
            "report perplexity --text a in.txt in.txt -s o",
        ],
    )
    def test_without_a_model_they_name_those_that_there_are(self, words: str, capsys: Any) -> None:
        line = error_of(words.split(), capsys)
        assert re.search(
            r" --model.*: elmo_mini, elmo_small, original \(the paper's, which is downloaded\), or a",
            line,
        )
        assert os.listdir() == ["in.txt"]

    @pytest.mark.parametrize(
        "words, message",
        [
            ("score in.txt --options-file elmo_mini", "found --options-file, expected --model: "),
            ("score in.txt --weight-file w", "found --weight-file, expected --model: elmo_mini"),
            ("score in.txt --model m --options-file o", "found --model and --options-file, exp"),
            ("score in.txt --model in.txt", "in.txt: one file, expected both files of a model"),
            (
                "score in.txt --model elmo_ner_small",
                "elmo_ner_small: that is a task model, expected",
            ),
            ("score in.txt --model no", "no: no such model, expected elmo_mini, elmo_small, ori"),
            ("score in.txt --model .", "found options*.json: none, and *.hdf5: none, exp"),
            ("embed in.txt o.npy --mix m --model x", "learned for the biLM in that archive"),
        ],
    )
    def test_a_model_has_one_name_or_two_files(self, words: str, message: str, capsys: Any) -> None:
        assert message in error_of(words.split(), capsys)
        assert os.listdir() == ["in.txt"]

    def test_debug_shows_the_traceback(self) -> None:
        with pytest.raises(ConfigurationError, match="ends in"):
            main(["embed", "in.txt", "o.npz", "--top", "--debug", *MODEL])

    @pytest.mark.parametrize("advice", ["", "2 parts are kept: continue with --resume"])
    def test_ctrl_c_says_how_to_continue(
        self, advice: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        def interrupt(*arguments: Any) -> None:
            raise KeyboardInterrupt(*filter(None, [advice]))

        def assert_interrupted(prog: str) -> None:
            with pytest.raises(SystemExit, match="130"):
                main(["embed", "in.txt", "o.npy", "--top", *MODEL])
            expected = advice or "the same command starts again"
            assert capsys.readouterr().err == f"{prog}: interrupted; {expected}\n"

        replace_run(monkeypatch, "embed", interrupt)
        assert_interrupted("elmo embed")
        # While the command is imported.
        monkeypatch.setattr(main_module, "module_of", interrupt)
        assert_interrupted("elmo")

    def test_sigterm_ends_a_command_as_ctrl_c_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        replace_run(monkeypatch, "embed", lambda options: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(SystemExit, match="130"):
            main(["embed", "in.txt", "o.npy", "--top", *MODEL])

    def test_without_standard_error_an_error_is_not_on_standard_output(
        self, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        monkeypatch.setattr(sys, "stderr", None)
        with pytest.raises(SystemExit, match="2"):
            main(["models", "nope"])
        assert capsys.readouterr().out == ""

    def test_a_reader_that_ends_early_is_no_error(self) -> None:
        process = run_program("sh", "-c", f"{sys.executable} -m elmo_plugin models | true")
        assert process.stderr == ""

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
    def test_a_full_disk_behind_standard_output_is_one_line(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # as by default
        command = [sys.executable, "-m", "elmo_plugin", "models"]
        with open("/dev/full", "w") as full:
            process = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
        assert process.stderr == "elmo models: error: No space left on device\n"
        assert process.returncode == 2

    def test_ctrl_c_is_one_line_if_it_has_ended_the_reader_too(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # as by default
        script = (
            "from elmo_plugin.commands.main import exits_on_user_errors\n"
            "with exits_on_user_errors('elmo', False):\n"
            "    print('a row')\n"
            "    raise KeyboardInterrupt\n"
        )
        read_end, write_end = os.pipe()
        os.close(read_end)
        with open(write_end, "w") as pipe:
            process = subprocess.run(
                [sys.executable, "-c", script], stdout=pipe, stderr=subprocess.PIPE, text=True
            )
        assert process.stderr == "elmo: interrupted; the same command starts again\n"
        assert process.returncode == 130

    @pytest.mark.parametrize("is_enabled", [True, False])
    def test_importing_leaves_the_collection_of_garbage_as_it_was(
        self, is_enabled: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(main_module, "import_module", lambda name: gc.isenabled())
        (gc.enable if is_enabled else gc.disable)()
        try:
            assert main_module.module_of("models") is False
            assert gc.isenabled() == is_enabled
        finally:
            gc.enable()

    def test_output_is_utf8_in_any_locale(self, monkeypatch: pytest.MonkeyPatch) -> None:
        output = TextIOWrapper(BytesIO(), encoding="latin-1")
        monkeypatch.setattr(sys, "stdout", output)
        replace_run(monkeypatch, "models", lambda options: print("日本"))
        main(["models"])
        assert output.buffer.getvalue() == "日本\n".encode()


@pytest.mark.parametrize(
    "error, message",
    [
        (MemoryError(), "memory ran out. Free some"),
        (MemoryError("Take smaller batches."), "error: Take smaller batches."),
        (
            torch.cuda.OutOfMemoryError("CUDA: full."),
            "error: CUDA: full. Give smaller batches",
        ),
        (OSError(), "error: \n"),  # not of memory
    ],
)
def test_memory_that_ran_out_is_one_line(
    error: Exception,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    def fail(options: Any) -> None:
        raise error

    replace_run(monkeypatch, "models", fail)
    with pytest.raises(SystemExit, match="2"):
        main(["models"])
    assert message in capsys.readouterr().err
