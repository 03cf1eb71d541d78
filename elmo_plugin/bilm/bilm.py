"""The bidirectional language model."""

import logging
from os import PathLike
from typing import Dict, List, Optional, Sequence, Set, Tuple, Union, cast

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from elmo_plugin.bilm.allennlp_weights import translate_allennlp_bilm
from elmo_plugin.bilm.carried_states import CarriedStates
from elmo_plugin.bilm.character_encoder import CharacterEncoder
from elmo_plugin.bilm.character_ids import batch_to_ids, sentence_marks
from elmo_plugin.bilm.frozen import FrozenInference
from elmo_plugin.bilm.input_checks import check_character_ids, check_padding, check_word_ids
from elmo_plugin.bilm.kernels import AUTO, check_kernel
from elmo_plugin.bilm.model_files import resolve_model_files
from elmo_plugin.bilm.options import BiLMOptions
from elmo_plugin.bilm.packing import Packing
from elmo_plugin.bilm.projected_lstm import ProjectedLSTM, State, run_side_by_side
from elmo_plugin.bilm.weight_source import WeightSource
from elmo_plugin.bilm.weights import check_weights, load_weights, save_model
from elmo_plugin.bilm.word_type_cache import WordTypeCache
from elmo_plugin.bilm.word_types import distinct_words

logger = logging.getLogger(__name__)

DEFAULT_WORD_CACHE_SIZE = 50_000


class BiLM(torch.nn.Module):
    """
    Forward and backward language model over one character encoder (paper, section 3.1), without the
    softmax: it gives the activations of every layer.

    A new `BiLM(options)` has bilm-tf's initial values and is trainable; `from_files` gives a frozen one.
    While all parameters are frozen it runs under `no_grad`. It keeps the vectors of words, and weights in the
    form that a kernel reads, from pass to pass while the weights rest: the biLM is frozen, or in `eval` mode
    with gradients off, and no parameter has a gradient that an optimizer could apply. Every other pass drops
    them.

    It also serves as `allennlp.modules.elmo.Elmo(module=...)`.

    # Parameters

    options : `BiLMOptions`
        The sizes.
    stateful : `bool`, optional (default = `False`)
        Carry the LSTM states of each row from one batch to the next, as bilm-tf does. The default
        starts every sentence from zeros, so that a sentence has the same vectors wherever it stands.
    word_cache_size : `int`, optional (default = 50,000)
        Number of word types to remember while weights rest; 0 for none. 50,000 types of the paper's model
        take 100 MB. Changed weights are noticed, unless other code than an optimizer writes to
        `parameter.data`: call `clear_caches()` after that.
    precision : `str`, optional (default = `"float32"`)
        In what a frozen biLM multiplies matrices: `float32`, `bfloat16` or `int8`. Parameters, sums and
        activations stay float32, and so do the convolutions of characters. The error of each is in
        PERFORMANCE.md. Where a lower precision would be slower than float32, because the processor or GPU
        lacks instructions for it, float32 runs in its place and the log warns once, unless `kernel` names a
        kernel.
    kernel : `str`, optional (default = `"auto"`)
        What runs the frozen LSTM layers: `avx512`, `onednn`, `triton` (on NVIDIA GPUs), `reference`, or the
        fastest of them that runs where the biLM is. The log says once which one it is. They differ in speed,
        and in rounding. On a device where a kernel has not run before, its first steps are compared with the
        reference's; `auto` does not take a kernel that fails there, and to name it is an error.
    packed_folder : `str` or `PathLike`, optional
        Keep the weights as the `avx512` kernel reads them in files of this folder, as much again as the
        weights take in `precision`. The processes of a machine that name it have them in memory once,
        together, and start a little sooner. (The weights themselves are shared without it.)

    # Raises

    `ConfigurationError` for a precision or kernel that there is not, or that this machine lacks.
    """

    # Parameters made in inference mode have no version, so that changes could not be noticed.
    @torch.inference_mode(False)
    def __init__(
        self,
        options: BiLMOptions,
        stateful: bool = False,
        word_cache_size: int = DEFAULT_WORD_CACHE_SIZE,
        precision: str = "float32",
        kernel: str = AUTO,
        packed_folder: Optional[Union[str, PathLike]] = None,
    ) -> None:
        super().__init__()
        self._frozen = FrozenInference(kernel, precision, packed_folder, word_cache_size)
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
        self.register_buffer("_sentence_marks", sentence_marks(), persistent=False)  # (2, 50)
        self._sentence_marks: Tensor
        # Of layer 0 forward and backward, then of layer 1 ...
        self._carried_states = CarriedStates(2 * options.num_layers)
        self._warnings_given: Set[str] = set()
        self.register_load_state_dict_pre_hook(translate_allennlp_bilm)

    @classmethod
    def from_files(
        cls,
        options_file: Optional[Union[str, PathLike]],
        weight_file: Optional[Union[str, PathLike]] = None,
        stateful: bool = False,
        precision: str = "float32",
        word_cache_size: int = DEFAULT_WORD_CACHE_SIZE,
        kernel: str = AUTO,
        packed_folder: Optional[Union[str, PathLike]] = None,
    ) -> "BiLM":
        """
        Load a frozen biLM from bilm-tf's files.

        # Parameters

        options_file, weight_file : `str` or `PathLike`
            Path, URL or `hf://` name of the options (JSON) and the weights (HDF5). `elmo_mini`, the name of
            the biLM that comes with this package, stands for both, and so does a `.zip` with both, as NLPL
            publishes them: leave the other one out.
        stateful, precision, word_cache_size, kernel, packed_folder
            See the class.

        # Raises

        `ConfigurationError` naming file and key or dataset if a file is missing, is not what it should be,
        or the two contradict each other; and as the class does.
        """
        check_kernel(kernel, precision)
        options_path, weight_path = resolve_model_files(options_file, weight_file)
        options = BiLMOptions.from_file(options_path)
        # First, for wrong options can ask for more memory than there is.
        check_weights(options, weight_path)
        # Without memory and initial values: they come from the file.
        with torch.device("meta"):
            bilm = cls(options, stateful, word_cache_size, precision, kernel, packed_folder)
        bilm._sentence_marks = sentence_marks()
        identity = load_weights(bilm, options, weight_path)
        bilm._frozen.runner.read_from(WeightSource(bilm, identity))
        return bilm

    @property
    def num_layers(self) -> int:
        """Number of layer activations: the LSTM layers and the token representation."""
        return self.options.num_layers + 1

    @property
    def precision(self) -> str:
        """In what it multiplies while frozen."""
        return self._frozen.runner.precision

    @property
    def kernel(self) -> str:
        """What runs it while frozen, as it was asked for: `auto`, or a kernel's name."""
        return self._frozen.runner.kernel

    @property
    def word_cache(self) -> WordTypeCache:
        """The vectors of words that it remembers."""
        return self._frozen.word_cache

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

        `ValueError` if a tensor has the wrong shape or type, if an id is out of range, or if padding
        stands before a word; `RuntimeError` under `torch.nn.DataParallel`, and if the biLM is trainable and
        its precision is not float32.
        """
        if getattr(self, "_is_replica", False):
            # Replicas hold no parameters, so they would neither train nor notice changed weights.
            raise RuntimeError(
                "A biLM cannot run under torch.nn.DataParallel. Use one process for each GPU instead: "
                "DistributedDataParallel, or the 'distributed' key of an AllenNLP config."
            )
        if self.precision != "float32" and not self.is_frozen:
            raise RuntimeError(
                f"The biLM's precision is {self.precision}, which is for frozen biLMs, and some of its "
                "parameters require a gradient. Freeze it, or set precision to float32 to train it."
            )
        check_character_ids(
            character_ids, self.character_encoder.character_embedding.num_embeddings
        )
        batch_size, timesteps = character_ids.shape[:2]
        if not self._can_look_up(word_ids, character_ids):
            word_ids = None
        # (batch_size, timesteps)
        mask = (character_ids > 0).any(dim=2) if word_ids is None else word_ids > 0
        lengths = mask.sum(dim=1)
        check_padding(mask, lengths)
        if batch_size == 0:
            return self._no_activations(character_ids)

        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.is_frozen):
            is_at_rest = self._refresh()
            if word_ids is None:
                vectors, index = self._encode_distinct(character_ids[mask], is_at_rest)
            else:
                vectors, index = self._look_up(word_ids[mask], is_at_rest)
            # (batch_size, timesteps + 2): which of the vectors stands where, -1 at padding.
            vector_at = index.new_full((batch_size, timesteps + 2), -1)
            vector_at[:, 0] = index[-2]
            vector_at[:, 1:-1][mask] = index[:-2]
            vector_at[torch.arange(batch_size, device=index.device), lengths + 1] = index[-1]

            # A sentence that stands in the batch several times, as in SRL once for each of its predicates,
            # is read once. Only carried states could tell such rows apart.
            row_of: Optional[Tensor] = None
            if not self.stateful:
                distinct, inverse = torch.unique(vector_at, dim=0, return_inverse=True)
                if distinct.size(0) < batch_size:
                    vector_at, row_of = distinct, inverse
            packing = Packing.from_lengths((vector_at >= 0).sum(dim=1), timesteps + 2)
            # (num_tokens, projection_dim), marks included
            tokens = vectors.index_select(0, vector_at[packing.row, packing.step])
            activations = [packing.unpack(torch.cat([tokens, tokens], dim=1))]
            for forward_output, backward_output in self._run_layers(tokens, packing, is_at_rest):
                activations.append(
                    packing.unpack(torch.cat([forward_output, backward_output], dim=1))
                )
            if row_of is not None:
                activations = [layer.index_select(0, row_of) for layer in activations]
        positions = torch.arange(timesteps + 2, device=lengths.device)
        return {
            "activations": activations,
            "mask": positions.unsqueeze(0) < (lengths + 2).unsqueeze(1),
        }

    def run_layer(
        self,
        number: int,
        inputs: Sequence[Tensor],
        step_sizes: List[int],
        initial_states: Sequence[Optional[State]],
    ) -> List[Tuple[Tensor, State]]:
        """
        Run an LSTM layer in both directions, without its skip connection. Arguments and results are those of
        `ProjectedLSTM.forward`, forward direction first; the backward inputs are already reversed.
        """
        return self._run_layer(number, inputs, step_sizes, initial_states, self._refresh())

    def _run_layer(
        self,
        number: int,
        inputs: Sequence[Tensor],
        step_sizes: List[int],
        initial_states: Sequence[Optional[State]],
        is_at_rest: bool,
    ) -> List[Tuple[Tensor, State]]:
        names = [f"forward_layers.{number}", f"backward_layers.{number}"]
        layers = cast(List[ProjectedLSTM], [self.get_submodule(name) for name in names])
        if not self._is_run_by_kernel(inputs[0].device.type, is_at_rest):
            return run_side_by_side(layers, inputs, step_sizes, initial_states)
        lstms = [
            layer.packed(layer_inputs, step_sizes, state)
            for layer, layer_inputs, state in zip(layers, inputs, initial_states)
        ]
        outcomes = self._frozen.runner.run(names, layers, lstms)
        return [(outputs, (state, cell)) for outputs, state, cell in outcomes]

    def reset_states(self) -> None:
        """Forget the states carried between batches; the next batch starts from zeros."""
        self._carried_states.reset()

    def clear_caches(self) -> None:
        """
        Forget the vectors of words and the packed weights, after a change of weights that goes unnoticed: one
        through `parameter.data`.
        """
        self._frozen.invalidate()

    @torch.inference_mode(False)
    def cache_vocabulary(self, words: List[str]) -> None:
        """
        Precompute the token vectors of `words`, so that `forward` can take their indices as `word_ids`.

        The vectors become a parameter, `word_embedding.weight`, frozen if the biLM is. Index 0 means
        padding, so the first of `words` is never looked up: AllenNLP's vocabularies have `@@PADDING@@`
        there. In a trainable biLM sentence marks are still encoded, and train the character encoder;
        AllenNLP keeps their first vectors as constants.

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

    def _can_look_up(self, word_ids: Optional[Tensor], character_ids: Tensor) -> bool:
        if word_ids is None:
            return False
        if self.word_embedding is None:
            self._warn_once("Word ids were given, but no vocabulary is cached: they are not used.")
            return False
        check_word_ids(word_ids, character_ids)
        num_words = self.word_embedding.num_embeddings
        if word_ids.numel() == 0 or int(word_ids.max()) < num_words:
            return True
        self._warn_once(
            f"Some word ids are outside the cached vocabulary of {num_words} words: such batches are "
            "encoded from characters, with the same result, slower."
        )
        return False

    def _warn_once(self, message: str) -> None:
        if message not in self._warnings_given:
            self._warnings_given.add(message)
            logger.warning("%s (Said once.)", message)

    def _refresh(self) -> bool:
        modules = [self.character_encoder, *self.forward_layers, *self.backward_layers]
        return self._frozen.refresh(self, sum(m.num_backward_passes for m in modules))

    def _is_run_by_kernel(self, device_type: str, is_at_rest: bool) -> bool:
        if torch.is_grad_enabled():
            return False
        if self.precision != "float32":
            return True
        # To pack weights for one pass takes longer than to run it. Autocast says in what to multiply.
        return is_at_rest and not torch.is_autocast_enabled(device_type)

    def _encode_distinct(self, words: Tensor, is_at_rest: bool) -> Tuple[Tensor, Tensor]:
        """
        Encode each distinct word of `words`, `(num_words, 50)`, and the sentence marks once.

        Returns vectors, `(num_types, projection_dim)`, and which one each word has, the marks last:
        `(num_words + 2,)`.
        """
        types, index = distinct_words(torch.cat([words.long(), self._sentence_marks]))
        return self._encode_types(types, is_at_rest), index

    def _look_up(self, word_ids: Tensor, is_at_rest: bool) -> Tuple[Tensor, Tensor]:
        """Like `_encode_distinct`, for words of the cached vocabulary, `(num_words,)`."""
        assert self.word_embedding is not None
        marks = self._encode_types(self._sentence_marks, is_at_rest)
        vectors = torch.cat([self.word_embedding(word_ids), marks])
        return vectors, torch.arange(vectors.size(0), device=vectors.device)

    def _encode_types(self, types: Tensor, is_at_rest: bool) -> Tensor:
        if not is_at_rest or self.word_cache.capacity == 0:
            return self._encode_frozen(types)
        # Vectors of one mode are of no use in another: autocast gives them another type, and tensors made
        # in inference mode cannot be written to outside of it.
        device = types.device.type
        autocast = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device)
        version = (autocast, torch.is_inference_mode_enabled())
        return self.word_cache.encode(types, self._encode_frozen, version)

    def _encode_frozen(self, types: Tensor) -> Tensor:
        if self.precision == "float32":
            return self.character_encoder(types)
        names = {module: name for name, module in self.named_modules()}
        with torch.autocast(types.device.type, enabled=False):
            if self._frozen.runner.precision_on(types.device) == "float32":
                return self.character_encoder(types)
            return self.character_encoder(
                types, lambda linear, rows: self._frozen.runner.apply(names[linear], linear, rows)
            )

    def _run_layers(
        self, tokens: Tensor, packing: Packing, is_at_rest: bool
    ) -> List[Tuple[Tensor, Tensor]]:
        """The outputs of each layer in both directions, packed, each `(num_tokens, projection_dim)`."""
        initial_states = (
            self._carried_states.initial(packing, like=tokens)
            if self.stateful
            else [None] * self._carried_states.num_lstms
        )
        final_states: List[State] = []
        outputs: List[Tuple[Tensor, Tensor]] = []
        forward_input = tokens
        backward_input = tokens.index_select(0, packing.reverse)
        for layer in range(self.options.num_layers):
            (forward_output, final_forward), (backward_output, final_backward) = self._run_layer(
                layer,
                [forward_input, backward_input],
                packing.step_sizes,
                initial_states[2 * layer : 2 * layer + 2],
                is_at_rest,
            )
            # The state that is carried excludes the skip connection.
            if self.options.use_skip_connections and layer > 0:
                forward_output = forward_output + forward_input
                backward_output = backward_output + backward_input
            outputs.append((forward_output, backward_output.index_select(0, packing.reverse)))
            final_states += [final_forward, final_backward]
            forward_input, backward_input = forward_output, backward_output
        if self.stateful:
            self._carried_states.keep(final_states, packing)
        return outputs

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
