"""Options of what runs a biLM, for commands."""

from dataclasses import asdict, dataclass
from typing import Any, Dict, Optional

from elmo_plugin.arguments import check_choices, option
from elmo_plugin.bilm.kernels import AUTO, KERNEL_NAMES, PRECISIONS


@dataclass(frozen=True)
class BiLMFiles:
    """The files of a biLM, see `ElmoEmbedder`."""

    options_file: Optional[str] = option(
        "JSON of its sizes: path, URL or hf:// name; elmo_mini, or a .zip with both files, stands for both "
        "(default: the paper's model, downloaded once)",
        None,
    )
    weight_file: Optional[str] = option(
        "HDF5 of its weights, likewise",
        None,
    )

    @property
    def arguments(self) -> Dict[str, Any]:
        """The arguments of `ElmoEmbedder`; none, for its default, if no file was named."""
        return asdict(self) if self != BiLMFiles() else {}


@dataclass(frozen=True)
class DeviceOptions:
    """
    What runs a biLM, see `ElmoEmbedder`.

    # Raises

    `ConfigurationError` for an unknown precision or kernel.
    """

    cuda_device: int = option(
        "number of the GPU; -1 for the CPU",
        -1,
    )
    precision: str = option(
        "of matrix products: float32, or faster and less exact bfloat16 or int8",
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
