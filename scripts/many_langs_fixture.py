"""
Write random models of ELMoForManyLangs, and the vectors that its own code gives for sentences.

    pip install --no-deps elmoformanylangs==0.0.4.post2 overrides==3.1.0
    python scripts/many_langs_fixture.py fixtures/bilm/many_langs

The folder must hold sentences.txt.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Dict, List

import numpy
import torch
from elmoformanylangs import Embedder
from elmoformanylangs.frontend import Model
from elmoformanylangs.modules.embedding_layer import EmbeddingLayer

from elmo_plugin.files.text import split_tokens

SPECIALS = ["<oov>", "<bos>", "<eos>", "<pad>", "<bow>", "<eow>"]


def config(encoder: Dict[str, Any], token_embedder: Dict[str, Any]) -> Dict[str, Any]:
    """The sizes of a model, with these changes."""
    return {
        "encoder": {
            "name": "elmo",
            "projection_dim": 6,
            "dim": 10,
            "n_layers": 2,
            "cell_clip": 1.5,
            "proj_clip": 0.6,
            **encoder,
        },
        "token_embedder": {
            "name": "cnn",
            "activation": "relu",
            "filters": [[1, 3], [2, 4], [3, 6]],
            "n_highway": 2,
            "word_dim": 7,
            "char_dim": 5,
            "max_characters_per_token": 50,
            **token_embedder,
        },
        "dropout": 0.1,
    }


MODELS = {
    "both": config({}, {}),
    "characters": config(
        {"cell_clip": 0, "proj_clip": 0, "n_layers": 1},
        {"word_dim": 0, "activation": "tanh", "n_highway": 1, "max_characters_per_token": 12},
    ),
    "words": config({"n_layers": 3}, {"char_dim": 0, "name": "lstm"}),
}


def write_model(folder: Path, sizes: Dict[str, Any], sentences: List[List[str]]) -> None:
    """Write a model that knows every second word and character of the sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    # A path of another machine, as in the published models.
    (folder / "config.json").write_text('{"config_path": "/home/trainer/configs/sizes.json"}\n')
    (folder / "sizes.json").write_text(json.dumps(sizes, indent=2) + "\n")
    words = {word for sentence in sentences for word in sentence}
    layers = {}
    for kind, entries in (("word", words), ("char", {c for word in words for c in word})):
        layers[kind] = None
        dim = sizes["token_embedder"][f"{kind}_dim"]
        if dim:
            numbered = [*SPECIALS, *sorted(entries - set(SPECIALS))[::2]]
            lines = [f"{entry}\t{number}\n" for number, entry in enumerate(numbered)]
            (folder / f"{kind}.dic").write_text("".join(lines), encoding="utf-8")
            ids = {entry: number for number, entry in enumerate(numbered)}
            layers[kind] = EmbeddingLayer(dim, ids, fix_emb=False)
    model = Model(sizes, layers["word"], layers["char"])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    for name in ("token_embedder", "encoder"):
        # torch 0.4, which trained the published models, wrote no zip files.
        torch.save(
            getattr(model, name).state_dict(),
            folder / f"{name}.pkl",
            _use_new_zipfile_serialization=False,
        )


def vectors_of(folder: Path, sentences: List[List[str]]) -> List[numpy.ndarray]:
    """All layers of each sentence. One batch: ELMoForManyLangs carries states from one to the next."""
    embedder = Embedder(str(folder), batch_size=len(sentences))
    return embedder.sents2elmo([list(sentence) for sentence in sentences], output_layer=-2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    lines = (folder / "sentences.txt").read_text(encoding="utf-8").splitlines()
    sentences = [split_tokens(line) for line in lines]
    for name, sizes in MODELS.items():
        write_model(folder / name, sizes, sentences)
        numpy.savez(folder / name / "vectors.npz", *vectors_of(folder / name, sentences))


if __name__ == "__main__":
    main()
