import pytest
import torch
from allennlp.common import Params
from allennlp.nn import Initializer


def test_values_are_normal_without_the_tails():
    torch.manual_seed(13)
    values = torch.empty(200, 200)
    Initializer.from_params(Params({"type": "elmo_truncated_normal", "mean": 1.0, "std": 0.05}))(
        values
    )
    assert 0.9 <= values.min() < 0.901
    assert 1.099 < values.max() <= 1.1
    assert values.mean().item() == pytest.approx(1.0, abs=0.001)
    # Without what is beyond two standard deviations, 0.88 of one is left.
    assert values.std().item() == pytest.approx(0.05 * 0.8796, rel=0.02)
