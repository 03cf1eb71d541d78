"""The layer `elmo_plugin.Elmo.v1` in pipelines that spaCy trains."""

from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import numpy
import pytest
import spacy
import torch
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import load_model_from_config
from thinc.api import Config, fix_random_seed

from elmo_plugin import ElmoEmbedder
from elmo_plugin.embedding.trained_mix import TrainedMix
from elmo_plugin.errors import ConfigurationError
from tests.conftest import BiLMFiles

# As `spacy train` reads it.
CONFIG = """
[nlp]
lang = "en"
pipeline = ["tok2vec", "tagger"]

[components]

[components.tok2vec]
factory = "tok2vec"

[components.tok2vec.model]
@architectures = "elmo_plugin.Elmo.v1"
options_file = null
weight_file = null
width = 16

[components.tagger]
factory = "tagger"

[components.tagger.model]
@architectures = "spacy.Tagger.v2"

[components.tagger.model.tok2vec]
@architectures = "spacy.Tok2VecListener.v1"
width = ${components.tok2vec.model.width}
"""
TAGGED = [
    ("The bank lent money .", "DET NOUN VERB NOUN PUNCT"),
    ("It rained .", "PRON VERB PUNCT"),
    ("They sat on the bank .", "PRON VERB ADP DET NOUN PUNCT"),
]


@pytest.fixture(autouse=True)
def same_start() -> Iterator[None]:
    """The same initial values in each test."""
    state = torch.get_rng_state()
    fix_random_seed(0)
    yield
    torch.set_rng_state(state)


def tagger(files: BiLMFiles, **options: Any) -> Language:
    config = Config().from_str(CONFIG)
    config["components"]["tok2vec"]["model"].update({**files._asdict(), **options})
    return load_model_from_config(config, auto_fill=True)


def examples_of(nlp: Language) -> List[Example]:
    return [
        Example.from_dict(Doc(nlp.vocab, text.split()), {"tags": tags.split()})
        for text, tags in TAGGED
    ]


def trained(
    nlp: Language, examples: List[Example], num_epochs: int, drop: float = 0.0
) -> List[float]:
    """The losses of the component that learns from labels."""
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.02
    losses: List[float] = []
    for _ in range(num_epochs):
        of_epoch: Dict[str, float] = {}
        nlp.update(examples, sgd=optimizer, losses=of_epoch, drop=drop)
        losses.append(of_epoch[nlp.pipe_names[-1]])
    return losses


def trained_mix(nlp: Language, name: str = "tok2vec") -> TrainedMix:
    (module,) = (shim._model for node in nlp.get_pipe(name).model.walk() for shim in node.shims)
    return module


def test_a_tagger_learns_through_the_mix(tiny_files: BiLMFiles, tmp_path: Path) -> None:
    nlp = tagger(tiny_files)
    bilm = trained_mix(nlp).frozen_layers.embedder.elmo_bilm
    weights = {name: weight.clone() for name, weight in bilm.state_dict().items()}
    examples = examples_of(nlp)
    losses = trained(nlp, examples, 30, drop=0.1)
    assert losses[-1] < 0.5 * losses[0]
    mix = trained_mix(nlp).mix
    assert abs(mix.gamma.item() - 1) > 0.01
    assert mix.normalized_weights.max() - mix.normalized_weights.min() > 0.01
    for name, weight in bilm.state_dict().items():
        assert torch.equal(weight, weights[name]), name

    docs = [nlp(text) for text, _ in TAGGED]
    assert [doc.tensor.shape for doc in docs] == [(5, 16), (3, 16), (6, 16)]
    nlp.to_disk(tmp_path / "saved")
    # Not the weights of the biLM: its largest matrix alone would be larger.
    assert (tmp_path / "saved" / "tok2vec" / "model").stat().st_size < 8_000
    loaded = spacy.load(tmp_path / "saved")
    for doc in docs:
        again = loaded(doc.text)
        numpy.testing.assert_allclose(again.tensor, doc.tensor, rtol=0, atol=1e-5)
        assert [token.tag_ for token in again] == [token.tag_ for token in doc]
    # A copy of the layer in the component that uses it.
    loaded.replace_listeners("tok2vec", "tagger", ["model.tok2vec"])
    loaded.remove_pipe("tok2vec")
    assert [token.tag_ for token in loaded(docs[0].text)] == [token.tag_ for token in docs[0]]


@pytest.mark.parametrize("options, num_kept", [({}, 3), ({"sentence_cache_mb": 0}, 0)])
def test_training_reads_each_sentence_once_and_prediction_keeps_none(
    options: Dict[str, Any], num_kept: int, tiny_files: BiLMFiles, tmp_path: Path
) -> None:
    nlp = tagger(tiny_files, **options)
    trained(nlp, examples_of(nlp), 2)
    assert len(trained_mix(nlp).frozen_layers.embedder.elmo_bilm.sentence_cache) == num_kept
    nlp.to_disk(tmp_path / "saved")
    loaded = spacy.load(tmp_path / "saved")
    loaded(TAGGED[0][0])
    assert len(trained_mix(loaded).frozen_layers.embedder.elmo_bilm.sentence_cache) == 0


def test_without_a_projection_it_starts_as_the_mean_of_the_layers(tiny_files: BiLMFiles) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    model = {"@architectures": "elmo_plugin.Elmo.v1", **tiny_files._asdict()}
    nlp.add_pipe("tok2vec", config={"model": model})
    nlp.initialize()
    embedder = ElmoEmbedder(*tiny_files)
    docs = list(nlp.pipe(["It rained. We slept.", "", "Hi"]))
    for doc, sentences in zip(docs, ([["It", "rained", "."], ["We", "slept", "."]], [], [["Hi"]])):
        vectors = [embedder.embed_sentence(words).mean(axis=0) for words in sentences]
        expected = numpy.concatenate([numpy.zeros((0, 12)), *vectors])
        numpy.testing.assert_allclose(doc.tensor, expected, rtol=0, atol=1e-5)
    assert nlp("").tensor.shape == (0, 12)


def test_names_are_learnt_by_a_layer_of_their_own(tiny_files: BiLMFiles) -> None:
    nlp = spacy.blank("en")
    layer = {"@architectures": "elmo_plugin.Elmo.v1", **tiny_files._asdict()}
    nlp.add_pipe("ner", config={"model": {"tok2vec": layer}})
    texts = [("Ada lives in London .", [(0, 3, "PER"), (13, 19, "LOC")]), ("It rained .", [])]
    examples = [
        Example.from_dict(nlp.make_doc(text), {"entities": entities}) for text, entities in texts
    ]
    losses = trained(nlp, examples, 30)
    assert losses[-1] < 0.2 * losses[0]
    names = [(entity.text, entity.label_) for entity in nlp("Ada lives in London .").ents]
    assert names == [("Ada", "PER"), ("London", "LOC")]


def test_gradients_are_those_of_torch(tiny_files: BiLMFiles) -> None:
    nlp = tagger(tiny_files)
    docs = [Doc(nlp.vocab, text.split()) for text, _ in TAGGED] + [Doc(nlp.vocab)]
    vectors, backprop = nlp.get_pipe("tok2vec").model.begin_update(docs)
    generator = numpy.random.default_rng(0)
    factors = [generator.normal(size=rows.shape).astype("float32") for rows in vectors]
    backprop(factors)
    mix = trained_mix(nlp)
    found = [parameter.grad.clone() for parameter in mix.parameters()]
    mix.zero_grad()
    layers = mix.frozen_layers([word.text for word in doc] for doc in docs)  # (3, 14, 12)
    (mix(layers) * torch.from_numpy(numpy.concatenate(factors))).sum().backward()
    assert len(found) == 3 + 1 + 2
    for gradient, parameter in zip(found, mix.parameters()):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-5)


def test_models_of_many_langs() -> None:
    folder = Path(__file__).parents[2] / "fixtures" / "bilm" / "many_langs" / "both"
    nlp, loaded = (tagger(BiLMFiles(str(folder), None)) for _ in range(2))  # type: ignore[arg-type]
    nlp.initialize(lambda: examples_of(nlp))
    loaded.from_bytes(nlp.to_bytes())
    tensor = nlp("It rained .").tensor
    numpy.testing.assert_allclose(loaded("It rained .").tensor, tensor, rtol=0, atol=1e-5)


def test_another_bilm_under_the_same_name_is_an_error(
    write_bilm: Callable[..., BiLMFiles], tmp_path: Path
) -> None:
    nlp = tagger(write_bilm())
    nlp.initialize(lambda: examples_of(nlp))
    nlp.to_disk(tmp_path / "saved")
    write_bilm(seed=1)
    with pytest.raises(
        ConfigurationError, match=r"expected \w+: the biLM that this model was trained with"
    ):
        spacy.load(tmp_path / "saved")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"width": 0}, "width is 0, expected at least 1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"options_file": "missing.json"}, "cannot find missing.json"),
    ],
)
def test_wrong_options(tiny_files: BiLMFiles, options: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        tagger(tiny_files, **options)


def test_unknown_options(tiny_files: BiLMFiles) -> None:
    with pytest.raises(Exception, match="mix_weights"):
        tagger(tiny_files, mix_weights=[1.0])
