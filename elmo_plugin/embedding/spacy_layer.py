"""ELMo in the models that spaCy trains: a layer from docs to vectors of tokens."""

from functools import partial
from itertools import chain as chained
from typing import Any, Callable, List, Optional, Tuple

import numpy
from spacy.tokens import Doc
from thinc.api import ArgsKwargs, Dropout, Model, PyTorchWrapper_v3, chain, torch2xp, xp2torch
from thinc.types import Floats2d
from thinc.util import get_torch_default_device
from torch import Tensor

from elmo_plugin.embedding.spacy_component import sentences_of, use_one_thread_if_forked
from elmo_plugin.embedding.trained_mix import FrozenLayers, TrainedMix


def elmo_layer(
    options_file: Optional[str],
    weight_file: Optional[str],
    width: Optional[int],
    by_sentence: bool,
    batch_size: int,
    precision: str,
    kernel: str,
    sentence_cache_mb: float,
) -> Model[List[Doc], List[Floats2d]]:
    """
    Make the layer `elmo_plugin.Elmo.v1`: a frozen biLM, and a mix of its layers that is trained with the
    model around it. It stands where spaCy expects a model from docs to vectors, as in the component
    `tok2vec`. The biLM runs where thinc does: on the GPU of `spacy train --gpu-id`, or on the CPU.

    The dropout of spaCy's training applies to the vectors. A saved pipeline holds the mix and the projection,
    not the biLM: that is loaded from the files that the config names, and must be the same.

    # Parameters

    options_file, weight_file : `str`, optional
        See `BiLM.from_files`; one is enough where it stands for both.
    width : `int`, optional
        Project the mix to this width, by a linear layer that is trained; `None` for no projection.
    by_sentence : `bool`
        See `ElmoOptions`. In training, docs have the sentence boundaries that components among spaCy's
        `annotating_components` set.
    batch_size : `int`
        Of sentences in the biLM.
    precision, kernel
        See `BiLM`.
    sentence_cache_mb : `float`
        On a CPU, MB of memory for what the biLM makes of sentences in training, see `BiLM`.

    # Raises

    `ConfigurationError` for invalid arguments, and as `BiLM.from_files`.
    """
    frozen_layers = FrozenLayers(
        options_file,
        weight_file,
        batch_size,
        precision,
        kernel,
        get_torch_default_device(),
        sentence_cache_mb,
    )
    mix = TrainedMix(frozen_layers, width)
    elmo = PyTorchWrapper_v3(
        mix, convert_inputs=partial(_read, frozen_layers, by_sentence), convert_outputs=_split
    )
    layer: Model[List[Doc], List[Floats2d]] = chain(elmo, Dropout())
    for model in (elmo, layer):
        model.set_dim("nO", mix.width)
    return layer


def _read(
    frozen_layers: FrozenLayers, by_sentence: bool, model: Model, docs: List[Doc], is_train: bool
) -> Tuple[ArgsKwargs, Callable[[Any], List[Doc]]]:
    """Return the layers of all tokens, as thinc hands them to torch."""
    use_one_thread_if_forked()
    sentences = chained.from_iterable(sentences_of(doc, by_sentence) for doc in docs)
    words = ([token.text for token in sentence] for sentence in sentences)
    layers = frozen_layers(words, is_train)
    return ArgsKwargs(args=(layers,), kwargs={}), lambda gradient: []


def _split(
    model: Model, docs_and_vectors: Tuple[List[Doc], Tensor], is_train: bool
) -> Tuple[List[Floats2d], Callable[[List[Floats2d]], ArgsKwargs]]:
    """Return the rows of each doc, `(num_tokens, width)`."""
    docs, vectors = docs_and_vectors
    rows: Any = torch2xp(vectors)

    def joined(gradients: List[Floats2d]) -> ArgsKwargs:
        gradient = xp2torch(model.ops.xp.concatenate(gradients), device=vectors.device)
        return ArgsKwargs(args=((vectors,),), kwargs={"grad_tensors": gradient})

    ends = numpy.cumsum([len(doc) for doc in docs])
    return [rows[end - len(doc) : end] for doc, end in zip(docs, ends)], joined
