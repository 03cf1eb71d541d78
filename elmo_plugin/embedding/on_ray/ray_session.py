"""Running on Ray: on this machine, or on a cluster."""

import logging
from contextlib import contextmanager
from typing import Any, Iterator, Optional

from allennlp.common.checks import ConfigurationError

# Beside the weights: text on its way, and what Ray keeps of its own. Vectors are not sent.
STORE_BYTES = 2**29


def import_ray() -> Any:
    """
    The module `ray`, with `ray.data` loaded.

    # Raises

    `ConfigurationError` if it is not installed: it comes with an extra.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ConfigurationError(
            f"Embedding on several workers needs Ray Data, which cannot be imported ({error}). Install it: "
            "pip install 'elmo_plugin[ray]'"
        ) from error
    return ray


@contextmanager
def ray_session(address: Optional[str] = None, shared_bytes: int = 0) -> Iterator[None]:
    """
    Be connected to Ray within the context. If this process is already, that connection is used, and stays.

    # Parameters

    address : `str`, optional
        Of a cluster's head node, such as `10.0.0.1:6379`, or `auto` on a node of one. By default Ray is
        started on this machine, with all of its cores and GPUs, and stopped at the end.
    shared_bytes : `int`, optional (default = `0`)
        How much will be put into the object store of this machine, beside text.

    # Raises

    `ConfigurationError` if Ray is not installed, or there is no cluster at the address.
    """
    ray = import_ray()
    if ray.is_initialized():
        if address is not None:
            raise ConfigurationError(
                f"--ray-address is {address}, but this process is connected to Ray already. Leave it out to "
                "use that connection, or call ray.shutdown() first."
            )
        yield
        return
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        ray.init(include_dashboard=False, object_store_memory=shared_bytes + STORE_BYTES, **quiet)
    else:
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigurationError(
                f"--ray-address: no Ray cluster answers at {address} ({error}). Start one with `ray start "
                "--head`, or leave the address out to run on this machine."
            ) from error
    data_logger = logging.getLogger("ray.data")
    former_level = data_logger.level
    data_logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        data_logger.setLevel(former_level)
        ray.shutdown()


@contextmanager
def original_errors() -> Iterator[None]:
    """An error of a worker is raised as what it was there, without Ray's wrapping."""
    ray = import_ray()
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, (ConfigurationError, OSError)):
            raise cause from error
        raise
