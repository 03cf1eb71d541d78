"""ELMo with the places where a text encoder adds it."""

import inspect
from typing import Any, Callable, Dict, Optional, Tuple

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
    `REFUSED_KEYS`. With `none` no file is read.

    # Parameters

    elmo : `Elmo`, optional
        With one representation per place; `None` for no place.
    placement : `str`, optional (default = `"input"`)
        `input`, `output`, `both` or `none`.
    indexer : `str`, optional (default = `"elmo"`)
        The name under which the reader's `token_indexers` hold the `elmo_characters` indexer.

    # Raises

    `ConfigurationError` if `placement` is another word, the number of representations does not fit it, or
    the config has another key.
    """

    def __init__(
        self, elmo: Optional[Elmo], placement: str = "input", indexer: str = "elmo"
    ) -> None:
        super().__init__()
        self.places = _places_of(placement)
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
        places = _places_of(placement)
        _check_keys(params)
        # One name may stand for both files.
        for key in ("options_file", "weight_file"):
            params.setdefault(key, None)
        elmo: Optional[Elmo] = None
        if places:
            elmo = Elmo.from_params(params, num_output_representations=len(places), **extras)
        return cls(elmo, placement, indexer)

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
            A text field with the `elmo_characters` indexer among its indexers.

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
        return dict(zip(self.places, representations)), others


def elmo_characters(tokens: TextFieldTensors, indexer: str) -> Tensor:
    """
    The character ids of a text field, `(batch_size, timesteps, 50)`.

    # Raises

    `ConfigurationError` if `indexer` is not the name of an `elmo_characters` indexer.
    """
    if indexer not in tokens:
        found = f"has no such indexer, only {', '.join(sorted(tokens)) or 'none'}"
    elif "elmo_tokens" not in tokens[indexer]:
        found = f"has an indexer of another type there, which gives {', '.join(tokens[indexer])}"
    else:
        return tokens[indexer]["elmo_tokens"]
    raise ConfigurationError(
        f"ELMo reads the indexer '{indexer}', expected of type 'elmo_characters', but the reader {found}. "
        f'Put "{indexer}": {{"type": "elmo_characters"}} into dataset_reader.token_indexers.'
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


def _places_of(placement: Any) -> Tuple[str, ...]:
    if not isinstance(placement, str) or placement not in PLACES_OF:
        raise ConfigurationError(
            f"elmo.placement is {placement!r}, expected one of {', '.join(PLACES_OF)}."
        )
    return PLACES_OF[placement]
