"""ELMo with the places where a text encoder adds it."""

import inspect
from typing import Any, Callable, Dict, Optional, Tuple, Union

import torch
from allennlp.common import FromParams, Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors
from torch import Tensor

from elmo_plugin.modules.elmo import Elmo

PLACES_OF = {
    "none": (),
    "input": ("input",),
    "output": ("output",),
    "both": ("input", "output"),
}

# Arguments of `Elmo` that make no sense here.
REFUSED_KEYS = {
    "num_output_representations": "follows from elmo.placement",
    "keep_sentence_boundaries": "would give more steps than there are tokens",
    "vocab_to_cache": "needs word ids, which a text encoder does not pass; words are remembered anyway",
    "module": "cannot be given in a config",
    "serialization_dir": "is filled in by AllenNLP",
}


class PlacedElmo(torch.nn.Module, FromParams):
    """
    ELMo at the input of a task RNN, at its output, at both or at none, with its own mix for each place
    over one pass of the biLM (paper, section 3.3).

    In a config, `placement` and `indexer` stand beside the arguments of `Elmo`, but for those of
    `REFUSED_KEYS`; `dropout`, 0.5 by default there, is that of this class. With `none` no file is read.

    # Parameters

    elmo : `Elmo`, optional
        With one representation per place; `None` for no place.
    placement : `str`, optional (default = `"input"`)
        `input`, `output`, `both` or `none`.
    indexer : `str`, optional (default = `"elmo"`)
        The name under which the reader's `token_indexers` hold the `elmo_character_ids` indexer, or
        AllenNLP's `elmo_characters`.
    dropout : `float` or `Dict[str, float]`, optional (default = `0.0`)
        Dropout on ELMo representations: one value, or one for each of `input` and `output`. 0 is right where
        the next layer drops what it reads, as a text encoder with `dropout` does at the input: ELMo that is
        dropped twice by 0.5 keeps a quarter of its units.

    # Raises

    `ConfigurationError` if `placement` is another word, the number of representations does not fit it, a
    dropout is not between 0 and 1, or the config has another key.
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
            params["dropout"] = 0.0  # it is applied here, for each place
            elmo = Elmo.from_params(params, num_output_representations=len(places), **extras)
        return cls(
            elmo, placement, indexer, dropout.as_dict() if isinstance(dropout, Params) else dropout
        )

    def get_output_dim(self, place: str) -> int:
        """How much wider ELMo makes the vectors at `place`, `input` or `output`."""
        if self.elmo is None or place not in self.places:
            return 0
        return self.elmo.get_output_dim()

    def split(self, tokens: TextFieldTensors) -> Tuple[Dict[str, Tensor], TextFieldTensors]:
        """
        Run the biLM once, and set its characters apart from what other embedders get.

        # Parameters

        tokens : `TextFieldTensors`
            A text field with the `elmo_character_ids` indexer among its indexers.

        # Returns

        For each place its ELMo representation, `(batch_size, timesteps, dim)`; and the text field without
        ELMo's characters.

        # Raises

        `ConfigurationError` if ELMo has a place, but the text field has no such indexer.
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
    The character ids of a text field, `(batch_size, timesteps, 50)`.

    # Raises

    `ConfigurationError` if `indexer` is not the name of such an indexer.
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
    """Refuse keys that a text encoder decides itself or cannot use, and misspelt ones, whatever the place."""
    for key, reason in REFUSED_KEYS.items():
        if key in params:
            raise ConfigurationError(
                f"elmo.{key} {reason}. Leave it out of the text encoder's elmo."
            )
    known = [key for key in inspect.signature(Elmo.__init__).parameters if key != "self"]
    unknown = sorted(set(params.keys()) - set(known))
    if unknown:
        raise ConfigurationError(
            f"elmo.{unknown[0]} is no argument of ELMo, expected some of: placement, indexer, "
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
