"""Fast inference: an immutable snapshot of a biLM, and the vectors that it keeps."""

import ctypes
import logging
import sys
import threading
from dataclasses import dataclass, fields
from os import PathLike
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from elmo_plugin.bilm.batch import (
    CarriedStates,
    mask_of,
    no_activations,
    run_batch,
    run_layers,
    zero_states,
)
from elmo_plugin.bilm.bilm import BiLM
from elmo_plugin.bilm.characters import sentence_marks
from elmo_plugin.bilm.interception import eager, has_global_hooks, is_plain
from elmo_plugin.bilm.model_files import is_many_langs, resolve_model_files
from elmo_plugin.bilm.options import BiLMOptions
from elmo_plugin.bilm.runners import AUTO, Runner, check_kernel, choose_runner
from elmo_plugin.bilm.steps import State
from elmo_plugin.bilm.weights import opened_weights
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.warn_once import warn_once

logger = logging.getLogger(__name__)

# The table of word vectors starts with room for this many words and doubles up to the capacity.
INITIAL_ROWS = 1024

# What a biLM gives: `activations` and `mask`.
Output = Dict[str, Union[Tensor, List[Tensor]]]


@dataclass(frozen=True)
class InferenceSettings:
    """
    How a frozen biLM runs.

    # Parameters

    precision : `str`, optional (default = `"float32"`)
        In what matrices are multiplied: `float32`, `bfloat16` or `int8`. Sums, activations and the
        convolutions of characters stay float32. The error of each is in PERFORMANCE.md.
    kernel : `str`, optional (default = `"auto"`)
        What runs the layers: `simd` (C++ for CPUs), `triton` (NVIDIA GPUs), `reference` (operations of torch,
        everywhere), or the faster of `simd` and `reference` that runs on the device.
    word_cache_size : `int`, optional (default = 50,000)
        Number of distinct words whose vectors are kept; 0 for none. 50,000 words of the paper's model take
        100 MB.
    sentence_cache_mb : `float`, optional (default = 250)
        On a CPU, MB of memory for the activations of sentences that training reads again in each epoch; 0 for
        none. A token of the paper's model takes 12 kB, one of `elmo_mini` 3 kB. Prediction keeps none.

    # Raises

    `ConfigurationError` for an unknown precision or kernel, a kernel that this machine lacks, and a negative
    size.
    """

    precision: str = "float32"
    kernel: str = AUTO
    word_cache_size: int = 50_000
    sentence_cache_mb: float = 250

    def __post_init__(self) -> None:
        check_kernel(self.kernel, self.precision)
        for name, kinds, unit in (
            ("word_cache_size", int, "a number of words"),
            ("sentence_cache_mb", (int, float), "a number of MB"),
        ):
            size = getattr(self, name)
            if isinstance(size, bool) or not isinstance(size, kinds) or not size >= 0:
                raise ConfigurationError(f"{name} is {size!r}, expected {unit}, or 0 for no cache.")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "InferenceSettings":
        """
        Check the keywords of a caller or the keys of a config.

        # Raises

        `ConfigurationError` for an unknown one, too.
        """
        names = [field.name for field in fields(cls)]
        unknown = [name for name in values if name not in names]
        if unknown:
            raise ConfigurationError(
                f"ELMo has no argument '{unknown[0]}'. Those of inference are {', '.join(names)}. Correct "
                "the name, or leave it out."
            )
        return cls(**values)


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
    modules : `Iterator[torch.nn.Module]`
        The parts of a `BiLM` in the order of `names_of_parts`, all on `device`. Each is copied before the
        next is asked for, so that it can be loaded only then.
    settings : `InferenceSettings`
        How it runs.
    device : `torch.device`
        Where it runs, and where its results are.

    # Attributes

    options, settings, device
        The arguments.
    precision : `str`
        What it runs in: the precision of the settings, or `float32` where that is faster.
    kernel : `str`
        What runs it: `simd`, `triton` or `reference`.
    words : `WordVectors`
        The vectors of the words that it has met.
    weights_sha256 : `str`, optional
        The checksum of the weights, see `weights_checksum`; `None` in a snapshot that an `Elmo` has made.

    # Raises

    `ConfigurationError` if the kernel of the settings does not run on the device.
    """

    def __init__(
        self,
        options: BiLMOptions,
        modules: Iterator[torch.nn.Module],
        settings: InferenceSettings,
        device: torch.device,
    ) -> None:
        prepare, self.precision = choose_runner(settings.kernel, settings.precision, device)
        self.options = options
        self.settings = settings
        self.device = device
        with _plain_computation(device):
            self._runner: Runner = prepare(modules, self.precision)
        self.kernel = self._runner.name
        self._marks = sentence_marks().to(device)  # (2, 50)
        self.words = WordVectors(settings.word_cache_size)
        self._sentences = SentenceActivations(settings.sentence_cache_mb)
        self.weights_sha256: Optional[str] = None

    @classmethod
    def from_files(
        cls,
        options_file: Optional[Union[str, PathLike]],
        weight_file: Optional[Union[str, PathLike]] = None,
        device: Union[str, torch.device] = "cpu",
        **settings: Any,
    ) -> "FrozenBiLM":
        """
        Load files, which are named as for `BiLM.from_files`. `settings` are the fields of
        `InferenceSettings`. Of bilm-tf's files one part of the biLM at a time is in memory beside what is
        made of it.

        # Raises

        `ConfigurationError` as `BiLM.from_files`, and for an impossible setting.
        """
        checked = InferenceSettings.of(settings)
        device = torch.device(device)
        # Fails before files are downloaded.
        choose_runner(checked.kernel, checked.precision, device)
        options_path, weight_path = resolve_model_files(options_file, weight_file)
        if is_many_langs(weight_path):
            return BiLM.from_files(options_path, weight_path).to(device).freeze(**settings)
        options = BiLMOptions.from_file(options_path)
        bilm = BiLM.without_weights(options)
        with opened_weights(bilm, weight_path) as weights:

            def modules() -> Iterator[torch.nn.Module]:
                for name in bilm.names_of_parts:
                    weights.load(bilm, name)
                    part = bilm.get_submodule(name)
                    yield part.to(device)
                    part.to_empty(device="meta")

            frozen = cls(options, modules(), checked, device)
            frozen.weights_sha256 = weights.sha256()
        _return_free_memory()
        return frozen

    @classmethod
    def of(cls, bilm: BiLM, settings: InferenceSettings) -> "FrozenBiLM":
        """
        Copy the weights of a biLM.

        # Raises

        `ConfigurationError` if its modules are not as `BiLM` built them, or if its weights are not all
        float32 on one device.
        """
        reason = reason_against_copying(bilm)
        if reason is not None:
            raise ConfigurationError(
                f"The biLM cannot be frozen: {reason}. Undo that, or run the biLM as it is."
            )
        modules = (bilm.get_submodule(name) for name in bilm.names_of_parts)
        return cls(bilm.options, modules, settings, next(bilm.parameters()).device)

    def __deepcopy__(self, memo: Any) -> "FrozenBiLM":
        return self

    def __copy__(self) -> "FrozenBiLM":
        return self

    @property
    def num_layers(self) -> int:
        """Number of layer activations: the LSTM layers and the token representation."""
        return self.options.num_layers + 1

    def get_output_dim(self) -> int:
        """Width of a layer activation, both directions together."""
        return 2 * self.options.projection_dim

    @eager
    def __call__(
        self,
        character_ids: Tensor,
        states: Optional[CarriedStates] = None,
        keep_sentences: bool = False,
    ) -> Output:
        """
        Run the biLM on a batch, without gradients. Sentence marks are added to every row, also to an empty
        one.

        # Parameters

        character_ids : `Tensor`
            `(batch_size, timesteps, 50)`. Rows of zeros are padding and stand at the end.
        states : `CarriedStates`, optional
            Where rows start, and where their states are kept after the batch. Without, all start from zeros.
        keep_sentences : `bool`, optional (default = `False`)
            Keep the activations of each sentence for the next time that it is read, and use what is kept. Of
            no effect with `states`, and on a GPU, whose memory is scarce.

        # Returns

        A dictionary with `activations`, a list of `num_layers` float32 tensors
        `(batch_size, timesteps + 2, get_output_dim())`, token representation first, zero at padding; and
        `mask`, `(batch_size, timesteps + 2)`, `True` at words and sentence marks.

        # Raises

        `ValueError` as `read_batch`.
        """
        character_ids = character_ids.to(self.device)
        with _plain_computation(self.device):
            if len(character_ids) == 0:
                return no_activations(self.options, character_ids, self._marks.float())
            may_keep = states is None and self.device.type == "cpu"
            if keep_sentences and may_keep and self._sentences.capacity_mb > 0:
                return self._sentences.read(character_ids, self._run)
            return self._run(character_ids, states)

    def _run(self, character_ids: Tensor, states: Optional[CarriedStates] = None) -> Output:
        return run_batch(character_ids, self._marks, self._encode, self.run_layers, states)

    def _encode(self, types: Tensor) -> Tensor:
        return self.words.read(types, self._runner.encode)

    def run_layers(
        self,
        inputs: Sequence[Tensor],
        step_sizes: List[int],
        initial_states: Optional[Sequence[State]] = None,
    ) -> Tuple[List[Tuple[Tensor, Tensor]], List[State]]:
        """Run all LSTM layers in both directions, as `BiLM.run_layers` does, without gradients."""
        return run_layers(
            inputs,
            step_sizes,
            initial_states or zero_states(self.options, step_sizes[0], inputs[0]),
            self._runner.run_layer,
            self.options.use_skip_connections,
        )


def _return_free_memory() -> None:
    """Give what loading has freed back to the system. glibc would keep it: 26 MB for the paper's model."""
    if sys.platform == "linux" and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)


class _plain_computation:
    """A context without gradients and autocast, whose results are ordinary tensors in inference mode too."""

    def __init__(self, device: torch.device) -> None:
        self._modes: Tuple[Any, ...] = (
            torch.inference_mode(False),
            torch.no_grad(),
            torch.autocast(device.type, enabled=False),
        )

    def __enter__(self) -> None:
        for mode in self._modes:
            mode.__enter__()

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*error)


class WordVectors:
    """
    The vectors of the words that one encoder has met, up to `capacity` words; then it starts again with the
    words of the next batch.

    A row of its table is written before its word is entered, and does not change afterwards. So whatever
    stops a call in between, and whatever other threads do, a word that is found has its vector.

    # Parameters

    capacity : `int`
        Number of words; 0 keeps none.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._lock = threading.Lock()
        # Spelling of a word -> row of the table: 0 for the first that was entered, 1 for the next ...
        self._row_of_word: Dict[bytes, int] = {}
        self._table: Optional[Tensor] = None  # (at least as many rows as words, dim)

    def __len__(self) -> int:
        return len(self._row_of_word)

    def clear(self) -> None:
        """Forget every word."""
        with self._lock:
            self._row_of_word, self._table = {}, None

    def __reduce__(self) -> Tuple[Any, ...]:
        return WordVectors, (self.capacity,)

    def read(self, types: Tensor, encode: Callable[[Tensor], Tensor]) -> Tensor:
        """
        Return the vectors of distinct words, `(num_types, dim)`: known ones from the table, the others by one
        call of `encode`, which is always the same.

        # Parameters

        types : `Tensor`
            `(num_types, 50)`, character ids.
        encode : `Callable[[Tensor], Tensor]`
            From `(n, 50)` to `(n, dim)`.
        """
        if self.capacity == 0:
            return encode(types)
        words = [row.tobytes() for row in types.to("cpu", torch.int16).numpy()]
        with self._lock:
            table = self._table
            rows = [self._row_of_word.get(word, -1) for word in words]
        unknown = [number for number, row in enumerate(rows) if row < 0]
        if len(unknown) == len(words):
            vectors = new_vectors = encode(types)
        else:
            assert table is not None
            vectors = table.index_select(0, _index(rows, types.device).clamp_(min=0))
            if not unknown:
                return vectors
            unknown_index = _index(unknown, types.device)
            new_vectors = encode(types.index_select(0, unknown_index))
            vectors.index_copy_(0, unknown_index, new_vectors)
        with self._lock:
            self._enter([words[number] for number in unknown], new_vectors)
        return vectors

    def _enter(self, words: List[bytes], vectors: Tensor) -> None:
        row_of_word, table = self._row_of_word, self._table
        # Another thread may have entered some.
        new = [number for number, word in enumerate(words) if word not in row_of_word]
        if len(row_of_word) + len(new) > self.capacity:
            row_of_word, table = {}, None
            new = list(range(min(len(words), self.capacity)))
        first, end = len(row_of_word), len(row_of_word) + len(new)
        if table is None or len(table) < end:
            num_rows = min(self.capacity, max(INITIAL_ROWS, 2 * first, end))
            larger = vectors.new_empty(num_rows, vectors.size(1))
            if table is not None:
                larger[:first] = table[:first]
            table = larger
        table[first:end] = vectors.index_select(0, _index(new, vectors.device))
        self._row_of_word, self._table = row_of_word, table
        # Only now: the rows are there.
        row_of_word.update((words[number], first + place) for place, number in enumerate(new))


def _index(numbers: List[int], device: torch.device) -> Tensor:
    return torch.tensor(numbers, dtype=torch.long, device=device)


class SentenceActivations:
    """
    The activations of the sentences that a frozen biLM has read, so that the epochs of a task after the first
    need not run it. What came first stays, since an epoch reads everything in turn.

    # Parameters

    capacity_mb : `float`
        Memory to use, in MB; 0 for none.
    """

    def __init__(self, capacity_mb: float) -> None:
        self.capacity_mb = capacity_mb
        self._num_bytes = 0
        # Characters of a sentence -> (num_layers, tokens, dim).
        self._activations_of: Dict[bytes, Tensor] = {}

    def __len__(self) -> int:
        return len(self._activations_of)

    def __reduce__(self) -> Tuple[Any, ...]:
        return SentenceActivations, (self.capacity_mb,)

    def read(self, character_ids: Tensor, run: Callable[[Tensor], Output]) -> Output:
        """Return what `run` gives for a batch, which is called with the sentences that are not known yet."""
        lengths = mask_of(character_ids).sum(dim=1) + 2  # with marks
        characters = character_ids.to(torch.int16).numpy()
        keys = [
            characters[row, : length - 2].tobytes() for row, length in enumerate(lengths.tolist())
        ]
        known = [self._activations_of.get(key) for key in keys]
        unknown = [row for row, activations in enumerate(known) if activations is None]
        if unknown:
            # (num_layers, num_unknown, timesteps + 2, dim)
            new = torch.stack(run(character_ids[unknown])["activations"])  # type: ignore[arg-type]
            for activations, row in zip(new.unbind(1), unknown):
                self._keep(keys[row], activations[:, : lengths[row]])
        if len(unknown) == len(keys):
            whole = new
        else:
            like = next(activations for activations in known if activations is not None)
            whole = like.new_zeros(like.size(0), len(keys), character_ids.size(1) + 2, like.size(2))
            if unknown:
                whole[:, unknown] = new
            for row, kept in enumerate(known):
                if kept is not None:
                    whole[:, row, : kept.size(1)] = kept
        mask = torch.arange(whole.size(2), device=lengths.device) < lengths.unsqueeze(1)
        return {"activations": list(whole.unbind()), "mask": mask}

    def _keep(self, key: bytes, activations: Tensor) -> None:
        num_bytes = len(key) + activations.numel() * activations.element_size()
        if self._num_bytes + num_bytes > self.capacity_mb * 1e6:
            warn_once(
                logger,
                f"The sentence cache of {self.capacity_mb:,} MB is full: all other sentences are read anew "
                "in each epoch. If there is memory, raise sentence_cache_mb.",
            )
        elif key not in self._activations_of:
            self._num_bytes += num_bytes
            # A copy, as a part would keep its whole batch in memory.
            self._activations_of[key] = activations.clone()


def reason_against_copying(bilm: BiLM) -> Optional[str]:
    """Return why the parameters of a biLM do not say all about it, as a clause; `None` if they do."""
    if has_global_hooks():
        return "hooks run at all modules of the process"
    if {name: type(module) for name, module in bilm.named_modules()} != bilm.built_as:
        return "modules in it were replaced, added or parametrized"
    for name, module in bilm.named_modules():
        if not is_plain(module, bilm.built_as[name]):
            return f"its module '{name}' has hooks, or a forward of its own"
    if {name for name, _ in bilm.named_parameters()} != bilm.names_of_parameters:
        return "parameters in it were added or removed"
    kinds = {(parameter.dtype, parameter.device) for parameter in bilm.parameters()}
    if len(kinds) > 1 or kinds.pop()[0] != torch.float32:
        return "its parameters are not all float32 on one device"
    return None
