"""What inference_speed.py reports: tables in Markdown, a JSON file, a chart."""

import importlib.util
import json
import platform
import statistics
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

import torch

import elmo_plugin
from elmo_plugin.bilm.processor import processor_features

ALLENNLP = "AllenNLP"

# Told apart by colour-blind readers and in grey.
COLORS = {"float32": "#0b3c5d", "bfloat16": "#328cc1", "int8": "#d9b310"}


class Difference(NamedTuple):
    """
    How far one of ours is off: in float32 from AllenNLP's, in others from ours in float32.

    # Parameters

    largest : `float`
        Of the representation's entries.
    of_layers : `List[float]`
        Of each layer's activations, token representation first: the norm of the difference, relative to that
        of the activations (Frobenius). Empty in float32.
    """

    largest: float
    of_layers: List[float]


class Timing(NamedTuple):
    """The words of a repetition of a case, and the seconds of each repetition by contender."""

    num_tokens: int
    seconds: Dict[str, List[float]]

    def median(self, name: str) -> float:
        """Seconds."""
        return statistics.median(self.seconds[name])

    def speed_ratio(self, name: str) -> float:
        """How many times AllenNLP's speed, by medians."""
        return self.median(ALLENNLP) / self.median(name)


class LayerSpeed(NamedTuple):
    """
    How fast the LSTM layers are, and how fast the machine multiplies matrices and reads memory.

    # Parameters

    seconds, peak_seconds : `List[float]`
        Of each repetition of the layers over many rows, and of the product.
    gflops, peak_gflops : `float`
        10^9 operations per second: the median of the layers, the fastest product.
    row_seconds, memory_seconds : `List[float]`
        Of each repetition of the layers over one row, and of the copy.
    row_gigabytes, memory_gigabytes : `float`
        10^9 bytes per second: of the weights that each step must read, by the median; read and written by the
        fastest copy.
    """

    seconds: List[float]
    gflops: float
    peak_seconds: List[float]
    peak_gflops: float
    row_seconds: List[float]
    row_gigabytes: float
    memory_seconds: List[float]
    memory_gigabytes: float


def differences_table(differences: Dict[str, Difference]) -> str:
    """How far the precisions are off, in Markdown."""
    num_layers = max(len(difference.of_layers) for difference in differences.values())
    header = ["precision", "compared with", "largest difference of the representation"]
    header += [f"relative error, layer {number}" for number in range(num_layers)]
    rows = [
        [
            precision,
            "AllenNLP" if precision == "float32" else "float32",
            f"{difference.largest:.1e}",
            *([f"{error:.1e}" for error in difference.of_layers] or ["–"] * num_layers),
        ]
        for precision, difference in differences.items()
    ]
    return _table(header, rows)


def timings_table(timings: Dict[str, Timing], precisions: List[str]) -> str:
    """Time and speed of each case, in Markdown."""
    header = ["case", "tokens", f"{ALLENNLP} ms"]
    for precision in precisions:
        header += [f"{precision} ms", "times AllenNLP's"]
    rows: List[List[str]] = []
    for case, timing in timings.items():
        row = [case, f"{timing.num_tokens:,}", f"{1000 * timing.median(ALLENNLP):,.1f}"]
        for precision in precisions:
            if precision in timing.seconds:
                row += [
                    f"{1000 * timing.median(precision):,.1f}",
                    f"{timing.speed_ratio(precision):.2f}",
                ]
            else:
                row += ["–", "–"]
        rows.append(row)
    return _table(header, rows)


def layers_table(speeds: Dict[str, LayerSpeed]) -> str:
    """The LSTM layers beside plain products of matrices and copies, in Markdown."""
    header = ["LSTM layers", "ms", "GFLOP/s", "peak GFLOP/s", "share of the peak"]
    header += ["one row, ms", "weights, GB/s", "memory, GB/s", "share of the memory's"]
    rows = [
        [
            precision,
            f"{1000 * statistics.median(speed.seconds):,.1f}",
            f"{speed.gflops:,.1f}",
            f"{speed.peak_gflops:,.1f}",
            f"{speed.gflops / speed.peak_gflops:.0%}",
            f"{1000 * statistics.median(speed.row_seconds):,.1f}",
            f"{speed.row_gigabytes:,.1f}",
            f"{speed.memory_gigabytes:,.1f}",
            f"{speed.row_gigabytes / speed.memory_gigabytes:.0%}",
        ]
        for precision, speed in speeds.items()
    ]
    notes = (
        "Peak: the fastest torch.mm in that precision (int8: torch._int_mm). Memory: the fastest copy, read "
        "and written. Weights that stay in a cache are read faster than that."
    )
    return f"{_table(header, rows)}\n\n{notes}"


def _table(header: List[str], rows: List[List[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines).replace("| --- ", "|---")


def missing_matplotlib() -> Optional[str]:
    """What to do about matplotlib; `None` if it is installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return "matplotlib is not installed. Install it with `pip install matplotlib`."
    return None


def write_report(
    folder: Path,
    facts: Dict[str, Any],
    differences: Dict[str, Difference],
    timings: Dict[str, Timing],
    speeds: Dict[str, LayerSpeed],
) -> List[Path]:
    """
    Write inference_speed.json and, of cases that AllenNLP takes part in and if matplotlib is installed,
    inference_speed.png and .svg.

    # Returns

    The files that were written.
    """
    json_file = folder / "inference_speed.json"
    report = {
        **facts,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu_capabilities": cpu_capabilities(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "allennlp": metadata.version("allennlp"),
            "elmo_plugin": elmo_plugin.__version__,
        },
        "differences": {name: difference._asdict() for name, difference in differences.items()},
        "cases": {
            case: {
                "num_tokens": timing.num_tokens,
                "seconds": timing.seconds,
                "medians": {name: timing.median(name) for name in timing.seconds},
                "speed_ratios": {
                    name: timing.speed_ratio(name) for name in timing.seconds if name != ALLENNLP
                },
            }
            for case, timing in timings.items()
        },
        "lstm": {name: speed._asdict() for name, speed in speeds.items()},
    }
    json_file.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if not timings or missing_matplotlib():
        return [json_file]
    return [json_file, *draw_chart(folder, timings, facts["machine"])]


def cpu_capabilities() -> List[str]:
    """What the processor has of the instructions that matter here, as Linux names them."""
    prefixes = ("avx", "amx", "fma", "sve", "asimd", "bf16", "i8mm")
    return sorted(name for name in processor_features() if name.startswith(prefixes))


def draw_chart(folder: Path, timings: Dict[str, Timing], machine: str) -> List[Path]:
    """A group of bars for each case, a bar for each precision: how many times AllenNLP's speed."""
    # Here, since it need not be installed. No window: figures are drawn without pyplot.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    names = [name for name in COLORS if any(name in timing.seconds for timing in timings.values())]
    width = 0.8 / len(names)
    for name in names:
        places, ratios = [], []
        for place, timing in enumerate(timings.values()):
            if name in timing.seconds:
                present = [other for other in names if other in timing.seconds]
                places.append(place + width * (present.index(name) - (len(present) - 1) / 2))
                ratios.append(timing.speed_ratio(name))
        bars = axes.bar(places, ratios, 0.9 * width, color=COLORS[name], label=f"ours, {name}")
        axes.bar_label(bars, fmt="%.1f", fontsize=8)
    axes.axhline(1.0, color="black", linewidth=1, linestyle="--", label="AllenNLP, float32")
    axes.set_xticks(range(len(timings)), list(timings))
    axes.set_ylabel("times AllenNLP's speed")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    axes.set_title(machine, fontsize=8, wrap=True)
    files = [folder / f"inference_speed.{suffix}" for suffix in ("png", "svg")]
    for file in files:
        figure.savefig(file, dpi=150)
    return files
