"""Fast inference: an immutable snapshot of a biLM, and when `Elmo` runs one."""

import logging
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from elmo_plugin.bilm.batch import CarriedStates
from elmo_plugin.bilm.bilm import BiLM, Output, run_batch
from elmo_plugin.bilm.interception import are_plain, change_since_built, eager, settings_of
from elmo_plugin.bilm.kept_vectors import SentenceActivations, WordVectors
from elmo_plugin.bilm.model_files import is_many_langs_file, resolve_model_files
from elmo_plugin.bilm.options import BiLMOptions
from elmo_plugin.bilm.processor import check_device
from elmo_plugin.bilm.runners import InferenceSettings, Runner, choose_runner
from elmo_plugin.bilm.steps import LSTMTensors, RunLayer
from elmo_plugin.bilm.threads import torch_in_one_thread_if_needed
from elmo_plugin.bilm.weights import opened_weights, release_freed_memory
from elmo_plugin.errors import ConfigurationError, warn_once
from elmo_plugin.files.text import FileName

logger = logging.getLogger(__name__)


class FrozenBiLM:
    """
    An immutable snapshot of a biLM: options and weights, in the form that its runner reads, on one device in
    one precision, and the vectors of words and sentences that it has met.

    It holds its weights once, and nothing that happens to the files, the parameters or the biLM that it was
    made from changes it. As its weights never change, no vector that it keeps is ever out of date. Threads
    may share it. A copy is the object itself; a pickle holds the packed weights, for processors on which the
    same kernel runs.

    Make one by `FrozenBiLM.from_files` or `BiLM.freeze`.

    # Parameters

    options : `BiLMOptions`
        The sizes.
    encoder : `torch.nn.Module`
        The character encoder of a `BiLM`, on `device`.
    layers : `Iterable[LSTMTensors]`
        Its forward LSTMs, then its backward LSTMs, on `device`. Each matrix is copied before the next is
        requested, so that it can be loaded only then.
    settings : `InferenceSettings`
        How it runs.
    device : `torch.device`
        Where it runs, and where its results are.

    # Attributes

    options, device
        The arguments.
    precision : `str`
        What it runs in: the precision of the settings, or `float32` where `kernel: auto` finds only the
        reference, and that is faster in `float32`.
    kernel : `str`
        What runs it: `simd`, `triton` or `reference`.
    word_vectors : `WordVectors`
        The vectors of the words that it has met.
    weights_sha256 : `str`, optional
        The checksum of the weights, see `weights_checksum`; `None` in a snapshot that an `Elmo` has made, as
        it takes longer than the copy.

    # Raises

    `ConfigurationError` if the kernel of the settings does not run on the device.
    """

    def __init__(
        self,
        options: BiLMOptions,
        encoder: torch.nn.Module,
        layers: Iterable[LSTMTensors],
        settings: InferenceSettings,
        device: torch.device,
    ) -> None:
        runner, self.precision = choose_runner(settings.kernel, settings.precision, device)
        self.options = options
        self.device = device
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            torch.autocast(device.type, enabled=False),
        ):
            self._runner: Runner = runner.prepare(encoder, layers, self.precision)
        self.kernel = self._runner.name
        self.word_vectors = WordVectors(settings.word_cache_size)
        self._sentences = SentenceActivations(settings.sentence_cache_mb)
        self.weights_sha256: Optional[str] = None

    @classmethod
    @torch_in_one_thread_if_needed()
    def from_files(
        cls,
        options_file: Optional[FileName],
        weight_file: Optional[FileName] = None,
        device: Union[str, torch.device] = "cpu",
        **settings: Any,
    ) -> "FrozenBiLM":
        """
        Load files, which are named as for `BiLM.from_files`. `settings` are the fields of
        `InferenceSettings`. Of bilm-tf's files, the character encoder, and then one matrix of the LSTMs at a
        time, is in memory beside what is packed.

        # Raises

        `ConfigurationError` as `BiLM.from_files`, and for an impossible setting.
        """
        checked = InferenceSettings.from_dict(settings)
        device = torch.device(device)
        # Both fail before files are downloaded.
        check_device(device)
        device = torch.empty(0, device=device).device  # with its index: the current GPU can change
        choose_runner(checked.kernel, checked.precision, device)
        options_path, weight_path = resolve_model_files(options_file, weight_file)
        if is_many_langs_file(weight_path):
            return BiLM.from_files(options_path, weight_path).to(device).freeze(**settings)
        options = BiLMOptions.from_file(options_path)
        bilm = BiLM.without_weights(options)
        with opened_weights(bilm, weight_path) as weights:
            weights.load(bilm, "character_encoder.")

            def layers() -> Iterator[LSTMTensors]:
                # It is packed by now.
                bilm.character_encoder.to_empty(device="meta")
                for direction in ("forward", "backward"):
                    for number in range(options.num_lstm_layers):
                        yield weights.lstm(bilm, f"{direction}_layers.{number}", device)

            frozen = cls(options, bilm.character_encoder.to(device), layers(), checked, device)
            frozen.weights_sha256 = weights.sha256()
        release_freed_memory()
        return frozen

    @classmethod
    @torch_in_one_thread_if_needed()
    def from_bilm(cls, bilm: BiLM, settings: InferenceSettings) -> "FrozenBiLM":
        """
        Copy the weights of a biLM.

        # Raises

        `ConfigurationError` if its modules are not as `BiLM` built them, or if its weights are not all
        float32 on one device.
        """
        reason = reason_against_copying(bilm)
        if reason is not None:
            raise ConfigurationError(
                f"The biLM cannot be frozen: {reason}. Undo that, or run the BiLM itself."
            )
        with torch.inference_mode(False), torch.no_grad():
            layers = [layer.tensors() for layer in (*bilm.forward_layers, *bilm.backward_layers)]
        device = next(bilm.parameters()).device
        return cls(bilm.options, bilm.character_encoder, layers, settings, device)

    def __deepcopy__(self, memo: Any) -> "FrozenBiLM":
        return self

    def __copy__(self) -> "FrozenBiLM":
        return self

    @property
    def num_layers(self) -> int:
        """Number of layer activations: the token representation, and one for each LSTM layer."""
        return self.options.num_lstm_layers + 1

    def get_output_dim(self) -> int:
        """Width of a layer activation, both directions together."""
        return 2 * self.options.projection_dim

    @property
    def layers(self) -> Sequence[RunLayer]:
        """What runs each layer in both directions, see `run_stack`."""
        return self._runner.layers

    @eager
    def __call__(
        self,
        character_ids: Tensor,
        states: Optional[CarriedStates] = None,
        keep_sentences: bool = False,
    ) -> Output:
        """
        Return what `BiLM.forward` does for these `character_ids`, `(batch_size, timesteps, 50)`, without
        gradients, in float32.

        # Parameters

        states : `CarriedStates`, optional
            Where rows start, and where their states are kept after the batch. Without, all start from zeros.
        keep_sentences : `bool`, optional (default = `False`)
            From now on keep the activations of each sentence for the next time that it is read, as training
            reads it again, and use what is kept. Of no effect with `states`, and on a GPU, whose memory is
            scarce.

        # Raises

        `ValueError` as `mask_of`.
        """
        character_ids = character_ids.to(self.device)
        device_type = self.device.type
        # Results are ordinary tensors in inference mode, too.
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            torch.autocast(device_type, enabled=False),
            # The reference's own work is torch's.
            torch_in_one_thread_if_needed(in_crowd=self.kernel == "simd"),
        ):
            is_kept = keep_sentences or len(self._sentences) > 0
            if is_kept and states is None and device_type == "cpu":
                return self._sentences.read(character_ids, self._run)
            return self._run(character_ids, states)

    def _run(self, character_ids: Tensor, states: Optional[CarriedStates] = None) -> Output:
        return run_batch(character_ids, self.options, self._encode, self.layers, states)

    def _encode(self, words: Tensor) -> Tensor:
        return self.word_vectors.read(words, self._runner.encode)


class CurrentSnapshot:
    """
    The `FrozenBiLM` of a `BiLM` whose weights may change, for `Elmo`.

    A snapshot is used while all of this holds; else a new one is made, or the modules themselves have to run:
    - no parameter requires a gradient or has one, so that no optimizer can change it;
    - there was no pass with gradients since, and no call of `requires_grad_`;
    - each submodule is the object that it was, of exactly the class that `BiLM` builds, with the settings
      that the options say, and nothing runs beside its `forward`;
    - each parameter is the tensor object that it was, in the same memory, at the same `_version`.
    Under autocast the modules run, too, unless the settings name another precision than float32.

    A write through `parameter.data` outside of training is not seen; assign a new `CurrentSnapshot` after it.

    # Parameters

    settings : `InferenceSettings`
        How snapshots run.
    """

    def __init__(self, settings: InferenceSettings) -> None:
        self.settings = settings
        self._made: Optional[Tuple[_Composition, FrozenBiLM]] = None

    def __reduce__(self) -> Tuple[Any, ...]:
        return CurrentSnapshot, (self.settings,)

    @eager
    def get(self, bilm: BiLM) -> Optional[FrozenBiLM]:
        """Return the snapshot to run in place of the biLM; `None` if its modules have to run."""
        if getattr(bilm, "_is_replica", False):
            return None  # its `forward` raises an error
        device_type = next(bilm.parameters()).device.type
        if self.settings.precision == "float32" and torch.is_autocast_enabled(device_type):
            # Autocast says in what to multiply, which the modules follow.
            if bilm.is_frozen:
                warn_once(
                    logger,
                    "Under autocast (use_amp) the frozen biLM runs slowly, by its modules. Set its precision "
                    "to bfloat16, which is faster than autocast.",
                )
            return None
        made = self._made  # read once, as other threads may replace it
        if made is not None:
            composition, frozen = made
            if composition.is_still_of(bilm):
                return frozen
        self._made = None
        reason = _reason_against_snapshot(bilm)
        if reason is not None:
            if bilm.is_frozen:
                warn_once(
                    logger,
                    f"The frozen biLM runs slowly, by its modules: {reason}. (In the first batch of a "
                    "training AllenNLP's own checks add hooks: then this ends with that batch.)",
                )
            return None
        # Noted before weights are copied: a change from now on is seen.
        composition = _Composition(bilm)
        frozen = FrozenBiLM.from_bilm(bilm, self.settings)
        logger.info(
            "The frozen biLM runs in %s on the %s kernel (%s).",
            frozen.precision,
            frozen.kernel,
            frozen.device,
        )
        self._made = composition, frozen
        return frozen


class _Composition:
    """What a biLM consisted of: objects, which it keeps from being replaced unnoticed."""

    def __init__(self, bilm: BiLM) -> None:
        self._bilm = bilm
        self._num_possible_updates = bilm.num_possible_updates
        self._classes = [(module, type(module)) for module in bilm.modules()]
        # The dictionaries of each module, how long they are, and the objects in them.
        self._lengths: List[Tuple[Dict[str, Any], int]] = []
        self._objects: List[Tuple[Dict[str, Any], str, Any]] = []
        for module, _ in self._classes:
            submodules, parameters = module._modules, module._parameters
            settings = {**settings_of(module), "_modules": submodules, "_parameters": parameters}
            self._note(vars(module), settings)
            self._note(submodules, submodules)
            self._note(parameters, parameters)
        self._parameters = [(one, one.detach(), one._version) for one in bilm.parameters()]

    def _note(self, dictionary: Dict[str, Any], objects: Dict[str, Any]) -> None:
        self._lengths.append((dictionary, len(dictionary)))
        self._objects += [(dictionary, name, value) for name, value in objects.items()]

    def is_still_of(self, bilm: BiLM) -> bool:
        """Return whether all that `CurrentSnapshot` names is unchanged."""
        if (
            bilm is not self._bilm
            or bilm.num_possible_updates != self._num_possible_updates
            or not are_plain(self._classes)
        ):
            return False
        for dictionary, length in self._lengths:
            if len(dictionary) != length:
                return False
        for dictionary, name, value in self._objects:
            if dictionary.get(name) is not value:
                return False
        for parameter, memory, version in self._parameters:
            if (
                parameter.requires_grad
                or parameter.grad is not None
                or parameter._version != version
                # `Module.to` exchanges the memory of a parameter.
                or parameter.dtype != memory.dtype
                or parameter.device != memory.device
                or not parameter.is_set_to(memory)
            ):
                return False
        return True


def _reason_against_snapshot(bilm: BiLM) -> Optional[str]:
    """Return why the modules of a biLM have to run, as a clause; `None` if a snapshot may run instead."""
    for parameter in bilm.parameters():
        if parameter.requires_grad:
            return "its parameters require gradients"
        if parameter.grad is not None:
            return "its parameters have gradients, call zero_grad()"
        if parameter.is_inference():
            return "its parameters were moved or cast in inference mode, do that outside of it"
    return reason_against_copying(bilm)


def reason_against_copying(bilm: BiLM) -> Optional[str]:
    """Return why runners cannot compute what a biLM does, as a clause; `None` if they can."""
    changed = change_since_built(bilm, BiLM.without_weights(bilm.options))
    kinds = {(parameter.dtype, parameter.device) for parameter in bilm.parameters()}
    if changed is None and (len(kinds) > 1 or kinds.pop()[0] != torch.float32):
        return "its parameters are not all float32 on one device"
    return changed
