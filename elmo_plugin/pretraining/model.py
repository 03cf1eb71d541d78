"""The model that pretraining trains: a biLM over streams of text, with its softmax."""

import logging
import math
import time
from contextlib import nullcontext
from typing import Any, ContextManager, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed
from allennlp.common import Lazy
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import is_distributed
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.nn.util import dist_reduce_sum
from torch import Tensor
from torch.nn.functional import dropout
from torch.nn.parallel import DistributedDataParallel

from elmo_plugin.bilm import BiLM, BiLMOptions
from elmo_plugin.bilm.archived_bilm import as_bytes, from_bytes, state_dict_in
from elmo_plugin.bilm.input_checks import check_padding
from elmo_plugin.bilm.packing import Packing
from elmo_plugin.bilm.projected_lstm import State
from elmo_plugin.bilm.word_types import distinct_words
from elmo_plugin.pretraining.lm_word_vocabulary import WORDS_NAMESPACE, words_of
from elmo_plugin.pretraining.sentence_streams import DIRECTIONS
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
        gradients stay float32. Faster on CPUs and GPUs that have such products. Evaluation takes float32.
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
        self._has_common_softmax = False
        # Forward and backward, from the lowest layer to the highest; for training and for evaluation.
        self._states: Dict[bool, Optional[List[State]]] = {True: None, False: None}
        self._reset_metrics()

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
        The constructor that configs use. A new biLM has its sizes from `options`; to go on from another one,
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
                "for a new biLM, files, or an archive to go on from."
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
    ) -> Dict[str, Tensor]:
        """
        # Parameters

        forward_inputs, backward_inputs : `Tensor`
            `(rows, steps, 50)` character ids. The backward stream is already reversed. Rows of zeros are
            padding and stand at the end.
        forward_targets, backward_targets : `Tensor`
            `(rows, steps)`. The word to predict at each step.
        rows_continue : `bool`, optional (default = `False`)
            Whether every row goes on where the same row of the batch before ended, as in streams, which have
            no padding. Otherwise rows are whole sentences, read from zeros.

        # Returns

        A dictionary with `loss`: the negative log-likelihood of a row, summed over its steps, in the mean of
        rows and directions. For streams that is the mean of all predictions times `steps`, as bilm-tf scales
        the gradient.

        # Raises

        `ValueError` if padding stands before a word, or the two directions have other lengths.
        """
        if is_distributed() and not self._has_common_softmax:
            self._share_softmax()
        inputs = {"forward": forward_inputs, "backward": backward_inputs}
        targets = {"forward": forward_targets, "backward": backward_targets}
        lengths = self._lengths(inputs, rows_continue)
        packing = Packing.from_lengths(lengths, forward_targets.size(1))
        old_states = self._states_for(packing.batch_size) if rows_continue else self._no_states
        losses: List[Tensor] = []
        is_frozen = self.training and self._num_training_batches < self.softmax_first
        with self._lowered_products(forward_inputs.device.type):
            with torch.set_grad_enabled(torch.is_grad_enabled() and not is_frozen):
                words = [inputs[name][packing.row, packing.step] for name in DIRECTIONS]
                tops, new_states = self._run_layers(words, packing, old_states)
            for direction, top in zip(DIRECTIONS, tops):
                predicted = targets[direction][packing.row, packing.step]  # (num_tokens,)
                if self.training:
                    nll = self.softmax(top, predicted)
                else:
                    nll = self.softmax.exact_nll(top, predicted)
                losses.append(nll.sum() / packing.batch_size)
                self._nll[direction] += float(nll.detach().double().sum())
        if rows_continue:
            self._states[self.training] = new_states
        self._num_predictions += sum(packing.step_sizes)
        self._num_training_batches += int(self.training)
        loss = (losses[0] + losses[1]) / 2
        if is_frozen and is_distributed():
            # DistributedDataParallel expects a gradient of every parameter in every step.
            loss = loss + 0 * sum(parameter.sum() for parameter in self.bilm.parameters())
        return {"loss": loss}

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Since the last reset: the perplexity of each direction, `perplexity`, their mean (as the paper reports
        it), and `tokens_per_second`, words of both directions counted once.

        In training these are of the training loss, with dropout and sampled negatives where there are any;
        only those of evaluation are perplexities of the model.

        With `reset`, which all distributed workers must call, they are of all workers together.
        """
        sums = torch.tensor([*self._nll.values(), self._num_predictions], dtype=torch.float64)
        if reset:
            sums = dist_reduce_sum(sums)  # of this worker, where there are no others
        *nlls, num_predictions = sums.tolist()
        metrics: Dict[str, float] = {}
        if num_predictions > 0:
            for direction, nll in zip(DIRECTIONS, nlls):
                mean = min(nll / num_predictions, 700.0)  # which is infinite for all purposes
                metrics[f"{direction}_perplexity"] = math.exp(mean)
            metrics["perplexity"] = sum(metrics.values()) / len(DIRECTIONS)
            metrics["tokens_per_second"] = num_predictions / (time.perf_counter() - self._start)
        if reset:
            self._reset_metrics()
            self._states[False] = None
        return metrics

    def training_state(self) -> Dict[str, Any]:
        """
        What training goes on from, beside the weights: the states that are carried from batch to batch, and
        the number of batches. Checkpoints hold it by way of `BiLMStateCallback`.
        """
        return {"states": self._states[True], "num_batches": self._num_training_batches}

    def load_training_state(self, state: Dict[str, Any], with_states: bool = True) -> None:
        """Go on from what `training_state` gave; without the states, rows start anew."""
        self._num_training_batches = state["num_batches"]
        if with_states and state["states"] is not None:
            device = next(self.parameters()).device
            self._states[True] = [(h.to(device), c.to(device)) for h, c in state["states"]]

    def _share_softmax(self) -> None:
        """Make all workers start from the first one's, where `DistributedDataParallel` leaves it alone."""
        for name in self.softmax.exchanged_parameters:
            torch.distributed.broadcast(self.softmax.get_parameter(name).detach(), 0)
        self._has_common_softmax = True

    def _reset_metrics(self) -> None:
        self._nll = dict.fromkeys(DIRECTIONS, 0.0)
        self._num_predictions = 0
        self._start = time.perf_counter()

    def _lengths(self, inputs: Dict[str, Tensor], rows_continue: bool) -> Tensor:
        """`(rows,)`, on the CPU for streams: their lengths are known without asking a GPU."""
        num_rows, num_steps = inputs["forward"].shape[:2]
        if rows_continue:
            return torch.full((num_rows,), num_steps)
        masks = [(inputs[direction] > 0).any(dim=2) for direction in DIRECTIONS]
        lengths = masks[0].sum(dim=1)
        for mask in masks:
            check_padding(mask, lengths)
        return lengths

    def _run_layers(
        self, words: List[Tensor], packing: Packing, old_states: Sequence[Optional[State]]
    ) -> Tuple[List[Tensor], List[State]]:
        """
        `words` are `(num_tokens, 50)` for each direction. Returns the top outputs of each,
        `(num_tokens, projection_dim)`, and the detached state of each layer, two by two.
        """
        states: List[State] = []
        # Both directions have most of their words in common.
        num_tokens = sum(packing.step_sizes)
        inputs = list(self._encode(torch.cat(words)).split(num_tokens))
        for depth in range(self.bilm.options.num_layers):
            inputs = [self._drop(vectors) for vectors in inputs]
            before = slice(2 * depth, 2 * depth + 2)
            results = self.bilm.run_layer(depth, inputs, packing.step_sizes, old_states[before])
            outputs = [output for output, _ in results]
            if depth > 0 and self.bilm.options.use_skip_connections:
                outputs = [output + vectors for output, vectors in zip(outputs, inputs)]
            states += [(state.detach(), cell.detach()) for _, (state, cell) in results]
            inputs = outputs
        return [self._drop(vectors) for vectors in inputs], states

    @property
    def _no_states(self) -> List[Optional[State]]:
        """Each LSTM starts from zeros."""
        return [None] * (2 * self.bilm.options.num_layers)

    def _states_for(self, num_rows: int) -> Sequence[Optional[State]]:
        states = self._states[self.training]
        if states is None or states[0][0].size(0) != num_rows:
            return self._no_states
        if self.training and self.state_reset > 0:
            like = states[0][0]
            # (num_rows, 1): 0 for the rows that start anew
            kept = (torch.rand(num_rows, 1, device=like.device) >= self.state_reset).to(like)
            return [(state * kept, cell * kept) for state, cell in states]
        return states

    def _encode(self, words: Tensor) -> Tensor:
        """Token vectors of `(num_words, 50)`, each distinct word encoded once."""
        types, index = distinct_words(words.long())
        return self.bilm.character_encoder(types)[index]

    def _lowered_products(self, device_type: str) -> ContextManager[Any]:
        if self.precision == "float32" or not self.training:
            return nullcontext()  # An outer autocast, as of the trainer's use_amp, stays in force.
        return torch.autocast(device_type, dtype=torch.bfloat16)

    def _drop(self, vectors: Tensor) -> Tensor:
        return dropout(vectors, self.dropout, self.training)


def _resolved_in(folder: Optional[str]) -> Optional[Dict[str, Any]]:
    """What the weights in `folder` say about the model that they are of."""
    source = state_dict_in(folder).get(RESOLVED_KEY)
    return None if source is None else from_bytes(source)
