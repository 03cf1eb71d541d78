"""ELMo with the places where a text encoder adds it."""

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


class PlacedElmo(torch.nn.Module, FromParams):
    """
    ELMo at the input of a task RNN, at its output, at both or at none, with its own mix for each place
    over one pass of the biLM (paper, section 3.3).

    In a config, `placement` and `indexer` stand beside the arguments of `Elmo`, but for
    `num_output_representations`, which follows from `placement`. With `none` no file is read.

    # Parameters

    elmo : `Elmo`, optional
        With one representation per place; `None` for no place.
    placement : `str`, optional (default = `"input"`)
        `input`, `output`, `both` or `none`.
    indexer : `str`, optional (default = `"elmo"`)
        The name under which the reader's `token_indexers` hold the `elmo_characters` indexer.

    # Raises

    `ConfigurationError` if `placement` is another word, or the number of representations does not fit it.
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
        if "num_output_representations" in params:
            raise ConfigurationError(
                "elmo.num_output_representations follows from elmo.placement. Leave it out."
            )
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
        characters = tokens.get(self.indexer, {}).get("elmo_tokens")
        if characters is None:
            raise ConfigurationError(
                f"ELMo needs an indexer of type 'elmo_characters' under the name '{self.indexer}', but the "
                f"reader's token_indexers are: {', '.join(sorted(tokens)) or 'none'}. Add "
                f'"{self.indexer}": {{"type": "elmo_characters"}} to dataset_reader.token_indexers, or name '
                "the right one as elmo.indexer."
            )
        representations = self.elmo(characters)["elmo_representations"]
        return dict(zip(self.places, representations)), others


def _places_of(placement: Any) -> Tuple[str, ...]:
    if not isinstance(placement, str) or placement not in PLACES_OF:
        raise ConfigurationError(
            f"elmo.placement is {placement!r}, expected one of {', '.join(PLACES_OF)}."
        )
    return PLACES_OF[placement]
