"""The bidirectional language model."""

import functools
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
    cast,
)

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from elmo_plugin.bilm.allennlp_names import translate_allennlp_bilm
from elmo_plugin.bilm.batch import CarriedStates, mask_of, read_batch
from elmo_plugin.bilm.character_encoder import CharacterEncoder
from elmo_plugin.bilm.interception import change_since_built, eager
from elmo_plugin.bilm.lstm import ProjectedLSTM, run_directions
from elmo_plugin.bilm.many_langs import ManyLangsEncoder, read_many_langs
from elmo_plugin.bilm.model_files import is_many_langs_file, resolve_model_files
from elmo_plugin.bilm.options import BiLMOptions, ManyLangsEncoderOptions
from elmo_plugin.bilm.steps import CellOptions, LayerInput, RunLayer, State
from elmo_plugin.bilm.weights import opened_weights, save_model, weights_checksum
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import FileName

if TYPE_CHECKING:
    from elmo_plugin.bilm.frozen import FrozenBiLM

# What a biLM returns: `activations` and `mask`.
Output = Dict[str, Union[Tensor, List[Tensor]]]


class BiLM(torch.nn.Module):
    """
    Forward and backward language model over one character encoder (paper, section 3.1), without the
    softmax: it returns the activations of every layer.

    A new `BiLM(options)` has bilm-tf's initial values and is trainable; `from_files` returns a frozen one,
    which runs without gradients. It keeps nothing from batch to batch but the states of a stateful one. For
    fast inference use a `FrozenBiLM`, or `freeze()` this one.

    # Parameters

    options : `BiLMOptions`
        The sizes.
    stateful : `bool`, optional (default = `False`)
        Carry the LSTM states of each row from one batch to the next, as bilm-tf does. The default
        starts every sentence from zeros, so that a sentence has the same vectors wherever it stands.

    # Attributes

    carried_states : `CarriedStates`
        Those of a stateful biLM.
    num_possible_updates : `int`
        Passes of `forward` with gradients, and calls of `requires_grad_`. Each may be followed by a change of
        weights that torch does not count, such as that of an optimizer that writes to `parameter.data`.
    """

    # Parameters made in inference mode have no version, so that changes could not be noticed.
    @torch.inference_mode(False)
    def __init__(self, options: BiLMOptions, stateful: bool = False) -> None:
        super().__init__()
        self.options = options
        self.stateful = stateful
        self.carried_states = CarriedStates()
        self.num_possible_updates = 0
        self.character_encoder: Union[CharacterEncoder, ManyLangsEncoder]
        if isinstance(options.encoder, ManyLangsEncoderOptions):
            self.character_encoder = ManyLangsEncoder(options.encoder, options.projection_dim)
        else:
            self.character_encoder = CharacterEncoder(options.encoder, options.projection_dim)
        self.forward_layers = torch.nn.ModuleList(
            _new_layer(options) for _ in range(options.num_lstm_layers)
        )
        self.backward_layers = torch.nn.ModuleList(
            _new_layer(options) for _ in range(options.num_lstm_layers)
        )
        # The method without underscore is newer than torch 2.4.
        self._register_load_state_dict_pre_hook(translate_allennlp_bilm, with_module=True)

    @classmethod
    @torch.inference_mode(False)
    def from_files(
        cls,
        options_file: Optional[FileName],
        weight_file: Optional[FileName] = None,
        stateful: bool = False,
    ) -> "BiLM":
        """
        Load a frozen biLM from the files of bilm-tf or of ELMoForManyLangs.

        # Parameters

        options_file, weight_file : `str` or `PathLike`
            Path, URL or `hf://owner/repository/file` of the options (JSON) and the weights (HDF5). One name
            is enough for both, and the other argument is left out or the same, if it names a biLM of this
            package, such as `elmo_mini`; the paper's, `original`, which is downloaded; a folder with both
            files or with a model of ELMoForManyLangs; or a `.zip` of such a folder, as NLPL publishes them.
            `./original` is a folder of that name.
        stateful : `bool`, optional (default = `False`)
            See the class.

        # Raises

        `ConfigurationError` naming file and key or dataset if a file is missing or invalid, or if the two
        contradict each other.
        """
        options_path, weight_path = resolve_model_files(options_file, weight_file)
        if is_many_langs_file(weight_path):
            folder = weight_path.parent
            try:
                return cls.from_state_dict(*read_many_langs(options_path, folder), stateful)
            # IndexError, RuntimeError: tensors without dimensions, or with others.
            except (KeyError, IndexError, RuntimeError) as error:
                raise ConfigurationError(
                    f"{folder}: the weights are not of the sizes and dictionaries ({error}). All files must "
                    "belong to the same model."
                ) from error
        bilm = cls.without_weights(BiLMOptions.from_file(options_path), stateful)
        with opened_weights(bilm, weight_path) as weights:
            weights.load(bilm)
        return bilm

    @classmethod
    @torch.inference_mode(False)
    def from_state_dict(
        cls, options: BiLMOptions, state_dict: Dict[str, Tensor], stateful: bool = False
    ) -> "BiLM":
        """
        Return a frozen biLM of the tensors of a state dict, ours or AllenNLP's. They are not copied.
        AllenNLP's are renamed in the state dict.
        """
        bilm = cls.without_weights(options, stateful)
        # Here: the hook of `load_state_dict` translates a copy, and the caller's would keep what it replaced.
        translate_allennlp_bilm(bilm, state_dict, "")
        bilm.load_state_dict(state_dict, assign=True)
        return bilm.requires_grad_(False)

    @classmethod
    def without_weights(cls, options: BiLMOptions, stateful: bool = False) -> "BiLM":
        """Return a biLM whose parameters take no memory and have no values until they are replaced."""
        with torch.device("meta"), _NothingDrawn():
            return cls(options, stateful)

    @property
    def num_layers(self) -> int:
        """Number of layer activations: the token representation, and one for each LSTM layer."""
        return self.options.num_lstm_layers + 1

    @property
    def is_frozen(self) -> bool:
        """Whether no parameter requires a gradient."""
        return not any(parameter.requires_grad for parameter in self.parameters())

    def requires_grad_(self, requires_grad: bool = True) -> "BiLM":
        """
        Make all parameters trainable, or freeze them.

        # Raises

        `ConfigurationError` if a model of ELMoForManyLangs is to be trained.
        """
        if requires_grad and self.options.is_many_langs:
            raise ConfigurationError(
                "A biLM of ELMoForManyLangs cannot be trained. Leave out requires_grad, or use a biLM in "
                "bilm-tf's format."
            )
        self.num_possible_updates += 1
        return super().requires_grad_(requires_grad)

    @property
    def layers(self) -> Sequence[RunLayer]:
        """What runs each layer in both directions, see `run_stack`."""
        return [
            functools.partial(run_directions, cast(Sequence[ProjectedLSTM], directions))
            for directions in zip(self.forward_layers, self.backward_layers)
        ]

    def get_output_dim(self) -> int:
        """Width of a layer activation, both directions together."""
        return 2 * self.options.projection_dim

    @eager
    def forward(self, character_ids: Tensor) -> Output:
        """
        Return the activations of all layers. Sentence marks are added to every row, also to an empty one.

        # Parameters

        character_ids : `Tensor`
            `(batch_size, timesteps, 50)`. Rows of zeros are padding and stand at the end.

        # Returns

        A dictionary with `activations`, a list of `num_layers` tensors
        `(batch_size, timesteps + 2, get_output_dim())`, token representation first, zero at padding; and
        `mask`, `(batch_size, timesteps + 2)`, `True` at words and sentence marks.

        # Raises

        `ValueError` as `mask_of`; `RuntimeError` under `torch.nn.DataParallel`.
        """
        if getattr(self, "_is_replica", False):
            # Replicas hold no parameters, so they would neither train nor notice changed weights.
            raise RuntimeError(
                "A biLM cannot run under torch.nn.DataParallel. Use one process for each GPU instead: "
                "DistributedDataParallel, or the 'distributed' key of an AllenNLP config."
            )
        if torch.is_grad_enabled() and not self.is_frozen:
            self.num_possible_updates += 1
        states = self.carried_states if self.stateful else None
        return run_batch(character_ids, self.options, self.character_encoder, self.layers, states)

    def reset_states(self) -> None:
        """Forget the states carried between batches; the next batch starts from zeros."""
        self.carried_states.reset()

    def freeze(self, **settings: Any) -> "FrozenBiLM":
        """
        Return a `FrozenBiLM` with a copy of the weights. `settings` are the fields of `InferenceSettings`.

        # Raises

        `ConfigurationError` as `FrozenBiLM.from_bilm`.
        """
        from elmo_plugin.bilm.frozen import FrozenBiLM, InferenceSettings

        frozen = FrozenBiLM.from_bilm(self, InferenceSettings.from_dict(settings))
        frozen.weights_sha256 = weights_checksum(self)
        return frozen

    def save(
        self,
        options_file: FileName,
        weight_file: FileName,
        dtype: str = "float32",
        extra: Optional[Mapping[str, Tensor]] = None,
    ) -> None:
        """
        Write options and weights in bilm-tf's format. Those of a model of ELMoForManyLangs can be loaded by
        this package only. See `save_model` for the parameters.

        # Raises

        `OSError` if a file cannot be written, and `ConfigurationError` if a weight is NaN or infinite, or if
        the biLM is not as its options say: if it has hooks or other modules, is of a derived class, or has
        another clip in a layer.
        """
        changed = change_since_built(self, BiLM.without_weights(self.options))
        if changed is not None:
            raise ConfigurationError(
                f"The biLM cannot be saved: {changed}. Undo that, or load the weights into a BiLM with such "
                "options."
            )
        save_model(self, options_file, weight_file, dtype, extra)


def run_batch(
    character_ids: Tensor,
    options: BiLMOptions,
    encode: Callable[[Tensor], Tensor],
    layers: Sequence[RunLayer],
    states: Optional[CarriedStates],
) -> Output:
    """
    Run a biLM on a batch: what `BiLM` and `FrozenBiLM` have in common.

    `encode` returns the vectors of distinct words, `(num_words, projection_dim)`, from `(num_words, 50)`.
    Rows start from `states`, which are then updated, or from zeros. See `run_stack` for `options` and
    `layers`, and `BiLM.forward` for the rest.
    """
    mask = mask_of(character_ids)
    if len(mask) == 0:
        # The shapes of an empty row, without that row.
        row = character_ids.new_zeros(1, *character_ids.shape[1:])
        output = run_batch(row, options, encode, layers, None)
        activations = [layer[:0] for layer in output["activations"]]
        return {"activations": activations, "mask": output["mask"][:0]}
    words, word_of, packing = read_batch(character_ids, mask, merge_sentences=states is None)
    vectors = encode(words).index_select(0, word_of)  # (num_tokens, projection_dim)
    outputs, final_states = run_stack(
        options,
        layers,
        [vectors, vectors.index_select(0, packing.reverse)],
        packing.step_sizes,
        None if states is None else states.initial(packing, vectors),
    )
    if states is not None:
        states.keep(final_states, packing)
    # The token representation has no direction: it is repeated to the width of both.
    packed = [torch.cat([vectors, vectors], dim=1)]
    for forward_output, backward_output in outputs:
        backward_output = backward_output.index_select(0, packing.reverse)
        packed.append(torch.cat([forward_output, backward_output], dim=1))
    # Under autocast LSTMs return float32, and the encoder autocast's type, which all layers get.
    activations = [packing.unpack(layer.to(vectors)) for layer in packed]
    return {"activations": activations, "mask": packing.position >= 0}


def run_stack(
    options: BiLMOptions,
    layers: Sequence[RunLayer],
    inputs: Sequence[Tensor],
    step_sizes: List[int],
    initial_states: Optional[Sequence[State]] = None,
    drop: Optional[Callable[[Tensor], Tensor]] = None,
) -> Tuple[List[Tuple[Tensor, Tensor]], List[State]]:
    """
    Run all LSTM layers in both directions, skip connections included.

    # Parameters

    options : `BiLMOptions`
        The sizes of the biLM.
    layers : `Sequence[RunLayer]`
        Each runs the two directions of a layer.
    inputs : `Sequence[Tensor]`
        Token vectors of the forward and of the backward direction, `(num_tokens, projection_dim)`, packed as
        `Packing` says; the backward ones are already reversed.
    step_sizes : `List[int]`
        Number of sequences at each step, never rising.
    initial_states : `Sequence[State]`, optional
        What each LSTM starts from: forward and backward of layer 0, then of layer 1 ... By default zeros.
    drop : `Callable[[Tensor], Tensor]`, optional
        Applied to the inputs of each layer: dropout.

    # Returns

    The outputs of both directions for each layer, packed like the inputs; and the states after the last step,
    in the order of `initial_states`.
    """
    if initial_states is None:
        state = inputs[0].new_zeros(step_sizes[0], options.projection_dim)
        cell = inputs[0].new_zeros(step_sizes[0], options.cell_size)
        initial_states = [(state, cell)] * (2 * options.num_lstm_layers)
    outputs: List[Tuple[Tensor, Tensor]] = []
    final_states: List[State] = []
    for number, run_layer in enumerate(layers):
        if drop is not None:
            inputs = [drop(vectors) for vectors in inputs]
        states = initial_states[2 * number : 2 * number + 2]
        layer_inputs = [
            LayerInput(vectors, step_sizes, *state) for vectors, state in zip(inputs, states)
        ]
        forward, backward = run_layer(layer_inputs)
        # The states that are carried exclude the skip connection.
        final_states += [(forward.state, forward.cell), (backward.state, backward.cell)]
        if options.use_skip_connections and number > 0:
            inputs = forward.outputs + inputs[0], backward.outputs + inputs[1]
        else:
            inputs = forward.outputs, backward.outputs
        outputs.append(inputs)
    return outputs, final_states


class _NothingDrawn(TorchFunctionMode):
    """`normal_` does nothing: on the meta device it would import torch's compiler, which takes a second."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        return None if function is torch.nn.init.normal_ else function(*args, **(kwargs or {}))


def _new_layer(options: BiLMOptions) -> ProjectedLSTM:
    cell_options = CellOptions(options.cell_clip, options.proj_clip)
    return ProjectedLSTM(
        options.projection_dim, options.cell_size, options.projection_dim, cell_options
    )
