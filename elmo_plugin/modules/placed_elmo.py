"""ELMo at the places where a text encoder adds it: the input and the output of the task RNN."""

import inspect
from dataclasses import fields
from typing import Any, Callable, Dict, Optional, Tuple, Union

import torch
from allennlp.common import FromParams, Params
from allennlp.data import TextFieldTensors
from torch import Tensor

from elmo_plugin.bilm import InferenceSettings
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.elmo import Elmo

PLACES_OF = {
    "none": (),
    "input": ("input",),
    "output": ("output",),
    "both": ("input", "output"),
}

# Arguments of `Elmo` that are not allowed here, and why.
REFUSED_KEYS = {
    "num_output_representations": "follows from elmo.placement",
    "keep_sentence_boundaries": "would give more steps than there are tokens",
    "vocab_to_cache": "needs word ids, which a text encoder does not pass; words are cached anyway",
    "module": "cannot be given in a config",
    "serialization_dir": "is set by AllenNLP",
}


class PlacedElmo(torch.nn.Module, FromParams):
    """
    ELMo at the input of a task RNN, at its output, at both or at none, with its own mix for each place
    over one pass of the biLM (paper, section 3.3).

    In a config, `placement`, `indexer` and `dropout` (there 0.5 by default) are given together with the
    arguments of `Elmo`, except those of `REFUSED_KEYS`. With `none` no file is read.

    # Parameters

    elmo : `Elmo`, optional
        An `Elmo` with one representation for each place; `None` if there is no place.
    placement : `str`, optional (default = `"input"`)
        `input`, `output`, `both` or `none`.
    indexer : `str`, optional (default = `"elmo"`)
        The name of the `elmo_character_ids` indexer, or AllenNLP's `elmo_characters`, in the reader's
        `token_indexers`.
    dropout : `float` or `Dict[str, float]`, optional (default = `0.0`)
        Dropout on ELMo representations: one value, or one each for `input` and `output`. Use 0 if the next
        layer has dropout on its input, as a text encoder with `dropout` has: ELMo that is dropped twice by
        0.5 keeps a quarter of its units.

    # Raises

    `ConfigurationError` for an unknown `placement`, if the number of representations is not the number of
    places, a dropout is not between 0 and 1, or the config has an unknown key.
    """

    def __init__(
        self,
        elmo: Optional[Elmo],
        placement: str = "input",
        indexer: str = "elmo",
        dropout: Union[float, Dict[str, float]] = 0.0,
    ) -> None:
        super().__init__()
        self.places = _places_of(placement)
        self.dropout = _dropout_by_place(dropout)
        num_representations = 0 if elmo is None else elmo.num_output_representations
        if num_representations != len(self.places):
            raise ConfigurationError(
                f"ELMo has {num_representations} representations, expected {len(self.places)} for "
                f"placement '{placement}'."
            )
        self.elmo = elmo
        self.indexer = indexer

    @classmethod
    def from_params(
        cls,
        params: Params,
        constructor_to_call: Optional[Callable[..., "PlacedElmo"]] = None,
        constructor_to_inspect: Optional[Callable[..., "PlacedElmo"]] = None,
        **extras: Any,
    ) -> "PlacedElmo":
        placement = params.pop("placement", "input")
        indexer = params.pop("indexer", "elmo")
        dropout = params.pop("dropout", 0.5)
        places = _places_of(placement)
        _check_keys(params)
        # One name may stand for both files.
        for key in ("options_file", "weight_file"):
            params.setdefault(key, None)
        elmo: Optional[Elmo] = None
        if places:
            params["dropout"] = 0.0  # this class applies dropout, for each place
            elmo = Elmo.from_params(params, num_output_representations=len(places), **extras)
        return cls(
            elmo, placement, indexer, dropout.as_dict() if isinstance(dropout, Params) else dropout
        )

    def get_output_dim(self, place: str) -> int:
        """Width that ELMo adds to the vectors at `place`, which is `input` or `output`."""
        if self.elmo is None or place not in self.places:
            return 0
        return self.elmo.get_output_dim()

    def split(self, tokens: TextFieldTensors) -> Tuple[Dict[str, Tensor], TextFieldTensors]:
        """
        Run the biLM once, and remove its characters from the text field.

        # Parameters

        tokens : `TextFieldTensors`
            A text field that has the `elmo_character_ids` indexer.

        # Returns

        The ELMo representation of each place, `(batch_size, timesteps, dim)`; and the text field without
        ELMo's characters, for the other embedders.

        # Raises

        `ConfigurationError` if ELMo has a place and the text field does not have the indexer.
        """
        others = {name: tensors for name, tensors in tokens.items() if name != self.indexer}
        if self.elmo is None:
            return {}, others
        characters = elmo_characters(tokens, self.indexer)
        representations = self.elmo(characters)["elmo_representations"]
        return {
            place: torch.nn.functional.dropout(
                representation, self.dropout[place], training=self.training
            )
            for place, representation in zip(self.places, representations)
        }, others


def elmo_characters(tokens: TextFieldTensors, indexer: str) -> Tensor:
    """
    Return the character ids of a text field, `(batch_size, timesteps, 50)`.

    # Raises

    `ConfigurationError` if `indexer` is not the name of an indexer of character ids.
    """
    if indexer not in tokens:
        found = f"has no such indexer, only {', '.join(sorted(tokens)) or 'none'}"
    elif "elmo_tokens" not in tokens[indexer]:
        found = f"has an indexer of another type there, which gives {', '.join(tokens[indexer])}"
    else:
        return tokens[indexer]["elmo_tokens"]
    raise ConfigurationError(
        f"ELMo reads the indexer '{indexer}', expected of type 'elmo_character_ids', but the reader {found}. "
        f'Put "{indexer}": {{"type": "elmo_character_ids"}} into dataset_reader.token_indexers.'
    )


def _check_keys(params: Params) -> None:
    """Raise an error for unknown keys, and for keys that a text encoder sets itself or cannot use."""
    for key, reason in REFUSED_KEYS.items():
        if key in params:
            raise ConfigurationError(
                f"elmo.{key} {reason}. Leave it out of the text encoder's elmo."
            )
    known = [
        key
        for key in inspect.signature(Elmo.__init__).parameters
        if key not in ("self", "inference")
    ]
    known += [field.name for field in fields(InferenceSettings)]
    unknown = sorted(set(params.keys()) - set(known))
    if unknown:
        raise ConfigurationError(
            f"elmo.{unknown[0]} is not an argument of ELMo, expected some of: placement, indexer, "
            f"{', '.join(key for key in known if key not in REFUSED_KEYS)}."
        )


def _dropout_by_place(dropout: Any) -> Dict[str, float]:
    by_place = dropout if isinstance(dropout, dict) else dict.fromkeys(PLACES_OF["both"], dropout)
    are_numbers = all(isinstance(value, (int, float)) for value in by_place.values())
    if (
        set(by_place) != set(PLACES_OF["both"])
        or not are_numbers
        or not all(0 <= value <= 1 for value in by_place.values())
    ):
        raise ConfigurationError(
            f"elmo.dropout is {dropout!r}, expected a number from 0 to 1, or one for each place, such as "
            '{"input": 0.0, "output": 0.5}.'
        )
    return by_place


def _places_of(placement: Any) -> Tuple[str, ...]:
    if not isinstance(placement, str) or placement not in PLACES_OF:
        raise ConfigurationError(
            f"elmo.placement is {placement!r}, expected one of {', '.join(PLACES_OF)}."
        )
    return PLACES_OF[placement]
