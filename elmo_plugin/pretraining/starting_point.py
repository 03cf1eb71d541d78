"""The starting point of a biLM's training: the weights of another biLM, and its softmax if it has one."""

from pathlib import Path
from typing import List, NamedTuple, Optional

import torch
from allennlp.data import Vocabulary
from allennlp.models import Model

from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.lm_vocabulary import LMVocabulary
from elmo_plugin.bilm.model_files import (
    OPTIONS_NAME,
    VOCABULARY_NAME,
    WEIGHTS_NAME,
    is_many_langs_file,
    is_task_model,
    resolve_model_files,
)
from elmo_plugin.bilm.softmax import ExactSoftmax, read_softmax
from elmo_plugin.compat.archives import opened_archive
from elmo_plugin.errors import ConfigurationError, errors_at
from elmo_plugin.files.output import replaced_files
from elmo_plugin.files.text import FileName
from elmo_plugin.pretraining.corpus import first_difference, predicted_words
from elmo_plugin.pretraining.softmax import LMSoftmax

BILM_NAMES = (OPTIONS_NAME, WEIGHTS_NAME, VOCABULARY_NAME)


class StartingPoint(NamedTuple):
    """A trained biLM, with the softmax that it was trained with and the words of that, if they are known."""

    name: str  # its source, for messages
    bilm: BiLM
    softmax: Optional[ExactSoftmax]
    words: Optional[List[str]]

    def check_words(self) -> None:
        """Raise an error if there is a softmax without its words, or with those of another one."""
        if self.softmax is not None and self.words is not None:
            with errors_at(self.name):
                self.softmax.check_fits(self.bilm.options.projection_dim, len(self.words))
        elif self.softmax is not None:
            raise ConfigurationError(
                f"{self.name}: has a softmax, but no {VOCABULARY_NAME} beside its weights, expected the "
                "words that it predicts. Add the file, or give the archive of its training."
            )

    def load_softmax(self, softmax: LMSoftmax, vocab: Vocabulary) -> None:
        """Copy the softmax into `softmax`. Raise an error if it predicts other words than `vocab` has."""
        self.check_words()
        assert self.softmax is not None and self.words is not None
        words = predicted_words(vocab)
        if self.words != words:
            raise ConfigurationError(
                f"{self.name}: its softmax is not of the words of the vocabulary: found "
                f"{first_difference(self.words, words)}. Set vocabulary_file to the {VOCABULARY_NAME} of "
                "that model. To learn a softmax of other words, start from the files that BiLM.save writes, "
                "which have none."
            )
        with torch.no_grad():
            softmax.weight.copy_(self.softmax.weight)
            softmax.bias.copy_(self.softmax.bias)


def load_start(name: str) -> StartingPoint:
    """Load a biLM by the name of an archive or task model, or by one that names both files."""
    is_archive = name.endswith(".tar.gz") or is_task_model(name)
    return start_from_archive(name) if is_archive else start_from_files(name, None)


def start_from_files(
    options_file: Optional[FileName], weight_file: Optional[FileName]
) -> StartingPoint:
    """Load files in bilm-tf's form. `vocab.txt` beside the weights has the words of their softmax."""
    options_path, weight_path = resolve_model_files(options_file, weight_file)
    bilm = BiLM.from_files(options_path, weight_path)
    name = str(weight_file or options_file)
    # In its own form, a model of ELMoForManyLangs has no softmax.
    softmax = None if is_many_langs_file(weight_path) else read_softmax(weight_path)
    if softmax is None:
        return StartingPoint(name, bilm, None, None)
    vocabulary_path = weight_path.with_name(VOCABULARY_NAME)
    words = LMVocabulary.from_file(vocabulary_path).words if vocabulary_path.is_file() else None
    return StartingPoint(name, bilm, softmax, words)


def start_from_archive(archive_file: FileName) -> StartingPoint:
    """Load an archive of a pretrained biLM with its softmax, or of a task model that contains one biLM."""
    return start_in(opened_archive(archive_file).model, str(archive_file))


def start_in(model: Model, archive_file: str) -> StartingPoint:
    """
    Return the only biLM in a model, with its softmax if it was pretrained. Raise `ConfigurationError` if
    there is none, or several.
    """
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, BiLM)]
    if len(found) != 1:
        names = ", ".join(name for name, _ in found) or "none"
        raise ConfigurationError(
            f"{archive_file}: the model holds {len(found)} biLMs ({names}), expected one. Give the archive "
            "of a pretrained biLM, or of a task model with one ELMo."
        )
    bilm = found[0][1]
    softmax = getattr(model, "softmax", None)
    if not isinstance(softmax, LMSoftmax):
        return StartingPoint(archive_file, bilm, None, None)
    return StartingPoint(archive_file, bilm, softmax.exact(), predicted_words(model.vocab))


def save_bilm(start: StartingPoint, folder: Path, dtype: str = "float32") -> List[Path]:
    """
    Write a biLM in bilm-tf's form, with its softmax and the words of that, if it has a softmax. Return the
    paths.
    """
    options_file, weight_file, vocabulary_file = paths = [folder / name for name in BILM_NAMES]
    folder.mkdir(parents=True, exist_ok=True)
    if start.softmax is None or start.words is None:
        start.bilm.save(options_file, weight_file, dtype)
        vocabulary_file.unlink(missing_ok=True)  # of another model
        return [options_file, weight_file]
    # Together: with other words, a softmax would give wrong probabilities.
    with replaced_files(weight_file, vocabulary_file, options_file) as (weights, words, options):
        LMVocabulary(start.words).to_file(words)
        start.bilm.save(options, weights, dtype, start.softmax.datasets())
    return paths
