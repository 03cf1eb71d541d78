"""The model that pretraining trains: a biLM over streams of text, with its softmax and its perplexity."""

import hashlib
import logging
import math
from contextlib import nullcontext
from typing import Any, ContextManager, Dict, List, Optional, Sequence

import torch
import torch.distributed
from allennlp.common import Lazy
from allennlp.common.util import is_distributed
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.nn.parallel import DdpAccelerator
from allennlp.nn.regularizers import RegularizerApplicator
from allennlp.nn.util import dist_reduce_sum
from torch import Tensor
from torch.nn.functional import dropout
from torch.nn.parallel import DistributedDataParallel

from elmo_plugin.bilm import BiLM, BiLMOptions
from elmo_plugin.bilm.batch import CarriedStates, Packing, check_padding, distinct_words
from elmo_plugin.bilm.bilm import run_stack
from elmo_plugin.bilm.processor import has_bfloat16_products
from elmo_plugin.bilm.softmax import perplexities
from elmo_plugin.errors import ConfigurationError, check_choice, warn_once
from elmo_plugin.modules.elmo_archives import as_bytes, from_bytes, state_dict_in
from elmo_plugin.pretraining.corpus import DIRECTIONS, WORDS_NAMESPACE, predicted_words
from elmo_plugin.pretraining.softmax import LMSoftmax
from elmo_plugin.pretraining.starting_point import start_from_archive, start_from_files

logger = logging.getLogger(__name__)

PRECISIONS = ("float32", "bfloat16")

# Number of batches in which only a new softmax is trained.
DEFAULT_SOFTMAX_FIRST = 500

# The key of the sizes and of softmax_first in the weights of a biLM that was started from files or an
# archive, so that its own archive needs neither.
RESOLVED_KEY = "bilm_resolved"


class BiLMPerplexity:
    """The perplexity of each direction and of both since the last reset."""

    def __init__(self) -> None:
        # The negative log-likelihoods of each direction, and the number of predictions.
        self.sums = torch.zeros(len(DIRECTIONS) + 1).double()

    def __call__(self, *nlls: Tensor) -> None:
        """Add the negative log-likelihoods of predictions, `(num_predictions,)` for each direction."""
        sums = [nll.detach().double().sum() for nll in nlls]
        num_predictions = torch.full_like(sums[0], len(nlls[0]))
        self.sums = self.sums + torch.stack([*sums, num_predictions]).cpu()

    def get_metric(self, reset: bool = False) -> Dict[str, float]:
        """
        Return the metrics of `elmo_plugin.bilm.softmax.perplexities`; nothing before the first prediction.

        With `reset`, which all distributed workers must call, also `num_predictions` in each direction, and
        all of all workers together.
        """
        sums = self.sums
        if reset:
            # Of this worker, if it is the only one. NCCL adds, and returns, on the GPU.
            sums = dist_reduce_sum(sums).cpu()
            self.sums = torch.zeros_like(sums)
        *nlls, num_predictions = sums.tolist()
        if num_predictions == 0:
            return {}
        metrics = perplexities(nlls, num_predictions)
        return {**metrics, "num_predictions": int(num_predictions)} if reset else metrics


@Model.register("elmo_bilm", constructor="from_partial_objects")
class BiLMTrainingModel(Model):
    """
    Predict the next word in both directions from words spelled as characters (paper, section 3.1): one
    character encoder and one softmax, an LSTM stack for each direction.

    Batches are windows into contiguous streams, or whole sentences. The states of a stream are carried from
    one window to the next, and detached: back-propagation through time ends at the edge of a window.
    Evaluation has separate states, which start from zeros after each `get_metrics(reset=True)`.

    In place of `bilm`, a config has one of three: `options`, for a new biLM; or, to start from a trained one,
    `options_file` with `weight_file`, or `archive_file`.

    # Parameters

    vocab : `Vocabulary`
        Contains the words that are predicted, see `LMWordVocabulary`.
    bilm : `BiLM`
        Not in configs.
    softmax : `LMSoftmax`
        Training uses its loss; evaluation always uses the exact loss.
    dropout : `float`, optional (default = `0.1`)
        On the input of every LSTM layer, including the part of the skip connection, and on the top output, as
        in bilm-tf; not on recurrent connections.
    state_reset : `float`, optional (default = `0.0`)
        In training, the probability that a row starts a window from zeros. bilm-tf never resets (0), so a
        biLM can come to depend on states that are never near zeros; ELMo starts every sentence from zeros.
    precision : `str`, optional (default = `"float32"`)
        `"bfloat16"`: training multiplies matrices in bfloat16. Weights, states and sums over steps stay
        float32; products by torch, such as those that give the gradients of weights, are rounded to
        bfloat16. On a device without bfloat16 instructions, where this would be slower, training uses
        float32, with one log message. Evaluation uses float32.
    softmax_first : `int`, optional
        Number of training batches during which the biLM is frozen, so that a new softmax does not damage it.
        By default 500 with a new softmax for a trained biLM, otherwise 0. With a `regularizer` of the biLM
        this needs the callback `elmo_bilm_state`.
    options : `Dict[str, Any]`, optional
        Sizes of a new biLM, in the form of bilm-tf's options.json.
    options_file, weight_file : `str`, optional
        See `Elmo`. The softmax comes from the group `softmax` of the weights, where `elmo export` writes it.
    archive_file : `str`, optional
        The archive of a pretrained biLM, or of a task model with a fine-tuned one.
    """

    default_predictor = "elmo_bilm"

    def __init__(
        self,
        vocab: Vocabulary,
        bilm: BiLM,
        softmax: LMSoftmax,
        dropout: float = 0.1,
        state_reset: float = 0.0,
        precision: str = "float32",
        softmax_first: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(vocab, **kwargs)
        for name, value, largest in (
            ("dropout", dropout, 1),
            ("state_reset", state_reset, 1),
            ("softmax_first", softmax_first, math.inf),
        ):
            if not isinstance(value, (int, float)) or not 0 <= value <= largest:
                raise ConfigurationError(f"model.{name} is {value!r}, expected 0 to {largest}.")
        check_choice("model.precision", precision, PRECISIONS)
        self.bilm = bilm
        self.softmax = softmax
        self.dropout = dropout
        self.state_reset = state_reset
        self.precision = precision
        self.softmax_first = softmax_first
        self._num_training_batches = 0
        exchanged = [f"softmax.{name}" for name in softmax.exchanged_parameters]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self, exchanged)
        self._is_worker_set_up = False
        self.training_perplexity, self.evaluation_perplexity = BiLMPerplexity(), BiLMPerplexity()
        self._training_states, self._evaluation_states = CarriedStates(), CarriedStates()

    @classmethod
    def from_partial_objects(
        cls,
        vocab: Vocabulary,
        softmax: Lazy[LMSoftmax],
        options: Optional[Dict[str, Any]] = None,
        options_file: Optional[str] = None,
        weight_file: Optional[str] = None,
        archive_file: Optional[str] = None,
        softmax_first: Optional[int] = None,
        serialization_dir: Optional[str] = None,
        ddp_accelerator: Optional[DdpAccelerator] = None,
        regularizer: Optional[RegularizerApplicator] = None,
        dropout: float = 0.1,
        state_reset: float = 0.0,
        precision: str = "float32",
    ) -> "BiLMTrainingModel":
        """
        Build the model of a config. AllenNLP fills in `serialization_dir`: an archive is loaded without the
        files from which its biLM was started. All arguments are named: for `**kwargs` of a derived class,
        AllenNLP would require those of the `__init__` above.
        """
        if WORDS_NAMESPACE not in vocab.get_namespaces():
            raise ConfigurationError(
                f"The vocabulary has no namespace '{WORDS_NAMESPACE}', expected the words that the biLM "
                'predicts. Set vocabulary to {"type": "elmo_lm_words", "vocabulary_file": ...}.'
            )
        has_files = options_file is not None or weight_file is not None
        if [options is not None, has_files, archive_file is not None].count(True) != 1:
            raise ConfigurationError(
                f"model: found {'no' if options is None else 'some'} options, options_file {options_file}, "
                f"weight_file {weight_file} and archive_file {archive_file}, expected one of three: options "
                "for a new biLM, files, or an archive to start from."
            )
        has_start = options is None
        saved = state_dict_in(serialization_dir).get(RESOLVED_KEY) if has_start else None
        if saved is not None:  # The weights are loaded later, from the same folder.
            resolved = from_bytes(saved)
            options, softmax_first = resolved["options"], resolved["softmax_first"]
        start = None
        if options is not None:
            bilm = BiLM(BiLMOptions.from_dict(options, "model.options"))
        else:
            if archive_file is not None:
                start = start_from_archive(archive_file)
            else:
                start = start_from_files(options_file, weight_file)
            bilm = start.bilm.requires_grad_(True)
        built_softmax = softmax.construct(
            num_words=vocab.get_vocab_size(WORDS_NAMESPACE), input_dim=bilm.options.projection_dim
        )
        if start is not None and start.softmax is not None:
            start.load_softmax(built_softmax, vocab)
        elif start is not None:
            softmax_first = DEFAULT_SOFTMAX_FIRST if softmax_first is None else softmax_first
            logger.warning(
                "%s has no softmax: a new softmax is learned; the biLM is frozen in the first %d batches "
                "(model.softmax_first).",
                start.name,
                softmax_first,
            )
        model = cls(
            vocab,
            bilm,
            built_softmax,
            dropout,
            state_reset,
            precision,
            softmax_first or 0,
            regularizer=regularizer,
            serialization_dir=serialization_dir,
            ddp_accelerator=ddp_accelerator,
        )
        if has_start:
            resolved = {"options": bilm.options.to_dict(), "softmax_first": model.softmax_first}
            model.register_buffer(RESOLVED_KEY, as_bytes(resolved))
        return model

    def forward(
        self,
        forward_inputs: Tensor,
        forward_targets: Tensor,
        backward_inputs: Tensor,
        backward_targets: Tensor,
        lengths: Optional[List[int]] = None,
    ) -> Dict[str, Tensor]:
        """
        Compute the loss of a batch.

        # Parameters

        forward_inputs, backward_inputs : `Tensor`
            `(rows, steps, 50)` character ids. The backward stream is already reversed. Padding, at the end,
            is zeros.
        forward_targets, backward_targets : `Tensor`
            `(rows, steps)`. The word to predict at each step.
        lengths : `List[int]`, optional
            For streams: the number of words in each row, which continues where the same row of the previous
            batch ended. Without it, rows are whole sentences, which start from zeros.

        # Returns

        A dictionary with `loss`: the negative log-likelihood, summed over the steps of a row, and averaged
        over rows and directions. For streams this is the mean of all predictions times `steps`, which is how
        bilm-tf scales the gradient.
        """
        if self.training and is_distributed() and not self._is_worker_set_up:
            warn_once(
                logger,
                "The trainer has no callback 'elmo_bilm_state': all workers draw the same negative words and "
                "drop the same units. Add it to trainer.callbacks.",
            )
        inputs = [forward_inputs, backward_inputs]
        targets = [forward_targets, backward_targets]
        # Those of streams are on the CPU, where they are known without waiting for a GPU.
        row_lengths = _lengths(inputs) if lengths is None else torch.tensor(lengths)
        is_frozen = self.training and self._num_training_batches < self.softmax_first
        self._num_training_batches += int(self.training)
        if not row_lengths.any():  # a worker that waits for the others
            if self.training and self.softmax.exchanged_parameters:
                # Else the others would wait for its rows.
                raise ConfigurationError(
                    "softmax.sparse_gradients is true, and a worker has a batch without words, which has no "
                    "such gradient. Set data_loader.shuffle to true, or sparse_gradients to false."
                )
            return {"loss": _zero(self)}
        packing = Packing.from_lengths(row_lengths, forward_targets.size(1))
        states = None if lengths is None else self._states_for(len(row_lengths))
        with self._autocast_for_training(forward_inputs.device):
            with torch.set_grad_enabled(torch.is_grad_enabled() and not is_frozen):
                tops = self._top_outputs(inputs, packing, states)
            nll_of = self.softmax if self.training else self.softmax.exact().nll
            nlls = [
                nll_of(top, words[packing.row, packing.step]) for top, words in zip(tops, targets)
            ]
        self._perplexity(*nlls)
        loss = (nlls[0].sum() + nlls[1].sum()) / (2 * len(row_lengths))
        # torch expects a gradient of each parameter in every worker. See `leave_out_frozen`.
        return {"loss": loss + _zero(self.bilm) if is_frozen and is_distributed() else loss}

    def leave_out_frozen(self) -> None:
        """
        Before a step of the optimizer: leave the biLM out while it is frozen. With gradients of zero, which
        distributed training needs, Adam would count steps, and then make steps that are too large. With those
        of a regularizer, the biLM would change.
        """
        if self._num_training_batches <= self.softmax_first:
            self.bilm.zero_grad(set_to_none=True)

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Return the metrics of `BiLMPerplexity` since the last reset: of training in training mode, otherwise
        of evaluation. Only those of evaluation are perplexities of the model: those of training are derived
        from the training loss, with dropout and sampled negatives.

        With `reset`, which all distributed workers must call, they are those of all workers together.
        """
        if reset:
            self._evaluation_states.reset()
        return self._perplexity.get_metric(reset)

    @property
    def _perplexity(self) -> BiLMPerplexity:
        return self.training_perplexity if self.training else self.evaluation_perplexity

    def training_state(self) -> Dict[str, Any]:
        """
        Return what training needs to resume, apart from the weights, on the CPU: the states that are carried
        from batch to batch, the number of batches and the sums of the perplexity; and a checksum of the words
        of the softmax.
        """
        states = self._training_states.states
        return {
            "states": states and [(state.cpu(), cell.cpu()) for state, cell in states],
            "num_batches": self._num_training_batches,
            "perplexity": self.training_perplexity.sums,
            "words": self._checksum_of_words(),
        }

    def load_training_state(self, state: Dict[str, Any]) -> None:
        """Resume from a `training_state`. Raise `ConfigurationError` if the softmax had other words."""
        if state["words"] != self._checksum_of_words():
            raise ConfigurationError(
                "vocabulary.vocabulary_file has other words, or another order, than when this training "
                "began, so that the softmax would learn wrong words. Give that file again, or another folder."
            )
        self._num_training_batches = state["num_batches"]
        # On the CPU: the next batch moves them to its device.
        self._training_states.states = state["states"]
        self.training_perplexity.sums = state["perplexity"]

    def _checksum_of_words(self) -> str:
        return hashlib.sha256("\n".join(predicted_words(self.vocab)).encode()).hexdigest()

    def set_up_worker(self) -> None:
        """
        Copy the parameters of the softmax that torch does not exchange from the first distributed worker to
        all others.
        """
        for name in self.softmax.exchanged_parameters:
            torch.distributed.broadcast(self.softmax.get_parameter(name).detach(), 0)
        self._is_worker_set_up = True

    def _top_outputs(
        self, inputs: Sequence[Tensor], packing: Packing, carried_states: Optional[CarriedStates]
    ) -> List[Tensor]:
        """Return the input of the softmax in each direction, packed, `(num_tokens, projection_dim)`."""
        # The two directions share most of their words.
        words = torch.cat([tensor[packing.row, packing.step] for tensor in inputs])
        vectors = self._encode(words).chunk(len(inputs))
        old_states = None if carried_states is None else carried_states.initial(packing, vectors[0])
        layers, new_states = run_stack(
            self.bilm.options,
            self.bilm.layers,
            vectors,
            packing.step_sizes,
            old_states,
            self._drop,
        )
        if carried_states is not None:
            carried_states.keep(new_states, packing)
        return [self._drop(vectors) for vectors in layers[-1]]

    def _encode(self, words: Tensor) -> Tensor:
        """Return the vectors of words. benchmarks/training.py replaces this method."""
        distinct, index = distinct_words(words.long())
        return self.bilm.character_encoder(distinct)[index]

    def _states_for(self, num_rows: int) -> CarriedStates:
        states = self._training_states if self.training else self._evaluation_states
        if states.num_rows != num_rows:
            states.reset()
        elif self.training and self.state_reset > 0:
            states.reset(torch.rand(num_rows) < self.state_reset)
        return states

    def _autocast_for_training(self, device: torch.device) -> ContextManager[Any]:
        if not self.training:
            return torch.autocast(device.type, enabled=False)
        in_bfloat16 = self.precision == "bfloat16"
        if in_bfloat16 and has_bfloat16_products(device):
            return torch.autocast(device.type, dtype=torch.bfloat16)
        if in_bfloat16:
            warn_once(
                logger,
                f"model.precision is bfloat16, but this {device.type} has no bfloat16 instructions, "
                "which makes it slower than float32: training uses float32.",
            )
        # An outer autocast, such as that of the trainer's use_amp, stays active.
        return nullcontext()

    def _drop(self, vectors: Tensor) -> Tensor:
        return dropout(vectors, self.dropout, self.training)


def _lengths(inputs: Sequence[Tensor]) -> Tensor:
    """Return the lengths of rows, `(rows,)`, which must be the same in all directions."""
    masks = [(tensor > 0).any(dim=2) for tensor in inputs]
    row_lengths = masks[0].sum(dim=1)
    for mask in masks:
        check_padding(mask, row_lengths)
    return row_lengths


def _zero(module: torch.nn.Module) -> Tensor:
    """Return zero with a gradient of every parameter, which `DistributedDataParallel` needs in every step."""
    return 0 * torch.stack([parameter.sum() for parameter in module.parameters()]).sum()
