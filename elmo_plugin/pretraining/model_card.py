"""Write the README.md of an exported model, in the format of Hugging Face's model cards."""

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

import torch
from allennlp.models import Archive

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import is_unicode, read_json

METRICS_NAME = "metrics.json"
_METRICS_CONTENT = "metrics as `allennlp evaluate --output-file` writes them"
_BEST = "best_validation_"


@dataclass(frozen=True)
class CardFacts:
    """
    What the archive does not know.

    # Parameters

    name : `str`
        Name of the model.
    license_id : `str`, optional
        License of the weights, as Hugging Face abbreviates it.
    description : `str`, optional
        Markdown for the beginning of the card; the first paragraph is its summary.
    scores : `Dict[str, Dict[str, Any]]`
        Metrics as `allennlp evaluate` writes them, by the name of the data.
    """

    name: str
    license_id: Optional[str]
    description: Optional[str]
    scores: Dict[str, Dict[str, Any]]

    def __post_init__(self) -> None:
        for text in (self.name, self.license_id or "", *self.scores):
            if not is_unicode(text):
                raise ConfigurationError(
                    f"model card: found {text!r}, expected valid Unicode. Correct the name or the license."
                )


def model_card(
    facts: CardFacts,
    archive: Archive,
    exported: torch.nn.Module,
    metrics: Optional[Dict[str, Any]],
) -> str:
    """
    Return the text of a card: YAML metadata, description, sizes, validation metrics, scores, and the config.

    # Parameters

    facts : `CardFacts`
        What the archive does not know.
    archive : `Archive`
        The archive of a pretrained biLM, or of a task model.
    exported : `torch.nn.Module`
        Its model, or its biLM if only that is exported.
    metrics : `Dict[str, Any]`, optional
        The metrics that AllenNLP wrote at the end of training.
    """
    config = archive.config.as_dict(quiet=True)
    model_type = config["model"]["type"]
    description = facts.description or f"Exported from a model of type `{model_type}`."
    num_parameters = sum(parameter.numel() for parameter in exported.parameters())
    metadata = {
        "library_name": "allennlp",
        "license": facts.license_id,
        # A JSON string is also one of YAML.
        "summary": facts.description and json.dumps(" ".join(_first_paragraph(description))),
        "tags": f"[elmo, {model_type}]",
    }
    lines = [
        "---",
        *[f"{key}: {value}" for key, value in metadata.items() if value],
        "---",
        "",
        f"# {facts.name}",
        "",
        description.strip(),
        "",
        "## Training",
        "",
        f"- {num_parameters:,} parameters",
        f"- trained on {_listed(config.get('train_data_path'))}",
        *_validation(config, metrics),
        *_scores(facts.scores),
        "",
        "## Config",
        "",
        "```json",
        json.dumps(config, indent=2),
        "```",
        "",
    ]
    return "\n".join(lines)


def metrics_beside(archive_file: Union[str, PathLike]) -> Optional[Dict[str, Any]]:
    """Read the metrics in the folder of an archive or training run; `None` if there are none."""
    path = Path(archive_file)
    metrics_file = (path if path.is_dir() else path.parent) / METRICS_NAME
    return read_json(metrics_file, _METRICS_CONTENT) if metrics_file.is_file() else None


def read_scores(arguments: Sequence[str]) -> Dict[str, Dict[str, Any]]:
    """
    Read metrics that `allennlp evaluate` wrote. Each argument is `NAME=FILE`, NAME that of the data.

    # Raises

    `ConfigurationError` for another argument, and for a file that cannot be read or has no JSON object.
    """
    scores: Dict[str, Dict[str, Any]] = {}
    for argument in arguments:
        name, separator, path = argument.partition("=")
        if not (name and separator and path):
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


def _first_paragraph(text: str) -> List[str]:
    return text.strip().split("\n\n")[0].split()


def _validation(config: Dict[str, Any], metrics: Optional[Dict[str, Any]]) -> List[str]:
    """Return the best metrics of validation; names with an underscore are of single labels."""
    names = [
        name.removeprefix(_BEST)
        for name in metrics or ()
        if name.startswith(_BEST) and not name.startswith(f"{_BEST}_")
    ]
    if not metrics or not names:
        return []
    data = _listed(config.get("validation_data_path"))
    values = ", ".join(f"{name} {_number(metrics[_BEST + name])}" for name in names)
    return [f"- best epoch {metrics['best_epoch'] + 1}, on {data}: {values}"]


def _scores(scores: Dict[str, Dict[str, Any]]) -> List[str]:
    """Return a table of scores, a row for each data set; names with an underscore are of single labels."""
    if not scores:
        return []
    names = dict.fromkeys(name for metrics in scores.values() for name in metrics)
    columns = [name for name in names if not name.startswith("_") and name != "loss"]
    rows = [["", *columns], ["---"] * (len(columns) + 1)]
    for data, metrics in scores.items():
        rows.append([data, *(_number(metrics.get(name, "")) for name in columns)])
    return ["", "## Scores", "", *[f"| {' | '.join(row)} |" for row in rows]]


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else str(value)


def _listed(paths: Union[str, List[str], None]) -> str:
    names = paths if isinstance(paths, list) else [str(paths)]
    return ", ".join(f"`{name}`" for name in names)
