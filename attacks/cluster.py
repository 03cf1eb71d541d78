"""An embedding run on Ray, of which any process is killed at any time, ends in time and can be resumed."""

import os
import signal
import time
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Callable, Dict, List, Optional

import numpy

from attacks import FIXTURES
from attacks.crashes import MAX_DISTURBANCES, enter_empty, set_up_process
from attacks.interrupts import contents, print_to
from attacks.trials import Attack, Trial, check
from elmo_plugin import ElmoEmbedder, FrozenBiLM
from elmo_plugin.embedding.engines import EngineOptions, import_ray
from elmo_plugin.embedding.formats import FORMATS, OutputOptions
from elmo_plugin.embedding.layers import LayerChoice
from elmo_plugin.embedding.run import EmbeddingRun

NUM_LINES, SENTENCES_PER_PART = 60, 5
# A driver waits a minute for a head that is gone, and Ray's processes wait for each other before they end.
MAX_SECONDS = 200.0
# A run takes so long on two cores with nothing else to do.
MOST_SECONDS_TO_KILL = 10.0
# In the environment of Ray's processes, with the number of their driver.
MARK = "ELMO_ATTACK_DRIVER"


def prepare_cluster(folder: Path) -> Trial:
    set_up_process()
    import_ray()  # once, before the forks
    place, log = folder / "place", folder / "trial.log"
    # Signs do not have the rounding of the batch that a word was first in.
    layers = LayerChoice("signs", lambda layers: numpy.sign(layers[-1]))
    embedder = ElmoEmbedder.from_bilm(FrozenBiLM.from_files(FIXTURES / "bilm" / "tiny"))
    expected: Dict[str, Dict[str, bytes]] = {}

    def embed(format: str, engine: str, resume: bool) -> None:
        is_ray = engine == "ray"
        EmbeddingRun(
            "in.txt",
            "out",
            output_options=OutputOptions(format=format, resume=resume),
            engine=EngineOptions(engine=engine, num_workers=2 if is_ray else None),
            sentences_per_part=SENTENCES_PER_PART,
        ).embed(embedder, layers)

    def trial(random: Random) -> None:
        format = random.choice(FORMATS)
        enter_empty(place)
        text = "".join(f"{'word ' * (number % 6)}{number}\n" for number in range(NUM_LINES))
        Path("in.txt").write_text(text)
        if format not in expected:
            embed(format, "local", resume=False)
            expected[format] = contents(Path("out"))
            enter_empty(place)
            Path("in.txt").write_text(text)
        for is_last in [False] * random.randint(1, MAX_DISTURBANCES) + [True]:
            engine = random.choice(["local", "ray"]) if is_last else "ray"
            driver = start(partial(embed, format, engine, resume=True), log)
            status = ended(driver, None if is_last else random)
            output = log.read_text(errors="replace")[-2000:]
            check(f"an end in {MAX_SECONDS:g} seconds\n{output}", status is not None)
            check(f"a complete run\n{output}", status == 0 or not is_last)
            found = contents(Path("out"))
            allowed = [expected[format]] if status == 0 else [expected[format], {}]
            check("the output of an undisturbed run", found in allowed)
        check(f"nothing else, found {os.listdir()}", sorted(os.listdir()) == ["in.txt", "out"])

    return trial


def start(function: Callable[[], None], log: Path) -> int:
    """Call a function in a forked process, whose exit status is 0 if it returns."""
    child = os.fork()
    if child:
        return child
    print_to(log)
    os.environ[MARK] = str(os.getpid())
    try:
        function()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def ended(driver: int, random: Optional[Random]) -> Optional[int]:
    """
    Kill a driver, or one of the processes of its Ray, at a random time, and return the driver's exit status.
    Without random numbers, wait for it. `None` if it did not end, and was killed.
    """
    begin = time.monotonic()
    moment = begin + (random.uniform(0, MOST_SECONDS_TO_KILL) if random else MAX_SECONDS)
    status: Optional[int] = None
    while status is None and time.monotonic() < begin + MAX_SECONDS:
        pid, result = os.waitpid(driver, os.WNOHANG)
        if pid:
            status = os.waitstatus_to_exitcode(result)
        elif random and time.monotonic() > moment:
            moment = begin + MAX_SECONDS
            # The driver as often as one of the others.
            others = processes_of(driver)
            victim = random.choice(others) if others and random.random() < 0.5 else driver
            number = random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT])
            kill(victim, number if victim == driver else signal.SIGKILL)
        time.sleep(0.05)
    for left in processes_of(driver):
        kill(left, signal.SIGKILL)
    if status is None:
        kill(driver, signal.SIGKILL)
        os.waitpid(driver, 0)
    return status


def processes_of(driver: int) -> List[int]:
    """Return the processes of a driver's Ray, oldest first."""
    mark = f"{MARK}={driver}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return sorted(found)


def kill(process: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


ATTACKS = [
    Attack(
        "killed_cluster",
        "an embedding run on Ray ends in time if its driver, a worker or Ray's own processes are killed; it "
        "can be resumed, and its output is the same to the bit",
        prepare_cluster,
        max_seconds=60.0,
    )
]
