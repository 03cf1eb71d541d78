"""
The sections inference and layers: our frozen ELMo beside `allennlp.modules.elmo.Elmo`, in one process, with
the same weights and text, and our LSTM layers beside torch's own products of matrices.
"""

from typing import Callable, Dict, Iterator, List, Sequence, Tuple

import allennlp.modules.elmo
import numpy
import pandas
import torch
from allennlp.nn.util import remove_sentence_boundaries
from matplotlib.figure import Figure
from measurement import (
    ALLENNLP,
    COLORS,
    FLOAT32,
    Options,
    Run,
    Sentence,
    bilm_title,
    file_label,
    float32_files,
    num_words,
    spread_note,
    time_in_turns,
)
from torch import Tensor
from torch.nn import Module
from torch.utils.benchmark import Measurement

from elmo_plugin import BiLM, Elmo, ElmoEmbedder, batch_to_ids
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.processor import has_bfloat16_products
from elmo_plugin.report.tables import Part

TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-3  # of the norm, relative
ROWS_PER_BATCH = 32
ROWS_PER_FILE_BATCH = 64  # the default of AllenNLP 0.9's ElmoEmbedder
LSTM_ROWS, LSTM_STEPS = 64, 25
# By type of device: on a GPU less is over before it can be timed.
PEAK_SIZES = {"cpu": 2048, "cuda": 8192}
COPIED_BYTES = {"cpu": 2**28, "cuda": 2**30}


class DisagreementError(Exception):
    """The contenders do not compute the same, so their times mean nothing."""


def inference_parts(options: Options, sentences: List[Sentence]) -> Iterator[Tuple[str, Part]]:
    """Yield a table for each biLM: times of each case, and multiples of AllenNLP's speed."""
    for name in options.bilm:
        with float32_files(name) as (options_file, weight_file):
            files = str(options_file), str(weight_file)
            cases = Cases(files, options, sentences)
            difference = cases.check_representations()
            measured = {}
            for case, new_runs in cases.all().items():
                num_tokens, runs = new_runs()
                title = f"{name}, {case}"
                measured[case, num_tokens] = time_in_turns(title, runs, options.effort)
            title = (
                f"Beside AllenNLP's ELMo, {bilm_title(name, BiLMOptions.from_file(options_file))}"
            )
        notes = [
            case_note(options),
            f"On the first batch float32 is within {difference:.1e} of AllenNLP's. "
            + spread_note([times for case in measured.values() for times in case.values()]),
        ]
        frame, ratios = speed_frames(measured)
        yield (
            f"inference-{file_label(name)}",
            Part(title, frame, notes, ratio_figure(ratios, title)),
        )


def case_note(options: Options) -> str:
    """Return what the rows of the table are."""
    effort = options.effort
    return (
        f"`batches`: {effort.batches} of {ROWS_PER_BATCH} sentences in the order of the file, word cache "
        f"empty at first. `single`: {effort.single} sentences, one at a time, words known. `file`: "
        f"{effort.file} sentences, from tokens to an array of all layers for each, by "
        "`ElmoEmbedder.embed_sentences` and by AllenNLP's biLM as the `ElmoEmbedder` of AllenNLP 0.9 used "
        f"it, in batches of {ROWS_PER_FILE_BATCH}; word cache empty at first, and only ours sorts by length "
        f"(and restores the order). `fine_tuning`: a step on {ROWS_PER_BATCH} sentences, forward and "
        "backward. `times`: multiples of AllenNLP's speed."
    )


class Cases:
    """
    The contenders, AllenNLP's `Elmo` and ours in each precision, and what they do in each case.

    # Parameters

    files : `Tuple[str, str]`
        Options and weights, in float32.
    options : `Options`
    sentences : `List[Sentence]`
    """

    def __init__(self, files: Tuple[str, str], options: Options, sentences: List[Sentence]) -> None:
        # float32 means float32 to all: on a GPU products would be rounded to TF32 by default.
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        self.files, self.options, self.sentences = files, options, sentences
        self.device = torch.device(options.device)
        self.allennlp = self._allennlp()
        self.ours = {precision: self._ours(precision) for precision in options.precisions}
        self.names = options.cases

    def all(self) -> Dict[str, Callable[[], Tuple[int, Dict[str, Run]]]]:
        """Return what prepares each case: the number of tokens in a run, and the runs by contender."""
        cases = {"batches": self.batches, "single": self.single, "file": self.file}
        if FLOAT32 in self.ours:
            cases["fine_tuning"] = self.fine_tuning
        return {name: case for name, case in cases.items() if name in self.names}

    @torch.no_grad()
    def check_representations(self) -> float:
        """Return the largest difference in float32 on the first batch; an error if it is large."""
        ids = batch_to_ids(self.sentences[:ROWS_PER_BATCH]).to(self.device)
        ours = self.ours.get(FLOAT32) or self._ours(FLOAT32)
        difference = (represent(ours, ids) - represent(self.allennlp, ids)).abs().max().item()
        check_agreement(difference, TOLERANCE, "representations of the first batch")
        return difference

    def batches(self) -> Tuple[int, Dict[str, Run]]:
        sentences = self.sentences[: self.options.effort.batches * ROWS_PER_BATCH]
        starts = range(0, len(sentences), ROWS_PER_BATCH)
        batches = [sentences[start : start + ROWS_PER_BATCH] for start in starts]
        return num_words(sentences), self._embedding_runs(batches, is_cold=True)

    def single(self) -> Tuple[int, Dict[str, Run]]:
        sentences = self.sentences[: self.options.effort.single]
        batches = [[sentence] for sentence in sentences]
        return num_words(sentences), self._embedding_runs(batches, is_cold=False)

    def file(self) -> Tuple[int, Dict[str, Run]]:
        sentences = self.sentences[: self.options.effort.file]

        def our_vectors(elmo: Elmo) -> List[numpy.ndarray]:
            elmo.bilm.word_cache.clear()
            embedder = ElmoEmbedder.from_bilm(
                elmo.bilm, self.device.index or 0 if self.device.type == "cuda" else -1
            )
            return list(embedder.embed_sentences(sentences, batch_size=ROWS_PER_FILE_BATCH))

        def allennlp_vectors() -> List[numpy.ndarray]:
            return allennlp_file(self.allennlp._elmo_lstm, sentences, self.device)

        if FLOAT32 in self.ours:
            pairs = zip(our_vectors(self.ours[FLOAT32]), allennlp_vectors(), strict=True)
            difference = max(float(numpy.abs(ours - theirs).max()) for ours, theirs in pairs)
            check_agreement(difference, TOLERANCE, "vectors of the file")
        runs = {name: (lambda elmo=elmo: our_vectors(elmo)) for name, elmo in self.ours.items()}
        return num_words(sentences), {ALLENNLP: allennlp_vectors, **runs}

    def fine_tuning(self) -> Tuple[int, Dict[str, Run]]:
        """The gradients' norms, too, must agree."""
        sentences = self.sentences[:ROWS_PER_BATCH]
        ids = batch_to_ids(sentences).to(self.device)
        contenders = {ALLENNLP: self._allennlp(True), FLOAT32: self._ours(FLOAT32, True)}

        def step(elmo: Module) -> None:
            represent(elmo, ids).sum().backward()
            # Now rather than before the next step: a contender that waits holds no gradients.
            elmo.zero_grad(set_to_none=True)

        norms = []
        for elmo in contenders.values():
            represent(elmo, ids).sum().backward()
            gradients = [parameter.grad for parameter in elmo.parameters()]
            norm = torch.nn.utils.get_total_norm([grad for grad in gradients if grad is not None])
            norms.append(norm.item())
            elmo.zero_grad(set_to_none=True)
        difference = abs(norms[1] - norms[0]) / norms[0]
        check_agreement(difference, GRADIENT_TOLERANCE, "norms of the gradients, relatively,")
        runs = {name: (lambda elmo=elmo: step(elmo)) for name, elmo in contenders.items()}
        return num_words(sentences), runs

    def _ours(self, precision: str, requires_grad: bool = False) -> Elmo:
        kernel = self.options.kernel
        elmo = Elmo(*self.files, 1, requires_grad, dropout=0.0, precision=precision, kernel=kernel)
        return elmo.eval().to(self.device)

    def _allennlp(self, requires_grad: bool = False) -> Module:
        elmo = allennlp.modules.elmo.Elmo(*self.files, 1, requires_grad, dropout=0.0)
        return elmo.eval().to(self.device)

    def _embedding_runs(self, batches: List[List[Sentence]], is_cold: bool) -> Dict[str, Run]:
        all_ids = [batch_to_ids(batch).to(self.device) for batch in batches]

        @torch.no_grad()
        def run(elmo: Module) -> None:
            if is_cold and isinstance(elmo, Elmo):
                elmo.bilm.word_cache.clear()
            for ids in all_ids:
                represent(elmo, ids)

        contenders = {ALLENNLP: self.allennlp, **self.ours}
        return {name: (lambda elmo=elmo: run(elmo)) for name, elmo in contenders.items()}


def represent(elmo: Module, ids: Tensor) -> Tensor:
    """`(batch_size, timesteps, dim)`"""
    return elmo(ids)["elmo_representations"][0]


@torch.no_grad()
def allennlp_file(
    bilm: Module, sentences: List[Sentence], device: torch.device
) -> List[numpy.ndarray]:
    """
    Return the layers of each sentence, `(num_layers, num_tokens, dim)`, by AllenNLP's biLM in batches in the
    order of the file. Unlike in AllenNLP 0.9 a batch starts from zero states, for ours is stateless.
    """
    vectors: List[numpy.ndarray] = []
    for start in range(0, len(sentences), ROWS_PER_FILE_BATCH):
        batch = sentences[start : start + ROWS_PER_FILE_BATCH]
        bilm._elmo_lstm.reset_states()
        output = bilm(allennlp.modules.elmo.batch_to_ids(batch).to(device))
        layers = [
            remove_sentence_boundaries(layer, output["mask"])[0] for layer in output["activations"]
        ]
        stacked = (
            torch.stack(layers, dim=1).cpu().numpy()
        )  # (batch_size, num_layers, timesteps, dim)
        vectors += [stacked[row, :, : len(sentence)] for row, sentence in enumerate(batch)]
    return vectors


def check_agreement(difference: float, tolerance: float, what: str) -> None:
    """Raise `DisagreementError` if a difference is over the tolerance, or NaN."""
    if not difference <= tolerance:
        raise DisagreementError(
            f"Ours in float32 and AllenNLP's do not agree: the {what} differ by {difference:.1e}, expected "
            f"at most {tolerance:.0e}. Nothing was timed."
        )


def speed_frames(
    measured: Dict[Tuple[str, int], Dict[str, Measurement]],
) -> Tuple[pandas.DataFrame, pandas.DataFrame]:
    """Return times and multiples of AllenNLP's speed side by side, and the multiples alone, by case."""
    medians = pandas.DataFrame.from_dict(
        {
            key: {name: 1000 * times.median for name, times in case.items()}
            for key, case in measured.items()
        },
        orient="index",
    )
    ratios = medians.rdiv(medians[ALLENNLP], axis=0).drop(columns=ALLENNLP)
    frame = medians.index.to_frame(index=False, name=["case", "tokens"])
    frame[f"{ALLENNLP}, ms"] = medians[ALLENNLP].round(1).to_numpy()
    for precision in ratios:
        frame[f"{precision}, ms"] = medians[precision].round(1).to_numpy()
        frame[f"{precision}, times"] = ratios[precision].round(2).to_numpy()
    return frame, ratios.droplevel(1)


def ratio_figure(ratios: pandas.DataFrame, title: str) -> Figure:
    """Draw a group of bars for each case, a bar for each precision: multiples of AllenNLP's speed."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    ratios.plot.bar(ax=axes, rot=0, width=0.8, color=[COLORS[name] for name in ratios])
    for bars in axes.containers:
        axes.bar_label(bars, fmt=lambda value: f"{value:.1f}" if value > 0 else "", fontsize=8)
    axes.axhline(1.0, color="black", linewidth=1, linestyle="--", label="AllenNLP, float32")
    axes.set_ylabel("times AllenNLP's speed")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    axes.set_title(title, fontsize=9)
    return figure


def layer_parts(options: Options, sentences: Sequence[Sentence]) -> Iterator[Tuple[str, Part]]:
    """Yield a table for each biLM: our LSTM layers beside torch's products and the memory's speed."""
    device = torch.device(options.device)
    for name in options.bilm:
        with float32_files(name) as files:
            bilms = {
                precision: BiLM.from_files(*files, precision=precision, kernel=options.kernel)
                for precision in options.precisions
            }
        for bilm in bilms.values():
            bilm.requires_grad_(False).eval().to(device)
        measured = time_in_turns(f"{name}, layers", layer_runs(bilms, device), options.effort)
        shape = next(iter(bilms.values())).options
        notes = [
            f"{LSTM_ROWS} sequences of {LSTM_STEPS} steps. Peak: the fastest torch.mm of two "
            f"{PEAK_SIZES[device.type]} x {PEAK_SIZES[device.type]} matrices in that precision (int8: "
            "torch._int_mm). One row: a single sequence, whose steps read all weights for states anew; "
            "beside it the fastest copy, read and written. Weights that stay in a cache are read faster. "
            + spread_note(list(measured.values())),
        ]
        title = f"LSTM layers alone, {bilm_title(name, shape)}"
        yield f"layers-{file_label(name)}", Part(title, layer_frame(shape, measured, device), notes)


def layer_runs(bilms: Dict[str, BiLM], device: torch.device) -> Dict[str, Run]:
    """Return the layers of each precision, over one row (`row`), its `peak`, and a copy (`memory`)."""
    width = next(iter(bilms.values())).options.projection_dim
    inputs = torch.randn(LSTM_ROWS * LSTM_STEPS, width, device=device)

    @torch.no_grad()
    def run_layers(bilm: BiLM, num_rows: int) -> None:
        bilm.run_layers([inputs[: num_rows * LSTM_STEPS]] * 2, [num_rows] * LSTM_STEPS)

    runs: Dict[str, Run] = {}
    size = PEAK_SIZES[device.type]
    for name, bilm in bilms.items():
        runs[name] = lambda bilm=bilm: run_layers(bilm, LSTM_ROWS)
        runs[f"row {name}"] = lambda bilm=bilm: run_layers(bilm, 1)
        if name == "int8":
            factors = torch.randint(-127, 128, (2, size, size), dtype=torch.int8, device=device)
            runs[f"peak {name}"] = lambda factors=factors: torch._int_mm(*factors)
        else:
            # torch imitates products that the processor lacks, at a fraction of the speed of float32.
            is_slow = name == "bfloat16" and not has_bfloat16_products(device)
            dtype = torch.float32 if is_slow else getattr(torch, name)
            factors = torch.randn(2, size, size, dtype=dtype, device=device)
            runs[f"peak {name}"] = lambda factors=factors: torch.mm(*factors)
    source = torch.zeros(COPIED_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    runs["memory"] = lambda: target.copy_(source)
    return runs


def layer_frame(
    options: BiLMOptions, measured: Dict[str, Measurement], device: torch.device
) -> pandas.DataFrame:
    """Return speeds in 10^9 operations and bytes per second, and shares of the machine's own."""
    # Of a layer in one direction.
    input_weights = state_weights = 4 * options.cell_size * options.projection_dim
    if options.has_state_projection:
        state_weights += options.cell_size * options.projection_dim
    num_layers = 2 * options.num_layers
    # A multiplication and an addition count as two.
    operations = 2 * (input_weights + state_weights) * LSTM_ROWS * LSTM_STEPS * num_layers
    # States depend on each other, so each step reads their weights anew.
    weights_read = (input_weights + LSTM_STEPS * state_weights) * num_layers
    memory_speed = 2 * COPIED_BYTES[device.type] / min(measured["memory"].times) / 1e9
    rows = []
    for precision in [name for name in measured if f"peak {name}" in measured]:
        median, row_median = measured[precision].median, measured[f"row {precision}"].median
        speed = operations / median / 1e9
        peak = 2 * PEAK_SIZES[device.type] ** 3 / min(measured[f"peak {precision}"].times) / 1e9
        bytes_read = weights_read * getattr(torch, precision).itemsize
        rows.append(
            {
                "precision": precision,
                "ms": round(1000 * median, 1),
                "GFLOP/s": round(speed, 1),
                "peak GFLOP/s": round(peak, 1),
                "share of the peak": f"{speed / peak:.0%}",
                "one row, ms": round(1000 * row_median, 1),
                "its weights, GB/s": round(bytes_read / row_median / 1e9, 1),
                "copy, GB/s": round(memory_speed, 1),
            }
        )
    return pandas.DataFrame(rows)
