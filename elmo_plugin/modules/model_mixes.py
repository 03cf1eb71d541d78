"""Find the mixes of layers in a trained model, and the biLM that each one mixes."""

from typing import Dict, List, NamedTuple, Optional

from allennlp.modules.elmo import Elmo as AllenNlpElmo
from torch.nn import Module

from elmo_plugin.bilm import BiLM
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.modules.elmo import Elmo
from elmo_plugin.modules.elmo_token_embedder import ElmoTokenEmbedder
from elmo_plugin.modules.scalar_mix import ScalarMix
from elmo_plugin.modules.text_encoder import PlacedElmo


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
    Return the mix of this name in a trained model, which errors call `archive_file`. The last part of a name
    is enough, such as `output` for `text_encoder.elmo.output`, and no name if the model has only one mix.

    # Raises

    `ConfigurationError` without a mix; and listing the mixes, if none or several have this name.
    """
    mixes = mixes_in(model, archive_file)
    chosen = [mix for mix in mixes if mix_name is None or f".{mix.name}".endswith(f".{mix_name}")]
    if len(chosen) != 1:
        listing = ", ".join(mix.name for mix in mixes)
        found = "" if mix_name is None else f", {len(chosen)} of them named '{mix_name}'"
        raise ConfigurationError(
            f"{archive_file}: the model holds {len(mixes)} mixes ({listing}){found}, expected one. Name it "
            "with --mix-name; the last part of a name is enough if it is unique."
        )
    return chosen[0]


def mixes_in(model: Module, archive_file: str) -> List[ArchivedMix]:
    """
    Return all mixes of a trained model whose `Elmo` runs a biLM, in the order of its modules. A mix has the
    name of the module of this package that holds the `Elmo`, or else of the `Elmo`. Raise
    `ConfigurationError`, which calls the model `archive_file`, if there is none.
    """
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
    if mixes:
        return mixes
    if any(isinstance(module, AllenNlpElmo) for module in model.modules()):
        raise ConfigurationError(
            f"{archive_file}: the model's ELMo is AllenNLP's own, expected type 'elmo'. Override the type, "
            """for instance: --overrides '{"model.text_field_embedder.token_embedders.elmo.type": "elmo"}'."""
            " In a model's own code, import Elmo from elmo_plugin."
        )
    raise ConfigurationError(
        f"{archive_file}: the model holds no mix, expected a task model with ELMo, not a baseline without it "
        "or a pretrained biLM, whose layers `elmo embed --model` writes after `elmo export`."
    )
