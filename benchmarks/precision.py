"""
Measure how far the activations of a biLM in each precision are from float32 on the reference kernel.

    python benchmarks/precision.py --text DATA/lm/wikitext/heldout.txt --bilm elmo_mini
"""

import argparse
from typing import Any, Dict, Iterator, List, Optional

import torch
from measurement import (
    RANDOM,
    Sentence,
    Table,
    bilm_title,
    float32_files,
    frozen_bilm,
    num_words,
    read_sentences,
    run_benchmark,
)
from torch import Tensor
from torch.nn.functional import cosine_similarity

from elmo_plugin import batch_to_ids
from elmo_plugin.bilm import BiLMOptions

BATCH_SIZE = 32
NUM_SENTENCES = 1000
NUM_SENTENCES_OF_RANDOM = 100  # of a large biLM, for which the reference kernel is slow


def main(argv: Optional[List[str]] = None) -> None:
    names = ("text", "bilm", "precisions", "kernel", "threads")
    run_benchmark(__doc__, names, tables, argv)


def tables(settings: argparse.Namespace) -> Iterator[Table]:
    """Yield one table: errors of each precision and layer."""
    num_sentences = NUM_SENTENCES_OF_RANDOM if settings.bilm == RANDOM else NUM_SENTENCES
    sentences = read_sentences(settings.text)[:num_sentences]
    rows = []
    with float32_files(settings.bilm) as files:
        title = bilm_title(settings.bilm, BiLMOptions.from_file(files[0]))
        exact = activations(frozen_bilm(files, "float32", "reference"), sentences)
        for precision in settings.precisions:
            found = activations(frozen_bilm(files, precision, settings.kernel), sentences)
            for layer, pair in enumerate(zip(found, exact)):
                rows.append({"precision": precision, "layer": layer, **error_of(*pair)})
    yield Table(
        f"What a lower precision changes, {title}",
        rows,
        f"Activations on the first {len(sentences):,} sentences ({num_words(sentences):,} words), sentence "
        "marks included. Relative error: the Frobenius norm of the difference over that of the activations. "
        "Largest difference: beside the largest activation.",
    )


@torch.no_grad()
def activations(bilm: Any, sentences: List[Sentence]) -> List[Tensor]:
    """Return the activations of each layer, `(num_tokens, dim)`."""
    batches = []
    for start in range(0, len(sentences), BATCH_SIZE):
        output = bilm(batch_to_ids(sentences[start : start + BATCH_SIZE]))
        batches.append([layer[output["mask"]] for layer in output["activations"]])
    return [torch.cat(layers) for layers in zip(*batches)]


def error_of(found: Tensor, exact: Tensor) -> Dict[str, str]:
    """Return the cells of a layer."""
    difference = (found - exact).double()
    cosines = cosine_similarity(found.double(), exact.double(), dim=1)  # (num_tokens,)
    return {
        "relative error": f"{difference.norm() / exact.double().norm():.2g}",
        "largest difference": f"{difference.abs().max():.2g} of {exact.abs().max():.1f}",
        "cosine, mean": f"{cosines.mean():.6f}",
        "cosine, smallest": f"{cosines.min():.6f}",
    }


if __name__ == "__main__":
    main()
