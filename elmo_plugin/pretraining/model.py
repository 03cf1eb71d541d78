"""The model that pretraining trains: a biLM over streams of text, with its softmax."""

import math
import time
from contextlib import nullcontext
from typing import Any, ContextManager, Dict, List, Optional, Tuple

import torch
from allennlp.common import Lazy
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model
from torch import Tensor
from torch.nn.functional import dropout

from elmo_plugin.bilm import BiLM, BiLMOptions
from elmo_plugin.bilm.input_checks import check_padding
from elmo_plugin.bilm.packing import Packing
from elmo_plugin.bilm.projected_lstm import State
from elmo_plugin.bilm.word_types import distinct_words
from elmo_plugin.pretraining.lm_word_vocabulary import WORDS_NAMESPACE
from elmo_plugin.pretraining.sentence_streams import DIRECTIONS
from elmo_plugin.pretraining.softmax import LMSoftmax

PRECISIONS = ("float32", "bfloat16")


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
        self.precision = precision
        # Of the forward layers, then of the backward layers; for training and for evaluation.
        self._states: Dict[bool, Optional[List[State]]] = {True: None, False: None}
        self._reset_metrics()

    @classmethod
    def from_partial_objects(
        cls,
        vocab: Vocabulary,
        options: Dict[str, Any],
        softmax: Lazy[LMSoftmax],
        dropout: float = 0.1,
        state_reset: float = 0.0,
        precision: str = "float32",
        **kwargs: Any,
    ) -> "BiLMTrainingModel":
        """The constructor that configs use: sizes follow from `options` and from the vocabulary."""
        if WORDS_NAMESPACE not in vocab.get_namespaces():
            raise ConfigurationError(
                f"The vocabulary has no namespace '{WORDS_NAMESPACE}', expected the words that the biLM "
                'predicts. Set vocabulary to {"type": "elmo_lm_words", "vocabulary_file": ...}.'
            )
        num_words = vocab.get_vocab_size(WORDS_NAMESPACE)
        bilm = BiLM(BiLMOptions.from_dict(options, "model.options"))
        built_softmax = softmax.construct(
            num_words=num_words, input_dim=bilm.options.projection_dim
        )
        return cls(vocab, bilm, built_softmax, dropout, state_reset, precision, **kwargs)

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
        inputs = {"forward": forward_inputs, "backward": backward_inputs}
        targets = {"forward": forward_targets, "backward": backward_targets}
        lengths = self._lengths(inputs, rows_continue)
        packing = Packing.from_lengths(lengths, forward_targets.size(1))
        old_states = self._states_for(packing.batch_size) if rows_continue else None
        new_states: List[State] = []
        losses: List[Tensor] = []
        with self._lowered_products(forward_inputs.device.type):
            for number, direction in enumerate(DIRECTIONS):
                words = inputs[direction][packing.row, packing.step]  # (num_tokens, 50)
                predicted = targets[direction][packing.row, packing.step]  # (num_tokens,)
                top, states = self._run_direction(number, words, packing, old_states)
                if self.training:
                    nll = self.softmax(top, predicted)
                else:
                    nll = self.softmax.exact_nll(top, predicted)
                new_states += states
                losses.append(nll.sum() / packing.batch_size)
                self._nll[direction] += float(nll.detach().double().sum())
        if rows_continue:
            self._states[self.training] = new_states
        self._num_predictions += sum(packing.step_sizes)
        return {"loss": (losses[0] + losses[1]) / 2}

    def get_metrics(self, reset: bool = False) -> Dict[str, float]:
        """
        Since the last reset: the perplexity of each direction, `perplexity`, their mean (as the paper reports
        it), and `tokens_per_second`, words of both directions counted once.

        In training these are of the training loss, with dropout and sampled negatives where there are any;
        only those of evaluation are perplexities of the model.
        """
        metrics: Dict[str, float] = {}
        if self._num_predictions > 0:
            for direction in DIRECTIONS:
                mean_nll = self._nll[direction] / self._num_predictions
                metrics[f"{direction}_perplexity"] = math.exp(min(mean_nll, 700.0))
            metrics["perplexity"] = sum(metrics.values()) / len(DIRECTIONS)
            metrics["tokens_per_second"] = self._num_predictions / (
                time.perf_counter() - self._start
            )
        if reset:
            self._reset_metrics()
            self._states[False] = None
        return metrics

    @property
    def carried_states(self) -> Optional[List[State]]:
        """
        The states that training carries from batch to batch: `(rows, projection_dim)` and `(rows, cell_size)`
        of each forward layer, then of each backward one; `None` before the first batch. Checkpoints hold them
        by way of `BiLMStateCallback`; they are no part of the model's weights.
        """
        return self._states[True]

    @carried_states.setter
    def carried_states(self, states: Optional[List[State]]) -> None:
        if states is not None:
            device = next(self.parameters()).device
            states = [(state.to(device), cell.to(device)) for state, cell in states]
        self._states[True] = states

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

    def _run_direction(
        self, number: int, words: Tensor, packing: Packing, old_states: Optional[List[State]]
    ) -> Tuple[Tensor, List[State]]:
        """The top outputs, `(num_tokens, projection_dim)`, and the detached state of each layer."""
        layers = getattr(self.bilm, f"{DIRECTIONS[number]}_layers")
        states: List[State] = []
        layer_input = self._encode(words)
        for depth, layer in enumerate(layers):
            layer_input = self._drop(layer_input)
            old_state = None if old_states is None else old_states[number * len(layers) + depth]
            output, (state, cell) = layer(layer_input, packing.step_sizes, old_state)
            if depth > 0 and self.bilm.options.use_skip_connections:
                output = output + layer_input
            states.append((state.detach(), cell.detach()))
            layer_input = output
        return self._drop(layer_input), states

    def _states_for(self, num_rows: int) -> Optional[List[State]]:
        states = self._states[self.training]
        if states is None or states[0][0].size(0) != num_rows:
            return None
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
