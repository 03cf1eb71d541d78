import io
import os
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy
import pytest
from allennlp.commands import main

from elmo_plugin import ElmoEmbedder
from elmo_plugin.commands.neighbors import ComparisonOptions, compare_occurrences
from elmo_plugin.embedding.pooling import POOLS, cosine_similarities
from elmo_plugin.errors import ConfigurationError
from tests.conftest import BiLMFiles

LINES = [
    "a play by him",
    "",
    "they play and play",
    "nothing here",
    "Play on",
    "the cost is $ 5 to $ play $ 6",
    "a play by him",
]
NUM_PLACES = 5

Run = Callable[..., str]


@pytest.fixture
def run_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, bilm_files: BiLMFiles, capsys: Any
) -> Run:
    """Runs the command through AllenNLP's parser with the tiny biLM, and gives what it printed."""

    def run(*arguments: str, source: str = "in.txt") -> str:
        command = ["allennlp", "elmo-neighbors", source, "--debug"]
        files = ["--options-file", bilm_files.options_file, "--weight-file", bilm_files.weight_file]
        monkeypatch.setattr(sys, "argv", [*command, *files, *arguments])
        capsys.readouterr()
        main()
        return str(capsys.readouterr().out)

    return run


@pytest.fixture
def run(run_command: Run) -> Run:
    """The same for the word "play", or another one."""

    def run(*arguments: str, source: str = "in.txt", word: str = "play") -> str:
        return run_command("--word", word, *arguments, source=source)

    return run


def rows(output: str) -> List[List[str]]:
    """Similarity, line number and sentence of each row."""
    pattern = re.compile(r"^ +(-?\d\.\d{3})  line (\d+) +(.+)$", re.MULTILINE)
    return [list(match) for match in pattern.findall(output)]


def compare(text: str = "in.txt", **arguments: Any) -> Any:
    return compare_occurrences(text, ComparisonOptions(**{"word": "play", **arguments}))


class TestSentences:
    """`--pool` in place of `--word`."""

    @pytest.fixture
    def run(self, run_command: Run) -> Run:
        return run_command

    @pytest.mark.parametrize("pool", POOLS)
    def test_the_nearest_sentences_are_those_of_the_embedders_vectors(
        self, run: Run, bilm_files: BiLMFiles, pool: str
    ) -> None:
        output = run("--pool", pool, "--sentence", "a play by her", "--layer", "1")
        assert output.startswith("in.txt: 6 sentences\n\nsentence 1: a play by her\n")
        texts = [line for line in LINES if line]
        embedder = ElmoEmbedder(*bilm_files)
        query, *others = (
            layers[1]
            for layers in embedder.embed_batch(
                [line.split() for line in ("a play by her", *texts)], pool
            )
        )
        similarities = cosine_similarities(query[None], numpy.stack(others))[0]
        expected = sorted(zip(similarities, texts), key=lambda pair: -pair[0])
        found = rows(output)
        # Printed with few digits.
        assert [float(similarity) for similarity, _, _ in found] == pytest.approx(
            [similarity for similarity, _ in expected], abs=0.001
        )
        assert {text for _, _, text in found} == set(texts)
        assert all(text == LINES[int(line) - 1] for _, line, text in found)

    def test_a_sentence_of_the_text_is_not_its_own_neighbor(self, run: Run) -> None:
        output = run("--pool", "mean", "--sentence", "a play by him")
        assert sorted(int(line) for _, line, _ in rows(output)) == [3, 4, 5, 6]
        Path("one.txt").write_text("a b\n")
        output = run("--pool", "mean", "--sentence", "a b", source="one.txt")
        assert "no other sentence" in output

    def test_clusters_a_sample_and_a_plot(self, run: Run) -> None:
        pytest.importorskip("matplotlib")
        output = run("--pool", "max", "--clusters", "2", "--plot", "sentences.svg")
        counts = re.findall(r"^cluster \d: (\d) sentences?$", output, re.MULTILINE)
        assert sum(map(int, counts)) == 6
        assert "6 sentences" in Path("sentences.svg").read_text()
        output = run("--pool", "max", "--sentence", "a b", "--max-occurrences", "3")
        assert output.startswith("in.txt: 6 sentences, of which 3 are compared, a random sample")


class TestNeighbors:
    def test_neighbors_of_each_sentence_are_printed_the_nearest_first(self, run: Run) -> None:
        output = run("--sentence", "a play by her", "--sentence", "we play , they play")
        assert output.startswith("play: 5 occurrences\n")
        first, second = output.split("\nsentence ")[1:]
        assert first.startswith("1: a **play** by her\n")
        assert second.startswith("2: we **play** , they play\n")  # the first of two
        for part in (first, second):
            similarities = [float(similarity) for similarity, _, _ in rows(part)]
            assert similarities == sorted(similarities, reverse=True)
            lines = sorted(int(line) for _, line, _ in rows(part))
            assert lines == [1, 3, 3, 6, 7]  # counted from 1, with the blank line
        assert "they play and **play**" in first
        assert "cluster" not in output

    def test_a_sentence_of_the_text_is_not_its_own_neighbor(self, run: Run) -> None:
        output = run("--sentence", "a play by him")
        assert sorted(int(line) for _, line, _ in rows(output)) == [3, 3, 6]
        output = run("--sentence", "Play on", word="Play")
        assert output.startswith("Play: 1 occurrence\n")
        assert "no other occurrence" in output

    def test_top(self, run: Run) -> None:
        everything = rows(run("--sentence", "a play"))
        assert rows(run("--sentence", "a play", "--top", "2")) == everything[:2]
        assert len(rows(run("--clusters", "1", "--top", "2"))) == 2

    def test_ignore_case(self, run: Run) -> None:
        output = run("--sentence", "A PLAY", "--ignore-case")
        assert "**PLAY**" in output
        assert "line 5       **Play** on" in output

    def test_layers(self, run: Run, caplog: Any) -> None:
        outputs = {
            layer: run("--sentence", "a play", "--layer", layer)
            for layer in ("-1", "0", "1", "2", "average")
        }
        assert outputs["-1"] == outputs["2"] == run("--sentence", "a play")
        assert len(set(outputs.values())) == 4
        assert {similarity for similarity, _, _ in rows(outputs["0"])} == {"1.000"}
        assert "Layer 0, the token representation, does not depend on the context" in caplog.text

    def test_max_occurrences_takes_a_sample(self, run: Run) -> None:
        (Path("in.txt")).write_text("".join(f"{number} play\n" for number in range(30)))
        outputs = [
            run("--sentence", "a play", "--max-occurrences", "4", "--seed", seed)
            for seed in ("0", "0", "1")
        ]
        assert outputs[0] == outputs[1] != outputs[2]
        assert outputs[0].startswith(
            "play: 30 occurrences, of which 4 are compared, a random sample"
        )
        assert len(rows(outputs[0])) == 4

    def test_standard_input(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        expected = run("--sentence", "a play")
        piped = io.TextIOWrapper(io.BytesIO(Path("in.txt").read_bytes()))
        monkeypatch.setattr(sys, "stdin", piped)
        assert run("--sentence", "a play", source="-") == expected

    def test_flags_of_the_bilm(self, run: Run) -> None:
        expected = run("--sentence", "a play", "--kernel", "reference", "--cuda-device", "-1")
        batched = run("--sentence", "a play", "--kernel", "reference", "--batch-tokens", "4")
        # Lines 1 and 7 are the same sentence: rounding, which differs by batch, decides which comes first.
        assert sorted(rows(batched)) == sorted(rows(expected))
        lowered = ("--kernel", "reference", "--precision", "bfloat16")
        assert run("--sentence", "a play", *lowered) != expected
        for flag in ("--kernel", "--precision"):
            with pytest.raises(SystemExit, match="2"):
                run(flag, "unknown")
        for flag, value, match in [
            ("--batch-tokens", "0", "batch_tokens is 0"),
            ("--cuda-device", "99", "cuda_device is 99, but torch finds"),
            ("--layer", "7", r"found 7, .*to 2 \(the last layer of this biLM\)"),
        ]:
            with pytest.raises(ConfigurationError, match=match):
                run(flag, value)

    def test_the_help_has_examples(self, run: Run, capsys: Any) -> None:
        with pytest.raises(SystemExit, match="0"):
            run("--help")
        text = " ".join(capsys.readouterr().out.split())
        assert "allennlp elmo-neighbors news.txt --word play" in text
        assert "a random sample if there are more (default: 5000)" in text


class TestClusters:
    def test_without_a_sentence_two_clusters_are_printed(self, run: Run) -> None:
        output = run()
        sizes = [int(size) for size in re.findall(r"cluster \d: (\d) occurrences?\b", output)]
        assert len(sizes) == 2
        assert sum(sizes) == NUM_PLACES == len(rows(output))

    def test_more_clusters_and_clusters_with_a_sentence(self, run: Run) -> None:
        assert "cluster 3: " in run("--clusters", "3")
        output = run("--sentence", "a play", "--clusters", "2")
        assert "sentence 1: " in output
        assert "cluster 2: " in output


class TestPlot:
    @pytest.fixture(autouse=True)
    def matplotlib_is_there(self) -> None:
        pytest.importorskip("matplotlib")

    def test_a_png_is_drawn_without_pyplot(self, run: Run) -> None:
        pyplot_was_there = "matplotlib.pyplot" in sys.modules
        assert "picture.png: written" in run("--plot", "picture.png")
        assert Path("picture.png").read_bytes().startswith(b"\x89PNG")
        assert ("matplotlib.pyplot" in sys.modules) == pyplot_was_there
        assert sorted(os.listdir()) == ["in.txt", "picture.png"]

    def test_an_svg_names_clusters_and_sentences(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import matplotlib

        monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")  # text stays text
        output = run(*("--sentence", "a play by $ 1 $", "--plot", "picture.SVG", "--clusters", "4"))
        assert "cluster 4: " in output
        picture = Path("picture.SVG").read_text(encoding="utf-8")
        assert "5 occurrences of “play” in context" in picture
        assert "cluster 4 (1), such as: " in picture
        assert "sentence 1: a play by $ 1 $<" in picture
        assert "… $ 5 to $ play $ 6<" in picture
        assert "% of the variance" in picture

    def test_overwrite(self, run: Run) -> None:
        Path("picture.png").write_text("previous")
        with pytest.raises(ConfigurationError, match=r"exists.*--overwrite"):
            run("--plot", "picture.png")
        run("--plot", "picture.png", "--overwrite")
        assert Path("picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("folder", "nothing_is_loaded")
class TestBadArguments:
    """Each is refused before a model is loaded, which could be a download."""

    @pytest.mark.parametrize(
        "arguments, match",
        [
            ({"word": "absent"}, r"in\.txt: does not hold the word 'absent'.*of the text"),
            ({"word": "PLAY"}, r"in\.txt: does not hold .*holds 'play': give --ignore-case"),
            ({"word": ""}, "--word: found '', expected one token"),
            ({"word": "play "}, "--word: found 'play ', expected one token"),
            ({"word": "a\u00a0play"}, "--word: found .*, expected one token"),
            ({"sentence": ["a play", "no"]}, "--sentence 'no': does not hold the word 'play'"),
            ({"sentence": ["Play"]}, "--sentence 'Play': .*holds 'Play': give --ignore-case"),
            ({"sentence": [""]}, "--sentence '': found no tokens, expected a sentence"),
            ({"word": None, "pool": "max", "sentence": [" "]}, "--sentence ' ': found no tokens"),
            ({"text": "missing.txt"}, r"missing\.txt: cannot be read"),
            ({"layer": -2}, "--layer: found -2, expected a number from 0"),
            ({"layer": "top"}, "--layer: found top, expected a number from 0.*or average"),
            ({"top": 0}, "--top: found 0, expected a positive number"),
            ({"clusters": 0}, "--clusters: found 0, expected a positive number"),
            # Of five occurrences two are in the same sentence.
            (
                {"clusters": 5},
                r"--clusters: found 5, expected at most 4, .* vectors of the 5 occurrences of the word\.",
            ),
            ({"layer": 0}, "found 2, expected at most 1, .*; layer 0, the token representation"),
            ({"word": "Play", "clusters": 1, "plot": "p.png"}, "--plot: .* one distinct vec"),
            ({"max_occurrences": 0}, "--max-occurrences: found 0, expected a positive number"),
            ({"seed": -1}, "--seed: found -1, expected a number from 0"),
            ({"overwrite": True}, "--overwrite is an option of --plot"),
            ({"plot": "missing/p.png"}, "there is no folder missing"),
            ({"plot": "p.jpg"}, r"p\.jpg has the suffix '\.jpg', expected one of \.png, \.svg"),
            ({"plot": "p"}, "p has the suffix '', expected one of"),
        ],
    )
    def test_the_error_says_what_is_wrong(self, arguments: Dict[str, Any], match: str) -> None:
        with pytest.raises(ConfigurationError, match=match):
            compare(**arguments)
        assert os.listdir() == ["in.txt"]

    @pytest.mark.parametrize(
        "package, arguments, match",
        [
            ("sklearn", {}, "Clusters need scikit-learn, .*give --sentence"),
            ("sklearn", {"sentence": ["play"], "clusters": 2}, "Clusters need scikit-learn"),
            ("matplotlib", {"plot": "p.png"}, "Figures need matplotlib, .*omit --plot"),
        ],
    )
    def test_a_missing_package_is_an_error_at_once(
        self, package: str, arguments: Dict[str, Any], match: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        without(package, monkeypatch)
        with pytest.raises(ConfigurationError, match=match) as error:
            compare("missing.txt", **arguments)
        assert 'pip install "elmo-plugin[plots]"' in str(error.value)


def test_neighbors_need_no_scikit_learn(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run("--sentence", "a play")
    without("sklearn", monkeypatch)
    assert run("--sentence", "a play") == expected


def without(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let imports of a package fail."""
    loaded = [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]
    for name in {package, *loaded}:
        monkeypatch.setitem(sys.modules, name, None)
