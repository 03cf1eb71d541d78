"""
Tensors of any shape, type and content: the result of the same ids in the usual form, or one clear
error.
"""

import logging
from pathlib import Path
from random import Random
from typing import Any, Callable, Dict, List, Optional

import torch
from torch import Tensor

from attacks import FIXTURES
from attacks.models import random_sentences
from attacks.trials import Attack, Trial, check
from elmo_plugin import BiLM, Elmo, batch_to_ids
from elmo_plugin.modules.elmo_token_embedder import ElmoTokenEmbedder

FILES = (str(FIXTURES / "bilm/tiny/options.json"), str(FIXTURES / "bilm/tiny/weights.hdf5"))
INTEGERS = (torch.int16, torch.int32, torch.int64)
TYPES = (*INTEGERS, torch.bool, torch.uint8, torch.int8, torch.half, torch.float, torch.complex64)


def mutated_tensor(random: Random, ids: Tensor) -> Tensor:
    """Return ids of another type, shape, layout in memory, or with other numbers."""
    for _ in range(random.choice([0, 1, 1, 2, 3])):
        kind = random.randrange(8)
        if kind == 0:
            ids = ids.to(random.choice(TYPES))
        elif kind == 1 and ids.dim():
            dim = random.randrange(ids.dim())
            ids = ids.narrow(dim, 0, random.randint(0, ids.size(dim)))
        elif kind == 2 and ids.dim():
            ids = ids.transpose(random.randrange(ids.dim()), random.randrange(ids.dim()))
        elif kind == 3:
            ids = ids.unsqueeze(random.randint(0, ids.dim()))
        elif kind == 4:
            ids = ids.flatten() if random.random() < 0.5 else ids.squeeze()
        elif kind == 5 and ids.numel():
            ids = ids.clone(memory_format=torch.contiguous_format)
            number = random.choice([-(2**63), -1, 0, 1, 256, 261, 262, 2**15, 2**31, 2**62])
            place = random.randrange(ids.numel())
            ids.view(-1)[place] = torch.tensor(number).to(ids.dtype)
        elif kind == 6 and ids.dim() and ids.numel():
            ids = ids.clone()
            ids[random.randrange(len(ids))] = 0
        elif kind == 7:
            # The same numbers, elsewhere in memory.
            ids = torch.stack([ids, ids], dim=-1)[..., 0]
    return ids


def is_right(ids: Tensor, dims: int) -> bool:
    """Whether ids, with that many dimensions, have an allowed type, only words, and padding at the end."""
    if ids.dim() != dims or ids.size(-1) != 50 or ids.dtype not in INTEGERS:
        return False
    rows = ids.reshape(ids.shape[:-2].numel(), *ids.shape[-2:]).tolist()
    if any(not 0 <= number <= 261 for row in rows for word in row for number in word):
        return False
    are_words = [[any(word) for word in row] for row in rows]
    return all(row == sorted(row, reverse=True) for row in are_words)


def result_of(call: Callable[[], Any]) -> Any:
    """Return the result, or `None` after a `ValueError` of one line."""
    try:
        return call()
    except ValueError as error:
        message = str(error)
        check(f"a line of up to 400 characters: {message[:500]}", len(message) <= 400)
        check(f"a line: {message}", "\n" not in message and message != "")
        return None


def tensors(folder: Path) -> Trial:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    bilm = BiLM.from_files(*FILES)
    words = ["@@PADDING@@", "a", "b", "ÿ" * 60]
    elmo = Elmo(*FILES, num_output_representations=2, dropout=0.0, vocab_to_cache=words).eval()
    embedder = ElmoTokenEmbedder(*FILES, dropout=0.0, vocab_to_cache=words).eval()
    spellings = batch_to_ids([words])[0]
    spellings[0] = 0
    frozen = bilm.freeze()
    runs: Dict[str, Callable[..., List[Tensor]]] = {
        "bilm": lambda ids: list(bilm(ids)["activations"]),
        "frozen": lambda ids: list(frozen(ids)["activations"]),
        "kept": lambda ids: list(frozen(ids, keep_sentences=True)["activations"]),
        "elmo": lambda *ids: list(elmo(*ids)["elmo_representations"]),
        "embedder": lambda *ids: [embedder(*ids)],
    }

    def trial(random: Random) -> None:
        ids = mutated_tensor(random, batch_to_ids(random_sentences(random)[:6]))
        name = random.choice(list(runs))
        has_outer_dims = name in ("elmo", "embedder")
        word_ids: Optional[Tensor] = None
        arguments = [ids]
        if has_outer_dims and random.random() < 0.5:
            generator = torch.Generator().manual_seed(random.randrange(2**31))
            largest = random.choice([len(words), len(words), len(words) + 1])
            right = torch.randint(1, largest, ids.shape[:-1], generator=generator)
            word_ids = mutated_tensor(random, right)
            arguments = [ids, word_ids]
        before = [argument.clone() for argument in arguments]
        dims = max(3, ids.dim()) if has_outer_dims else 3
        read, is_allowed = ids, True
        if word_ids is not None:
            is_allowed = word_ids.dtype in INTEGERS and word_ids.shape == ids.shape[:-1]
            numbers = word_ids.flatten().tolist() if is_allowed else []
            is_allowed = is_allowed and all(number >= 0 for number in numbers)
            if is_allowed and numbers and max(numbers) < len(words):
                read = spellings[word_ids.long()]
        found = result_of(lambda: runs[name](*arguments))
        # Where the words are read in place of the characters, these need only the right shape.
        is_allowed = is_allowed and ids.dim() == dims and is_right(read, dims)
        check(
            f"{'a result' if is_allowed else 'an error'} of {name}",
            is_allowed == (found is not None),
        )
        check("unchanged arguments", all(map(torch.equal, arguments, before)))
        if found is not None:
            usual = read.long().contiguous()
            usual = usual.reshape(usual.shape[:-2].numel(), *usual.shape[-2:])
            expected = runs[name](usual)
            shape = read.shape[:-2]
            # torch's products of rows, in training modules, depend on their place in memory.
            for ours, theirs in zip(found, expected):
                check("its outer dimensions", ours.shape[: len(shape)] == shape)
                check(
                    "the numbers of the same ids", torch.equal(ours.reshape(theirs.shape), theirs)
                )

    return trial


ATTACKS = [Attack("inputs", "tensors of any form: a correct result or a clear error", tensors)]
