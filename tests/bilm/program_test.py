"""A biLM as a program: `.pt2`, and ONNX where its packages are installed."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
import torch

from elmo_plugin import BiLM, ElmoEmbedder, batch_to_ids
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm import program as program_module
from elmo_plugin.bilm.program import OLDEST_TORCH, export_program
from elmo_plugin.errors import ConfigurationError
from tests.closeness import assert_accurate
from tests.conftest import (
    FIXTURES,
    SENTENCES,
    TINY_OPTIONS,
    randomize,
    run_program,
    with_encoder,
)
from tests.markdown_blocks import code_blocks

PAGE = FIXTURES.parent / "docs" / "export.md"
BATCHES: List[List[List[str]]] = [
    SENTENCES,
    [["one"]],
    [["The", "bank"] * 20],
    [["Hi"], ["of", "the", "bank"]] * 4,
    [[], []],
]
# Other values of all settings that change the program.
OTHER_OPTIONS = replace(
    with_encoder(TINY_OPTIONS, activation="tanh"),
    cell_size=6,
    num_lstm_layers=3,
    cell_clip=None,
    proj_clip=None,
    use_skip_connections=False,
)

if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
    pytest.skip("this torch cannot export the loop over tokens", allow_module_level=True)


def check(run: Callable[[torch.Tensor], Dict[str, Any]], bilm: BiLM) -> None:
    embedder = ElmoEmbedder.from_bilm(bilm.freeze())
    for batch in BATCHES:
        activations, mask = embedder.batch_to_embeddings(batch)
        outputs = run(batch_to_ids(batch))
        assert_accurate(outputs["activations"], activations)
        assert torch.equal(outputs["mask"], mask)


def loaded_program(file: Path) -> Callable[[torch.Tensor], Dict[str, Any]]:
    if file.suffix == ".pt2":
        return torch.export.load(file).module()
    session = pytest.importorskip("onnxruntime").InferenceSession(file)
    names = ["activations", "mask"]

    def run(character_ids: torch.Tensor) -> Dict[str, Any]:
        arrays = session.run(names, {"character_ids": character_ids.numpy()})
        return dict(zip(names, map(torch.from_numpy, arrays)))

    return run


def skip_without_onnx() -> None:
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package)


@pytest.mark.parametrize("options", [TINY_OPTIONS, OTHER_OPTIONS])
@pytest.mark.parametrize("name", ["bilm.pt2", "bilm.onnx"])
def test_a_program_equals_the_bilm(name: str, options: BiLMOptions, tmp_path: Path) -> None:
    if name == "bilm.onnx":
        skip_without_onnx()
    # Moderate weights: the accuracy is absolute.
    bilm = randomize(BiLM(options), scale=0.2)
    before = {name: weight.clone() for name, weight in bilm.state_dict().items()}
    (tmp_path / name).write_text("an existing file")
    export_program(bilm, tmp_path / name)
    assert all(parameter.requires_grad for parameter in bilm.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in bilm.state_dict().items())
    assert [path.name for path in tmp_path.iterdir()] == [name]
    check(loaded_program(tmp_path / name), bilm)


def documented_spelling() -> str:
    (module, _) = code_blocks(PAGE.read_text(encoding="utf-8"), "python")
    assert module.text.startswith("# spelling.py\n")
    return module.text


def test_the_documented_spelling() -> None:
    names: Dict[str, Any] = {}
    exec(compile(documented_spelling(), str(PAGE), "exec"), names)
    sentences = [[word for word in one if word not in ("<S>", "</S>")] for one in SENTENCES]
    expected = batch_to_ids(sentences)
    assert torch.equal(torch.from_numpy(names["character_ids"](sentences)), expected)


def test_the_documented_snippet_of_onnx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without_onnx()
    monkeypatch.chdir(tmp_path)
    export_program(BiLM.from_files("elmo_mini"), "elmo_mini.onnx")
    Path("spelling.py").write_text(documented_spelling(), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    (snippet,) = code_blocks(PAGE.read_text(encoding="utf-8"), "py")
    exec(compile(snippet.text, str(PAGE), "exec"), {})
    assert capsys.readouterr().out == "(2, 3, 6, 256)\n"


@pytest.mark.slow
def test_it_runs_without_this_package(tmp_path: Path) -> None:
    bilm = randomize(BiLM(TINY_OPTIONS))
    export_program(bilm, tmp_path / "bilm.pt2")
    torch.save([batch_to_ids(batch) for batch in BATCHES], tmp_path / "inputs.pt")
    program = (
        "import sys\n"
        "sys.modules['elmo_plugin'] = None\n"
        "import torch\n"
        "program = torch.export.load('bilm.pt2').module()\n"
        "torch.save([program(one) for one in torch.load('inputs.pt')], 'outputs.pt')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
    outputs = iter(torch.load(tmp_path / "outputs.pt"))
    check(lambda character_ids: next(outputs), bilm)


def test_at_a_limit_of_file_sizes_it_is_an_os_error(tmp_path: Path) -> None:
    """In a separate process, since torch ends it if a plain file fails."""
    code = (
        "import resource, torch\n"
        "from elmo_plugin import BiLM\n"
        "from elmo_plugin.bilm.program import export_program\n"
        "save = torch.export.save\n"
        "def save_at_a_limit(*arguments):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))\n"
        "    save(*arguments)\n"
        "torch.export.save = save_at_a_limit\n"
        "try: export_program(BiLM.from_files('elmo_mini'), 'bilm.pt2')\n"
        "except OSError as error: print(error.errno)\n"
    )
    result = run_program(sys.executable, "-c", code, cwd=tmp_path)
    assert result.stdout == "27\n", result.stderr
    assert not list(tmp_path.iterdir())


def with_hook() -> BiLM:
    bilm = BiLM(TINY_OPTIONS)
    bilm.forward_layers[0].register_forward_hook(lambda module, inputs, outcome: outcome)
    return bilm


@pytest.mark.parametrize(
    "make, name, message",
    [
        (
            lambda: BiLM(TINY_OPTIONS, stateful=True),
            "bilm.pt2",
            "The biLM is stateful, expected a stateless one",
        ),
        (
            lambda: BiLM.from_files(FIXTURES / "bilm" / "many_langs" / "both"),
            "bilm.pt2",
            "is one of ELMoForManyLangs, expected",
        ),
        (with_hook, "bilm.pt2", "hooks or another forward run at its forward_layers.0"),
        (lambda: BiLM(TINY_OPTIONS), "bilm.bin", r"expected a name that ends in \.pt2 or \.onnx"),
    ],
)
def test_others_are_refused(
    make: Callable[[], BiLM], name: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        export_program(make(), tmp_path / name)


def test_an_older_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_module.torch, "__version__", "2.4.1+cpu")
    with pytest.raises(ConfigurationError, match=r"torch is 2\.4\.1\+cpu, expected 2\.12 or newer"):
        export_program(BiLM(TINY_OPTIONS), tmp_path / "bilm.pt2")


def test_onnx_without_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ConfigurationError, match="needs onnx and onnxscript"):
        export_program(BiLM(TINY_OPTIONS), tmp_path / "bilm.onnx")
    assert not list(tmp_path.iterdir())
