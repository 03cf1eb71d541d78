"""What AllenNLP 2.10.1 needs to run on today's Python and torch: a check, and a mend for each gap."""

import atexit
import functools
import importlib
import importlib.metadata
import inspect
import io
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Optional

from packaging.specifiers import SpecifierSet

# AllenNLP, torch and what they import are imported inside functions only: this module must load
# when they are missing or broken, to say so.

logger = logging.getLogger(__name__)

# A pair as published; torchvision works only beside the torch that it was built for.
INSTALL_TORCH_PAIR = "pip install torch==2.12.1 torchvision==0.27.1"

# What gloo's threads do meanwhile takes them microseconds, once they have a core.
SECONDS_TO_REST = 0.5


@dataclass(frozen=True)
class Requirement:
    """A package that must be there, in which versions, and the command that mends it if it is not."""

    package: str
    versions: str
    command: str


REQUIREMENTS = (
    Requirement("torch", ">=2.4", INSTALL_TORCH_PAIR),
    # Upper bounds: AllenNLP imports `transformers.AdamW` and `huggingface_hub.Repository`, gone later.
    Requirement("transformers", ">=4.40,<4.50", "pip install transformers==4.49.0"),
    Requirement("huggingface-hub", "<1", "pip install huggingface-hub==0.36.2"),
    # --no-deps: the metadata of AllenNLP asks for a torch that has no build for this Python.
    Requirement("allennlp", "==2.10.1", "pip install --no-deps allennlp==2.10.1"),
)


def _import_torchvision() -> None:
    importlib.import_module("torchvision")


def check_environment(
    version_of: Callable[[str], str] = importlib.metadata.version,
    import_torchvision: Callable[[], None] = _import_torchvision,
) -> None:
    """
    Check that the packages which AllenNLP cannot do without are here, in versions that it works with.

    Called before AllenNLP is imported, whose own errors would not say what to do.

    # Parameters

    version_of : `Callable[[str], str]`
        Gives the installed version of a package, or raises `PackageNotFoundError`.
    import_torchvision : `Callable[[], None]`
        Imports torchvision. Called only when nothing else is wrong.

    # Raises

    `ImportError` that names all missing or unfitting packages: what was found, what was expected, and
    the command that mends it.
    """
    problems = [
        problem
        for problem in (_version_problem(requirement, version_of) for requirement in REQUIREMENTS)
        if problem is not None
    ]
    if not problems:
        problem = _torchvision_problem(version_of, import_torchvision)
        problems = [] if problem is None else [problem]
    if problems:
        raise ImportError("elmo_plugin cannot run in this environment:\n" + "\n".join(problems))


def _version_problem(requirement: Requirement, version_of: Callable[[str], str]) -> Optional[str]:
    found = _version_or_absence(requirement.package, version_of)
    # prereleases=True: a nightly build of a version in range is in range.
    if found is not None and SpecifierSet(requirement.versions).contains(found, prereleases=True):
        return None
    return (
        f"- {requirement.package}: found {found or 'none'}, expected {requirement.versions}. "
        f"Run: {requirement.command}"
    )


def _torchvision_problem(
    version_of: Callable[[str], str], import_torchvision: Callable[[], None]
) -> Optional[str]:
    # Importing is the only sure test. Versions can agree and builds not: a CPU-only torch beside a
    # CUDA torchvision of the same release fails on import, and AllenNLP imports torchvision always.
    try:
        import_torchvision()
    except (ImportError, OSError, RuntimeError) as error:
        found = _version_or_absence("torchvision", version_of)
        torch_version = version_of("torch")
        if found is None:
            return (
                f"- torchvision: found none, expected the one that fits torch {torch_version}. "
                f"Run: {INSTALL_TORCH_PAIR}"
            )
        return (
            f"- torchvision: found {found}, which fails on import beside torch {torch_version} "
            f"({error}), expected the build published together with that torch. "
            f"Run: pip uninstall --yes torch torchvision && {INSTALL_TORCH_PAIR}"
        )
    return None


def _version_or_absence(package: str, version_of: Callable[[str], str]) -> Optional[str]:
    try:
        return version_of(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def mend_allennlp() -> None:
    """
    Mend what today's Python, torch and transformers broke in AllenNLP 2.10.1.

    Each mend restores what AllenNLP did on the versions that it was made for; none changes what a
    config means. Done once per process: later calls do nothing.
    """
    _mend_reduce_on_plateau()
    _mend_recovery()
    _mend_tensor_cache()
    _mend_transformer_tokenizers()
    _mend_spawned_data_workers()
    _mend_mixed_precision_names()
    _mend_norms_of_sparse_gradients()
    _mend_interrupted_checkpoints()
    _mend_recovered_averages()
    _mend_end_of_distributed_training()


def _mend_reduce_on_plateau() -> None:
    """torch's `ReduceLROnPlateau` lost its `verbose` argument; AllenNLP passes it always."""
    from allennlp.training.learning_rate_schedulers.pytorch_lr_schedulers import (
        ReduceOnPlateauLearningRateScheduler as Scheduler,
    )
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    allennlp_init = Scheduler.__init__
    signature = inspect.signature(allennlp_init)

    # `wraps` keeps the signature, where FromParams looks up names, types and defaults.
    @functools.wraps(allennlp_init)
    def init_without_verbose(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        options = dict(bound.arguments)
        del options["self"]
        self.verbose = options.pop("verbose")
        super(Scheduler, self).__init__(ReduceLROnPlateau(**options))

    def step_and_report(self: Any, metric: Optional[float] = None) -> None:
        rates_before = self.get_values()
        super(Scheduler, self).step(metric)
        if self.verbose:
            # torch printed such a line for `verbose`; here it goes to the log.
            for index, (before, now) in enumerate(zip(rates_before, self.get_values())):
                if now < before:
                    logger.info(
                        "Reducing the learning rate of parameter group %d from %.4e to %.4e.",
                        index,
                        before,
                        now,
                    )

    Scheduler.__init__ = init_without_verbose
    Scheduler.step = step_and_report


def _mend_recovery() -> None:
    """
    `torch.load` came to refuse anything but tensors and plain values by default. Training states hold
    more (NumPy numbers in metrics and learning rates, what callbacks return), so `--recover` failed.
    """
    import torch
    from allennlp.training.checkpointer import Checkpointer
    from allennlp.training.trainer import TrainerCheckpoint

    @functools.wraps(Checkpointer.load_checkpoint)
    def load_checkpoint(self: Any) -> Any:
        latest_checkpoint = self.find_latest_checkpoint()
        if latest_checkpoint is None:
            return None
        model_path, training_path = latest_checkpoint
        return TrainerCheckpoint(
            torch.load(model_path, map_location="cpu"),
            # Safe to unpickle as a training run reads only what it wrote itself. The model's
            # weights, above, are tensors and keep torch's stricter default.
            torch.load(training_path, map_location="cpu", weights_only=False),
        )

    Checkpointer.load_checkpoint = load_checkpoint


def _mend_tensor_cache() -> None:
    """
    The same default of `torch.load` reads pickle protocol 2 only; `TensorCache` writes the highest, so
    it could not read its own entries.
    """
    import torch
    from allennlp.common.file_utils import TensorCache

    def get_tensor(self: Any, key: str) -> torch.Tensor:
        # The cache hands out one object per key for as long as somebody holds it.
        tensor = self.cache_cache.get(key)
        if tensor is None:
            with self.lmdb_env.begin(write=False) as transaction:
                entry = transaction.get(key.encode())
            if entry is None:
                raise KeyError(key)
            tensor = torch.load(io.BytesIO(entry), map_location="cpu", weights_only=False)
            self.cache_cache[key] = tensor
        return tensor

    TensorCache.__getitem__ = get_tensor


def _mend_transformer_tokenizers() -> None:
    """
    transformers came to refuse `add_special_tokens` when a tokenizer is made. It had no effect there:
    AllenNLP also passes it with each text, where it counts.
    """
    from allennlp.common import cached_transformers

    make_tokenizer = cached_transformers.get_tokenizer

    @functools.wraps(make_tokenizer)
    def get_tokenizer(model_name: str, **kwargs: Any) -> Any:
        kwargs.pop("add_special_tokens", None)
        return make_tokenizer(model_name, **kwargs)

    cached_transformers.get_tokenizer = get_tokenizer


def _mend_spawned_data_workers() -> None:
    """
    Python came to refuse sending a lock made for forked processes to spawned ones, and
    `MultiProcessDataLoader` does so with `start_method: "spawn"`: it makes the lock of its progress
    bars with the default method, whatever the loader's.
    """
    from allennlp.data.data_loaders import multiprocess_data_loader

    def with_own_lock(start_workers: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(start_workers)
        def start_with_own_lock(self: Any, queue: Any, context: Any) -> Any:
            # The method makes the lock with its module's `mp`: let that be the loader's own
            # multiprocessing context meanwhile.
            default_context = multiprocess_data_loader.mp
            multiprocess_data_loader.mp = context
            try:
                return start_workers(self, queue, context)
            finally:
                multiprocess_data_loader.mp = default_context

        return start_with_own_lock

    loader = multiprocess_data_loader.MultiProcessDataLoader
    loader._start_instance_workers = with_own_lock(loader._start_instance_workers)
    loader._start_batch_workers = with_own_lock(loader._start_batch_workers)


def _mend_mixed_precision_names() -> None:
    """
    `torch.cuda.amp` is deprecated: each training printed two warnings over its progress bars, and the
    names will go. The same classes live in `torch.amp`.
    """
    import torch
    from allennlp.nn.parallel import ddp_accelerator
    from allennlp.training import gradient_descent_trainer

    def autocast(enabled: bool = True) -> torch.amp.autocast:
        return torch.amp.autocast("cuda", dtype=torch.float16, enabled=enabled)

    amp = SimpleNamespace(
        autocast=autocast, GradScaler=functools.partial(torch.amp.GradScaler, "cuda")
    )
    gradient_descent_trainer.amp = amp
    ddp_accelerator.amp = amp


def _mend_norms_of_sparse_gradients() -> None:
    """
    torch's `clip_grad_norm_` refuses sparse gradients, and AllenNLP came to use it for `grad_norm`; its
    own, which took them, is gone. The softmax of a biLM has them: rows of the sampled words only.
    """
    import torch
    from allennlp.nn.parallel import ddp_accelerator
    from allennlp.training import gradient_descent_trainer

    clip_dense = torch.nn.utils.clip_grad_norm_

    @functools.wraps(clip_dense)
    def clip_grad_norm(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        dense = []
        for parameter in [parameters] if isinstance(parameters, torch.Tensor) else parameters:
            if parameter.grad is not None and parameter.grad.is_sparse:
                # Rows that occur twice are added first, so that the norm is that of the dense gradient.
                parameter.grad = parameter.grad.coalesce()
                stand_in = torch.empty_like(parameter.grad.values())
                stand_in.grad = parameter.grad.values()  # shares memory, and so is scaled in place
                dense.append(stand_in)
            else:
                dense.append(parameter)
        return clip_dense(dense, *args, **kwargs)

    gradient_descent_trainer.clip_grad_norm_ = clip_grad_norm
    ddp_accelerator.clip_grad_norm_ = clip_grad_norm


def _mend_interrupted_checkpoints() -> None:
    """
    Checkpoints were written in place, weights before the trainer's state. A full disk or a killed process
    left half a file, which `--recover` took for the latest checkpoint, and half a `best.th` where a whole one
    had been. Now each file is written beside, then moved to its place, and only whole checkpoints count and
    remain.
    """
    import torch
    from allennlp.training import checkpointer
    from allennlp.training.gradient_descent_trainer import GradientDescentTrainer

    from elmo_plugin.files.replaced_file import replaced_file

    def save(content: Any, path: str) -> None:
        with replaced_file(path) as partial_file, open(partial_file, "wb") as file:
            try:
                torch.save(content, file)
            except RuntimeError as error:
                # torch reports a position in its archive, and hides the reason: that the disk is full, say.
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise

    def save_model_state(self: Any, path: str) -> None:
        save((self._ddp_wrapped_model or self.model).state_dict(), path)

    find_all_checkpoints = checkpointer.Checkpointer._find_all_checkpoints
    save_checkpoint = checkpointer.Checkpointer.save_checkpoint

    @functools.wraps(find_all_checkpoints)
    def find_whole_checkpoints(self: Any) -> Any:
        return {
            checkpoint
            for checkpoint in find_all_checkpoints(self)
            if os.path.isfile(self._training_state_path(*checkpoint))
        }

    def remove_half_checkpoint(self: Any) -> None:
        if not (self._is_primary or self.state_is_sharded):
            return  # another worker writes
        for partial_file in Path(self._serialization_dir).glob(".*.th.*"):
            partial_file.unlink(missing_ok=True)
        latest = max(find_whole_checkpoints(self), default=(-1, -1))
        for checkpoint in find_all_checkpoints(self):
            # Weights of older ones may have been kept by hand.
            if checkpoint > latest:
                Path(self._model_state_path(*checkpoint)).unlink(missing_ok=True)

    @functools.wraps(save_checkpoint)
    def save_whole_checkpoint(self: Any, trainer: Any) -> None:
        # What a killed process left: weights that are there already are not written again, and would come
        # to stand beside the state of a recovered training that went another way.
        remove_half_checkpoint(self)
        try:
            save_checkpoint(self, trainer)
        finally:
            remove_half_checkpoint(self)

    # All that its module still calls: `load_checkpoint` is mended above.
    checkpointer.torch = SimpleNamespace(save=save)
    checkpointer.Checkpointer._find_all_checkpoints = find_whole_checkpoints
    checkpointer.Checkpointer.save_checkpoint = save_whole_checkpoint
    GradientDescentTrainer._save_model_state = save_model_state


def _mend_recovered_averages() -> None:
    """
    A checkpoint held a moving average with the parameters that it followed. Restored, it followed copies of
    them, which no longer changed: after `--recover` the average was that of old weights, and the raw ones
    were evaluated and archived. Now only the averages are saved and restored.
    """
    from allennlp.training.moving_average import MovingAverage

    def state_dict(self: Any) -> Any:
        return {"shadows": self._shadows}

    def load_state_dict(self: Any, state: Any) -> None:
        for name, shadow in self._shadows.items():
            shadow.copy_(state["shadows"][name])

    MovingAverage.state_dict = state_dict
    MovingAverage.load_state_dict = load_state_dict


def _mend_end_of_distributed_training() -> None:
    """
    Threads of torch's gloo process group need Python's lock to let go of the tensors of the last exchange.
    AllenNLP ends its workers right after it, and a thread that asked for the lock of an interpreter that was
    ending took the worker down with it: "terminate called without an active exception". So each worker gives
    up the lock for a moment first.
    """
    atexit.register(_let_process_group_rest)


def _let_process_group_rest() -> None:
    import torch.distributed

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        time.sleep(SECONDS_TO_REST)
