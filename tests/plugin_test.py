"""What loading the plugin does beside registering: the rest is tested where it belongs."""

import os
import subprocess
import sys
from typing import List

import pytest
import torch

from elmo_plugin import plugin


@pytest.mark.parametrize("most, chosen", [(1, [1]), (3, [3]), (4, []), (8, [])])
def test_torch_has_no_more_threads_than_a_quota_allows(
    most: int, chosen: List[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to: List[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    monkeypatch.setattr(plugin, "most_threads", lambda: most)
    plugin.limit_threads()
    assert set_to == chosen


QUOTA = """
import torch
from elmo_plugin import cpus
cpus.cpu_quota = lambda: 1.0
import elmo_plugin.plugin
assert torch.get_num_threads() == 1
"""


def test_loading_the_plugin_limits_threads() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    subprocess.run([sys.executable, "-c", QUOTA], env=environment, check=True, timeout=120)
