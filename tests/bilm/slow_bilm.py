"""
A biLM in the plainest float64 loop, straight from the datasets of a weight file.

It follows bilm-tf's rules one by one (gates i, j, f, o; forget bias 1 added at run time; "carry" opens the
transformed path; cell clip before the output tanh, projection clip after the projection; the skip
connection outside the cell), word by word and step by step, and shares with the package only the
spelling of words, `batch_to_ids`. Gate j is g in the package.
"""

import json
from typing import Dict, List, Tuple

import h5py
import numpy

from elmo_plugin import batch_to_ids

State = Tuple[numpy.ndarray, numpy.ndarray]


class SlowBiLM:
    def __init__(self, options_file: str, weight_file: str) -> None:
        with open(options_file) as file:
            self.options = json.load(file)
        self.weights: Dict[str, numpy.ndarray] = {}
        with h5py.File(weight_file, "r") as hdf5_file:
            hdf5_file.visititems(self._keep)
        # Ids count from 1: 0 is padding, whose embedding is zero.
        self.embedding = numpy.pad(self.weights["char_embed"], ((1, 0), (0, 0)))
        self._token_vectors: Dict[bytes, numpy.ndarray] = {}

    def _keep(self, name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            self.weights[name] = item[...].astype(numpy.float64)

    def token_vector(self, characters: numpy.ndarray) -> numpy.ndarray:
        """The vector of a word, `(projection_dim,)`, from its character ids, `(50,)`."""
        vector = self.maxima(characters)
        for k in range(self.options["char_cnn"]["n_highway"]):
            vector = self.highway(vector, k)
        if "CNN_proj/W_proj" in self.weights:
            vector = vector @ self.weights["CNN_proj/W_proj"] + self.weights["CNN_proj/b_proj"]
        return vector

    def maxima(self, characters: numpy.ndarray) -> numpy.ndarray:
        """The activated maximum of each filter over the windows of characters, `(num_filters,)`."""
        options = self.options["char_cnn"]
        embedded = self.embedding[characters]
        pooled: List[float] = []
        for i, (width, _count) in enumerate(options["filters"]):
            kernel = self.weights[f"CNN/W_cnn_{i}"][0]  # (width, character_dim, count)
            responses = [
                numpy.einsum("wc,wcn->n", embedded[start : start + width], kernel)
                for start in range(len(characters) - width + 1)
            ]
            pooled.extend(numpy.max(responses, axis=0) + self.weights[f"CNN/b_cnn_{i}"])
        activations = {"relu": lambda values: numpy.maximum(values, 0), "tanh": numpy.tanh}
        return activations[options["activation"]](numpy.array(pooled))

    def highway(self, vector: numpy.ndarray, k: int) -> numpy.ndarray:
        """The output of highway layer k, `(num_filters,)`."""
        weights = {
            name: self.weights[f"CNN_high_{k}/{name}"]
            for name in ("W_carry", "b_carry", "W_transform", "b_transform")
        }
        gate = _sigmoid(vector @ weights["W_carry"] + weights["b_carry"])
        transformed = numpy.maximum(vector @ weights["W_transform"] + weights["b_transform"], 0)
        return gate * transformed + (1 - gate) * vector

    def run_direction(
        self, tokens: numpy.ndarray, direction: int, states: Dict[Tuple[int, int], State]
    ) -> List[numpy.ndarray]:
        """Outputs of each layer, `(num_tokens, projection_dim)`; `states` is read and updated."""
        options = self.options["lstm"]
        layer_input = tokens[::-1] if direction == 1 else tokens
        outputs: List[numpy.ndarray] = []
        for layer in range(options["n_layers"]):
            cell_name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            kernel, bias = self.weights[f"{cell_name}/W_0"], self.weights[f"{cell_name}/B"]
            projection = self.weights.get(f"{cell_name}/W_P_0")
            zeros = (numpy.zeros(options["projection_dim"]), numpy.zeros(options["dim"]))
            state, cell = states.get((layer, direction), zeros)
            layer_output = []
            for token in layer_input:
                i, j, f, o = numpy.split(numpy.concatenate([token, state]) @ kernel + bias, 4)
                cell = _sigmoid(f + 1.0) * cell + _sigmoid(i) * numpy.tanh(j)
                cell = _clip(cell, options.get("cell_clip"))
                state = _sigmoid(o) * numpy.tanh(cell)
                if projection is not None:
                    state = _clip(state @ projection, options.get("proj_clip"))
                skips = options.get("use_skip_connections") and layer > 0
                layer_output.append(state + token if skips else state)
            states[layer, direction] = (state, cell)
            layer_input = numpy.array(layer_output)
            outputs.append(layer_input[::-1] if direction == 1 else layer_input)
        return outputs

    def activations(
        self, sentence: List[str], states: Dict[Tuple[int, int], State]
    ) -> numpy.ndarray:
        """`(num_layers, num_tokens + 2, 2 * projection_dim)` of one sentence with its marks."""
        return self.activations_of_ids(batch_to_ids([sentence])[0].numpy(), states)

    def activations_of_ids(
        self, characters: numpy.ndarray, states: Dict[Tuple[int, int], State]
    ) -> numpy.ndarray:
        """As `activations`, of the character ids of words, `(num_tokens, 50)`."""
        begin, end = batch_to_ids([["<S>", "</S>"]])[0].numpy()
        characters = numpy.array([begin, *characters, end])
        for word in characters:
            if word.tobytes() not in self._token_vectors:
                self._token_vectors[word.tobytes()] = self.token_vector(word)
        tokens = numpy.array([self._token_vectors[word.tobytes()] for word in characters])
        forward = self.run_direction(tokens, 0, states)
        backward = self.run_direction(tokens, 1, states)
        layers = [numpy.concatenate([tokens, tokens], axis=1)]
        layers += [numpy.concatenate(pair, axis=1) for pair in zip(forward, backward)]
        return numpy.array(layers)


def _sigmoid(array: numpy.ndarray) -> numpy.ndarray:
    return 1.0 / (1.0 + numpy.exp(-array))


def _clip(array: numpy.ndarray, limit: object) -> numpy.ndarray:
    return numpy.clip(array, -limit, limit) if limit else array  # type: ignore[operator]
