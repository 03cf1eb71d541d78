"""ELMo representations: one pass of a biLM, any number of mixes of its layers."""

from typing import Any, Dict, List, Optional, Union

import torch
from torch import Tensor

from elmo_plugin.bilm.bilm import DEFAULT_WORD_CACHE_SIZE, BiLM
from elmo_plugin.bilm.checkpoints import SOURCE_KEY, describe_source
from elmo_plugin.bilm.kernels import AUTO
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.scalar_mix import ScalarMix


class Elmo(torch.nn.Module):
    """
    Compute ELMo representations of a batch of sentences (paper, section 3.2).

    Arguments and result are those of `allennlp.modules.elmo.Elmo`, so that code changes its import and
    nothing else, except that the biLM is stateless unless `stateful` is set. Submodules keep AllenNLP's
    names too (`_elmo_lstm`, `scalar_mix_0`, ...), because configs reach for them with regexes.

    # Parameters

    options_file, weight_file : `str`
        bilm-tf's files: path, URL or `hf://` name. `elmo_mini`, the biLM that comes with this package, stands
        for both, and so does a `.zip` with both; the other one is then `None`.
    num_output_representations : `int`
        How many mixes to make of the one biLM pass; 2 for ELMo at the input and the output of a task RNN.
    requires_grad : `bool`, optional (default = `False`)
        Fine-tune the biLM.
    do_layer_norm : `bool`, optional (default = `False`)
        Normalise layers before mixing, see `ScalarMix`.
    dropout : `float`, optional (default = `0.5`)
        Dropout on the mixed representations.
    vocab_to_cache : `List[str]`, optional
        Words whose token vectors are computed once, now; `forward` can then be given their indices. The
        first entry stands for padding.
    keep_sentence_boundaries : `bool`, optional (default = `False`)
        Leave the sentence marks in: `timesteps + 2` steps.
    scalar_mix_parameters : `List[float]`, optional
        Fixed weights of the layers, before the softmax, the same in all mixes; gamma is then fixed at 1.
        `[-9e10, 1, -9e10]` selects the first LSTM layer of two.
    module : `torch.nn.Module`, optional
        Use this in place of a biLM from files (both then `None`): anything with a `num_layers` attribute, a
        `get_output_dim` method, and a `forward` that takes character ids and word ids and gives a
        dictionary with `activations` and `mask`. `requires_grad` leaves it as it is.
    stateful : `bool`, optional (default = `False`)
        Carry LSTM states from batch to batch as bilm-tf and AllenNLP do.
    word_cache_size : `int`, optional (default = 50,000)
        How many word types a frozen biLM remembers, see `BiLM`.
    top_layer_only : `bool`, optional (default = `False`)
        Use the last layer alone, with a gamma that is learnt (paper, table 2, "last only").
    precision : `str`, optional (default = `"float32"`)
        `bfloat16` or `int8` make a frozen biLM faster and less exact, see `BiLM`. It can be changed between
        training and prediction.
    kernel : `str`, optional (default = `"auto"`)
        What runs a frozen biLM, see `BiLM`.
    packed_folder : `str`, optional
        Where processes of a machine keep a frozen biLM's weights together, see `BiLM`.
    serialization_dir : `str`, optional
        Filled in by AllenNLP, not by configs: where an archive is being loaded from. If it holds this
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
        serialization_dir: Optional[str] = None,
    ) -> None:
        super().__init__()
        if not 0.0 <= dropout <= 1.0:
            raise ConfigurationError(f"ELMo's dropout is {dropout}, expected 0 to 1.")
        if num_output_representations < 1:
            raise ConfigurationError(
                f"num_output_representations is {num_output_representations}, expected at least 1."
            )
        if top_layer_only and scalar_mix_parameters is not None:
            raise ConfigurationError(
                "top_layer_only fixes the weights of the layers. Leave out scalar_mix_parameters, or it."
            )
        if requires_grad and precision != "float32":
            raise ConfigurationError(
                f"precision is '{precision}' with requires_grad, but lower precisions are for a frozen biLM. "
                "Leave out precision while the biLM is trained; set it for prediction."
            )
        source: Optional[Tensor] = None
        # AllenNLP's name. Any module will do that has what is documented above.
        self._elmo_lstm: Any
        if module is not None:
            if options_file is not None or weight_file is not None:
                raise ConfigurationError(
                    "Elmo was given a module and files as well. Give either options_file and weight_file, "
                    "or module with both of them None."
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
        # The method without underscore is newer than torch 2.4.
        self._register_load_state_dict_pre_hook(_keep_own_source, with_module=True)

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
        """Construct from AllenNLP's `Params`, as what inherits from its `FromParams` does."""
        # Only what has `Params` has AllenNLP.
        from allennlp.common.from_params import FromParams

        return FromParams.from_params.__func__(cls, params, *arguments, **extras)

    @property
    def bilm(self) -> torch.nn.Module:
        """The biLM, or the `module` given in its place."""
        return self._elmo_lstm

    @property
    def scalar_mixes(self) -> List[ScalarMix]:
        """The mix of each representation, in order."""
        return [
            self.get_submodule(f"scalar_mix_{index}")  # type: ignore[misc]
            for index in range(self.num_output_representations)
        ]

    def get_output_dim(self) -> int:
        """Width of a representation."""
        return self._elmo_lstm.get_output_dim()

    def reset_states(self) -> None:
        """Let a stateful biLM start the next batch from zeros."""
        self._elmo_lstm.reset_states()

    def forward(
        self, inputs: Tensor, word_inputs: Optional[Tensor] = None
    ) -> Dict[str, Union[Tensor, List[Tensor]]]:
        """
        # Parameters

        inputs : `Tensor`
            `(batch_size, timesteps, 50)` character ids, or with further dimensions between the first
            and the last two.
        word_inputs : `Tensor`, optional
            `inputs`' shape without the last dimension: indices into `vocab_to_cache`.

        # Returns

        A dictionary with `elmo_representations`, a list of `num_output_representations` tensors
        `(batch_size, timesteps, get_output_dim())`, zero at padding, and `mask`,
        `(batch_size, timesteps)`; both with the further dimensions of `inputs`, and with 2 more steps
        if sentence boundaries are kept. (Boundaries kept and layers normalised: padding is not zero.)

        # Raises

        `ValueError` for a tensor of wrong rank, shape or type, or ids out of range.
        """
        if inputs.dim() < 3:
            raise ValueError(
                f"ELMo got character ids of shape {tuple(inputs.shape)}, expected (batch_size, timesteps, "
                "50). Make them with batch_to_ids or the elmo_characters indexer."
            )
        outer_shape, timesteps, num_characters = inputs.shape[:-2], *inputs.shape[-2:]
        if word_inputs is not None:
            word_inputs = word_inputs.reshape(-1, word_inputs.size(-1))
        num_rows = outer_shape.numel()
        bilm_output = self._elmo_lstm(
            inputs.reshape(num_rows, timesteps, num_characters), word_inputs
        )
        mask_with_boundaries = mask = bilm_output["mask"]
        if not self.keep_sentence_boundaries:
            # The words of a row follow its first mark. Together with both marks it has two tokens more.
            mask = mask_with_boundaries[:, 2:]

        representations: List[Tensor] = []
        for mix in self.scalar_mixes:
            # (num_rows, timesteps + 2, dim)
            representation = mix(bilm_output["activations"], mask_with_boundaries)
            if not self.keep_sentence_boundaries:
                representation = representation[:, 1:-1].masked_fill(~mask.unsqueeze(-1), 0.0)
            representations.append(
                self.dropout(representation).reshape(*outer_shape, *representation.shape[1:])
            )
        return {
            "elmo_representations": representations,
            "mask": mask.reshape(*outer_shape, mask.size(1)),
        }


def _keep_own_source(elmo: Elmo, state_dict: Dict[str, Tensor], prefix: str, *unused: Any) -> None:
    """
    A `load_state_dict` pre-hook: the description of the biLM is that of this object.

    State dicts of AllenNLP's `Elmo` have none, and one saved under other file names has another length.
    """
    source = getattr(elmo, SOURCE_KEY)
    if source is not None:
        state_dict[prefix + SOURCE_KEY] = source
    else:
        # This biLM was given as a module.
        state_dict.pop(prefix + SOURCE_KEY, None)
