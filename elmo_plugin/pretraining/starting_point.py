"""The starting point of a biLM's training: the weights of another biLM, and its softmax if it has one."""

import shutil
from pathlib import Path
from typing import List, NamedTuple, Optional, Tuple

import torch
from allennlp.data import Vocabulary
from allennlp.models import Model

from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.lm_vocabulary import VOCABULARY_NAME, LMVocabulary
from elmo_plugin.bilm.model_files import is_pretrained, resolve_model_files
from elmo_plugin.bilm.softmax import SOFTMAX_GROUP, ExactSoftmax, softmax_of
from elmo_plugin.bilm.weights import read_group
from elmo_plugin.compat.archives import opened_archive
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import FileName
from elmo_plugin.pretraining.corpus import first_difference, words_of
from elmo_plugin.pretraining.softmax import LMSoftmax


class StartingPoint(NamedTuple):
    """A trained biLM, with the softmax that it was trained with and the words of that, if they are known."""

    name: str  # its source, for messages
    bilm: BiLM
    softmax: Optional[ExactSoftmax]
    words: Optional[List[str]]

    def load_softmax(self, softmax: LMSoftmax, vocab: Vocabulary) -> None:
        """Copy the softmax into `softmax`. Raise an error if it predicts other words than `vocab` has."""
        assert self.softmax is not None
        words = words_of(vocab)
        shapes = self.softmax.weight.shape, softmax.weight.shape
        if self.words is not None and self.words != words:
            difference = first_difference(self.words, words)
        elif shapes[0] != shapes[1]:
            difference = f"the shape {tuple(shapes[0])}, expected {tuple(shapes[1])}"
        else:
            with torch.no_grad():
                softmax.weight.copy_(self.softmax.weight)
                softmax.bias.copy_(self.softmax.bias)
            return
        raise ConfigurationError(
            f"{self.name}: its softmax is not of the words of the vocabulary: found {difference}. Set "
            f"vocabulary_file to the {VOCABULARY_NAME} of that model, or set model.new_softmax to learn "
            "another softmax."
        )


def start_from_files(
    options_file: Optional[FileName], weight_file: Optional[FileName]
) -> StartingPoint:
    """Load files in bilm-tf's form. `vocab.txt` beside the weights has the words of their softmax."""
    options_path, weight_path = resolve_model_files(options_file, weight_file)
    bilm = BiLM.from_files(options_path, weight_path).requires_grad_(True)
    name = str(weight_file or options_file)
    datasets = read_group(weight_path, SOFTMAX_GROUP)
    if not datasets:
        return StartingPoint(name, bilm, None, None)
    vocabulary_path = weight_path.with_name(VOCABULARY_NAME)
    words = LMVocabulary.from_file(vocabulary_path).words if vocabulary_path.is_file() else None
    return StartingPoint(name, bilm, softmax_of(datasets, str(weight_path)), words)


def start_from_archive(archive_file: FileName) -> StartingPoint:
    """Load an archive of a pretrained biLM with its softmax, or of a task model that contains one biLM."""
    model = opened_archive(archive_file).model
    bilm = bilm_in(model, str(archive_file)).requires_grad_(True)
    softmax = getattr(model, "softmax", None)
    if not isinstance(softmax, LMSoftmax):
        return StartingPoint(str(archive_file), bilm, None, None)
    return StartingPoint(str(archive_file), bilm, softmax.exact(), words_of(model.vocab))


def bilm_in(model: Model, archive_file: str) -> BiLM:
    """Return the only biLM in a model. Raise `ConfigurationError` if there is none, or several."""
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, BiLM)]
    if len(found) != 1:
        names = ", ".join(name for name, _ in found) or "none"
        raise ConfigurationError(
            f"{archive_file}: the model holds {len(found)} biLMs ({names}), expected one. Give the archive "
            "of a pretrained biLM, or of a task model with one ELMo."
        )
    return found[0][1]


def starting_files(name: str, folder: Path) -> Tuple[str, Optional[List[str]]]:
    """
    Return the name of a biLM for a training in the parent of `folder`, to which its files are copied unless
    it has a name of its own; and the words that its softmax predicts, if it has a softmax.

    # Raises

    `ConfigurationError` if it cannot be loaded, or if it has a softmax, but not the words of that.
    """
    is_archive = name.endswith(".tar.gz")
    start = start_from_archive(name) if is_archive else start_from_files(name, None)
    if start.softmax is not None and start.words is None:
        raise ConfigurationError(
            f"--from: {name} has a softmax, but no {VOCABULARY_NAME} beside its weights, expected the words "
            "that it predicts. Add the file, or give the archive of its training."
        )
    if is_pretrained(name):
        return name, start.words
    folder.mkdir(parents=True, exist_ok=True)
    if is_archive:
        shutil.copyfile(name, folder / "model.tar.gz")
        return f"{folder.name}/model.tar.gz", start.words
    options_path, weight_path = resolve_model_files(name, None)
    shutil.copyfile(options_path, folder / "options.json")
    shutil.copyfile(weight_path, folder / "weights.hdf5")
    if start.words is not None:
        LMVocabulary(start.words).to_file(folder / VOCABULARY_NAME)
    return folder.name, start.words
