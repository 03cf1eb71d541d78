"""`allennlp elmo-export`: from the archive of a trained biLM to the files that every ELMo reads."""

import argparse
import json
import logging
from os import PathLike
from pathlib import Path
from typing import Any, Dict, List, Tuple, Union

from allennlp.commands.subcommand import Subcommand
from allennlp.common.checks import ConfigurationError
from allennlp.models import Model, load_archive
from torch import Tensor

from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.weight_file import save_model
from elmo_plugin.pretraining.full_softmax import FullSoftmax
from elmo_plugin.pretraining.lm_vocabulary import LMVocabulary
from elmo_plugin.pretraining.lm_word_vocabulary import WORDS_NAMESPACE
from elmo_plugin.pretraining.model import BiLMTrainingModel
from elmo_plugin.pretraining.softmax import LMSoftmax

logger = logging.getLogger(__name__)

DTYPES = ("float32", "float16")


@Subcommand.register("elmo-export")
class ElmoExport(Subcommand):
    """Write the biLM of an archive as options.json and weights.hdf5."""

    requires_plugins = True

    def add_subparser(self, parser: Any) -> argparse.ArgumentParser:
        description = """Write the biLM in an archive as options.json and weights.hdf5, in bilm-tf's form,
            which `elmo` embedders and AllenNLP's own read. The archive may be that of a pretrained biLM
            (then the softmax and vocab.txt are written too) or of a task model with a fine-tuned one."""
        subparser = parser.add_parser(
            self.name, description=description, help="Export the biLM of an archive."
        )
        subparser.add_argument("archive_file", type=str, help="model.tar.gz, or a training folder")
        subparser.add_argument("output_folder", type=Path, help="folder to write; made if missing")
        subparser.add_argument(
            "--dtype", choices=DTYPES, default="float32", help="type of the weights in the file"
        )
        subparser.add_argument(
            "--overwrite", action="store_true", help="replace files that are there already"
        )
        subparser.set_defaults(func=_export_from_args)
        return subparser


def export_bilm(
    archive_file: Union[str, PathLike],
    output_folder: Union[str, PathLike],
    dtype: str = "float32",
    overwrite: bool = False,
) -> List[Path]:
    """
    Write the biLM of an archive.

    # Parameters

    archive_file : `str` or `PathLike`
        An archive, or the folder of a training run.
    output_folder : `str` or `PathLike`
        Gets `options.json`, `weights.hdf5`, a model card `README.md`, and of a pretrained biLM `vocab.txt`
        (the softmax is in the weights then, in the group `softmax`).
    dtype : `str`, optional (default = `"float32"`)
        `float32` or `float16`.
    overwrite : `bool`, optional (default = `False`)
        Replace files that are there.

    # Returns

    The files that were written.

    # Raises

    `ConfigurationError` if the archive holds no biLM or several, or the files are there already.
    """
    folder = Path(output_folder)
    files = [folder / name for name in ("options.json", "weights.hdf5", "README.md", "vocab.txt")]
    there = [str(file) for file in files if file.exists()]
    if there and not overwrite:
        raise ConfigurationError(
            f"{', '.join(there)}: there already. Give --overwrite to replace, or another folder."
        )
    archive = load_archive(archive_file)
    name, bilm = _bilm_in(archive.model, str(archive_file))
    folder.mkdir(parents=True, exist_ok=True)
    options_file, weight_file, card_file, vocabulary_file = files
    softmax_datasets: Dict[str, Tensor] = {}
    if isinstance(archive.model, BiLMTrainingModel):
        softmax_datasets = _softmax_datasets(archive.model.softmax)
        words = archive.model.vocab.get_index_to_token_vocabulary(WORDS_NAMESPACE)
        LMVocabulary([words[index] for index in range(len(words))]).to_file(vocabulary_file)
    else:
        files.remove(vocabulary_file)
    save_model(bilm, bilm.options, options_file, weight_file, dtype, softmax_datasets)
    card_file.write_text(_model_card(archive.model, archive.config.as_dict(quiet=True), bilm))
    logger.info("Exported %s of %s to %s.", name, archive_file, folder)
    return files


def _export_from_args(args: argparse.Namespace) -> None:
    for file in export_bilm(args.archive_file, args.output_folder, args.dtype, args.overwrite):
        print(file)


def _softmax_datasets(softmax: LMSoftmax) -> Dict[str, Tensor]:
    if isinstance(softmax, FullSoftmax):  # or sampled, which is full but for training
        return {"softmax/W": softmax.weight, "softmax/b": softmax.bias}
    return {f"softmax/{name}": value for name, value in softmax.state_dict().items()}


def _bilm_in(model: Model, archive_file: str) -> Tuple[str, BiLM]:
    found = [(name, module) for name, module in model.named_modules() if isinstance(module, BiLM)]
    if len(found) != 1:
        names = ", ".join(name for name, _ in found) or "none"
        raise ConfigurationError(
            f"{archive_file}: the model holds {len(found)} biLMs ({names}), expected one. Give the archive "
            "of a pretrained biLM, or of a task model with one ELMo."
        )
    return found[0]


def _model_card(model: Model, config: Dict[str, Any], bilm: BiLM) -> str:
    """Hugging Face's form: a YAML head, then text."""
    options = bilm.options
    num_parameters = sum(parameter.numel() for parameter in bilm.parameters())
    lines = [
        "---",
        "tags: [elmo, bilm, allennlp]",
        "---",
        "",
        "# A biLM for ELMo",
        "",
        f"- {options.num_layers} LSTM layers in each direction, {options.cell_size} cells projected to "
        f"{options.projection_dim}; vectors of width {bilm.get_output_dim()}",
        f"- {options.num_filters} character filters, {options.num_highway} highway layers",
        f"- {num_parameters:,} parameters, without the softmax",
    ]
    if isinstance(model, BiLMTrainingModel):
        num_words = model.vocab.get_vocab_size(WORDS_NAMESPACE)
        lines.append(f"- {num_words:,} words predicted in training (`vocab.txt`)")
    lines += [
        f"- trained on: `{config.get('train_data_path')}`",
        "",
        "Use it as `options_file` and `weight_file` of an `elmo` embedder. The config that trained it:",
        "",
        "```json",
        json.dumps(config, indent=2),
        "```",
        "",
    ]
    return "\n".join(lines)
