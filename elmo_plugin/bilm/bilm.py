"""The bidirectional language model."""

import logging
from os import PathLike
from typing import Dict, List, Optional, Sequence, Tuple, Union

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from elmo_plugin.bilm.allennlp_weights import translate_allennlp_bilm
from elmo_plugin.bilm.character_encoder import CharacterEncoder
from elmo_plugin.bilm.character_ids import batch_to_ids, sentence_marks
from elmo_plugin.bilm.model_files import resolve_model_files
from elmo_plugin.bilm.options import BiLMOptions
from elmo_plugin.bilm.packing import Packing
from elmo_plugin.bilm.projected_lstm import ProjectedLSTM, State
from elmo_plugin.bilm.weight_file import load_weights, save_model
from elmo_plugin.bilm.word_type_cache import WordTypeCache, version_of
from elmo_plugin.bilm.word_types import distinct_words

logger = logging.getLogger(__name__)

DEFAULT_WORD_CACHE_SIZE = 50_000

PRECISIONS = ("float32",)


class BiLM(torch.nn.Module):
    """
    Forward and backward language model over one character encoder (paper, section 3.1), without the
    softmax: it gives the activations of every layer.

    A new `BiLM(options)` has bilm-tf's initial values and is trainable; `from_files` gives a frozen one.
    While all parameters are frozen it runs under `no_grad` and remembers the vectors of words.

    It also serves as `allennlp.modules.elmo.Elmo(module=...)`.

    # Parameters

    options : `BiLMOptions`
        The sizes.
    stateful : `bool`, optional (default = `False`)
        Carry the LSTM states of each row from one batch to the next, as bilm-tf does. The default
        starts every sentence from zeros, so that a sentence has the same vectors wherever it stands.
    word_cache_size : `int`, optional (default = 50,000)
        How many word types to remember while frozen; 0 for none. 50,000 types of the paper's model take
        100 MB.
    """

    def __init__(
        self,
        options: BiLMOptions,
        stateful: bool = False,
        word_cache_size: int = DEFAULT_WORD_CACHE_SIZE,
    ) -> None:
        super().__init__()
        self.options = options
        self.stateful = stateful
        self.character_encoder = CharacterEncoder(options)
        self.forward_layers = torch.nn.ModuleList(
            _new_layer(options) for _ in range(options.num_layers)
        )
        self.backward_layers = torch.nn.ModuleList(
            _new_layer(options) for _ in range(options.num_layers)
        )
        # Vectors of a fixed vocabulary, see `cache_vocabulary`.
        self.word_embedding: Optional[torch.nn.Embedding] = None
        self.word_cache = WordTypeCache(word_cache_size)
        # (2, max_characters_per_token)
        marks = sentence_marks(options.max_characters_per_token)
        self.register_buffer("_sentence_marks", marks, persistent=False)
        self._sentence_marks: Tensor
        # State and cell of every row: of layer 0 forward and backward, then layer 1 ... None: zeros.
        self._states: Optional[List[State]] = None
        self._warned_of_words_outside_cache = False
        self.register_load_state_dict_pre_hook(translate_allennlp_bilm)

    @classmethod
    def from_files(
        cls,
        options_file: Optional[Union[str, PathLike]],
        weight_file: Union[str, PathLike],
        stateful: bool = False,
        precision: str = "float32",
        word_cache_size: int = DEFAULT_WORD_CACHE_SIZE,
    ) -> "BiLM":
        """
        Load a frozen biLM from bilm-tf's files.

        # Parameters

        options_file, weight_file : `str` or `PathLike`
            Path, URL or `hf://` name of the options (JSON) and the weights (HDF5). A `.zip` with both, as
            NLPL publishes them, may be given as `weight_file`; `options_file` is then `None` or the same.
        stateful, word_cache_size
            See the class.
        precision : `str`, optional (default = `"float32"`)
            Only `float32` so far.

        # Raises

        `ConfigurationError` naming file and key or dataset if a file is missing, is not what it should be,
        or the two contradict each other.
        """
        if precision not in PRECISIONS:
            raise ConfigurationError(
                f"precision is '{precision}', expected one of: {', '.join(PRECISIONS)}."
            )
        options_path, weight_path = resolve_model_files(options_file, weight_file)
        bilm = cls(BiLMOptions.from_file(options_path), stateful, word_cache_size)
        load_weights(bilm, bilm.options, weight_path)
        return bilm.requires_grad_(False)

    @property
    def num_layers(self) -> int:
        """Number of layer activations: the LSTM layers and the token representation."""
        return self.options.num_layers + 1

    @property
    def is_frozen(self) -> bool:
        """Whether no parameter requires a gradient."""
        return not any(parameter.requires_grad for parameter in self.parameters())

    def get_output_dim(self) -> int:
        """Width of a layer activation, both directions together."""
        return 2 * self.options.projection_dim

    def forward(
        self, character_ids: Tensor, word_ids: Optional[Tensor] = None
    ) -> Dict[str, Union[Tensor, List[Tensor]]]:
        """
        Sentence marks are added to every row, also to an empty one.

        # Parameters

        character_ids : `Tensor`
            `(batch_size, timesteps, 50)`. Rows of zeros are padding and stand at the end.
        word_ids : `Tensor`, optional
            `(batch_size, timesteps)`. Indices into the vocabulary of `cache_vocabulary`; 0 is padding.
            Without such a vocabulary they are ignored.

        # Returns

        A dictionary with `activations`, a list of `num_layers` tensors
        `(batch_size, timesteps + 2, get_output_dim())`, token representation first, zero at padding; and
        `mask`, `(batch_size, timesteps + 2)`, `True` at words and sentence marks.

        # Raises

        `ValueError` if a tensor has the wrong shape or type, if a character id is out of range, or if
        padding stands before a word.
        """
        self._check_character_ids(character_ids)
        batch_size, timesteps = character_ids.shape[:2]
        if not self._can_look_up(word_ids, character_ids):
            word_ids = None
        # (batch_size, timesteps)
        mask = (character_ids > 0).any(dim=2) if word_ids is None else word_ids > 0
        lengths = mask.sum(dim=1)
        _check_padding(mask, lengths)
        if batch_size == 0:
            return self._no_activations(character_ids)

        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.is_frozen):
            if word_ids is None:
                vectors, index = self._encode_distinct(character_ids[mask])
            else:
                vectors, index = self._look_up(word_ids[mask])
            # (batch_size, timesteps + 2): which of the vectors stands where.
            vector_at = index.new_zeros(batch_size, timesteps + 2)
            vector_at[:, 0] = index[-2]
            vector_at[:, 1:-1][mask] = index[:-2]
            vector_at[torch.arange(batch_size, device=index.device), lengths + 1] = index[-1]

            packing = Packing.from_lengths(lengths + 2, timesteps + 2)
            # (num_tokens, projection_dim), marks included
            tokens = vectors.index_select(0, vector_at[packing.row, packing.step])
            activations = [packing.unpack(torch.cat([tokens, tokens], dim=1))]
            for forward_output, backward_output in self._run_layers(tokens, packing):
                activations.append(
                    packing.unpack(torch.cat([forward_output, backward_output], dim=1))
                )
        positions = torch.arange(timesteps + 2, device=lengths.device)
        return {
            "activations": activations,
            "mask": positions.unsqueeze(0) < (lengths + 2).unsqueeze(1),
        }

    def reset_states(self) -> None:
        """Forget the states carried between batches; the next batch starts from zeros."""
        self._states = None

    def cache_vocabulary(self, words: List[str]) -> None:
        """
        Precompute the token vectors of `words`, so that `forward` can take their indices as `word_ids`.

        The vectors become a parameter, `word_embedding.weight`, frozen if the biLM is. Index 0 means
        padding, so the first of `words` is never looked up: AllenNLP's vocabularies have `@@PADDING@@`
        there.

        # Raises

        `ConfigurationError` if `words` is empty.
        """
        if not words:
            raise ConfigurationError(
                "vocab_to_cache is an empty list, expected words, the first of them standing for padding. "
                "Leave it out to encode every word from its characters."
            )
        if not self.is_frozen:
            logger.warning(
                "The biLM is trainable and has a cached vocabulary: cached words train their own vectors, "
                "the character encoder learns from sentence marks and words outside the vocabulary only."
            )
        with torch.no_grad():
            types, index = distinct_words(batch_to_ids([words])[0].to(self._sentence_marks.device))
            vectors = self.character_encoder(types)[index]  # (len(words), projection_dim)
        self.word_embedding = torch.nn.Embedding.from_pretrained(
            vectors, freeze=self.is_frozen, padding_idx=0
        )

    def save(self, options_file: Union[str, PathLike], weight_file: Union[str, PathLike]) -> None:
        """
        Write options and weights as bilm-tf does. Both files appear complete or not at all.

        # Raises

        `OSError` if a file cannot be written.
        """
        save_model(self, self.options, options_file, weight_file)

    def _check_character_ids(self, character_ids: Tensor) -> None:
        max_characters = self.options.max_characters_per_token
        if character_ids.dim() != 3 or character_ids.size(2) != max_characters:
            raise ValueError(
                f"character_ids has shape {tuple(character_ids.shape)}, expected "
                f"(batch_size, timesteps, {max_characters}). Make it with batch_to_ids or the "
                "elmo_characters indexer."
            )
        if character_ids.dtype not in (torch.long, torch.int, torch.short):
            raise ValueError(
                f"character_ids has type {character_ids.dtype}, expected integers (torch.long)."
            )
        if character_ids.numel() > 0:
            smallest, largest = (int(value) for value in torch.aminmax(character_ids))
            num_embeddings = self.character_encoder.character_embedding.num_embeddings
            if smallest < 0 or largest >= num_embeddings:
                wrong = smallest if smallest < 0 else largest
                row, step, position = (character_ids == wrong).nonzero()[0].tolist()
                raise ValueError(
                    f"character_ids[{row}, {step}, {position}] is {wrong}, expected 0 (padding) to "
                    f"{num_embeddings - 1}. Make the ids with batch_to_ids or the elmo_characters indexer."
                )

    def _can_look_up(self, word_ids: Optional[Tensor], character_ids: Tensor) -> bool:
        if word_ids is None:
            return False
        if self.word_embedding is None:
            logger.warning("Word ids were given, but no vocabulary is cached: they are not used.")
            return False
        if word_ids.shape != character_ids.shape[:2]:
            raise ValueError(
                f"word_ids has shape {tuple(word_ids.shape)}, expected that of character_ids without "
                f"characters, {tuple(character_ids.shape[:2])}."
            )
        num_words = self.word_embedding.num_embeddings
        if word_ids.numel() == 0 or int(word_ids.max()) < num_words:
            return True
        if not self._warned_of_words_outside_cache:
            self._warned_of_words_outside_cache = True
            logger.warning(
                "Word id %d is outside the cached vocabulary of %d words: such batches are encoded from "
                "characters, with the same result, slower. (Said once.)",
                int(word_ids.max()),
                num_words,
            )
        return False

    def _encode_distinct(self, words: Tensor) -> Tuple[Tensor, Tensor]:
        """
        Encode each distinct word of `words`, `(num_words, 50)`, and the sentence marks once.

        Returns vectors, `(num_types, projection_dim)`, and which one each word has, the marks last:
        `(num_words + 2,)`.
        """
        types, index = distinct_words(torch.cat([words.long(), self._sentence_marks]))
        return self._encode_types(types), index

    def _look_up(self, word_ids: Tensor) -> Tuple[Tensor, Tensor]:
        """Like `_encode_distinct`, for words of the cached vocabulary, `(num_words,)`."""
        assert self.word_embedding is not None
        marks = self._encode_types(self._sentence_marks)
        vectors = torch.cat([self.word_embedding(word_ids), marks])
        return vectors, torch.arange(vectors.size(0), device=vectors.device)

    def _encode_types(self, types: Tensor) -> Tensor:
        if torch.is_grad_enabled() or not self.is_frozen or self.word_cache.capacity == 0:
            return self.character_encoder(types)
        # Vectors of one mode are of no use in another: autocast gives them another type, and tensors made
        # in inference mode cannot be written to outside of it.
        mode = (torch.is_autocast_enabled(types.device.type), torch.is_inference_mode_enabled())
        version = (version_of(self.character_encoder), mode)
        return self.word_cache.encode(types, self.character_encoder, version)

    def _run_layers(self, tokens: Tensor, packing: Packing) -> List[Tuple[Tensor, Tensor]]:
        """The outputs of each layer in both directions, packed, each `(num_tokens, projection_dim)`."""
        initial_states = self._initial_states(packing)
        final_states: List[State] = []
        outputs: List[Tuple[Tensor, Tensor]] = []
        forward_input = tokens
        backward_input = tokens.index_select(0, packing.reverse)
        for layer in range(self.options.num_layers):
            forward_output, final_forward = self.forward_layers[layer](
                forward_input, packing.step_sizes, initial_states[2 * layer]
            )
            backward_output, final_backward = self.backward_layers[layer](
                backward_input, packing.step_sizes, initial_states[2 * layer + 1]
            )
            # The state that is carried excludes the skip connection.
            if self.options.use_skip_connections and layer > 0:
                forward_output = forward_output + forward_input
                backward_output = backward_output + backward_input
            outputs.append((forward_output, backward_output.index_select(0, packing.reverse)))
            final_states += [final_forward, final_backward]
            forward_input, backward_input = forward_output, backward_output
        if self.stateful:
            self._keep_states(final_states, packing)
        return outputs

    def _initial_states(self, packing: Packing) -> Sequence[Optional[State]]:
        if not self.stateful or self._states is None:
            return [None] * (2 * self.options.num_layers)
        order = packing.order
        return [
            (_rows(state, packing.batch_size)[order], _rows(cell, packing.batch_size)[order])
            for state, cell in self._states
        ]

    def _keep_states(self, states: List[State], packing: Packing) -> None:
        """Keep the states of this batch's rows; those of further rows of a larger batch stay."""
        back_in_place = packing.order.argsort()
        kept = [
            (state.detach()[back_in_place], cell.detach()[back_in_place]) for state, cell in states
        ]
        if self._states is not None:
            kept = [
                (_followed_by(state, old_state), _followed_by(cell, old_cell))
                for (state, cell), (old_state, old_cell) in zip(kept, self._states)
            ]
        self._states = kept

    def _no_activations(self, character_ids: Tensor) -> Dict[str, Union[Tensor, List[Tensor]]]:
        shape = (0, character_ids.size(1) + 2)
        vectors = next(self.parameters()).new_zeros(*shape, self.get_output_dim())
        return {
            "activations": [vectors.clone() for _ in range(self.num_layers)],
            "mask": torch.zeros(shape, dtype=torch.bool, device=character_ids.device),
        }


def _new_layer(options: BiLMOptions) -> ProjectedLSTM:
    return ProjectedLSTM(
        options.projection_dim,
        options.cell_size,
        options.projection_dim,
        options.cell_clip,
        options.proj_clip,
    )


def _check_padding(mask: Tensor, lengths: Tensor) -> None:
    positions = torch.arange(mask.size(1), device=mask.device)
    misplaced = mask != (positions.unsqueeze(0) < lengths.unsqueeze(1))
    if bool(misplaced.any()):
        row, step = misplaced.nonzero()[0].tolist()
        raise ValueError(
            f"Row {row} has padding (only zeros) at step {step} before a word, expected all padding at "
            "the end of the row."
        )


def _rows(tensor: Tensor, num_rows: int) -> Tensor:
    """The first `num_rows` rows of `(rows, dim)`, zeros where there are fewer."""
    missing = num_rows - tensor.size(0)
    if missing <= 0:
        return tensor[:num_rows]
    return torch.cat([tensor, tensor.new_zeros(missing, tensor.size(1))])


def _followed_by(rows: Tensor, old_rows: Tensor) -> Tensor:
    """`rows`, and after them those of `old_rows` that they do not replace."""
    return torch.cat([rows, old_rows[rows.size(0) :]])
