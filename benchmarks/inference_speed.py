"""
How fast our ELMo embeds text, in each precision, beside `allennlp.modules.elmo.Elmo`: one process, the same
weights, the same text. All take turns, one repetition each, so that what slows the machine slows all.

What a repetition is, by case:
  batches      --batches batches of 32 sentences, in the order of the file. Our word cache is emptied before,
               so that a batch profits from the batches before it and from nothing else.
  single       --sentences sentences, one at a time, after an untimed pass over the same ones.
  file         The first --file-sentences sentences, from their tokens to a list of vectors in the order of
               the file, as a corpus is embedded. Ours sorts by length, takes about 2,000 tokens at a time,
               and restores the order; AllenNLP's takes 64 sentences at a time, in order. Each turns tokens to
               character ids itself, which no other case times. Our word cache is emptied before.
  fine_tuning  A step of a trainable biLM on 32 sentences: the representation, its sum, gradients of all
               weights. No optimizer. In float32 only.
  lstm         Our LSTM layers alone: 64 rows of 25 steps, all layers, both directions. Beside their speed
               stands the machine's own in that precision, timed in turns with them: the fastest torch.mm of
               two 2048 x 2048 matrices, on a GPU 8192 x 8192 (int8: torch._int_mm). And one row of 25 steps,
               beside the memory's speed: as each step must read all weights for states, a single sentence can
               hardly be faster than that, unless they stay in a cache.

Dropout is 0, both are in eval mode, and only fine_tuning makes gradients. AllenNLP's carries the states of
its LSTMs from batch to batch, as it always does; ours is stateless. Before anything is timed, ours in float32
and AllenNLP's must agree within 1e-5 on the first batch; before fine_tuning, the norms of their gradients
within 0.1 %. (Of weight files in float16 both read a copy in float32: AllenNLP's would add to the forget bias
in float16.) How far bfloat16 and int8 are from float32, on these weights and that batch, is in the output:
the largest difference, and for each layer the Frobenius norm of the difference over that of the activations.

The tables are in Markdown: medians, and how many times AllenNLP's speed that is. Progress goes to stderr.

    python benchmarks/inference_speed.py --text corpus.txt --options elmo_mini --output runs/inference_speed
    python benchmarks/inference_speed.py --text corpus.txt --cases batches single --threads 1

The second has no --options: it makes random weights of the original's shape (2 layers of 4096 cells projected
to 512). All cases in that shape take about 6 GB of memory and, on two cores, half an hour or more.
"""

import argparse
import shlex
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Dict, List, Optional, Tuple

import h5py
import torch
from allennlp.common.checks import ConfigurationError
from inference_cases import (
    CASES,
    FLOAT32,
    ROWS_PER_BATCH,
    Contender,
    DisagreementError,
    Sentence,
    Setting,
    Work,
    layer_speeds,
    new_contenders,
)
from inference_report import (
    Difference,
    LayerSpeed,
    Timing,
    differences_table,
    layers_table,
    missing_matplotlib,
    timings_table,
    write_report,
)
from tqdm import tqdm
from training_speed import machine, synchronize

from elmo_plugin import BiLM
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.kernels import (
    AUTO,
    KERNEL_NAMES,
    PRECISIONS,
    choose_kernel,
    choose_precision,
)
from elmo_plugin.bilm.model_files import resolve_model_files

ORIGINAL = BiLMOptions()


def measure(
    case: str,
    work: Work,
    contenders: Dict[str, Contender],
    repetitions: int,
    device: torch.device,
) -> Dict[str, List[float]]:
    """Seconds of each repetition. The contenders take turns, so that what slows the machine slows all."""
    seconds: Dict[str, List[float]] = {name: [] for name in work.runs}
    num_rounds = work.is_warmed + repetitions
    with tqdm(
        total=num_rounds * len(work.runs), desc=case, unit="run", file=sys.stderr
    ) as progress:
        for number in range(num_rounds):
            for name, run in work.runs.items():
                progress.set_postfix_str(name)
                if work.is_cold and contenders[name].is_ours:
                    contenders[name].elmo.bilm.word_cache.clear()
                synchronize(device)
                start = time.perf_counter()
                run()
                synchronize(device)
                if number >= work.is_warmed:
                    seconds[name].append(time.perf_counter() - start)
                progress.update()
    return seconds


def read_sentences(path: Path, num_needed: int, is_whole: bool) -> List[Sentence]:
    """
    As many sentences of a file as are needed, or all. Empty lines are none.

    # Raises

    `ConfigurationError` if the file cannot be read, or has fewer than are needed.
    """
    sentences: List[Sentence] = []
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                if len(sentences) == num_needed and not is_whole:
                    break
                if line.strip():
                    sentences.append(line.split())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"--text: cannot read {path} ({error}). Give a UTF-8 file, one tokenized sentence on each line."
        ) from error
    if len(sentences) < num_needed:
        raise ConfigurationError(
            f"--text: {path} has {len(sentences)} sentences, expected at least {num_needed}. Give a longer "
            "text, or lower --batches, --sentences or --file-sentences (0: the whole file)."
        )
    return sentences


def num_sentences_needed(arguments: argparse.Namespace, cases: List[str]) -> int:
    """By the check and the cases. A whole file may have any number."""
    numbers = {
        "batches": arguments.batches * ROWS_PER_BATCH,
        "single": arguments.sentences,
        "file": arguments.file_sentences,
    }
    return max([ROWS_PER_BATCH, *(number for case, number in numbers.items() if case in cases)])


def new_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    # fmt: off
    add("--text", type=Path, required=True, metavar="FILE",
        help="UTF-8 text, one tokenized sentence on each line, words set apart by spaces; required")
    add("--options", metavar="NAME",
        help="options file of a biLM, or a name that stands for both its files, such as elmo_mini "
        "(default: random weights of the original's shape)")
    add("--weights", metavar="NAME", help="weight file of that biLM")
    add("--cases", nargs="+", choices=CASES, metavar="CASE",
        help=f"what to measure, see above: {', '.join(CASES)} (default: all)")
    add("--precisions", nargs="+", choices=PRECISIONS, metavar="PRECISION",
        help=f"of ours: {', '.join(PRECISIONS)} (default: all; on a GPU all but int8)")
    add("--kernel", choices=KERNEL_NAMES, default=AUTO,
        help="what runs our frozen layers (default: auto, the fastest that runs here)")
    add("--batches", type=positive, default=4, metavar="N",
        help=f"batches of {ROWS_PER_BATCH} sentences in the case batches (default: 4)")
    add("--sentences", type=positive, default=16, metavar="N",
        help="sentences in the case single (default: 16)")
    add("--file-sentences", type=not_negative, default=640, metavar="N",
        help="sentences in the case file; 0 for the whole file (default: 640)")
    add("--repetitions", type=positive, default=5, metavar="N",
        help="timed repetitions of each case (default: 5)")
    add("--threads", type=positive, metavar="N", help="CPU threads (default: torch's choice)")
    add("--device", type=usable_device, default=torch.device("cpu"),
        help="cpu, cuda or cuda:N (default: cpu)")
    add("--output", type=Path, metavar="DIR",
        help="folder for inference_speed.json (all times, and what they were measured on) and, if "
        "matplotlib is installed, inference_speed.png and .svg")
    # fmt: on
    return parser


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"found {text}, expected at least 1")
    return number


def not_negative(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"found {text}, expected at least 0")
    return number


def usable_device(text: str) -> torch.device:
    try:
        device = torch.device(text)
        torch.empty(0, device=device)
    # torch says in many ways that there is no such device.
    except (RuntimeError, AssertionError) as error:
        raise argparse.ArgumentTypeError(
            f"found {text}, expected cpu, or cuda or cuda:N where there is such a GPU ({error})"
        ) from error
    return device


def chosen_precisions(arguments: argparse.Namespace) -> List[str]:
    """
    # Raises

    `ConfigurationError` if there is no such precision on the device.
    """
    is_on_cpu = arguments.device.type == "cpu"
    if arguments.precisions is None:
        return [precision for precision in PRECISIONS if is_on_cpu or precision != "int8"]
    if "int8" in arguments.precisions and not is_on_cpu:
        raise ConfigurationError("--precisions: int8 is for CPUs. Leave it out, or --device.")
    # In one order, each once.
    return [precision for precision in PRECISIONS if precision in arguments.precisions]


def chosen_cases(arguments: argparse.Namespace, precisions: List[str]) -> List[str]:
    """
    # Raises

    `ConfigurationError` for fine_tuning without float32.
    """
    if arguments.cases is None:
        return [case for case in CASES if case != "fine_tuning" or FLOAT32 in precisions]
    if "fine_tuning" in arguments.cases and FLOAT32 not in precisions:
        raise ConfigurationError(
            "--cases: fine_tuning runs in float32. Leave it out, or add float32 to --precisions."
        )
    return [case for case in CASES if case in arguments.cases]


def new_setting(arguments: argparse.Namespace, folder: str) -> Setting:
    """
    What the arguments ask for. Weights that are not in the user's files, if need be, go to `folder`.

    # Raises

    `ConfigurationError` naming what is wrong with the arguments, before any long work.
    """
    precisions = chosen_precisions(arguments)
    cases = chosen_cases(arguments, precisions)
    is_whole = "file" in cases and arguments.file_sentences == 0
    num_needed = num_sentences_needed(arguments, cases)
    sentences = read_sentences(arguments.text, num_needed, is_whole)
    for precision in precisions:
        choose_kernel(arguments.kernel, precision, arguments.device)
    if arguments.options is None and arguments.weights is None:
        print("Writing random weights of the original's shape ...", file=sys.stderr)
        torch.manual_seed(0)
        options_file, weight_file = saved(BiLM(ORIGINAL), folder)
    else:
        options_file, weight_file = resolve_model_files(arguments.options, arguments.weights)
        bilm = BiLM.from_files(options_file, weight_file)
        with h5py.File(weight_file) as file:
            if file["RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/B"].dtype != "float32":
                options_file, weight_file = saved(bilm, folder)
    return Setting(
        cases,
        BiLMOptions.from_file(options_file),
        options_file,
        weight_file,
        sentences,
        precisions,
        arguments.kernel,
        arguments.batches,
        arguments.sentences,
        arguments.file_sentences or len(sentences),
        arguments.device,
    )


def saved(bilm: BiLM, folder: str) -> Tuple[Path, Path]:
    """Its options and its weights, in float32, as files."""
    files = Path(folder, "options.json"), Path(folder, "weights.hdf5")
    bilm.save(*files)
    return files


def run(
    setting: Setting, repetitions: int
) -> Tuple[Dict[str, Difference], Dict[str, Timing], Dict[str, LayerSpeed]]:
    """
    Check, measure, print the tables.

    # Raises

    `DisagreementError` if the contenders do not compute the same; `ConfigurationError` if AllenNLP's cannot
    run this biLM.
    """
    # float32 means float32 to all: on a GPU, products could else be rounded to TF32.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    contenders, differences = new_contenders(setting)
    # All checks come before all times.
    works = {case: CASES[case](setting, contenders) for case in setting.cases}
    print(f"\n{differences_table(differences)}", flush=True)
    timings: Dict[str, Timing] = {}
    speeds: Dict[str, LayerSpeed] = {}
    for case, work in works.items():
        seconds = measure(case, work, contenders, repetitions, setting.device)
        if case == "lstm":
            speeds = layer_speeds(setting, seconds)
        else:
            timings[case] = Timing(work.num_tokens, seconds)
    if timings:
        print(f"\n{timings_table(timings, setting.precisions)}")
    if speeds:
        print(f"\n{layers_table(speeds)}")
    return differences, timings, speeds


def what_runs(setting: Setting, precision: str) -> str:
    """The kernel that runs a precision, and the precision that runs in its place where it would be slow."""
    chosen = choose_precision(setting.kernel, precision, setting.device)
    kernel = choose_kernel(setting.kernel, chosen, setting.device).name
    return kernel if chosen == precision else f"{kernel} in {chosen}"


def main(argv: Optional[List[str]] = None) -> None:
    parser = new_parser()
    arguments = parser.parse_args(argv)
    if arguments.threads is not None:
        torch.set_num_threads(arguments.threads)
    with TemporaryDirectory() as folder:
        try:
            setting = new_setting(arguments, folder)
            if arguments.output is not None:
                arguments.output.mkdir(parents=True, exist_ok=True)
        except (ConfigurationError, OSError) as error:
            parser.error(str(error))
        if arguments.output is not None and missing_matplotlib():
            print(f"There will be no picture: {missing_matplotlib()}", file=sys.stderr)
        kernels = {precision: what_runs(setting, precision) for precision in setting.precisions}
        model = arguments.options or arguments.weights or "random weights"
        options = setting.options
        print(
            f"{machine(setting.device)}; {model}: {options.num_layers} layers of {options.cell_size} cells, "
            f"projection {options.projection_dim}; kernels: "
            f"{', '.join(f'{kernel} ({precision})' for precision, kernel in kernels.items())}; "
            f"medians of {arguments.repetitions} repetitions",
            flush=True,
        )
        try:
            results = run(setting, arguments.repetitions)
        except (ConfigurationError, DisagreementError) as error:
            sys.exit(str(error))
    if arguments.output is not None:
        facts = {
            "command": shlex.join([sys.argv[0], *(sys.argv[1:] if argv is None else argv)]),
            "machine": machine(setting.device),
            "threads": torch.get_num_threads(),
            "device": str(setting.device),
            "repetitions": arguments.repetitions,
            "model": model,
            "options": options.to_dict(),
            "kernels": kernels,
        }
        files = write_report(arguments.output, facts, *results)
        print(f"Wrote {', '.join(str(file) for file in files)}.", file=sys.stderr)


if __name__ == "__main__":
    main()
