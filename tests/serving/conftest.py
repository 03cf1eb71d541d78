"""Small models of all tasks, as the server holds them."""

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

pytest.importorskip("fastapi", reason="FastAPI (elmo-plugin[serve]) is not installed")

from elmo_plugin import ElmoEmbedder
from elmo_plugin.serving.senses import SenseFinder
from elmo_plugin.serving.served_model import ServedModel

REPOSITORY = Path(__file__).parents[2]
EARLIER = REPOSITORY / "fixtures" / "earlier"
TASKS = ("coref", "ner", "snli", "squad", "srl", "sst")
MAX_TOKENS = 60


def examples(task: str) -> List[Dict[str, Any]]:
    """Inputs of a task, each with the answer of a small model."""
    return [
        json.loads(line) for line in (EARLIER / f"{task}.jsonl").read_text("utf-8").splitlines()
    ]


@pytest.fixture(scope="session")
def models() -> Dict[str, ServedModel]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(REPOSITORY)  # paths in the archives are relative to it
        return {task: ServedModel(task, EARLIER / f"{task}.tar.gz", MAX_TOKENS) for task in TASKS}


@pytest.fixture(scope="session")
def senses() -> SenseFinder:
    return SenseFinder("elmo_mini", ElmoEmbedder("elmo_mini"), MAX_TOKENS)
