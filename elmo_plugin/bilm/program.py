"""Write a frozen biLM as a program that runs without this package: torch's `.pt2`, or ONNX."""

import copy
from functools import partial
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple, cast

import torch
from torch import Tensor

from elmo_plugin.bilm.bilm import BiLM, run_stack
from elmo_plugin.bilm.character_encoder import CharacterEncoder
from elmo_plugin.bilm.characters import sentence_marks
from elmo_plugin.bilm.frozen import reason_against_copying
from elmo_plugin.bilm.lstm import ProjectedLSTM
from elmo_plugin.bilm.steps import LayerInput, LayerOutput, PreparedLayer, State, lstm_step
from elmo_plugin.errors import ConfigurationError, needing
from elmo_plugin.files.fail_safe import FailSafeFile
from elmo_plugin.files.output import replaced_file
from elmo_plugin.files.text import FileName

TORCH, ONNX = SUFFIXES = (".pt2", ".onnx")
OLDEST_TORCH = (2, 12)
ONNX_OPSET = 20


def export_program(bilm: BiLM, file: FileName) -> None:
    """
    Write a biLM as a program. An existing file is replaced.

    The program maps `character_ids`, int64 `(batch_size, timesteps, 50)`, see `batch_to_ids`, to
    `activations`, float32 `(batch_size, num_layers, timesteps, dim)`, without sentence marks and zero at
    padding, and `mask`, `(batch_size, timesteps)`. The numbers and lengths of sentences are free. Results are
    those of `ElmoEmbedder.batch_to_embeddings`, up to rounding (1e-5).

    # Parameters

    bilm : `BiLM`
        Stateless and float32. It does not change.
    file : `str` or `PathLike`
        The ending is the format: `.pt2` for `torch.export.load`, `.onnx` for ONNX (opset 20).

    # Raises

    `ConfigurationError` for another ending, a biLM that is stateful, of ELMoForManyLangs, or whose weights do
    not say all about it (see `reason_against_copying`), a torch older than 2.12, and if the packages that
    write ONNX are not installed; `OSError` if the file cannot be written.
    """
    _check(bilm, Path(file))
    with torch.no_grad():
        # More than one of each, or torch makes the numbers constants of the program.
        example = sentence_marks()[:1].repeat(2, 3, 1)
        sizes = {0: torch.export.Dim("batch_size"), 1: torch.export.Dim("timesteps")}
        program = torch.export.export(_Program(bilm), (example,), dynamic_shapes=(sizes,))
        with replaced_file(file) as new_file:
            if Path(file).suffix == TORCH:
                with FailSafeFile(new_file, "w+") as stream:
                    torch.export.save(program, stream)
            else:
                _save_onnx(program, new_file)


def _check(bilm: BiLM, file: Path) -> None:
    if file.suffix not in SUFFIXES:
        raise ConfigurationError(f"{file}: expected a name that ends in {' or '.join(SUFFIXES)}.")
    if bilm.stateful:
        raise ConfigurationError(
            "The biLM is stateful, expected a stateless one: programs carry no states. Load it without "
            "stateful."
        )
    if not isinstance(bilm.character_encoder, CharacterEncoder):
        raise ConfigurationError(
            "The biLM is one of ELMoForManyLangs, expected one in bilm-tf's form: a program cannot look "
            "words up in dictionaries. Run it with this package."
        )
    reason = reason_against_copying(bilm)
    if reason is not None:
        raise ConfigurationError(f"The biLM cannot be exported: {reason}. Undo that.")
    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
        raise ConfigurationError(
            f"torch is {torch.__version__}, expected 2.12 or newer, which can export a loop over the tokens. "
            "Install it in a separate environment."
        )
    if file.suffix == ONNX:
        with needing("torch needs onnx and onnxscript to write ONNX", "elmo-plugin[onnx]"):
            import onnxscript  # noqa: F401


def _save_onnx(program: torch.export.ExportedProgram, file: Path) -> None:
    onnx_program = torch.onnx.export(
        program,
        opset_version=ONNX_OPSET,
        dynamo=True,
        input_names=["character_ids"],
        output_names=["activations", "mask"],
        verbose=False,
    )
    assert onnx_program is not None
    onnx_program.save(file, external_data=False)


class _Program(torch.nn.Module):
    """
    A biLM over padded sentences, in operations that do not depend on their content. Padding is computed too,
    and set to zero at the end.
    """

    def __init__(self, bilm: BiLM) -> None:
        super().__init__()
        encoder = cast(CharacterEncoder, copy.deepcopy(bilm.character_encoder))
        self.character_encoder = encoder.cpu().requires_grad_(False).eval()
        self.layers = torch.nn.ModuleList(
            _BothDirections(cast(Sequence[ProjectedLSTM], layers))
            for layers in zip(bilm.forward_layers, bilm.backward_layers)
        )
        self.options = bilm.options
        self.register_buffer("sentence_marks", sentence_marks())  # (2, 50)
        self.sentence_marks: Tensor

    def forward(self, character_ids: Tensor) -> Dict[str, Tensor]:
        mask = (character_ids > 0).any(dim=2)  # (batch_size, timesteps)
        end = mask.sum(dim=1, keepdim=True) + 1  # (batch_size, 1), step of the end mark
        words = torch.nn.functional.pad(character_ids, (0, 0, 1, 1))
        steps = torch.arange(words.size(1), device=words.device).unsqueeze(0)  # (1, timesteps + 2)
        words = torch.where((steps == 0).unsqueeze(2), self.sentence_marks[0], words)
        words = torch.where((steps == end).unsqueeze(2), self.sentence_marks[1], words)
        # (batch_size, timesteps + 2, projection_dim)
        vectors = self.character_encoder.forward_traceable(words.flatten(0, 1))
        vectors = vectors.unflatten(0, (words.size(0), words.size(1)))
        # The indices of reversed sentences; padding remains at the end.
        reverse = torch.where(steps <= end, end - steps, steps).unsqueeze(2)
        reverse = reverse.expand(-1, -1, vectors.size(2))
        outputs, _ = run_stack(
            self.options, list(self.layers), [vectors, vectors.gather(1, reverse)], [words.size(0)]
        )
        activations = [torch.cat([vectors, vectors], dim=2)]
        for forward_output, backward_output in outputs:
            activations.append(
                torch.cat([forward_output, backward_output.gather(1, reverse)], dim=2)
            )
        layers = torch.stack(activations, dim=1)[:, :, 1:-1]
        return {
            "activations": torch.where(mask[:, None, :, None], layers, 0.0),
            "mask": mask,
        }


class _BothDirections(torch.nn.Module):
    """
    The two LSTMs of a layer, a `RunLayer` over padded sentences: inputs and outputs are `(batch_size,
    timesteps, dim)`.
    """

    def __init__(self, layers: Sequence[ProjectedLSTM]) -> None:
        super().__init__()
        tensors = [layer.tensors() for layer in layers]
        self.options = tensors[0].options
        size = layers[0].input_dim
        self.register_buffer("input_weight", _stacked([one.weight[:, :size].T for one in tensors]))
        self.register_buffer("state_weight", _stacked([one.weight[:, size:].T for one in tensors]))
        self.register_buffer("bias", _stacked([one.bias.unsqueeze(0) for one in tensors]))
        projections = [one.projection.T for one in tensors if one.projection is not None]
        self.register_buffer("projection", _stacked(projections) if projections else None)
        self.input_weight: Tensor
        self.state_weight: Tensor
        self.bias: Tensor
        self.projection: Optional[Tensor]

    def forward(self, directions: List[LayerInput]) -> List[LayerOutput]:
        # A prototype feature of torch 2.12: the loop is an operator of the program, so that lengths are free.
        from torch._higher_order_ops.scan import scan

        # Of the two directions beside each other.
        layer = PreparedLayer(
            partial(torch.matmul, other=self.input_weight),
            partial(torch.bmm, mat2=self.state_weight),
            None if self.projection is None else partial(torch.bmm, mat2=self.projection),
            self.bias,
            self.options,
        )

        def step(states: State, gates: Tensor) -> Tuple[State, Tensor]:
            state, cell = lstm_step(layer, gates, *states)
            return (state, cell), state.clone()  # one tensor must not be returned twice

        inputs, states, cells = (
            torch.stack([getattr(given, name) for given in directions])
            for name in ("inputs", "state", "cell")
        )
        # (timesteps, 2, batch_size, 4 * cell_size)
        gates = layer.for_inputs(inputs.permute(2, 0, 1, 3)) + layer.bias
        last_states, outputs = scan(step, (states, cells), gates)
        return list(map(LayerOutput, outputs.permute(1, 2, 0, 3), *last_states))


def _stacked(tensors: List[Tensor]) -> Tensor:
    return torch.stack([tensor.detach().cpu() for tensor in tensors])
