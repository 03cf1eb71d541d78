"""Options of commands that say which biLM to load and how to run it."""

from dataclasses import asdict, dataclass
from typing import Any, Dict, Optional

from elmo_plugin.arguments import check_choices, option
from elmo_plugin.bilm.kernels import AUTO, KERNEL_NAMES, PRECISIONS


@dataclass(frozen=True)
class BiLMFiles:
    """The files of a biLM, see `ElmoEmbedder`."""

    options_file: Optional[str] = option(
        "JSON file of the sizes: path, URL or hf:// name; elmo_mini, or a .zip of both files, stands for "
        "both (default: the paper's model, downloaded once)",
        None,
    )
    weight_file: Optional[str] = option(
        "HDF5 file of the weights: path, URL or hf:// name",
        None,
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

    cuda_device: int = option(
        "index of the GPU; -1 for the CPU",
        -1,
    )
    precision: str = option(
        "precision of matrix products: float32, or bfloat16 or int8, which are faster and less exact",
        "float32",
        choices=PRECISIONS,
    )
    kernel: str = option(
        "what runs the LSTMs: simd, onednn, triton (GPUs), reference, or auto for the fastest",
        AUTO,
        choices=KERNEL_NAMES,
    )

    def __post_init__(self) -> None:
        check_choices(self)
