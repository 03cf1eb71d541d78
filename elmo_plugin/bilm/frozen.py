"""Fast inference: an immutable snapshot of a biLM."""

from contextlib import nullcontext
from typing import Any, Iterable, Iterator, Optional, Sequence, Union

import torch
from torch import Tensor

from elmo_plugin.bilm.batch import CarriedStates
from elmo_plugin.bilm.bilm import BiLM, Output, run_batch
from elmo_plugin.bilm.interception import change_since_built, eager
from elmo_plugin.bilm.kept_vectors import SentenceActivations, WordVectors
from elmo_plugin.bilm.model_files import is_many_langs_file, resolve_model_files
from elmo_plugin.bilm.options import BiLMOptions
from elmo_plugin.bilm.processor import check_device
from elmo_plugin.bilm.runners import InferenceSettings, Runner, choose_runner
from elmo_plugin.bilm.steps import LSTMTensors, RunLayer
from elmo_plugin.bilm.threads import torch_in_one_thread_if_crowded
from elmo_plugin.bilm.weights import opened_weights, release_freed_memory
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import FileName


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
            torch_in_one_thread_if_crowded() if self.kernel == "simd" else nullcontext(),
        ):
            is_kept = keep_sentences or len(self._sentences) > 0
            if is_kept and states is None and device_type == "cpu":
                return self._sentences.read(character_ids, self._run)
            return self._run(character_ids, states)

    def _run(self, character_ids: Tensor, states: Optional[CarriedStates] = None) -> Output:
        return run_batch(character_ids, self.options, self._encode, self.layers, states)

    def _encode(self, words: Tensor) -> Tensor:
        return self.word_vectors.read(words, self._runner.encode)


def reason_against_copying(bilm: BiLM) -> Optional[str]:
    """Return why runners cannot compute what a biLM does, as a clause; `None` if they can."""
    changed = change_since_built(bilm, BiLM.without_weights(bilm.options))
    kinds = {(parameter.dtype, parameter.device) for parameter in bilm.parameters()}
    if changed is None and (len(kinds) > 1 or kinds.pop()[0] != torch.float32):
        return "its parameters are not all float32 on one device"
    return changed
