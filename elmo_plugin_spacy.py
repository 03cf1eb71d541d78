"""
Where spaCy finds the components `elmo` and `elmo_ner`, their options, and the layer `elmo_plugin.Elmo.v1`.

spaCy imports the modules of all its entry points whenever a pipeline is made. This one imports the package,
and with it torch, only when a component is used.
"""

import inspect
from dataclasses import dataclass
from typing import Any, List, Optional

import spacy
from spacy.language import Language


@dataclass(frozen=True)
class ElmoOptions:
    """
    What the config of the component `elmo` may hold.

    # Parameters

    options_file, weight_file : `str`, optional
        See `BiLM.from_files`; one is enough where it stands for both.
    layers : `str`, optional (default = `"mix"`)
        `mix`, a weighted sum of the layers; `top`, the last one; or `all`, where `doc.tensor` has the mix.
    mix_weights : `List[float]`, optional (default = all 0, the mean of the layers)
        One per layer, token representation first, before the softmax (paper, eq. 1). Not for `top`.
    gamma : `float`, optional (default = `1.0`)
        Scale of the mix. Not for `top`.
    by_sentence : `bool`, optional (default = `True`)
        Embed each sentence by itself, as ELMo was trained, if the doc has sentence boundaries. A doc
        without, or any doc with `False`, is one sentence.
    batch_size, batch_tokens : `int`, optional (default = `64` and `None`)
        Of sentences in the biLM, see `ElmoEmbedder.embed_sentences`.
    cuda_device, precision, kernel
        See `ElmoEmbedder`.
    """

    options_file: Optional[str] = None
    weight_file: Optional[str] = None
    layers: str = "mix"
    mix_weights: Optional[List[float]] = None
    gamma: float = 1.0
    by_sentence: bool = True
    batch_size: Optional[int] = 64
    batch_tokens: Optional[int] = None
    cuda_device: int = -1
    precision: str = "float32"
    kernel: str = "auto"


@dataclass(frozen=True)
class ElmoNerOptions:
    """
    What the config of the component `elmo_ner` may hold.

    # Parameters

    archive : `str`, optional (default = `"elmo_ner_mini"`)
        A tagger: the name of one that comes with this package, or the archive or training folder of a model
        of type `elmo_ner`.
    by_sentence : `bool`, optional (default = `True`)
        See `ElmoOptions`.
    batch_size : `int`, optional (default = `64`)
        Of sentences in the tagger.
    cuda_device : `int`, optional (default = `-1`)
        Index of the GPU; -1 for the CPU.
    """

    archive: str = "elmo_ner_mini"
    by_sentence: bool = True
    batch_size: int = 64
    cuda_device: int = -1


def make_elmo(nlp: Language, name: str, **options: Any) -> Any:
    """Make an `elmo_plugin.embedding.spacy_component.ElmoComponent` with these `ElmoOptions`."""
    from elmo_plugin.embedding.spacy_component import ElmoComponent

    return ElmoComponent(nlp, name, ElmoOptions(**options))


def make_elmo_ner(nlp: Language, name: str, **options: Any) -> Any:
    """Make an `elmo_plugin.tasks.ner.spacy_component.ElmoNerComponent` with these `ElmoNerOptions`."""
    from elmo_plugin.tasks.ner.spacy_component import ElmoNerComponent

    return ElmoNerComponent(nlp, name, ElmoNerOptions(**options))


@spacy.registry.architectures("elmo_plugin.Elmo.v1")
def make_elmo_layer(
    options_file: Optional[str] = None,
    weight_file: Optional[str] = None,
    width: Optional[int] = None,
    by_sentence: bool = True,
    batch_size: int = 64,
    precision: str = "float32",
    kernel: str = "auto",
    sentence_cache_mb: float = 1_000,
) -> Any:
    """Make the layer of `elmo_plugin.embedding.spacy_layer.elmo_layer` with these arguments."""
    from elmo_plugin.embedding.spacy_layer import elmo_layer

    return elmo_layer(
        options_file,
        weight_file,
        width,
        by_sentence,
        batch_size,
        precision,
        kernel,
        sentence_cache_mb,
    )


for make, options_class in ((make_elmo, ElmoOptions), (make_elmo_ner, ElmoNerOptions)):
    # spaCy checks the values of a config by the signature of the factory.
    make.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            *list(inspect.signature(make).parameters.values())[:2],
            *inspect.signature(options_class).parameters.values(),
        ]
    )
Language.factory(
    "elmo", func=make_elmo, assigns=["doc.tensor", "doc._.elmo_layers", "token.vector"]
)
Language.factory("elmo_ner", func=make_elmo_ner, assigns=["doc.ents", "doc.tensor", "token.vector"])
