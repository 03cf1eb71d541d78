"""
Where spaCy finds the component `elmo`.

spaCy imports the modules of all its entry points whenever a pipeline is made. This one imports the package,
and with it AllenNLP and torch, only when the component is used.
"""

from typing import Any, List, Optional

from spacy.language import Language


@Language.factory("elmo", assigns=["doc.tensor", "doc._.elmo_layers", "token.vector"])
def make_elmo(
    nlp: Language,
    name: str,
    options_file: Optional[str] = None,
    weight_file: Optional[str] = None,
    layers: str = "mix",
    mix_weights: Optional[List[float]] = None,
    gamma: float = 1.0,
    by_sentence: bool = True,
    batch_size: Optional[int] = 64,
    batch_tokens: Optional[int] = None,
    cuda_device: int = -1,
    precision: str = "float32",
    kernel: str = "auto",
) -> Any:
    """An `elmo_plugin.embedding.spacy_component.ElmoComponent`, which says what the arguments mean."""
    from elmo_plugin.embedding.spacy_component import ElmoComponent

    return ElmoComponent(
        nlp,
        name,
        options_file=options_file,
        weight_file=weight_file,
        layers=layers,
        mix_weights=mix_weights,
        gamma=gamma,
        by_sentence=by_sentence,
        batch_size=batch_size,
        batch_tokens=batch_tokens,
        cuda_device=cuda_device,
        precision=precision,
        kernel=kernel,
    )
