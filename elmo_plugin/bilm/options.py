"""The sizes of a biLM, as bilm-tf's `options.json` states them, checked once when they are read."""

import copy
import json
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN, NUM_CHARACTER_IDS
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import read_json

ACTIVATIONS = ("relu", "tanh")

OPTIONS_CONTENT = "the options of a biLM in JSON"

# bilm-tf writes 261 while it trains and asks for 262 when the file is used; the weights are the same.
ACCEPTED_NUM_CHARACTERS = (261, 262)


@dataclass(frozen=True)
class CharacterEncoderOptions:
    """
    The sizes of an encoder of characters. The defaults are those of the paper's model.

    # Parameters

    activation : `str`
        `relu` or `tanh`, applied after the max over time of the character convolutions.
    character_embedding_dim : `int`
        Width of a character embedding.
    filters : `Tuple[Tuple[int, int], ...]`
        `(width, count)` of each character convolution.
    num_highway : `int`
        Highway layers after the convolutions.
    """

    activation: str = "relu"
    character_embedding_dim: int = 16
    filters: Tuple[Tuple[int, int], ...] = (
        (1, 32),
        (2, 32),
        (3, 64),
        (4, 128),
        (5, 256),
        (6, 512),
        (7, 1024),
    )
    num_highway: int = 2

    @property
    def num_filters(self) -> int:
        """Width of the concatenated character convolutions."""
        return sum(count for _, count in self.filters)


@dataclass(frozen=True)
class ManyLangsEncoderOptions:
    """
    The sizes and dictionaries of the encoder of ELMoForManyLangs, which reads the embedding of a word beside
    its characters. It is for use, not for training.

    # Parameters

    word_dim : `int`
        Width of a word embedding; 0: it reads characters only.
    words : `Mapping[str, int]`
        The id of each word.
    convolutions : `CharacterEncoderOptions`, optional
        The sizes of its character convolutions; `None`: it reads words only.
    characters : `Mapping[str, int]`
        The id of each character.
    max_characters : `int`, optional
        Number of character ids of a word, its two marks included; `None` does not cut words.
    """

    word_dim: int = 0
    words: Mapping[str, int] = field(default_factory=dict, compare=False)
    convolutions: Optional[CharacterEncoderOptions] = None
    characters: Mapping[str, int] = field(default_factory=dict, compare=False)
    max_characters: Optional[int] = None

    @property
    def num_filters(self) -> int:
        """Width of the concatenated character convolutions."""
        return 0 if self.convolutions is None else self.convolutions.num_filters


@dataclass(frozen=True)
class BiLMOptions:
    """
    Everything that decides the shape and the arithmetic of a biLM.

    The defaults are those of the paper's model (2 layers of 4096 cells projected to 512). Build it
    with `from_file` and `from_dict`, which check every value of a file or a dictionary in the form of bilm-tf
    or of ELMoForManyLangs.

    # Parameters

    encoder : `CharacterEncoderOptions` or `ManyLangsEncoderOptions`
        What makes the token representation of a word.
    cell_size : `int`
        Width of an LSTM memory cell.
    projection_dim : `int`
        Width of a token vector and of an LSTM state in one direction. Where it equals `cell_size`
        bilm-tf builds cells without projection (and without `proj_clip`), and so do we; where it
        equals the number of filters the character encoder ends without projection.
    num_layers : `int`
        LSTM layers in each direction.
    cell_clip, proj_clip : `float`, optional
        Largest magnitude of a memory cell and of a projected state; `None` does not clip.
        An absent, null or zero entry of the file reads as `None`.
    use_skip_connections : `bool`
        Whether the input of each LSTM layer but the first is added to its output.
    extra : `Mapping[str, Any]`
        The file's other entries (training settings, say), kept so that saving loses nothing.
    """

    encoder: Union[CharacterEncoderOptions, ManyLangsEncoderOptions] = CharacterEncoderOptions()
    cell_size: int = 4096
    projection_dim: int = 512
    num_layers: int = 2
    cell_clip: Optional[float] = 3.0
    proj_clip: Optional[float] = 3.0
    use_skip_connections: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def is_many_langs(self) -> bool:
        """Whether this is a model of ELMoForManyLangs."""
        return isinstance(self.encoder, ManyLangsEncoderOptions)

    @property
    def has_state_projection(self) -> bool:
        """Whether the LSTM cells project their output."""
        return self.cell_size != self.projection_dim

    @classmethod
    def from_file(cls, path: Union[str, PathLike]) -> "BiLMOptions":
        """
        Read and check a local options file.

        # Raises

        `ConfigurationError` naming the file and the key if the file is missing, is not JSON, or holds
        a missing, mistyped or impossible value.
        """
        return cls.from_dict(read_json(path, OPTIONS_CONTENT), str(path))

    @classmethod
    def from_dict(cls, values: Any, name: str = "options") -> "BiLMOptions":
        """
        Check options in bilm-tf's form, or in that of ELMoForManyLangs together with its dictionaries. `name`
        says in errors where they came from.

        # Raises

        `ConfigurationError` naming the key, what was found and what was expected.
        """
        reader = _Reader(name, values)
        if reader.has("token_embedder"):
            return _many_langs_options(reader, values)
        if reader.get("bidirectional", True) is not True:
            raise reader.error("bidirectional", "true (a forward language model alone is no biLM)")
        for key, content in (
            ("char_cnn", "the character encoder (biLMs over whole words are not supported)"),
            ("lstm", "the LSTMs"),
        ):
            if not isinstance(reader.get(key), dict):
                raise reader.error(key, f"an object with the sizes of {content}")
        num_characters = reader.get("char_cnn.n_characters", NUM_CHARACTER_IDS - 1)
        if (
            isinstance(num_characters, bool)
            or not isinstance(num_characters, int)
            or num_characters not in ACCEPTED_NUM_CHARACTERS
        ):
            raise reader.error("char_cnn.n_characters", "261 (training) or 262 (use)")
        max_characters = reader.integer("char_cnn.max_characters_per_token")
        if max_characters != MAX_CHARACTERS_PER_TOKEN:
            raise reader.error(
                "char_cnn.max_characters_per_token",
                f"{MAX_CHARACTERS_PER_TOKEN}, the number of character ids that indexers give a word",
            )
        return cls(
            CharacterEncoderOptions(
                activation=reader.choice("char_cnn.activation", ACTIVATIONS),
                character_embedding_dim=reader.integer("char_cnn.embedding.dim"),
                filters=reader.filters("char_cnn.filters"),
                num_highway=reader.integer("char_cnn.n_highway", minimum=0, default=0),
            ),
            cell_size=reader.integer("lstm.dim"),
            projection_dim=reader.integer("lstm.projection_dim"),
            num_layers=reader.integer("lstm.n_layers"),
            cell_clip=reader.clip("lstm.cell_clip"),
            proj_clip=reader.clip("lstm.proj_clip"),
            use_skip_connections=reader.flag("lstm.use_skip_connections", default=False),
            extra=copy.deepcopy(values),
        )

    def to_dict(self) -> Dict[str, Any]:
        """
        Return these options in the form that they were read in, with every extra entry; those of
        ELMoForManyLangs with the dictionaries.
        """
        if isinstance(self.encoder, ManyLangsEncoderOptions):
            dictionaries = {"words": self.encoder.words, "characters": self.encoder.characters}
            return {**self.extra, **{name: dict(ids) for name, ids in dictionaries.items()}}
        values: Dict[str, Any] = copy.deepcopy(dict(self.extra))
        char_cnn = values.setdefault("char_cnn", {})
        char_cnn.update(
            activation=self.encoder.activation,
            filters=[list(pair) for pair in self.encoder.filters],
            max_characters_per_token=MAX_CHARACTERS_PER_TOKEN,
            n_highway=self.encoder.num_highway,
        )
        char_cnn.setdefault("n_characters", NUM_CHARACTER_IDS)
        char_cnn.setdefault("embedding", {})["dim"] = self.encoder.character_embedding_dim
        values.setdefault("lstm", {}).update(
            dim=self.cell_size,
            projection_dim=self.projection_dim,
            n_layers=self.num_layers,
            # AllenNLP reads both keys without a default, and takes 0 for no clipping.
            cell_clip=self.cell_clip or 0,
            proj_clip=self.proj_clip or 0,
            use_skip_connections=self.use_skip_connections,
        )
        return values


def _many_langs_options(reader: "_Reader", values: Mapping[str, Any]) -> BiLMOptions:
    reader.choice("encoder.name", ("elmo",))
    name = reader.choice("token_embedder.name", ("cnn", "lstm"))
    word_dim = reader.integer("token_embedder.word_dim", minimum=0)
    character_dim = reader.integer("token_embedder.char_dim", minimum=0)
    if word_dim == 0 and character_dim == 0:
        raise reader.error("token_embedder.word_dim", "a width of words or of characters over 0")
    if character_dim > 0 and name != "cnn":
        # ELMoForManyLangs 0.0.4 cannot run one: it fails where it joins words and characters.
        raise reader.error("token_embedder.name", "cnn (LSTMs over characters are not supported)")
    for key, dim in (("words", word_dim), ("characters", character_dim)):
        if dim > 0 and not reader.get(key):
            raise reader.error(key, "the number of each entry, from the dictionary of the model")
    max_characters = None
    if name == "cnn":
        max_characters = reader.integer("token_embedder.max_characters_per_token", minimum=3)
    convolutions: Optional[CharacterEncoderOptions] = None
    if character_dim > 0:
        convolutions = CharacterEncoderOptions(
            reader.choice("token_embedder.activation", ACTIVATIONS),
            character_dim,
            reader.filters("token_embedder.filters"),
            reader.integer("token_embedder.n_highway", minimum=0),
        )
        if max(width for width, _ in convolutions.filters) > (max_characters or 0):
            raise reader.error("token_embedder.filters", "no width over max_characters_per_token")
    cell_size = reader.integer("encoder.dim")
    if cell_size == reader.integer("encoder.projection_dim"):
        raise reader.error("encoder.dim", "a width other than encoder.projection_dim")
    extra = dict(values)
    encoder = ManyLangsEncoderOptions(
        word_dim, extra.pop("words", {}), convolutions, extra.pop("characters", {}), max_characters
    )
    return BiLMOptions(
        encoder,
        cell_size=cell_size,
        projection_dim=reader.integer("encoder.projection_dim"),
        num_layers=reader.integer("encoder.n_layers"),
        cell_clip=reader.clip("encoder.cell_clip"),
        proj_clip=reader.clip("encoder.proj_clip"),
        use_skip_connections=True,
        extra=extra,
    )


class _Reader:
    """Takes checked values out of nested options, by dotted key."""

    def __init__(self, name: str, values: Any) -> None:
        self._name = name
        if not isinstance(values, dict):
            raise ConfigurationError(
                f"{name}: found {_describe(values)}, expected a JSON object with the keys "
                "'char_cnn' and 'lstm'. Give an options.json in bilm-tf's form."
            )
        self._values = values

    def error(self, key: str, expected: str) -> ConfigurationError:
        found = f"is {_describe(self.get(key))}" if self.has(key) else "is missing"
        return ConfigurationError(
            f"{self._name}: {key} {found}, expected {expected}. Fix the options file."
        )

    def has(self, key: str) -> bool:
        missing = object()
        return self.get(key, missing) is not missing

    def get(self, key: str, default: Any = None) -> Any:
        values: Any = self._values
        for part in key.split("."):
            if not isinstance(values, dict) or part not in values:
                return default
            values = values[part]
        return values

    def integer(self, key: str, minimum: int = 1, default: Optional[int] = None) -> int:
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self.error(key, f"an integer of at least {minimum}")
        return value

    def clip(self, key: str) -> Optional[float]:
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise self.error(key, "a number of at least 0 (0 or null: no clipping)")
        return float(value) or None

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def choice(self, key: str, choices: Tuple[str, ...]) -> str:
        value = self.get(key)
        if value not in choices:
            raise self.error(key, f"one of {', '.join(choices)}")
        return value

    def filters(self, key: str) -> Tuple[Tuple[int, int], ...]:
        value = self.get(key)
        expected = (
            "a non-empty list of [width, count] pairs of positive integers, "
            f"no width over max_characters_per_token ({MAX_CHARACTERS_PER_TOKEN})"
        )
        if not isinstance(value, list) or not value:
            raise self.error(key, expected)
        pairs: List[Tuple[int, int]] = []
        for pair in value:
            if (
                not isinstance(pair, (list, tuple))
                or len(pair) != 2
                or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in pair)
                or pair[0] > MAX_CHARACTERS_PER_TOKEN
            ):
                raise self.error(key, f"{expected} (the pair {_describe(pair)} is none)")
            pairs.append((pair[0], pair[1]))
        return tuple(pairs)


def _describe(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
