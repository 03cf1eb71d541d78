"""The recipe for flair in docs/outside_allennlp.md; skipped where flair is not installed."""

from pathlib import Path
from typing import Any, Dict

import numpy
import pytest
import torch

from elmo_plugin import ElmoEmbedder
from tests.conftest import BiLMFiles
from tests.markdown_blocks import code_blocks

flair = pytest.importorskip("flair", reason="flair is not installed")

from flair.data import Sentence  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "outside_allennlp.md"
# Documented, of sentences in any batch: `ElmoEmbedder`.
BATCH_ACCURACY = 1e-5


@pytest.fixture
def embeddings(bilm_files: BiLMFiles, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(flair, "device", torch.device("cpu"))
    (recipe,) = code_blocks(PAGE.read_text(encoding="utf-8"), "py")
    names: Dict[str, Any] = {"__name__": "recipe"}
    exec(compile(recipe.text, str(PAGE), "exec"), names)
    return names["ElmoEmbeddings"](**bilm_files._asdict())


def test_vectors_are_the_mean_of_the_layers(embeddings: Any, bilm_files: BiLMFiles) -> None:
    sentences = [Sentence(text.split()) for text in ("The bank lent money .", "It rained .")]
    embeddings.embed(sentences)
    for sentence in sentences:
        layers = ElmoEmbedder(*bilm_files).embed_sentence([token.text for token in sentence])
        vectors = torch.stack([token.embedding for token in sentence]).numpy()
        assert vectors.shape == (len(sentence), embeddings.embedding_length)
        numpy.testing.assert_allclose(vectors, layers.mean(axis=0), rtol=0, atol=BATCH_ACCURACY)
