import torch

from elmo_plugin.bilm.weights_version import WeightsVersion


def test_it_changes_with_the_parameters() -> None:
    module = torch.nn.Linear(2, 2)
    versions = [WeightsVersion(module)]
    with torch.no_grad():
        module.weight.add_(1.0)
    versions.append(WeightsVersion(module))
    module.weight = torch.nn.Parameter(module.weight.detach().clone())
    versions.append(WeightsVersion(module))
    module.double()
    versions.append(WeightsVersion(module))
    assert all(a != b for i, a in enumerate(versions) for b in versions[:i])
    assert WeightsVersion(module) == versions[-1]


def test_a_parameter_where_another_one_was_is_another_one() -> None:
    module = torch.nn.Linear(64, 64)
    version = WeightsVersion(module)
    for _ in range(20):
        del module.weight
        # Freed memory is given out again first.
        module.weight = torch.nn.Parameter(torch.zeros(64, 64))
        assert WeightsVersion(module) != version


def test_a_module_made_in_inference_mode_has_a_version() -> None:
    with torch.inference_mode():
        module = torch.nn.Linear(2, 2)
    assert WeightsVersion(module) == WeightsVersion(module)
