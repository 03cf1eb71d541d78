"""
Compare our LSTM layers with torch's own products of matrices and with the machine's memory.

    python benchmarks/layers.py --bilm random
"""

import argparse
from typing import Any, Dict, Iterator, List, Optional

import torch
from measurement import (
    PEAK_SIZES,
    Run,
    Table,
    bilm_title,
    frozen_bilms,
    peak_product,
    peak_speed,
    run_benchmark,
    spread_note,
    time_in_turns,
)
from torch.utils.benchmark import Measurement

from elmo_plugin.bilm import BiLMOptions, FrozenBiLM
from elmo_plugin.bilm.bilm import run_stack

LSTM_ROWS, LSTM_STEPS = 64, 25
# By type of device.
COPIED_BYTES = {"cpu": 2**28, "cuda": 2**30}


def main(argv: Optional[List[str]] = None) -> None:
    names = ("bilm", "precisions", "kernel", "device", "threads", "rounds", "seconds")
    run_benchmark(__doc__, names, tables, argv)


def tables(settings: argparse.Namespace) -> Iterator[Table]:
    """Yield one table: speeds of each precision, and shares of the machine's own."""
    device = torch.device(settings.device)
    options, bilms = frozen_bilms(settings)
    runs = layer_runs(bilms, options, device)
    measured = time_in_turns("layers", runs, settings.rounds, settings.seconds)
    peak_size = PEAK_SIZES[device.type]
    yield Table(
        f"LSTM layers alone, {bilm_title(settings.bilm, options)}",
        [layer_row(name, options, measured, device) for name in settings.precisions],
        f"{LSTM_ROWS} sequences of {LSTM_STEPS} steps. Peak: the fastest torch.mm of two {peak_size} x "
        f"{peak_size} matrices in that precision (int8: torch._int_mm). One row: a single sequence, whose "
        "steps read all weights for states anew; beside it the fastest copy, read and written, and the "
        "fastest search for the largest of many numbers, which only reads. Weights that stay in a cache are "
        f"read faster. {spread_note(list(measured.values()))}",
    )


def layer_runs(
    bilms: Dict[str, FrozenBiLM], options: BiLMOptions, device: torch.device
) -> Dict[str, Run]:
    """Return the layers of each precision, over one row (`row`), its `peak`, and a `copy` and a `read`."""
    inputs = torch.randn(LSTM_ROWS * LSTM_STEPS, options.projection_dim, device=device)

    @torch.no_grad()
    def run_layers(bilm: FrozenBiLM, num_rows: int) -> None:
        run_stack(
            options, bilm.layers, [inputs[: num_rows * LSTM_STEPS]] * 2, [num_rows] * LSTM_STEPS
        )

    runs: Dict[str, Run] = {}
    for name, bilm in bilms.items():
        runs[name] = lambda bilm=bilm: run_layers(bilm, LSTM_ROWS)
        runs[f"row {name}"] = lambda bilm=bilm: run_layers(bilm, 1)
        runs[f"peak {name}"] = peak_product(name, device)
    source = torch.zeros(COPIED_BYTES[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    runs["copy"] = lambda: target.copy_(source)
    numbers = source.view(torch.float32)
    runs["read"] = lambda: torch.max(numbers)
    return runs


def layer_row(
    precision: str, options: BiLMOptions, measured: Dict[str, Measurement], device: torch.device
) -> Dict[str, Any]:
    """Return speeds in 10^9 operations and bytes per second, and shares of the machine's own."""
    # Of a layer in one direction.
    input_weights = state_weights = 4 * options.cell_size * options.projection_dim
    if options.cell_size != options.projection_dim:
        state_weights += options.cell_size * options.projection_dim
    num_layers = 2 * options.num_lstm_layers
    # A multiplication and an addition count as two.
    operations = 2 * (input_weights + state_weights) * LSTM_ROWS * LSTM_STEPS * num_layers
    # States depend on each other, so each step reads their weights anew.
    weights_read = (input_weights + LSTM_STEPS * state_weights) * num_layers
    bytes_read = weights_read * getattr(torch, precision).itemsize
    median, row_median = measured[precision].median, measured[f"row {precision}"].median
    speed = operations / median / 1e9
    peak = peak_speed(measured[f"peak {precision}"], device) / 1e9
    size = COPIED_BYTES[device.type]
    copied = 2 * size / min(measured["copy"].times) / 1e9
    read = size / min(measured["read"].times) / 1e9
    return {
        "precision": precision,
        "ms": round(1000 * median, 1),
        "GFLOP/s": round(speed, 1),
        "peak GFLOP/s": round(peak, 1),
        "share of the peak": f"{speed / peak:.0%}",
        "one row, ms": round(1000 * row_median, 1),
        "its weights, GB/s": round(bytes_read / row_median / 1e9, 1),
        "copy, GB/s": round(copied, 1),
        "read, GB/s": round(read, 1),
    }


if __name__ == "__main__":
    main()
