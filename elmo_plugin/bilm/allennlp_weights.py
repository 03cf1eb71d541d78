"""State dicts of AllenNLP's own ELMo, and of ours in an earlier form, read as ours."""

import re
from typing import Any, Dict

import torch
from torch import Tensor


def translate_allennlp_bilm(
    bilm: torch.nn.Module, state_dict: Dict[str, Tensor], prefix: str, *unused: Any
) -> None:
    """
    Rename and reshape, in place, what AllenNLP's `_ElmoBiLm` saved under `prefix`.

    A `load_state_dict` pre-hook of `BiLM`: archives that were trained with `elmo_token_embedder` load
    without conversion. A state dict of our own is left as it is.
    """
    _translate_earlier_names(state_dict, prefix)
    embedding_name = f"{prefix}_token_embedder._char_embedding_weights"
    if embedding_name not in state_dict:
        return
    encoder = f"{prefix}character_encoder"
    state_dict[f"{encoder}.character_embedding.weight"] = state_dict.pop(embedding_name)
    for name in [name for name in state_dict if name.startswith(prefix)]:
        owner, _, kind = name[len(prefix) :].rpartition(".")
        if owner.startswith("_token_embedder.char_conv_"):
            index = owner[len("_token_embedder.char_conv_") :]
            state_dict[f"{encoder}.convolutions.{index}.{kind}"] = state_dict.pop(name)
        elif owner.startswith("_token_embedder._highways._layers."):
            index = owner[len("_token_embedder._highways._layers.") :]
            # AllenNLP stacks both gates, and its gate opens the other path.
            transform, negative_carry = state_dict.pop(name).chunk(2)
            state_dict[f"{encoder}.highways.{index}.transform.{kind}"] = transform.clone()
            state_dict[f"{encoder}.highways.{index}.carry.{kind}"] = -negative_carry
        elif owner == "_token_embedder._projection":
            state_dict[f"{encoder}.projection.{kind}"] = state_dict.pop(name)
        elif owner == "_word_embedding":
            state_dict[f"{prefix}word_embedding.{kind}"] = state_dict.pop(name)
    for direction in ("forward", "backward"):
        layer = 0
        while f"{prefix}_elmo_lstm.{direction}_layer_{layer}.input_linearity.weight" in state_dict:
            theirs = f"{prefix}_elmo_lstm.{direction}_layer_{layer}"
            ours = f"{prefix}{direction}_layers.{layer}"
            input_weight = state_dict.pop(f"{theirs}.input_linearity.weight")
            state_weight = state_dict.pop(f"{theirs}.state_linearity.weight")
            weight = torch.cat([input_weight, state_weight], dim=1)
            state_dict[f"{ours}.gate_weight"] = with_swapped_gates(weight)
            bias = state_dict.pop(f"{theirs}.state_linearity.bias").clone()
            # AllenNLP stores the forget bias with TensorFlow's constant 1 added.
            bias.chunk(4)[1].sub_(1.0)
            state_dict[f"{ours}.gate_bias"] = with_swapped_gates(bias)
            state_dict[f"{ours}.projection"] = state_dict.pop(f"{theirs}.state_projection.weight")
            layer += 1


def with_swapped_gates(gates: Tensor) -> Tensor:
    """From torch's order of gates, i, f, g, o, to TensorFlow's, i, g, f, o; and back."""
    i, second, third, o = gates.chunk(4)
    return torch.cat([i, third, second, o])


def _translate_earlier_names(state_dict: Dict[str, Tensor], prefix: str) -> None:
    """Layers once had a `weight` and a `bias` with the gates in torch's order."""
    earlier = re.compile(re.escape(prefix) + r"(forward|backward)_layers\.\d+\.(weight|bias)")
    for name in [name for name in state_dict if earlier.fullmatch(name)]:
        owner, _, kind = name.rpartition(".")
        state_dict[f"{owner}.gate_{kind}"] = with_swapped_gates(state_dict.pop(name))
