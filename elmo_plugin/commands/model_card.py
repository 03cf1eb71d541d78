"""Make the README.md of an exported biLM, in the format of Hugging Face's model cards."""

import json
from os import PathLike
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

from allennlp.models import Model

from elmo_plugin.bilm import BiLM
from elmo_plugin.pretraining.lm_vocabulary import words_of
from elmo_plugin.pretraining.model import BiLMTrainingModel

METRICS_NAME = "metrics.json"


def model_card(
    name: str,
    model: Model,
    bilm: BiLM,
    config: Dict[str, Any],
    metrics: Optional[Dict[str, Any]],
    license_id: Optional[str],
    weight_file: Path,
) -> str:
    """
    Return the text of a model card: YAML metadata, then what a user of the weights should know.

    # Parameters

    name : `str`
        Name of the model.
    model : `Model`
        The model that was trained: a pretrained biLM, or a task model.
    bilm : `BiLM`
        Its biLM, which was exported.
    config : `Dict[str, Any]`
        The config that it was trained with.
    metrics : `Dict[str, Any]`, optional
        The metrics that AllenNLP wrote at the end of training.
    license_id : `str`, optional
        License of the weights, as Hugging Face abbreviates it.
    weight_file : `Path`
        The weight file, which must exist: the card gives its size.
    """
    options = bilm.options
    num_parameters = sum(parameter.numel() for parameter in bilm.parameters())
    lines = [
        "---",
        "library_name: allennlp",
        *([f"license: {license_id}"] if license_id else []),
        "tags:",
        "- elmo",
        "- bilm",
        "---",
        "",
        f"# {name}",
        "",
        "A bidirectional language model for ELMo (Peters et al. 2018), in the file format of bilm-tf.",
        "",
        "## Sizes",
        "",
        f"- {options.num_layers} LSTM layers in each direction, {options.cell_size} cells projected to "
        f"{options.projection_dim}: vectors of width {bilm.get_output_dim()}",
        f"- {options.num_filters} character filters; highway layers: {options.num_highway}",
        f"- {num_parameters:,} parameters, without the softmax",
        f"- `{weight_file.name}`: {weight_file.stat().st_size / 1e6:.1f} MB",
    ]
    lines += ["", "## Training", "", f"- corpus: {_listed(config.get('train_data_path'))}"]
    if isinstance(model, BiLMTrainingModel):
        num_words = len(words_of(model.vocab))
        lines.append(f"- softmax over {num_words:,} words (`vocab.txt`); other words are `<UNK>`")
        lines += _perplexities(config, metrics)
    else:
        lines.append(f"- fine-tuned as part of a model of type `{config['model'].get('type')}`")
    lines.append(
        f"- license: {license_id}"
        if license_id
        else "- license: not stated at export; the license of the corpus may apply to the weights"
    )
    lines += [
        "",
        "## Use",
        "",
        "As `options_file` and `weight_file` of an `elmo` embedder. The config of the training:",
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
    return json.loads(metrics_file.read_text()) if metrics_file.is_file() else None


def _perplexities(config: Dict[str, Any], metrics: Optional[Dict[str, Any]]) -> List[str]:
    prefix = "best_validation_"
    if metrics is None or f"{prefix}perplexity" not in metrics:
        return ["- held-out perplexity: unknown"]
    values = [
        f"{metrics[f'{prefix}{name}perplexity']:.1f}" for name in ("", "forward_", "backward_")
    ]
    return [
        f"- held-out perplexity: {values[0]} (forward {values[1]}, backward {values[2]}), exact softmax, on "
        f"{_listed(config.get('validation_data_path'))}",
        f"- epochs: {metrics['epoch'] + 1}; best epoch: {metrics['best_epoch'] + 1}",
    ]


def _listed(paths: Union[str, List[str], None]) -> str:
    names = paths if isinstance(paths, list) else [str(paths)]
    return ", ".join(f"`{name}`" for name in names)
