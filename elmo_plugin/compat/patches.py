"""Patches of AllenNLP 2.10.1, one for each incompatibility with current Python, torch and other packages."""

import atexit
import functools
import inspect
import io
import logging
import pickle
import time
import warnings
from types import SimpleNamespace
from typing import Any, Callable, List, Optional

from packaging.version import Version

from elmo_plugin.compat.archive_members import patch_archives
from elmo_plugin.compat.environment import check_environment
from elmo_plugin.errors import ConfigurationError

# AllenNLP, torch and their dependencies are imported inside functions only: this module must load when they
# are missing or broken, to report it.

logger = logging.getLogger(__name__)

# gloo's threads need microseconds, once they have a core.
SECONDS_FOR_THREADS = 0.5


@functools.cache
def prepare_allennlp() -> None:
    """
    Check the environment, then patch what current versions of Python, torch and transformers broke in
    AllenNLP 2.10.1, and how it finds and extracts archives.

    Each patch restores the behaviour of AllenNLP on the versions that it was made for, and does nothing
    where that still works. None changes the meaning of a config, or the behaviour of torch and other
    packages elsewhere in the process. AllenNLP's own faults are not patched: classes of ours, such as
    `AtomicCheckpointer`, avoid them. Later calls in the same process do nothing.

    # Raises

    `ImportError` as `check_environment`.
    """
    check_environment()
    _patch_reduce_on_plateau()
    _patch_recovery()
    _patch_tensor_cache()
    _patch_transformer_tokenizers()
    _patch_spawned_data_workers()
    _hide_mixed_precision_warnings()
    _patch_norms_of_sparse_gradients()
    _patch_recovered_averages()
    _patch_end_of_distributed_training()
    patch_archives()


def _loads_weights_only() -> bool:
    """Return whether `torch.load` by default refuses everything except tensors and plain values."""
    import torch

    return Version(torch.__version__) >= Version("2.6.0.dev0")


def _patch_reduce_on_plateau() -> None:
    """
    Accept `verbose`: torch's `ReduceLROnPlateau` no longer has this argument, which AllenNLP always passes.
    """
    from allennlp.training.learning_rate_schedulers.pytorch_lr_schedulers import (
        ReduceOnPlateauLearningRateScheduler as Scheduler,
    )
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    if "verbose" in inspect.signature(ReduceLROnPlateau).parameters:
        return

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
            # torch printed such a line for `verbose`; here it is logged.
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


def _patch_recovery() -> None:
    """
    Allow NumPy values in training states. By default `torch.load` now refuses everything except tensors and
    plain values. Training states also have NumPy numbers and arrays (in metrics, learning rates and random
    states), so `--recover` failed.
    """
    if not _loads_weights_only():
        return
    import numpy
    import torch
    from allennlp.training.checkpointer import Checkpointer

    load_checkpoint = Checkpointer.load_checkpoint
    numpy_values: List[Any] = [numpy.ndarray, numpy.dtype]
    numpy_values += [type(numpy.dtype(kind)) for kind in "?bhilqBHILQefd"]
    for value in (numpy.float64(0), numpy.zeros(0)):
        function: Any = value.__reduce__()[0]
        # Under its name of NumPy 1 as well.
        numpy_values += [function, (function, f"numpy.core.multiarray.{function.__name__}")]

    @functools.wraps(load_checkpoint)
    def load_with_numpy_values(self: Any) -> Any:
        try:
            with torch.serialization.safe_globals(numpy_values):
                return load_checkpoint(self)
        except pickle.UnpicklingError as error:
            raise ConfigurationError(
                f"{self._serialization_dir}: its latest checkpoint cannot be loaded ({error}), expected "
                "tensors, NumPy values and plain Python values. If your own callback wrote other values, and "
                "nobody else can write to this folder, set the environment variable "
                "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1."
            ) from error

    Checkpointer.load_checkpoint = load_with_numpy_values


def _patch_tensor_cache() -> None:
    """
    Let `TensorCache` read its own entries. With the same default `torch.load` reads only pickle protocol 2,
    but `TensorCache` writes the highest.
    """
    if not _loads_weights_only():
        return
    import torch
    from allennlp.common.file_utils import TensorCache

    tensors_only = SimpleNamespace(__name__="pickle", Unpickler=_TensorUnpickler)

    def get_tensor(self: Any, key: str) -> torch.Tensor:
        # The cache returns one object per key as long as it is in use.
        tensor = self.cache_cache.get(key)
        if tensor is None:
            with self.lmdb_env.begin(write=False) as transaction:
                entry = transaction.get(key.encode())
            if entry is None:
                raise KeyError(key)
            tensor = torch.load(
                io.BytesIO(entry),
                map_location="cpu",
                pickle_module=tensors_only,
                weights_only=False,  # torch's own reader of tensors alone reads protocol 2
            )
            self.cache_cache[key] = tensor
        return tensor

    TensorCache.__getitem__ = get_tensor


class _TensorUnpickler(pickle.Unpickler):
    """Reads the parts of a pickled tensor, and refuses everything else."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in (
            ("collections", "OrderedDict"),
            ("torch._utils", "_rebuild_tensor_v2"),
        ):
            raise pickle.UnpicklingError(
                f"found {module_name}.{global_name}, expected nothing but a tensor"
            )
        return super().find_class(module_name, global_name)


def _patch_transformer_tokenizers() -> None:
    """
    Do not pass `add_special_tokens` to the constructors of tokenizers, which now refuse it. It had no effect
    there: AllenNLP also passes it with each text.
    """
    from allennlp.common import cached_transformers

    make_tokenizer = cached_transformers.get_tokenizer

    @functools.wraps(make_tokenizer)
    def get_tokenizer(model_name: str, **kwargs: Any) -> Any:
        kwargs.pop("add_special_tokens", None)
        return make_tokenizer(model_name, **kwargs)

    cached_transformers.get_tokenizer = get_tokenizer


def _patch_spawned_data_workers() -> None:
    """
    Make the lock of `MultiProcessDataLoader` for its own start method. Python now refuses to send a lock for
    forked processes to spawned ones. With `start_method: "spawn"` the loader did that: it made the lock of
    its progress bars with the default method.
    """
    from allennlp.data.data_loaders import multiprocess_data_loader

    def with_own_lock(start_workers: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(start_workers)
        def start_with_own_lock(self: Any, queue: Any, context: Any) -> Any:
            # The method makes the lock with its module's `mp`: replace that by the loader's own
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


def _hide_mixed_precision_warnings() -> None:
    """
    Hide two deprecation warnings of `torch.cuda.amp`, which each training of AllenNLP printed over its
    progress bars.
    """
    warnings.filterwarnings(
        "ignore",
        r"`torch\.cuda\.amp\.\w+\(args\.\.\.\)` is deprecated",
        FutureWarning,
        r"allennlp\.",
    )


def _patch_norms_of_sparse_gradients() -> None:
    """
    Support sparse gradients in `grad_norm`. AllenNLP now uses torch's `clip_grad_norm_`, which refuses them;
    its previous function supported them. The softmax of a biLM has sparse gradients: rows of the sampled
    words only.
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
                # Repeated rows are summed first, so that the norm is that of the dense gradient.
                parameter.grad = parameter.grad.coalesce()
                stand_in = torch.empty_like(parameter.grad.values())
                stand_in.grad = parameter.grad.values()  # shares memory, and so is scaled in place
                dense.append(stand_in)
            else:
                dense.append(parameter)
        return clip_dense(dense, *args, **kwargs)

    gradient_descent_trainer.clip_grad_norm_ = clip_grad_norm
    ddp_accelerator.clip_grad_norm_ = clip_grad_norm


def _patch_recovered_averages() -> None:
    """
    Let a restored moving average keep its parameters. A checkpoint contains a moving average with the
    parameters that it follows. A restored average followed copies of them, which no longer changed: after
    `--recover` it was the average of old weights.
    """
    from allennlp.training.moving_average import MovingAverage

    load_state_dict = MovingAverage.load_state_dict

    @functools.wraps(load_state_dict)
    def keep_parameters(self: Any, state: Any) -> None:
        parameters = self._parameters
        load_state_dict(self, state)
        self._parameters = parameters
        for tensors in (self._shadows, self._backups):
            for name, parameter in parameters:
                tensors[name] = tensors[name].to(parameter.device)

    MovingAverage.load_state_dict = keep_parameters


def _patch_end_of_distributed_training() -> None:
    """
    Let workers release Python's lock for a moment before they end. Threads of torch's gloo process group need
    it to release the tensors of the last exchange. AllenNLP ended its workers right after that, and a thread
    that requested the lock of an ending interpreter crashed the worker: "terminate called without an active
    exception".
    """
    from allennlp.training.gradient_descent_trainer import GradientDescentTrainer

    train = GradientDescentTrainer.train

    @functools.wraps(train)
    def train_and_wait_at_exit(self: Any) -> Any:
        if self._distributed:
            atexit.register(time.sleep, SECONDS_FOR_THREADS)
        return train(self)

    GradientDescentTrainer.train = train_and_wait_at_exit
