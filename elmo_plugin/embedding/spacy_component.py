"""ELMo in spaCy: the pipeline component `elmo`, and what the component of a task shares with it."""

import functools
import logging
import os
import tempfile
from itertools import chain, islice
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Union

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
# A process forked from this one has another id.
IMPORTING_PROCESS = os.getpid()
# Files in the folder of a saved component.
OPTIONS_NAME = "options.json"
WEIGHTS_NAME = "weights.hdf5"


class SentenceComponent:
    """
    Base class of components that read the sentences of docs in batches, and are saved as a folder of files. A
    component defines `_load`, `_is_loaded`, `_results`, `_fill`, `to_disk` and `from_disk`.

    # Parameters

    nlp : `Language`
        The pipeline.
    name : `str`
        Name of the component in the pipeline.
    options : `ElmoOptions` or `ElmoNerOptions`
        The config.
    """

    def __init__(self, nlp: Language, name: str, options: Any) -> None:
        self.name = name
        self.options = options
        self._loading_process = os.getpid()
        # Files of a saved pipeline are loaded later.
        if not _is_being_loaded(nlp, name):
            self._load()

    def __call__(self, doc: Doc) -> Doc:
        """Process one doc, and return it. For many docs, `pipe` is faster."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """
        Process docs. The sentences of several docs are batched together.

        # Parameters

        stream : `Iterable[Doc]`
            The docs; may be endless.
        batch_size : `int`, optional (default = `128`)
            Number of docs to read ahead. Their vectors are computed while they are yielded, so a large number
            takes little memory.

        # Returns

        A generator of the same docs, in their order.

        # Raises

        `ConfigurationError` if the biLM is on a GPU and this process was forked after that.
        """
        self._check_fork()
        for docs in minibatch(stream, batch_size):
            sentences_of = [self._sentences(doc) for doc in docs]
            if not self._is_loaded():  # loaded from a pipeline, but without this component's folder
                self._load()
            results = self._results(chain.from_iterable(sentences_of))
            for doc, sentences in zip(docs, sentences_of):
                self._fill(doc, sentences, list(islice(results, len(sentences))))
                yield doc

    # spaCy passes `exclude`, the names of parts to leave out. Components here have none.

    def to_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> None:
        """Write the files of the component into the folder, which is made if it does not exist."""
        raise NotImplementedError

    def from_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> Any:
        """
        Load the files of a folder that `to_disk` wrote, and return the component.

        # Raises

        `ConfigurationError` as the constructor.
        """
        raise NotImplementedError

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return the files of `to_disk` as bytes."""
        with tempfile.TemporaryDirectory() as folder:
            self.to_disk(folder)
            files = {
                path.relative_to(folder).as_posix(): path.read_bytes()
                for path in sorted(Path(folder).rglob("*"))
                if path.is_file()
            }
        content: bytes = srsly.msgpack_dumps(files)
        return content

    def from_bytes(self, content: bytes, *, exclude: Iterable[str] = ()) -> Any:
        """
        Load the bytes that `to_bytes` returned, and return the component.

        # Raises

        `ConfigurationError` as the constructor.
        """
        with tempfile.TemporaryDirectory() as folder:
            for name, file_content in srsly.msgpack_loads(content).items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file_content)
            return self.from_disk(folder)

    def __setstate__(self, state: Dict[str, Any]) -> None:
        # A process that is spawned, not forked, gets its own biLM by pickle.
        self.__dict__.update(state)
        self._loading_process = os.getpid()

    def _check_fork(self) -> None:
        use_one_thread_if_forked()
        process, cuda_device = os.getpid(), self.options.cuda_device
        if self._is_loaded() and cuda_device >= 0 and process != self._loading_process:
            raise ConfigurationError(
                f"The component {self.name} has cuda_device {cuda_device}, but runs in a forked process "
                "(nlp.pipe forks for n_process > 1), where no GPU can be used. Leave n_process at its "
                'default of 1, or call multiprocessing.set_start_method("spawn") first, or set cuda_device '
                "to -1."
            )

    def _sentences(self, doc: Doc) -> List[List[Token]]:
        return sentences_of(doc, self.options.by_sentence)

    def _load(self) -> None:
        """Load what the config names."""
        raise NotImplementedError

    def _is_loaded(self) -> bool:
        raise NotImplementedError

    def _results(self, sentences: Iterable[List[Token]]) -> Iterator[Any]:
        """Yield what `_fill` needs of each sentence."""
        raise NotImplementedError

    def _fill(self, doc: Doc, sentences: List[List[Token]], results: List[Any]) -> None:
        """Set the attributes of a doc, with a result for each of its sentences."""
        raise NotImplementedError


class ElmoComponent(SentenceComponent):
    """
    Give every token of a doc its vector from a frozen biLM:
    `nlp.add_pipe("elmo", config={"options_file": "elmo_mini"})`.

    The component sets `doc.tensor`, `(num_tokens, dim)`, one row per spaCy token. With `layers="all"` it also
    sets `doc._.elmo_layers`, `(num_layers, num_tokens, dim)`, token representation first; otherwise that is
    `None`. `vector`, `has_vector`, `vector_norm` and `similarity` of tokens, spans and the doc use
    `doc.tensor`; the vector of a span or doc is the mean of its tokens. A word has different vectors in
    different contexts.

    A token of white space is read as a word of these characters, which is unusual input for a biLM. The
    tokens `<S>` and `</S>` are read as sentence marks.

    Order of components: put it after the one that sets sentence boundaries, and after a `tok2vec` component,
    which sets `doc.tensor` too.

    Serialization: `doc.to_bytes()` and `DocBin(store_user_data=True)` keep `doc.tensor` and
    `doc._.elmo_layers`, but not the vector hooks (spaCy's warning W109). Docs from the workers of
    `nlp.pipe(..., n_process=2)` have no hooks either. Without hooks spaCy still takes vectors from
    `doc.tensor` if the pipeline has no word vectors, but gives equal words the similarity 1.
    `add_vector_hooks(doc)` sets the hooks again.

    On Linux such workers are forked. In a forked process the component limits torch to one thread and logs
    it: torch would wait forever for its threads, which a fork does not copy. Use as many workers as cores. A
    biLM on a GPU cannot run in a process that was forked after it was loaded: this is an error. With
    `multiprocessing.set_start_method("spawn")` workers are new processes, and each has its own biLM.

    A saved pipeline includes options and weights. `spacy.load` reads these, not the files named in the
    config.

    # Parameters

    nlp, name
        See `SentenceComponent`.
    options : `ElmoOptions`
        The config.

    # Raises

    `ConfigurationError` for invalid options, and as `BiLM.from_files`. While a pipeline is being loaded,
    options that depend on the biLM are checked after the biLM is loaded.
    """

    def __init__(self, nlp: Language, name: str, options: ElmoOptions) -> None:
        BatchOptions(options.batch_size, options.batch_tokens)
        _check_options(options)
        # Both are `None` only until the files of a saved pipeline are loaded.
        self._embedder: Optional[ElmoEmbedder] = None
        self._choice: Optional[LayerChoice] = None  # from layers to `doc.tensor`
        if not Doc.has_extension("elmo_layers"):
            Doc.set_extension("elmo_layers", default=None)
        super().__init__(nlp, name, options)

    @property
    def embedder(self) -> ElmoEmbedder:
        """The embedder, which runs the biLM."""
        if self._embedder is None:
            self._load()
        assert self._embedder is not None
        return self._embedder

    def to_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> None:
        """Write `options.json` and `weights.hdf5` into the folder, which is made if it does not exist."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.embedder.elmo_bilm.save(folder / OPTIONS_NAME, folder / WEIGHTS_NAME)

    def from_disk(self, path: Union[str, Path], *, exclude: Iterable[str] = ()) -> "ElmoComponent":
        """
        Load the biLM from a folder that `to_disk` wrote.

        # Raises

        `ConfigurationError` as the constructor.
        """
        folder = Path(path)
        self._embed_with_files(folder / OPTIONS_NAME, folder / WEIGHTS_NAME)
        return self

    def _load(self) -> None:
        self._embed_with_files(self.options.options_file, self.options.weight_file)

    def _is_loaded(self) -> bool:
        return self._embedder is not None

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
        self._loading_process = os.getpid()

    def _results(self, sentences: Iterable[List[Token]]) -> Iterator[numpy.ndarray]:
        """Yield the layers of each sentence, `(num_layers, num_tokens, dim)`."""
        words = ([token.text for token in sentence] for sentence in sentences)
        return self.embedder.embed_sentences(
            words, self.options.batch_size, self.options.batch_tokens
        )

    def _fill(self, doc: Doc, sentences: List[List[Token]], results: List[numpy.ndarray]) -> None:
        shape = (self.embedder.num_layers, 0, self.embedder.get_output_dim())
        # (num_layers, num_tokens of the doc, dim)
        layers = numpy.concatenate([numpy.zeros(shape, dtype=numpy.float32), *results], axis=1)
        assert self._choice is not None
        doc.tensor = self._choice(layers).copy()  # a view would keep all layers in memory
        if self.options.layers == "all":
            doc._.elmo_layers = layers
        add_vector_hooks(doc)


def add_vector_hooks(doc: Doc) -> None:
    """
    Set hooks that take vectors and similarities of a doc, its spans and tokens from `doc.tensor`,
    `(num_tokens, dim)`.

    `ElmoComponent` sets them. A doc that was made from bytes or by a worker of `nlp.pipe` needs them again.
    """
    doc.user_hooks.update(
        has_vector=_has_vector, vector=_vector, vector_norm=_norm, similarity=_similarity
    )
    # Not vector_norm: spaCy 3.8 would call the vector hook in its place. spaCy's own norm is right.
    doc.user_span_hooks.update(has_vector=_has_vector, vector=_vector, similarity=_similarity)
    doc.user_token_hooks.update(
        has_vector=_has_vector, vector=_vector, vector_norm=_norm, similarity=_similarity
    )


def sentences_of(doc: Doc, by_sentence: bool) -> List[List[Token]]:
    """
    Return the tokens of each sentence; an empty doc has no sentence. A doc without sentence boundaries, or
    any doc if `by_sentence` is false, is one sentence.
    """
    if len(doc) == 0:
        return []
    sentences: Iterable[Iterable[Token]] = [doc]
    if by_sentence and doc.has_annotation("SENT_START"):
        sentences = doc.sents
    return [list(sentence) for sentence in sentences]


def use_one_thread_if_forked() -> None:
    """Limit torch to one thread if this process was forked, as those of `nlp.pipe(n_process=2)` on Linux."""
    if os.getpid() != IMPORTING_PROCESS:
        _use_one_thread(os.getpid())


# Once in a process, so that the user can set another number of threads afterwards.
@functools.lru_cache(maxsize=1)
def _use_one_thread(process_id: int) -> None:
    # OpenMP would wait for threads that the fork did not copy.
    torch.set_num_threads(1)
    logger.info("Process %d was forked: torch uses one thread in it.", process_id)


def _is_being_loaded(nlp: Language, name: str) -> bool:
    """
    Return whether this component is made for a saved pipeline, whose weights are loaded afterwards.

    The metadata of a saved pipeline name its components. The property `nlp.meta` would return the components
    that exist already, so the private attribute is read.
    """
    return nlp.path is None and name in nlp._meta.get("components", ())


def _check_options(options: ElmoOptions) -> None:
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
    # spaCy does not check the type of list items. It rejects NaN and infinity, which are not valid JSON.
    if not all(isinstance(weight, (int, float)) for weight in mix_weights or ()):
        raise ConfigurationError(f"mix_weights is {mix_weights}, expected numbers.")


# The hooks are functions of the module, so that docs can be pickled.


def _rows(tokens: Union[Doc, Span, Token]) -> numpy.ndarray:
    """Return the vectors of the tokens, `(num_tokens, dim)`."""
    if isinstance(tokens, Doc):
        return tokens.tensor
    if isinstance(tokens, Span):
        return tokens.doc.tensor[tokens.start : tokens.end]
    return tokens.doc.tensor[tokens.i : tokens.i + 1]


def _has_vector(tokens: Union[Doc, Span, Token]) -> bool:
    return len(_rows(tokens)) > 0


def _vector(tokens: Union[Doc, Span, Token]) -> numpy.ndarray:
    """Return the mean of the vectors of the tokens, `(dim,)`; zeros if there are no tokens."""
    rows = _rows(tokens)
    if isinstance(tokens, Token):
        return rows[0]
    return rows.sum(axis=0) / max(len(rows), 1)


def _norm(tokens: Union[Doc, Token]) -> float:
    return float(numpy.linalg.norm(_vector(tokens)))


def _similarity(tokens: Union[Doc, Span, Token], other: Any) -> float:
    """
    Return the cosine similarity, or 0 if a vector is zero. spaCy's own function would return 1 for equal
    words in any contexts.
    """
    vector, other_vector = _vector(tokens), other.vector
    norms = float(numpy.linalg.norm(vector) * numpy.linalg.norm(other_vector))
    return float(numpy.dot(vector, other_vector)) / norms if norms > 0 else 0.0
