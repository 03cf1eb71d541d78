"""Models of ELMoForManyLangs (Che et al., 2018): their files, and their encoder of words and characters."""

import json
import logging
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from elmo_plugin.bilm.allennlp_names import highway_parameters
from elmo_plugin.bilm.character_encoder import CharacterEncoder
from elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN, decoded_words
from elmo_plugin.bilm.model_files import (
    CHARACTERS_NAME,
    ENCODER_NAME,
    TOKEN_EMBEDDER_NAME,
    WORDS_NAME,
)
from elmo_plugin.bilm.options import OPTIONS_CONTENT, BiLMOptions, ManyLangsEncoderOptions
from elmo_plugin.bilm.weights import is_finite
from elmo_plugin.errors import ConfigurationError, warn_once
from elmo_plugin.files.tensors import read_state_dict
from elmo_plugin.files.text import decoded_lines, open_text, read_json

logger = logging.getLogger(__name__)

# The sizes of the published models, whose config.json names a file that is not among theirs.
_PUBLISHED_CONFIG = "cnn_50_100_512_4096_sample.json"
_PUBLISHED_SIZES = """{
  "encoder": {
    "name": "elmo", "dim": 4096, "projection_dim": 512, "n_layers": 2, "cell_clip": 3, "proj_clip": 3
  },
  "token_embedder": {
    "name": "cnn", "word_dim": 100, "char_dim": 50, "max_characters_per_token": 50,
    "filters": [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]],
    "activation": "relu", "n_highway": 2
  }
}"""

_UNKNOWN, _PADDING = "<oov>", "<pad>"
_SENTENCE_MARKS = {"<S>": "<bos>", "</S>": "<eos>"}
# ELMoForManyLangs exchanges the two marks of a word, in training too.
_WORD_BEGIN, _WORD_END = "<eow>", "<bow>"
_OF_CHARACTERS = (_UNKNOWN, _PADDING, _WORD_BEGIN, _WORD_END, *_SENTENCE_MARKS.values())

_RENAMED = (
    ("word_emb_layer.embedding", "word_embedding"),
    ("char_emb_layer.embedding", "characters.character_embedding"),
    ("convolutions", "characters.convolutions"),
)


class ManyLangsEncoder(torch.nn.Module):
    """
    The token representation of ELMoForManyLangs: a projection of the embedding of a word and of highway
    layers over convolutions of its characters.

    It replaces the `CharacterEncoder`, reads the same character ids, and decodes the words from them. The ids
    hold 48 bytes of a word, where ELMoForManyLangs reads 48 characters: if a word has as many bytes or more,
    and fewer characters than the model reads, a warning is logged once.
    """

    def __init__(self, options: ManyLangsEncoderOptions, output_dim: int) -> None:
        super().__init__()
        self._options = options
        self.word_embedding: Optional[torch.nn.Embedding] = None
        if options.words:
            self.word_embedding = torch.nn.Embedding(len(options.words), options.word_dim)
        self.characters: Optional[CharacterEncoder] = None
        if options.convolutions is not None:
            # Its output has the width of the filters: without a projection.
            self.characters = CharacterEncoder(
                options.convolutions, options.num_filters, len(options.characters)
            )
        self.projection = torch.nn.Linear(options.word_dim + options.num_filters, output_dim)

    def forward(self, words: Tensor) -> Tensor:
        """Return the vectors, `(num_words, output_dim)`, of character ids, `(num_words, 50)`."""
        return self.encode(self.characters, words)

    def encode(
        self, encode_characters: Optional[Callable[[Tensor], Tensor]], words: Tensor
    ) -> Tensor:
        """Do the same as `forward`, with another encoder of characters than `characters`."""
        spelled = self._decoded(words)
        vectors: List[Tensor] = []
        if self.word_embedding is not None:
            ids = self._options.words
            word_ids = [ids.get(word, ids[_UNKNOWN]) for word in spelled]
            vectors.append(self.word_embedding(torch.tensor(word_ids, device=words.device)))
        if encode_characters is not None:
            character_ids = [self._character_ids(word) for word in spelled]
            vectors.append(encode_characters(torch.tensor(character_ids, device=words.device)))
        return self.projection(torch.cat(vectors, dim=1))

    def _decoded(self, words: Tensor) -> List[str]:
        limit = self._options.max_characters
        longest = None if limit is None else limit - 2
        spelled = [_SENTENCE_MARKS.get(word, word) for word in decoded_words(words)]
        num_bytes = ((words > 0) & (words <= 256)).sum(dim=1)
        for word, number in zip(spelled, num_bytes.tolist()):
            is_full = number == MAX_CHARACTERS_PER_TOKEN - 2
            if is_full and (longest is None or len(word) < longest):
                warn_once(
                    logger,
                    "Words are read up to 48 bytes of UTF-8, 16 characters of Chinese, 24 of Arabic or "
                    "Cyrillic: longer ones are cut.",
                )
        return [word[:longest] for word in spelled]

    def _character_ids(self, word: str) -> List[int]:
        ids, limit = self._options.characters, self._options.max_characters
        assert limit is not None
        characters = [word] if word in _SENTENCE_MARKS.values() else word
        inside = [ids.get(character, ids[_UNKNOWN]) for character in characters]
        row = [ids[_WORD_BEGIN], *inside, ids[_WORD_END]]
        return row + [ids[_PADDING]] * (limit - len(row))


def read_many_langs(config_path: Path, folder: Path) -> Tuple[BiLMOptions, Dict[str, Tensor]]:
    """
    Read a model of ELMoForManyLangs.

    # Parameters

    config_path : `Path`
        The file `config.json`: the sizes, or the path of a file with the sizes, which is searched in the
        folder by its path and by its name. Those of the published models are known.
    folder : `Path`
        The folder of dictionaries and weights.

    # Returns

    The options, and a state dict for `BiLM.from_state_dict`.

    # Raises

    `ConfigurationError` naming the file, and the key, line or tensor, if a file is missing or damaged.
    """
    config, name = _sizes(config_path, folder)
    dictionaries: Dict[str, Dict[str, int]] = {}
    if config["token_embedder"].get("word_dim"):
        dictionaries["words"] = _read_dictionary(folder / WORDS_NAME, (_UNKNOWN, _PADDING))
    if config["token_embedder"].get("char_dim"):
        dictionaries["characters"] = _read_dictionary(folder / CHARACTERS_NAME, _OF_CHARACTERS)
    options = BiLMOptions.from_dict({**config, **dictionaries}, name)
    state_dict: Dict[str, Tensor] = {}
    for path in (folder / TOKEN_EMBEDDER_NAME, folder / ENCODER_NAME):
        for tensor_name, tensor in read_state_dict(path, "get another copy of the model.").items():
            is_float = isinstance(tensor, Tensor) and tensor.is_floating_point()
            if not is_float or not is_finite(tensor.float().numpy()):
                raise ConfigurationError(
                    f"{path}: {tensor_name} holds NaN or infinite values or is no tensor, expected finite "
                    "weights. Get another copy of the model."
                )
            state_dict.update(_as_bilm(tensor_name, tensor.float()))
    return options, state_dict


def _sizes(config_path: Path, folder: Path) -> Tuple[Dict[str, Any], str]:
    """Return the sizes of a model, and the path of their file."""
    config = read_json(config_path, OPTIONS_CONTENT)
    path = config_path
    if isinstance(config, dict) and "config_path" in config:
        name = PurePosixPath(str(config["config_path"]))
        is_inside = not name.is_absolute() and ".." not in name.parts
        paths = [folder / name] * is_inside + [folder / name.name]
        # Unlike Path.is_file, false for names of any length.
        candidates = [path for path in paths if os.path.isfile(path)]
        if not candidates and name.name == _PUBLISHED_CONFIG:
            logger.info("%s is not in %s: its published sizes are used.", name, folder)
            return json.loads(_PUBLISHED_SIZES), str(path)
        path = candidates[0] if candidates else folder / name.name
        config = read_json(path, OPTIONS_CONTENT)
    if not isinstance(config, dict) or not isinstance(config.get("token_embedder"), dict):
        raise ConfigurationError(
            f"{path}: found no token_embedder, expected the sizes of a model of ELMoForManyLangs, or in "
            "config.json a config_path that names their file. Put that file into the folder."
        )
    return config, str(path)


def _read_dictionary(path: Path, required: Sequence[str]) -> Dict[str, int]:
    ids: Dict[str, int] = {}
    with open_text(path) as file:
        for line_number, line in enumerate(decoded_lines(file, path, "an entry"), start=1):
            # The only entry of white space is an ideographic space.
            entry, _, number = line.strip().rpartition("\t")
            # Python reads no number of thousands of digits.
            if "\t" in entry or not re.fullmatch(r"\d{1,9}", number):
                raise ConfigurationError(
                    f"{path}, line {line_number}: found {line!r}, expected an entry, a tab and the number "
                    "of the entry. Get another copy of the model."
                )
            ids[entry or "\u3000"] = int(number)
    missing = [entry for entry in required if entry not in ids]
    beyond = [entry for entry, number in ids.items() if number >= len(ids)]
    if missing or beyond:
        found = (
            f"no entry {missing[0]}" if missing else f"the number {ids[beyond[0]]} of {beyond[0]!r}"
        )
        raise ConfigurationError(
            f"{path}: found {found} in {len(ids)} entries, expected numbers from 0 to {len(ids) - 1} "
            f"and the entries {', '.join(required)}. Get another copy of the model."
        )
    return ids


def _as_bilm(name: str, tensor: Tensor) -> Dict[str, Tensor]:
    """Return a tensor by the name in `BiLM`, which reads LSTMs by AllenNLP's names: they have these."""
    if "_layer_" in name:
        return {f"_elmo_lstm.{name}": tensor}
    if name.startswith("highways."):
        number, kind = name.split(".")[-2:]
        return highway_parameters(f"character_encoder.characters.highways.{number}", kind, tensor)
    for theirs, ours in _RENAMED:
        name = name.replace(theirs, ours)
    return {f"character_encoder.{name}": tensor}
