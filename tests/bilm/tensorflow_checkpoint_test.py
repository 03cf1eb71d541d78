"""Checkpoints that TensorFlow wrote, see fixtures/bilm/README.md."""

import io
import shutil
from pathlib import Path

import pytest
import torch

from elmo_plugin.bilm.tensorflow_checkpoint import _varint, is_checkpoint, read_variables
from elmo_plugin.errors import ConfigurationError

FIXTURE = Path(__file__).parents[2] / "fixtures" / "bilm" / "tensorflow" / "model.ckpt-7"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A copy of the checkpoint."""
    for path in FIXTURE.parent.glob("model.ckpt-7.*"):
        shutil.copy(path, tmp_path)
    return tmp_path / "model.ckpt-7"


def test_variables_are_those_that_tensorflow_saved(prefix: Path) -> None:
    names = ["lm/softmax/b", "lm/softmax/W", "lm/char_embed"]
    variables = read_variables(prefix, names)
    assert list(variables) == names
    assert torch.equal(variables["lm/softmax/W"], torch.arange(48.0).view(8, 6) / 16 - 1)
    assert torch.equal(variables["lm/softmax/b"], -torch.arange(8.0) / 4)
    # Of NumPy's generator with the seed 0.
    assert torch.equal(
        variables["lm/char_embed"],
        torch.tensor(
            [
                [1.764052391052246, 0.40015721321105957],
                [0.978738009929657, 2.2408931255340576],
                [1.8675580024719238, -0.9772778749465942],
                [0.9500884413719177, -0.15135720372200012],
            ]
        ),
    )


def test_a_checkpoint_is_a_path_without_an_ending(prefix: Path) -> None:
    assert is_checkpoint(prefix)
    assert is_checkpoint(str(prefix))
    assert not is_checkpoint(f"{prefix}.index")
    assert not is_checkpoint(prefix.parent)


@pytest.mark.parametrize(
    "name, message",
    [
        (
            "lm/none",
            r"-7\.index: has no variable lm/none, .* are global_step, lm/char_embed, lm/sof",
        ),
        ("global_step", "global_step cannot be read .its type is number 9 of"),
    ],
)
def test_other_variables_are_refused(name: str, message: str, prefix: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_variables(prefix, [name])


def test_missing_and_short_data_are_refused(prefix: Path) -> None:
    data = Path(f"{prefix}.data-00000-of-00001")
    whole = data.read_bytes()
    for content in (whole[:-20], b"", None):
        if content is None:
            data.unlink()
        else:
            data.write_bytes(content)
        with pytest.raises(ConfigurationError, match=r"lm/softmax/\w cannot .*another copy"):
            read_variables(prefix, ["lm/softmax/W", "lm/softmax/b"])


def test_a_damaged_index_is_refused(prefix: Path) -> None:
    index = Path(f"{prefix}.index")
    whole = index.read_bytes()
    # Cut anywhere, also with the right end.
    for size in range(len(whole)):
        for content in (whole[:size], whole[:size] + whole[-48:]):
            index.write_bytes(content)
            try:
                found = read_variables(prefix, ["lm/softmax/b"])["lm/softmax/b"]
            except ConfigurationError as error:
                assert "model.ckpt-7" in str(error)
            else:  # the missing bytes do not belong to this variable
                assert torch.equal(found, -torch.arange(8.0) / 4)
    index.unlink()
    with pytest.raises(
        ConfigurationError, match=r"\.index: cannot be read as the index of a Tensor"
    ):
        read_variables(prefix, ["lm/softmax/b"])


def test_a_compressed_index_is_refused(prefix: Path) -> None:
    index = Path(f"{prefix}.index")
    content = bytearray(index.read_bytes())
    # The byte after the index block, whose offset and size are the last two of four integers in the footer.
    footer = io.BytesIO(content[-48:])
    _, _, offset, size = (_varint(footer) for _ in range(4))
    content[offset + size] = 1
    index.write_bytes(bytes(content))
    with pytest.raises(ConfigurationError, match="its blocks are compressed"):
        read_variables(prefix, ["lm/softmax/b"])
