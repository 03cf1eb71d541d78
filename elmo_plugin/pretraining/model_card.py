"""Make the README.md of an exported model, in the format of Hugging Face's model cards."""

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

from allennlp.models import Archive

from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.checkpoints import CHECKSUM_KEY, referred_name
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text_file import is_unicode, read_json
from elmo_plugin.modules.elmo import referable_bilms
from elmo_plugin.pretraining.model import BiLMTrainingModel
from elmo_plugin.pretraining.word_vocabulary import words_of

METRICS_NAME = "metrics.json"
_METRICS_CONTENT = "metrics as `allennlp evaluate --output-file` writes them"


@dataclass(frozen=True)
class CardFacts:
    """
    What a card says beside what the archive knows.

    # Parameters

    name : `str`
        Name of the model.
    license_id : `str`, optional
        License of the weights, as Hugging Face abbreviates it.
    description : `str`, optional
        Markdown in place of the sentence that says what the model is; the first paragraph is its summary.
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


def bilm_card(
    facts: CardFacts,
    archive: Archive,
    bilm: BiLM,
    metrics: Optional[Dict[str, Any]],
    weight_file: Path,
) -> str:
    """
    Return the text of the card of a biLM: YAML metadata, then what a user of the weights should know.

    # Parameters

    facts : `CardFacts`
        What the archive does not know.
    archive : `Archive`
        The archive of a pretrained biLM, or of a task model.
    bilm : `BiLM`
        Its biLM, which was exported.
    metrics : `Dict[str, Any]`, optional
        The metrics that AllenNLP wrote at the end of training.
    weight_file : `Path`
        The weight file, which must exist: the card gives its size.
    """
    options, model, config = bilm.options, archive.model, archive.config.as_dict(quiet=True)
    what = "A bidirectional language model for ELMo (Peters et al. 2018), in the file format of bilm-tf."
    lines = [
        *_head(facts, ["elmo", "bilm"], what),
        "## Sizes",
        "",
        f"- {options.num_layers} LSTM layers in each direction, {options.cell_size} cells projected to "
        f"{options.projection_dim}: vectors of width {bilm.get_output_dim()}",
        f"- {options.num_filters} character filters; highway layers: {options.num_highway}",
        f"- {_num_parameters(bilm):,} parameters, without the softmax",
        _file_size(weight_file),
        *_training(config),
    ]
    if isinstance(model, BiLMTrainingModel):
        num_words = len(words_of(model.vocab))
        lines.append(f"- softmax over {num_words:,} words (`vocab.txt`); other words are `<UNK>`")
        lines += _perplexities(config, metrics)
    else:
        lines.append(f"- fine-tuned as part of a model of type `{config['model'].get('type')}`")
    use = "As `options_file` and `weight_file` of an `elmo` embedder."
    return "\n".join([*lines, *_license(facts), *_scores(facts.scores), *_use(use, config)])


def task_model_card(
    facts: CardFacts,
    archive: Archive,
    metrics: Optional[Dict[str, Any]],
    weight_file: Path,
) -> str:
    """Return the text of the card of a task model that refers to its biLM, see `bilm_card`."""
    model, config = archive.model, archive.config.as_dict(quiet=True)
    kind = config["model"]["type"]
    bilms = [module for module in model.modules() if isinstance(module, BiLM)]
    num_parameters = _num_parameters(model) - sum(map(_num_parameters, bilms))
    lines = [
        *_head(facts, ["elmo", kind], f"A model of type `{kind}`, for AllenNLP with elmo_plugin."),
        "## Sizes",
        "",
        f"- {num_parameters:,} parameters{', without the biLM' if bilms else ''}",
        _file_size(weight_file),
        *[
            f"- the biLM is not in the file: it is `{referred_name(source)}` of elmo_plugin, with weights of "
            f"the SHA-256 {source[CHECKSUM_KEY]}"
            for source in referable_bilms(model).values()
        ],
        *_training(config),
    ]
    metric = str(config.get("trainer", {}).get("validation_metric", "loss")).lstrip("+-")
    if metrics is not None and f"best_validation_{metric}" in metrics:
        value = _number(metrics[f"best_validation_{metric}"])
        lines += [
            f"- {metric} on {_listed(config.get('validation_data_path'))}: {value}",
            _epochs(metrics),
        ]
    use = f"`allennlp predict {facts.name} input.jsonl --include-package elmo_plugin`"
    return "\n".join([*lines, *_license(facts), *_scores(facts.scores), *_use(use, config)])


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


def _head(facts: CardFacts, tags: Sequence[str], what: str) -> List[str]:
    metadata = ["library_name: allennlp"]
    if facts.license_id:
        metadata.append(f"license: {facts.license_id}")
    if facts.description:
        first_paragraph = facts.description.strip().split("\n\n")[0]
        metadata.append(f"summary: {json.dumps(' '.join(first_paragraph.split()))}")
    return [
        "---",
        *metadata,
        "tags:",
        *[f"- {tag}" for tag in tags],
        "---",
        "",
        f"# {facts.name}",
        "",
        (facts.description or what).strip(),
        "",
    ]


def _training(config: Dict[str, Any]) -> List[str]:
    return ["", "## Training", "", f"- corpus: {_listed(config.get('train_data_path'))}"]


def _license(facts: CardFacts) -> List[str]:
    if facts.license_id:
        return [f"- license: {facts.license_id}"]
    return ["- license: not stated at export; the license of the corpus may apply to the weights"]


def _scores(scores: Dict[str, Dict[str, Any]]) -> List[str]:
    """Return a table of scores, a row for each data set; names with an underscore are of single labels."""
    if not scores:
        return []
    names = {name: None for metrics in scores.values() for name in metrics}
    columns = [name for name in names if not name.startswith("_") and name != "loss"]
    rows = [
        [data, *[_number(metrics[name]) if name in metrics else "" for name in columns]]
        for data, metrics in scores.items()
    ]
    table = [["", *columns], ["---"] * (len(columns) + 1), *rows]
    return ["", "## Scores", "", *[f"| {' | '.join(row)} |" for row in table]]


def _use(use: str, config: Dict[str, Any]) -> List[str]:
    shown = json.dumps(config, indent=2)
    return ["", "## Use", "", f"{use} The config of the training:", "", "```json", shown, "```", ""]


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
        _epochs(metrics),
    ]


def _epochs(metrics: Dict[str, Any]) -> str:
    # A training that was resumed after its last epoch has only the best one.
    best = f"best epoch: {metrics['best_epoch'] + 1}"
    return f"- epochs: {metrics['epoch'] + 1}; {best}" if "epoch" in metrics else f"- {best}"


def _num_parameters(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _file_size(weight_file: Path) -> str:
    return f"- `{weight_file.name}`: {weight_file.stat().st_size / 1e6:.1f} MB"


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) else str(value)


def _listed(paths: Union[str, List[str], None]) -> str:
    names = paths if isinstance(paths, list) else [str(paths)]
    return ", ".join(f"`{name}`" for name in names)
