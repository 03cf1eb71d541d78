"""What `Elmo` runs in place of the modules of a frozen biLM has their vectors, whatever happens to them."""

import copy
import pickle
import threading
import time
from dataclasses import replace
from typing import Any, Callable, Dict, List, Tuple

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parametrize, prune
from torch.utils.checkpoint import checkpoint

from elmo_plugin import BiLM, Elmo, batch_to_ids
from elmo_plugin.bilm.snapshot import CurrentSnapshot
from elmo_plugin.bilm.steps import CellOptions
from tests.closeness import assert_close, largest_difference
from tests.conftest import (
    SCALE,
    TINY_OPTIONS,
    BiLMFiles,
    of_allennlp,
    randomize,
    roundings_of,
    terms_of,
)

CHARACTER_IDS = batch_to_ids([["The", "naïve", "日本語"], ["the"], [], ["The", "x" * 80]])
MARKS = batch_to_ids([["<S>", "</S>"]])[0]

TERMS = terms_of(7)

# Fused ones and AllenNLP's change parameters without raising their `_version`.
OPTIMIZERS: Dict[str, Callable[[torch.nn.Module], torch.optim.Optimizer]] = {
    "Adam": lambda module: torch.optim.Adam(module.parameters(), lr=0.1),
    "fused Adam": lambda module: torch.optim.Adam(module.parameters(), lr=0.1, fused=True),
    "fused Adagrad": lambda module: torch.optim.Adagrad(module.parameters(), lr=0.1, fused=True),
    "DenseSparseAdam": lambda module: of_allennlp("training.optimizers.DenseSparseAdam")(
        list(module.named_parameters()), lr=0.1
    ),
}


def layers_of(elmo: Elmo, character_ids: Tensor = CHARACTER_IDS) -> Tensor:
    """Return what an `Elmo` of `new_elmo` gives: each layer, `(num_layers, batch_size, timesteps, dim)`."""
    return torch.stack(elmo(character_ids)["elmo_representations"]).detach()


def new_elmo(files: Any, **arguments: Any) -> Elmo:
    """
    Return an `Elmo` that has run, whose representations are the layers. It is in `eval` mode, in which it
    keeps no sentences.
    """
    elmo = Elmo(*files, 3, dropout=0.0, **arguments).eval()
    with torch.no_grad():
        for layer, mix in enumerate(elmo.scalar_mixes):
            for number, parameter in enumerate(mix.scalar_parameters):
                parameter.fill_(0.0 if number == layer else -9e10)
    layers_of(elmo)
    return elmo


def assert_up_to_date(elmo: Elmo, dtype: torch.dtype = torch.float32) -> None:
    """It gives what the modules of its biLM give when they are called; some have weights of `dtype`."""
    with torch.no_grad():
        expected = torch.stack(module_activations(elmo.bilm))
    # Encoder, highway, projection, and two products in each step of each layer.
    roundings = roundings_of(7)
    for _ in range(2):
        assert_close(layers_of(elmo).float(), expected, TERMS, SCALE, dtype, roundings)


def assert_differ(layers: Tensor, others: Tensor) -> None:
    """By more than twice what `assert_up_to_date` allows, so that it sees layers of other weights."""
    limit = largest_difference(torch.float32, TERMS, SCALE)
    assert float((layers - others).abs().max()) > 2 * limit


def module_activations(bilm: BiLM) -> List[Tensor]:
    """Return the layers without sentence marks, in float32 by a loop over sentences and words."""
    rows = []
    dims = (bilm.options.projection_dim, bilm.options.cell_size)
    for row in CHARACTER_IDS:
        words = torch.cat([MARKS[:1], row[(row > 0).any(dim=1)], MARKS[1:]])
        tokens = bilm.character_encoder(words)
        inputs = [tokens, tokens.flip(0)]
        layers = [torch.cat([tokens, tokens], dim=1)]
        for number in range(bilm.options.num_lstm_layers):
            outputs = []
            for vectors, stack in zip(inputs, (bilm.forward_layers, bilm.backward_layers)):
                zeros = [vectors.new_zeros(1, dim) for dim in dims]
                output = stack[number](vectors, [1] * len(words), *zeros)[0]
                outputs.append(output.to(vectors) + vectors if number > 0 else output.to(vectors))
            inputs = outputs
            layers.append(torch.cat([outputs[0], outputs[1].flip(0)], dim=1))
        rows.append(torch.stack(layers)[:, 1:-1].float())
    longest = max(row.size(1) for row in rows)
    padded = [torch.nn.functional.pad(row, (0, 0, 0, longest - row.size(1))) for row in rows]
    return list(torch.stack(padded, dim=1))


@pytest.fixture(params=[False, True], ids=["words", "words and sentences"])
def elmo(request: pytest.FixtureRequest, bilm_files: BiLMFiles) -> Elmo:
    """Frozen, and has run."""
    elmo = new_elmo(bilm_files).train(request.param)
    layers_of(elmo)
    return elmo


class TestTraining:
    @pytest.mark.parametrize(
        "optimizer, elmo, is_zeroed, what",
        [
            # Neither gradients nor a pass of `Elmo` show that there was a step.
            *((name, False, True, "biLM") for name in OPTIMIZERS),
            # Each value with each of the others.
            ("Adam", True, False, "Elmo"),
            ("fused Adam", True, True, "Elmo"),
            ("fused Adagrad", True, True, "biLM"),
            ("DenseSparseAdam", False, False, "Elmo"),
        ],
        indirect=["elmo"],
    )
    def test_and_freezing_again(
        self, optimizer: str, elmo: Elmo, is_zeroed: bool, what: str
    ) -> None:
        before = layers_of(elmo)
        steps = OPTIMIZERS[optimizer](elmo.bilm)
        for _ in range(2):
            elmo.bilm.requires_grad_(True)
            if what == "Elmo":
                outputs = elmo(CHARACTER_IDS)["elmo_representations"]
            else:
                outputs = elmo.bilm(CHARACTER_IDS)["activations"]
            sum(output.pow(2).sum() for output in outputs).backward()
            steps.step()
            if is_zeroed:
                steps.zero_grad()
            elmo.bilm.requires_grad_(False)
            assert_up_to_date(elmo)
        assert_differ(layers_of(elmo), before)

    @pytest.mark.parametrize("optimizer", OPTIMIZERS)
    def test_a_step_after_freezing(self, optimizer: str, elmo: Elmo) -> None:
        """Optimizers apply gradients also to parameters that no longer require them."""
        steps = OPTIMIZERS[optimizer](elmo.bilm)
        elmo.bilm.requires_grad_(True)
        elmo(CHARACTER_IDS)["elmo_representations"][2].pow(2).sum().backward()
        elmo.bilm.requires_grad_(False)
        layers_of(elmo)
        steps.step()
        assert_up_to_date(elmo)

    def test_a_write_through_data_and_freezing_again(self, elmo: Elmo) -> None:
        before = layers_of(elmo)
        for parameter in elmo.bilm.parameters():
            parameter.data.mul_(0.5)
        elmo.bilm.requires_grad_(False)
        assert_up_to_date(elmo)
        assert_differ(layers_of(elmo), before)

    @pytest.mark.parametrize("use_reentrant", [True, False])
    def test_under_checkpoint(self, use_reentrant: bool, bilm_files: BiLMFiles) -> None:
        bilm = BiLM.from_files(*bilm_files).requires_grad_(True)

        def run(bilm: Any, unused: Tensor) -> Tensor:
            return torch.stack(bilm(CHARACTER_IDS)["activations"]).square().mean()

        one = torch.ones(1, requires_grad=True)
        checkpoint(run, bilm, one, use_reentrant=use_reentrant).backward()
        gradients = [parameter.grad.clone() for parameter in bilm.parameters()]
        bilm.zero_grad()
        run(bilm, one).backward()
        for parameter, gradient in zip(bilm.parameters(), gradients, strict=True):
            assert torch.equal(parameter.grad, gradient)


class TestChangedModules:
    def test_hooks(self, elmo: Elmo) -> None:
        for name, module in elmo.bilm.named_modules():
            if name == "" or not list(module.parameters(recurse=False)):
                continue
            with module.register_forward_hook(doubled_output):
                assert_up_to_date(elmo)
            with module.register_forward_pre_hook(doubled_input):
                if not isinstance(module, torch.nn.Embedding):
                    assert_up_to_date(elmo)
        assert_up_to_date(elmo)

    @pytest.mark.parametrize(
        "name, weight",
        [
            ("character_encoder.highways.0.carry", "weight"),
            ("character_encoder.projection", "weight"),
            ("character_encoder.convolutions.1", "weight"),
            ("forward_layers.1", "gate_weight"),
            ("backward_layers.0", "projection"),
        ],
    )
    @pytest.mark.parametrize("how", ["adapter", "prune", "parametrize"])
    def test_replaced_or_wrapped(
        self, how: str, name: str, weight: str, bilm_files: BiLMFiles
    ) -> None:
        elmo = new_elmo(bilm_files)
        before = layers_of(elmo)
        module = elmo.bilm.get_submodule(name)
        if how == "adapter":
            owner, _, attribute = name.rpartition(".")
            setattr(elmo.bilm.get_submodule(owner), attribute, Adapter(module))
        elif how == "prune":
            prune.l1_unstructured(module, weight, amount=0.5)
        else:
            parametrize.register_parametrization(module, weight, Halved())
        for parameter in elmo.bilm.parameters():
            parameter.requires_grad_(False)
        assert_up_to_date(elmo)
        assert_differ(layers_of(elmo), before)

    def test_another_forward(self, elmo: Elmo, monkeypatch: pytest.MonkeyPatch) -> None:
        layer = elmo.bilm.forward_layers[1]
        forward = layer.forward
        monkeypatch.setattr(
            layer, "forward", lambda *given: doubled_output(layer, given, forward(*given))
        )
        assert_up_to_date(elmo)

    @pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
    @pytest.mark.parametrize(
        "name, value",
        [
            ("forward_layers.0.options", CellOptions(3.0, 0.01)),
            ("backward_layers.1.options", CellOptions(0.01, 3.0)),
            ("character_encoder.activation", "sigmoid"),
            ("options", replace(TINY_OPTIONS, use_skip_connections=False)),
        ],
    )
    def test_another_setting(self, name: str, value: Any, elmo: Elmo) -> None:
        before = layers_of(elmo)
        *path, attribute = name.split(".")
        setattr(elmo.bilm.get_submodule(".".join(path)), attribute, value)
        found = layers_of(elmo)
        assert not torch.equal(found, before)
        expected = elmo.bilm(CHARACTER_IDS)["activations"]
        mask = (CHARACTER_IDS > 0).any(dim=-1, keepdim=True)
        assert_close(found, torch.stack(expected)[:, :, 1:-1] * mask, TERMS, SCALE)

    def test_quantize_dynamic(self, elmo: Elmo) -> None:
        quantized = torch.ao.quantization.quantize_dynamic(elmo.eval(), {torch.nn.Linear})
        found, exact = layers_of(quantized), layers_of(elmo)
        assert not torch.equal(found, exact)
        # Linear layers of words only, one after the other: a highway and the projection. torch rounds inputs
        # to 128 values between the smallest and the largest, whose distance is up to twice the largest.
        scale = 2 * float(exact.abs().max())
        assert_close(found, exact, TERMS, scale, torch.int8, roundings=2)

    def test_new_parameters_of_the_same_address(self, elmo: Elmo) -> None:
        layer = elmo.bilm.forward_layers[0]
        for _ in range(5):
            value = 1.5 * layer.gate_weight.detach()
            # Freed memory is given out again first.
            del layer.gate_weight
            layer.gate_weight = torch.nn.Parameter(value, requires_grad=False)
            assert_up_to_date(elmo)

    def test_weights_of_a_functional_call(self, elmo: Elmo) -> None:
        before = layers_of(elmo)
        doubled = {f"_elmo_lstm.{name}": 2 * value for name, value in elmo.bilm.named_parameters()}
        other = copy.deepcopy(elmo)
        other.load_state_dict({**elmo.state_dict(), **doubled})
        theirs = torch.func.functional_call(elmo, doubled, CHARACTER_IDS)["elmo_representations"]
        assert_close(torch.stack(theirs), layers_of(other), TERMS, 2 * SCALE)
        assert torch.equal(layers_of(elmo), before)


class TestWrites:
    def test_in_place(self, elmo: Elmo) -> None:
        for name, parameter in elmo.bilm.named_parameters():
            before = layers_of(elmo)
            with torch.no_grad():
                parameter.mul_(0.9)
            assert_up_to_date(elmo)
            assert not torch.equal(layers_of(elmo), before), name

    @pytest.mark.parametrize("how", ["copied", "assigned", "assigned by columns"])
    def test_load_state_dict(self, how: str, elmo: Elmo) -> None:
        weights = randomize(BiLM(TINY_OPTIONS), seed=7).state_dict()
        if how == "assigned by columns":
            # The same numbers in another order in memory.
            for name, weight in weights.items():
                weights[name] = weight.transpose(0, -1).contiguous().transpose(0, -1)
        elmo.bilm.load_state_dict(weights, assign=how != "copied")
        assert_up_to_date(elmo)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.float16])
    @pytest.mark.parametrize("part", ["forward_layers", "backward_layers.1", ""])
    def test_casts_of_parts(self, part: str, dtype: torch.dtype, bilm_files: BiLMFiles) -> None:
        elmo = new_elmo(bilm_files)
        elmo.bilm.get_submodule(part).to(dtype)
        # Of parts in float64 the others are still in float32.
        assert_up_to_date(elmo, torch.float32 if dtype == torch.float64 else dtype)
        elmo.bilm.float()
        assert_up_to_date(elmo)

    def test_of_states_that_are_not_contiguous(self, bilm_files: BiLMFiles) -> None:
        expected, ours = (new_elmo(bilm_files, stateful=True) for _ in range(2))
        for elmo in (expected, ours):
            elmo.reset_states()
            layers_of(elmo)
        carried = ours.bilm.carried_states
        carried.states = [
            tuple(state.t().contiguous().t() for state in pair) for pair in carried.states
        ]
        assert torch.equal(layers_of(ours), layers_of(expected))

    def test_while_another_thread_reads(self, bilm_files: BiLMFiles) -> None:
        """What a thread computed before is not kept for after."""
        elmo = new_elmo(bilm_files).train()
        encoder = elmo.bilm.character_encoder
        stop = threading.Event()
        failures: List[BaseException] = []
        num_read = [0] * 3

        def read(number: int) -> None:
            try:
                while not stop.is_set():
                    elmo(CHARACTER_IDS)
                    num_read[number] += 1
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=read, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        try:
            with torch.no_grad():
                for _ in range(10):
                    encoder.character_embedding.weight.mul_(0.9)
                    elmo(CHARACTER_IDS)
                    before = list(num_read)
                    # Each thread has ended a call that began before the write, and one that began after it.
                    while not failures and any(now < old + 2 for now, old in zip(num_read, before)):
                        time.sleep(0)
                    assert_up_to_date(elmo)
        finally:  # else Python would wait for the threads at its end
            stop.set()
            for thread in threads:
                thread.join()
        assert not failures

    def test_a_snapshot_that_another_thread_discards(
        self, elmo: Elmo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = layers_of(elmo)
        found = [elmo._snapshot._made]
        # There is one when it is first read, and then no more.
        discarded = property(lambda self: found.pop() if found else None, lambda self, made: None)
        monkeypatch.setattr(CurrentSnapshot, "_made", discarded, raising=False)
        assert torch.equal(layers_of(elmo), expected)


class TestModesOfTorch:
    def test_inference_mode_and_gradients_in_turn(self, bilm_files: BiLMFiles) -> None:
        elmo = new_elmo(bilm_files).train()
        with torch.inference_mode():
            elmo(CHARACTER_IDS)
        elmo(CHARACTER_IDS)["elmo_representations"][0].sum().backward()
        assert_up_to_date(elmo)

    def test_a_bilm_moved_in_inference_mode(self, elmo: Elmo) -> None:
        """Its parameters have no version."""
        with torch.inference_mode():
            elmo.bilm.double().float()
            for _ in range(2):
                for parameter in elmo.bilm.parameters():
                    parameter.mul_(0.9)
                assert_up_to_date(elmo)

    def test_autocast_says_in_what_a_float32_bilm_multiplies(self, elmo: Elmo) -> None:
        expected = layers_of(elmo)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ours = layers_of(elmo).float()
        assert not torch.equal(ours, expected)
        assert_close(ours, expected, TERMS, SCALE, torch.bfloat16, roundings=roundings_of(7))

    def test_autocast_does_not_change_what_precision_says(self, bilm_files: BiLMFiles) -> None:
        elmo = new_elmo(bilm_files, precision="int8")
        expected = layers_of(elmo)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(layers_of(elmo), expected)

    @pytest.mark.slow
    def test_compiled(self, elmo: Elmo) -> None:
        expected = layers_of(elmo)
        head = torch.nn.Linear(12, 2)

        def model(character_ids: Tensor) -> Tensor:
            return head(elmo(character_ids)["elmo_representations"][2])

        compiled = torch.compile(model, backend="eager")
        for _ in range(2):
            assert_close(compiled(CHARACTER_IDS).detach(), head(expected[2]).detach(), TERMS, SCALE)

    def test_traced_it_is_refused(self, elmo: Elmo) -> None:
        with pytest.raises(RuntimeError, match=r"torch\.jit\.trace met a biLM"):
            torch.jit.trace(lambda ids: elmo(ids)["elmo_representations"][0], CHARACTER_IDS)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda elmo: pickle.loads(pickle.dumps(elmo))], ids=["copy", "pickle"]
)
def test_copies_are_independent(elmo: Elmo, copied: Callable[[Elmo], Elmo]) -> None:
    expected = layers_of(elmo)
    other = copied(elmo)
    assert torch.equal(layers_of(other), expected)
    with torch.no_grad():
        other.bilm.forward_layers[0].gate_weight.mul_(2)
    assert_up_to_date(other)
    assert torch.equal(layers_of(elmo), expected)


class Adapter(torch.nn.Module):
    """What it wraps, with doubled outputs."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *arguments: Any) -> Any:
        return doubled_output(self, arguments, self.module(*arguments))


class Halved(torch.nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight / 2


def doubled_output(unused: Any, arguments: Any, outputs: Any) -> Any:
    if isinstance(outputs, Tensor):
        return 2 * outputs
    return (2 * outputs[0], *outputs[1:])


def doubled_input(unused: Any, arguments: Tuple[Any, ...]) -> Any:
    first = arguments[0]
    return (first if first.dtype == torch.long else 2 * first, *arguments[1:])


def test_replicas_of_dataparallel_are_refused(bilm_files: BiLMFiles) -> None:
    replica = copy.deepcopy(Elmo(*bilm_files, 1).eval())
    for module in replica.modules():
        module._parameters.clear()
    replica.bilm._is_replica = True  # as torch.nn.parallel.replicate marks its copies
    with pytest.raises(RuntimeError, match=r"cannot run under torch\.nn\.DataParallel"):
        replica(batch_to_ids([["a"]]))
