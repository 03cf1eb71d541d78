"""Which vectors of a sentence are written: those of all layers, or one vector per token, such as a mix."""

from functools import partial
from operator import itemgetter
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy
import torch
from torch.nn import Module

from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.kernels import AUTO
from elmo_plugin.embedding.pooling import check_pool, pool_tokens
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.scalar_mix import ScalarMix


class LayerChoice(NamedTuple):
    """
    A function from the layers of a sentence to the vectors that are written.

    # Parameters

    name : `str`
        Identifies the function: choices of the same name give the same vectors.
    function : `Callable[[numpy.ndarray], numpy.ndarray]`
        From layer activations `(num_layers, num_tokens, dim)` to an array of this shape or `(num_tokens,
        dim)`.
    pool : `str`, optional
        How one vector is made of those of the tokens after that, see `pool_tokens`. By default there is a
        vector for each token.
    """

    name: str
    function: Callable[[numpy.ndarray], numpy.ndarray]
    pool: Optional[str] = None

    def __call__(self, layers: numpy.ndarray) -> numpy.ndarray:
        """Return the vectors to write. With `pool` they have no dimension of tokens."""
        vectors = self.function(layers)
        return vectors if self.pool is None else pool_tokens(vectors, self.pool)

    def pooled(self, pool: Optional[str]) -> "LayerChoice":
        """Return this choice with another `pool`. Raise `ConfigurationError` for an unknown one."""
        check_pool(pool)
        return self._replace(pool=pool)

    def vector_shape(self, num_layers: int, dim: int) -> Tuple[int, ...]:
        """Return the shape of the vectors of one token or sentence: `(dim,)` or `(num_layers, dim)`."""
        shape = self.function(numpy.zeros((num_layers, 1, dim), dtype="float32")).shape
        return (*shape[:-2], shape[-1])


def _average(layers: numpy.ndarray) -> numpy.ndarray:
    return layers.mean(axis=0)


# Functions that can be pickled.
_CHOICES: Dict[str, LayerChoice] = {
    choice.name: choice
    for choice in (
        LayerChoice("all", numpy.asarray),
        LayerChoice("top", itemgetter(-1)),
        LayerChoice("average", _average),
    )
}


def layer_choice(name: str, pool: Optional[str] = None) -> LayerChoice:
    """
    Return the choice of this name: `all`, `top` (the last layer) or `average` (of all layers). With `pool`
    there is one vector for each sentence, see `LayerChoice`.
    """
    if name not in _CHOICES:
        raise ConfigurationError(
            f"output_format is '{name}', expected one of {', '.join(_CHOICES)}."
        )
    return _CHOICES[name].pooled(pool)


def learnt_mix(mix: ScalarMix, name: str) -> LayerChoice:
    """
    Return the choice that makes the weighted sum of layers that a task model learned (paper, eq. 1), gamma
    included.

    # Raises

    `ConfigurationError` if the mix normalises layers: the vector of a token then depends on the whole batch.
    """
    if mix.do_layer_norm:
        raise ConfigurationError(
            f"The mix '{name}' was learned with do_layer_norm, which makes the vectors of a sentence depend "
            "on the other sentences of its batch, expected a mix without it. Write the layers with --all."
        )
    with torch.no_grad():
        weights = (mix.gamma * mix.normalized_weights).cpu().numpy()  # (num_layers,)
    return LayerChoice(
        f"mix with weights {weights.tolist()}", partial(numpy.tensordot, weights, axes=1)
    )


class ArchivedMix(NamedTuple):
    """A mix of a trained model, its name (such as `text_encoder.elmo.input`), and the biLM that it mixes."""

    name: str
    mix: ScalarMix
    bilm: BiLM

    @property
    def place(self) -> str:
        """Where it is: `input` or `output` of the task's RNN, `embedder`, or else its name."""
        last = self.name.rsplit(".", 1)[-1]
        if last in ("input", "output"):
            return last
        return "embedder" if "token_embedder_" in last else self.name


def choose_mix(model: Module, archive_file: str, mix_name: Optional[str] = None) -> ArchivedMix:
    """
    Return the mix of this name in a model.

    # Parameters

    model : `Module`
        A trained model.
    archive_file : `str`
        Name of the model in errors.
    mix_name : `str`, optional
        The name of the mix, or its last part: `output` for `text_encoder.elmo.output`. Needed only if the
        model has several mixes.

    # Raises

    `ConfigurationError` listing the mixes, if none or several have this name.
    """
    mixes = mixes_in(model)
    if not mixes:
        raise _no_mix(model, archive_file)
    chosen = [mix for mix in mixes if mix_name is None or f".{mix.name}".endswith(f".{mix_name}")]
    if len(chosen) != 1:
        listing = ", ".join(mix.name for mix in mixes)
        found = "" if mix_name is None else f", {len(chosen)} of them named '{mix_name}'"
        raise ConfigurationError(
            f"{archive_file}: the model holds {len(mixes)} mixes ({listing}){found}, expected one. Name it "
            "with --mix-name; the last part of a name is enough if it is unique."
        )
    return chosen[0]


def mixes_in(model: Module) -> List[ArchivedMix]:
    """
    Return all mixes of a model whose `Elmo` runs a biLM, in the order of its modules. A mix has the name of
    the module of this package that holds the `Elmo`, or else of the `Elmo`.
    """
    from elmo_plugin.modules.elmo_token_embedder import ElmoTokenEmbedder
    from elmo_plugin.modules.placed_elmo import PlacedElmo

    names: Dict[int, List[str]] = {}  # names of the mixes of an `Elmo`, by its id
    mixes: List[ArchivedMix] = []
    # A parent comes before its children.
    for name, module in model.named_modules():
        if isinstance(module, PlacedElmo) and module.elmo is not None:
            names[id(module.elmo)] = [f"{name}.{place}" for place in module.places]
        elif isinstance(module, ElmoTokenEmbedder):
            names[id(module.elmo)] = [name]
        elif isinstance(module, Elmo) and isinstance(module.bilm, BiLM):
            num_mixes = module.num_output_representations
            numbered = [f"{name}.{number}" for number in range(num_mixes)]
            own_names = names.get(id(module), [name] if num_mixes == 1 else numbered)
            for own_name, mix in zip(own_names, module.scalar_mixes):
                mixes.append(ArchivedMix(own_name, mix, module.bilm))
    return mixes


def frozen_copy(
    bilm: BiLM, stateful: bool = False, precision: str = "float32", kernel: str = AUTO
) -> BiLM:
    """Return a copy of a biLM for inference: frozen, and with these settings of `BiLM`."""
    copy = BiLM(bilm.options, stateful, precision=precision, kernel=kernel)
    weights = bilm.state_dict()
    weights.pop(
        "word_embedding.weight", None
    )  # the copy reads characters, and has no fixed vocabulary
    copy.load_state_dict(weights)
    return copy.requires_grad_(False)


def _no_mix(model: Module, archive_file: str) -> ConfigurationError:
    from allennlp.modules.elmo import Elmo as AllenNlpElmo

    if any(isinstance(module, AllenNlpElmo) for module in model.modules()):
        return ConfigurationError(
            f"{archive_file}: the model's ELMo is AllenNLP's own, expected type 'elmo'. Override the type, "
            """for instance: --overrides '{"model.text_field_embedder.token_embedders.elmo.type": "elmo"}'"""
        )
    return ConfigurationError(
        f"{archive_file}: the model holds no mix, expected a task model with ELMo. For the layers of a "
        "pretrained biLM, export it with elmo-export and give its files with --all, --top or --average."
    )
