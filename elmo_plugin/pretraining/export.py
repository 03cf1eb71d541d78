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
from elmo_plugin.bilm.softmax import BIAS, SOFTMAX_GROUP, WEIGHT
from elmo_plugin.bilm.weights import save_model
from elmo_plugin.compat.archives import archive_files, opened_archive, save_archive
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import replaced_file
from elmo_plugin.files.text import read_text
from elmo_plugin.pretraining.model import BiLMTrainingModel
from elmo_plugin.pretraining.model_card import check_unicode, model_card, read_scores
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
    Write the biLM of an archive, or its task model, with a model card, `README.md`. Return what was written,
    the card last. The parameters are the arguments of `elmo export`.

    A biLM is written as `options.json` and `weights.hdf5`; a pretrained one also as `vocab.txt`, and its
    softmax in the group `softmax` of the weights. A task model is written as a folder that can be used in
    place of the archive; a frozen biLM that comes with this package is left out, and found by its name when
    the folder is loaded.

    # Raises

    `ConfigurationError` if the archive cannot be loaded, if its biLM is wanted and it holds none, several or
    one of ELMoForManyLangs, if a file exists and `overwrite` is not set, or for invalid scores
    or a description that cannot be read.
    """
    folder = Path(output_folder)
    card_file = folder / CARD_NAME
    paths = archive_files(folder) if task_model else [folder / name for name in _BILM_NAMES]
    existing = [str(path) for path in [*paths, card_file] if path.exists()]
    if existing and not overwrite:
        raise ConfigurationError(
            f"output_folder: {', '.join(existing)} exists, expected a new path. Give another folder, or "
            "--overwrite to replace it."
        )
    name = name or folder.resolve().name
    text = None if description is None else read_text(description, "Markdown")
    check_unicode(name, license or "", *scores)
    all_scores = read_scores(scores)
    archive = opened_archive(archive_file)
    exported: torch.nn.Module = archive.model
    if task_model:
        paths = save_archive(archive, folder, dtype)
    else:
        exported = bilm = bilm_in(archive.model, str(archive_file))
        if bilm.options.is_many_langs:
            raise ConfigurationError(
                f"{archive_file}: its biLM is a model of ELMoForManyLangs, expected one that can be written "
                "in bilm-tf's form. Use the folder that it came from, or give --task-model."
            )
        paths = _save_bilm(bilm, archive.model, folder, dtype)
    with replaced_file(card_file) as new_card:
        card = model_card(name, license, text, archive_file, archive.config, exported, all_scores)
        new_card.write_text(card, encoding="utf-8")
    logger.info("Exported %s to %s.", archive_file, folder)
    return [*paths, card_file]


def _save_bilm(bilm: BiLM, model: Model, folder: Path, dtype: str) -> List[Path]:
    paths = options_file, weight_file, vocabulary_file = [folder / name for name in _BILM_NAMES]
    folder.mkdir(parents=True, exist_ok=True)
    datasets: Dict[str, Tensor] = {}
    if isinstance(model, BiLMTrainingModel):
        softmax = model.softmax.exact()
        for dataset, tensor in ((WEIGHT, softmax.weight), (BIAS, softmax.bias)):
            datasets[f"{SOFTMAX_GROUP}/{dataset}"] = tensor
        LMVocabulary(words_of(model.vocab)).to_file(vocabulary_file)
    else:
        paths.remove(vocabulary_file)
    save_model(bilm, options_file, weight_file, dtype, datasets)
    return paths
