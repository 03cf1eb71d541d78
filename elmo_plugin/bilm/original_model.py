"""The biLM that stands for ELMo where no files are named."""

from os import PathLike
from typing import Optional, Tuple, TypeVar, Union

from elmo_plugin.bilm.model_files import names_both_files

# The paper's model, as AI2 publishes it.
ORIGINAL_MODEL = (
    "https://allennlp.s3.amazonaws.com/models/elmo/2x4096_512_2048cnn_2xhighway/"
    "elmo_2x4096_512_2048cnn_2xhighway_"
)

Name = TypeVar("Name", bound=Union[str, PathLike])


def without_unused_default(
    options_file: Optional[Name], weight_file: Optional[Name]
) -> Tuple[Optional[Name], Optional[Name]]:
    """
    For classes whose two arguments have the original model's files as defaults: beside a name that stands
    for both files, such as `elmo_mini`, the default of the other argument was left out rather than meant,
    and becomes `None`.
    """
    if names_both_files(weight_file) and options_file == ORIGINAL_MODEL + "options.json":
        options_file = None
    if names_both_files(options_file) and weight_file == ORIGINAL_MODEL + "weights.hdf5":
        weight_file = None
    return options_file, weight_file
