"""Predictors of trained models, for Python and for `elmo predict`."""

from typing import Any, Dict, Optional

# First: it checks and patches AllenNLP, and registers what archives name.
import elmo_plugin.plugin  # noqa: F401 # isort: skip
from allennlp.predictors import Predictor

from elmo_plugin.compat.archives import keep_only_snapshots, opened_archive
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import FileName

# AllenNLP's own predictor of taggers downloads a model of spaCy, only to split text.
_IN_PLACE_OF = {"sentence_tagger": "elmo_tagger"}


def load_predictor(
    archive_file: FileName,
    overrides: Optional[Dict[str, Any]] = None,
    cuda_device: int = -1,
    predictor: Optional[str] = None,
    predictor_args: Optional[Dict[str, Any]] = None,
) -> Predictor:
    """
    Load a trained model for predictions. It runs its frozen biLM as a snapshot, and cannot be trained.

        predictor = load_predictor("elmo_ner_small")
        predictor.predict("Maria Lopez visited Oxford.")["tagged"]

    The predictors of this package have `predict`, which takes text: a sentence, a document, `premise` and
    `hypothesis`, or `question` and `passage`. As all predictors of AllenNLP they have `predict_json` and
    `predict_batch_json`, whose inputs and answers are those of the lines of `elmo predict`.

    # Parameters

    archive_file : `FileName`
        A `model.tar.gz`, the folder of a training run, or the name of a task model that comes with this
        package, such as `elmo_ner_small`. Its predictor is that of its model; of AllenNLP's `simple_tagger`
        and other models with the predictor `sentence_tagger` it is `elmo_tagger`, see `TaggerPredictor`.
    overrides : `Dict[str, Any]`, optional
        Changes to the config in the archive, such as `{"model.text_encoder.elmo.precision": "bfloat16"}`.
    cuda_device : `int`, optional (default = `-1`)
        The index of the GPU; -1 for the CPU.
    predictor : `str`, optional (default = the model's)
        The registered name of the predictor.
    predictor_args : `Dict[str, Any]`, optional
        Arguments of the predictor, such as `{"tokenizer": {"type": "whitespace"}}`.

    # Raises

    `ConfigurationError` if the archive cannot be loaded, and if the predictor lacks an argument or does not
    take one. If AllenNLP is missing, importing this function raises `ImportError`, which says what to
    install.
    """
    archive = opened_archive(archive_file, overrides or "", cuda_device)
    keep_only_snapshots(archive.model)
    name = predictor or archive.model.default_predictor
    if name is None:
        raise ConfigurationError(
            f"{archive_file}: models of class {type(archive.model).__name__} have no default predictor. Name "
            "one with --predictor (predictor=...)."
        )
    try:
        return Predictor.from_archive(
            archive, predictor or _IN_PLACE_OF.get(name, name), extra_args=predictor_args
        )
    except TypeError as error:
        raise ConfigurationError(
            f"predictor_args: found {predictor_args}, expected arguments of the predictor ({error}). "
            "Correct them."
        ) from error
