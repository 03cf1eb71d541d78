"""The cases of inference_speed.py: what is timed, and the checks that it may be compared."""

import statistics
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import allennlp.modules.elmo
import torch
from inference_report import ALLENNLP, Difference, LayerSpeed
from torch import Tensor
from torch.nn import Module

import elmo_plugin
from elmo_plugin import BiLM, Elmo
from elmo_plugin.bilm import BiLMOptions

FLOAT32 = "float32"

TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-3  # of the norm, relative
ROWS_PER_BATCH = 32
ROWS_PER_FILE_BATCH = 64  # AllenNLP's
TOKENS_PER_FILE_BATCH = 2000  # ours
LSTM_ROWS, LSTM_STEPS = 64, 25
# By type of device: on a GPU less would be over before it is worth timing.
PEAK_SIZES = {"cpu": 2048, "cuda": 8192}
COPIED_BYTES = {"cpu": 2**28, "cuda": 2**30}

Sentence = List[str]
Run = Callable[[], Any]


class Contender(NamedTuple):
    """An ELMo, and what makes its character ids of sentences."""

    elmo: Module
    to_ids: Callable[[List[Sentence]], Tensor]
    is_ours: bool


class Setting(NamedTuple):
    """What is measured, and on what."""

    cases: List[str]
    options: BiLMOptions
    options_file: Path
    weight_file: Path
    sentences: List[Sentence]
    precisions: List[str]
    kernel: str
    num_batches: int
    num_single: int
    num_in_file: int
    device: torch.device


class Work(NamedTuple):
    """
    One case: what its contenders, by name, do in a repetition.

    # Parameters

    num_tokens : `int`
        Words of a repetition.
    is_cold : `bool`
        Whether word caches are emptied before each repetition.
    is_warmed : `bool`
        Whether a repetition that is not timed comes first.
    """

    runs: Dict[str, Run]
    num_tokens: int
    is_cold: bool = False
    is_warmed: bool = False


class DisagreementError(Exception):
    """The contenders do not compute the same, so their times mean nothing."""


def our_contender(setting: Setting, precision: str, is_trainable: bool = False) -> Contender:
    """Our ELMo."""
    elmo = Elmo(
        str(setting.options_file),
        str(setting.weight_file),
        1,
        requires_grad=is_trainable,
        dropout=0.0,
        precision=precision,
        kernel=setting.kernel,
    )
    return Contender(elmo.eval().to(setting.device), elmo_plugin.batch_to_ids, is_ours=True)


def allennlp_contender(setting: Setting, is_trainable: bool = False) -> Contender:
    """AllenNLP's."""
    elmo = allennlp.modules.elmo.Elmo(
        str(setting.options_file),
        str(setting.weight_file),
        1,
        requires_grad=is_trainable,
        dropout=0.0,
    )
    to_ids = allennlp.modules.elmo.batch_to_ids
    return Contender(elmo.eval().to(setting.device), to_ids, is_ours=False)


def new_contenders(setting: Setting) -> Tuple[Dict[str, Contender], Dict[str, Difference]]:
    """
    AllenNLP's and ours in each precision, by name, warm; and how far ours are off on the first batch, in
    float32 from AllenNLP's, in others from float32.

    # Raises

    `DisagreementError` if float32 is too far off.
    """
    batch = setting.sentences[:ROWS_PER_BATCH]
    # What others are compared with, whether it is timed or not.
    exact = our_contender(setting, FLOAT32)
    contenders = {ALLENNLP: allennlp_contender(setting)}
    ids = exact.to_ids(batch).to(setting.device)
    with torch.no_grad():
        # The first batch of this object: there is no state yet that ours could not have.
        their_representation = represent(contenders[ALLENNLP], ids)
        representation = represent(exact, ids)
        difference = largest_difference(representation, their_representation)
        check_agreement(difference, TOLERANCE, "representations of the first batch")
        activations = exact.elmo.bilm(ids)["activations"]
        differences = {FLOAT32: Difference(difference, [])}
        for precision in setting.precisions:
            if precision == FLOAT32:
                contenders[precision] = exact
                continue
            contender = our_contender(setting, precision)
            contenders[precision] = contender
            differences[precision] = Difference(
                largest_difference(represent(contender, ids), representation),
                [
                    ((lower - layer).norm() / layer.norm()).item()
                    for lower, layer in zip(contender.elmo.bilm(ids)["activations"], activations)
                ],
            )
    return contenders, differences


def represent(contender: Contender, ids: Tensor) -> Tensor:
    """`(batch_size, timesteps, dim)`"""
    return contender.elmo(ids)["elmo_representations"][0]


def largest_difference(ours: Tensor, theirs: Tensor) -> float:
    """Of two tensors' entries. NaN if either has one."""
    return (ours - theirs).abs().max().item()


def check_agreement(difference: float, tolerance: float, what: str) -> None:
    """
    # Raises

    `DisagreementError` if a difference is over the tolerance, or NaN.
    """
    if not difference <= tolerance:
        raise DisagreementError(
            f"Ours in float32 and AllenNLP's do not agree: the {what} differ by {difference:.1e}, expected "
            f"at most {tolerance:.0e}. Nothing was timed."
        )


def batches_work(setting: Setting, contenders: Dict[str, Contender]) -> Work:
    sentences = setting.sentences[: setting.num_batches * ROWS_PER_BATCH]
    ids = [
        elmo_plugin.batch_to_ids(sentences[start : start + ROWS_PER_BATCH]).to(setting.device)
        for start in range(0, len(sentences), ROWS_PER_BATCH)
    ]
    return Work(_embedding_runs(contenders, ids), num_words(sentences), is_cold=True)


def single_work(setting: Setting, contenders: Dict[str, Contender]) -> Work:
    sentences = setting.sentences[: setting.num_single]
    ids = [elmo_plugin.batch_to_ids([sentence]).to(setting.device) for sentence in sentences]
    return Work(_embedding_runs(contenders, ids), num_words(sentences), is_warmed=True)


def _embedding_runs(contenders: Dict[str, Contender], batches: List[Tensor]) -> Dict[str, Run]:
    def new_run(contender: Contender) -> Run:
        @torch.no_grad()
        def run() -> None:
            for ids in batches:
                represent(contender, ids)

        return run

    return {name: new_run(contender) for name, contender in contenders.items()}


def file_work(setting: Setting, contenders: Dict[str, Contender]) -> Work:
    sentences = setting.sentences[: setting.num_in_file]

    def new_run(contender: Contender) -> Run:
        return lambda: embed_file(contender, sentences, setting.device)

    runs = {name: new_run(contender) for name, contender in contenders.items()}
    return Work(runs, num_words(sentences), is_cold=True)


@torch.no_grad()
def embed_file(
    contender: Contender, sentences: List[Sentence], device: torch.device
) -> List[Tensor]:
    """The vectors of each sentence, `(num_words, dim)`, in order, on the CPU."""
    lengths = [len(sentence) for sentence in sentences]
    vectors: List[Tensor] = [torch.empty(0)] * len(sentences)
    for numbers in batches_by_tokens(lengths) if contender.is_ours else batches_in_order(lengths):
        ids = contender.to_ids([sentences[number] for number in numbers])
        representation = represent(contender, ids.to(device)).cpu()
        for row, number in enumerate(numbers):
            vectors[number] = representation[row, : lengths[number]]
    return vectors


def batches_in_order(lengths: List[int]) -> List[List[int]]:
    """Numbers of sentences, as many to a batch."""
    numbers = list(range(len(lengths)))
    starts = range(0, len(numbers), ROWS_PER_FILE_BATCH)
    return [numbers[start : start + ROWS_PER_FILE_BATCH] for start in starts]


def batches_by_tokens(lengths: List[int]) -> List[List[int]]:
    """Numbers of sentences, short ones first; a longer sentence than `TOKENS_PER_FILE_BATCH` is a batch."""
    batches: List[List[int]] = [[]]
    num_tokens = 0
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number]):
        if batches[-1] and num_tokens + lengths[number] > TOKENS_PER_FILE_BATCH:
            batches.append([])
            num_tokens = 0
        batches[-1].append(number)
        num_tokens += lengths[number]
    return batches


def fine_tuning_work(setting: Setting, _: Dict[str, Contender]) -> Work:
    """
    With contenders of its own, which are trainable.

    # Raises

    `DisagreementError` if representations or gradients are too far off.
    """
    sentences = setting.sentences[:ROWS_PER_BATCH]
    ids = elmo_plugin.batch_to_ids(sentences).to(setting.device)
    contenders = {
        ALLENNLP: allennlp_contender(setting, is_trainable=True),
        FLOAT32: our_contender(setting, FLOAT32, is_trainable=True),
    }

    def new_run(contender: Contender) -> Run:
        def run() -> None:
            represent(contender, ids).sum().backward()
            # Now rather than before the next step: who waits for a turn holds no gradients.
            contender.elmo.zero_grad(set_to_none=True)

        return run

    results: List[Tuple[Tensor, float]] = []
    for contender in contenders.values():
        representation = represent(contender, ids)
        representation.sum().backward()
        gradients = [parameter.grad for parameter in contender.elmo.parameters()]
        norm = torch.nn.utils.get_total_norm([grad for grad in gradients if grad is not None])
        results.append((representation.detach(), norm.item()))
        contender.elmo.zero_grad(set_to_none=True)
    (their_representation, their_norm), (representation, norm) = results
    difference = largest_difference(representation, their_representation)
    check_agreement(difference, TOLERANCE, "representations of the trainable biLM")
    relative_difference = abs(norm - their_norm) / their_norm
    check_agreement(relative_difference, GRADIENT_TOLERANCE, "norms of the gradients, relatively,")
    runs = {name: new_run(contender) for name, contender in contenders.items()}
    return Work(runs, num_words(sentences))


def lstm_work(setting: Setting, contenders: Dict[str, Contender]) -> Work:
    """
    Also has for each precision the runs `row PRECISION`, the layers over a single row, and `peak PRECISION`,
    a product of matrices; and `memory`, a copy.
    """
    bilms = {
        name: contender.elmo.bilm for name, contender in contenders.items() if contender.is_ours
    }
    num_tokens = LSTM_ROWS * LSTM_STEPS
    inputs = torch.randn(num_tokens, setting.options.projection_dim, device=setting.device)

    def new_run(bilm: BiLM, num_rows: int) -> Run:
        own_inputs = inputs[: num_rows * LSTM_STEPS]

        @torch.no_grad()
        def run() -> None:
            bilm.run_layers([own_inputs] * 2, [num_rows] * LSTM_STEPS)

        return run

    runs = {name: new_run(bilm, LSTM_ROWS) for name, bilm in bilms.items()}
    runs.update({f"row {name}": new_run(bilm, 1) for name, bilm in bilms.items()})
    runs.update({f"peak {name}": peak_run(name, setting.device) for name in bilms})
    runs["memory"] = copy_run(setting.device)
    return Work(runs, num_tokens, is_warmed=True)


def peak_run(precision: str, device: torch.device) -> Run:
    """A product of matrices in this precision."""
    size = PEAK_SIZES[device.type]
    if precision == "int8":
        left, right = torch.randint(-127, 128, (2, size, size), dtype=torch.int8, device=device)
        return lambda: torch._int_mm(left, right)
    dtype = getattr(torch, precision)
    left, right = torch.randn(2, size, size, dtype=dtype, device=device)
    return lambda: torch.mm(left, right)


def copy_run(device: torch.device) -> Run:
    """A copy within the device's memory."""
    source = torch.zeros(COPIED_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return lambda: target.copy_(source)


def layer_speeds(setting: Setting, seconds: Dict[str, List[float]]) -> Dict[str, LayerSpeed]:
    """What came of `lstm_work`."""
    options = setting.options
    # Of a layer in one direction.
    input_weights = state_weights = 4 * options.cell_size * options.projection_dim
    if options.has_state_projection:
        state_weights += options.cell_size * options.projection_dim
    num_layers = 2 * options.num_layers
    # A multiplication and an addition count as two.
    operations = 2 * (input_weights + state_weights) * LSTM_ROWS * LSTM_STEPS * num_layers
    # States wait for each other, so that every step reads their weights anew.
    weights_read = (input_weights + LSTM_STEPS * state_weights) * num_layers
    device_type = setting.device.type

    def speed(precision: str) -> LayerSpeed:
        peak_seconds, row_seconds = seconds[f"peak {precision}"], seconds[f"row {precision}"]
        bytes_read = weights_read * getattr(torch, precision).itemsize
        return LayerSpeed(
            seconds[precision],
            operations / statistics.median(seconds[precision]) / 1e9,
            peak_seconds,
            2 * PEAK_SIZES[device_type] ** 3 / min(peak_seconds) / 1e9,
            row_seconds,
            bytes_read / statistics.median(row_seconds) / 1e9,
            seconds["memory"],
            2 * COPIED_BYTES[device_type] / min(seconds["memory"]) / 1e9,
        )

    return {precision: speed(precision) for precision in setting.precisions}


CASES: Dict[str, Callable[[Setting, Dict[str, Contender]], Work]] = {
    "batches": batches_work,
    "single": single_work,
    "file": file_work,
    "fine_tuning": fine_tuning_work,
    "lstm": lstm_work,
}


def num_words(sentences: List[Sentence]) -> int:
    return sum(len(sentence) for sentence in sentences)
