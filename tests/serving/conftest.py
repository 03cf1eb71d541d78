"""Small models of all tasks, as the server holds them."""

from typing import Dict

import pytest

pytest.importorskip("fastapi", reason="FastAPI (elmo-plugin[serve]) is not installed")

from elmo_plugin import ElmoEmbedder
from elmo_plugin.serving.answers import ServedModel, WordsInContext
from elmo_plugin.serving.options import Limits
from tests.tasks.task_testing import FIXTURES, TASKS, overfitted_archive

LIMITS = Limits(max_body=4000, max_tokens=60)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, ServedModel]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(FIXTURES.parent)  # paths in the experiments are relative to it
        archives = {
            task: overfitted_archive(
                FIXTURES / task / "tiny" / "experiment_elmo.jsonnet",
                tmp_path_factory.mktemp(task),
                num_steps=10,
            )
            for task in TASKS
        }
        return {task: ServedModel(task, archive, LIMITS) for task, archive in archives.items()}


@pytest.fixture(scope="session")
def words() -> WordsInContext:
    return WordsInContext("elmo_mini", ElmoEmbedder("elmo_mini"), LIMITS)
