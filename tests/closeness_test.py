from typing import List

import numpy as np
import pytest
import torch

from tests import closeness
from tests.closeness import SPACINGS, assert_close, assert_share, largest_difference


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("terms", [1, 10, 1000, 100_000])
def test_sums_in_another_order_are_close(terms: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    values = 2 * torch.rand(terms, 50, generator=generator, dtype=dtype) - 1
    forwards, backwards = values.cumsum(0), values.flip(0).cumsum(0)
    scale = float(torch.stack([forwards, backwards]).abs().max())
    assert_close(backwards[-1], forwards[-1], terms=terms, scale=scale)


def test_the_limit_finds_an_error_of_a_wrong_term() -> None:
    values = torch.rand(1000, 50, generator=torch.Generator().manual_seed(0))
    with pytest.raises(AssertionError, match=r"torch\.float32 for 1000 terms of up to 5"):
        assert_close(values[1:].sum(0), values.sum(0), terms=1000)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8], ids=str)
def test_products_of_a_low_precision_are_close_if_half_of_the_factors_are_rounded_to_neighbors(
    dtype: torch.dtype,
) -> None:
    generator = torch.Generator().manual_seed(0)
    rows, weight = (torch.randn(size, generator=generator) for size in ((20, 400), (400, 30)))
    largest = rows.abs().amax(dim=1, keepdim=True) if dtype is torch.int8 else rows.abs()
    # -1, 0, 0 or 1, with equal probability.
    change = torch.randint(0, 2, (2, *rows.shape), generator=generator).diff(dim=0)[0]
    other_rows = rows + change * SPACINGS[dtype] / 2 * largest
    assert_close(other_rows @ weight, rows @ weight, terms=400, dtype=dtype)
    with pytest.raises(AssertionError):
        assert_close(other_rows @ weight, rows @ weight, terms=400)


@pytest.mark.parametrize(
    "actual, expected, limit",
    [
        (torch.ones(2), torch.ones(2), 2**-22),
        (torch.ones(2), torch.ones(2).double(), 2**-22),
        (np.ones(2, dtype=np.float16), torch.ones(2), 2 * (2**-10 + 2**-23)),
        ([1.0, 1.0], torch.ones(2).double(), 2**-51),
        (1.0, -4, 2**-49),
        (torch.full((2,), 3.0), torch.tensor([0.0, torch.inf]), 0.0),
    ],
    ids=["float32", "less precise", "numpy", "list", "numbers", "infinite"],
)
def test_the_limit_follows_from_types_and_sizes(
    actual: object, expected: object, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: List[float] = []
    monkeypatch.setattr(closeness, "_compare", lambda *arguments: limits.append(arguments[2]))
    assert_close(actual, expected)
    assert limits == [limit]


def test_shapes_and_what_is_not_a_number() -> None:
    for actual, expected in (([1.0], [[1.0]]), ([torch.nan], [1.0]), ([torch.nan], [torch.nan])):
        with pytest.raises(AssertionError):
            assert_close(actual, expected)
    assert_close([torch.nan, 1.0], [torch.nan, 1.0], equal_nan=True)
    assert_close([], [])


def test_a_difference_up_to_the_limit_passes() -> None:
    limit = largest_difference(torch.float32, 4, 2.0)
    assert limit == 8 * 2**-23
    assert_close(2.0 + limit / 2, 2.0, terms=4, dtype="float32")
    with pytest.raises(AssertionError):
        assert_close(2.0 + 3 * limit, 2.0, terms=4, dtype=torch.float32)


def test_a_share_may_differ_by_less_than_five_standard_deviations() -> None:
    # The share of 10,000 draws of probability 0.1 has a standard deviation of 0.003.
    draws = torch.arange(10_000)
    for num_true in (851, 1149):
        assert_share(draws < num_true, 0.1)
    for num_true in (849, 1151):
        with pytest.raises(AssertionError):
            assert_share(draws < num_true, 0.1)
