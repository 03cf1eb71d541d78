"""The config of an experiment, and the variants of it that reports train."""

import json
import os
import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Union

from allennlp.common import Params
from allennlp.common.params import with_overrides

from elmo_plugin.arguments import option, option_group
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.placed_elmo import PLACES_OF
from elmo_plugin.report.runs import Run, RunOptions

ELMO_KEY = "model.text_encoder.elmo"
SEED_KEYS = ("random_seed", "numpy_seed", "pytorch_seed")
DEFAULT_METRIC = "-loss"  # of AllenNLP's trainer

_MIX_PARAMETERS = "scalar_parameters"
_MIX_PARAMETER_NAME = f"text_encoder.elmo.elmo.scalar_mix_0.{_MIX_PARAMETERS}.0"


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The options of all reports that train a task."""

    config_file: str = option(
        "a config of `allennlp train` with model.text_encoder.elmo; the environment variables that it "
        "reads must be set",
        positional=True,
        metavar="CONFIG",
    )
    name: Optional[str] = option(
        "name of the experiment in the names of runs and files (default: the task's); other data need "
        "another name",
        None,
    )
    runs: RunOptions = option_group("training runs")

    def experiment(self) -> "TaskExperiment":
        """Check the options and read the config."""
        self.runs.check()
        return TaskExperiment(self.config_file, self.runs.overrides, self.name)


class Variant(NamedTuple):
    """The changes that a report makes to a config. `None` keeps the value of the config."""

    label: str  # in tables
    placement: Optional[str] = None  # of ELMo: one of `PLACES_OF`
    last_layer_only: Optional[bool] = None  # rather than a mix of all
    scalar_mix_l2: Optional[float] = None  # the paper's lambda, on the weights of the mix
    share: float = 1.0  # of the training data, chosen by the seed of the run
    batches_per_epoch: Optional[int] = None
    bilm: Optional[str] = None  # its name or folder
    word_vectors: Optional[str] = None  # a file in GloVe's text format


class Experiment:
    """
    A config of `allennlp train`, whose runs are compared by their score on validation data.

    # Parameters

    name : `str`, optional (default = the type of the model without `elmo_`, or the name of the file)
        Name of runs, tables and figures.
    variables : `Mapping[str, str]`, optional
        Values for `std.extVar`, in addition to the environment.
    """

    def __init__(
        self,
        config_file: Union[str, PathLike],
        overrides: Optional[Dict[str, Any]] = None,
        name: Optional[str] = None,
        variables: Optional[Mapping[str, str]] = None,
    ) -> None:
        self.config_file = str(config_file)
        self.config = _evaluated(self.config_file, overrides, variables)
        self.model: Dict[str, Any] = self.config.get("model") or {}
        self.task = str(self.model.get("type", "")).removeprefix("elmo_")
        self.name = name or self.task or Path(config_file).stem
        check_name("--name", self.name)
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
        self.metric, self.is_larger_better = metric[1:], metric[0] == "+"

    def run(self, name: str, changes: Dict[str, Any], seed: int) -> Run:
        """Return the run with these changes to the config and this seed."""
        changes = {**changes, **dict.fromkeys(SEED_KEYS, seed)}
        return Run(f"{name}-seed{seed}", with_overrides(self.config, changes))

    def variables(self) -> Dict[str, str]:
        """Return the environment variables that the config reads (`std.extVar`), with their values."""
        names = sorted(_variables_in(Path(self.config_file), set()))
        return {name: os.environ[name] for name in names if name in os.environ}


class TaskExperiment(Experiment):
    """A config that trains a task's model, with a placement of ELMo that can be changed."""

    def __init__(
        self,
        config_file: Union[str, PathLike],
        overrides: Optional[Dict[str, Any]] = None,
        name: Optional[str] = None,
    ) -> None:
        super().__init__(config_file, overrides, name)
        elmo = self.model.get("text_encoder", {}).get("elmo")
        if not isinstance(elmo, dict):
            embedder = next(_embedders(self.model, "model", ("elmo", "elmo_token_embedder")), None)
            inside = f"; ELMo is the embedder {embedder}" if embedder else ""
            raise self._no_place(f"{ELMO_KEY} is missing{inside}")
        self.elmo = elmo
        self.placement: str = elmo.get("placement", "input")
        if self.placement not in PLACES_OF:
            raise self._no_place(f"{ELMO_KEY}.placement is {self.placement!r}")
        indexer = elmo.get("indexer", "elmo")
        for key in ("dataset_reader", "validation_dataset_reader"):
            reader = self.config.get(key)
            if reader is not None and indexer not in reader.get("token_indexers", {}):
                raise self._no_place(f"{key}.token_indexers has no '{indexer}'")

    @property
    def bilm(self) -> Optional[str]:
        """Return the name of the config's biLM, or the folder of its files."""
        options_file = self.elmo.get("options_file")
        if options_file is None or self.elmo.get("weight_file") is None:
            return options_file
        return str(Path(options_file).parent)

    def check_has_elmo(self) -> None:
        """Raise an error if the config does not use ELMo."""
        if self.placement == "none":
            raise ConfigurationError(
                f"{self.config_file}: {ELMO_KEY}.placement is 'none', expected a config with ELMo, from "
                f"""which its baseline is made. Give that one, or --overrides '{{"{ELMO_KEY}.placement": """
                """"input"}'."""
            )

    def run_of(self, variant: Variant, seed: int) -> Run:
        """Return the run of a variant with a seed. Its name says how it differs from the config."""
        parts: List[str] = []
        changes: Dict[str, Any] = {}
        placement = variant.placement or self.placement
        if placement != self.placement:
            changes[f"{ELMO_KEY}.placement"] = placement
        if variant.bilm is not None and variant.bilm != self.bilm:
            changes.update(
                {f"{ELMO_KEY}.options_file": variant.bilm, f"{ELMO_KEY}.weight_file": None}
            )
            parts.append(f"bilm_{_for_file_names(Path(variant.bilm).name)}")
        if variant.word_vectors is not None:
            changes.update(self._word_vectors(variant.word_vectors))
            parts.append(f"vectors_{_for_file_names(Path(variant.word_vectors).stem)}")
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
        return self.run("-".join([self.name, placement, *parts]), changes, seed)

    def _word_vectors(self, file: str) -> Dict[str, Any]:
        """Return the changes that start the config's embedding of words from a file."""
        embeddings = list(_embedders(self.model, "model", ("embedding",)))
        if len(embeddings) != 1:
            raise ConfigurationError(
                f"{self.config_file}: found {len(embeddings)} embedders of type 'embedding' "
                f"({', '.join(embeddings) or 'none'}), expected one, to start from the word vectors in "
                f"{file}."
            )
        embedding = embeddings[0]
        return {
            f"{embedding}.pretrained_file": file,
            f"{embedding}.embedding_dim": _width_of_vectors(file),
        }

    def _regularizer(self, l2: float) -> Dict[str, Any]:
        """Return the model's regularizer with this penalty of the mix weights and all other penalties."""
        regularizer = self.model.get("regularizer") or {}
        entries = [list(entry) for entry in regularizer.get("regexes", [])]
        penalty = {"type": "l2", "alpha": l2}
        # The first regex that matches a parameter decides.
        first = next((e for e in entries if re.search(e[0], _MIX_PARAMETER_NAME)), None)
        if first is not None and _MIX_PARAMETERS in first[0]:
            first[1] = penalty
        else:  # it also matches other parameters, or there is none
            entries.insert(0, [_MIX_PARAMETERS, penalty])
        return {**regularizer, "regexes": entries}

    def _no_place(self, found: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self.config_file}: no place for ELMo: {found}. Expected {ELMO_KEY} with a placement, one of "
            f"{', '.join(PLACES_OF)}, and an ELMo indexer of the reader, as in "
            "training_configs/*_small.jsonnet."
        )


def check_name(flag: str, name: str) -> None:
    """Raise an error if the name cannot be a part of file names."""
    if re.fullmatch(r"\w[\w.-]*", name) is None:
        raise ConfigurationError(
            f"{flag}: found the name '{name}', expected letters, digits, '-', '_' and '.', as files are "
            "named after it."
        )


def _evaluated(
    config_file: str,
    overrides: Optional[Dict[str, Any]],
    variables: Optional[Mapping[str, str]],
) -> Dict[str, Any]:
    if not Path(config_file).is_file():
        raise ConfigurationError(
            f"config: no such file {config_file}, expected a config of `allennlp train`. Correct the path."
        )
    try:
        params = Params.from_file(config_file, json.dumps(overrides or {}), variables)
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


def _embedders(value: Any, path: str, types: Sequence[str]) -> Iterator[str]:
    """Yield the paths of embedders of these types in a part of a config."""
    if isinstance(value, dict):
        if value.get("type") in types:
            yield path
        for key, inner in value.items():
            yield from _embedders(inner, f"{path}.{key}", types)


def _for_file_names(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)


def _width_of_vectors(file: str) -> int:
    """Return the width of word vectors in GloVe's text format, from their first line."""
    try:
        with open(file, encoding="utf-8") as lines:
            first = lines.readline().split()
        dim = len([float(number) for number in first[1:]])
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"word vectors: {file} cannot be read ({error}), expected a word and its vector on each line "
            "(GloVe's text format). Correct the path."
        ) from error
    if dim < 2:  # word2vec's text format begins with two numbers
        raise ConfigurationError(
            f"word vectors: the first line of {file} is '{' '.join(first)}', expected a word and its vector "
            "(GloVe's text format). If it begins with the numbers of words and dimensions, delete that line."
        )
    return dim


def _variables_in(path: Path, seen: Set[Path]) -> Set[str]:
    """Return the external variables that a Jsonnet file and its imports read."""
    path = path.resolve()
    if path in seen or not path.is_file():
        return set()
    seen.add(path)
    text = path.read_text(encoding="utf-8")
    names = set(re.findall(r"""std\.extVar\(\s*['"](\w+)['"]\s*\)""", text))
    for imported in re.findall(r"""\bimport\s+['"]([^'"]+)['"]""", text):
        names |= _variables_in(path.parent / imported, seen)
    return names
