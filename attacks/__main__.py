"""
Attack what the package promises, for a number of minutes.

    make attack                               # ten minutes for all
    make attack OPTIONS="--minutes 60"
    python -m attacks options text --minutes 5 --seed 7
    python -m attacks options --repeat 1234   # one trial, in this process, with its traceback
    python -m attacks --list

Each attack makes trials with random input, in a process of its own. The exit status is 1 if one failed.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

from attacks.trials import Attack, Failure, Outcome, as_table, generator, run_attack

_MODULES = (
    *("archives", "cluster", "crashes", "gradients", "inputs", "kernels", "models"),
    *("parsers", "reports", "requests", "threads"),
)
ATTACKS = {
    attack.name: attack
    for module in _MODULES
    for attack in import_module(f"attacks.{module}").ATTACKS
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m attacks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="attacks (default: all)")
    parser.add_argument(
        "--minutes", type=float, default=10, help="for all attacks together (default: 10)"
    )
    parser.add_argument(
        "--trials",
        type=int,
        default=sys.maxsize,
        help="at most, of each attack (default: no limit)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="other seeds make other trials (default: 0)"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="attacks at once (default: one per CPU)"
    )
    parser.add_argument(
        "--repeat",
        nargs="+",
        type=int,
        metavar="NUMBER",
        help="run only these trials, in this process",
    )
    parser.add_argument("--list", action="store_true", help="list the attacks and what they attack")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in ATTACKS]
    if unknown:
        parser.error(f"unknown attack {unknown[0]}, expected some of: {', '.join(ATTACKS)}")
    chosen = [ATTACKS[name] for name in arguments.names or ATTACKS]
    if arguments.list:
        for attack in chosen:
            print(f"{attack.name:20} {attack.promise}")
    elif arguments.repeat is not None:
        for attack in chosen:
            with tempfile.TemporaryDirectory() as folder:
                trial = attack.prepare(Path(folder))
                for number in arguments.repeat:
                    trial(generator(arguments.seed, attack.name, number))
            print(f"{attack.name}: {len(arguments.repeat)} trials passed", flush=True)
    else:
        sys.exit(_run_all(chosen, arguments))


def _shown(reason: str) -> str:
    lines = [
        line if len(line) < 400 else f"{line[:200]} ... {line[-200:]}"
        for line in reason.split("\n")
    ]
    # The first line says how a process ended.
    return "\n".join(lines if len(lines) <= 25 else [lines[0], "...", *lines[-24:]])


def _run_all(attacks: list, arguments: argparse.Namespace) -> int:
    # Processes are forked from one that has imported AllenNLP.
    multiprocessing.set_forkserver_preload(["attacks.__main__"])
    seconds = arguments.minutes * 60 * arguments.jobs / len(attacks)
    lock = threading.Lock()

    def run(attack: Attack) -> Outcome:
        def report(failure: Failure) -> None:
            with lock:
                print(
                    f"\n{attack.name} failed. Repeat it: python -m attacks {attack.name} "
                    f"--seed {arguments.seed} --repeat {failure.number}\n{_shown(failure.reason)}",
                    flush=True,
                )

        outcome = run_attack(attack, arguments.seed, seconds, arguments.trials, report=report)
        with lock:
            print(
                f"{attack.name}: {outcome.num_trials:,} trials, {len(outcome.failures)} failures",
                flush=True,
            )
        return outcome

    with ThreadPoolExecutor(arguments.jobs) as pool:
        outcomes = list(pool.map(run, attacks))
    print(f"\n{as_table(outcomes)}")
    # An attack that tried nothing has shown nothing.
    return int(any(outcome.failures or not outcome.num_trials for outcome in outcomes))


if __name__ == "__main__":
    main()
