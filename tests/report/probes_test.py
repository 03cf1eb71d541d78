import numpy
import torch

from elmo_plugin import BiLM
from elmo_plugin.pretraining.starting_point import load_start
from elmo_plugin.report.probes import ProbeOptions, named_layers
from tests.conftest import TINY_OPTIONS


def test_precision_and_kernel_are_options() -> None:
    given = ProbeOptions(
        output="", model="elmo_mini", precision="bfloat16", kernel="reference", seeds=(1,)
    )
    for _, _, embedder in given.embedders(load_start(given.model).bilm):  # and the control
        bilm = embedder.elmo_bilm
        assert (bilm.precision, bilm.kernel) == ("bfloat16", "reference")


def test_random_weights_depend_only_on_the_seed() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    bilm = BiLM(TINY_OPTIONS)
    torch.manual_seed(5)
    options = ProbeOptions(model="elmo_mini", output="", seeds=(1, 2))
    first, again = (
        {seeds: embedder.embed_sentence(["a"]) for _, seeds, embedder in options.embedders(bilm)}
        for _ in range(2)
    )
    assert list(first) == [(1, 2), (1,), (2,)]
    # A seed promises the same random numbers.
    assert all(numpy.array_equal(first[seeds], again[seeds]) for seeds in first)
    assert not numpy.array_equal(first[(1,)], first[(2,)])
    assert torch.equal(torch.rand(1), expected)


def test_the_mean_of_the_layers_is_the_last() -> None:
    layers = dict(named_layers(numpy.arange(6.0).reshape(3, 2, 1)))
    assert layers["2"].tolist() == [[4.0], [5.0]]
    assert layers["mean of all"].tolist() == [[2.0], [3.0]]
