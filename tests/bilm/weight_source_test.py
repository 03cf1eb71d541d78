"""Weights that are views of their file, shared by all that run them."""

import copy
import os
from pathlib import Path
from typing import List

import h5py
import numpy
import pytest
import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from elmo_plugin import BiLM, Elmo, batch_to_ids
from elmo_plugin.bilm import weight_file
from elmo_plugin.bilm.kernels import choose_kernel
from tests.conftest import SENTENCES, TINY_OPTIONS, BiLMFiles, randomize

CHARACTER_IDS = batch_to_ids(SENTENCES)


@pytest.fixture(autouse=True)
def small_weights_are_mapped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_file, "BYTES_WORTH_MAPPING", 0)


@pytest.fixture
def expected(bilm_files: BiLMFiles) -> Tensor:
    """What the weights of `bilm_files` give, read and not mapped."""
    bilm = randomize(BiLM(TINY_OPTIONS, kernel="reference")).requires_grad_(False)
    return activations(bilm)


def activations(bilm: BiLM) -> Tensor:
    return torch.stack(bilm(CHARACTER_IDS)["activations"])


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("kernel", ["auto", "onednn", "reference"])
def test_views_give_what_copies_give(
    kernel: str, precision: str, bilm_files: BiLMFiles, expected: Tensor
) -> None:
    try:
        choose_kernel(kernel, precision, torch.device("cpu"))
    except Exception as error:
        pytest.skip(str(error))
    bilm = BiLM.from_files(*bilm_files, kernel=kernel, precision=precision)
    tolerance = {"float32": 1e-5, "bfloat16": 0.1, "int8": 0.2}[precision]
    assert float((activations(bilm) - expected).abs().max()) < tolerance
    if precision != "float32":
        # Layers of words are rounded as those of sentences are.
        assert not torch.equal(activations(bilm)[0], expected[0])


def test_writing_to_weights_does_not_reach_the_file(
    bilm_files: BiLMFiles, expected: Tensor
) -> None:
    before = Path(bilm_files.weight_file).read_bytes()
    bilm = BiLM.from_files(*bilm_files).requires_grad_(True)
    optimizer = torch.optim.Adam(bilm.parameters(), lr=0.1)
    activations(bilm).sum().backward()
    optimizer.step()
    assert not torch.allclose(activations(bilm.requires_grad_(False)), expected, atol=1e-2)
    assert Path(bilm_files.weight_file).read_bytes() == before
    assert torch.allclose(activations(BiLM.from_files(*bilm_files)), expected, atol=1e-5)


def test_a_changed_bilm_no_longer_reads_the_file(bilm_files: BiLMFiles, expected: Tensor) -> None:
    for number, change in enumerate(("in place", "through data", "replaced")):
        bilm = BiLM.from_files(*bilm_files)
        if number % 2:
            activations(bilm)
        layer = bilm.forward_layers[1]
        with torch.no_grad():
            if change == "in place":
                layer.gate_weight.mul_(1.5)
            elif change == "through data":
                layer.gate_weight.data.mul_(1.5)
                bilm.clear_caches()
            else:
                layer.gate_weight = torch.nn.Parameter(1.5 * layer.gate_weight, False)
        fresh = BiLM(TINY_OPTIONS, kernel="reference").requires_grad_(False)
        fresh.load_state_dict(bilm.state_dict())
        assert torch.allclose(activations(bilm), activations(fresh), atol=1e-5), change
        assert not torch.allclose(activations(bilm), expected, atol=1e-3), change


def test_a_file_that_was_replaced_meanwhile_is_not_read(
    bilm_files: BiLMFiles, expected: Tensor
) -> None:
    bilm = BiLM.from_files(*bilm_files)
    randomize(BiLM(TINY_OPTIONS), seed=9).save(*bilm_files)
    assert torch.allclose(activations(bilm), expected, atol=1e-5)
    other = BiLM.from_files(*bilm_files)
    os.remove(bilm_files.weight_file)
    # Not yet packed, and the file is gone: what was mapped is still there.
    assert not torch.allclose(activations(other), expected, atol=1e-2)


def packed_objects(bilm: BiLM) -> List[int]:
    activations(bilm)
    return sorted(id(held[1]) for held in bilm._runner._packed_weights._held.values())


def test_several_elmos_of_one_file_share_what_was_packed(bilm_files: BiLMFiles) -> None:
    first, second = Elmo(*bilm_files, 1).bilm, Elmo(*bilm_files, 2).bilm
    assert packed_objects(first) == packed_objects(second)
    other_precision = BiLM.from_files(*bilm_files, precision="bfloat16", kernel="reference")
    assert not set(packed_objects(first)) & set(packed_objects(other_precision))
    with torch.no_grad():
        second.forward_layers[0].gate_weight.mul_(2)
    assert len(set(packed_objects(first)) & set(packed_objects(second))) == 3
    assert not set(packed_objects(copy.deepcopy(first))) & set(packed_objects(first))


@pytest.mark.parametrize("form", ["float16", "float64", "chunks", "compressed", "big-endian"])
def test_files_in_another_form_are_read(
    form: str, bilm_files: BiLMFiles, expected: Tensor, tmp_path: Path
) -> None:
    other = tmp_path / "other.hdf5"
    with h5py.File(bilm_files.weight_file) as source, h5py.File(other, "w") as target:

        def copy_dataset(name: str, item: object) -> None:
            if isinstance(item, h5py.Dataset):
                settings = {
                    "float16": {"dtype": "float16"},
                    "float64": {"dtype": "float64"},
                    "chunks": {"chunks": True},
                    "compressed": {"compression": "gzip"},
                    "big-endian": {"dtype": ">f4"},
                }[form]
                target.create_dataset(name, data=item[...], **settings)

        source.visititems(copy_dataset)
    bilm = BiLM.from_files(bilm_files.options_file, other)
    assert torch.allclose(activations(bilm), expected, atol=2e-2 if form == "float16" else 1e-5)


def test_a_file_with_a_user_block(bilm_files: BiLMFiles, expected: Tensor, tmp_path: Path) -> None:
    """Datasets then stand elsewhere in the file than HDF5 counts."""
    other = tmp_path / "other.hdf5"
    with (
        h5py.File(bilm_files.weight_file) as source,
        h5py.File(other, "w", userblock_size=512) as target,
    ):
        for name in source:
            source.copy(name, target)
    bilm = BiLM.from_files(bilm_files.options_file, other)
    assert torch.allclose(activations(bilm), expected, atol=1e-5)


@pytest.mark.parametrize("value", [numpy.nan, numpy.inf, -numpy.inf])
def test_a_damaged_weight_is_found_wherever_it_is(
    value: float, bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight_file, "BYTES_PER_PART", 100)
    with h5py.File(bilm_files.weight_file, "a") as file:
        file["RNN_1/RNN/MultiRNNCell/Cell1/LSTMCell/W_0"][-1, -1] = value
    with pytest.raises(ConfigurationError, match="Cell1/LSTMCell/W_0 holds NaN or infinite"):
        BiLM.from_files(*bilm_files)
