"""
How fast a biLM trains with our LSTM layers, in float32 and with products in bfloat16, beside the same biLM on
AllenNLP's `ElmoLstm` and on torch's `nn.LSTM`. All run in one process and take turns, step by step; or, with
--separate, one after the other, each in a process of its own, where the threads that our layers start on CPUs
cannot be in the way of the others.

A step is, by scope:
  lstm   The LSTM stacks of both directions alone: forward, then backward from a random gradient of their top
         outputs, to weights and inputs. No optimizer.
  model  The whole step of BiLMTrainingModel on random words: character encoder, LSTM stacks, dropout, sampled
         softmax, backward, Adagrad. Gradients are not clipped. Contenders differ in their LSTM layers alone,
         but for the last, which has AllenNLP's character encoder too: it encodes a word wherever it occurs.
         AllenNLP's layers are the cells that `ElmoLstm` is made of: as a whole it has no dropout between
         layers, and reads the same words in both directions, where pretraining reads two streams.

All start from the same weights, have skip connections, and carry the states of their rows, detached. nn.LSTM
clips neither cells nor states; the others clip both at 3. Before anything is timed, ours in float32 and
AllenNLP's must agree within 1e-4 over two windows, in outputs and gradients of inputs (lstm) or in the loss
per word (model).

The table has the median and the shortest time of a step, words per second (each counted once for both
directions), and how many times AllenNLP's speed that is, by medians.

    python benchmarks/training_speed.py --shapes small --scopes lstm model --repetitions 10 --threads 2
"""

import argparse
import copy
import itertools
import platform
import re
import statistics
import string
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch
from allennlp.data import Vocabulary
from compared_layers import (
    AllenNLPLayer,
    ElmoLstmStacks,
    Stacks,
    TorchLayer,
    with_allennlp_encoder,
    with_layers,
)
from torch.nn import Module
from torch.testing import assert_close

from elmo_plugin import BiLM, batch_to_ids
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.pretraining import BiLMTrainingModel, SampledSoftmax

OURS, OURS_BFLOAT16 = "elmo_plugin, float32", "elmo_plugin, bfloat16"
ALLENNLP, TORCH = "AllenNLP ElmoLstm, float32", "torch nn.LSTM, float32"
ALLENNLP_ENCODER = "AllenNLP ElmoLstm and character encoder, float32"
CONTENDERS = {
    "lstm": [OURS, OURS_BFLOAT16, ALLENNLP, TORCH],
    "model": [OURS, OURS_BFLOAT16, ALLENNLP, TORCH, ALLENNLP_ENCODER],
}

TOLERANCE = 1e-4
WARM_UP_STEPS = 2
NUM_BATCHES = 8  # different ones, read in a circle
DROPOUT = 0.1

Step = Callable[[], None]


class Shape(NamedTuple):
    """Sizes of a biLM, words that its softmax samples, words of its vocabulary."""

    options: BiLMOptions
    num_samples: int
    num_words: int


MINI_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 128))
SHAPES = {
    "tiny": Shape(
        BiLMOptions(filters=((1, 4), (2, 8)), num_highway=1, cell_size=16, projection_dim=8), 20, 100
    ),
    "mini": Shape(
        BiLMOptions(filters=MINI_FILTERS, num_highway=1, cell_size=512, projection_dim=128), 2048, 20_000
    ),
    "small": Shape(BiLMOptions(num_highway=1, cell_size=1024, projection_dim=128), 8192, 50_000),
    "original": Shape(BiLMOptions(), 8192, 50_000),
}  # fmt: skip


class Setting(NamedTuple):
    """What is measured, and on what."""

    shape: str
    scope: str
    rows: int
    steps: int
    device: torch.device
    repetitions: int
    threads: Optional[int]

    def prepare(self, is_checked: bool) -> Dict[str, Step]:
        """The step of each contender."""
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        # float32 means float32 to all: by default cuDNN, nn.LSTM's kernel, would round to TF32.
        torch.backends.cudnn.allow_tf32 = False
        torch.manual_seed(0)
        new_steps = {"lstm": lstm_steps, "model": model_steps}[self.scope]
        return new_steps(SHAPES[self.shape], self.rows, self.steps, self.device, is_checked)


def lstm_steps(
    shape: Shape, rows: int, steps: int, device: torch.device, is_checked: bool
) -> Dict[str, Step]:
    """The step of each contender in the scope `lstm`, after the check that they agree."""
    width = shape.options.projection_dim
    bilm = BiLM(shape.options)
    contenders = {
        OURS: Stacks(bilm),
        OURS_BFLOAT16: Stacks(copy.deepcopy(bilm)),
        ALLENNLP: ElmoLstmStacks(bilm),
        TORCH: Stacks(with_layers(bilm, TorchLayer)),
    }
    batches = [
        (torch.randn(rows, steps, width, device=device).requires_grad_(),
         torch.randn(rows, steps, 2 * width, device=device))
        for _ in range(NUM_BATCHES)
    ]  # fmt: skip

    def new_step(name: str, stacks: Module) -> Step:
        turns = itertools.cycle(batches)

        def step() -> None:
            windows, gradient = next(turns)
            with torch.autocast(device.type, torch.bfloat16, enabled=name == OURS_BFLOAT16):
                outputs = stacks(windows)
            outputs.backward(gradient)
            # Now rather than before the next step: who waits for a turn holds no gradients.
            windows.grad = None
            stacks.zero_grad()

        return step

    for stacks in contenders.values():
        stacks.to(device)
    # The second window starts from carried states.
    for windows, gradient in batches[: 2 if is_checked else 0]:
        results = []
        for name in (OURS, ALLENNLP):
            outputs = contenders[name](windows)
            results.append([outputs, *torch.autograd.grad(outputs, windows, gradient)])
        assert_close(results[0], results[1], atol=TOLERANCE, rtol=0)
    return {name: new_step(name, stacks) for name, stacks in contenders.items()}


def model_steps(
    shape: Shape, rows: int, steps: int, device: torch.device, is_checked: bool
) -> Dict[str, Step]:
    """The step of each contender in the scope `model`, after the check that they agree."""
    softmax = SampledSoftmax(
        shape.num_words, shape.options.projection_dim, shape.num_samples, sparse_gradients=True
    )
    ours = BiLMTrainingModel(Vocabulary(), BiLM(shape.options), softmax, DROPOUT)
    contenders = {name: copy.deepcopy(ours) for name in CONTENDERS["model"][:-1]}
    contenders[OURS_BFLOAT16].precision = "bfloat16"
    contenders[ALLENNLP].bilm = with_layers(ours.bilm, AllenNLPLayer)
    contenders[TORCH].bilm = with_layers(ours.bilm, TorchLayer)
    contenders[ALLENNLP_ENCODER] = with_allennlp_encoder(
        copy.deepcopy(contenders[ALLENNLP]), ours.bilm
    )
    batches = random_batches(shape.num_words, rows, steps, device)

    def new_step(model: BiLMTrainingModel) -> Step:
        optimizer = torch.optim.Adagrad(model.parameters(), lr=0.2, initial_accumulator_value=1.0)
        turns = itertools.cycle(batches)

        def step() -> None:
            model(**next(turns))["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    for model in contenders.values():
        model.to(device)
    for seed, batch in enumerate(batches[: 2 if is_checked else 0]):
        losses = []
        for name in (OURS, ALLENNLP, ALLENNLP_ENCODER):
            torch.manual_seed(seed)  # the same dropout and the same sampled words
            losses.append(contenders[name](**batch)["loss"] / steps)
        assert_close(losses[0], losses[1], atol=TOLERANCE, rtol=0)
        assert_close(losses[0], losses[2], atol=TOLERANCE, rtol=0)
    return {name: new_step(model) for name, model in contenders.items()}


def random_batches(
    num_words: int, rows: int, steps: int, device: torch.device
) -> List[Dict[str, Any]]:
    """Arguments of BiLMTrainingModel: made-up words, each as frequent as the softmax expects (Zipf's law)."""
    letters = torch.randint(len(string.ascii_lowercase), (num_words, 12))
    lengths = torch.randint(1, 13, (num_words,))
    words = [
        "".join(string.ascii_lowercase[letter] for letter in word[:length])
        for word, length in zip(letters.tolist(), lengths.tolist())
    ]
    spelled = batch_to_ids([words])[0].to(device)  # (num_words, 50)
    batches: List[Dict[str, Any]] = []
    for _ in range(NUM_BATCHES):
        uniform = torch.rand(rows, steps + 1, dtype=torch.float64)
        text = ((num_words + 1) ** uniform - 1).long().clamp_max(num_words - 1).to(device)
        batch: Dict[str, Any] = {"rows_continue": True}
        for direction, stream in (("forward", text), ("backward", text.flip(1))):
            batch[f"{direction}_inputs"] = spelled[stream[:, :-1]]
            batch[f"{direction}_targets"] = stream[:, 1:]
        batches.append(batch)
    return batches


def measure(
    contenders: Dict[str, Step], repetitions: int, device: torch.device
) -> Dict[str, List[float]]:
    """Seconds of each step. The contenders take turns, so that what slows the machine slows all."""
    seconds: Dict[str, List[float]] = {name: [] for name in contenders}
    for repetition in range(WARM_UP_STEPS + repetitions):
        for name, step in contenders.items():
            synchronize(device)
            start = time.perf_counter()
            step()
            synchronize(device)
            if repetition >= WARM_UP_STEPS:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def measure_apart(setting: Setting) -> Dict[str, List[float]]:
    """As `measure`, each contender in a process of its own."""
    seconds: Dict[str, List[float]] = {}
    for name in CONTENDERS[setting.scope]:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
            seconds[name] = executor.submit(_measure_one, setting, name).result()
    return seconds


def _measure_one(setting: Setting, name: str) -> List[float]:
    step = setting.prepare(is_checked=False)[name]
    return measure({name: step}, setting.repetitions, setting.device)[name]


def synchronize(device: torch.device) -> None:
    """Wait for a GPU to finish what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def table(seconds: Dict[str, List[float]], num_tokens: int) -> str:
    """Time and speed of each contender, in Markdown."""
    lines = [
        "| contender | median ms | best ms | tokens/s (median) | times AllenNLP's |",
        "|---|---|---|---|---|",
    ]
    for name, times in seconds.items():
        median = statistics.median(times)
        lines.append(
            f"| {name} | {1000 * median:,.1f} | {1000 * min(times):,.1f} | {num_tokens / median:,.0f} "
            f"| {statistics.median(seconds[ALLENNLP]) / median:.2f} |"
        )
    return "\n".join(lines)


def machine(device: torch.device) -> str:
    """What the numbers were measured on."""
    processor = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        model_names = re.findall(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
        processor = model_names[0] if model_names else processor
    vectors = torch.backends.cpu.get_cpu_capability()
    parts = [f"{processor} ({vectors})", f"{torch.get_num_threads()} threads"]
    parts += [f"torch {torch.__version__}", f"device {device}"]
    if device.type == "cuda":
        parts.append(f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}, no TF32")
    return ", ".join(parts)


def main(argv: Optional[List[str]] = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["mini", "small"], metavar="SHAPE",
                        help="sizes of the biLM: tiny (for tests), mini (512 cells, projection 128), small "
                        "(1024, 128), original (4096, 512; takes 9 GB) (default: mini small)")  # fmt: skip
    parser.add_argument("--scopes", nargs="+", choices=CONTENDERS, default=list(CONTENDERS),
                        help="what a step is, see above (default: both)")  # fmt: skip
    parser.add_argument("--rows", type=int, default=128, help="rows of a batch (default: 128)")
    parser.add_argument("--steps", type=int, default=20, help="words of a row (default: 20)")
    parser.add_argument("--repetitions", type=int, default=10,
                        help=f"timed steps, after {WARM_UP_STEPS} untimed ones (default: 10)")  # fmt: skip
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"),
                        help="cpu, cuda or cuda:N (default: cpu)")  # fmt: skip
    parser.add_argument(
        "--separate", action="store_true", help="measure each contender in a process of its own"
    )
    arguments = parser.parse_args(argv)
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    print(f"{machine(arguments.device)}; {arguments.rows} rows of {arguments.steps} words; "
          f"{'a process each' if arguments.separate else 'in one process'}")  # fmt: skip
    for shape, scope in itertools.product(arguments.shapes, arguments.scopes):
        print(f"{shape}, {scope}: building, checking, measuring ...", file=sys.stderr)
        setting = Setting(
            shape,
            scope,
            arguments.rows,
            arguments.steps,
            arguments.device,
            arguments.repetitions,
            arguments.threads,
        )
        contenders = setting.prepare(is_checked=True)
        if arguments.separate:
            del contenders
            seconds = measure_apart(setting)
        else:
            seconds = measure(contenders, setting.repetitions, setting.device)
        num_tokens = setting.rows * setting.steps
        print(f"\n{shape}, {scope}:\n\n{table(seconds, num_tokens)}", flush=True)


if __name__ == "__main__":
    main()
