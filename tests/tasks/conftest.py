import pytest
from allennlp.models import Archive
from allennlp.predictors import Predictor


@pytest.fixture(scope="module")
def predictor(archive: Archive) -> Predictor:
    """Of a module's own archive."""
    return Predictor.from_archive(archive)
