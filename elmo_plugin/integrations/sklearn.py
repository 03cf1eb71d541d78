"""Sentence vectors as features in scikit-learn."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Dict, Iterable, Optional, Sequence, Union

import numpy
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from elmo_plugin.bilm.model_files import resolve_model_files
from elmo_plugin.embedding.elmo_embedder import DEFAULT_BATCH_SIZE, ElmoEmbedder
from elmo_plugin.embedding.layers import (
    AVERAGE,
    MEAN,
    Layer,
    check_layer,
    check_pool,
    choose_layer,
    pool_tokens,
)
from elmo_plugin.embedding.sentence_batches import BatchOptions
from elmo_plugin.embedding.sentences import WHITESPACE, InputOptions, tokenizer_of
from elmo_plugin.files.text import FileName


@dataclass(eq=False, repr=False)
class ElmoSentenceVectors(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """
    Turn sentences into vectors of a frozen biLM, float32 `(num_sentences, dim)`, as a transformer of
    scikit-learn: `make_pipeline(ElmoSentenceVectors("elmo_mini"), LogisticRegression())`.

    Nothing is learned: `fit` checks the arguments and loads the biLM. Copies, pickles and processes of joblib
    hold the arguments only, and load the biLM when they first need it, from the same files.

    # Parameters

    options_file, weight_file : `str` or `PathLike`
        See `BiLM.from_files`. One name is enough for both, such as `elmo_mini`; leave out the other.
    layer : `int` or `str`, optional (default = `"average"`)
        0 for the token representation, 1, 2, ... for LSTM layers, -1 for the last one, or `average`, the mean
        of all.
    pool : `str`, optional (default = `"mean"`)
        How the vectors of the tokens become one: `mean`, `max` or `first-last`, see `pool_tokens`.
    tokenizer : `str`, optional (default = `"whitespace"`)
        How sentences that are strings are split into tokens: `whitespace`, or `spacy` with its rules for
        English.
    batch_size : `int`, optional (default = `64`)
        Number of sentences in a batch.
    cuda_device, precision, kernel
        See `ElmoEmbedder`.
    """

    # scikit-learn finds the parameters in the signature of the constructor that is made of these fields.
    options_file: Optional[FileName] = None
    weight_file: Optional[FileName] = None
    _: KW_ONLY
    layer: Layer = AVERAGE
    pool: str = MEAN
    tokenizer: str = WHITESPACE
    batch_size: int = DEFAULT_BATCH_SIZE
    cuda_device: int = -1
    precision: str = "float32"
    kernel: str = "auto"

    def fit(self, X: Any = None, y: Any = None) -> "ElmoSentenceVectors":
        """
        Check the arguments, and load the biLM. `X` and `y` are not read.

        # Raises

        `ConfigurationError` for invalid arguments, and as `ElmoEmbedder`.
        """
        embedder = self._embedder()
        check_layer(self.layer, embedder.num_layers, "layer")
        check_pool(self.pool)
        BatchOptions(self.batch_size)
        InputOptions(self.tokenizer)
        # The number of names that `get_feature_names_out` returns.
        self._n_features_out = embedder.get_output_dim()
        return self

    def transform(self, X: Iterable[Union[str, Sequence[str]]]) -> numpy.ndarray:
        """
        Compute the vectors of sentences, float32 `(num_sentences, dim)`. `X` is a list, a one-dimensional
        array, or a column of a data frame: of strings, which are split by the tokenizer, or of lists of
        tokens. A sentence without tokens has a vector of zeros.

        # Raises

        `ValueError` for other input, naming the sentence; `ConfigurationError` as `fit`.
        """
        if isinstance(X, (str, bytes)) or getattr(X, "ndim", 1) != 1:
            raise ValueError(
                f"X is {type(X).__name__} of {getattr(X, 'ndim', 0)} dimensions, expected a sequence of "
                "sentences: a list, a one-dimensional array, or one column of a data frame."
            )
        self.fit()
        tokenize = tokenizer_of(self.tokenizer)
        sentences = (tokenize(one) if isinstance(one, str) else one for one in X)
        # (num_layers, num_tokens, dim) for each sentence
        all_layers = self._embedder().embed_sentences(sentences, self.batch_size)
        vectors = [
            pool_tokens(choose_layer(layers, self.layer), self.pool) for layers in all_layers
        ]
        return numpy.array(vectors, dtype="float32").reshape(-1, self._n_features_out)

    def _embedder(self) -> ElmoEmbedder:
        names = ("options_file", "weight_file", "cuda_device", "precision", "kernel")
        settings = {name: getattr(self, name) for name in names}
        if getattr(self, "_loaded", (None,))[0] != settings:
            files = resolve_model_files(self.options_file, self.weight_file)
            embedder = ElmoEmbedder(
                *files, self.cuda_device, precision=self.precision, kernel=self.kernel
            )
            self._loaded = (settings, embedder)
        return self._loaded[1]

    def __getstate__(self) -> Dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_loaded"}

    def __sklearn_tags__(self) -> Any:
        # scikit-learn reads this from 1.6 on.
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags
