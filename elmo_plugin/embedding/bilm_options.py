"""Options of commands that say which biLM to load and how to run it."""

from dataclasses import asdict, dataclass
from typing import Any, Dict, Optional

from elmo_plugin.arguments import check_choices, option
from elmo_plugin.bilm.runners import AUTO, KERNELS, PRECISIONS


@dataclass(frozen=True)
class BiLMFiles:
    """The files of a biLM, see `ElmoEmbedder`."""

    options_file: Optional[str] = option(
        "sizes, JSON: path, URL or hf:// name; elmo_mini, a folder or a .zip names both files (default: "
        "the paper's, downloaded once)",
        None,
        metavar="FILE",
    )
    weight_file: Optional[str] = option(
        "weights, HDF5: path, URL or hf:// name", None, metavar="FILE"
    )

    @property
    def arguments(self) -> Dict[str, Any]:
        """Arguments of `ElmoEmbedder`. Empty if no file is given: then its default is used."""
        return asdict(self) if self != BiLMFiles() else {}


@dataclass(frozen=True)
class DeviceOptions:
    """
    Device, precision and kernel of a biLM, see `ElmoEmbedder`.

    # Raises

    `ConfigurationError` for an unknown precision or kernel.
    """

    cuda_device: int = option("index of the GPU; -1 for the CPU", -1, metavar="N")
    precision: str = option("bfloat16, int8: faster, less exact", "float32", choices=PRECISIONS)
    kernel: str = option("what runs the LSTMs; auto: the fastest", AUTO, choices=KERNELS)

    def __post_init__(self) -> None:
        check_choices(self)
