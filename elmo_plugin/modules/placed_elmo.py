"""ELMo at the places where a text encoder adds it: the input and the output of the task RNN."""

from typing import Any, Callable, Dict, Optional, Tuple, Union

import torch
from allennlp.common import FromParams, Params
from allennlp.data import TextFieldTensors
from torch import Tensor

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.elmo import Elmo

PLACES_OF = {
    "none": (),
    "input": ("input",),
    "output": ("output",),
    "both": ("input", "output"),
}


class PlacedElmo(torch.nn.Module, FromParams):
    """
    ELMo at the input of a task RNN, at its output, at both or at none, with its own mix for each place
    over one pass of the biLM (paper, section 3.3).

    In a config, `placement`, `indexer` and `dropout` (there 0.5 by default) are given together with the
    arguments of `Elmo`; `num_output_representations` follows from the placement. With `none` no file is read.

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

    `ConfigurationError` for an unknown `placement` or key of the config, if the number of representations is
    not the number of places, or a dropout is not between 0 and 1.
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
        elmo: Optional[Elmo] = None
        if places := _places_of(placement):
            # One name is enough for both files.
            for key in ("options_file", "weight_file"):
                params.setdefault(key, None)
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
    Return the character ids of a text field, `(batch_size, timesteps, 50)`. Raise `ConfigurationError` if
    `indexer` is not the name of an indexer of character ids.
    """
    if "elmo_tokens" not in tokens.get(indexer, {}):
        found = ", ".join(f"{name} ({', '.join(tokens[name])})" for name in sorted(tokens))
        raise ConfigurationError(
            f"ELMo reads the indexer '{indexer}', expected of type 'elmo_character_ids', but the reader has "
            f'{found or "none"}. Put "{indexer}": {{"type": "elmo_character_ids"}} into '
            "dataset_reader.token_indexers."
        )
    return tokens[indexer]["elmo_tokens"]


def _dropout_by_place(dropout: Any) -> Dict[str, float]:
    by_place = dropout if isinstance(dropout, dict) else {"input": dropout, "output": dropout}
    are_probabilities = all(
        isinstance(value, (int, float)) and 0 <= value <= 1 for value in by_place.values()
    )
    if set(by_place) != set(PLACES_OF["both"]) or not are_probabilities:
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
