"""Fixtures: a frozen biLM, and a cluster of Ray on this machine."""

import logging
from typing import Any, Iterator, List

import pytest

from elmo_plugin import FrozenBiLM
from tests.conftest import BiLMFiles


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Mark tests with Ray as slow: Ray and its workers take seconds to start."""
    for item in items:
        if "ray_on_two_cores" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def bilm(bilm_files: BiLMFiles) -> FrozenBiLM:
    return FrozenBiLM.from_files(*bilm_files)


@pytest.fixture(scope="module")
def ray_on_two_cores() -> Iterator[Any]:
    """The module `ray`, started on this machine as if it had two cores."""
    ray = pytest.importorskip("ray", reason="Ray (elmo_plugin[ray]) is not installed")
    pytest.importorskip("ray.data", reason="Ray Data (elmo_plugin[ray]) is not installed")
    ray.init(
        num_cpus=2,
        num_gpus=0,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    yield ray
    ray.shutdown()
