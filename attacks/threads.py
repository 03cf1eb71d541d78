"""
One model in many threads, and in processes that are forked from one that uses it: the numbers of a serial
run, to the bit.
"""

import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, Callable, List

import torch
from torch import Tensor

from attacks import FIXTURES
from attacks.models import choose_code
from attacks.mutations import odd_token
from attacks.trials import Attack, Trial, check
from elmo_plugin import BiLM, Elmo, ElmoEmbedder, FrozenBiLM, batch_to_ids

FILES = (str(FIXTURES / "bilm/tiny/options.json"), str(FIXTURES / "bilm/tiny/weights.hdf5"))
NUM_THREADS = 16

Sentences = List[List[str]]
Call = Callable[[Sentences], List[Tensor]]


def odd_sentences(random: Random) -> Sentences:
    return [
        [odd_token(random) for _ in range(random.choice([1, 2, 5, 20]))]
        for _ in range(random.randint(1, 6))
    ]


def random_model(random: Random) -> Any:
    """Return a new model, with a cache that is often full."""
    kind = random.choice(["frozen", "elmo", "embedder", "bilm"])
    if kind == "bilm":
        return BiLM.from_files(*FILES)
    if kind == "elmo":
        elmo = Elmo(*FILES, num_output_representations=2, dropout=0.0).eval()
        return elmo.requires_grad_(random.random() < 0.3)
    # torch's products of a row depend on the other rows, and so on the words that are cached.
    kernel, sizes = random.choice([("auto", [0, 3, 50_000]), ("reference", [0])])
    frozen = FrozenBiLM.from_files(
        *FILES,
        precision=random.choice(["float32", "bfloat16", "int8"]),
        kernel=kernel,
        word_cache_size=random.choice(sizes),
    )
    return frozen if kind == "frozen" else ElmoEmbedder.from_bilm(frozen)


def calls(random: Random) -> Call:
    """Return a function of sentences that runs a new model."""
    model = random_model(random)

    def run(sentences: Sentences) -> List[Tensor]:
        if isinstance(model, ElmoEmbedder):
            return [torch.from_numpy(layers.copy()) for layers in model.embed_batch(sentences)]
        output = model(batch_to_ids(sentences))
        layers = output["elmo_representations" if isinstance(model, Elmo) else "activations"]
        return [layer.detach() for layer in layers]

    return run


def are_equal(found: List[Tensor], expected: List[Tensor]) -> bool:
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


def threads(folder: Path) -> Trial:
    """A model is called by all threads at once, each with batches of its own."""

    def trial(random: Random) -> None:
        torch.set_num_threads(random.choice([1, 2]))
        choose_code(random)
        call = calls(random)
        batches = [odd_sentences(random) for _ in range(2 * NUM_THREADS)]
        expected: List[Any] = []
        is_serial_first = random.random() < 0.5
        if is_serial_first:
            expected = list(map(call, batches))
        barrier = threading.Barrier(NUM_THREADS)

        def run_some(first: int) -> List[List[Tensor]]:
            barrier.wait()
            return [call(batch) for batch in batches[first::NUM_THREADS]]

        with ThreadPoolExecutor(NUM_THREADS) as pool:
            found = list(pool.map(run_some, range(NUM_THREADS)))
        expected = expected or list(map(call, batches))
        for first, results in enumerate(found):
            for result, serial in zip(results, expected[first::NUM_THREADS]):
                check("the numbers of a serial run", are_equal(result, serial))

    return trial


def forks(folder: Path) -> Trial:
    """A process that has used a model forks, perhaps while another thread uses it, and the child uses it."""

    # As the forked process has: the order of torch's sums may depend on the number.
    torch.set_num_threads(1)

    def trial(random: Random) -> None:
        call = calls(random)
        batch = odd_sentences(random)
        expected = call(batch)
        is_done = threading.Event()

        def use() -> None:
            while not is_done.is_set():
                call(batch)

        thread = threading.Thread(target=use)
        if random.random() < 0.5:
            thread.start()
        try:
            found = in_a_fork(lambda: call(batch))
        finally:
            is_done.set()
            if thread.ident is not None:
                thread.join()
        check("the numbers of the parent", are_equal(found, expected))

    return trial


def in_a_fork(function: Callable[[], Any]) -> Any:
    """Return what a function returns in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        status = 1
        try:
            with open(writing, "wb") as file:
                pickle.dump(function(), file)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, "rb") as file:
        data = file.read()
    _, status = os.waitpid(child, 0)
    check(f"status 0 of a forked process, found {status}", status == 0)
    return pickle.loads(data)


PROMISE = "models can be used in threads and in forked processes, with the same numbers"
ATTACKS = [
    Attack("threads", PROMISE, threads, max_seconds=60.0),
    Attack("forks", PROMISE, forks, max_seconds=60.0),
]
