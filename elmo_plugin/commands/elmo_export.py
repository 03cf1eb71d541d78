"""
`allennlp elmo-export`: write the biLM of an archive as the options and weight files that every ELMo reads.
"""

import argparse
import logging
from os import PathLike
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from elmo_plugin.bilm.weights import save_model
from elmo_plugin.commands.model_card import metrics_beside, model_card
from elmo_plugin.commands.user_errors import add_debug_argument, exits_on_user_errors
from elmo_plugin.files.replaced_file import replaced_file
from elmo_plugin.pretraining.lm_vocabulary import VOCABULARY_NAME, LMVocabulary, words_of
from elmo_plugin.pretraining.model import BiLMTrainingModel
from elmo_plugin.pretraining.softmax import SOFTMAX_GROUP, softmax_datasets
from elmo_plugin.pretraining.starting_point import bilm_in, opened_archive

logger = logging.getLogger(__name__)

DTYPES = ("float32", "float16")


@Subcommand.register("elmo-export")
class ElmoExport(Subcommand):
    """Write the biLM of an archive as options.json and weights.hdf5."""

    requires_plugins = True

    def add_subparser(self, parser: Any) -> argparse.ArgumentParser:
        description = """Write the biLM in an archive as options.json and weights.hdf5, in the format of
            bilm-tf, which `elmo` embedders and AllenNLP's own read. The archive is that of a pretrained biLM
            (then the softmax and vocab.txt are written too) or of a task model with a fine-tuned biLM. A
            model card is written too; it has the perplexity in metrics.json beside the archive."""
        subparser = parser.add_parser(
            self.name, description=description, help="Export the biLM of an archive."
        )
        subparser.add_argument("archive_file", type=str, help="model.tar.gz, or a training folder")
        subparser.add_argument(
            "output_folder", type=Path, help="folder to write; made if it is missing"
        )
        subparser.add_argument(
            "--dtype",
            choices=DTYPES,
            default="float32",
            help="data type of the weights in the file",
        )
        subparser.add_argument(
            "--name", help="name of the model in its card (default: the name of output_folder)"
        )
        subparser.add_argument(
            "--license",
            help="license of the weights, for the card: an identifier such as cc-by-sa-4.0",
        )
        subparser.add_argument("--overwrite", action="store_true", help="replace existing files")
        add_debug_argument(subparser)
        subparser.set_defaults(func=_export_from_args)
        return subparser


def export_bilm(
    archive_file: Union[str, PathLike],
    output_folder: Union[str, PathLike],
    dtype: str = "float32",
    overwrite: bool = False,
    name: Optional[str] = None,
    license_id: Optional[str] = None,
) -> List[Path]:
    """
    Write the biLM of an archive.

    # Parameters

    archive_file : `str` or `PathLike`
        An archive, or the folder of a training run.
    output_folder : `str` or `PathLike`
        The folder for `options.json`, `weights.hdf5` and a model card `README.md`; for a pretrained biLM also
        `vocab.txt` (and `weights.hdf5` has its softmax in the group `softmax`).
    dtype : `str`, optional (default = `"float32"`)
        `float32` or `float16`.
    overwrite : `bool`, optional (default = `False`)
        Replace existing files.
    name : `str`, optional
        Name of the model in its card. By default the name of the folder.
    license_id : `str`, optional
        License of the weights, for the card.

    # Returns

    The files that were written.

    # Raises

    `ConfigurationError` if the archive holds no biLM or several, or if a file exists and `overwrite` is not
    set.
    """
    folder = Path(output_folder)
    files = [
        folder / name for name in ("options.json", "weights.hdf5", "README.md", VOCABULARY_NAME)
    ]
    existing = [str(file) for file in files if file.exists()]
    if existing and not overwrite:
        raise ConfigurationError(
            f"output_folder: {', '.join(existing)} exists, expected a new path. Give another folder, or "
            "--overwrite to replace it."
        )
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
    card = model_card(
        name or folder.resolve().name,
        archive.model,
        bilm,
        archive.config.as_dict(quiet=True),
        metrics_beside(archive_file),
        license_id,
        weight_file,
    )
    with replaced_file(card_file) as new_card:
        new_card.write_text(card, encoding="utf-8")
    logger.info("Exported the biLM of %s to %s.", archive_file, folder)
    return files


@exits_on_user_errors
def _export_from_args(args: argparse.Namespace) -> None:
    files = export_bilm(
        args.archive_file, args.output_folder, args.dtype, args.overwrite, args.name, args.license
    )
    for file in files:
        print(file)
