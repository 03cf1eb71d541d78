"""The bidirectional language model."""

import logging
from os import PathLike
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, Union, cast

import torch
from torch import Tensor

from elmo_plugin.bilm.character_encoder import CharacterEncoder
from elmo_plugin.bilm.characters import (
    batch_to_ids,
    check_character_ids,
    check_padding,
    check_word_ids,
    distinct_words,
    sentence_marks,
)
from elmo_plugin.bilm.checkpoints import archived_bilm, translate_allennlp_bilm
from elmo_plugin.bilm.frozen import (
    FrozenInference,
    SentenceCache,
    WordEncoder,
    WordTypeCache,
    are_frozen,
)
from elmo_plugin.bilm.kernels import AUTO, check_kernel
from elmo_plugin.bilm.lstm import Packing, ProjectedLSTM, State, run_side_by_side
from elmo_plugin.bilm.lstm_steps import LSTMRun
from elmo_plugin.bilm.many_langs import ManyLangsEncoder, read_many_langs
from elmo_plugin.bilm.model_files import is_many_langs, pretrained_files, resolve_model_files
from elmo_plugin.bilm.options import NUM_CHARACTER_EMBEDDINGS, BiLMOptions, ManyLangsOptions
from elmo_plugin.bilm.weights import check_weights, load_weights, save_model
from elmo_plugin.errors import ConfigurationError

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
        PERFORMANCE.md.
    kernel : `str`, optional (default = `"auto"`)
        What runs the frozen LSTM layers: `simd`, `onednn`, `triton` (on NVIDIA GPUs), `reference`, or the
        fastest of them that runs where the biLM is. The log says once which one it is. They differ in speed,
        and in rounding.
    packed_folder : `str` or `PathLike`, optional
        Keep the weights as the `simd` kernel reads them in files of this folder, as much again as the
        weights take in `precision`. The processes of a machine that name it have them in memory once,
        together, and start a little sooner. (The weights themselves are shared without it.)
    sentence_cache_mb : `float`, optional (default = 0)
        On a CPU, MB of memory for the activations of sentences, from the first pass in training mode on, so
        that the epochs of a task after the first need not run a frozen, stateless biLM. A token of the
        paper's model takes 12 kB, one of `elmo_mini` 3 kB.

    # Raises

    `ConfigurationError` for an unknown precision or kernel, or one that this machine lacks.
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
        sentence_cache_mb: float = 0,
    ) -> None:
        super().__init__()
        self._frozen = FrozenInference(
            kernel, precision, packed_folder, word_cache_size, sentence_cache_mb
        )
        self.options = options
        self.stateful = stateful
        self.character_encoder: WordEncoder
        if isinstance(options, ManyLangsOptions):
            self.character_encoder = ManyLangsEncoder(options)
        else:
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
        # The method without underscore is newer than torch 2.4.
        self._register_load_state_dict_pre_hook(translate_allennlp_bilm, with_module=True)

    # Parameters made in inference mode have no version.
    @classmethod
    @torch.inference_mode(False)
    def from_files(
        cls,
        options_file: Optional[Union[str, PathLike]],
        weight_file: Optional[Union[str, PathLike]] = None,
        stateful: bool = False,
        precision: str = "float32",
        word_cache_size: int = DEFAULT_WORD_CACHE_SIZE,
        kernel: str = AUTO,
        packed_folder: Optional[Union[str, PathLike]] = None,
        sentence_cache_mb: float = 0,
    ) -> "BiLM":
        """
        Load a frozen biLM from the files of bilm-tf or of ELMoForManyLangs.

        # Parameters

        options_file, weight_file : `str` or `PathLike`
            Path, URL or `hf://` name of the options (JSON) and the weights (HDF5). `elmo_mini`, the name of
            the biLM that comes with this package, stands for both, and so do a folder of both or of
            a model of ELMoForManyLangs, and a `.zip` of it, as NLPL publishes them: leave the other one out.
        stateful, precision, word_cache_size, kernel, packed_folder, sentence_cache_mb
            See the class.

        # Raises

        `ConfigurationError` naming file and key or dataset if a file is missing, is not what it should be,
        or the two contradict each other; and as the class does.
        """
        check_kernel(kernel, precision)
        options_path, weight_path = resolve_model_files(options_file, weight_file)
        settings = (
            stateful,
            word_cache_size,
            precision,
            kernel,
            packed_folder,
            sentence_cache_mb,
        )
        if is_many_langs(weight_path):
            return cls._from_state_dict(
                *read_many_langs(options_path, weight_path.parent), *settings
            )
        options = BiLMOptions.from_file(options_path)
        # First, for wrong options can ask for more memory than there is.
        check_weights(options, weight_path)
        bilm = cls._without_weights(options, *settings)
        bilm._frozen.loaded_from(load_weights(bilm, options, weight_path), bilm)
        return bilm

    # Parameters made in inference mode have no version.
    @classmethod
    @torch.inference_mode(False)
    def from_archive(
        cls,
        folder: Optional[Union[str, PathLike]],
        options_file: Optional[Union[str, PathLike]],
        weight_file: Optional[Union[str, PathLike]],
        **settings: Any,
    ) -> Optional["BiLM"]:
        """
        Load, frozen, the biLM that the folder of a task model's archive holds under these file names. The
        files need not exist. `settings` are those of `from_files`. If the archive refers to a biLM that comes
        with this package, that one is loaded.

        # Returns

        The biLM, or `None` if the folder holds none of these names.

        # Raises

        `ConfigurationError` if the archive refers to a biLM that does not come with this package.
        """
        found = archived_bilm(folder, options_file, weight_file)
        if found is None:
            return None
        options, state_dict = found
        if not state_dict:
            # Whatever the current folder holds under this name.
            return cls.from_files(*pretrained_files(str(options_file or weight_file)), **settings)
        return cls._from_state_dict(options, state_dict, **settings)

    @classmethod
    def _from_state_dict(
        cls, options: BiLMOptions, state_dict: Dict[str, Tensor], *arguments: Any, **settings: Any
    ) -> "BiLM":
        bilm = cls._without_weights(options, *arguments, **settings)
        # Here, as `load_state_dict` would keep what was translated in memory.
        translate_allennlp_bilm(bilm, state_dict, "")
        bilm.load_state_dict(state_dict, assign=True)
        return bilm.requires_grad_(False)

    @classmethod
    def _without_weights(cls, *arguments: Any, **settings: Any) -> "BiLM":
        """Return a biLM whose parameters take no memory and have no values until they are replaced."""
        with torch.device("meta"):
            bilm = cls(*arguments, **settings)
        bilm._sentence_marks = sentence_marks()
        return bilm

    @property
    def num_layers(self) -> int:
        """Number of layer activations: the LSTM layers and the token representation."""
        return self.options.num_layers + 1

    @property
    def precision(self) -> str:
        """Matmul precision while frozen."""
        return self._frozen.precision

    @property
    def kernel(self) -> str:
        """The kernel that was asked for: `auto`, or a kernel's name."""
        return self._frozen.kernel

    @property
    def word_cache(self) -> WordTypeCache:
        """The vectors of words that it remembers."""
        return self._frozen.word_cache

    @property
    def sentence_cache(self) -> SentenceCache:
        """The activations of sentences that it remembers."""
        return self._frozen.sentence_cache

    @property
    def is_frozen(self) -> bool:
        """Whether no parameter requires a gradient."""
        return are_frozen(self.parameters())

    def requires_grad_(self, requires_grad: bool = True) -> "BiLM":
        """
        Make all parameters trainable, or freeze them.

        # Raises

        `ConfigurationError` if a model of ELMoForManyLangs is to be trained.
        """
        if requires_grad and isinstance(self.options, ManyLangsOptions):
            raise ConfigurationError(
                "A biLM of ELMoForManyLangs was asked to be trained, expected to be frozen. Leave out "
                "requires_grad, or take a biLM in bilm-tf's form."
            )
        return super().requires_grad_(requires_grad)

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
        # Listed once: for a short sentence this takes a noticeable part of the time.
        parameters = list(self.parameters())
        is_frozen = are_frozen(parameters)
        if self.precision != "float32" and not is_frozen:
            raise RuntimeError(
                f"The biLM's precision is {self.precision}, which is for frozen biLMs, and some of its "
                "parameters require a gradient. Freeze it, or set precision to float32 to train it."
            )
        mask, word_ids = self.check_inputs(character_ids, word_ids)
        lengths = mask.sum(dim=1)
        timesteps = mask.size(1)
        if mask.size(0) == 0:
            return self._no_activations(character_ids)

        with torch.set_grad_enabled(torch.is_grad_enabled() and not is_frozen):
            is_at_rest = self._begin_pass(parameters)

            may_remember = is_at_rest and not self.stateful and word_ids is None
            if may_remember and self.sentence_cache.begins(self.training, mask.device):
                activations = self.sentence_cache.read(
                    character_ids,
                    lengths,
                    lambda rows: self._activations(character_ids[rows], mask[rows], None, True),
                )
            else:
                activations = self._activations(character_ids, mask, word_ids, is_at_rest)
        positions = torch.arange(timesteps + 2, device=lengths.device)
        return {
            "activations": activations,
            "mask": positions.unsqueeze(0) < (lengths + 2).unsqueeze(1),
        }

    def _activations(
        self, character_ids: Tensor, mask: Tensor, word_ids: Optional[Tensor], is_at_rest: bool
    ) -> List[Tensor]:
        """What `forward` returns as `activations`, of inputs that are checked; there is at least one row."""
        lengths = mask.sum(dim=1)
        batch_size, timesteps = mask.shape
        # types: (num_types, 50), what is to be encoded
        # index: (num_words + 2,), the vector of each word and of the two sentence marks
        if word_ids is None:
            types, index = distinct_words(
                torch.cat([character_ids[mask].long(), self._sentence_marks])
            )
        else:
            types = self._sentence_marks
            index = torch.arange(int(lengths.sum()) + 2, device=mask.device)
        # (batch_size, timesteps + 2): which of the vectors stands where, -1 at padding.
        vector_at = index.new_full((batch_size, timesteps + 2), -1)
        vector_at[:, 0] = index[-2]
        vector_at[:, 1:-1][mask] = index[:-2]
        vector_at[torch.arange(batch_size, device=index.device), lengths + 1] = index[-1]
        # A sentence that stands in the batch several times, as in SRL once for each of its predicates, is
        # read once. Only carried states could tell such rows apart.
        row_of: Optional[Tensor] = None
        if not self.stateful and batch_size > 1:
            distinct, inverse = torch.unique(vector_at, dim=0, return_inverse=True)
            if distinct.size(0) < batch_size:
                vector_at, row_of = distinct, inverse
        packing = Packing.from_lengths((vector_at >= 0).sum(dim=1), timesteps + 2)

        # (num_types, projection_dim), with `word_ids` the looked up words before them
        vectors = self._frozen.encode(self.character_encoder, types, is_at_rest)
        if word_ids is not None:
            assert self.word_embedding is not None
            vectors = torch.cat([self.word_embedding(word_ids[mask]), vectors])
        # (num_tokens, projection_dim), marks included
        tokens = vectors.index_select(0, vector_at[packing.row, packing.step])
        layers, new_states = self._run_layers(
            [tokens, tokens.index_select(0, packing.reverse)],
            packing.step_sizes,
            self._carried_states.initial(packing) if self.stateful else None,
            None,
            is_at_rest,
        )
        if self.stateful:
            self._carried_states.keep(new_states, packing)
        # (num_tokens, 2 * projection_dim) each
        packed = [torch.cat([tokens, tokens], dim=1)]
        for forward_output, backward_output in layers:
            backward_output = backward_output.index_select(0, packing.reverse)
            packed.append(torch.cat([forward_output, backward_output], dim=1))
        activations = [packing.unpack(layer.to(tokens)) for layer in packed]
        if row_of is None:
            return activations
        return [layer.index_select(0, row_of) for layer in activations]

    def check_inputs(
        self, character_ids: Tensor, word_ids: Optional[Tensor]
    ) -> Tuple[Tensor, Optional[Tensor]]:
        """
        Return the mask of words, `(batch_size, timesteps)`, and `word_ids` if they can be looked up.

        # Raises

        `ValueError` as `forward` does.
        """
        check_character_ids(character_ids, NUM_CHARACTER_EMBEDDINGS + 1)
        if not self._can_look_up(word_ids, character_ids):
            word_ids = None
        mask = (character_ids > 0).any(dim=2) if word_ids is None else word_ids > 0
        check_padding(mask, mask.sum(dim=1))
        return mask, word_ids

    def run_layers(
        self,
        inputs: Sequence[Tensor],
        step_sizes: List[int],
        initial_states: Optional[Sequence[State]] = None,
        drop: Optional[Callable[[Tensor], Tensor]] = None,
    ) -> Tuple[List[Tuple[Tensor, Tensor]], List[State]]:
        """
        Run all LSTM layers in both directions, skip connections included. A biLM that is not frozen runs them
        as in training: an evaluation between two steps has the same results, to the last bit, whether its
        parameters have gradients or not.

        # Parameters

        inputs : `Sequence[Tensor]`
            Token vectors of the forward and of the backward direction, `(num_tokens, projection_dim)`, packed
            as `Packing` says; the backward ones are already reversed.
        step_sizes : `List[int]`
            Number of sequences at each step, never rising.
        initial_states : `Sequence[State]`, optional
            What each LSTM starts from, forward and backward of layer 0, then of layer 1 ...; zeros if not
            given.
        drop : `Callable[[Tensor], Tensor]`, optional
            Applied to the inputs of each layer: dropout.

        # Returns

        The outputs of both directions for each layer, packed like the inputs; and the states after the last
        step, in the order of `initial_states`.
        """
        parameters = list(self.parameters())
        is_at_rest = self._begin_pass(parameters) and are_frozen(parameters)
        return self._run_layers(inputs, step_sizes, initial_states, drop, is_at_rest)

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
        Write options and weights as bilm-tf does. Both files appear complete or not at all. Those of a model
        of ELMoForManyLangs can be loaded by this package only.

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

    @property
    def _lstms(self) -> Dict[str, ProjectedLSTM]:
        """By name: forward and backward of layer 0, then of layer 1 ..."""
        return {
            f"{name}.{number}": cast(ProjectedLSTM, layers[number])
            for number in range(self.options.num_layers)
            for name, layers in (
                ("forward_layers", self.forward_layers),
                ("backward_layers", self.backward_layers),
            )
        }

    def _begin_pass(self, parameters: Sequence[Tensor]) -> bool:
        num_backward_passes = self.character_encoder.num_backward_passes
        num_backward_passes += sum(layer.num_backward_passes for layer in self._lstms.values())
        return self._frozen.begin_pass(parameters, self.training, num_backward_passes)

    def _run_layers(
        self,
        inputs: Sequence[Tensor],
        step_sizes: List[int],
        initial_states: Optional[Sequence[State]],
        drop: Optional[Callable[[Tensor], Tensor]],
        is_at_rest: bool,
    ) -> Tuple[List[Tuple[Tensor, Tensor]], List[State]]:
        lstms = self._lstms
        prepared = self._frozen.prepared_layers(lstms, is_at_rest)
        layers = list(lstms.values())
        like = layers[0].gate_weight
        if initial_states is None:
            zeros = [
                like.new_zeros(step_sizes[0], size)
                for size in (layers[0].projection_dim, layers[0].cell_size)
            ]
            initial_states = [(zeros[0], zeros[1])] * len(layers)
        outputs: List[Tuple[Tensor, Tensor]] = []
        final_states: List[State] = []
        for number in range(self.options.num_layers):
            if drop is not None:
                inputs = [drop(vectors) for vectors in inputs]
            both = slice(2 * number, 2 * number + 2)
            runs = [
                LSTMRun(vectors.to(like), step_sizes, state.to(like), cell.to(like))
                for vectors, (state, cell) in zip(inputs, initial_states[both])
            ]
            if prepared is None:
                outcomes = run_side_by_side(layers[both], runs)
            else:
                # Products are made in the biLM's precision, whatever autocast says.
                with torch.autocast(like.device.type, enabled=False):
                    outcomes = prepared.kernel.run(prepared.layers[both], runs)
            # The states that are carried exclude the skip connection.
            final_states += [(state, cell) for _, state, cell in outcomes]
            forward_output, backward_output = (output for output, _, _ in outcomes)
            if self.options.use_skip_connections and number > 0:
                forward_output = forward_output + inputs[0]
                backward_output = backward_output + inputs[1]
            outputs.append((forward_output, backward_output))
            inputs = outputs[-1]
        return outputs, final_states

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


class CarriedStates:
    """
    State and memory cell of every row, for each of `num_lstms` LSTMs, detached from the graph.

    A batch uses and updates those of the first rows that have tokens. New rows start from zeros; rows beyond
    a smaller batch stay as they are, as in bilm-tf and AllenNLP.

    # Parameters

    num_lstms : `int`
        Layers times directions.

    # Attributes

    states : `List[State]`, optional
        Of each LSTM `(num_rows, projection_dim)` and `(num_rows, cell_size)`; `None` before the first batch.
    """

    def __init__(self, num_lstms: int) -> None:
        self.num_lstms = num_lstms
        self.states: Optional[List[State]] = None

    @property
    def num_rows(self) -> int:
        """Number of rows that have states."""
        return 0 if self.states is None else self.states[0][0].size(0)

    def reset(self, rows: Optional[Tensor] = None) -> None:
        """Let the next batch start from zeros: in all rows, or where `rows`, `(num_rows,)`, is true."""
        if rows is None or self.states is None:
            self.states = None
        else:
            kept = ~rows.unsqueeze(1).to(self.states[0][0].device)
            self.states = [(state * kept, cell * kept) for state, cell in self.states]

    def initial(self, packing: Packing) -> Optional[List[State]]:
        """For each LSTM the states to start a batch from, longest row first; `None` for zeros."""
        if self.states is None:
            return None
        rows, num_rows = _rows_with_tokens(packing), packing.batch_size

        def of_rows(tensor: Tensor) -> Tensor:
            # The biLM may have been moved in the meantime.
            return _lengthened(tensor, num_rows).to(rows.device)[rows]

        return [(of_rows(state), of_rows(cell)) for state, cell in self.states]

    def keep(self, states: List[State], packing: Packing) -> None:
        """Keep the states after a batch, given longest row first."""
        rows = _rows_with_tokens(packing).to(states[0][0].device)

        def updated(old: Tensor, new: Tensor) -> Tensor:
            return _lengthened(old.to(new), packing.batch_size).index_copy(0, rows, new)

        states = [(state.detach(), cell.detach()) for state, cell in states]
        old_states = self.states or [(state[:0], cell[:0]) for state, cell in states]
        self.states = [
            (updated(old_state, state), updated(old_cell, cell))
            for (old_state, old_cell), (state, cell) in zip(old_states, states)
        ]


def _rows_with_tokens(packing: Packing) -> Tensor:
    return packing.order[: packing.step_sizes[0]]


def _lengthened(tensor: Tensor, num_rows: int) -> Tensor:
    """`(rows, dim)` with zeros up to `num_rows`, where there are fewer."""
    missing = max(0, num_rows - tensor.size(0))
    return torch.nn.functional.pad(tensor, (0, 0, 0, missing))
