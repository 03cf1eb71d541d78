"""Numbers are compared within a derived limit (`assert_close`), or the documented one (`assert_accurate`)."""

import math
from typing import Any, Optional, Union

import numpy
import torch
from torch import Tensor

# The distance from 1 to the next number. int8: numbers are multiples of 1/127 of the largest in their row.
SPACINGS = {
    torch.float64: torch.finfo(torch.float64).eps,
    torch.float32: torch.finfo(torch.float32).eps,
    torch.float16: torch.finfo(torch.float16).eps,
    torch.bfloat16: torch.finfo(torch.bfloat16).eps,
    torch.int8: 1 / 127,
}

# The accuracy that the documentation promises, of vectors and gradients in float32: beside AllenNLP's and
# elmoformanylangs', and of a sentence in any batch, on any kernel and by any exported program.
DOCUMENTED_ACCURACY = 1e-5


def assert_close(
    actual: Any,
    expected: Any,
    terms: int = 1,
    scale: Optional[float] = None,
    dtype: Union[torch.dtype, str, None] = None,
    roundings: int = 1,
    equal_nan: bool = False,
) -> None:
    """
    Check that two computations of the same numbers differ by no more than rounding explains.

    A sum of n terms is rounded n times. Each rounding changes it by at most half the spacing of
    floating-point numbers at that size, `spacing * scale / 2`, evenly distributed; its standard deviation is
    `spacing * scale / sqrt(12)`. Roundings are nearly independent: n of them have `sqrt(n)` times that. A
    processor that sums in another order has an error of the same size, so the standard deviation of the
    difference is `sqrt(2 * n / 12) * spacing * scale`, about 0.4 * sqrt(n) spacings. The limit

        2 * sqrt(terms) * spacing * scale

    is five of these, even if every partial sum is as large as the largest. It depends on no processor.

    Products of bfloat16, float16 and int8 are summed in float32. Their error arises before the sum: where
    the numbers to be rounded differ in the last place of float32, two computations may round them to
    neighbors. Even if this happens to half of the terms, sums of random signs differ by one spacing of the
    low precision in relation to their size, whatever the number of terms. torch then rounds sums of bfloat16
    to neighbors, too: at most one spacing more, so that a product may differ by two. A chain of k such
    products adds up k of these errors, which are nearly independent. The limit is then

        2 * (sqrt(terms) * float32's spacing + sqrt(roundings) * the low precision's spacing) * scale

    # Parameters

    actual, expected
        Tensors, numpy arrays, numbers or nested lists of numbers, of the same shape.
    terms : `int`
        The number of values that are summed on the way to a number. For a chain of sums, such as the layers
        of a network or the steps of an LSTM, the sum of their lengths.
    scale : `float`
        The largest magnitude of what is summed: of terms and partial sums. Default: of `expected`. State it
        where terms cancel, such as in a mean around 0 or in a loss that is the difference of two logits.
    dtype : `torch.dtype` or its name
        The precision in which products are computed. Default: the less precise one of the two tensors. State
        it for numbers that are Python floats, and for products of rounded numbers that give float32.
    roundings : `int`
        The number of times that numbers are rounded to a low precision on the way to a number, one after the
        other: of the layers of a network or the steps of an LSTM. Without effect in float32 and float64.
    equal_nan : `bool`
        Whether NaN equals NaN.
    """
    if dtype is None:
        precision = max(_precision(actual), _precision(expected), key=SPACINGS.__getitem__)
    else:
        precision = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    expected_tensor = _float64(expected)
    if scale is None:
        scale = _largest(expected_tensor)
    limit = largest_difference(precision, terms, scale, roundings)
    about = f"The limit is that of {precision} for {terms} terms of up to {scale:.6g}."
    _compare(_float64(actual), expected_tensor, limit, about, equal_nan)


def assert_accurate(actual: Any, expected: Any) -> None:
    """Check that no number differs by more than the documented accuracy; of lists, in one after the other."""
    if isinstance(expected, (list, tuple)):
        for one, other in zip(actual, expected, strict=True):
            assert_accurate(one, other)
        return
    if isinstance(actual, Tensor) and isinstance(expected, Tensor):
        assert actual.dtype == expected.dtype
    about = f"The documented accuracy is {DOCUMENTED_ACCURACY}."
    _compare(_float64(actual), _float64(expected), DOCUMENTED_ACCURACY, about)


def assert_share(is_drawn: Tensor, probability: float) -> None:
    """
    Check that the share of independent draws that are `True` has this probability: that it differs by less
    than five standard deviations of such a share.
    """
    deviation = math.sqrt(probability * (1 - probability) / is_drawn.numel())
    assert 5 * deviation < min(probability, 1 - probability), "too few draws: no share would fail"
    assert abs(float(is_drawn.double().mean()) - probability) < 5 * deviation


def largest_difference(dtype: torch.dtype, terms: int, scale: float, roundings: int = 1) -> float:
    """Return the limit that `assert_close` explains."""
    if dtype in (torch.float64, torch.float32):
        return 2 * math.sqrt(terms) * SPACINGS[dtype] * scale
    sums = math.sqrt(terms) * SPACINGS[torch.float32]
    return 2 * (sums + math.sqrt(roundings) * SPACINGS[dtype]) * scale


def _compare(
    actual: Tensor, expected: Tensor, limit: float, about: str, equal_nan: bool = False
) -> None:
    """Compare in float64, so that the comparison itself rounds nothing."""
    torch.testing.assert_close(
        actual,
        expected,
        rtol=0,
        atol=limit,
        equal_nan=equal_nan,
        msg=lambda message: f"{message}\n{about}",
    )


def _float64(numbers: Any) -> Tensor:
    """Return a copy of the numbers on the CPU. By itself torch makes float32 of Python's floats."""
    if isinstance(numbers, Tensor):
        return numbers.detach().cpu().double()
    return torch.from_numpy(numpy.array(numbers, dtype=numpy.float64))


def _precision(numbers: Any) -> torch.dtype:
    """Return the type of a tensor or an array; Python floats and whole numbers are as good as float64."""
    if isinstance(numbers, Tensor) or hasattr(numbers, "dtype"):
        dtype = torch.as_tensor(numbers).dtype
        if dtype.is_floating_point:
            return dtype
    return torch.float64


def _largest(tensor: Tensor) -> float:
    """Return the largest finite magnitude, 0 if there is none."""
    finite = tensor[tensor.isfinite()]
    return float(finite.abs().max()) if finite.numel() > 0 else 0.0
