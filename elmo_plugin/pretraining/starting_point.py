"""The starting point of a biLM's training: the weights of another biLM, and its softmax if there is one."""

from os import PathLike
from typing import Dict, List, NamedTuple, Optional, Union

from allennlp.data import Vocabulary
from allennlp.models import Model
from torch import Tensor

from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.lm_vocabulary import VOCABULARY_NAME, LMVocabulary
from elmo_plugin.bilm.model_files import resolve_model_files
from elmo_plugin.bilm.softmax import SOFTMAX_GROUP
from elmo_plugin.bilm.weights import read_group
from elmo_plugin.compat.archives import opened_archive
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.pretraining.softmax import LMSoftmax, load_softmax, softmax_datasets
from elmo_plugin.pretraining.word_vocabulary import first_difference, words_of


class StartingPoint(NamedTuple):
    """
    A trainable biLM, with the softmax that it was trained with.

    # Parameters

    name : `str`
        Its source, for messages.
    bilm : `BiLM`
        The weights.
    datasets : `Dict[str, Tensor]`
        The softmax, see `softmax_datasets`; empty if there is none.
    words : `List[str]`, optional
        The words that the softmax predicts, if they are known.
    """

    name: str
    bilm: BiLM
    datasets: Dict[str, Tensor]
    words: Optional[List[str]]

    def fill_softmax(self, softmax: LMSoftmax, vocab: Vocabulary) -> bool:
        """
        Load `softmax` from this one.

        # Returns

        `False` if there is none.

        # Raises

        `ConfigurationError` if it predicts other words than `vocab` has, or is of another kind.
        """
        if not self.datasets:
            return False
        words = words_of(vocab)
        if self.words is not None and self.words != words:
            raise ConfigurationError(
                f"{self.name}: its softmax predicts other words than the vocabulary has: found "
                f"{first_difference(self.words, words)}. Set vocabulary_file to the {VOCABULARY_NAME} of "
                "that model, or set model.new_softmax to learn another softmax."
            )
        load_softmax(softmax, self.datasets, self.name)
        return True


def start_from_files(
    options_file: Optional[Union[str, PathLike]], weight_file: Optional[Union[str, PathLike]]
) -> StartingPoint:
    """
    Load files in bilm-tf's form. `vocab.txt` beside the weights has the words of their softmax.

    # Raises

    The errors of `BiLM.from_files`, and `ConfigurationError` if that vocabulary is damaged.
    """
    options_path, weight_path = resolve_model_files(options_file, weight_file)
    bilm = BiLM.from_files(options_path, weight_path).requires_grad_(True)
    datasets = read_group(weight_path, SOFTMAX_GROUP)
    vocabulary_path = weight_path.with_name(VOCABULARY_NAME)
    words = None
    if datasets and vocabulary_path.is_file():
        words = LMVocabulary.from_file(vocabulary_path).words
    return StartingPoint(str(weight_file or options_file), bilm, datasets, words)


def start_from_archive(archive_file: Union[str, PathLike]) -> StartingPoint:
    """
    Load an archive of a pretrained biLM with its softmax, or of a task model that contains a biLM.

    # Raises

    `ConfigurationError` if the archive does not exist, or does not contain exactly one biLM.
    """
    model = opened_archive(archive_file).model
    bilm = bilm_in(model, str(archive_file))
    softmax = getattr(model, "softmax", None)
    if not isinstance(softmax, LMSoftmax):
        return StartingPoint(str(archive_file), bilm.requires_grad_(True), {}, None)
    datasets = softmax_datasets(softmax)
    return StartingPoint(
        str(archive_file), bilm.requires_grad_(True), datasets, words_of(model.vocab)
    )


def bilm_in(model: Model, archive_file: str) -> BiLM:
    """
    Return the only biLM in a model.

    # Raises

    `ConfigurationError` naming `archive_file` if there is none, or several.
    """
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, BiLM)]
    if len(found) != 1:
        names = ", ".join(name for name, _ in found) or "none"
        raise ConfigurationError(
            f"{archive_file}: the model holds {len(found)} biLMs ({names}), expected one. Give the archive "
            "of a pretrained biLM, or of a task model with one ELMo."
        )
    return found[0][1]
