"""The starting point of a biLM's training: the weights of another biLM, and its softmax if it has one."""

import shutil
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

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

_START_NAME = "start"  # the folder of the copy in that of the training


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


class StartingFiles(NamedTuple):
    """
    The biLM that a training starts from.

    # Parameters

    name : `str`
        As the config of the training names it: its own name, or that of the copy that `copy_to` makes.
    words : `List[str]`, optional
        The words that its softmax predicts, if it has a softmax.
    files : `Dict[str, Path]`
        What is copied, under these names. None, if it is a biLM of this package.
    """

    name: str
    words: Optional[List[str]]
    files: Dict[str, Path]

    def copy_to(self, folder: Path) -> None:
        """Copy the files into the folder of a training."""
        target = folder / _START_NAME
        if self.files:
            target.mkdir(parents=True, exist_ok=True)
            if self.words is not None:
                LMVocabulary(self.words).to_file(target / VOCABULARY_NAME)
        for name, path in self.files.items():
            shutil.copyfile(path, target / name)


def starting_files(name: str) -> StartingFiles:
    """
    Find the biLM that a training starts from, and load it, to check it.

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
        return StartingFiles(name, start.words, {})
    if is_archive:
        files = {"model.tar.gz": Path(name)}
        return StartingFiles(f"{_START_NAME}/model.tar.gz", start.words, files)
    files = dict(zip(("options.json", "weights.hdf5"), resolve_model_files(name, None)))
    return StartingFiles(_START_NAME, start.words, files)
