"""The config of a training run, and the variants of it that reports train."""

import json
import os
import re
from os import PathLike
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Union

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.params import with_overrides

from elmo_plugin.modules.placed_elmo import PLACES_OF

ELMO_KEY = "model.text_encoder.elmo"
SEED_KEYS = ("random_seed", "numpy_seed", "pytorch_seed")
DEFAULT_METRIC = "-loss"  # of AllenNLP's trainer

NO_ELMO = "no ELMo"
LAST_LAYER = "last layer only"
LAMBDA_1 = "all layers, λ = 1"
LAMBDA_0_001 = "all layers, λ = 0.001"
PLACEMENT_LABELS = {
    "none": NO_ELMO,
    "input": "input",
    "both": "input and output",
    "output": "output",
}

_MIX_PARAMETERS = "scalar_parameters"
_MIX_PARAMETER_NAME = f"text_encoder.elmo.elmo.scalar_mix_0.{_MIX_PARAMETERS}.0"
_SUPPORTED = (
    f"{ELMO_KEY} with a placement and an ELMo indexer of the reader, as in "
    "training_configs/*_small.jsonnet"
)


class Variant(NamedTuple):
    """
    What a report changes in a config. `None` leaves it as it is there.

    # Parameters

    label : `str`
        Its name in tables.
    placement : `str`, optional
        Of ELMo: one of `PLACES_OF`.
    last_layer_only : `bool`, optional
        Whether ELMo is the last layer of the biLM rather than a mix of all.
    scalar_mix_l2 : `float`, optional
        The paper's lambda: L2 regularization of the mix weights.
    share : `float`, optional (default = `1.0`)
        Of the training data, chosen by the seed of the run.
    batches_per_epoch : `int`, optional
        Of training.
    """

    label: str
    placement: Optional[str] = None
    last_layer_only: Optional[bool] = None
    scalar_mix_l2: Optional[float] = None
    share: float = 1.0
    batches_per_epoch: Optional[int] = None


class Run(NamedTuple):
    """
    One training run.

    # Parameters

    name : `str`
        Of its folder: the same for the same variant of a config, whichever report asks for it.
    label : `str`
        Its variant's.
    seed : `int`
        Of the run.
    config_file : `str`
        For `allennlp train`.
    overrides : `Dict[str, Any]`
        Of that file.
    config : `Dict[str, Any]`
        The config with them.
    """

    name: str
    label: str
    seed: int
    config_file: str
    overrides: Dict[str, Any]
    config: Dict[str, Any]


class Experiment:
    """
    A config of `allennlp train`, whose runs are compared by their score on validation data.

    # Parameters

    config_file : `str` or `PathLike`
        JSON or Jsonnet.
    overrides : `Dict[str, Any]`, optional
        Of it, for all runs.
    name : `str`, optional (default = the type of the model without `elmo_`, or the name of the file)
        Of runs, tables and pictures.

    # Raises

    `ConfigurationError` if the config cannot be read, or does not say what the score of a run is.
    """

    def __init__(
        self,
        config_file: Union[str, PathLike],
        overrides: Optional[Dict[str, Any]] = None,
        name: Optional[str] = None,
    ) -> None:
        self.config_file = str(config_file)
        self.overrides = overrides or {}
        self.config = evaluated_config(self.config_file, self.overrides)
        model = self.config.get("model")
        self.model: Dict[str, Any] = model if isinstance(model, dict) else {}
        self.task = str(self.model.get("type", "")).removeprefix("elmo_")
        self.name = name or self.task or Path(config_file).stem
        if re.fullmatch(r"\w[\w.-]*", self.name) is None:
            raise ConfigurationError(
                f"--name: found '{self.name}', expected letters, digits, '-', '_' and '.', as files are "
                "named after it."
            )
        metric = self._validation_metric()
        self.metric, self.is_larger_better = metric[1:], metric[0] == "+"

    def run(self, name: str, label: str, changes: Dict[str, Any], seed: int) -> Run:
        """Return the run with these changes of the config, and a seed."""
        changes = {**changes, **dict.fromkeys(SEED_KEYS, seed)}
        overrides = combined_overrides(self.overrides, changes)
        config = evaluated_config(self.config_file, overrides)
        return Run(f"{name}-seed{seed}", label, seed, self.config_file, overrides, config)

    def variables(self) -> Dict[str, str]:
        """Return the environment variables that the config reads (`std.extVar`), with their values."""
        names = sorted(_variables_in(Path(self.config_file), set()))
        return {name: os.environ[name] for name in names if name in os.environ}

    def _validation_metric(self) -> str:
        for key in ("validation_data_path", "trainer"):
            if not self.config.get(key):
                raise ConfigurationError(
                    f"{self.config_file}: found no {key}, expected one: runs are compared by their score "
                    "on validation data."
                )
        metric = self.config["trainer"].get("validation_metric", DEFAULT_METRIC)
        if not isinstance(metric, str) or metric[:1] not in ("+", "-"):
            raise ConfigurationError(
                f"{self.config_file}: trainer.validation_metric is {metric!r}, expected one metric, with + "
                """or - before its name. Correct it, for instance with --overrides """
                """'{"trainer.validation_metric": "+f1"}'."""
            )
        return metric


class TaskExperiment(Experiment):
    """
    A config that trains a task's model with a place for ELMo.

    # Raises

    `ConfigurationError` as `Experiment` does, and if there is no place for ELMo.
    """

    def __init__(
        self,
        config_file: Union[str, PathLike],
        overrides: Optional[Dict[str, Any]] = None,
        name: Optional[str] = None,
    ) -> None:
        super().__init__(config_file, overrides, name)
        text_encoder = self.model.get("text_encoder")
        elmo = text_encoder.get("elmo") if isinstance(text_encoder, dict) else None
        if not isinstance(elmo, dict):
            embedder = next(_elmo_embedders(self.model, "model"), None)
            found = (
                f"{ELMO_KEY} is missing{f'; ELMo is the embedder {embedder}' if embedder else ''}"
            )
            raise ConfigurationError(
                f"{self.config_file}: no place for ELMo: {found}. Expected {_SUPPORTED}."
            )
        self.elmo = elmo
        self.placement: str = elmo.get("placement", "input")
        if self.placement not in PLACES_OF:
            raise ConfigurationError(
                f"{self.config_file}: {ELMO_KEY}.placement is {self.placement!r}, expected one of "
                f"{', '.join(PLACES_OF)}."
            )
        for key in ("dataset_reader", "validation_dataset_reader"):
            indexers = self.config.get(key, {}).get("token_indexers")
            indexer = elmo.get("indexer", "elmo")
            if key in self.config and (not isinstance(indexers, dict) or indexer not in indexers):
                raise ConfigurationError(
                    f"{self.config_file}: {key}.token_indexers has no '{indexer}', which ELMo reads. "
                    f"Expected {_SUPPORTED}."
                )

    def check_has_elmo(self) -> None:
        """
        # Raises

        `ConfigurationError` if the config has ELMo nowhere.
        """
        if self.placement == "none":
            raise ConfigurationError(
                f"{self.config_file}: {ELMO_KEY}.placement is 'none', expected a config with ELMo, as its "
                f"""baseline is made from it. Give that one, or --overrides '{{"{ELMO_KEY}.placement": """
                """"input"}'."""
            )

    def check_mix_is_learnt(self) -> None:
        """
        # Raises

        `ConfigurationError` if the config fixes the weights of the layers.
        """
        if self.elmo.get("scalar_mix_parameters") is not None:
            raise ConfigurationError(
                f"{self.config_file}: {ELMO_KEY}.scalar_mix_parameters fixes the weights of the layers, "
                "expected a config in which they are learnt. Leave it out."
            )

    def run_of(self, variant: Variant, seed: int) -> Run:
        """Return the run of a variant with a seed. Its name has what differs from the config."""
        parts: List[str] = []
        changes: Dict[str, Any] = {}
        placement = variant.placement or self.placement
        if placement != self.placement:
            changes[f"{ELMO_KEY}.placement"] = placement
        last_layer = variant.last_layer_only
        if last_layer is not None and last_layer != self.elmo.get("top_layer_only", False):
            changes[f"{ELMO_KEY}.top_layer_only"] = last_layer
            parts.append("last" if last_layer else "all")
        if variant.scalar_mix_l2 is not None:
            regularizer = self._regularizer(variant.scalar_mix_l2)
            if regularizer != self.model.get("regularizer"):
                changes["model.regularizer"] = regularizer
                parts.append(f"l2_{variant.scalar_mix_l2:g}")
        if variant.share < 1.0:
            reader = self.config["dataset_reader"]
            share = {"type": "elmo_share", "share": variant.share, "seed": seed}
            changes["dataset_reader"] = {**share, "reader": reader}
            if "validation_dataset_reader" not in self.config:
                changes["validation_dataset_reader"] = reader  # validation and test data stay whole
            parts.append(f"share_{variant.share:g}")
        num_batches = variant.batches_per_epoch
        loader = self.config.get("data_loader", {})
        if num_batches is not None and num_batches != loader.get("batches_per_epoch"):
            changes["data_loader.batches_per_epoch"] = num_batches
            parts.append(f"batches_{num_batches}")
        return self.run("-".join([self.name, placement, *parts]), variant.label, changes, seed)

    def _regularizer(self, l2: float) -> Dict[str, Any]:
        """The model's regularizer with this penalty of the mix weights, other penalties as they are."""
        regularizer = self.model.get("regularizer") or {}
        entries = [list(entry) for entry in regularizer.get("regexes", [])]
        penalty = {"type": "l2", "alpha": l2}
        # The first regex that matches a parameter decides.
        index = next(
            (i for i, (regex, _) in enumerate(entries) if re.search(regex, _MIX_PARAMETER_NAME)),
            None,
        )
        if index is not None and _MIX_PARAMETERS in entries[index][0]:
            entries[index] = [entries[index][0], penalty]
        else:  # it is about other parameters too, or there is none
            entries.insert(0, [_MIX_PARAMETERS, penalty])
        return {**regularizer, "regexes": entries}


def evaluated_config(
    config_file: str, overrides: Dict[str, Any], variables: Optional[Dict[str, str]] = None
) -> Dict[str, Any]:
    """
    Evaluate a config.

    # Parameters

    config_file : `str`
        JSON or Jsonnet.
    overrides : `Dict[str, Any]`
        Of it.
    variables : `Dict[str, str]`, optional
        For `std.extVar`, besides the environment.

    # Raises

    `ConfigurationError` if there is no such file, or it cannot be evaluated.
    """
    if not Path(config_file).is_file():
        raise ConfigurationError(
            f"config: there is no file {config_file}, expected a config of `allennlp train`. Correct the "
            "path."
        )
    try:
        params = Params.from_file(config_file, json.dumps(overrides), variables)
    except (RuntimeError, ValueError, KeyError, TypeError, IndexError) as error:
        variable = re.search(r"[Uu]ndefined external variable: (\w+)", str(error))
        advice = (
            f"Set the environment variable {variable[1]}, which the head comment of the config explains."
            if variable
            else "Correct it, or --overrides."
        )
        raise ConfigurationError(
            f"{config_file}: cannot be evaluated ({error}). {advice}"
        ) from error
    return params.as_dict(quiet=True)


def combined_overrides(overrides: Dict[str, Any], further: Dict[str, Any]) -> Dict[str, Any]:
    """
    Return overrides that change a config as `overrides` do, and then `further`: of keys that contain each
    other AllenNLP uses the outer one alone.
    """
    combined = {
        key: value
        for key, value in overrides.items()
        if not any(f"{key}.".startswith(f"{inner}.") for inner in further)
    }
    for key, value in further.items():
        outer = next((outer for outer in combined if key.startswith(f"{outer}.")), None)
        if outer is None:
            combined[key] = value
        else:
            combined[outer] = with_overrides(combined[outer], {key[len(outer) + 1 :]: value})
    return combined


def _elmo_embedders(value: Any, path: str) -> Iterator[str]:
    """The paths of ELMo among embedders."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, dict) and inner.get("type") in ("elmo", "elmo_token_embedder"):
                yield f"{path}.{key}"
            yield from _elmo_embedders(inner, f"{path}.{key}")


def _variables_in(path: Path, seen: Set[Path]) -> Set[str]:
    """The external variables in a Jsonnet file and in what it imports."""
    path = path.resolve()
    if path in seen or not path.is_file():
        return set()
    seen.add(path)
    text = path.read_text(encoding="utf-8")
    names = set(re.findall(r"""std\.extVar\(\s*['"](\w+)['"]\s*\)""", text))
    for imported in re.findall(r"""\bimport\s+['"]([^'"]+)['"]""", text):
        names |= _variables_in(path.parent / imported, seen)
    return names
