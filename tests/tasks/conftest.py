import pytest
from allennlp.models import Archive, load_archive
from allennlp.predictors import Predictor

from tests.tasks.task_testing import FIXTURES, overfitted_archive


@pytest.fixture(scope="module")
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """A model overfitted to the tiny data of the module's task. `OVERFITTING` changes its training."""
    folder = request.path.parent.name
    task = request.path.stem.removesuffix("_test") if folder == "tasks" else folder
    options = getattr(request.module, "OVERFITTING", {})
    experiment = FIXTURES / task / "tiny" / "experiment.jsonnet"
    return load_archive(overfitted_archive(experiment, tmp_path_factory.mktemp(task), **options))


@pytest.fixture(scope="module")
def predictor(archive: Archive) -> Predictor:
    return Predictor.from_archive(archive)
