"""
Random biLMs on random batches, against a slow float64 loop and AllenNLP's own `Elmo`: values, states and
gradients, in each precision, on each vector unit of the processor.
"""

import logging
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Dict, List, Optional, Tuple

import numpy
import torch
from torch import Tensor

from attacks.mutations import odd_token
from attacks.trials import Attack, Trial, check
from elmo_plugin import BiLM, Elmo, FrozenBiLM, batch_to_ids
from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.batch import CarriedStates
from elmo_plugin.bilm.options import CharacterEncoderOptions
from elmo_plugin.bilm.runners.settings import PRECISIONS
from elmo_plugin.bilm.runners.simd_runner import SIMDRunner
from elmo_plugin.bilm.simd.library import VECTOR_UNITS, unsupported_reason
from tests.bilm.slow_bilm import SlowBiLM
from tests.closeness import assert_close

PROMISE = "the numbers are ELMo's: any model, batch, precision and vector unit"
Sentences = List[List[str]]
Files = Tuple[str, str]


def random_options(random: Random) -> BiLMOptions:
    """Return sizes that fill vectors and tiles of the kernels, and others that do not."""
    widths = random.sample([1, 2, 3, 5, 7], random.randint(1, 4))
    filters = tuple((width, random.randint(1, 20)) for width in widths)
    size = [1, 2, 7, 16, 17, 31, 32, 33, 64, 70]
    return BiLMOptions(
        CharacterEncoderOptions(
            random.choice(["relu", "tanh"]),
            random.choice([1, 4, 16, 17]),
            filters,
            num_highway=random.randint(0, 3),
        ),
        cell_size=random.choice(size),
        projection_dim=random.choice(size),
        num_layers=random.choice([1, 2, 2, 3, 6]),
        cell_clip=random.choice([None, 0.2, 3.0]),
        proj_clip=random.choice([None, 0.2, 3.0]),
        use_skip_connections=random.random() < 0.7,
    )


def random_weights(random: Random, options: BiLMOptions, with_zeros: bool = True) -> BiLM:
    """Return a biLM with weights that keep the size of what they multiply, some of them perhaps zero."""
    torch.manual_seed(random.randrange(2**31))
    bilm = BiLM(options).requires_grad_(True)
    scale = random.choice([0.3, 1.0, 1.0, 2.0])
    with torch.no_grad():
        for parameter in bilm.parameters():
            fan_in = parameter[0].numel() if parameter.dim() > 1 else 4
            parameter.copy_(scale * torch.randn(parameter.shape) / fan_in**0.5)
            if with_zeros and random.random() < 0.05:
                parameter.zero_()
            elif with_zeros and random.random() < 0.05:
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


class Expected:
    """What a slow loop in float64 makes of batches, one after the other."""

    def __init__(self, files: Files, is_stateful: bool) -> None:
        self._slow = SlowBiLM(*files)
        self._states: Dict[int, Any] = {}
        self._is_stateful = is_stateful

    def of(self, batch: Sentences) -> List[numpy.ndarray]:
        """Return the activations of each sentence, `(num_layers, num_tokens + 2, dim)`."""
        results = []
        for row, sentence in enumerate(batch):
            states = self._states.setdefault(row, {}) if self._is_stateful else {}
            results.append(self._slow.activations(sentence, states))
        return results


def compare(
    output: Dict[str, Any], expected: List[numpy.ndarray], options: BiLMOptions, dtype: str
) -> None:
    """Compare a batch with what a slow loop makes of its sentences, and with zeros at padding."""
    activations = torch.stack(list(output["activations"]), dim=1)  # (rows, layers, steps, dim)
    longest = max(layers.shape[1] for layers in expected)
    check(f"{longest} steps", activations.size(2) == longest and output["mask"].size(1) == longest)
    # What each step sums, in the gates and the projection; and the encoder.
    encoder = options.encoder
    assert isinstance(encoder, CharacterEncoderOptions)
    terms = options.num_layers * longest * (2 * options.projection_dim + options.cell_size)
    terms += (encoder.num_highway + 2) * encoder.num_filters + 7 * encoder.character_embedding_dim
    for row, layers in enumerate(expected):
        num_tokens = layers.shape[1]
        check(
            "a mask of the tokens",
            output["mask"][row].tolist() == [step < num_tokens for step in range(longest)],
        )
        check("zeros at padding", not activations[row, :, num_tokens:].any())
        for number, layer in enumerate(layers):
            # A rounding error of one layer is what the next ones read: they may enlarge it.
            scale = max(1.0, float(abs(layers).max())) * 3**number
            assert_close(
                activations[row, number, :num_tokens],
                torch.from_numpy(layer),
                terms,
                scale,
                dtype,
                roundings=2 * options.num_layers * longest,
            )


def frozen_of(random: Random, bilm: BiLM, precision: str) -> FrozenBiLM:
    """Freeze a biLM, for a random one of the vector units of this processor, or for torch."""
    frozen = bilm.freeze(
        precision=precision,
        kernel=random.choice(["auto", "auto", "reference"]),
        word_cache_size=random.choice([0, 3, 50_000]),
    )
    units = [unit.name for unit in VECTOR_UNITS if unsupported_reason(unit.name) is None]
    if frozen.kernel == "simd":
        layers = [layer.tensors() for layer in (*bilm.forward_layers, *bilm.backward_layers)]
        frozen._runner = SIMDRunner.prepare(
            bilm.character_encoder, layers, frozen.precision, random.choice(units)
        )
    return frozen


def values(folder: Path) -> Trial:
    """`BiLM` and `FrozenBiLM`, saved and loaded, stateless and stateful."""
    files = (str(folder / "options.json"), str(folder / "weights.hdf5"))

    def trial(random: Random) -> None:
        options = random_options(random)
        random_weights(random, options).save(*files)
        is_stateful = random.random() < 0.3
        bilm = BiLM.from_files(*files, stateful=is_stateful)
        check("the options that were saved", bilm.options == options)
        precision = random.choice(PRECISIONS)
        frozen = frozen_of(random, bilm, precision)
        states: Optional[CarriedStates] = CarriedStates() if is_stateful else None
        expected = Expected(files, is_stateful)
        for _ in range(random.choice([1, 1, 3])):
            batch = random_sentences(random)
            character_ids = batch_to_ids(batch)
            slow = expected.of(batch)
            compare(bilm(character_ids), slow, options, "float32")
            compare(frozen(character_ids, states), slow, options, frozen.precision)

    return trial


def gradients(folder: Path) -> Trial:
    """Gradients of all parameters, against those of torch in float64."""

    def trial(random: Random) -> None:
        options = random_options(random)
        # With zeros, several windows of characters may be the largest: each is a right one for the gradient.
        bilm = random_weights(random, options, with_zeros=False)
        character_ids = batch_to_ids(random_sentences(random))
        exact = BiLM(options)
        exact.load_state_dict(bilm.state_dict())
        exact = exact.double().requires_grad_(True)
        torch.manual_seed(0)
        factors: List[Tensor] = []
        for model in (exact, bilm):
            layers = model(character_ids)["activations"]
            factors = factors or [torch.randn(layer.shape) for layer in layers]
            sum((layer * factor).sum() for layer, factor in zip(layers, factors)).backward()
        # Each step adds to the gradient what it gets from the sums of later steps.
        steps = character_ids.size(0) * (character_ids.size(1) + 2)
        width = 2 * options.projection_dim + options.cell_size
        for (name, parameter), (_, expected) in zip(
            bilm.named_parameters(), exact.named_parameters()
        ):
            if expected.grad is None:
                check(f"no gradient of {name}", parameter.grad is None or not parameter.grad.any())
                continue
            scale = max(1.0, float(expected.grad.abs().max())) * 3**options.num_layers
            assert_close(parameter.grad, expected.grad, steps * width, scale, "float32")

    return trial


def allennlp(folder: Path) -> Trial:
    """`Elmo`, against AllenNLP's class of this name."""
    from allennlp.modules.elmo import Elmo as AllenNLPElmo

    import elmo_plugin.plugin  # noqa: F401 - AllenNLP on today's torch

    logging.disable(logging.WARNING)
    files = (str(folder / "options.json"), str(folder / "weights.hdf5"))

    def trial(random: Random) -> None:
        # AllenNLP has no others.
        options = replace(random_options(random), use_skip_connections=True)
        random_weights(random, options).save(*files)
        settings: Dict[str, Any] = {
            "num_output_representations": random.randint(1, 3),
            "do_layer_norm": random.random() < 0.3,
            "keep_sentence_boundaries": random.random() < 0.3,
            "dropout": 0.0,
        }
        try:
            theirs = AllenNLPElmo(*files, **settings)
        except KeyError:
            return  # it always expects a projection
        theirs._elmo_lstm._elmo_lstm.stateful = False
        ours = Elmo(*files, **settings).eval()
        with torch.no_grad():
            for parameter in ours.parameters():
                if parameter.requires_grad:
                    parameter.normal_()
        parameters = dict(ours.named_parameters())
        for name, parameter in theirs.named_parameters():
            if parameter.requires_grad:
                parameter.data.copy_(parameters[name].data)
        # AllenNLP's fails on a batch without words.
        character_ids = batch_to_ids([["a"], *random_sentences(random)])
        with torch.no_grad():
            expected, found = theirs.eval()(character_ids), ours(character_ids)
        check("the same mask", torch.equal(found["mask"], expected["mask"].bool()))
        longest = character_ids.size(1) + 2
        terms = options.num_layers * longest * (2 * options.projection_dim + options.cell_size)
        mask = expected["mask"].bool()
        for our, their in zip(found["elmo_representations"], expected["elmo_representations"]):
            scale = max(1.0, float(their[mask].abs().max())) * 3 ** (options.num_layers + 1)
            assert_close(our[mask], their[mask], terms, scale, "float32")

    return trial


ATTACKS = [
    Attack("models", PROMISE, values, max_seconds=60.0),
    Attack("gradients", PROMISE, gradients, max_seconds=60.0),
    Attack("allennlp", "`Elmo` is AllenNLP's", allennlp, max_seconds=60.0),
]
