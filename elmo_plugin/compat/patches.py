"""Patches of AllenNLP 2.10.1: for current Python, torch and transformers, and for archives."""

import atexit
import functools
import inspect
import logging
import os
import shutil
import tarfile
import tempfile
import time
import warnings
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List

from elmo_plugin.compat.archive_configs import check_texts, known_classes_only, patch_class_names
from elmo_plugin.compat.environment import check_environment
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.compressed import BoundedGzipFile, check_zip
from elmo_plugin.files.output import replaced_file
from elmo_plugin.files.text import FileName

logger = logging.getLogger(__name__)

# AllenNLP, torch and their dependencies are imported inside functions only: this module must load when they
# are missing or broken, to report it.

SECONDS_FOR_THREADS = 0.5  # gloo's threads need microseconds, once they have a core


@functools.cache
def prepare_allennlp() -> None:
    """
    Check the environment, then patch what current versions of Python, torch and transformers broke in
    AllenNLP 2.10.1, and how it finds and extracts archives.

    No patch changes the meaning of a config, or the behavior of torch and other packages elsewhere in the
    process. Later calls in the same process do nothing. Raises as `check_environment`.
    """
    check_environment()
    hide_mixed_precision_warnings()
    _patch_reduce_on_plateau()
    _patch_recovery()
    _patch_transformer_tokenizers()
    _patch_norms_of_sparse_gradients()
    _patch_recovered_averages()
    _patch_end_of_distributed_training()
    _patch_test_after_distributed_training()
    _patch_archives()
    _patch_small_files()


def hide_mixed_precision_warnings() -> None:
    """Hide two warnings that each training of AllenNLP printed over its progress bars."""
    warnings.filterwarnings(
        "ignore", r"`torch\.cuda\.amp\.\w+\(args\.\.\.\)` is deprecated", FutureWarning, "allennlp"
    )


def _patch_reduce_on_plateau() -> None:
    """
    Accept `verbose`, which AllenNLP always passes on: torch's `ReduceLROnPlateau` no longer has it, and no
    longer prints reductions.
    """
    from allennlp.training.learning_rate_schedulers.pytorch_lr_schedulers import (
        ReduceOnPlateauLearningRateScheduler as Scheduler,
    )
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    allennlp_init = Scheduler.__init__
    signature = inspect.signature(allennlp_init)

    # `wraps` keeps the signature, where FromParams looks up names, types and defaults.
    @functools.wraps(allennlp_init)
    def init_without_verbose(self: Any, *args: Any, **kwargs: Any) -> None:
        options = dict(signature.bind(self, *args, **kwargs).arguments)
        options.pop("verbose", None)
        super(Scheduler, options.pop("self")).__init__(ReduceLROnPlateau(**options))

    Scheduler.__init__ = init_without_verbose


def _patch_recovery() -> None:
    """
    Allow NumPy values in training states. By default `torch.load` now refuses everything except tensors and
    plain values. Training states also have NumPy numbers and arrays (in metrics, learning rates and random
    states), so `--recover` failed.
    """
    import numpy
    import torch
    from allennlp.training.checkpointer import Checkpointer

    load_checkpoint = Checkpointer.load_checkpoint
    numpy_values: List[Any] = [numpy.ndarray, numpy.dtype]
    numpy_values += [type(numpy.dtype(kind)) for kind in "?bhilqBHILQefd"]
    # The functions by which pickle makes numbers and arrays.
    numpy_values += [value.__reduce__()[0] for value in (numpy.float64(0), numpy.zeros(0))]

    @functools.wraps(load_checkpoint)
    def load_with_numpy_values(self: Any) -> Any:
        with torch.serialization.safe_globals(numpy_values):
            return load_checkpoint(self)

    Checkpointer.load_checkpoint = load_with_numpy_values


def _patch_small_files() -> None:
    """
    Replace the config, the meta data and the metrics of a training as a whole. AllenNLP empties such a file,
    then writes it again: a killed process or a full disk left a half config, which no `--recover` could
    read, or half metrics.
    """
    from allennlp.common import Params, meta, util

    def replacing(write: Callable[..., None], position: int) -> Callable[..., None]:
        """Return a function that writes to a new file in place of the argument at a position."""

        @functools.wraps(write)
        def replace(*arguments: Any, **keywords: Any) -> None:
            bound = inspect.signature(write).bind(*arguments, **keywords)
            name = list(bound.signature.parameters)[position]
            if bound.arguments[name] is None:
                return write(*arguments, **keywords)
            with replaced_file(bound.arguments[name]) as bound.arguments[name]:
                write(*bound.args, **bound.kwargs)

        return replace

    Params.to_file = replacing(Params.to_file, 1)
    meta.Meta.to_file = replacing(meta.Meta.to_file, 1)
    util.dump_metrics = replacing(util.dump_metrics, 0)


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
    Let a restored moving average keep its parameters. A checkpoint contains a moving average with copies of
    the parameters that it follows. After `--recover` AllenNLP's followed these copies, which do not change,
    and so was the average of old weights.
    """
    from allennlp.training.moving_average import MovingAverage

    def load_averages(self: Any, state_dict: Dict[str, Any]) -> None:
        for name, _ in self._parameters:
            self._shadows[name].copy_(state_dict["shadows"][name])
            self._backups[name].copy_(state_dict["backups"][name])

    MovingAverage.load_state_dict = load_averages


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


def _patch_test_after_distributed_training() -> None:
    """
    Leave out `evaluate_on_test` after distributed training, with a warning. AllenNLP ran it in the first
    worker alone, on its share of the data; metrics then waited for the other workers, which had ended, and
    the run failed before it wrote its metrics and its archive.
    """
    from allennlp.commands.train import TrainModel

    finish = TrainModel.finish

    @functools.wraps(finish)
    def finish_without_test(self: Any, metrics: Dict[str, Any]) -> None:
        if self.trainer._distributed and self.evaluate_on_test:
            logger.warning(
                "evaluate_on_test: not done after distributed training. Run `allennlp evaluate` with the "
                "archive and the test data."
            )
            self.evaluate_on_test = False
        finish(self, metrics)

    TrainModel.finish = finish_without_test


def _patch_archives() -> None:
    """
    Accept the name of a task model that comes with this package wherever AllenNLP loads an archive. Check the
    members of archives, which AllenNLP extracted with any names and links (a member `../../x` was written
    outside of its folder), their configs, see `archive_configs`, and the size of their weights.
    """
    from allennlp.common.file_utils import cached_path
    from allennlp.models import archival

    from elmo_plugin.bilm.model_files import archive_path

    @functools.wraps(cached_path)
    def find_archive(archive_file: FileName, *args: Any, **kwargs: Any) -> str:
        found = cached_path(archive_path(archive_file), *args, **kwargs)
        if os.path.isdir(found):
            check_texts(found, archive_file)
        return found

    get_weights_path = archival.get_weights_path

    @functools.wraps(get_weights_path)
    def find_weights(folder: FileName) -> str:
        path = get_weights_path(folder)
        check_zip(path)
        return path

    # Of the vocabulary of an archive in a folder that is read-only.
    warnings.filterwarnings("ignore", "Lacking permissions required to obtain lock", UserWarning)
    archival.cached_path = find_archive
    archival.extracted_archive = _extracted_archive
    archival.get_weights_path = find_weights
    patch_class_names()
    for name in ("_load_dataset_readers", "_load_model"):
        setattr(archival, name, known_classes_only(getattr(archival, name)))


@contextmanager
def _extracted_archive(resolved_archive_file: FileName, cleanup: bool = True) -> Iterator[str]:
    """
    Extract a model archive to a temporary folder, as AllenNLP's function of this name does; without `cleanup`
    the folder remains. If a member is refused (see `_checked_members`), the archive expands too far (see
    `BoundedGzipFile`), or its texts are refused (see `check_texts`), extracted files are removed.
    """
    folder = tempfile.mkdtemp()
    try:
        with (
            BoundedGzipFile(resolved_archive_file) as file,
            tarfile.open(fileobj=file, mode="r:") as archive,
        ):
            # Python versions before 2023 have no filter.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder, _checked_members(archive, resolved_archive_file))
        check_texts(folder, resolved_archive_file)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    try:
        yield folder
    finally:
        if cleanup:
            shutil.rmtree(folder, ignore_errors=True)


def _checked_members(archive: tarfile.TarFile, archive_file: FileName) -> Iterator[tarfile.TarInfo]:
    """
    Yield the members of an archive. Raises a `ConfigurationError` for one that is no file or folder, or would
    be written outside of the folder. This is stricter than tarfile's data filter, which moves absolute paths,
    and which links to links evaded in several versions of Python.
    """
    for member in archive:
        is_plain = member.isfile() or member.isdir()
        if not is_plain or os.path.isabs(member.name) or ".." in member.name.split("/"):
            raise ConfigurationError(
                f"{archive_file}: member {member.name!r} is a link or a device, or has an absolute path or "
                "'..', expected files and folders inside of the archive. Do not trust this file; get it from "
                "another source."
            )
        yield member
