"""The scalar mixes that a trained model holds, each with the biLM that it was learnt for."""

from typing import Dict, List, NamedTuple, Optional

from torch.nn import Module

from elmo_plugin.bilm import BiLM
from elmo_plugin.bilm.kernels import AUTO
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.scalar_mix import ScalarMix


class ArchivedMix(NamedTuple):
    """
    A mix of a trained model.

    # Parameters

    name : `str`
        Where it stands in the model, such as `text_encoder.elmo.input`.
    mix : `ScalarMix`
        The learnt weights.
    bilm : `BiLM`
        Whose layers they weigh.
    """

    name: str
    mix: ScalarMix
    bilm: BiLM


def choose_mix(model: Module, archive_file: str, mix_name: Optional[str] = None) -> ArchivedMix:
    """
    The mix of this name.

    # Parameters

    model : `Module`
        A trained model.
    archive_file : `str`
        Names the model in errors.
    mix_name : `str`, optional
        The name of the mix, or its end: `output` for `text_encoder.elmo.output`. Needed only if the model
        holds several.

    # Raises

    `ConfigurationError` listing the mixes, if there is none or several of that name.
    """
    mixes = mixes_in(model)
    if not mixes:
        raise _no_mix(model, archive_file)
    chosen = [mix for mix in mixes if mix_name is None or _is_end_of(mix_name, mix.name)]
    if len(chosen) != 1:
        listing = ", ".join(mix.name for mix in mixes)
        found = "" if mix_name is None else f", {len(chosen)} of them named '{mix_name}'"
        raise ConfigurationError(
            f"{archive_file}: the model holds {len(mixes)} mixes ({listing}){found}, expected one. Say which "
            "with --mix-name; the end of a name is enough where no other ends so."
        )
    return chosen[0]


def mixes_in(model: Module) -> List[ArchivedMix]:
    """All mixes of `Elmo`s in a model that run a biLM, in the order of its modules."""
    mixes: List[ArchivedMix] = []
    names = _names_of_elmos(model)
    for elmo in model.modules():
        if isinstance(elmo, Elmo) and isinstance(elmo.bilm, BiLM):
            for name, mix in zip(names[id(elmo)], elmo.scalar_mixes):
                mixes.append(ArchivedMix(name, mix, elmo.bilm))
    return mixes


def frozen_copy(
    bilm: BiLM, stateful: bool = False, precision: str = "float32", kernel: str = AUTO
) -> BiLM:
    """
    The same biLM for inference, whatever its training was: frozen, and with these settings of `BiLM`.

    # Raises

    `ConfigurationError` for an unknown precision or kernel, or one that this machine lacks.
    """
    copy = BiLM(bilm.options, stateful, precision=precision, kernel=kernel)
    weights = bilm.state_dict()
    weights.pop("word_embedding.weight", None)  # of a fixed vocabulary; here words are spelled
    copy.load_state_dict(weights)
    return copy.requires_grad_(False)


def _names_of_elmos(model: Module) -> Dict[int, List[str]]:
    """For each `Elmo`, by identity, the names of its mixes: those of what holds it, where we know that."""
    from elmo_plugin.modules.elmo_token_embedder import ElmoTokenEmbedder
    from elmo_plugin.modules.placed_elmo import PlacedElmo

    names: Dict[int, List[str]] = {}
    # A parent comes before its children.
    for name, module in model.named_modules():
        if isinstance(module, PlacedElmo) and module.elmo is not None:
            names[id(module.elmo)] = [f"{name}.{place}" for place in module.places]
        elif isinstance(module, ElmoTokenEmbedder):
            names[id(module.elmo)] = [name]
        elif isinstance(module, Elmo) and id(module) not in names:
            numbers = range(module.num_output_representations)
            names[id(module)] = (
                [name] if len(numbers) == 1 else [f"{name}.{number}" for number in numbers]
            )
    return names


def _is_end_of(end: str, name: str) -> bool:
    return name == end or name.endswith(f".{end}")


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
