"""ELMo as an embedder of a `TextFieldEmbedder`, and the indexer of its character ids."""

from functools import lru_cache
from typing import Any, Dict, List, Optional

import numpy
import torch
from allennlp.data import Token, Vocabulary
from allennlp.data.token_indexers import ELMoTokenCharactersIndexer, TokenIndexer
from allennlp.modules.token_embedders import TokenEmbedder
from torch import Tensor

from elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN, spell
from elmo_plugin.bilm.model_files import ORIGINAL
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.elmo import Elmo, check_left_out

# Number of words whose character ids are cached; 0.3 kB each.
_MAX_SHARED_WORDS = 2**18


@TokenIndexer.register("elmo_character_ids")
class ElmoCharacterIdsIndexer(ELMoTokenCharactersIndexer):
    """
    Index tokens with the character ids that ELMo reads. Arguments and tensors are those of AllenNLP's
    `elmo_characters`, which can be used as well but takes more memory: 2 kB for each token. This indexer
    keeps one array of ids for all tokens of a word.
    """

    def tokens_to_indices(
        self, tokens: List[Token], vocabulary: Vocabulary
    ) -> Dict[str, List[numpy.ndarray]]:
        added = self._mapper.tokens_to_add
        words = [token.ensure_text() for token in tokens]
        return {"elmo_tokens": [_character_ids(word, added.get(word)) for word in words]}

    def as_padded_tensor_dict(
        self, tokens: Dict[str, List[numpy.ndarray]], padding_lengths: Dict[str, int]
    ) -> Dict[str, Tensor]:
        length = padding_lengths["elmo_tokens"]
        word_ids = tokens["elmo_tokens"][:length]
        character_ids = torch.zeros(length, MAX_CHARACTERS_PER_TOKEN, dtype=torch.long)
        if word_ids:
            numpy.concatenate(word_ids, out=character_ids[: len(word_ids)].view(-1).numpy())
        return {"elmo_tokens": character_ids}


@lru_cache(maxsize=_MAX_SHARED_WORDS)
def _character_ids(word: str, added_id: Optional[int]) -> numpy.ndarray:
    """Return the character ids of a word, `(50,)`, int16. `added_id` is its id in `tokens_to_add`."""
    character_ids = spell(word if added_id is None else "a").astype(numpy.int16)
    if added_id is not None:
        character_ids[1] = added_id + 1  # in place of the only character
    character_ids.flags.writeable = False  # the array is shared
    return character_ids


@TokenEmbedder.register("elmo")
class ElmoTokenEmbedder(TokenEmbedder):
    """
    Embed tokens with one ELMo representation each. The input is the output of the `elmo_character_ids`
    indexer, or of AllenNLP's `elmo_characters`.

    A replacement for AllenNLP's `elmo_token_embedder`: arguments have the same meaning, and archives that
    were trained with it can be loaded after their `type` is changed to `elmo`.

    # Parameters

    options_file, weight_file : `str`, optional (default = `"original"`, the paper's model)
        See `Elmo`. One name is enough for both, such as `elmo_mini`; leave out the other.
    do_layer_norm, dropout, requires_grad, scalar_mix_parameters, stateful, top_layer_only, inference
        See `Elmo`.
    projection_dim : `int`, optional
        Width of a linear projection of the representations; by default, and with 0, there is none.
    vocab_to_cache : `List[str]`, optional
        See `Elmo`. `forward` then accepts `word_inputs`.
    namespace_to_cache : `str`, optional
        Instead of `vocab_to_cache`: cache all words of this namespace of the vocabulary.
    vocab : `Vocabulary`, optional
        Set by AllenNLP; needed for `namespace_to_cache`.
    serialization_dir : `str`, optional
        Set by AllenNLP, see `Elmo`.

    # Raises

    `ConfigurationError` for files that are missing or wrong, and for arguments that contradict each other.
    """

    def __init__(
        self,
        options_file: Optional[str] = None,
        weight_file: Optional[str] = None,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: Optional[int] = None,
        vocab_to_cache: Optional[List[str]] = None,
        scalar_mix_parameters: Optional[List[float]] = None,
        namespace_to_cache: Optional[str] = None,
        stateful: bool = False,
        top_layer_only: bool = False,
        vocab: Optional[Vocabulary] = None,
        serialization_dir: Optional[str] = None,
        **inference: Any,
    ) -> None:
        super().__init__()
        check_left_out(inference)
        if options_file is None and weight_file is None:
            options_file = ORIGINAL
        if namespace_to_cache is not None:
            if vocab_to_cache is not None:
                raise ConfigurationError("Give vocab_to_cache or namespace_to_cache, not both.")
            vocab_to_cache = _words_in(vocab, namespace_to_cache)
        # `_elmo` and `_projection` are AllenNLP's names: regexes of configs and archives refer to them.
        self._elmo = Elmo(
            options_file,
            weight_file,
            num_output_representations=1,
            requires_grad=requires_grad,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            vocab_to_cache=vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
            stateful=stateful,
            top_layer_only=top_layer_only,
            serialization_dir=serialization_dir,
            **inference,
        )
        self._projection: Optional[torch.nn.Linear] = None
        if projection_dim:
            self._projection = torch.nn.Linear(self._elmo.get_output_dim(), projection_dim)

    @property
    def elmo(self) -> Elmo:
        """The wrapped `Elmo`."""
        return self._elmo

    def get_output_dim(self) -> int:
        """Width of a representation, after the projection."""
        if self._projection is not None:
            return self._projection.out_features
        return self._elmo.get_output_dim()

    def forward(self, elmo_tokens: Tensor, word_inputs: Optional[Tensor] = None) -> Tensor:
        """
        Return ELMo representations, `(batch_size, timesteps, get_output_dim())`, of character ids
        `(batch_size, timesteps, 50)`; additional dimensions are kept. `word_inputs`, `(batch_size,
        timesteps)`, are indices into the cached vocabulary.
        """
        representations = self._elmo(elmo_tokens, word_inputs)["elmo_representations"][0]
        if self._projection is not None:
            representations = self._projection(representations)
        return representations


def _words_in(vocab: Optional[Vocabulary], namespace: str) -> List[str]:
    namespaces = set() if vocab is None else vocab.get_namespaces()
    if vocab is None or namespace not in namespaces:
        raise ConfigurationError(
            f"namespace_to_cache is '{namespace}', expected a namespace of the vocabulary: "
            f"{', '.join(sorted(namespaces)) or 'it has none'}. Give another one, or vocab_to_cache."
        )
    return [
        vocab.get_token_from_index(index, namespace)
        for index in range(vocab.get_vocab_size(namespace))
    ]
