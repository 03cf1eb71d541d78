"""AllenNLP's names and layouts of the parameters of a biLM."""

from typing import Any, Dict

import torch
from torch import Tensor

# AllenNLP's names of the parameters of a character encoder, and ours.
_RENAMED = (
    ("_token_embedder._char_embedding_weights", "character_encoder.character_embedding.weight"),
    ("_token_embedder.char_conv_", "character_encoder.convolutions."),
    ("_token_embedder._projection", "character_encoder.projection"),
)


def highway_parameters(highway: str, kind: str, theirs: Tensor) -> Dict[str, Tensor]:
    """
    Return the parameters of a `Highway` of this name, of a kind (`weight` or `bias`), from those of AllenNLP,
    which stacks both gates, and whose gate opens the other path.
    """
    transform, negative_carry = theirs.tensor_split(2)
    return {
        f"{highway}.transform.{kind}": transform.clone(),
        f"{highway}.carry.{kind}": -negative_carry,
    }


def translate_allennlp_bilm(
    bilm: torch.nn.Module, state_dict: Dict[str, Tensor], prefix: str, *unused: Any
) -> None:
    """
    Rename and reshape, in place, what AllenNLP's `_ElmoBiLm` saved under `prefix`. A state dict of `BiLM`
    does not change.

    A `load_state_dict` pre-hook of `BiLM`: archives that were trained with `elmo_token_embedder` load
    without conversion, and so do the LSTMs of ELMoForManyLangs, which have the same names.
    """
    for full_name in [name for name in state_dict if name.startswith(prefix)]:
        name = full_name[len(prefix) :]
        if name.startswith("_token_embedder._highways._layers."):
            number, kind = name.split(".")[-2:]
            highway = f"{prefix}character_encoder.highways.{number}"
            state_dict.update(highway_parameters(highway, kind, state_dict.pop(full_name)))
        elif name.startswith("_token_embedder."):
            for theirs, ours in _RENAMED:
                name = name.replace(theirs, ours)
            state_dict[prefix + name] = state_dict.pop(full_name)
        elif name.startswith("_elmo_lstm.") and name.endswith(".input_linearity.weight"):
            theirs = full_name.removesuffix(".input_linearity.weight")
            direction, number = name.split(".")[1].split("_layer_")
            layer = f"{prefix}{direction}_layers.{number}"
            weights = [
                state_dict.pop(f"{theirs}.{kind}_linearity.weight") for kind in ("input", "state")
            ]
            state_dict[f"{layer}.gate_weight"] = with_swapped_gates(torch.cat(weights, dim=1))
            bias = state_dict.pop(f"{theirs}.state_linearity.bias").clone()
            # AllenNLP stores the forget bias with TensorFlow's constant 1 added.
            bias.chunk(4)[1].sub_(1.0)
            state_dict[f"{layer}.gate_bias"] = with_swapped_gates(bias)
            state_dict[f"{layer}.projection"] = state_dict.pop(f"{theirs}.state_projection.weight")


def with_swapped_gates(gates: Tensor) -> Tensor:
    """Convert gates from torch's order (i, f, g, o) to TensorFlow's (i, g, f, o), or back."""
    i, second, third, o = gates.chunk(4)
    return torch.cat([i, third, second, o])
