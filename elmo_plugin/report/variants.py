"""The config of an experiment, and the variants of it that reports train."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set

from allennlp.common import Params
from allennlp.common.params import with_overrides

from elmo_plugin.arguments import option
from elmo_plugin.compat.training_process import config_path
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.text_encoder import PLACES_OF
from elmo_plugin.report.runs import RunFolder, RunOptions

ELMO_KEY = "model.text_encoder.elmo"
SEED_KEYS = ("random_seed", "numpy_seed", "pytorch_seed")

# Words that occur less often in the training data have no vectors of their own: see words.libsonnet.
_MIN_COUNT = 2
_MIX_PARAMETERS = "scalar_parameters"  # a regex of the names of mix weights


@dataclass(frozen=True, kw_only=True)
class TaskOptions(RunOptions):
    """Options of all reports that train a task."""

    config_file: str = option(
        "a config of `allennlp train` with model.text_encoder.elmo, or the name of one of this package, such "
        "as ner_small; the environment variables that it reads must be set",
        positional=True,
        metavar="CONFIG",
    )
    name: Optional[str] = option(
        "name of the experiment in the names of runs and files (default: the task's); other data need "
        "another name",
        None,
    )
    word_vectors: Optional[str] = option(
        "word vectors in GloVe's text format, from which every variant starts its embedding of words, as in "
        "the paper; tables with and without need different names, see --name (default: the config's)",
        None,
        metavar="FILE",
    )


# Of `Variant.word_vectors`: the config's embedding of words starts from random numbers.
NO_WORD_VECTORS = ""


class Variant(NamedTuple):
    """The changes that a report makes to a config. `None` keeps the value of the config."""

    label: str  # in tables
    placement: Optional[str] = None  # of ELMo: one of `PLACES_OF`
    last_layer_only: Optional[bool] = None  # rather than a mix of all
    scalar_mix_l2: Optional[float] = None  # the paper's lambda, on the weights of the mix
    share: float = 1.0  # of the training data, chosen by the seed of the run
    batches_per_epoch: Optional[int] = None  # of a share that is not everything
    bilm: Optional[str] = None  # its name or folder
    word_vectors: Optional[str] = None  # a file in GloVe's text format, or `NO_WORD_VECTORS`


class Experiment:
    """
    A config of `allennlp train`, whose runs are compared by their score on validation data. `name`, of runs,
    tables and figures, is by default the type of the model without `elmo_`, or that of the file; `variables`
    are values for `std.extVar`, in addition to the environment.
    """

    def __init__(
        self,
        options: RunOptions,
        config_file: str,
        name: Optional[str],
        variables: Optional[Mapping[str, str]] = None,
    ) -> None:
        self.runs_folder = options.runs_folder
        self.config_file = str(config_path(config_file))
        self.config = _evaluated(self.config_file, options.overrides, variables)
        for key in ("model", "dataset_reader", "data_loader", "trainer", "model.text_encoder"):
            self._check_is_object(key)
        self.model: Dict[str, Any] = self.config.get("model") or {}
        self.task = str(self.model.get("type", "")).removeprefix("elmo_")
        self.name = name or self.task or Path(config_file).stem
        check_file_name_part("--name", self.name)
        for key in ("validation_data_path", "trainer"):
            if not self.config.get(key):
                raise ConfigurationError(
                    f"{self.config_file}: found no {key}, expected one: runs are compared by their score "
                    "on validation data."
                )
        # "-loss" is AllenNLP's default.
        metric = self.config["trainer"].get("validation_metric", "-loss")
        if not isinstance(metric, str) or metric[:1] not in ("+", "-"):
            raise ConfigurationError(
                f"{self.config_file}: trainer.validation_metric is {metric!r}, expected one metric, with + "
                "or - before its name, such as '+f1'."
            )
        self.metric, self.is_larger_better = metric[1:], metric[0] == "+"

    def _check_is_object(self, key: str) -> None:
        """Raise an error if the config has this part, and it is no object."""
        values: Any = self.config
        for part in key.split("."):
            if part not in values:
                return
            values = values[part]
            if not isinstance(values, dict):
                raise ConfigurationError(
                    f"{self.config_file}: {key} is {json.dumps(values)}, expected an object. Correct the "
                    "config, or --overrides."
                )

    def run_folder(self, name: str, changes: Dict[str, Any], seed: int) -> RunFolder:
        """Return the run with these changes to the config and this seed."""
        changes = {**changes, **dict.fromkeys(SEED_KEYS, seed)}
        if "seed" in self.config.get("data_loader", {}):
            changes["data_loader.seed"] = seed
        return RunFolder(
            self.runs_folder / f"{name}-seed{seed}", with_overrides(self.config, changes)
        )

    def variables(self) -> Dict[str, str]:
        """Return the environment variables that the config reads (`std.extVar`), with their values."""
        names = sorted(_variables_in(Path(self.config_file)))
        return {name: os.environ[name] for name in names if name in os.environ}


class TaskExperiment(Experiment):
    """A config that trains a task's model, with a placement of ELMo that can be changed."""

    def __init__(self, options: TaskOptions) -> None:
        super().__init__(options, options.config_file, options.name)
        self.options = options
        for key in (ELMO_KEY, "dataset_reader.token_indexers"):
            self._check_is_object(key)
        self.elmo: Dict[str, Any] = self.model.get("text_encoder", {}).get("elmo") or {}
        self.placement: str = self.elmo.get("placement", "input") if self.elmo else "missing"
        indexer = self.elmo.get("indexer", "elmo")
        readers = [self.config.get(f"{part}dataset_reader") for part in ("", "validation_")]
        # `elmo_share` reads by another reader.
        has_indexer = all(
            indexer in reader.get("reader", reader).get("token_indexers", {})
            for reader in readers
            if reader
        )
        if self.placement not in PLACES_OF or not has_indexer:
            raise ConfigurationError(
                f"{self.config_file}: {ELMO_KEY}.placement is {self.placement!r}, and the token_indexers of "
                f"the reader {'have' if has_indexer else 'lack'} '{indexer}'. Expected a place of ELMo, one "
                f"of {', '.join(PLACES_OF)}, and its indexer, as in training_configs/*_small.jsonnet."
            )

    @property
    def bilm(self) -> Optional[str]:
        """Return the name of the config's biLM; `None` if two files are named."""
        names = {self.elmo.get(key) for key in ("options_file", "weight_file")} - {None}
        return names.pop() if len(names) == 1 else None

    @classmethod
    def with_elmo(cls, options: TaskOptions) -> "TaskExperiment":
        """Read a config that uses ELMo, from which its baseline is made."""
        experiment = cls(options)
        if experiment.placement == "none":
            raise ConfigurationError(
                f"{options.config_file}: {ELMO_KEY}.placement is 'none', expected a config with ELMo."
            )
        return experiment

    def run_of(self, variant: Variant, seed: int) -> RunFolder:
        """Return the run of a variant with a seed. Its name says how it differs from the config."""
        placement = variant.placement or self.placement
        name = [self.name, placement]
        changes: Dict[str, Any] = {}
        if placement != self.placement:
            changes[f"{ELMO_KEY}.placement"] = placement
        if variant.bilm is not None and variant.bilm != self.bilm:
            changes[f"{ELMO_KEY}.options_file"] = variant.bilm
            changes[f"{ELMO_KEY}.weight_file"] = None
            name.append(f"bilm_{for_file_names(Path(variant.bilm).name)}")
        if variant.word_vectors == NO_WORD_VECTORS:
            without_vectors = self._without_word_vectors()
            changes.update(without_vectors)
            if without_vectors:
                name.append("vectors_none")
        elif variant.word_vectors is not None:
            changes.update(self._with_word_vectors(variant.word_vectors))
            name.append(f"vectors_{for_file_names(Path(variant.word_vectors).stem)}")
        last_layer = variant.last_layer_only
        if last_layer is not None and last_layer != self.elmo.get("top_layer_only", False):
            changes[f"{ELMO_KEY}.top_layer_only"] = last_layer
            name.append("last" if last_layer else "all")
        if variant.scalar_mix_l2 is not None:
            regularizer = self._regularizer(variant.scalar_mix_l2)
            if regularizer != self.model.get("regularizer"):
                changes["model.regularizer"] = regularizer
                name.append(f"l2_{variant.scalar_mix_l2:g}")
        if variant.share < 1.0:
            reader = self.config["dataset_reader"]
            share = {"type": "elmo_share", "share": variant.share, "seed": seed}
            changes["dataset_reader"] = {**share, "reader": reader}
            # Validation and test data stay as they are.
            if not self.config.get("validation_dataset_reader"):
                changes.setdefault("validation_dataset_reader", reader)
            if not self.config.get("validation_data_loader"):
                changes["validation_data_loader"] = self.config["data_loader"]
            name.append(f"share_{variant.share:g}")
            if variant.batches_per_epoch is not None:
                changes["data_loader.batches_per_epoch"] = variant.batches_per_epoch
                name.append(f"batches_{variant.batches_per_epoch}")
        return self.run_folder("-".join(name), changes, seed)

    def _without_word_vectors(self) -> Dict[str, Any]:
        """
        Return the changes after which embeddings of words start from random numbers, and rare words of the
        training data share a vector with those that only other data have: see `vocabulary` in
        words.libsonnet.
        """
        changes: Dict[str, Any] = {}
        values = Params(self.config).as_flat_dict()
        embeddings = self._word_embeddings()
        for embedding in embeddings:
            if values.get(f"{embedding}.pretrained_file") is not None:
                changes[f"{embedding}.pretrained_file"] = None
                # What starts at random is trained, also where word vectors stay as they are.
                changes[f"{embedding}.trainable"] = True
        namespaces = self._counted_words(embeddings)
        min_count = {**dict.fromkeys(namespaces, _MIN_COUNT), **self._min_count()}
        if namespaces:
            changes.update(self._vocabulary_changes(min_count, ["train"]))
        return changes

    def _with_word_vectors(self, file: str) -> Dict[str, Any]:
        """
        Return the changes after which the embedding of words starts from a file, and all words of all data
        have vectors of their own, unless the config has another count for rare words than the above.
        """
        embedding = self._word_embedding()
        changes: Dict[str, Any] = {
            f"{embedding}.pretrained_file": file,
            f"{embedding}.embedding_dim": width_of_vectors(file),
        }
        namespaces = self._counted_words([embedding])
        min_count = {
            name: count
            for name, count in self._min_count().items()
            if name not in namespaces or count != _MIN_COUNT
        }
        if namespaces:
            changes.update(self._vocabulary_changes(min_count, None))
        return changes

    def _counted_words(self, embeddings: Sequence[str]) -> List[str]:
        """Return the namespaces, of the words of these embedders, that are made of the words of the data."""
        vocabulary = self.config.get("vocabulary") or {}
        if vocabulary.get("type", "from_instances") != "from_instances":
            return []
        reader = self.config["dataset_reader"]
        indexers = reader.get("reader", reader).get("token_indexers") or {}
        names = [embedding.rpartition(".")[2] for embedding in embeddings]
        return [
            indexers[name].get("namespace", "tokens")
            for name in names
            if isinstance(indexers.get(name), dict)
            and indexers[name].get("type", "single_id") == "single_id"
            and indexers[name].get("feature_name", "text") == "text"
        ]

    def _min_count(self) -> Dict[str, int]:
        return (self.config.get("vocabulary") or {}).get("min_count") or {}

    def _vocabulary_changes(
        self, min_count: Dict[str, int], datasets: Optional[List[str]]
    ) -> Dict[str, Any]:
        changes: Dict[str, Any] = {}
        if min_count != self._min_count():
            vocabulary = self.config.get("vocabulary") or {}
            changes["vocabulary"] = {**vocabulary, "min_count": min_count}
        if datasets != self.config.get("datasets_for_vocab_creation"):
            changes["datasets_for_vocab_creation"] = datasets
        return changes

    def _word_embeddings(self) -> List[str]:
        """Return the keys of the config's embedders of type `embedding`."""
        values = Params({"model": self.model}).as_flat_dict()
        types = {key: value for key, value in values.items() if key.endswith(".type")}
        return [key.removesuffix(".type") for key in types if types[key] == "embedding"]

    def _word_embedding(self) -> str:
        """Return the key of the only one."""
        keys = self._word_embeddings()
        if len(keys) != 1:
            raise ConfigurationError(
                f"{self.config_file}: found {len(keys)} embedders of type 'embedding' "
                f"({', '.join(keys) or 'none'}), expected one, to start from word vectors."
            )
        return keys[0]

    def _regularizer(self, l2: float) -> Dict[str, Any]:
        """Return the model's regularizer with this penalty of the mix weights and all other penalties."""
        regularizer = self.model.get("regularizer") or {}
        others = [e for e in regularizer.get("regexes", []) if e[0] != _MIX_PARAMETERS]
        # The first regex that matches a parameter decides.
        return {**regularizer, "regexes": [[_MIX_PARAMETERS, {"type": "l2", "alpha": l2}], *others]}


def check_file_name_part(flag: str, name: str) -> None:
    """Raise an error if the name cannot be a part of file names."""
    if re.fullmatch(r"\w[\w.-]*", name) is None:
        raise ConfigurationError(
            f"{flag}: found the name '{name}', expected letters, digits, '-', '_' and '.', as files are "
            "named after it."
        )


def for_file_names(name: str) -> str:
    """Return a name, or a path, as a part of file names."""
    return re.sub(r"[^\w.-]+", "_", name).strip("_.-") or "_"


def _evaluated(
    config_file: str,
    overrides: Optional[Dict[str, Any]],
    variables: Optional[Mapping[str, str]],
) -> Dict[str, Any]:
    try:
        params = Params.from_file(config_file, json.dumps(overrides or {}), variables)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, IndexError) as error:
        variable = re.search(r"[Uu]ndefined external variable: (\w+)", str(error))
        advice = (
            f"Set the environment variable {variable[1]}, which the head comment of the config explains."
            if variable
            else "Correct the path, the config, or --overrides."
        )
        reason = str(error).partition("\n")[0]  # then jsonnet lists files and lines
        raise ConfigurationError(
            f"{config_file}: cannot be evaluated ({reason}). {advice}"
        ) from error
    return params.as_dict(quiet=True)


def width_of_vectors(file: str) -> int:
    """Return the width of word vectors in GloVe's text format, from their first line."""
    try:
        with open(file, encoding="utf-8") as lines:
            width = len([float(number) for number in lines.readline().split()[1:]])
        if width < 2:  # word2vec's text format begins with the numbers of words and dimensions
            raise ValueError(f"the first line has {width} numbers after the word")
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"word vectors: {file} cannot be read ({error}), expected a word and its vector on each line "
            "(GloVe's text format). Correct the path, or delete a first line that is not of this form."
        ) from error
    return width


def _variables_in(path: Path) -> Set[str]:
    """Return the external variables that a Jsonnet file and its imports read."""
    if not path.is_file():  # an import that Jsonnet finds elsewhere
        return set()
    text = path.read_text(encoding="utf-8")
    names = set(re.findall(r"""std\.extVar\(\s*['"](\w+)['"]\s*\)""", text))
    for imported in re.findall(r"""\bimport\s+['"]([^'"]+)['"]""", text):
        names |= _variables_in(path.parent / imported)
    return names
