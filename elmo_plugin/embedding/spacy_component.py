"""ELMo in spaCy: the pipeline component `elmo`."""

import functools
import logging
import os
import tempfile
from itertools import chain, islice
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Union

import numpy
import srsly  # type: ignore[import-untyped]
import torch
from spacy.language import Language
from spacy.tokens import Doc, Span, Token
from spacy.util import minibatch

from elmo_plugin.bilm import BiLM
from elmo_plugin.embedding.elmo_embedder import ElmoEmbedder
from elmo_plugin.embedding.layers import LayerChoice, layer_choice, learnt_mix
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.scalar_mix import ScalarMix
from elmo_plugin_spacy import ElmoOptions

logger = logging.getLogger(__name__)

LAYER_CHOICES = ("mix", "top", "all")
# One that is forked from it has another number.
IMPORTING_PROCESS = os.getpid()
# Of a component's folder.
OPTIONS_NAME = "options.json"
WEIGHTS_NAME = "weights.hdf5"


class ElmoComponent:
    """
    Give every token of a doc the vector that a frozen biLM has for it:
    `nlp.add_pipe("elmo", config={"options_file": "elmo_mini"})`.

    It fills `doc.tensor`, `(num_tokens, dim)`, one row per spaCy token, and with `layers="all"` also
    `doc._.elmo_layers`, `(num_layers, num_tokens, dim)`, token representation first; that is `None`
    otherwise, for a mix is no layer. `vector`, `has_vector`, `vector_norm` and `similarity` of tokens, spans
    and the doc go by `doc.tensor`; a span or doc has the mean of its tokens. The same word in two contexts
    has two vectors, and a similarity below 1.

    A token of white space is a word of these characters, an unusual one for a biLM. `<S>` and `</S>` as
    tokens are taken for sentence marks.

    Where to put it: after what sets sentence boundaries, and after a `tok2vec` component, which writes to
    `doc.tensor` too; the last one wins.

    What is kept of a doc: `doc.to_bytes()` and `DocBin(store_user_data=True)` write `doc.tensor` and
    `doc._.elmo_layers`, but no hooks (spaCy warns of that, W109), and neither do the workers of
    `nlp.pipe(..., n_process=2)` send them. Without hooks spaCy still takes vectors from `doc.tensor`, if the
    pipeline has no word vectors of its own, but says that equal words have similarity 1.
    `add_vector_hooks(doc)` gives them back.

    Such workers are forked on Linux. In a forked process the component lets torch use one thread, and says so
    in the log: threads that torch started before are not there any more, and it would wait for them forever.
    So take as many workers as there are cores. A biLM on a GPU cannot run in a process that is forked after
    it was loaded: that is an error. With `multiprocessing.set_start_method("spawn")` workers are new
    processes, each with a biLM of its own.

    A saved pipeline holds options and weights, and stands alone: `spacy.load` reads those, and does not look
    for the files that the config names.

    # Parameters

    nlp : `Language`
        The pipeline.
    name : `str`
        Of the component in it.
    options : `ElmoOptions`
        The config.

    # Raises

    `ConfigurationError` for invalid options; for files as `BiLM.from_files` does. In a pipeline that is being
    loaded, what depends on the biLM is checked when that is.
    """

    def __init__(self, nlp: Language, name: str, options: ElmoOptions) -> None:
        _check_options(options)
        self.name = name
        self.options = options
        # Both `None` only until a saved pipeline brings its own files.
        self._embedder: Optional[ElmoEmbedder] = None
        self._choice: Optional[LayerChoice] = None  # makes `doc.tensor` of layers
        self._embedder_process = os.getpid()
        if not Doc.has_extension("elmo_layers"):
            Doc.set_extension("elmo_layers", default=None)
        if not _is_being_loaded(nlp, name):
            self._embed_with_files(options.options_file, options.weight_file)

    @property
    def embedder(self) -> ElmoEmbedder:
        """What runs the biLM."""
        if self._embedder is None:  # loaded from a pipeline, but without this component's folder
            self._embed_with_files(self.options.options_file, self.options.weight_file)
        assert self._embedder is not None
        return self._embedder

    def __call__(self, doc: Doc) -> Doc:
        """Fill one doc, and return it. For many, `pipe` is faster."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """
        Fill docs; the sentences of several go through the biLM together.

        # Parameters

        stream : `Iterable[Doc]`
            May be endless.
        batch_size : `int`, optional (default = `128`)
            Docs to read ahead. Their vectors are made while they are given out, so that a large number takes
            little memory.

        # Returns

        A generator of the same docs, in their order.

        # Raises

        `ConfigurationError` if the biLM is on a GPU and this process was forked after that.
        """
        self._check_fork()
        for docs in minibatch(stream, batch_size):
            sentences_of = [self._sentences(doc) for doc in docs]
            sentences = chain.from_iterable(sentences_of)
            vectors = self.embedder.embed_sentences(
                sentences, self.options.batch_size, self.options.batch_tokens
            )
            for doc, own_sentences in zip(docs, sentences_of):
                self._fill(doc, list(islice(vectors, len(own_sentences))))
                yield doc

    # spaCy passes `exclude` to the following: names of parts to leave out, of which there are none here.

    def to_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> None:
        """Write `options.json` and `weights.hdf5` into the folder, which is made if it is not there."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.embedder.elmo_bilm.save(folder / OPTIONS_NAME, folder / WEIGHTS_NAME)

    def from_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> "ElmoComponent":
        """
        Use the biLM of a folder that `to_disk` wrote, in place of any other.

        # Raises

        `ConfigurationError` as the constructor does.
        """
        folder = Path(path)
        self._embed_with_files(folder / OPTIONS_NAME, folder / WEIGHTS_NAME)
        return self

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """The two files as bytes, as many as the weights take."""
        with tempfile.TemporaryDirectory() as folder:
            self.to_disk(folder)
            files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
        content: bytes = srsly.msgpack_dumps(files)
        return content

    def from_bytes(self, content: bytes, *, exclude: Iterable[str] = ()) -> "ElmoComponent":
        """
        Use the biLM that `to_bytes` gave, in place of any other.

        # Raises

        `ConfigurationError` as the constructor does.
        """
        with tempfile.TemporaryDirectory() as folder:
            for name, file_content in srsly.msgpack_loads(content).items():
                Path(folder, name).write_bytes(file_content)
            return self.from_disk(folder)

    def _embed_with_files(
        self, options_file: Union[str, Path, None], weight_file: Union[str, Path, None]
    ) -> None:
        options = self.options
        bilm = BiLM.from_files(
            options_file, weight_file, precision=options.precision, kernel=options.kernel
        )
        embedder = ElmoEmbedder.from_bilm(bilm, options.cuda_device)
        weights = options.mix_weights
        if weights is not None and len(weights) != bilm.num_layers:
            raise ConfigurationError(
                f"mix_weights has {len(weights)} values ({weights}), expected {bilm.num_layers}: one for the "
                "token representation and one for each LSTM layer."
            )
        mix = ScalarMix(bilm.num_layers, initial_scalar_parameters=weights, trainable=False)
        mix.gamma.data.fill_(options.gamma)
        self._choice = (
            layer_choice("top") if options.layers == "top" else learnt_mix(mix, self.name)
        )
        self._embedder = embedder
        self._embedder_process = os.getpid()

    def __setstate__(self, state: Dict[str, Any]) -> None:
        # A process that is started, not forked, has its copy of the biLM by pickle.
        self.__dict__.update(state)
        self._embedder_process = os.getpid()

    def _check_fork(self) -> None:
        process, cuda_device = os.getpid(), self.options.cuda_device
        if process != IMPORTING_PROCESS:
            _use_one_thread(process)
        is_loaded = self._embedder is not None
        if is_loaded and cuda_device >= 0 and process != self._embedder_process:
            raise ConfigurationError(
                f"The component {self.name} has cuda_device {cuda_device}, but runs in a forked process "
                "(nlp.pipe makes them for n_process > 1), where no GPU can be used. Leave n_process at its "
                'default of 1, or call multiprocessing.set_start_method("spawn") first, or set cuda_device '
                "to -1."
            )

    def _sentences(self, doc: Doc) -> List[List[str]]:
        """The words of each sentence; none of an empty doc."""
        if len(doc) == 0:
            return []
        sentences: Iterable[Iterable[Token]] = [doc]
        if self.options.by_sentence and doc.has_annotation("SENT_START"):
            sentences = doc.sents
        return [[token.text for token in sentence] for sentence in sentences]

    def _fill(self, doc: Doc, vectors: Sequence[numpy.ndarray]) -> None:
        """`vectors`: of each sentence, `(num_layers, num_tokens, dim)`."""
        shape = (self.embedder.num_layers, 0, self.embedder.get_output_dim())
        # (num_layers, num_tokens of the doc, dim)
        layers = numpy.concatenate([numpy.zeros(shape, dtype=numpy.float32), *vectors], axis=1)
        assert self._choice is not None
        doc.tensor = self._choice(layers).copy()  # a view would keep all layers in memory
        if self.options.layers == "all":
            doc._.elmo_layers = layers
        add_vector_hooks(doc)


def add_vector_hooks(doc: Doc) -> None:
    """
    Let vectors and similarities of a doc, its spans and tokens go by `doc.tensor`, `(num_tokens, dim)`.

    `ElmoComponent` does so. A doc that comes from bytes, or from a worker of `nlp.pipe`, needs it again.
    """
    doc.user_hooks.update(
        has_vector=_has_vector, vector=_vector, vector_norm=_norm, similarity=_similarity
    )
    # Not vector_norm: spaCy 3.8 gives the result of the hook for vectors there. Its own norm is right.
    doc.user_span_hooks.update(has_vector=_has_vector, vector=_vector, similarity=_similarity)
    doc.user_token_hooks.update(
        has_vector=_has_vector, vector=_vector, vector_norm=_norm, similarity=_similarity
    )


# Once in a process, so that a user can set another number after it.
@functools.lru_cache(maxsize=1)
def _use_one_thread(process_id: int) -> None:
    # OpenMP would wait for threads that are not there, but with one thread it needs no other.
    torch.set_num_threads(1)
    logger.info("Process %d was forked: torch uses one thread in it.", process_id)


def _is_being_loaded(nlp: Language, name: str) -> bool:
    """
    Whether this component is made while a saved pipeline is loaded, which brings its weights afterwards.

    The names of its components are in the meta data that it was saved with. `nlp.meta` would replace them by
    those of the components that are there already, so that the private attribute below it is read.
    """
    return nlp.path is None and name in nlp._meta.get("components", ())


def _check_options(options: ElmoOptions) -> None:
    BatchOptions(options.batch_size, options.batch_tokens)
    layers, mix_weights, gamma = options.layers, options.mix_weights, options.gamma
    if layers not in LAYER_CHOICES:
        raise ConfigurationError(
            f"layers is '{layers}', expected one of {', '.join(LAYER_CHOICES)}."
        )
    if layers == "top" and (mix_weights is not None or gamma != 1.0):
        raise ConfigurationError(
            f"layers is 'top', which mixes nothing, but mix_weights is {mix_weights} and gamma is {gamma}. "
            "Leave them out, or set layers to 'mix'."
        )
    # spaCy accepts lists of anything. It refuses NaN and infinity, which are no JSON.
    if not all(isinstance(weight, (int, float)) for weight in mix_weights or ()):
        raise ConfigurationError(f"mix_weights is {mix_weights}, expected numbers.")


# Hooks are functions of the module, so that docs can be pickled.


def _rows(tokens: Union[Doc, Span, Token]) -> numpy.ndarray:
    """`(num_tokens, dim)`."""
    if isinstance(tokens, Doc):
        return tokens.tensor
    if isinstance(tokens, Span):
        return tokens.doc.tensor[tokens.start : tokens.end]
    return tokens.doc.tensor[tokens.i : tokens.i + 1]


def _has_vector(tokens: Union[Doc, Span, Token]) -> bool:
    return len(_rows(tokens)) > 0


def _vector(tokens: Union[Doc, Span, Token]) -> numpy.ndarray:
    """`(dim,)`. Zeros if there are no tokens."""
    rows = _rows(tokens)
    if isinstance(tokens, Token):
        return rows[0]
    return rows.sum(axis=0) / max(len(rows), 1)


def _norm(tokens: Union[Doc, Token]) -> float:
    return float(numpy.linalg.norm(_vector(tokens)))


def _similarity(tokens: Union[Doc, Span, Token], other: Any) -> float:
    """
    Cosine of the two vectors, 0 if one of them is zero. spaCy's own would first compare the words, and
    give 1 for the same ones in whatever context.
    """
    vector, other_vector = _vector(tokens), other.vector
    norms = float(numpy.linalg.norm(vector) * numpy.linalg.norm(other_vector))
    return float(numpy.dot(vector, other_vector)) / norms if norms > 0 else 0.0
