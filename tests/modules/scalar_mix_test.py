from typing import Any, List

import pytest
import torch
from torch import Tensor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules import ScalarMix
from tests.closeness import assert_close
from tests.conftest import of_allennlp

MASK = torch.tensor([[True, True, True], [True, False, False]])


def layers() -> List[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [3 * torch.randn(2, 3, 4, generator=generator) + layer for layer in range(3)]


@pytest.mark.parametrize("do_layer_norm", [False, True])
@pytest.mark.parametrize("weights", [None, [0.5, -1.0, 2.0], [-9e10, 1, -9e10]])
def test_values_and_gradients_equal_those_of_allennlp(do_layer_norm: bool, weights: list) -> None:
    ours = ScalarMix(3, do_layer_norm, weights)
    theirs = of_allennlp("modules.ScalarMix")(3, do_layer_norm, weights)
    for mix in (ours, theirs):
        mix.gamma.data.fill_(1.7)
    inputs = [layer.requires_grad_(True) for layer in layers()]
    their_inputs = [layer.requires_grad_(True) for layer in layers()]
    mixed, expected = ours(inputs, MASK), theirs(their_inputs, MASK)
    # The softmax and the mix; the mean and the variance of the layer norm, over 4 real tokens of width 4.
    terms = 3 + 3 + 2 * 16
    largest = 1.7 * max(float(layer.detach().abs().max()) for layer in inputs)
    assert_close(mixed, expected, terms, scale=largest)
    mixed.pow(2).sum().backward()
    expected.pow(2).sum().backward()
    for ours_input, their_input in zip(inputs, their_inputs, strict=True):
        # 2 * mixed * weight, through the layer norm again.
        assert_close(ours_input.grad, their_input.grad, 2 * terms, scale=2 * 1.7 * largest)
    # Sums over 2 * 3 * 4 numbers of 2 * mixed * layer, with both signs.
    scale = float(2 * expected.detach().abs().sum() * largest)
    for name, parameter in ours.named_parameters():
        their_parameter = theirs.get_parameter(name)
        assert_close(parameter.grad, their_parameter.grad, 2 * terms + 24, scale)


def test_padding_does_not_change_layer_norm_of_real_tokens() -> None:
    mix = ScalarMix(3, do_layer_norm=True)
    changed = [layer.clone() for layer in layers()]
    for layer in changed:
        layer[1, 1:] = 100.0
    expected = mix(layers(), MASK)[MASK]
    # Mean and variance over 4 real tokens of width 4; padding adds zeros. Values of up to 10 are subtracted.
    assert_close(mix(changed, MASK)[MASK], expected, terms=2 * 16 + 3, scale=10.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_layer_norm_of_a_large_batch_in_16_bits(dtype: torch.dtype) -> None:
    # Sums of squares are above 65,504, the largest number of float16.
    generator = torch.Generator().manual_seed(0)
    layer = (torch.randn(4, 1000, 64, generator=generator) + 1).to(dtype)
    mask = torch.ones(4, 1000, dtype=torch.bool)
    mix = ScalarMix(1, do_layer_norm=True)
    expected = mix([layer.float()], mask).detach()
    mixed = mix.to(dtype)([layer], mask)
    assert mixed.dtype == dtype
    # Rounded after the normalization and after the mix, and 1e-4 in place of 1e-13 beside a variance of 1.
    tolerance = (2 * torch.finfo(dtype).eps + 1e-4) * float(expected.abs().max())
    torch.testing.assert_close(mixed.float(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    "weights, message",
    [
        ([0.0, 1.0], r"scalar_mix_parameters is \[0\.0, 1\.0\], expected a list of 3"),
        (1.0, r"scalar_mix_parameters is 1\.0, expected a list of 3 numbers"),
        ("000", r"scalar_mix_parameters is '000', expected a list of 3 numbers"),
        *(
            ([0.0, value, 1.0], "expected finite numbers of float32")
            # The last two are infinite only in float32, and no float.
            for value in (float("nan"), float("inf"), "0.5", None, 1e39, 10**400)
        ),
    ],
)
def test_wrong_weights_are_an_error(weights: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ScalarMix(3, initial_scalar_parameters=weights)


def test_a_wrong_number_of_layers_and_a_missing_mask_are_errors() -> None:
    with pytest.raises(ValueError, match="Got 2 layers to mix, expected 3"):
        ScalarMix(3)(layers()[:2])
    with pytest.raises(ValueError, match="needs the mask"):
        ScalarMix(3, do_layer_norm=True)(layers())
