"""
Write the biLM of an archive as the options and weight files that every ELMo reads, or a task model as a small
archive.
"""

import logging
from os import PathLike
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Union

import torch
from allennlp.models import Model
from torch import Tensor

from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.lm_vocabulary import VOCABULARY_NAME, LMVocabulary
from elmo_plugin.bilm.softmax import SOFTMAX_GROUP
from elmo_plugin.bilm.weights import save_model
from elmo_plugin.compat.archives import archive_files, opened_archive, save_archive
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import replaced_file
from elmo_plugin.files.text import read_text
from elmo_plugin.pretraining.model import BiLMTrainingModel
from elmo_plugin.pretraining.model_card import CardFacts, metrics_beside, model_card, read_scores
from elmo_plugin.pretraining.softmax import softmax_datasets
from elmo_plugin.pretraining.starting_point import bilm_in
from elmo_plugin.pretraining.word_vocabulary import words_of

logger = logging.getLogger(__name__)

CARD_NAME = "README.md"
_BILM_NAMES = ("options.json", "weights.hdf5", VOCABULARY_NAME)


def export_model(
    archive_file: Union[str, PathLike],
    output_folder: Union[str, PathLike],
    task_model: bool = False,
    dtype: str = "float32",
    overwrite: bool = False,
    name: Optional[str] = None,
    license: Optional[str] = None,
    description: Optional[Union[str, PathLike]] = None,
    scores: Sequence[str] = (),
) -> List[Path]:
    """
    Write the biLM of an archive, or its task model, with a model card.

    # Parameters

    archive_file : `str` or `PathLike`
        An archive, the folder of a training run, or the name of a task model that comes with this package.
    output_folder : `str` or `PathLike`
        The folder for `options.json` and `weights.hdf5`; for a pretrained biLM also `vocab.txt` (and
        `weights.hdf5` has its softmax in the group `softmax`).
    task_model : `bool`, optional (default = `False`)
        Write the task model instead, as a folder that can be used in place of the archive: `config.json`,
        `weights.th`, the folder `vocabulary`, and `meta.json` if the archive has it. A frozen biLM that comes
        with this package is left out, and found by its name when the folder is loaded.
    dtype : `str`, optional (default = `"float32"`)
        `float32` or `float16`.
    overwrite : `bool`, optional (default = `False`)
        Replace existing files.
    name : `str`, optional
        Name of the model in its card. By default the name of the folder.
    license : `str`, optional
        License of the weights, for the card.
    description : `str` or `PathLike`, optional
        A Markdown file for the beginning of the card.
    scores : `Sequence[str]`, optional
        `DATA=FILE` of metrics for the card, see `read_scores`.

    # Returns

    What was written; the card, `README.md`, is the last.

    # Raises

    `ConfigurationError` if the archive cannot be loaded, if its biLM is wanted and it holds none, several or
    one of ELMoForManyLangs, if a file exists and `overwrite` is not set, or for invalid scores
    or a description that cannot be read.
    """
    folder = Path(output_folder)
    card_file = folder / CARD_NAME
    paths = archive_files(folder) if task_model else [folder / name for name in _BILM_NAMES]
    _check_new([*paths, card_file], overwrite)
    text = None if description is None else read_text(description, "Markdown")
    facts = CardFacts(name or folder.resolve().name, license, text, read_scores(scores))
    archive = opened_archive(archive_file)
    exported: torch.nn.Module = archive.model
    if task_model:
        paths = save_archive(archive, folder, dtype)
    else:
        bilm = bilm_in(archive.model, str(archive_file))
        if bilm.options.is_many_langs:
            raise ConfigurationError(
                f"{archive_file}: its biLM is a model of ELMoForManyLangs, expected one that can be written "
                "in bilm-tf's form. Use the folder that it came from, or give --task-model."
            )
        paths = _save_bilm(bilm, archive.model, folder, dtype)
        exported = bilm
    card = model_card(facts, archive, exported, metrics_beside(archive_file))
    with replaced_file(card_file) as new_card:
        new_card.write_text(card, encoding="utf-8")
    logger.info("Exported %s to %s.", archive_file, folder)
    return [*paths, card_file]


def _check_new(paths: Sequence[Path], overwrite: bool) -> None:
    existing = [str(path) for path in paths if path.exists()]
    if existing and not overwrite:
        raise ConfigurationError(
            f"output_folder: {', '.join(existing)} exists, expected a new path. Give another folder, or "
            "--overwrite to replace it."
        )


def _save_bilm(bilm: BiLM, model: Model, folder: Path, dtype: str) -> List[Path]:
    paths = options_file, weight_file, vocabulary_file = [folder / name for name in _BILM_NAMES]
    folder.mkdir(parents=True, exist_ok=True)
    extra: Dict[str, Tensor] = {}
    if isinstance(model, BiLMTrainingModel):
        datasets = softmax_datasets(model.softmax)
        extra = {f"{SOFTMAX_GROUP}/{name}": tensor for name, tensor in datasets.items()}
        LMVocabulary(words_of(model.vocab)).to_file(vocabulary_file)
    else:
        paths.remove(vocabulary_file)
    save_model(bilm, options_file, weight_file, dtype, extra)
    return paths
