"""
Write the biLM of an archive as the options and weight files that every ELMo reads, or a task model as a small
archive.
"""

import logging
from os import PathLike
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Union

from allennlp.common.checks import ConfigurationError
from torch import Tensor

from elmo_plugin.archives import archive_files, opened_archive, save_archive
from elmo_plugin.bilm.lm_vocabulary import VOCABULARY_NAME, LMVocabulary
from elmo_plugin.bilm.softmax import SOFTMAX_GROUP
from elmo_plugin.bilm.weights import save_model
from elmo_plugin.files.replaced_file import replaced_file
from elmo_plugin.pretraining.model import BiLMTrainingModel
from elmo_plugin.pretraining.model_card import (
    CardFacts,
    bilm_card,
    metrics_beside,
    read_scores,
    task_model_card,
)
from elmo_plugin.pretraining.softmax import softmax_datasets
from elmo_plugin.pretraining.starting_point import bilm_in
from elmo_plugin.pretraining.word_vocabulary import words_of

logger = logging.getLogger(__name__)

CARD_NAME = "README.md"


def export_bilm(
    archive_file: Union[str, PathLike],
    output_folder: Union[str, PathLike],
    dtype: str = "float32",
    overwrite: bool = False,
    name: Optional[str] = None,
    license: Optional[str] = None,
    description: Optional[Union[str, PathLike]] = None,
    scores: Sequence[str] = (),
) -> List[Path]:
    """
    Write the biLM of an archive.

    # Parameters

    archive_file : `str` or `PathLike`
        An archive, the folder of a training run, or the name of a task model that comes with this package.
    output_folder : `str` or `PathLike`
        The folder for `options.json`, `weights.hdf5` and a model card `README.md`; for a pretrained biLM also
        `vocab.txt` (and `weights.hdf5` has its softmax in the group `softmax`).
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

    The files that were written.

    # Raises

    `ConfigurationError` if the archive holds no biLM or several, if a file exists and `overwrite` is not set,
    or for invalid scores; `OSError` for a description that cannot be read.
    """
    folder = Path(output_folder)
    files = [folder / name for name in ("options.json", "weights.hdf5", CARD_NAME, VOCABULARY_NAME)]
    _check_new(files, overwrite)
    facts = _card_facts(folder, name, license, description, scores)
    archive = opened_archive(archive_file)
    bilm = bilm_in(archive.model, str(archive_file))
    folder.mkdir(parents=True, exist_ok=True)
    options_file, weight_file, card_file, vocabulary_file = files
    extra: Dict[str, Tensor] = {}
    if isinstance(archive.model, BiLMTrainingModel):
        datasets = softmax_datasets(archive.model.softmax)
        extra = {f"{SOFTMAX_GROUP}/{name}": tensor for name, tensor in datasets.items()}
        LMVocabulary(words_of(archive.model.vocab)).to_file(vocabulary_file)
    else:
        files.remove(vocabulary_file)
    save_model(bilm, bilm.options, options_file, weight_file, dtype, extra)
    _write_card(
        card_file, bilm_card(facts, archive, bilm, metrics_beside(archive_file), weight_file)
    )
    logger.info("Exported the biLM of %s to %s.", archive_file, folder)
    return files


def export_task_model(
    archive_file: Union[str, PathLike],
    output_folder: Union[str, PathLike],
    dtype: str = "float32",
    overwrite: bool = False,
    name: Optional[str] = None,
    license: Optional[str] = None,
    description: Optional[Union[str, PathLike]] = None,
    scores: Sequence[str] = (),
) -> List[Path]:
    """
    Write the model of an archive as a folder that can be used in place of it. A frozen biLM that comes with
    this package is left out, and found by its name when the folder is loaded. Arguments are those of
    `export_bilm`.

    # Returns

    What was written: `config.json`, `weights.th`, the folder `vocabulary`, `meta.json` if the archive has it,
    and a model card `README.md`.

    # Raises

    `ConfigurationError` if the archive cannot be loaded, if a file exists and `overwrite` is not set, or for
    invalid scores; `OSError` for a description that cannot be read.
    """
    folder = Path(output_folder)
    card_file = folder / CARD_NAME
    _check_new([*archive_files(folder), card_file], overwrite)
    facts = _card_facts(folder, name, license, description, scores)
    archive = opened_archive(archive_file)
    paths = save_archive(archive, folder, dtype, refers_to_bilm=True)
    metrics = metrics_beside(archive_file)
    card = task_model_card(facts, archive, metrics, paths[1])
    _write_card(card_file, card)
    logger.info("Exported the model of %s to %s.", archive_file, folder)
    return [*paths, card_file]


def _check_new(paths: Sequence[Path], overwrite: bool) -> None:
    existing = [str(path) for path in paths if path.exists()]
    if existing and not overwrite:
        raise ConfigurationError(
            f"output_folder: {', '.join(existing)} exists, expected a new path. Give another folder, or "
            "--overwrite to replace it."
        )


def _card_facts(
    folder: Path,
    name: Optional[str],
    license: Optional[str],
    description: Optional[Union[str, PathLike]],
    scores: Sequence[str],
) -> CardFacts:
    text = None if description is None else Path(description).read_text(encoding="utf-8")
    return CardFacts(name or folder.resolve().name, license, text, read_scores(scores))


def _write_card(path: Path, card: str) -> None:
    with replaced_file(path) as new_card:
        new_card.write_text(card, encoding="utf-8")
