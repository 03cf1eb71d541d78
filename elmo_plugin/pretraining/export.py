"""
Write the biLM of an archive as the options and weight files that every ELMo reads, or a task model as a small
archive; with a README.md in the format of Hugging Face's model cards.
"""

import json
import logging
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

import torch
from allennlp.common import Params

from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.model_files import archive_path
from elmo_plugin.compat.archives import archive_files, opened_archive, save_archive
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.output import replaced_file
from elmo_plugin.files.text import FileName, read_json
from elmo_plugin.pretraining.starting_point import BILM_NAMES, save_bilm, start_in

logger = logging.getLogger(__name__)

CARD_NAME = "README.md"
METRICS_NAME = "metrics.json"  # of `allennlp train`
_METRICS_CONTENT = "metrics as `allennlp evaluate --output-file` writes them"
_BEST = "best_validation_"

# Metrics by the name of the data.
Scores = Dict[str, Dict[str, Any]]


def export_model(
    archive_file: FileName,
    output_folder: FileName,
    task_model: bool = False,
    dtype: str = "float32",
    overwrite: bool = False,
    name: Optional[str] = None,
    license: Optional[str] = None,
    description: Optional[str] = None,
    scores: Sequence[str] = (),
) -> List[Path]:
    """
    Write the biLM of an archive, or its task model, with a model card, `README.md`. Return what was written,
    the card last. The parameters are the arguments of `elmo export`; `description` is the Markdown itself.

    A biLM is written as `options.json` and `weights.hdf5`; a pretrained one also as `vocab.txt`, and its
    softmax in the group `softmax` of the weights. A task model is written as a folder that can be used in
    place of the archive; a frozen biLM that comes with this package is left out, and found by its name when
    the folder is loaded.
    """
    folder = Path(output_folder)
    card_file = folder / CARD_NAME
    paths = archive_files(folder) if task_model else [folder / name for name in BILM_NAMES]
    existing = [str(path) for path in [*paths, card_file] if path.exists()]
    if existing and not overwrite:
        raise ConfigurationError(
            f"output_folder: {', '.join(existing)} exists, expected a new path. Give another folder, or "
            "--overwrite to replace it."
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError(
            f"output_folder: {folder} is a file, expected a folder. Give another path."
        )
    name = name or folder.resolve().name
    all_scores = _read_scores(scores)
    archive = opened_archive(archive_file)
    exported: torch.nn.Module = archive.model
    if task_model:
        paths = save_archive(archive, folder, dtype)
    else:
        trained = start_in(archive.model, str(archive_file))
        exported = trained.bilm
        if exported.options.is_many_langs:
            raise ConfigurationError(
                f"{archive_file}: its biLM is a model of ELMoForManyLangs, expected one that can be written "
                "in bilm-tf's form. Use the folder that it came from, or give --task-model."
            )
        paths = save_bilm(trained, folder, dtype)
    with replaced_file(card_file) as new_card:
        card = _model_card(
            name, license, description, archive_file, archive.config, exported, all_scores
        )
        # Words of the command line may be no UTF-8.
        new_card.write_text(card, encoding="utf-8", errors="backslashreplace")
    logger.info("Exported %s to %s.", archive_file, folder)
    return [*paths, card_file]


def _model_card(
    name: str,
    license_id: Optional[str],
    description: Optional[str],
    archive_file: FileName,
    params: Params,
    exported: torch.nn.Module,
    scores: Scores,
) -> str:
    """
    Return the text of a card: YAML metadata, description, sizes, validation metrics, scores, and the config
    of a biLM; that of a task model is beside the card. The first paragraph of the description is the summary.
    `exported` is what is counted.
    """
    config = params.as_dict(quiet=True)
    model_type = config["model"]["type"]
    metadata = {
        "library_name": "allennlp",
        "license": license_id,
        # A JSON string is also one of YAML, if its characters are not escaped as surrogate pairs.
        "summary": description
        and json.dumps(" ".join(description.strip().split("\n\n")[0].split()), ensure_ascii=False),
        "tags": f"[elmo, {model_type}]",
    }
    num_parameters = sum(parameter.numel() for parameter in exported.parameters())
    lines = [
        "---",
        *[f"{key}: {value}" for key, value in metadata.items() if value],
        "---",
        "",
        f"# {name}",
        "",
        (description or f"Exported from a model of type `{model_type}`.").strip(),
        "",
        "## Training",
        "",
        f"- {num_parameters:,} parameters",
        f"- trained on {_listed(config.get('train_data_path'))}",
        *_validation(config, Path(archive_path(archive_file))),
        *_table(scores),
        "",
    ]
    if isinstance(exported, BiLM):
        lines += ["## Config", "", "```json", json.dumps(config, indent=2), "```", ""]
    return "\n".join(lines)


def _read_scores(arguments: Sequence[str]) -> Scores:
    """Read metrics that `allennlp evaluate` wrote. Each argument is `NAME=FILE`, NAME that of the data."""
    scores: Scores = {}
    for argument in arguments:
        name, _, path = argument.partition("=")
        if not (name and path):
            raise ConfigurationError(
                f"scores: found {argument}, expected NAME=FILE, such as test=metrics.json, with a file that "
                "`allennlp evaluate --output-file` wrote."
            )
        scores[name] = _read_metrics(path)
    return scores


def _read_metrics(path: FileName) -> Dict[str, Any]:
    metrics = read_json(path, _METRICS_CONTENT)
    if not isinstance(metrics, dict):
        raise ConfigurationError(
            f"{path}: found no JSON object, expected {_METRICS_CONTENT}. Correct or remove the file."
        )
    return metrics


def _validation(config: Dict[str, Any], archive_file: Path) -> List[str]:
    """Return the best metrics of validation, if they are known."""
    folder = archive_file if archive_file.is_dir() else archive_file.parent
    if not (folder / METRICS_NAME).is_file():
        return []
    metrics = _read_metrics(folder / METRICS_NAME)
    best = {
        name.removeprefix(_BEST): value for name, value in metrics.items() if name.startswith(_BEST)
    }
    if not best:
        return []
    values = ", ".join(f"{name} {_number(best[name])}" for name in _of_all_labels(best))
    data = _listed(config.get("validation_data_path"))
    return [f"- best epoch {metrics['best_epoch'] + 1}, on {data}: {values}"]


def _table(scores: Scores) -> List[str]:
    """Return a table of scores, a row for each data set."""
    if not scores:
        return []
    names = dict.fromkeys(name for metrics in scores.values() for name in _of_all_labels(metrics))
    columns = [name for name in names if name != "loss"]
    rows = [["", *columns], ["---"] * (len(columns) + 1)]
    for data, metrics in scores.items():
        rows.append([data, *(_number(metrics.get(name, "")) for name in columns)])
    return ["", "## Scores", "", *[f"| {' | '.join(row)} |" for row in rows]]


def _of_all_labels(metrics: Dict[str, Any]) -> List[str]:
    """Return the names of metrics, without those of single labels, which begin with an underscore."""
    return [name for name in metrics if not name.startswith("_")]


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else str(value)


def _listed(paths: Union[str, List[str], None]) -> str:
    names = paths if isinstance(paths, list) else [str(paths)]
    return ", ".join(f"`{name}`" for name in names)
