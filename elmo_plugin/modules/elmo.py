"""Compute ELMo representations: one pass of a biLM, and any number of scalar mixes of its layers."""

from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from torch import Tensor

from elmo_plugin.bilm.bilm import DEFAULT_WORD_CACHE_SIZE, BiLM
from elmo_plugin.bilm.checkpoints import (
    BILM_PREFIX,
    CHECKSUM_KEY,
    SOURCE_KEY,
    as_bytes,
    check_referred_bilm,
    describe_source,
    from_bytes,
    referred_name,
)
from elmo_plugin.bilm.kernels import AUTO
from elmo_plugin.bilm.model_files import pretrained_files, pretrained_names
from elmo_plugin.bilm.weights import weights_checksum
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.scalar_mix import ScalarMix

# About 250 MB of activations in the paper's model.
DEFAULT_MAX_TOKENS = 20_000
DEFAULT_SENTENCE_CACHE_MB = 1_000


class Elmo(torch.nn.Module):
    """
    Compute ELMo representations of a batch of sentences (paper, section 3.2).

    Arguments and result are those of `allennlp.modules.elmo.Elmo`, so only the import changes. One
    difference: the biLM is stateless unless `stateful` is set. Submodules have AllenNLP's names
    (`_elmo_lstm`, `scalar_mix_0`, ...) too, because configs refer to them with regexes.

    # Parameters

    options_file, weight_file : `str`
        bilm-tf's files: path, URL or `hf://` name. `elmo_mini`, the biLM of this package, stands for both
        files, and so does a `.zip` of both; the other argument is then `None`.
    num_output_representations : `int`
        Number of scalar mixes; 2 for ELMo at the input and the output of a task RNN.
    requires_grad : `bool`, optional (default = `False`)
        Fine-tune the biLM.
    do_layer_norm : `bool`, optional (default = `False`)
        Normalise layers before mixing, see `ScalarMix`.
    dropout : `float`, optional (default = `0.5`)
        Dropout on the ELMo representations.
    vocab_to_cache : `List[str]`, optional
        Words whose token representations are computed in the constructor; `forward` then accepts their
        indices. The first entry stands for padding.
    keep_sentence_boundaries : `bool`, optional (default = `False`)
        Keep the sentence marks: outputs have `timesteps + 2` steps.
    scalar_mix_parameters : `List[float]`, optional
        Fixed scalar parameters (weights before the softmax) of all mixes; gamma is then fixed at 1.
        `[-9e10, 1, -9e10]` selects the first of two LSTM layers.
    module : `torch.nn.Module`, optional
        A module to use instead of a biLM from files (which are then both `None`). It needs a `num_layers`
        attribute, a `get_output_dim` method, and a `forward` that takes character ids and word ids and
        returns a dictionary with `activations` and `mask`. `requires_grad` does not apply to it.
    stateful : `bool`, optional (default = `False`)
        Carry LSTM states from batch to batch, as bilm-tf and AllenNLP do.
    word_cache_size : `int`, optional (default = 50,000)
        Number of distinct words that a frozen biLM caches, see `BiLM`.
    top_layer_only : `bool`, optional (default = `False`)
        Use only the last layer, with a trainable gamma (paper, table 2, "last only").
    precision : `str`, optional (default = `"float32"`)
        `bfloat16` and `int8` make a frozen biLM faster and less exact, see `BiLM`. Can be changed between
        training and prediction.
    kernel : `str`, optional (default = `"auto"`)
        The kernel that runs a frozen biLM, see `BiLM`.
    packed_folder : `str`, optional
        A folder in which the processes of a machine share the packed weights of a frozen biLM, see `BiLM`.
    sentence_cache_mb : `float`, optional (default = 1,000)
        On a CPU, MB of memory for what the frozen biLM makes of sentences in training, so that later epochs
        need not run it, see `BiLM`. Prediction with a trained model remembers none. 0 for none.
    serialization_dir : `str`, optional
        Set by AllenNLP, not by configs: the folder that an archive is loaded from. If the archive holds this
        biLM, the files are not needed.

    # Raises

    `ConfigurationError` for files that are missing or wrong, and for arguments that contradict each other.
    """

    def __init__(
        self,
        options_file: Optional[str],
        weight_file: Optional[str],
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Optional[List[str]] = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Optional[List[float]] = None,
        module: Optional[torch.nn.Module] = None,
        stateful: bool = False,
        word_cache_size: int = DEFAULT_WORD_CACHE_SIZE,
        top_layer_only: bool = False,
        precision: str = "float32",
        kernel: str = AUTO,
        packed_folder: Optional[str] = None,
        sentence_cache_mb: float = DEFAULT_SENTENCE_CACHE_MB,
        max_tokens: int = DEFAULT_MAX_TOKENS,
        serialization_dir: Optional[str] = None,
    ) -> None:
        super().__init__()
        if max_tokens < 1:
            raise ConfigurationError(f"ELMo's max_tokens is {max_tokens}, expected at least 1.")
        if not 0.0 <= dropout <= 1.0:
            raise ConfigurationError(f"ELMo's dropout is {dropout}, expected 0 to 1.")
        if num_output_representations < 1:
            raise ConfigurationError(
                f"num_output_representations is {num_output_representations}, expected at least 1."
            )
        if top_layer_only and scalar_mix_parameters is not None:
            raise ConfigurationError(
                "top_layer_only and scalar_mix_parameters both set the weights of the layers. Leave out one."
            )
        if requires_grad and precision != "float32":
            raise ConfigurationError(
                f"precision is '{precision}' with requires_grad, but lower precisions are for a frozen biLM. "
                "Leave out precision in training; set it for prediction."
            )
        source: Optional[Tensor] = None
        # AllenNLP's name. `Any`, since `module` may be of any class.
        self._elmo_lstm: Any
        if module is not None:
            if options_file is not None or weight_file is not None:
                raise ConfigurationError(
                    "Elmo was given both a module and files. Give either options_file and weight_file, or "
                    "module with both of them None."
                )
            self._elmo_lstm = module
        else:
            if options_file is None and weight_file is None:
                raise ConfigurationError(
                    "Elmo was given neither a weight_file nor a module. Give options_file and weight_file, "
                    "or module."
                )
            settings: Dict[str, Any] = {
                "stateful": stateful,
                "word_cache_size": word_cache_size,
                "precision": precision,
                "kernel": kernel,
                "packed_folder": packed_folder,
                "sentence_cache_mb": sentence_cache_mb,
            }
            self._elmo_lstm = BiLM.from_archive(
                serialization_dir, options_file, weight_file, **settings
            ) or BiLM.from_files(options_file, weight_file, **settings)
            self._elmo_lstm.requires_grad_(requires_grad)
            if vocab_to_cache is not None:
                self._elmo_lstm.cache_vocabulary(vocab_to_cache)
            source = describe_source(options_file, weight_file, self._elmo_lstm.options)
        # In the state dict, so that an archive can be loaded without the files.
        self.register_buffer(SOURCE_KEY, source)
        # torch 2.4 has this method only with an underscore.
        self._register_load_state_dict_pre_hook(_keep_own_source, with_module=True)

        self.max_tokens = max_tokens
        self.do_layer_norm = do_layer_norm
        self.keep_sentence_boundaries = keep_sentence_boundaries
        self.num_output_representations = num_output_representations
        self.dropout = torch.nn.Dropout(dropout)
        num_layers = self._elmo_lstm.num_layers
        if top_layer_only:
            scalar_mix_parameters = [-9e10] * (num_layers - 1) + [1.0]
        for index in range(num_output_representations):
            mix = ScalarMix(
                num_layers,
                do_layer_norm=do_layer_norm,
                initial_scalar_parameters=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
                trainable_gamma=scalar_mix_parameters is None or top_layer_only,
            )
            self.add_module(f"scalar_mix_{index}", mix)

    @classmethod
    def from_params(cls, params: Any, *arguments: Any, **extras: Any) -> "Elmo":
        """Construct from AllenNLP's `Params`, as subclasses of its `FromParams` do."""
        # Imported here: a caller that has `Params` has AllenNLP.
        from allennlp.common.from_params import FromParams

        return FromParams.from_params.__func__(cls, params, *arguments, **extras)

    @property
    def bilm(self) -> torch.nn.Module:
        """The biLM, or the `module` given in its place."""
        return self._elmo_lstm

    @property
    def scalar_mixes(self) -> List[ScalarMix]:
        """The scalar mix of each representation, in order."""
        return [
            self.get_submodule(f"scalar_mix_{index}")  # type: ignore[misc]
            for index in range(self.num_output_representations)
        ]

    def get_output_dim(self) -> int:
        """Width of a representation."""
        return self._elmo_lstm.get_output_dim()

    def reset_states(self) -> None:
        """Reset the states of a stateful biLM, so that the next batch starts from zeros."""
        self._elmo_lstm.reset_states()

    def forward(
        self, inputs: Tensor, word_inputs: Optional[Tensor] = None
    ) -> Dict[str, Union[Tensor, List[Tensor]]]:
        """
        Compute the ELMo representations of a batch.

        # Parameters

        inputs : `Tensor`
            Character ids, `(batch_size, timesteps, 50)`. There may be more dimensions between the batch and
            the timesteps.
        word_inputs : `Tensor`, optional
            Indices into `vocab_to_cache`, in the shape of `inputs` without the last dimension.

        # Returns

        A dictionary with
        - `elmo_representations`: a list of `num_output_representations` tensors, `(batch_size, timesteps,
          get_output_dim())`, zero at padding (not zero if sentence boundaries are kept and layers are
          normalised);
        - `mask`: `(batch_size, timesteps)`.

        Both have the additional dimensions of `inputs`, and 2 more timesteps if sentence boundaries are kept.

        # Raises

        `ValueError` for a tensor of wrong rank, shape or type, or ids out of range.
        """
        if inputs.dim() < 3:
            raise ValueError(
                f"ELMo got character ids of shape {tuple(inputs.shape)}, expected (batch_size, timesteps, "
                "50). Make them with batch_to_ids or the elmo_characters indexer."
            )
        outer_shape, timesteps = inputs.shape[:-2], inputs.size(-2)
        rows = inputs.reshape(outer_shape.numel(), *inputs.shape[-2:])
        if word_inputs is not None:
            word_inputs = word_inputs.reshape(-1, word_inputs.size(-1))
        if rows.size(0) * timesteps > self.max_tokens and self._may_read_in_pieces():
            mixed, mask = self._mix_in_pieces(rows, word_inputs)
        else:
            mixed, mask = self._mix(rows, word_inputs)
        return {
            "elmo_representations": [
                self.dropout(representation).reshape(*outer_shape, *representation.shape[1:])
                for representation in mixed
            ],
            "mask": mask.reshape(*outer_shape, mask.size(1)),
        }

    def _mix(
        self, character_ids: Tensor, word_ids: Optional[Tensor]
    ) -> Tuple[List[Tensor], Tensor]:
        """Return each mix, `(num_rows, timesteps, dim)`, and the mask; with marks if those are kept."""
        bilm_output = self._elmo_lstm(character_ids, word_ids)
        mask_with_boundaries = mask = bilm_output["mask"]
        if not self.keep_sentence_boundaries:
            # The words of a row follow its first mark. Together with both marks it has two tokens more.
            mask = mask_with_boundaries[:, 2:]
        mixed: List[Tensor] = []
        for mix in self.scalar_mixes:
            # (num_rows, timesteps + 2, dim)
            representation = mix(bilm_output["activations"], mask_with_boundaries)
            if not self.keep_sentence_boundaries:
                representation = representation[:, 1:-1].masked_fill(~mask.unsqueeze(-1), 0.0)
            mixed.append(representation)
        return mixed, mask

    def _may_read_in_pieces(self) -> bool:
        # Carried states belong to rows, and statistics of layers to a batch.
        return (
            isinstance(self._elmo_lstm, BiLM)
            and not self._elmo_lstm.stateful
            and not self.do_layer_norm
            and not torch.is_grad_enabled()
        )

    def _mix_in_pieces(
        self, character_ids: Tensor, word_ids: Optional[Tensor]
    ) -> Tuple[List[Tensor], Tensor]:
        """As `_mix`, of at most `max_tokens` tokens at a time, or one row."""
        num_marks = 2 if self.keep_sentence_boundaries else 0
        # At once, for messages that name the row.
        lengths = self._elmo_lstm.check_inputs(character_ids, word_ids)[0].sum(dim=1)
        num_rows, timesteps = character_ids.shape[:2]
        mask = torch.arange(timesteps + num_marks, device=lengths.device) < (
            lengths.unsqueeze(1) + num_marks
        )
        mixed: List[Tensor] = []
        sorted_lengths, order = lengths.sort(descending=True, stable=True)
        start = 0
        while start < num_rows:
            width = max(1, int(sorted_lengths[start]))
            rows = order[start : start + max(1, self.max_tokens // width)]
            start += len(rows)
            piece, _ = self._mix(
                character_ids[rows, :width], None if word_ids is None else word_ids[rows, :width]
            )
            if not mixed:
                mixed = [
                    one.new_zeros(num_rows, timesteps + num_marks, one.size(2)) for one in piece
                ]
            for whole, part in zip(mixed, piece):
                whole[rows, : part.size(1)] = part
        return mixed, mask


def referable_bilms(model: torch.nn.Module) -> Dict[str, Dict[str, Any]]:
    """
    Return the biLMs in a model that come with this package and were not changed since: by the name of the
    `Elmo` in the model, the biLM's description for a state dict without its weights.
    """
    descriptions: Dict[str, Dict[str, Any]] = {}
    for elmo_name, elmo in model.named_modules():
        if not isinstance(elmo, Elmo) or getattr(elmo, SOURCE_KEY) is None:
            continue
        source = from_bytes(getattr(elmo, SOURCE_KEY))
        name = referred_name(source)
        if name in pretrained_names():
            checksum = weights_checksum(elmo.bilm)
            if checksum == weights_checksum(BiLM.from_files(*pretrained_files(name))):
                descriptions[elmo_name] = {**source, CHECKSUM_KEY: checksum}
    return descriptions


def small_state_dict(model: torch.nn.Module) -> Dict[str, Tensor]:
    """
    Return the state dict of a model without the weights of its `referable_bilms`: when it is loaded, they
    come from this package, and are compared with the checksum in their description.
    """
    state_dict = model.state_dict()
    for elmo_name, description in referable_bilms(model).items():
        prefix = f"{elmo_name}." if elmo_name else ""
        state_dict[prefix + SOURCE_KEY] = as_bytes(description)
        for key in [key for key in state_dict if key.startswith(prefix + BILM_PREFIX)]:
            del state_dict[key]
    return state_dict


def _keep_own_source(elmo: Elmo, state_dict: Dict[str, Tensor], prefix: str, *unused: Any) -> None:
    """
    Keep the description of this object's biLM when a state dict is loaded (a `load_state_dict` pre-hook), and
    the biLM itself if the state dict only refers to it.

    The description in a state dict may have another length. State dicts of AllenNLP's `Elmo` have none.
    """
    if prefix + SOURCE_KEY in state_dict:
        saved_source = from_bytes(state_dict[prefix + SOURCE_KEY])
        if CHECKSUM_KEY in saved_source:
            check_referred_bilm(elmo.bilm, saved_source)
            for name, tensor in elmo.bilm.state_dict().items():
                state_dict[prefix + BILM_PREFIX + name] = tensor
    source = getattr(elmo, SOURCE_KEY)
    if source is not None:
        state_dict[prefix + SOURCE_KEY] = source
    else:
        # This biLM was given as `module`, and has no description.
        state_dict.pop(prefix + SOURCE_KEY, None)
