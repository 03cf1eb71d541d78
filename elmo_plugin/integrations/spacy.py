"""
ELMo in spaCy: the component `elmo`, which sets vectors, and the layer `elmo_plugin.Elmo.v1` of models that
spaCy trains. spaCy finds both by the entry points of this package.
"""

from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import numpy
import thinc.api
import torch
from spacy.language import Language
from spacy.tokens import Doc, Span, Token
from spacy.util import minibatch
from thinc.api import ArgsKwargs, Dropout, Model, PyTorchWrapper_v3, torch2xp, xp2torch
from thinc.types import Floats2d
from thinc.util import get_torch_default_device
from torch import Tensor

from elmo_plugin.bilm import FrozenBiLM
from elmo_plugin.bilm.model_files import resolve_model_files
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.layers import cosine_similarities
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.errors import ConfigurationError, check_choice, check_positive
from elmo_plugin.modules.scalar_mix import ScalarMix

LAYER_CHOICES = ("mix", "top", "all")


@Language.factory("elmo", assigns=["doc.tensor", "doc._.elmo_layers", "token.vector"])
@dataclass(eq=False)
class ElmoComponent:
    """
    Give every token of a doc its vector from a frozen biLM:
    `nlp.add_pipe("elmo", config={"options_file": "elmo_mini"})`.

    The component sets `doc.tensor`, `(num_tokens, dim)`, one row per spaCy token. With `layers="all"` it also
    sets `doc._.elmo_layers`, `(num_layers, num_tokens, dim)`, token representation first; otherwise that is
    `None`. `vector`, `has_vector`, `vector_norm` and `similarity` of tokens, spans and the doc use
    `doc.tensor`; the vector of a span or doc is the mean of its tokens.

    Each sentence is embedded separately, as ELMo was trained. A doc without sentence boundaries is one
    sentence. Tokens of white space are read as words, which are unusual input for a biLM, and `<S>` and
    `</S>` as sentence marks. Put the component after the one that sets sentence boundaries, and after a
    `tok2vec` component, which sets `doc.tensor` too.

    A saved pipeline holds the names of the files, not the biLM: `spacy.load` reads the files again.

    Docs from bytes, and docs from the workers of `nlp.pipe(..., n_process=2)`, have their vectors, but not
    the hooks for similarities, see `add_vector_hooks`. On Linux such workers are forked, and torch uses one
    thread in them. torch refuses a GPU in a forked process; call
    `multiprocessing.set_start_method("spawn")` first.

    # Parameters

    nlp, name
        The pipeline, and the name of the component in it.
    options_file, weight_file : `str`
        See `BiLM.from_files`. One name is enough for both, such as `elmo_mini`; leave out the other.
    layers : `str`, optional (default = `"mix"`)
        `mix`, a weighted sum of the layers; `top`, the last one; or `all`, where `doc.tensor` has the mix.
    scalar_mix_parameters : `List[float]`, optional (default = all 0, the mean of the layers)
        One weight per layer, token representation first, before the softmax (paper, eq. 1). Not for `top`.
    batch_size : `int`, optional (default = `64`)
        Number of sentences in a batch.
    cuda_device, precision, kernel
        See `ElmoEmbedder`.

    # Raises

    `ConfigurationError` for invalid options, and as `BiLM.from_files`.
    """

    # spaCy checks a config by the types of these fields, and takes their defaults.
    nlp: Language = field(repr=False)
    name: str
    options_file: Optional[str] = None
    weight_file: Optional[str] = None
    layers: str = "mix"
    scalar_mix_parameters: Optional[List[float]] = None
    batch_size: int = 64
    cuda_device: int = -1
    precision: str = "float32"
    kernel: str = "auto"

    def __post_init__(self) -> None:
        del self.nlp  # it would be pickled with the component, for processes that are spawned
        check_choice("layers", self.layers, LAYER_CHOICES)
        BatchOptions(self.batch_size)
        if self.layers == "top" and self.scalar_mix_parameters is not None:
            raise ConfigurationError(
                f"layers is 'top', but scalar_mix_parameters is {self.scalar_mix_parameters}, which the last "
                "layer does not use. Leave them out, or set layers to 'mix'."
            )
        settings: Dict[str, Any] = {"precision": self.precision, "kernel": self.kernel}
        files = resolve_model_files(self.options_file, self.weight_file)
        self._embedder = ElmoEmbedder(*files, self.cuda_device, **settings)
        num_layers = self._embedder.num_layers
        mix = ScalarMix(num_layers, initial_scalar_parameters=self.scalar_mix_parameters)
        self._weights = mix.normalized_weights.detach().numpy()  # (num_layers,)
        if self.layers == "top":
            self._weights = numpy.eye(num_layers, dtype="float32")[-1]
        if not Doc.has_extension("elmo_layers"):
            Doc.set_extension("elmo_layers", default=None)

    def __call__(self, doc: Doc) -> Doc:
        """Set the vectors of one doc, and return it. For many docs, `pipe` is faster."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """
        Set the vectors of docs, of which `batch_size` are read ahead, and yield them in their order. The
        sentences of several docs are batched together.
        """
        for docs in minibatch(stream, batch_size):
            layers_of_docs = _layers_of_docs(self._embedder, self.batch_size, docs)
            for doc, layers in zip(docs, layers_of_docs):
                doc.tensor = numpy.tensordot(self._weights, layers, axes=1)
                if self.layers == "all":
                    doc._.elmo_layers = layers
                add_vector_hooks(doc)
                yield doc


def elmo_layer(
    options_file: Optional[str] = None,
    weight_file: Optional[str] = None,
    width: Optional[int] = None,
    batch_size: int = 64,
    precision: str = "float32",
    kernel: str = "auto",
    sentence_cache_mb: float = 250,
) -> Model[List[Doc], List[Floats2d]]:
    """
    Make the layer `elmo_plugin.Elmo.v1`: a frozen biLM, and a mix of its layers that is trained with the
    model around it. It can be used where spaCy expects a model from docs to vectors, as in the component
    `tok2vec`. The biLM runs where thinc does: on the GPU of `spacy train --gpu-id`, or on the CPU.

    The dropout of spaCy's training applies to the vectors. A saved pipeline holds the mix and the projection,
    not the biLM: that is loaded from the files that the config names, and must be the same.

    # Parameters

    width : `int`, optional
        Project the mix to this width, by a linear layer that is trained; `None` for no projection.
    sentence_cache_mb : `float`, optional (default = `250`)
        Memory, in MB, for the layers of sentences that training reads again in each epoch.
    others
        See `ElmoComponent`. In training, docs have the sentence boundaries that components among spaCy's
        `annotating_components` set.

    # Raises

    `ConfigurationError` for invalid arguments, and as `BiLM.from_files`; when a pipeline is loaded, if the
    biLM is not the one that the mix was trained with (thinc's `ValueError`, if it has another width too).
    """
    BatchOptions(batch_size)
    check_positive("width", width)
    device = get_torch_default_device()
    bilm = FrozenBiLM.from_files(
        *resolve_model_files(options_file, weight_file),
        device,
        precision=precision,
        kernel=kernel,
        sentence_cache_mb=sentence_cache_mb,
    )
    embedder = ElmoEmbedder.from_bilm(bilm)
    elmo = PyTorchWrapper_v3(
        TrainedMix(embedder, width),
        # A copy of the layer shares the biLM.
        convert_inputs=partial(_read, embedder, batch_size),
        convert_outputs=_split,
    )
    layer: Model[List[Doc], List[Floats2d]] = thinc.api.chain(elmo, Dropout())
    for model in (elmo, layer):
        model.set_dim("nO", width or embedder.get_output_dim())
    return layer


def _layers_of_docs(
    embedder: ElmoEmbedder, batch_size: int, docs: Sequence[Doc], keep_sentences: bool = False
) -> Iterator[numpy.ndarray]:
    """Yield the layers of the tokens of each doc, `(num_layers, num_tokens, dim)`."""
    sentences_of = [_sentences(doc) for doc in docs]
    sentences = chain.from_iterable(sentences_of)
    layers = embedder.embed_sentences(sentences, batch_size, keep_sentences=keep_sentences)
    for own_sentences in sentences_of:
        yield numpy.concatenate(list(islice(layers, len(own_sentences))), axis=1)


def _sentences(doc: Doc) -> List[List[str]]:
    """Return the tokens of each sentence. An empty doc is an empty sentence."""
    has_boundaries = len(doc) > 0 and doc.has_annotation("SENT_START")
    return [[token.text for token in part] for part in (doc.sents if has_boundaries else [doc])]


class TrainedMix(torch.nn.Module):
    """
    Mix the layers of a frozen biLM, and project the mix to `width`. The checksum of the biLM is part of the
    state dict: to load that of a mix which was trained with another biLM is a `ConfigurationError`.
    """

    def __init__(self, embedder: ElmoEmbedder, width: Optional[int]) -> None:
        super().__init__()
        self.mix = ScalarMix(embedder.num_layers)
        self.projection = (
            torch.nn.Identity()
            if width is None
            else torch.nn.Linear(embedder.get_output_dim(), width)
        )
        self._checksum = embedder.checksum

    def forward(self, layers: Tensor) -> Tensor:
        """Mix `(num_layers, num_tokens, dim)` to `(num_tokens, width)`."""
        return self.projection(self.mix(list(layers)))

    def get_extra_state(self) -> str:
        """Return the checksum of the biLM, which torch puts into the state dict."""
        return self._checksum

    def set_extra_state(self, state: str) -> None:
        """Compare the biLM with the checksum of a state dict."""
        if self._checksum != state:
            raise ConfigurationError(
                "options_file and weight_file: found a biLM whose options and weights have the SHA-256 "
                f"{self._checksum}, expected {state}: the biLM that this model was trained with. Give its "
                "files."
            )


def _read(
    embedder: ElmoEmbedder, batch_size: int, model: Model, docs: List[Doc], is_train: bool
) -> Tuple[ArgsKwargs, Callable[[Any], List[Doc]]]:
    """Return the layers of all tokens, as thinc passes them to torch."""
    layers_of_docs = _layers_of_docs(embedder, batch_size, docs, keep_sentences=is_train)
    layers = numpy.concatenate(list(layers_of_docs), axis=1)
    tensor = torch.from_numpy(layers).to(get_torch_default_device())
    return ArgsKwargs(args=(tensor,), kwargs={}), lambda gradient: []


def _split(
    model: Model, docs_and_vectors: Tuple[List[Doc], Tensor], is_train: bool
) -> Tuple[List[Floats2d], Callable[[List[Floats2d]], ArgsKwargs]]:
    """Return the rows of each doc, `(num_tokens, width)`."""
    docs, vectors = docs_and_vectors

    def joined(gradients: List[Floats2d]) -> ArgsKwargs:
        gradient = xp2torch(model.ops.flatten(gradients), device=vectors.device)
        return ArgsKwargs(args=((vectors,),), kwargs={"grad_tensors": gradient})

    lengths: Any = [len(doc) for doc in docs]
    rows: Any = torch2xp(vectors)
    return model.ops.unflatten(rows, lengths), joined


def add_vector_hooks(doc: Doc) -> None:
    """
    Set hooks that take vectors and similarities of a doc, its spans and tokens from `doc.tensor`,
    `(num_tokens, dim)`. `ElmoComponent` sets them, but bytes do not keep them (spaCy's warning W109). Without
    them spaCy takes vectors from `doc.tensor` only if the pipeline has no word vectors, and gives equal words
    the similarity 1.
    """
    for hooks in (doc.user_hooks, doc.user_span_hooks, doc.user_token_hooks):
        hooks.update(has_vector=_has_vector, vector=_vector, similarity=_similarity)
    doc.vector_norm = None  # type: ignore[assignment] # spaCy computes it again, from the vector


# The hooks are functions of the module, so that docs can be pickled.


def _rows(tokens: Union[Doc, Span, Token]) -> numpy.ndarray:
    """Return the vectors of the tokens, `(num_tokens, dim)`."""
    if isinstance(tokens, Token):
        return tokens.doc.tensor[tokens.i : tokens.i + 1]
    span = tokens[:]
    return span.doc.tensor[span.start : span.end]


def _has_vector(tokens: Union[Doc, Span, Token]) -> bool:
    return len(_rows(tokens)) > 0


def _vector(tokens: Union[Doc, Span, Token]) -> numpy.ndarray:
    """Return the mean of the vectors of the tokens, `(dim,)`; zeros if there are no tokens."""
    rows = _rows(tokens)
    return rows.sum(axis=0) / max(len(rows), 1)


def _similarity(tokens: Union[Doc, Span, Token], other: Any) -> float:
    vectors = _vector(tokens), other.vector
    if len(vectors[0]) != len(vectors[1]):  # of another kind, or of a pipeline without vectors
        return 0.0
    return float(cosine_similarities(*(vector[None] for vector in vectors))[0, 0])
