"""ELMo representations: one pass of a biLM, and any number of scalar mixes of its layers."""

import logging
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

import torch
from torch import Tensor

from elmo_plugin.bilm.batch import INTEGERS
from elmo_plugin.bilm.bilm import BiLM
from elmo_plugin.bilm.characters import batch_to_ids
from elmo_plugin.bilm.frozen import FrozenBiLM
from elmo_plugin.bilm.runners import InferenceSettings
from elmo_plugin.bilm.snapshot import CurrentSnapshot
from elmo_plugin.errors import ConfigurationError, check_positive, is_probability, warn_once
from elmo_plugin.modules.elmo_archives import (
    SOURCE_KEY,
    archived_bilm,
    check_word_vectors,
    describe_source,
    keep_own_bilm,
    set_word_vectors_aside,
)
from elmo_plugin.modules.scalar_mix import ScalarMix

logger = logging.getLogger(__name__)


class Elmo(torch.nn.Module):
    """
    Compute ELMo representations of a batch of sentences (paper, section 3.2).

    Arguments and result are those of `allennlp.modules.elmo.Elmo`, so only the import changes. One
    difference: the biLM is stateless unless `stateful` is set. Submodules have AllenNLP's names
    (`_elmo_lstm`, `scalar_mix_0`, ...) too, because configs refer to them with regexes.

    # Parameters

    options_file, weight_file : `str`
        See `BiLM.from_files`. One name is enough for both, such as `elmo_mini`; leave out the other.
    num_output_representations : `int`, optional (default = `1`)
        Number of scalar mixes; 2 for ELMo at the input and the output of a task RNN.
    requires_grad : `bool`, optional (default = `False`)
        Fine-tune the biLM.
    do_layer_norm : `bool`, optional (default = `False`)
        Normalize layers before mixing, see `ScalarMix`.
    dropout : `float`, optional (default = `0.5`)
        Dropout on the ELMo representations.
    vocab_to_cache : `List[str]`, optional
        Words whose indices `forward` accepts in place of their characters. The first entry is padding. Their
        vectors are those of the character encoder, in fine-tuning too, where AllenNLP trains separate ones.
    keep_sentence_boundaries : `bool`, optional (default = `False`)
        Keep the sentence marks, `<S>` and `</S>`: outputs have `timesteps + 2` steps.
    scalar_mix_parameters : `List[float]`, optional
        Fixed scalar parameters (weights before the softmax) of all mixes; gamma is then fixed at 1.
        `[-9e10, 1, -9e10]` selects the first of two LSTM layers.
    module : `torch.nn.Module`, optional
        A module to use instead of a biLM from files (which are then both `None`): a `BiLM`, a `FrozenBiLM` or
        any with a `num_layers` attribute, a `get_output_dim` method, and a `forward` that takes character ids
        and word ids and returns a dictionary with `activations` and `mask`. `requires_grad` does not apply to
        it.
    stateful : `bool`, optional (default = `False`)
        Carry LSTM states from batch to batch, as bilm-tf and AllenNLP do.
    top_layer_only : `bool`, optional (default = `False`)
        Use only the last layer, with a trainable gamma (paper, table 2, "last only").
    serialization_dir : `str`, optional
        Set by AllenNLP, not by configs: the folder that an archive is loaded from. If the archive holds this
        biLM, the files are not needed.
    inference
        The fields of `InferenceSettings`, such as `precision`: how a frozen biLM runs. They may differ
        between training and prediction.

    # Raises

    `ConfigurationError` for files that are missing or wrong, and for arguments that contradict each other.
    """

    def __init__(
        self,
        options_file: Optional[str],
        weight_file: Optional[str] = None,
        num_output_representations: int = 1,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Optional[List[str]] = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Optional[List[float]] = None,
        module: Optional[torch.nn.Module] = None,
        stateful: bool = False,
        top_layer_only: bool = False,
        serialization_dir: Optional[str] = None,
        **inference: Any,
    ) -> None:
        super().__init__()
        for name, value in (
            ("requires_grad", requires_grad),
            ("do_layer_norm", do_layer_norm),
            ("keep_sentence_boundaries", keep_sentence_boundaries),
            ("stateful", stateful),
            ("top_layer_only", top_layer_only),
        ):
            if not isinstance(value, bool):
                # The text "false", as `std.extVar` returns it, would be true.
                raise ConfigurationError(f"ELMo's {name} is {value!r}, expected true or false.")
        if not is_probability(dropout):
            raise ConfigurationError(
                f"ELMo's dropout is {dropout!r}, expected a number from 0 to 1."
            )
        check_positive("num_output_representations", num_output_representations)
        if top_layer_only and scalar_mix_parameters is not None:
            raise ConfigurationError(
                "top_layer_only and scalar_mix_parameters both set the weights of the layers. Leave out one."
            )
        if vocab_to_cache is not None and not vocab_to_cache:
            raise ConfigurationError(
                "vocab_to_cache is an empty list, expected words, the first of them the padding. Leave it "
                "out to read every word from its characters."
            )
        settings = InferenceSettings.from_dict(inference)
        if requires_grad and settings.precision != "float32":
            raise ConfigurationError(
                f"precision is '{settings.precision}' with requires_grad, but lower precisions are for a "
                "frozen biLM. Leave out precision in training. For prediction, set requires_grad to false "
                "too."
            )
        source: Optional[Tensor] = None
        # AllenNLP's name.
        self._elmo_lstm: Any
        if module is not None:
            if stateful:
                raise ConfigurationError(
                    "Elmo was given a module and stateful, which is for a biLM from files. Make the module "
                    "stateful instead."
                )
            if options_file is not None or weight_file is not None:
                raise ConfigurationError(
                    "Elmo was given both a module and files. Give either options_file and weight_file, or "
                    "module with both of them None."
                )
            if inference and not isinstance(module, BiLM):
                raise ConfigurationError(
                    f"Elmo was given a module that is no BiLM, and {', '.join(inference)}, which only a BiLM "
                    "follows. Leave it out, or give it to `freeze` or `FrozenBiLM.from_files`."
                )
            self._elmo_lstm = module
        else:
            bilm = archived_bilm(serialization_dir, options_file, weight_file, stateful)
            if bilm is None:
                bilm = BiLM.from_files(options_file, weight_file, stateful)
            self._elmo_lstm = bilm.requires_grad_(requires_grad)
            source = describe_source(options_file, weight_file, bilm.options)
        self._snapshot = CurrentSnapshot(settings)
        # Not a buffer: no state dict has it, so `to_empty` would leave it without values.
        self._spellings: Optional[Tensor] = None
        if vocab_to_cache is not None:
            self._spellings = batch_to_ids([vocab_to_cache])[0]  # (num_words, 50)
            self._spellings[0] = 0  # padding
        # In the state dict, so that an archive can be loaded without the files.
        self.register_buffer(SOURCE_KEY, source)
        # After `to_empty` the buffer has no values; loading a state dict restores it from here.
        self._source = source
        # torch 2.4 has this method only with an underscore.
        self._register_load_state_dict_pre_hook(keep_own_bilm, with_module=True)
        if isinstance(self._elmo_lstm, BiLM):
            # Others, such as AllenNLP's own biLM, have vectors of the cached vocabulary.
            self._register_load_state_dict_pre_hook(set_word_vectors_aside, with_module=True)
            self.register_load_state_dict_post_hook(check_word_vectors)
        self._word_vectors_aside: Optional[Tensor] = None

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
    def snapshot(self) -> Optional[FrozenBiLM]:
        """The snapshot that runs in place of a `BiLM`, made if none is current; `None` if its modules run."""
        bilm = self._elmo_lstm
        if isinstance(bilm, FrozenBiLM):
            return bilm
        return self._snapshot.get(bilm) if isinstance(bilm, BiLM) else None

    @property
    def scalar_mixes(self) -> List[ScalarMix]:
        """The scalar mix of each representation, in order."""
        return [
            getattr(self, f"scalar_mix_{index}") for index in range(self.num_output_representations)
        ]

    def get_output_dim(self) -> int:
        """Width of a representation."""
        return self._elmo_lstm.get_output_dim()

    def reset_states(self) -> None:
        """
        Reset the states of a stateful biLM, so that the next batch starts from zeros. In another `module`,
        each part with a method `reset_states` is reset, such as the LSTMs of AllenNLP's own biLM.
        """
        if isinstance(self._elmo_lstm, FrozenBiLM):
            return  # it has none
        for part in self._elmo_lstm.modules():
            if hasattr(part, "reset_states"):
                part.reset_states()

    def keep_only_snapshot(self) -> None:
        """
        Replace the `BiLM` by its snapshot, where one can run, which takes half of the memory. From then on
        this `Elmo` can predict, but it can neither be trained nor saved.
        """
        snapshot = self.snapshot
        if snapshot is not None and isinstance(self.bilm, BiLM) and not self.bilm.stateful:
            del self._elmo_lstm
            self._elmo_lstm = snapshot
            # The other one holds the `BiLM`.
            self._snapshot = CurrentSnapshot(self._snapshot.settings)
            self.register_state_dict_pre_hook(_refuse_to_save)

    def forward(
        self, inputs: Tensor, word_inputs: Optional[Tensor] = None
    ) -> Dict[str, Union[Tensor, List[Tensor]]]:
        """
        Compute the ELMo representations of a batch. While no parameter of a `BiLM` requires a gradient, the
        snapshot that `CurrentSnapshot` returns runs in its place.

        # Parameters

        inputs : `Tensor`
            Character ids, `(batch_size, timesteps, 50)`. There may be more dimensions between the batch and
            the timesteps.
        word_inputs : `Tensor`, optional
            Indices into `vocab_to_cache`, in the shape of `inputs` without the last dimension.

        # Returns

        A dictionary with
        - `elmo_representations`: a list of `num_output_representations` tensors, `(batch_size, timesteps,
          get_output_dim())`, zero at padding (not zero if sentence marks are kept and layers are
          normalized);
        - `mask`: `(batch_size, timesteps)`.

        Both have the additional dimensions of `inputs`, and 2 more timesteps if sentence marks are kept.

        # Raises

        `ValueError` for a tensor of wrong rank, shape or type, or ids out of range.
        """
        is_tensor = isinstance(inputs, Tensor)
        if not is_tensor or inputs.dim() < 3:
            found = f"shape {tuple(inputs.shape)}" if is_tensor else f"type {type(inputs).__name__}"
            raise ValueError(
                f"ELMo got character ids of {found}, expected a tensor (batch_size, timesteps, 50). Make "
                "them with batch_to_ids or the elmo_character_ids indexer."
            )
        outer_shape, timesteps = inputs.shape[:-2], inputs.size(-2)
        rows = inputs.reshape(outer_shape.numel(), *inputs.shape[-2:])
        if word_inputs is not None:
            if word_inputs.shape != inputs.shape[:-1]:
                raise ValueError(
                    f"word_inputs has shape {tuple(word_inputs.shape)}, expected that of the character ids "
                    f"without characters, {tuple(inputs.shape[:-1])}."
                )
            word_inputs = word_inputs.reshape(outer_shape.numel(), timesteps)
            if isinstance(self._elmo_lstm, (BiLM, FrozenBiLM)):
                rows, word_inputs = self._spelled(rows, word_inputs), None
        mixed, mask = self._mix(rows, word_inputs)
        return {
            "elmo_representations": [
                self.dropout(representation).reshape(*outer_shape, *representation.shape[1:])
                for representation in mixed
            ],
            "mask": mask.reshape(*outer_shape, mask.size(1)),
        }

    def _spelled(self, character_ids: Tensor, word_ids: Tensor) -> Tensor:
        """Return the character ids of words, or those that were given if not all words can be looked up."""
        if self._spellings is None:
            warn_once(
                logger,
                "word_inputs is given without vocab_to_cache, so it is not used. Leave it out, or give both.",
            )
            return character_ids
        if word_ids.dtype not in INTEGERS:
            raise ValueError(
                f"word_inputs has type {word_ids.dtype}, expected integers (torch.long)."
            )
        if word_ids.numel() == 0:
            return character_ids
        smallest, largest = (int(value) for value in torch.aminmax(word_ids))
        if smallest < 0:
            raise ValueError(
                f"word_inputs holds {smallest}, expected 0 (padding) or the index of a word in "
                "vocab_to_cache."
            )
        if largest >= len(self._spellings):
            return character_ids
        return self._spellings[word_ids.long().cpu()].to(character_ids.device)

    def _mix(
        self, character_ids: Tensor, word_ids: Optional[Tensor] = None
    ) -> Tuple[List[Tensor], Tensor]:
        """Return each mix, `(num_rows, timesteps, dim)`, and the mask; with marks if those are kept."""
        bilm_output = self._run_bilm(character_ids, word_ids)
        # Other modules may return numbers.
        mask_with_boundaries = mask = bilm_output["mask"].bool()
        if not self.keep_sentence_boundaries:
            # Words come first in a row, and there are two fewer than with sentence marks.
            mask = mask_with_boundaries[:, 2:]
        mixed: List[Tensor] = []
        for mix in self.scalar_mixes:
            # (num_rows, timesteps + 2, dim)
            representation = mix(bilm_output["activations"], mask_with_boundaries)
            if not self.keep_sentence_boundaries:
                representation = representation[:, 1:-1].masked_fill(~mask.unsqueeze(-1), 0.0)
            mixed.append(representation)
        return mixed, mask

    def _run_bilm(self, character_ids: Tensor, word_ids: Optional[Tensor]) -> Dict[str, Any]:
        bilm = self._elmo_lstm
        snapshot = self.snapshot
        if snapshot is None:
            return bilm(character_ids) if isinstance(bilm, BiLM) else bilm(character_ids, word_ids)
        states = bilm.carried_states if isinstance(bilm, BiLM) and bilm.stateful else None
        # Training reads each sentence again in the next epoch; prediction alone does not.
        return snapshot(character_ids, states, keep_sentences=self.training)


def check_left_out(elmo: Mapping[str, Any], *others: str) -> None:
    """
    Raise `ConfigurationError` for arguments of `Elmo` that the parts which hold one in a model set
    themselves, and for `others`.
    """
    for name in ("num_output_representations", "keep_sentence_boundaries", "module", *others):
        if name in elmo:
            raise ConfigurationError(
                f"ELMo's {name} is given, expected it left out: this part sets it, or does not use it."
            )


def _refuse_to_save(*arguments: Any) -> None:
    raise ConfigurationError(
        "This Elmo has released its BiLM (keep_only_snapshot, as predictors do), so it cannot be saved. Load "
        "the model again, by AllenNLP's load_archive."
    )
