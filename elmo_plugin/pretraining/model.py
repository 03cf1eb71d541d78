"""The model that pretraining trains: a biLM over streams of text, with its softmax."""

import logging
from contextlib import nullcontext
from typing import Any, ContextManager, Dict, List, Optional, Sequence, Set

import torch
import torch.distributed
from allennlp.common import Lazy
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import is_distributed
from allennlp.data import Vocabulary
from allennlp.models import Model
from torch import Tensor
from torch.nn.functional import dropout
from torch.nn.parallel import DistributedDataParallel

from elmo_plugin.bilm import BiLM, BiLMOptions
from elmo_plugin.bilm.bilm import CarriedStates
from elmo_plugin.bilm.characters import check_padding, distinct_words
from elmo_plugin.bilm.checkpoints import as_bytes, from_bytes, state_dict_in
from elmo_plugin.bilm.lstm import Packing
from elmo_plugin.bilm.processor import has_bfloat16_products
from elmo_plugin.pretraining.lm_vocabulary import WORDS_NAMESPACE, words_of
from elmo_plugin.pretraining.perplexity import BiLMPerplexity
from elmo_plugin.pretraining.softmax import LMSoftmax
from elmo_plugin.pretraining.starting_point import (
    StartingPoint,
    start_from_archive,
    start_from_files,
)

logger = logging.getLogger(__name__)

PRECISIONS = ("float32", "bfloat16")

# Batches in which a new softmax learns alone.
DEFAULT_SOFTMAX_FIRST = 500

# The key under which the weights of a biLM that started from files or an archive say its sizes, so that
# its own archive needs neither.
RESOLVED_KEY = "bilm_resolved"


@Model.register("elmo_bilm", constructor="from_partial_objects")
class BiLMTrainingModel(Model):
    """
    Predict the next word in both directions from words spelled as characters (paper, section 3.1): one
    character encoder and one softmax, an LSTM stack for each direction.

    Batches are windows into contiguous streams, or whole sentences. The states of a stream are carried from
    one window to the next, detached: back-propagation through time ends at the edge of a window. Evaluation
    has states of its own, which start from zeros after each `get_metrics(reset=True)`.

    Registered as a `Model` with name `elmo_bilm`.

    # Parameters

    vocab : `Vocabulary`
        With the words that are predicted, see `LMWordVocabulary`.
    bilm : `BiLM`
        In a config `options` stands in its place: the sizes, in the form of bilm-tf's options.json.
    softmax : `LMSoftmax`
        Training takes its loss; evaluation always takes the exact one.
    dropout : `float`, optional (default = `0.1`)
        On the input of every LSTM layer, what its skip connection adds included, and on the top output, as in
        bilm-tf; none on recurrent connections.
    state_reset : `float`, optional (default = `0.0`)
        In training, the probability that a row starts a window from zeros. bilm-tf never resets (0), and so a
        biLM may come to rely on states that no cold start reaches; ELMo starts every sentence cold.
    precision : `str`, optional (default = `"float32"`)
        `"bfloat16"`: in training, matrices are multiplied in bfloat16, while weights, sums, states and
        gradients stay float32. A device without such products, where that
        would be slower, trains in float32, and the log says so once. Evaluation takes float32.
    softmax_first : `int`, optional (default = `0`)
        For how many batches of training the biLM is frozen, so that a new softmax does not spoil it.

    # Raises

    `ConfigurationError` for sizes that are wrong, and for a vocabulary without words.
    """

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
        for name, share in (("dropout", dropout), ("state_reset", state_reset)):
            if not 0.0 <= share <= 1.0:
                raise ConfigurationError(f"model.{name} is {share}, expected 0 to 1.")
        if precision not in PRECISIONS:
            raise ConfigurationError(
                f"model.precision is '{precision}', expected one of: {', '.join(PRECISIONS)}."
            )
        self.bilm = bilm
        self.softmax = softmax
        self.dropout = dropout
        self.state_reset = state_reset
        if softmax_first < 0:
            raise ConfigurationError(
                f"model.softmax_first is {softmax_first}, expected a number of batches, 0 or more."
            )
        self.precision = precision
        self.softmax_first = softmax_first
        self._num_training_batches = 0
        exchanged = [f"softmax.{name}" for name in softmax.exchanged_parameters]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self, exchanged)
        self._is_worker_set_up = False
        self.training_perplexity, self.evaluation_perplexity = BiLMPerplexity(), BiLMPerplexity()
        # For training and for evaluation.
        self._states = {
            is_training: CarriedStates(2 * bilm.options.num_layers) for is_training in (True, False)
        }
        self._messages_given: Set[str] = set()

    @classmethod
    def from_partial_objects(
        cls,
        vocab: Vocabulary,
        softmax: Lazy[LMSoftmax],
        options: Optional[Dict[str, Any]] = None,
        options_file: Optional[str] = None,
        weight_file: Optional[str] = None,
        archive_file: Optional[str] = None,
        new_softmax: bool = False,
        softmax_first: Optional[int] = None,
        dropout: float = 0.1,
        state_reset: float = 0.0,
        precision: str = "float32",
        serialization_dir: Optional[str] = None,
        **kwargs: Any,
    ) -> "BiLMTrainingModel":
        """
        The constructor that configs use. A new biLM has its sizes from `options`; to start from another one,
        give in their place its `options_file` and `weight_file`, or the `archive_file` of its training.

        # Parameters

        options : `Dict[str, Any]`, optional
            Sizes, in the form of bilm-tf's options.json.
        options_file, weight_file : `str`, optional
            See `Elmo`. The softmax is taken from the group `softmax` of the weights, where
            `allennlp elmo-export` puts it.
        archive_file : `str`, optional
            The archive of a pretrained biLM, or of a task model with a fine-tuned one.
        new_softmax : `bool`, optional (default = `False`)
            Learn another softmax than the one found there: for another vocabulary.
        softmax_first : `int`, optional
            For how many batches the biLM is frozen. By default 500 where there is a softmax to learn anew,
            and 0 otherwise.
        serialization_dir : `str`, optional
            Filled in by AllenNLP. An archive is loaded from there without the files that its biLM came from.

        The others are those of the class.

        # Raises

        `ConfigurationError` unless there is one of `options`, files and `archive_file`; for whatever is wrong
        with them; if the softmax found there predicts other words; and for a vocabulary without words.
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
        start: Optional[StartingPoint] = None
        resolved = _resolved_in(serialization_dir) if options is None else None
        if options is not None:
            bilm = BiLM(BiLMOptions.from_dict(options, "model.options"))
        elif resolved is not None:  # Weights follow from the same folder.
            bilm = BiLM(BiLMOptions.from_dict(resolved["options"], f"{serialization_dir}"))
            softmax_first = resolved["softmax_first"]
        else:
            start = (
                start_from_files(options_file, weight_file)
                if archive_file is None
                else start_from_archive(archive_file)
            )
            bilm = start.bilm
        built_softmax = softmax.construct(
            num_words=len(words_of(vocab)), input_dim=bilm.options.projection_dim
        )
        if start is not None:
            is_new = new_softmax or not start.fill_softmax(built_softmax, vocab)
            if softmax_first is None:
                softmax_first = DEFAULT_SOFTMAX_FIRST if is_new else 0
            if is_new:
                logger.warning(
                    "%s %s: a new softmax is learnt, in the first %d batches with the biLM frozen "
                    "(model.softmax_first).",
                    start.name,
                    "has a softmax that is not used" if start.datasets else "has no softmax",
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
            serialization_dir=serialization_dir,
            **kwargs,
        )
        if options is None:
            resolved = {"options": bilm.options.to_dict(), "softmax_first": model.softmax_first}
            model.register_buffer(RESOLVED_KEY, as_bytes(resolved))
        return model

    def forward(
        self,
        forward_inputs: Tensor,
        forward_targets: Tensor,
        backward_inputs: Tensor,
        backward_targets: Tensor,
        rows_continue: bool = False,
        lengths: Optional[List[int]] = None,
    ) -> Dict[str, Tensor]:
        """
        # Parameters

        forward_inputs, backward_inputs : `Tensor`
            `(rows, steps, 50)` character ids. The backward stream is already reversed. Rows of zeros are
            padding and stand at the end.
        forward_targets, backward_targets : `Tensor`
            `(rows, steps)`. The word to predict at each step.
        rows_continue : `bool`, optional (default = `False`)
            Whether every row continues where the same row of the batch before ended, as in streams. Otherwise
            rows are whole sentences, read from zeros.
        lengths : `List[int]`, optional
            Of rows that continue: the words of each, the rest is padding. By default there is no padding.

        # Returns

        A dictionary with `loss`: the negative log-likelihood of a row, summed over its steps, in the mean of
        rows and directions. For streams that is the mean of all predictions times `steps`, as bilm-tf scales
        the gradient.

        # Raises

        `ValueError` if padding stands before a word, or the two directions have other lengths.
        """
        if self.training and is_distributed() and not self._is_worker_set_up:
            self._warn_once(
                "The trainer has no callback 'elmo_bilm_state': all workers draw the same negative words and "
                "drop the same units. Add it to trainer.callbacks."
            )
        inputs = [forward_inputs, backward_inputs]
        targets = [forward_targets, backward_targets]
        row_lengths = self._row_lengths(inputs, rows_continue, lengths)
        if not row_lengths.any():  # of a worker that waits for the others
            return {"loss": _zero(self)}
        packing = Packing.from_lengths(row_lengths, forward_targets.size(1))
        states = self._states_for(packing.batch_size) if rows_continue else None
        is_frozen = self.training and self._num_training_batches < self.softmax_first
        with self._autocast_for_training(forward_inputs.device):
            with torch.set_grad_enabled(torch.is_grad_enabled() and not is_frozen):
                tops = self._top_outputs(inputs, packing, states)
            nll_of = self.softmax if self.training else self.softmax.exact_nll
            nlls = [
                nll_of(top, words[packing.row, packing.step]) for top, words in zip(tops, targets)
            ]
        self._perplexity(*nlls)
        self._num_training_batches += int(self.training)
        loss = (nlls[0].sum() + nlls[1].sum()) / (2 * packing.batch_size)
        return {"loss": loss + _zero(self.bilm) if is_frozen and is_distributed() else loss}

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        What `BiLMPerplexity` gives since the last reset: of training in training mode, of evaluation
        otherwise.

        In training these are of the training loss, with dropout and sampled negatives where there are any;
        only those of evaluation are perplexities of the model.

        With `reset`, which all distributed workers must call, they are of all workers together.
        """
        metrics = self._perplexity.get_metric(reset)
        if reset:
            self._states[False].reset()
            if not self.training and metrics:
                logger.info(
                    "Perplexity of %d predictions in each direction: %.2f (forward %.2f, backward %.2f).",
                    metrics["num_predictions"],
                    *(metrics[f"{name}perplexity"] for name in ("", "forward_", "backward_")),
                )
        return metrics

    @property
    def _perplexity(self) -> BiLMPerplexity:
        return self.training_perplexity if self.training else self.evaluation_perplexity

    def training_state(self) -> Dict[str, Any]:
        """
        Return what training resumes from beside the weights, on the CPU: the states that are carried from
        batch to batch, the number of batches and the sums of the perplexity. Checkpoints hold it by way of
        `BiLMStateCallback`.
        """
        states = self._states[True].states
        return {
            "states": states and [(state.cpu(), cell.cpu()) for state, cell in states],
            "num_batches": self._num_training_batches,
            "perplexity": self.training_perplexity.state_dict(),
        }

    def load_training_state(self, state: Dict[str, Any], with_states: bool = True) -> None:
        """Resume from what `training_state` gave; without the states, rows and sums start anew."""
        self._num_training_batches = state["num_batches"]
        if with_states and state["states"] is not None:
            device = next(self.parameters()).device
            self._states[True].states = [(h.to(device), c.to(device)) for h, c in state["states"]]
        # Earlier versions did not save the sums.
        if with_states and "perplexity" in state:
            self.training_perplexity.load_state_dict(state["perplexity"])

    def set_up_worker(self) -> None:
        """Give all distributed workers the first one's softmax, as far as torch is told to leave it alone."""
        for name in self.softmax.exchanged_parameters:
            torch.distributed.broadcast(self.softmax.get_parameter(name).detach(), 0)
        self._is_worker_set_up = True

    def _row_lengths(
        self, inputs: Sequence[Tensor], rows_continue: bool, lengths: Optional[List[int]]
    ) -> Tensor:
        """`(rows,)`, on the CPU for streams: their lengths are known without asking a GPU."""
        num_rows, num_steps = inputs[0].shape[:2]
        if rows_continue:
            return torch.tensor([num_steps] * num_rows if lengths is None else lengths)
        masks = [(tensor > 0).any(dim=2) for tensor in inputs]
        row_lengths = masks[0].sum(dim=1)
        for mask in masks:
            check_padding(mask, row_lengths)
        return row_lengths

    def _top_outputs(
        self, inputs: Sequence[Tensor], packing: Packing, carried_states: Optional[CarriedStates]
    ) -> List[Tensor]:
        """What the softmax reads in each direction, `(num_tokens, projection_dim)`, packed."""
        # Both directions have most of their words in common.
        words = torch.cat([tensor[packing.row, packing.step] for tensor in inputs])
        tokens = self._encode(words).chunk(len(inputs))
        old_states = None if carried_states is None else carried_states.initial(packing)
        layers, new_states = self.bilm.run_layers(
            tokens, packing.step_sizes, old_states, self._drop
        )
        if carried_states is not None:
            carried_states.keep(new_states, packing)
        return [self._drop(vectors) for vectors in layers[-1]]

    def _encode(self, words: Tensor) -> Tensor:
        """Token vectors of `(num_words, 50)`, each distinct word encoded once."""
        types, index = distinct_words(words.long())
        return self.bilm.character_encoder(types)[index]

    def _states_for(self, num_rows: int) -> CarriedStates:
        states = self._states[self.training]
        if states.num_rows != num_rows:
            states.reset()
        elif self.training and self.state_reset > 0:
            states.reset(torch.rand(num_rows) < self.state_reset)
        return states

    def _autocast_for_training(self, device: torch.device) -> ContextManager[Any]:
        if self.precision == "float32" or not self.training:
            return nullcontext()  # An outer autocast, as of the trainer's use_amp, stays in force.
        if not has_bfloat16_products(device):
            self._warn_once(
                f"model.precision is bfloat16, but this {device.type} has no instructions for such products, "
                "and they would be slower than those of float32: training takes float32."
            )
            return nullcontext()
        return torch.autocast(device.type, dtype=torch.bfloat16)

    def _warn_once(self, message: str) -> None:
        if message not in self._messages_given:
            self._messages_given.add(message)
            logger.warning("%s (Said once.)", message)

    def _drop(self, vectors: Tensor) -> Tensor:
        return dropout(vectors, self.dropout, self.training)


def _zero(module: torch.nn.Module) -> Tensor:
    """Zero with a gradient of every parameter, as `DistributedDataParallel` expects in every step."""
    return 0 * torch.stack([parameter.sum() for parameter in module.parameters()]).sum()


def _resolved_in(folder: Optional[str]) -> Optional[Dict[str, Any]]:
    """What the weights in `folder` say about the model that they are of."""
    source = state_dict_in(folder).get(RESOLVED_KEY)
    return None if source is None else from_bytes(source)
