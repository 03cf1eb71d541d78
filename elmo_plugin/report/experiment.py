"""The config of a task with a place for ELMo, and the variants of it that reports train."""

import json
import os
import re
from os import PathLike
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple, Union

from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.common.params import with_overrides

from elmo_plugin.modules.placed_elmo import PLACES_OF

ELMO_KEY = "model.text_encoder.elmo"
SEED_KEYS = ("random_seed", "numpy_seed", "pytorch_seed")
DEFAULT_METRIC = "-loss"  # of AllenNLP's trainer

_MIX_PARAMETERS = "scalar_parameters"
_MIX_PARAMETER_NAME = f"text_encoder.elmo.elmo.scalar_mix_0.{_MIX_PARAMETERS}.0"
_SUPPORTED = (
    f"{ELMO_KEY} with a placement and an `elmo_character_ids` indexer of the reader, as in "
    "training_configs/*_small.jsonnet"
)


class Variant(NamedTuple):
    """
    What a report changes in a config. `None` leaves it as it is there.

    # Parameters

    label : `str`
        What tables call it.
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


class Cell(NamedTuple):
    """
    One training run of a grid.

    # Parameters

    name : `str`
        Of its folder: the same for the same variant of a config, whichever report asks for it.
    variant : `Variant`
        What it is about.
    seed : `int`
        Of the run.
    overrides : `Dict[str, Any]`
        Of the config file, for `allennlp train`.
    config : `Dict[str, Any]`
        The config with them.
    """

    name: str
    variant: Variant
    seed: int
    overrides: Dict[str, Any]
    config: Dict[str, Any]


class Experiment:
    """
    # Parameters

    config_file : `str` or `PathLike`
        A config of `allennlp train`, JSON or Jsonnet.
    overrides : `Dict[str, Any]`, optional
        Of it, for all runs.
    name : `str`, optional (default = the task's)
        What runs, tables and pictures are named after.

    # Raises

    `ConfigurationError` if the config cannot be read, has no place for ELMo, or does not say what the score
    of a run is.
    """

    def __init__(
        self,
        config_file: Union[str, PathLike],
        overrides: Optional[Dict[str, Any]] = None,
        name: Optional[str] = None,
    ) -> None:
        self.config_file = str(config_file)
        self.overrides = overrides or {}
        self.config = self._evaluate(self.overrides)
        self._check_place()
        self.task = str(self.config["model"].get("type", "")).removeprefix("elmo_")
        self.name = name or self.task
        if re.fullmatch(r"\w[\w.-]*", self.name) is None:
            raise ConfigurationError(
                f"--name: found '{self.name}', expected letters, digits, '-', '_' and '.', as files are "
                "named after it."
            )
        self.metric, self.is_larger_better = self._metric()

    @property
    def placement(self) -> str:
        """Where the config has ELMo."""
        return self.config["model"]["text_encoder"]["elmo"].get("placement", "input")

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
        if self.config["model"]["text_encoder"]["elmo"].get("scalar_mix_parameters") is not None:
            raise ConfigurationError(
                f"{self.config_file}: {ELMO_KEY}.scalar_mix_parameters fixes the weights of the layers, "
                "expected a config in which they are learnt. Leave it out."
            )

    def cell(self, variant: Variant, seed: int) -> Cell:
        """The run of a variant with a seed."""
        parts: List[str] = []
        changes: Dict[str, Any] = {}
        placement = variant.placement or self.placement
        self._change(changes, f"{ELMO_KEY}.placement", placement, "input")
        if variant.last_layer_only is not None and self._change(
            changes, f"{ELMO_KEY}.top_layer_only", variant.last_layer_only, False
        ):
            parts.append("last" if variant.last_layer_only else "all")
        if variant.scalar_mix_l2 is not None and self._change_l2(changes, variant.scalar_mix_l2):
            parts.append(f"l2_{variant.scalar_mix_l2:g}")
        if variant.share < 1.0:
            self._change_reader(changes, variant.share, seed)
            parts.append(f"share_{variant.share:g}")
        if variant.batches_per_epoch is not None and self._change(
            changes, "data_loader.batches_per_epoch", variant.batches_per_epoch
        ):
            parts.append(f"batches_{variant.batches_per_epoch}")
        changes.update(dict.fromkeys(SEED_KEYS, seed))
        overrides = combined_overrides(self.overrides, changes)
        name = "-".join([self.name, placement, *parts, f"seed{seed}"])
        return Cell(name, variant, seed, overrides, self._evaluate(overrides))

    def variables(self) -> Dict[str, str]:
        """The environment variables that the config reads (`std.extVar`), with their values."""
        names = sorted(_variables_in(Path(self.config_file), set()))
        return {name: os.environ[name] for name in names if name in os.environ}

    def _evaluate(self, overrides: Dict[str, Any]) -> Dict[str, Any]:
        if not Path(self.config_file).is_file():
            raise ConfigurationError(
                f"config: there is no file {self.config_file}, expected a config of `allennlp train`. "
                "Correct the path."
            )
        try:
            params = Params.from_file(self.config_file, json.dumps(overrides))
        except (RuntimeError, ValueError, KeyError, TypeError, IndexError) as error:
            variable = re.search(r"[Uu]ndefined external variable: (\w+)", str(error))
            advice = (
                f"Set the environment variable {variable[1]}, which the head comment of the config explains."
                if variable
                else "Correct it, or --overrides."
            )
            raise ConfigurationError(
                f"{self.config_file}: cannot be evaluated ({error}). {advice}"
            ) from error
        return params.as_dict(quiet=True)

    def _check_place(self) -> None:
        model = self.config.get("model")
        text_encoder = model.get("text_encoder") if isinstance(model, dict) else None
        elmo = text_encoder.get("elmo") if isinstance(text_encoder, dict) else None
        if not isinstance(elmo, dict):
            embedder = next(_elmo_embedders(model, "model"), None)
            found = (
                f"{ELMO_KEY} is not there; ELMo is the embedder {embedder}"
                if embedder
                else f"{ELMO_KEY} is not there"
            )
            raise ConfigurationError(
                f"{self.config_file}: no place for ELMo: {found}. Expected {_SUPPORTED}."
            )
        placement = elmo.get("placement", "input")
        if placement not in PLACES_OF:
            raise ConfigurationError(
                f"{self.config_file}: {ELMO_KEY}.placement is {placement!r}, expected one of "
                f"{', '.join(PLACES_OF)}."
            )
        for key in ("dataset_reader", "validation_dataset_reader"):
            indexers = self.config.get(key, {}).get("token_indexers")
            name = elmo.get("indexer", "elmo")
            if key in self.config and (not isinstance(indexers, dict) or name not in indexers):
                raise ConfigurationError(
                    f"{self.config_file}: {key}.token_indexers has no '{name}', which ELMo reads. Expected "
                    f"{_SUPPORTED}."
                )

    def _metric(self) -> Tuple[str, bool]:
        for key in ("validation_data_path", "trainer"):
            if not self.config.get(key):
                raise ConfigurationError(
                    f"{self.config_file}: there is no {key}, expected one: runs are compared by their score "
                    "on validation data."
                )
        metric = self.config["trainer"].get("validation_metric", DEFAULT_METRIC)
        if not isinstance(metric, str) or metric[:1] not in ("+", "-"):
            raise ConfigurationError(
                f"{self.config_file}: trainer.validation_metric is {metric!r}, expected one metric, with + "
                """or - before its name. Correct it, for instance with --overrides """
                """'{"trainer.validation_metric": "+f1"}'."""
            )
        return metric[1:], metric[0] == "+"

    def _change(
        self, changes: Dict[str, Any], key: str, value: Any, default: Optional[Any] = None
    ) -> bool:
        """Set a dotted key. Returns whether the config has it otherwise."""
        found: Any = self.config
        *folders, last = key.split(".")
        for name in folders:
            found = found[name]
        if found.get(last, default) == value:
            return False
        changes[key] = value
        return True

    def _change_l2(self, changes: Dict[str, Any], l2: float) -> bool:
        """Set the penalty of the mix weights. Returns whether the config has another."""
        regularizer = self.config["model"].get("regularizer") or {}
        former = [list(entry) for entry in regularizer.get("regexes", [])]
        penalty = {"type": "l2", "alpha": l2}
        # The first regex that matches a parameter decides.
        index = next(
            (i for i, (key, _) in enumerate(former) if re.search(key, _MIX_PARAMETER_NAME)), 0
        )
        if former and _MIX_PARAMETERS in former[index][0]:
            regexes = [*former[:index], [former[index][0], penalty], *former[index + 1 :]]
        else:  # it is about other parameters too, or there is none
            regexes = [[_MIX_PARAMETERS, penalty], *former]
        if regexes == former:
            return False
        changes["model.regularizer"] = {**regularizer, "regexes": regexes}
        return True

    def _change_reader(self, changes: Dict[str, Any], share: float, seed: int) -> None:
        """Train on a share; validation and test data stay whole."""
        reader = self.config["dataset_reader"]
        changes["dataset_reader"] = {
            "type": "elmo_share",
            "reader": reader,
            "share": share,
            "seed": seed,
        }
        if "validation_dataset_reader" not in self.config:
            changes["validation_dataset_reader"] = reader


def combined_overrides(overrides: Dict[str, Any], further: Dict[str, Any]) -> Dict[str, Any]:
    """
    Overrides that change a config as `overrides` do, and then `further`: of keys that contain each other
    AllenNLP takes the outer one alone.
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
