"""The sizes of a biLM, as bilm-tf's `options.json` states them, checked once when they are read."""

import copy
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple, Union

from elmo_plugin.bilm.characters import MAX_CHARACTERS_PER_TOKEN, NUM_CHARACTER_IDS
from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.json_input import shown_json
from elmo_plugin.files.text import FileName, read_json

ACTIVATIONS = ("relu", "tanh")

OPTIONS_CONTENT = "the options of a biLM in JSON"
# Those of a saved model of ELMoForManyLangs hold its dictionaries: about 70 bytes for a Cyrillic word.
MAX_OPTIONS_BYTES = 100_000_000
# A module is made for each, before the weights show how many there are.
MAX_LAYERS = 1000
# Widths and counts; with more, sums of products in int8 could overflow, see `for_products` in products.h.
MAX_SIZE = 65_536

_MISSING = object()
_LARGEST_FLOAT32 = 3.4e38


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
        (1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)
    )  # fmt: skip
    num_highway: int = 2

    @property
    def num_filters(self) -> int:
        """Width of the concatenated character convolutions."""
        return sum(count for _, count in self.filters)


@dataclass(frozen=True)
class ManyLangsEncoderOptions:
    """
    The sizes and dictionaries of the encoder of ELMoForManyLangs, which reads the embedding of a word and its
    characters. For inference only.

    # Parameters

    word_dim : `int`
        Width of a word embedding; 0 if there are none.
    words : `Mapping[str, int]`
        The id of each word.
    convolutions : `CharacterEncoderOptions`, optional
        The sizes of the character convolutions; `None` if there are none.
    characters : `Mapping[str, int]`
        The id of each character.
    max_characters : `int`, optional
        Number of character ids of a word, including its two marks; `None` does not cut words.
    """

    word_dim: int = 0
    words: Mapping[str, int] = field(default_factory=dict, hash=False)
    convolutions: Optional[CharacterEncoderOptions] = None
    characters: Mapping[str, int] = field(default_factory=dict, hash=False)
    max_characters: Optional[int] = None

    @property
    def num_filters(self) -> int:
        """Width of the concatenated character convolutions."""
        return 0 if self.convolutions is None else self.convolutions.num_filters


@dataclass(frozen=True)
class BiLMOptions:
    """
    Everything that decides the shape and the arithmetic of a biLM.

    The defaults are those of the paper's model (2 layers of 4096 cells projected to 512). `from_file` and
    `from_dict` check every value, in the form of bilm-tf or of ELMoForManyLangs.

    # Parameters

    encoder : `CharacterEncoderOptions` or `ManyLangsEncoderOptions`
        Sizes of the encoder of words, whose output is the token representation.
    cell_size : `int`
        Width of an LSTM memory cell.
    projection_dim : `int`
        Width of a token vector and of an LSTM state in one direction. If it equals `cell_size`, cells have no
        projection and no `proj_clip`; if it equals the number of filters, the character encoder has no
        projection. Both are as in bilm-tf.
    num_lstm_layers : `int`
        LSTM layers in each direction.
    cell_clip, proj_clip : `float`, optional
        Largest magnitude of a memory cell and of a projected state; `None` does not clip.
        An absent, null or zero entry of the file reads as `None`.
    use_skip_connections : `bool`
        Whether the input of each LSTM layer but the first is added to its output.
    extra : `Mapping[str, Any]`
        The other entries of the file, such as settings of the training, which are saved again.
    """

    encoder: Union[CharacterEncoderOptions, ManyLangsEncoderOptions] = CharacterEncoderOptions()
    cell_size: int = 4096
    projection_dim: int = 512
    num_lstm_layers: int = 2
    cell_clip: Optional[float] = 3.0
    proj_clip: Optional[float] = 3.0
    use_skip_connections: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_many_langs(self) -> bool:
        """Whether this is a model of ELMoForManyLangs."""
        return isinstance(self.encoder, ManyLangsEncoderOptions)

    @classmethod
    def from_file(cls, path: FileName) -> "BiLMOptions":
        """
        Read and check a local options file.

        # Raises

        `ConfigurationError` naming the file and the key if the file is missing, is not JSON, or holds
        a missing, mistyped or impossible value.
        """
        return cls.from_dict(read_json(path, OPTIONS_CONTENT, MAX_OPTIONS_BYTES), str(path))

    @classmethod
    def from_dict(cls, values: Any, name: str = "options") -> "BiLMOptions":
        """
        Check options in bilm-tf's form, or in that of ELMoForManyLangs together with its dictionaries.
        `name` is that of their source, for errors.

        # Raises

        `ConfigurationError` naming the key, what was found and what was expected.
        """
        reader = _Reader(name, values)
        if reader.get("token_embedder") is not None:
            return _many_langs_options(reader, values)
        reader.dictionary("char_cnn", "an object (biLMs over whole words are not supported)")
        reader.dictionary("lstm", "an object with the sizes of the LSTMs")
        # bilm-tf writes 261 while it trains and asks for 262 afterwards; the weights are the same.
        reader.choice("char_cnn.n_characters", (261, 262), default=262)
        max_characters = reader.choice(
            "char_cnn.max_characters_per_token", (MAX_CHARACTERS_PER_TOKEN,)
        )
        return cls(
            CharacterEncoderOptions(
                activation=reader.choice("char_cnn.activation", ACTIVATIONS),
                character_embedding_dim=reader.integer("char_cnn.embedding.dim"),
                filters=reader.filters("char_cnn.filters", max_characters),
                num_highway=reader.integer("char_cnn.n_highway", 0, MAX_LAYERS, default=0),
            ),
            cell_size=reader.integer("lstm.dim"),
            projection_dim=reader.integer("lstm.projection_dim"),
            num_lstm_layers=reader.integer("lstm.n_layers", 1, MAX_LAYERS),
            cell_clip=reader.clip("lstm.cell_clip"),
            proj_clip=reader.clip("lstm.proj_clip"),
            use_skip_connections=reader.choice(
                "lstm.use_skip_connections", (True, False), default=False
            ),
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
        char_cnn["n_characters"] = NUM_CHARACTER_IDS  # bilm-tf writes one less while it trains
        char_cnn.setdefault("embedding", {})["dim"] = self.encoder.character_embedding_dim
        values.setdefault("lstm", {}).update(
            dim=self.cell_size,
            projection_dim=self.projection_dim,
            n_layers=self.num_lstm_layers,
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
    if character_dim > 0 and name != "cnn":
        raise reader.error("token_embedder.name", '"cnn" (LSTMs over characters are not supported)')
    for key, dim in (("words", word_dim), ("characters", character_dim)):
        entries = reader.get(key)
        if dim > 0 and not (
            entries
            and isinstance(entries, Mapping)
            and all(_is_integer(number, 0, len(entries) - 1) for number in entries.values())
        ):
            raise reader.error(
                key,
                "the number of each entry, from the dictionary of the model: less than the number of entries",
            )
    max_characters: Optional[int] = None
    if name == "cnn":
        # Of a sentence mark, <bos>, with the marks of a word. ELMoForManyLangs reads nothing with fewer.
        max_characters = reader.integer("token_embedder.max_characters_per_token", minimum=7)
    convolutions: Optional[CharacterEncoderOptions] = None
    if character_dim > 0:
        convolutions = CharacterEncoderOptions(
            reader.choice("token_embedder.activation", ACTIVATIONS),
            character_dim,
            reader.filters("token_embedder.filters", max_characters or 0),
            reader.integer("token_embedder.n_highway", 0, MAX_LAYERS),
        )
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
        num_lstm_layers=reader.integer("encoder.n_layers", 1, MAX_LAYERS),
        cell_clip=reader.clip("encoder.cell_clip"),
        proj_clip=reader.clip("encoder.proj_clip"),
        use_skip_connections=True,
        extra=extra,
    )


class _Reader:
    """Reads values of nested options by dotted key, and checks them."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        self._name = name
        self._values = values

    def get(self, key: str, default: Any = None) -> Any:
        values: Any = self._values
        for part in key.split("."):
            if not isinstance(values, dict) or part not in values:
                return default
            values = values[part]
        return values

    def value(
        self, key: str, expected: str, is_valid: Callable[[Any], bool], default: Any = None
    ) -> Any:
        value = self.get(key, default)
        if not is_valid(value):
            raise self.error(key, expected)
        return value

    def error(self, key: str, expected: str) -> ConfigurationError:
        value = self.get(key, _MISSING)
        found = "is missing" if value is _MISSING else f"is {shown_json(value)}"
        return ConfigurationError(
            f"{self._name}: {key} {found}, expected {expected}. Fix the options file."
        )

    def dictionary(self, key: str, content: str) -> Any:
        return self.value(key, content, lambda value: isinstance(value, dict))

    def integer(
        self, key: str, minimum: int = 1, maximum: int = MAX_SIZE, default: Optional[int] = None
    ) -> int:
        expected = f"an integer from {minimum:,} to {maximum:,}"
        return self.value(
            key, expected, lambda value: _is_integer(value, minimum, maximum), default
        )

    def clip(self, key: str) -> Optional[float]:
        def is_clip(value: Any) -> bool:
            is_number = type(value) in (int, float)
            return value is None or (is_number and 0 <= value <= _LARGEST_FLOAT32)

        expected = "a finite number of float32, at least 0 (0 or null: no clipping)"
        return float(self.value(key, expected, is_clip) or 0) or None

    def choice(self, key: str, choices: Sequence[Any], default: Any = None) -> Any:
        expected = " or ".join(map(shown_json, choices))
        return self.value(
            key,
            expected,
            # 1 and true are equal, and 50 and 50.0.
            lambda value: any(type(value) is type(one) and value == one for one in choices),
            default,
        )

    def filters(self, key: str, max_width: int) -> Tuple[Tuple[int, int], ...]:
        def is_filter(pair: Any) -> bool:
            return (
                isinstance(pair, list)
                and len(pair) == 2
                and _is_integer(pair[0], 1, max_width)
                and _is_integer(pair[1], 1, MAX_SIZE)
            )

        expected = (
            "a non-empty list of [width, count] pairs of positive integers, no width over "
            f"max_characters_per_token ({max_width}), and at most {MAX_SIZE:,} filters in all"
        )
        pairs = self.value(
            key,
            expected,
            lambda value: (
                isinstance(value, list)
                and value != []
                and all(map(is_filter, value))
                and sum(count for _, count in value) <= MAX_SIZE
            ),
        )
        return tuple((width, count) for width, count in pairs)


def _is_integer(value: Any, minimum: int, maximum: int) -> bool:
    return type(value) is int and minimum <= value <= maximum  # bool is a subclass of int
