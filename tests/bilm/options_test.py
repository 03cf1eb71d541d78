import copy
import json
from pathlib import Path
from typing import Any, Dict

import pytest

from elmo_plugin.bilm import BiLMOptions
from elmo_plugin.bilm.options import CharacterEncoderOptions
from elmo_plugin.errors import ConfigurationError

VALUES: Dict[str, Any] = {
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 8]],
        "max_characters_per_token": 50,
        "n_characters": 262,
        "n_highway": 2,
    },
    "lstm": {
        "dim": 64,
        "projection_dim": 16,
        "n_layers": 2,
        "cell_clip": 3,
        "proj_clip": 3,
        "use_skip_connections": True,
    },
}
MISSING = object()


def changed(key: str, value: Any) -> Dict[str, Any]:
    """Return options with another value, or without one, at a dotted key."""
    values = copy.deepcopy(VALUES)
    *parents, last = key.split(".")
    target = values
    for parent in parents:
        target = target[parent]
    if value is MISSING:
        del target[last]
    else:
        target[last] = value
    return values


def test_options_of_the_original_model_are_the_defaults(tmp_path: Path) -> None:
    values = changed("lstm.dim", 4096)
    values["lstm"]["projection_dim"] = 512
    values["char_cnn"]["embedding"]["dim"] = 16
    values["char_cnn"]["filters"] = [
        [1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]
    ]  # fmt: skip
    path = tmp_path / "options.json"
    path.write_text(json.dumps(values))
    assert BiLMOptions.from_file(path) == BiLMOptions()


def test_writing_and_reading_options_is_the_identity_and_keeps_extra_keys() -> None:
    values = changed("dropout", 0.1)
    values["lstm"]["reverse"] = False
    values["char_cnn"]["embedding"]["note"] = "kept"
    options = BiLMOptions.from_dict(values)
    assert options.to_dict() == values
    assert BiLMOptions.from_dict(options.to_dict()) == options
    encoder = CharacterEncoderOptions("tanh", 5, ((3, 7),), num_highway=1)
    other = BiLMOptions(encoder, 65, 17, 3, 2.0, None, False, extra=options.extra)
    assert BiLMOptions.from_dict(other.to_dict()) == other


@pytest.mark.parametrize("clip", [0, 0.0, None, MISSING])
@pytest.mark.parametrize("key", ["cell_clip", "proj_clip"])
def test_absent_null_and_zero_clips_do_not_clip(key: str, clip: Any) -> None:
    assert getattr(BiLMOptions.from_dict(changed(f"lstm.{key}", clip)), key) is None


def test_absent_highways_and_skip_connections_read_as_in_bilm_tf() -> None:
    values = changed("char_cnn.n_highway", MISSING)
    del values["lstm"]["use_skip_connections"]
    options = BiLMOptions.from_dict(values)
    assert options.encoder.num_highway == 0
    assert not options.use_skip_connections


def test_bilm_tfs_number_of_characters_in_training_is_accepted() -> None:
    values = changed("char_cnn.n_characters", 261)
    options = BiLMOptions.from_dict(values)
    assert options == BiLMOptions.from_dict(VALUES)
    assert options.to_dict()["char_cnn"]["n_characters"] == 262  # which it asks for afterwards


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("char_cnn", 3, "is 3, expected an object (biLMs over whole words are not supported)"),
        ("char_cnn", MISSING, "is missing, expected an object"),
        ("lstm", [1], "is [1], expected an object with the sizes of the LSTMs"),
        ("char_cnn.max_characters_per_token", 30, "is 30, expected 50"),
        ("char_cnn.activation", "gelu", 'is "gelu", expected "relu" or "tanh"'),
        ("char_cnn.embedding.dim", -4, "is -4, expected an integer from 1 to 65,536"),
        ("char_cnn.filters", MISSING, "is missing, expected a non-empty list of"),
        ("char_cnn.filters", [], "is [], expected a non-empty list of"),
        ("char_cnn.filters", [[1, 4], [2]], "is [[1, 4], [2]], expected a non-empty list of"),
        ("char_cnn.filters", [[51, 4]], "no width over max_characters_per_token (50)"),
        ("char_cnn.filters", [[1, 32_769], [2, 32_768]], "and at most 65,536 filters in all"),
        ("char_cnn.filters", [[1, True]], "is [[1, true]], expected a non-empty list of"),
        ("char_cnn.n_characters", 300, "is 300, expected 261 or 262"),
        ("char_cnn.n_highway", -1, "is -1, expected an integer from 0 to 1,000"),
        ("char_cnn.n_highway", 1001, "is 1001, expected an integer from 0 to 1,000"),
        ("lstm.dim", "64", 'is "64", expected an integer from 1 to 65,536'),
        ("lstm.dim", MISSING, "is missing, expected an integer"),
        ("lstm.dim", 10**20, "expected an integer from 1 to 65,536"),
        ("lstm.n_layers", 0, "is 0, expected an integer from 1 to 1,000"),
        ("lstm.n_layers", 10**9, "is 1000000000, expected an integer from 1 to 1,000"),
        ("lstm.projection_dim", True, "is true, expected an integer"),
        ("lstm.cell_clip", -3, "is -3, expected a finite number of float32, at least 0"),
        ("lstm.proj_clip", "3", 'is "3", expected a finite number of float32, at least 0'),
        ("lstm.proj_clip", 1e300, "expected a finite number of float32"),
        ("lstm.proj_clip", 10**400, "expected a finite number of float32, at least 0"),
        ("lstm.use_skip_connections", "yes", 'is "yes", expected true or false'),
        ("lstm.use_skip_connections", 1, "is 1, expected true or false"),
    ],
)
def test_a_wrong_value_is_named_with_the_file(key: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        BiLMOptions.from_dict(changed(key, value), "somewhere/options.json")
    assert str(error.value).startswith(f"somewhere/options.json: {key} is ")
    assert message in str(error.value)


def test_a_file_of_something_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "options.json"
    with pytest.raises(ConfigurationError, match=r"json: cannot be read .*expected the options"):
        BiLMOptions.from_file(path)
    path.write_text("[1]")
    with pytest.raises(ConfigurationError, match=r"options\.json: char_cnn is missing"):
        BiLMOptions.from_file(path)
