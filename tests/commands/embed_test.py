"""`allennlp elmo` and `elmo embed`: what they write, options, and errors."""

import errno
import json
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import numpy
import pytest
import torch
from allennlp.commands import main

from elmo_plugin import ElmoEmbedder, batch_to_ids
from elmo_plugin.compat.archives import opened_archive
from elmo_plugin.errors import ConfigurationError
from tests.closeness import assert_accurate
from tests.conftest import BiLMFiles as TinyBiLMFiles
from tests.embedding.formats_test import hdf5_datasets
from tests.embedding.run_test import fails_at

LINES = ["The naïve cat .", "Hi", "a b a", "Hi"]

Run = Callable[..., Dict[str, Any]]


@pytest.fixture
def command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command through AllenNLP's parser, and gives what it wrote if that is HDF5."""

    def run(*arguments: str, output: str = "out.hdf5") -> Dict[str, Any]:
        words = ["allennlp", "elmo", "in.txt", output, "--debug", *arguments]
        monkeypatch.setattr(sys, "argv", words)
        main()
        return hdf5_datasets(output) if output == "out.hdf5" else {}

    return run


@pytest.fixture
def run(command: Run, bilm_files: TinyBiLMFiles) -> Run:
    """The same with the files of the tiny biLM."""

    def run(*arguments: str, **paths: str) -> Dict[str, Any]:
        files = ("--options-file", bilm_files.options_file, "--weight-file", bilm_files.weight_file)
        return command(*files, *arguments, **paths)

    return run


def check_vectors(datasets: Dict[str, Any], expected: List[Any]) -> None:
    for number, array in enumerate(expected):
        assert_accurate(datasets[str(number)], array)


@pytest.mark.parametrize("choice", ["all", "top", "average"])
def test_choices_of_layers(run: Run, bilm_files: TinyBiLMFiles, choice: str) -> None:
    datasets = run(f"--{choice}")
    embedder = ElmoEmbedder(*bilm_files)
    index = json.loads(datasets.pop("sentence_to_index")[0])
    assert index == {LINES[0]: "0", "Hi": "3", "a b a": "2"}
    assert datasets.keys() == {"0", "1", "2", "3"}
    layers_of_lines = [embedder.embed_sentence(line.split()) for line in LINES]
    functions = {"all": numpy.asarray, "top": lambda x: x[-1], "average": lambda x: x.mean(0)}
    check_vectors(datasets, [functions[choice](layers) for layers in layers_of_lines])


class TestFurtherFlags:
    def test_progress_and_a_summary(self, run: Run, capsys: Any) -> None:
        Path("in.txt").write_text("a b\n" * 100)
        run("--top")
        captured = capsys.readouterr()
        assert captured.out.startswith("out.hdf5: 100 sentences, 200 tokens, ")
        assert "100/100" in captured.err
        assert "sentences/s" in captured.err

    @pytest.mark.parametrize(
        "flag, value, dtype",
        [("--dtype", "float16", "float16"), ("--precision", "bfloat16", "float32")],
    )
    def test_lower_precisions(self, run: Run, flag: str, value: str, dtype: str) -> None:
        exact = run("--top", "--kernel", "reference")["0"]
        lowered = run("--top", "--kernel", "reference", "--overwrite", flag, value)["0"]
        assert lowered.dtype == dtype
        assert (lowered != exact).any()
        if flag == "--dtype":
            assert (lowered == exact.astype(dtype)).all()

    def test_stateful(self, run: Run, bilm_files: TinyBiLMFiles) -> None:
        datasets = run("--all", "--stateful", "--batch-size", "1")
        embedder = ElmoEmbedder(*bilm_files, stateful=True)
        check_vectors(datasets, [embedder.embed_sentence(line.split()) for line in LINES])

    @pytest.mark.parametrize(
        "text, flags, num_tokens",
        [
            ("He didn't.\nHi\n", "--forget-sentences", {"0": 2, "1": 1}),
            ("He didn't.\nHi\n", "--forget-sentences --tokenizer spacy", {"0": 4, "1": 1}),
            ("Hi\n\na b\n", "--forget-sentences --skip-blank", {"0": 1, "2": 2}),
            ("Hi\na b\n", "--use-sentence-keys", {"Hi": 1, "a b": 2}),
        ],
    )
    def test_input_and_keys(
        self, run: Run, text: str, flags: str, num_tokens: Dict[str, int]
    ) -> None:
        Path("in.txt").write_text(text)
        datasets = run("--top", *flags.split())
        assert {key: len(vectors) for key, vectors in datasets.items()} == num_tokens

    def test_pool_writes_one_vector_for_each_sentence(
        self, run: Run, bilm_files: TinyBiLMFiles
    ) -> None:
        run("--top", "--pool", "first-last", output="out.npy")
        embedder = ElmoEmbedder(*bilm_files)
        expected = [embedder.embed_sentence(line.split(), "first-last")[-1] for line in LINES]
        found = numpy.load("out.npy/vectors.npy")
        assert_accurate(found, numpy.stack(expected))


def test_a_full_disk_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    fails_at(monkeypatch, 1, errno.ENOSPC)
    arguments = ["in.txt", "out.hdf5", "--top", "--model", "elmo_mini"]
    monkeypatch.setattr(sys, "argv", ["allennlp", "elmo", *arguments])
    with pytest.raises(SystemExit, match="2"):
        main()
    line = capsys.readouterr().err.splitlines()[-1]
    assert "error: out.hdf5: cannot be written (No space left on device)" in line


class TestMix:
    def test_the_output_equals_the_input_of_the_task_rnn(self, command: Run) -> None:
        datasets = command("--mix", "elmo_ner_small", "--mix-name", "input")
        elmo = opened_archive("elmo_ner_small").model.eval().text_encoder.elmo.elmo
        with torch.no_grad():
            outputs = [elmo(batch_to_ids([line.split()])) for line in LINES]
        check_vectors(datasets, [output["elmo_representations"][0][0] for output in outputs])

    def test_overrides_reach_the_archive(self, command: Run) -> None:
        overrides = '{"model.text_encoder.elmo.do_layer_norm": true}'
        with pytest.raises(ConfigurationError, match=r"was learned with do_layer_norm.*--all"):
            command("--mix", "elmo_ner_small", "--overrides", overrides)


def test_the_class_writes_the_same_file(run: Run, bilm_files: TinyBiLMFiles) -> None:
    expected = run("--average")
    Path("class.hdf5").write_text("previous")  # which 0.9 replaced
    with open("in.txt", "rb") as file:
        ElmoEmbedder(*bilm_files).embed_file(file, "class.hdf5", output_format="average")
        assert not file.closed
    datasets = hdf5_datasets("class.hdf5")
    assert datasets.keys() == expected.keys()
    assert all((datasets[key] == expected[key]).all() for key in expected)
    ElmoEmbedder(*bilm_files).embed_file("in.txt", "class.hdf5", forget_sentences=True)
    assert "sentence_to_index" not in hdf5_datasets("class.hdf5")
