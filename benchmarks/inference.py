"""
Compare our frozen ELMo with allennlp.modules.elmo.Elmo, in one process, with the same weights and text.

  batches      4 batches of 32 sentences in the order of the file; no word is known at first
  single       16 sentences, one at a time; all words are known
  fine_tuning  a step on 32 sentences, forward and backward, in float32

Contenders take turns; before anything is timed, representations and gradients must agree. Run nothing else
meanwhile. With random weights it takes some twenty minutes on two cores; `--rounds 1` is a first impression.

    python benchmarks/inference.py --text DATA/lm/wikitext/heldout.txt --bilm elmo_mini
"""

import argparse
from typing import Callable, Dict, Iterator, List, Optional, Tuple

import allennlp.modules.elmo
import torch
from measurement import (
    ALLENNLP,
    FLOAT32,
    OPTIONS,
    Run,
    Sentence,
    Table,
    bilm_title,
    float32_files,
    num_words,
    read_sentences,
    run_benchmark,
    running_in,
    spread_note,
    time_in_turns,
)
from torch import Tensor
from torch.nn import Module

from elmo_plugin import Elmo, batch_to_ids
from elmo_plugin.bilm import BiLMOptions

TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-3  # of the norm, relative
ROWS_PER_BATCH = 32
NUM_BATCHES, NUM_SINGLE = 4, 16

OPTIONS["cases"] = {
    "nargs": "+",
    "choices": ("batches", "single", "fine_tuning"),
    "default": ["batches", "single", "fine_tuning"],
    "help": "what to measure, see above (default: all)",
}


class DisagreementError(Exception):
    """The contenders do not compute the same, so their times mean nothing."""


def main(argv: Optional[List[str]] = None) -> None:
    run_benchmark(__doc__, list(OPTIONS), tables, argv)


def tables(settings: argparse.Namespace) -> Iterator[Table]:
    """Yield one table: times of each case, and multiples of AllenNLP's speed."""
    sentences = read_sentences(settings.text)
    with float32_files(settings.bilm) as files:
        contenders = Contenders(files, settings)
        difference = contenders.check_representations(sentences[:ROWS_PER_BATCH])
        rows, measurements = [], []
        for case in settings.cases:
            num_tokens, runs = CASES[case](contenders, sentences)
            measured = time_in_turns(case, runs, settings.rounds, settings.seconds)
            measurements += measured.values()
            baseline = measured[ALLENNLP].median
            row = {"case": case, "tokens": num_tokens, "AllenNLP, ms": round(1000 * baseline, 1)}
            for name in settings.precisions:
                if name in measured:
                    row[f"{name}, ms"] = round(1000 * measured[name].median, 1)
                    row[f"{name}, times"] = round(baseline / measured[name].median, 2)
            rows.append(row)
        title = bilm_title(settings.bilm, BiLMOptions.from_file(files[0]))
    yield Table(
        f"Beside AllenNLP's ELMo, {title}",
        rows,
        f"`times`: multiples of AllenNLP's speed. On the first batch float32 is within {difference:.1e} of "
        f"AllenNLP's. {spread_note(measurements)}",
    )


class Contenders:
    """AllenNLP's `Elmo`, and ours in each precision, with the same weights."""

    def __init__(self, files: Tuple[str, str], settings: argparse.Namespace) -> None:
        # float32 means float32 to all: on a GPU products would be rounded to TF32 by default.
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        self.files, self.kernel = files, settings.kernel
        self.device = torch.device(settings.device)
        self.allennlp = self.new_allennlp()
        self.ours = {precision: self.new_ours(precision) for precision in settings.precisions}
        for precision, elmo in self.ours.items():
            running_in(precision, elmo.snapshot)

    def new_allennlp(self, requires_grad: bool = False) -> Module:
        elmo = allennlp.modules.elmo.Elmo(*self.files, 1, requires_grad, dropout=0.0)
        return elmo.eval().to(self.device)

    def new_ours(self, precision: str, requires_grad: bool = False) -> Elmo:
        elmo = Elmo(
            *self.files, 1, requires_grad, dropout=0.0, precision=precision, kernel=self.kernel
        )
        return elmo.eval().to(self.device)

    @torch.no_grad()
    def check_representations(self, sentences: List[Sentence]) -> float:
        """Return the largest difference in float32; an error if it is large."""
        ids = batch_to_ids(sentences).to(self.device)
        ours = self.ours.get(FLOAT32) or self.new_ours(FLOAT32)
        difference = (represent(ours, ids) - represent(self.allennlp, ids)).abs().max().item()
        check_agreement(difference, TOLERANCE, "representations of the first batch")
        return difference

    def embedding_runs(
        self, batches: List[List[Sentence]], words_are_known: bool
    ) -> Dict[str, Run]:
        all_ids = [batch_to_ids(batch).to(self.device) for batch in batches]

        @torch.no_grad()
        def run(elmo: Module) -> None:
            if not words_are_known and isinstance(elmo, Elmo):
                forget_words(elmo)
            for ids in all_ids:
                represent(elmo, ids)

        contenders = {ALLENNLP: self.allennlp, **self.ours}
        return {name: (lambda elmo=elmo: run(elmo)) for name, elmo in contenders.items()}


def forget_words(elmo: Elmo) -> None:
    if elmo.snapshot is not None:
        elmo.snapshot.word_vectors.clear()


def batches(contenders: Contenders, sentences: List[Sentence]) -> Tuple[int, Dict[str, Run]]:
    sentences = sentences[: NUM_BATCHES * ROWS_PER_BATCH]
    starts = range(0, len(sentences), ROWS_PER_BATCH)
    all_batches = [sentences[start : start + ROWS_PER_BATCH] for start in starts]
    return num_words(sentences), contenders.embedding_runs(all_batches, words_are_known=False)


def single(contenders: Contenders, sentences: List[Sentence]) -> Tuple[int, Dict[str, Run]]:
    sentences = sentences[:NUM_SINGLE]
    all_batches = [[sentence] for sentence in sentences]
    return num_words(sentences), contenders.embedding_runs(all_batches, words_are_known=True)


def fine_tuning(contenders: Contenders, sentences: List[Sentence]) -> Tuple[int, Dict[str, Run]]:
    """The norms of the gradients must agree, too."""
    sentences = sentences[:ROWS_PER_BATCH]
    ids = batch_to_ids(sentences).to(contenders.device)
    trainable = {
        ALLENNLP: contenders.new_allennlp(requires_grad=True),
        FLOAT32: contenders.new_ours(FLOAT32, requires_grad=True),
    }

    def step(elmo: Module) -> Tensor:
        represent(elmo, ids).sum().backward()
        gradients = [weight.grad for weight in elmo.parameters() if weight.grad is not None]
        # Now rather than before the next step: a contender that waits holds no gradients.
        elmo.zero_grad(set_to_none=True)
        return torch.nn.utils.get_total_norm(gradients)

    expected, found = (float(step(elmo)) for elmo in trainable.values())
    difference = abs(found - expected) / expected
    check_agreement(difference, GRADIENT_TOLERANCE, "norms of the gradients, relatively,")
    return num_words(sentences), {
        name: (lambda elmo=elmo: step(elmo)) for name, elmo in trainable.items()
    }


CASES: Dict[str, Callable[[Contenders, List[Sentence]], Tuple[int, Dict[str, Run]]]] = {
    "batches": batches,
    "single": single,
    "fine_tuning": fine_tuning,
}


def represent(elmo: Module, ids: Tensor) -> Tensor:
    """`(batch_size, timesteps, dim)`"""
    return elmo(ids)["elmo_representations"][0]


def check_agreement(difference: float, tolerance: float, what: str) -> None:
    """Raise `DisagreementError` if a difference is over the tolerance, or NaN."""
    if not difference <= tolerance:
        raise DisagreementError(
            f"Ours in float32 and AllenNLP's do not agree: the {what} differ by {difference:.1e}, expected "
            f"at most {tolerance:.0e}. Nothing was timed."
        )


if __name__ == "__main__":
    main()
