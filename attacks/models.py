"""
Random biLMs on random batches, against a slow float64 loop: values and states, in each precision, on each
vector unit of the processor, and on a GPU if there is one.
"""

import logging
import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy
import torch
from torch import Tensor

from attacks.mutations import odd_token
from attacks.trials import Attack, Trial, check
from elmo_plugin import BiLM, Elmo, FrozenBiLM, batch_to_ids
from elmo_plugin.bilm import BiLMOptions, threads
from elmo_plugin.bilm.batch import CarriedStates
from elmo_plugin.bilm.options import ACTIVATIONS, CharacterEncoderOptions
from elmo_plugin.bilm.processor import CAPABILITY_VARIABLE
from elmo_plugin.bilm.runners.settings import PRECISIONS
from elmo_plugin.bilm.simd import library
from elmo_plugin.bilm.weights import save_model
from tests.bilm.slow_bilm import SlowBiLM
from tests.closeness import assert_close, largest_difference

PROMISE = "the numbers are ELMo's: any model, batch, precision and vector unit"
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
# Of ELMO_CPU_CAPABILITY: at most what it has been set to.
LEVELS = ["avx2", "avx512", "avx512_vnni", "all"]
_level = os.environ.get(CAPABILITY_VARIABLE, "all").lower()
if _level not in LEVELS:
    sys.exit(
        f"{CAPABILITY_VARIABLE} is '{_level}', expected one of {', '.join(LEVELS)}: the C++ is attacked."
    )
del LEVELS[LEVELS.index(_level) + 1 :]
# The environment variable that keeps the C++ from torch's threads, which no sanitizer can follow.
OWN_THREADS = "ATTACK_WITH_OWN_THREADS"
# A layer norm that divides by less enlarges any error.
MIN_DEVIATION = 1e-3
Sentences = List[List[str]]
Files = Tuple[str, str]

# Weights that keep the size of what they multiply, and others; see `random_weights`.
ORDINARY, KINDS = "ordinary", ("zero", "subnormal", "huge")


def random_options(random: Random) -> BiLMOptions:
    """Return sizes that fill vectors and tiles of the kernels, and others that do not."""
    widths = random.sample([1, 2, 3, 5, 7, 50], random.randint(1, 4))
    filters = tuple((width, random.randint(1, 20)) for width in widths)
    size = [1, 2, 7, 16, 17, 31, 32, 33, 64, 70]
    return BiLMOptions(
        CharacterEncoderOptions(
            random.choice(ACTIVATIONS),
            random.choice([1, 4, 16, 17]),
            filters,
            num_highway=random.randint(0, 3),
        ),
        cell_size=random.choice(size),
        projection_dim=random.choice(size),
        num_lstm_layers=random.choice([50] if random.random() < 0.02 else [1, 2, 2, 3, 6]),
        cell_clip=random.choice([None, 0.2, 3.0]),
        proj_clip=random.choice([None, 0.2, 3.0]),
        use_skip_connections=random.random() < 0.7,
    )


def random_weights(random: Random, options: BiLMOptions, kind: str = ORDINARY) -> BiLM:
    """Return a biLM with weights that keep the size of what they multiply, or that do not."""
    torch.manual_seed(random.randrange(2**31))
    bilm = BiLM(options).requires_grad_(True)
    scale = random.choice([0.3, 1.0, 1.0, 2.0])
    if kind == "huge":
        # Each of the products that follow one another enlarges numbers; their product is one of float32.
        assert isinstance(options.encoder, CharacterEncoderOptions)
        scale = 10 ** random.uniform(1, 30 / (options.encoder.num_highway + 4))
    with torch.no_grad():
        for parameter in bilm.parameters():
            fan_in = parameter[0].numel() if parameter.dim() > 1 else 4
            parameter.copy_(scale * torch.randn(parameter.shape) / fan_in**0.5)
            if kind == "subnormal" and random.random() < 0.7:
                parameter.mul_(1e-41)
            elif kind == "zero" and random.random() < 0.3:
                parameter.zero_()
            elif kind == "zero" and random.random() < 0.3:
                parameter.mul_(torch.rand(parameter.shape) < 0.5)
        bilm.get_parameter("character_encoder.character_embedding.weight")[0] = 0.0
    return bilm


def random_sentences(random: Random) -> Sentences:
    """Return ragged sentences of odd words, of which some repeat and some are empty."""
    words = [odd_token(random) for _ in range(random.randint(1, 15))]
    lengths = [0, 1, 2, 3, random.randint(1, 30)]
    batch = [
        random.choices(words, k=random.choice(lengths))
        for _ in range(random.choice([1, 2, 7, 8, 17]))
    ]
    return batch + random.choices(batch, k=random.choice([0, 0, 3]))


def random_ids(random: Random) -> Tensor:
    """Return the character ids of a batch: spelled words, or any numbers that are allowed."""
    character_ids = batch_to_ids(random_sentences(random))
    if random.random() < 0.3:
        numbers = [0, 1, 256, *range(257, 262), random.randint(0, 261)]
        generator = torch.Generator().manual_seed(random.randrange(2**31))
        places = torch.rand(character_ids.shape, generator=generator) < random.random() / 2
        # Words stay words: the first id is no padding.
        places[:, :, 0] = False
        places &= character_ids.any(dim=2, keepdim=True)
        drawn = torch.randint(len(numbers), character_ids.shape, generator=generator)
        character_ids = torch.where(places, torch.tensor(numbers)[drawn], character_ids)
    return character_ids


class MeasuredBiLM(SlowBiLM):
    """The same loop, which keeps the largest magnitude on the way to a token vector: it limits errors."""

    largest = 0.0

    def maxima(self, characters: numpy.ndarray) -> numpy.ndarray:
        return self._measured(super().maxima(characters))

    def highway(self, vector: numpy.ndarray, k: int) -> numpy.ndarray:
        return self._measured(super().highway(vector, k))

    def token_vector(self, characters: numpy.ndarray) -> numpy.ndarray:
        return self._measured(super().token_vector(characters))

    def _measured(self, vector: numpy.ndarray) -> numpy.ndarray:
        self.largest = max(self.largest, abs(vector).max())
        return vector


class RoundedBiLM(SlowBiLM):
    """The same loop, over token vectors that are rounded to float32."""

    def token_vector(self, characters: numpy.ndarray) -> numpy.ndarray:
        return super().token_vector(characters).astype(numpy.float32).astype(numpy.float64)


class Expected:
    """What a slow loop in float64 makes of batches, one after the other."""

    def __init__(self, files: Files, is_stateful: bool) -> None:
        self._slow, self._rounded = MeasuredBiLM(*files), RoundedBiLM(*files)
        self._states: Dict[Any, Any] = {}
        self._is_stateful = is_stateful

    @property
    def largest(self) -> float:
        """The largest magnitude on the way to a token vector."""
        return self._slow.largest

    def of(self, character_ids: Tensor) -> List["Exact"]:
        """Return the activations of each sentence."""
        results = []
        for row, words in enumerate(character_ids.numpy()):
            words = words[words.any(axis=1)]
            activations, rounded = (
                slow.activations_of_ids(
                    words, self._states.setdefault((slow, row), {}) if self._is_stateful else {}
                )
                for slow in (self._slow, self._rounded)
            )
            changes = abs(rounded - activations).max(axis=(1, 2))
            results.append(Exact(activations, list(changes / max(changes[0], 1e-300))))
        return results


class Exact(NamedTuple):
    """
    The activations of a sentence in float64, `(num_layers, num_tokens + 2, dim)`, and for each layer how much
    it enlarges an error of the token vectors: an LSTM of few cells can double it at each step.
    """

    activations: numpy.ndarray
    enlarges: List[float]


def num_terms(options: BiLMOptions, longest: int) -> int:
    """Return what a sentence sums, in the gates and the projection of each step and in the encoder."""
    encoder = options.encoder
    assert isinstance(encoder, CharacterEncoderOptions)
    terms = options.num_lstm_layers * longest * (2 * options.projection_dim + options.cell_size)
    widest = max(width for width, _ in encoder.filters)
    terms += widest * encoder.character_embedding_dim
    return terms + (encoder.num_highway + 2) * encoder.num_filters


def compare(
    output: Dict[str, Any],
    expected: List[Exact],
    options: BiLMOptions,
    dtype: str,
    largest: float,
    is_huge: bool = False,
) -> None:
    """
    Compare a batch with the activations of the slow loop, and its padding with zeros. `largest` is the
    largest magnitude on the way to a token vector. Huge weights make a step of the gates, so that a sum near
    zero may be on its other side: then most of the numbers up to the first LSTM are equal, and all are
    finite.
    """
    # (rows, layers, steps, dim)
    activations = torch.stack(list(output["activations"]), dim=1).cpu()
    longest = max(layers.shape[1] for layers, _ in expected)
    check(f"{longest} steps", activations.size(2) == longest and output["mask"].size(1) == longest)
    terms = num_terms(options, longest)
    encoder = options.encoder
    assert isinstance(encoder, CharacterEncoderOptions)
    roundings = 2 * (encoder.num_highway + 1 + options.num_lstm_layers * longest)
    num_near = num_numbers = 0
    for row, (layers, enlarges) in enumerate(expected):
        num_tokens = layers.shape[1]
        check(
            "a mask of the tokens",
            output["mask"][row].tolist() == [step < num_tokens for step in range(longest)],
        )
        check("zeros at padding", not activations[row, :, num_tokens:].any())
        for number, layer in enumerate(layers):
            # A rounding error of one layer is what the next ones read: they may enlarge it.
            scale = max(1.0, largest, float(abs(layers).max())) * max(3**number, enlarges[number])
            found, exact = activations[row, number, :num_tokens], torch.from_numpy(layer)
            if is_huge:
                check("finite numbers", bool(found.isfinite().all()))
                if number <= 1:
                    limit = largest_difference(torch.float32, terms, scale)
                    num_near += int(((found - exact).abs() <= limit).sum())
                    num_numbers += found.numel()
            else:
                assert_close(found, exact, terms, scale, dtype, roundings)
    check(f"most numbers near, found {num_near} of {num_numbers}", num_near >= num_numbers / 2)


def frozen_of(random: Random, bilm: BiLM, files: Files, precision: str) -> FrozenBiLM:
    """Freeze a biLM, from itself or its files, perhaps by way of a pickle."""
    settings: Dict[str, Any] = {
        "precision": precision,
        "kernel": random.choice(["auto", "auto", "reference"]),
        "word_cache_size": random.choice([0, 3, 50_000]),
    }
    is_from_files = random.random() < 0.5
    if is_from_files:
        frozen = FrozenBiLM.from_files(*files, device=next(bilm.parameters()).device, **settings)
    else:
        frozen = bilm.freeze(**settings)
    return pickle.loads(pickle.dumps(frozen)) if random.random() < 0.2 else frozen


def choose_code(random: Random, *others: str) -> None:
    """
    Choose the vector unit: the package sees a processor with fewer instructions, or with all it has. `others`
    are further levels: "default" is a processor without a vector unit that the package knows. And choose the
    threads: torch's, or its own, as in a forked process.
    """
    os.environ[CAPABILITY_VARIABLE] = random.choice([*others, *LEVELS])
    threads._PROCESS = random.choice([0] if OWN_THREADS in os.environ else [0, os.getpid()])
    library.library_of.cache_clear()


def values(folder: Path) -> Trial:
    """`BiLM`, `FrozenBiLM` and `Elmo`, saved and loaded, stateless and stateful."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    # As exact as on a CPU. The memory of a GPU's libraries is no trial's.
    torch.backends.cudnn.allow_tf32 = False
    torch.empty(1, device=DEVICES[-1])
    files = (str(folder / "options.json"), str(folder / "weights.hdf5"))

    def trial(random: Random) -> None:
        choose_code(random, "default")
        options = random_options(random)
        kind = random.choice([ORDINARY, ORDINARY, ORDINARY, *KINDS])
        if kind == ORDINARY and random.random() < 0.02:
            options = replace(options, num_lstm_layers=50, cell_size=7, projection_dim=5)
        is_huge = kind == "huge"
        model = random_weights(random, options, kind)
        dtype = random.choice(["float32", "float32", "float16"])
        save_model(model, *files, dtype=dtype)
        is_stateful = random.random() < 0.3
        bilm = BiLM.from_files(*files, stateful=is_stateful)
        check("the options that were saved", bilm.options == options)
        if random.random() < 0.3:
            # The same weights by another way.
            bilm = BiLM.from_state_dict(options, model.state_dict(), is_stateful)
            bilm.save(*files)
        bilm = bilm.to(random.choice(DEVICES))
        precision = "float32" if is_huge else random.choice(PRECISIONS)
        frozen = frozen_of(random, bilm, files, precision)
        states: Optional[CarriedStates] = CarriedStates() if is_stateful else None
        expected = Expected(files, is_stateful)
        for _ in range(random.choice([1, 1, 3])):
            character_ids = random_ids(random)
            slow = expected.of(character_ids)
            largest = expected.largest
            character_ids = character_ids.to(next(bilm.parameters()).device)
            output = bilm(character_ids)
            compare(output, slow, options, "float32", largest, is_huge)
            output = frozen(character_ids, states, keep_sentences=random.random() < 0.5)
            compare(output, slow, options, frozen.precision, largest, is_huge)
            if not is_stateful and not is_huge:
                compare_elmo(random, bilm, character_ids, slow, options, largest)

    return trial


def compare_elmo(
    random: Random,
    bilm: BiLM,
    character_ids: Tensor,
    slow: List[Exact],
    options: BiLMOptions,
    largest: float,
) -> None:
    """Compare `Elmo` with mixes of what a slow loop made of the sentences."""
    has_norm, keeps_marks = random.random() < 0.3, random.random() < 0.3
    elmo = Elmo(
        None,
        module=bilm,
        num_output_representations=random.randint(1, 3),
        do_layer_norm=has_norm,
        keep_sentence_boundaries=keeps_marks,
        dropout=0.0,
    ).train(random.random() < 0.5)
    elmo.to(next(bilm.parameters()).device)
    with torch.no_grad():
        for mix in elmo.scalar_mixes:
            for parameter in mix.parameters():
                parameter.normal_()
    are_gradients_on = random.random() < 0.5
    with torch.set_grad_enabled(are_gradients_on):
        output = elmo(character_ids.unsqueeze(1))
    tokens = numpy.concatenate([layers for layers, _ in slow], axis=1)  # of all sentences
    means, deviations = numpy.zeros(len(tokens)), numpy.ones(len(tokens))
    if has_norm:
        means = tokens.mean(axis=(1, 2))
        deviations = numpy.sqrt(tokens.var(axis=(1, 2)) + 1e-13)
    if deviations.min() < MIN_DEVIATION:
        return
    terms = num_terms(options, character_ids.size(1) + 2) + (2 * tokens[0].size if has_norm else 0)
    for mix, found in zip(elmo.scalar_mixes, output["elmo_representations"]):
        parameters = numpy.exp([float(one.detach()) for one in mix.scalar_parameters])
        shares = float(mix.gamma.detach()) * parameters / parameters.sum()
        scale = max(1.0, largest, abs(tokens).max()) / deviations.min()
        for row, (layers, enlarges) in enumerate(slow):
            normed = (layers - means[:, None, None]) / deviations[:, None, None]
            mixed = numpy.einsum("l,ltd->td", shares, normed)
            mixed = mixed if keeps_marks else mixed[1:-1]
            ours = found[row, 0].detach().cpu()
            scale_of_mix = scale * max(3**options.num_lstm_layers, *enlarges)
            scale_of_mix *= max(1.0, abs(float(mix.gamma.detach())))
            assert_close(
                ours[: len(mixed)], torch.from_numpy(mixed), terms, scale_of_mix, "float32"
            )
            check("the mask", output["mask"][row, 0].sum() == len(mixed))
            check("zeros at padding", keeps_marks or not ours[len(mixed) :].any())


ATTACKS = [Attack("models", PROMISE, values, max_seconds=60.0)]
