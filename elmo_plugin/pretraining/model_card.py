"""Write the README.md of an exported model, in the format of Hugging Face's model cards."""

import json
from os import PathLike
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

import torch
from allennlp.common import Params

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import is_unicode, read_json

METRICS_NAME = "metrics.json"
_METRICS_CONTENT = "metrics as `allennlp evaluate --output-file` writes them"
_BEST = "best_validation_"

# Metrics by the name of the data.
Scores = Dict[str, Dict[str, Any]]


def model_card(
    name: str,
    license_id: Optional[str],
    description: Optional[str],
    archive_file: Union[str, PathLike],
    params: Params,
    exported: torch.nn.Module,
    scores: Scores,
) -> str:
    """
    Return the text of a card: YAML metadata, description, sizes, validation metrics, scores, and the config.

    # Parameters

    license_id
        License of the weights, as Hugging Face abbreviates it.
    description
        Markdown for the beginning of the card; the first paragraph is its summary.
    archive_file
        The archive; `metrics.json` beside it has the metrics of its training.
    params
        The config of the archive.
    exported
        The model in the archive, or its biLM if only that is exported.
    """
    config = params.as_dict(quiet=True)
    model_type = config["model"]["type"]
    metadata = {
        "library_name": "allennlp",
        "license": license_id,
        # A JSON string is also one of YAML.
        "summary": description
        and json.dumps(" ".join(description.strip().split("\n\n")[0].split())),
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
        *_validation(config, Path(archive_file)),
        *_table(scores),
        "",
        "## Config",
        "",
        "```json",
        json.dumps(config, indent=2),
        "```",
        "",
    ]
    return "\n".join(lines)


def check_unicode(*texts: str) -> None:
    """Raise `ConfigurationError` for text that cannot be written to a file."""
    for text in texts:
        if not is_unicode(text):
            raise ConfigurationError(
                f"model card: found {text!r}, expected valid Unicode. Correct the name or the license."
            )


def read_scores(arguments: Sequence[str]) -> Scores:
    """
    Read metrics that `allennlp evaluate` wrote. Each argument is `NAME=FILE`, NAME that of the data.

    # Raises

    `ConfigurationError` for another argument, and for a file that cannot be read or has no JSON object.
    """
    scores: Scores = {}
    for argument in arguments:
        name, _, path = argument.partition("=")
        if not (name and path):
            raise ConfigurationError(
                f"scores: found {argument}, expected NAME=FILE, such as test=metrics.json, with a file that "
                "`allennlp evaluate --output-file` wrote."
            )
        metrics = read_json(path, _METRICS_CONTENT)
        if not isinstance(metrics, dict):
            raise ConfigurationError(
                f"scores: {path} has no JSON object, expected {_METRICS_CONTENT}. Correct the path."
            )
        scores[name] = metrics
    return scores


def _validation(config: Dict[str, Any], archive_file: Path) -> List[str]:
    """Return the best metrics of validation, if they are known."""
    folder = archive_file if archive_file.is_dir() else archive_file.parent
    if not (folder / METRICS_NAME).is_file():
        return []
    metrics = read_json(folder / METRICS_NAME, _METRICS_CONTENT)
    best = {
        name.removeprefix(_BEST): value for name, value in metrics.items() if name.startswith(_BEST)
    }
    values = ", ".join(f"{name} {_number(best[name])}" for name in _of_all_labels(best))
    if not values:
        return []
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
