"""Weights are packed once, and never used after they changed."""

import copy
import io
import multiprocessing
import pickle
from typing import Any, Callable, List

import pytest
import torch
from torch import Tensor

from elmo_plugin import BiLM, batch_to_ids
from elmo_plugin.bilm.kernels import KERNEL_NAMES, choose_kernel
from tests.conftest import SENTENCES, TINY_OPTIONS, BiLMFiles, randomize

CHARACTER_IDS = batch_to_ids(SENTENCES)

pytestmark = [
    pytest.mark.usefixtures("interpreted_triton"),
    # Triton's interpreter computes in numpy, which says that sigmoid(-100) is 0 by way of infinity.
    pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning"),
]


@pytest.fixture(params=KERNEL_NAMES)
def bilm(request: pytest.FixtureRequest, bilm_files: BiLMFiles) -> BiLM:
    """A frozen biLM that has run, for each kernel."""
    try:
        choose_kernel(request.param, "float32", torch.device("cpu"))
    except Exception as error:
        pytest.skip(str(error))
    bilm = BiLM.from_files(*bilm_files, kernel=request.param)
    activations(bilm)
    return bilm


def activations(bilm: BiLM) -> Tensor:
    return torch.stack(bilm(CHARACTER_IDS)["activations"])


def assert_up_to_date(bilm: BiLM) -> None:
    """It gives what a new biLM of the same weights gives."""
    fresh = BiLM(bilm.options, kernel="reference").requires_grad_(False)
    fresh.load_state_dict({name: value.float() for name, value in bilm.state_dict().items()})
    assert torch.allclose(activations(bilm).float(), activations(fresh), atol=1e-5)


def count_packing(monkeypatch: pytest.MonkeyPatch, bilm: BiLM) -> List[Any]:
    kernel = choose_kernel(bilm.kernel, bilm.precision, torch.device("cpu"))
    packed: List[Any] = []
    pack = kernel.pack

    def counted(layer: Any, precision: str) -> Any:
        packed.append(layer)
        return pack(layer, precision)

    monkeypatch.setattr(kernel, "pack", counted)
    return packed


def test_packing_happens_once(bilm: BiLM, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = count_packing(monkeypatch, bilm)
    for _ in range(3):
        activations(bilm)
    assert packed == []
    bilm.clear_caches()
    for _ in range(3):
        activations(bilm)
    assert len(packed) == 2 * TINY_OPTIONS.num_layers


def test_fine_tuning_steps(bilm: BiLM) -> None:
    before = activations(bilm)
    for _ in range(2):
        bilm.requires_grad_(True)
        optimizer = torch.optim.SGD(bilm.parameters(), lr=0.5)
        activations(bilm)[1:].pow(2).mean().backward()
        optimizer.step()
        bilm.requires_grad_(False)
        assert_up_to_date(bilm)
    assert float((activations(bilm) - before).abs().max()) > 1e-3


def test_the_weights_of_one_layer_written_in_place(bilm: BiLM) -> None:
    for name in ("gate_weight", "gate_bias", "projection"):
        before = activations(bilm)
        with torch.no_grad():
            getattr(bilm.backward_layers[1], name).mul_(1.5)
        assert_up_to_date(bilm)
        assert not torch.equal(activations(bilm), before)


def test_a_parameter_that_was_replaced(bilm: BiLM) -> None:
    layer = bilm.forward_layers[0]
    layer.gate_weight = torch.nn.Parameter(1.5 * layer.gate_weight, requires_grad=False)
    assert_up_to_date(bilm)


def test_load_state_dict(bilm: BiLM) -> None:
    other = randomize(BiLM(TINY_OPTIONS), seed=7).requires_grad_(False)
    bilm.load_state_dict(other.state_dict())
    assert torch.allclose(activations(bilm), activations(other), atol=1e-5)


@pytest.mark.parametrize("assign", [True, False])
def test_load_state_dict_that_assigns(bilm: BiLM, assign: bool) -> None:
    other = randomize(BiLM(TINY_OPTIONS), seed=8).requires_grad_(False)
    bilm.load_state_dict(other.state_dict(), assign=assign)
    assert torch.allclose(activations(bilm), activations(other), atol=1e-5)


def test_to_another_type_and_back(bilm: BiLM) -> None:
    expected = activations(bilm)
    if bilm.kernel in ("auto", "reference"):
        assert torch.allclose(activations(bilm.double()).float(), expected, atol=1e-5)
    bilm.double()
    with torch.no_grad():
        bilm.forward_layers[0].gate_bias.add_(0.5)
    bilm.float()
    assert_up_to_date(bilm)
    assert not torch.allclose(activations(bilm), expected, atol=1e-3)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda bilm: pickle.loads(pickle.dumps(bilm))], ids=["copy", "pickle"]
)
def test_copies_are_independent(bilm: BiLM, copied: Callable[[BiLM], BiLM]) -> None:
    expected = activations(bilm)
    other = copied(bilm)
    assert torch.equal(activations(other), expected)
    with torch.no_grad():
        other.forward_layers[0].gate_weight.mul_(2)
    assert_up_to_date(other)
    assert torch.equal(activations(bilm), expected)


def test_what_is_saved_does_not_hold_packed_weights(bilm: BiLM) -> None:
    sizes = []
    for is_packed in (True, False):
        if not is_packed:
            bilm.clear_caches()
        buffer = io.BytesIO()
        torch.save(bilm, buffer)
        sizes.append(buffer.tell())
    assert sizes[0] == sizes[1]


def _send_activations(bilm: BiLM, queue: Any) -> None:
    torch.set_num_threads(1)
    queue.put(activations(bilm).numpy())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers(bilm: BiLM, method: str) -> None:
    if method == "spawn" and bilm.kernel != "auto":
        pytest.skip("It takes seconds; pickling is tested for each kernel.")
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    worker = context.Process(target=_send_activations, args=(bilm, queue))
    worker.start()
    theirs = torch.from_numpy(queue.get(timeout=120))
    worker.join()
    assert torch.equal(theirs, activations(bilm))


def test_through_data_it_takes_clear_caches(bilm: BiLM) -> None:
    """What the docstring says: such writes escape, as they escape autograd."""
    bilm.forward_layers[0].gate_weight.data.mul_(2)
    bilm.clear_caches()
    assert_up_to_date(bilm)


def test_training_lets_go_of_packed_weights(bilm: BiLM) -> None:
    assert bilm._frozen.runner.num_packed == 2 * TINY_OPTIONS.num_layers
    bilm.requires_grad_(True)
    activations(bilm)
    assert bilm._frozen.runner.num_packed == 0


def test_a_trainable_bilm_has_no_low_precision(bilm_files: BiLMFiles) -> None:
    bilm = BiLM.from_files(*bilm_files, precision="bfloat16")
    bilm.forward_layers[0].requires_grad_(True)
    for context in (torch.enable_grad, torch.no_grad):
        with (
            context(),
            pytest.raises(RuntimeError, match="precision is bfloat16, which is for frozen"),
        ):
            bilm(CHARACTER_IDS)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_autocast_does_not_change_what_precision_says(
    precision: str, bilm_files: BiLMFiles
) -> None:
    bilm = BiLM.from_files(*bilm_files, precision=precision)
    expected = activations(bilm)
    bilm.clear_caches()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(activations(bilm), expected)
