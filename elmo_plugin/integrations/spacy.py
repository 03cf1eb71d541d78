"""
ELMo in spaCy: the component `elmo`, which sets vectors, and the layer `elmo_plugin.Elmo.v1` of models that
spaCy trains. spaCy finds both by the entry points of this package.
"""

import hashlib
import itertools
import logging
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Union

import numpy
import srsly  # type: ignore[import-untyped]
import torch
from spacy.language import Language
from spacy.tokens import Doc, Span, Token
from spacy.util import minibatch
from thinc.api import ArgsKwargs, Dropout, Model, PyTorchWrapper_v3, chain, torch2xp, xp2torch
from thinc.types import Floats2d
from thinc.util import get_torch_default_device
from torch import Tensor

from elmo_plugin.bilm import BiLM, FrozenBiLM
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.scalar_mix import ScalarMix

logger = logging.getLogger(__name__)

LAYER_CHOICES = ("mix", "top", "all")
FileName = Union[str, Path, None]


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

    A token of white space is read as a word of these characters, which is unusual input for a biLM. The
    tokens `<S>` and `</S>` are read as sentence marks. Put the component after the one that sets sentence
    boundaries, and after a `tok2vec` component, which sets `doc.tensor` too.

    Docs from bytes, and docs from the workers of `nlp.pipe(..., n_process=2)`, have their vectors, but not
    the hooks for similarities, see `add_vector_hooks`. On Linux such workers are forked. In a forked process
    the component limits torch to one thread, and logs it: torch would wait forever for its threads, which a
    fork does not copy. torch refuses a GPU in a forked process; call
    `multiprocessing.set_start_method("spawn")` first.

    A saved pipeline includes options and weights. `spacy.load` reads these, not the files named in the
    config.

    # Parameters

    nlp, name
        The pipeline, and the name of the component in it.
    options_file, weight_file : `str`, optional
        See `BiLM.from_files`. If one name stands for both files, leave out the other.
    layers : `str`, optional (default = `"mix"`)
        `mix`, a weighted sum of the layers; `top`, the last one; or `all`, where `doc.tensor` has the mix.
    scalar_mix_parameters : `List[float]`, optional (default = all 0, the mean of the layers)
        One weight per layer, token representation first, before the softmax (paper, eq. 1). Not for `top`.
    gamma : `float`, optional (default = `1.0`)
        Scale of the mix. Not for `top`.
    by_sentence : `bool`, optional (default = `True`)
        Embed each sentence by itself, as ELMo was trained, if the doc has sentence boundaries. A doc
        without, or any doc with `False`, is one sentence.
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
    gamma: float = 1.0
    by_sentence: bool = True
    batch_size: int = 64
    cuda_device: int = -1
    precision: str = "float32"
    kernel: str = "auto"

    def __post_init__(self) -> None:
        if self.layers not in LAYER_CHOICES:
            raise ConfigurationError(
                f"layers is '{self.layers}', expected one of {', '.join(LAYER_CHOICES)}."
            )
        if self.layers == "top" and (self.scalar_mix_parameters is not None or self.gamma != 1.0):
            raise ConfigurationError(
                f"layers is 'top', but scalar_mix_parameters is {self.scalar_mix_parameters} and gamma is "
                f"{self.gamma}, which the last layer does not use. Leave them out, or set layers to 'mix'."
            )
        BatchOptions(self.batch_size)
        if not Doc.has_extension("elmo_layers"):
            Doc.set_extension("elmo_layers", default=None)
        self._files: Tuple[FileName, FileName] = (self.options_file, self.weight_file)
        # Both are `None` only until the files of a saved pipeline are loaded: its metadata name its
        # components. (The property `nlp.meta` would return the components that exist already.)
        self._embedder: Optional[ElmoEmbedder] = None
        self._checksum: Optional[str] = None
        if self.nlp.path is not None or self.name not in self.nlp._meta.get("components", ()):
            self._load()

    @property
    def embedder(self) -> ElmoEmbedder:
        """The embedder, which runs the biLM."""
        if self._embedder is None:  # a pipeline was loaded without the folder of this component
            self._load()
        assert self._embedder is not None
        return self._embedder

    def __call__(self, doc: Doc) -> Doc:
        """Set the vectors of one doc, and return it. For many docs, `pipe` is faster."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """
        Set the vectors of docs, of which `batch_size` are read ahead, and yield them in their order. The
        sentences of several docs are batched together.
        """
        use_one_thread_if_forked()
        for docs in minibatch(stream, batch_size):
            sentences_of = [sentences_in(doc, self.by_sentence) for doc in docs]
            sentences = itertools.chain.from_iterable(sentences_of)
            layers = self.embedder.embed_sentences(sentences, self.batch_size)
            for doc, of_doc in zip(docs, sentences_of):
                layers_of_doc = itertools.islice(layers, len(of_doc))
                self._set_vectors(doc, side_by_side(self.embedder, layers_of_doc))
                yield doc

    # spaCy passes `exclude`, the names of parts to leave out. This component has none.

    def to_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> None:
        """
        Write options and weights into the folder, which is made if it does not exist. They are read again
        from their files. Raise `ConfigurationError` if these have changed since the component was made.
        """
        bilm = BiLM.from_files(*self._files)
        checksum = bilm_checksum(bilm.freeze())
        if self._checksum not in (None, checksum):
            raise ConfigurationError(
                f"{' and '.join(map(str, filter(None, self._files)))}: found another biLM than the one that "
                f"the component '{self.name}' has loaded. Restore the files, or add the component again."
            )
        Path(path).mkdir(parents=True, exist_ok=True)
        bilm.save(*_paths_in(path))

    def from_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> "ElmoComponent":
        """Load the files that `to_disk` wrote. Raise `ConfigurationError` as the constructor."""
        self._files = _paths_in(path)
        self._load()
        return self

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return the files of `to_disk` as bytes."""
        with TemporaryDirectory() as folder:
            self.to_disk(folder)
            files = {path.name: path.read_bytes() for path in _paths_in(folder)}
        content: bytes = srsly.msgpack_dumps(files)
        return content

    def from_bytes(self, content: bytes, *, exclude: Iterable[str] = ()) -> "ElmoComponent":
        """Load what `to_bytes` returned. Raise `ConfigurationError` as the constructor."""
        folder = TemporaryDirectory()
        for name, file_content in srsly.msgpack_loads(content).items():
            Path(folder.name, name).write_bytes(file_content)
        self.from_disk(folder.name)
        self._folder = folder  # not deleted before the component, since `to_disk` reads it again
        return self

    def __getstate__(self) -> Dict[str, Any]:
        # For processes that are spawned: neither the pipeline nor a second owner of the folder.
        kept_here = ("nlp", "_folder")
        return {name: value for name, value in self.__dict__.items() if name not in kept_here}

    def _load(self) -> None:
        self._embedder = ElmoEmbedder(
            *self._files,
            cuda_device=self.cuda_device,
            precision=self.precision,
            kernel=self.kernel,
        )
        self._checksum = bilm_checksum(self._embedder.elmo_bilm)
        num_layers = self._embedder.num_layers
        self._weights = numpy.eye(num_layers, dtype="float32")[-1]  # (num_layers,), of `top`
        if self.layers != "top":
            mix = ScalarMix(num_layers, initial_scalar_parameters=self.scalar_mix_parameters)
            self._weights = self.gamma * mix.normalized_weights.detach().numpy()

    def _set_vectors(self, doc: Doc, layers: numpy.ndarray) -> None:
        """Set the vectors of a doc from the layers of its tokens, `(num_layers, num_tokens, dim)`."""
        doc.tensor = numpy.tensordot(self._weights, layers, axes=1)
        if self.layers == "all":
            doc._.elmo_layers = layers
        add_vector_hooks(doc)


def _paths_in(folder: Union[str, Path]) -> Tuple[Path, Path]:
    return Path(folder, "options.json"), Path(folder, "weights.hdf5")


def elmo_layer(
    options_file: Optional[str] = None,
    weight_file: Optional[str] = None,
    width: Optional[int] = None,
    by_sentence: bool = True,
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
    by_sentence : `bool`, optional (default = `True`)
        See `ElmoComponent`. In training, docs have the sentence boundaries that components among spaCy's
        `annotating_components` set.
    sentence_cache_mb : `float`, optional (default = `250`)
        Memory, in MB, for the layers of sentences that training reads again in each epoch.
    options_file, weight_file, batch_size, precision, kernel
        See `ElmoComponent`.

    # Raises

    `ConfigurationError` for invalid arguments, and as `BiLM.from_files`; when a pipeline is loaded, if the
    biLM is not the one that the mix was trained with.
    """
    if width is not None and width < 1:
        raise ConfigurationError(f"width is {width}, expected at least 1, or null for none.")
    device = get_torch_default_device()
    embedder = ElmoEmbedder(
        options_file,
        weight_file,
        cuda_device=-1 if device.type == "cpu" else device.index or 0,
        precision=precision,
        kernel=kernel,
        sentence_cache_mb=sentence_cache_mb,
    )
    frozen_layers = FrozenLayers(embedder, batch_size)
    checksum = bilm_checksum(embedder.elmo_bilm)
    mix = TrainedMix(embedder.num_layers, embedder.get_output_dim(), width, checksum)
    read = partial(_read, frozen_layers, by_sentence)
    elmo = PyTorchWrapper_v3(mix, convert_inputs=read, convert_outputs=_split)
    layer: Model[List[Doc], List[Floats2d]] = chain(elmo, Dropout())
    for model in (elmo, layer):
        model.set_dim("nO", width or embedder.get_output_dim())
    return layer


class FrozenLayers:
    """
    Compute the layers of sentences with a frozen biLM, which keeps those of training for the next epochs.
    Copies share the biLM.
    """

    def __init__(self, embedder: ElmoEmbedder, batch_size: int) -> None:
        BatchOptions(batch_size)
        self.embedder = embedder
        self.batch_size = batch_size

    def __deepcopy__(self, memo: Any) -> "FrozenLayers":
        return self

    def __call__(self, sentences: Iterable[List[str]], is_training: bool) -> numpy.ndarray:
        """Return the layers of the tokens of all sentences, `(num_layers, num_tokens, dim)`."""
        layers = self.embedder.embed_sentences(
            sentences, self.batch_size, keep_sentences=is_training
        )
        return side_by_side(self.embedder, layers)


class TrainedMix(torch.nn.Module):
    """
    Mix the layers of a frozen biLM, and project the mix to `width`. The checksum of the biLM is part of the
    state dict: to load that of a mix which was trained with another biLM is a `ConfigurationError`.
    """

    def __init__(self, num_layers: int, dim: int, width: Optional[int], checksum: str) -> None:
        super().__init__()
        self.mix = ScalarMix(num_layers)
        self.projection = torch.nn.Identity() if width is None else torch.nn.Linear(dim, width)
        self._checksum = checksum

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
    frozen_layers: FrozenLayers, by_sentence: bool, model: Model, docs: List[Doc], is_train: bool
) -> Tuple[ArgsKwargs, Callable[[Any], List[Doc]]]:
    """Return the layers of all tokens, as thinc passes them to torch."""
    use_one_thread_if_forked()
    sentences = itertools.chain.from_iterable(sentences_in(doc, by_sentence) for doc in docs)
    layers = torch.from_numpy(frozen_layers(sentences, is_train)).to(get_torch_default_device())
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


def sentences_in(doc: Doc, by_sentence: bool) -> List[List[str]]:
    """
    Return the tokens of each sentence; an empty doc has no sentence. A doc without sentence boundaries, or
    any doc if `by_sentence` is false, is one sentence.
    """
    if len(doc) == 0:
        return []
    has_boundaries = by_sentence and doc.has_annotation("SENT_START")
    return [[token.text for token in part] for part in (doc.sents if has_boundaries else [doc])]


def side_by_side(embedder: ElmoEmbedder, layers: Iterable[numpy.ndarray]) -> numpy.ndarray:
    """Concatenate the layers of any number of sentences: `(num_layers, num_tokens, dim)`."""
    empty = numpy.zeros((embedder.num_layers, 0, embedder.get_output_dim()), dtype="float32")
    return numpy.concatenate([empty, *layers], axis=1)


def bilm_checksum(bilm: FrozenBiLM) -> str:
    """Return the SHA-256 of the options and weights of a biLM."""
    return hashlib.sha256(f"{bilm.options} {bilm.weights_sha256}".encode()).hexdigest()


_process = os.getpid()  # the one whose number of threads is as it should be


def use_one_thread_if_forked() -> None:
    """
    Limit torch to one thread if this process was forked, as those of `nlp.pipe(n_process=2)` on Linux. This
    happens once in a process, so that another number of threads can be set afterwards.
    """
    global _process
    if os.getpid() != _process:
        _process = os.getpid()
        # OpenMP would wait for threads that the fork did not copy.
        torch.set_num_threads(1)
        logger.info("Process %d was forked: torch uses one thread in it.", _process)


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
    if isinstance(tokens, Token):
        return rows[0]
    return rows.sum(axis=0) / max(len(rows), 1)


def _similarity(tokens: Union[Doc, Span, Token], other: Any) -> float:
    """
    Return the cosine similarity, or 0 if a vector is zero. spaCy's own function would return 1 for equal
    words in any contexts.
    """
    vector, other_vector = _vector(tokens), other.vector
    norms = float(numpy.linalg.norm(vector) * numpy.linalg.norm(other_vector))
    return float(numpy.dot(vector, other_vector)) / norms if norms > 0 else 0.0
