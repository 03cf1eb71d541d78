"""The core's errors, with AllenNLP and without."""

import pickle
import subprocess
import sys

import pytest
from allennlp.common.checks import ConfigurationError as AllenNLPConfigurationError

from elmo_plugin.bilm import BiLM
from elmo_plugin.errors import ConfigurationError

LATER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("errors", sys.argv[1])
errors = importlib.util.module_from_spec(spec)
spec.loader.exec_module(errors)
assert "allennlp" not in sys.modules
before = errors.ConfigurationError("wrong key")
from allennlp.common.checks import ConfigurationError
errors.join_allennlp()
try:
    raise errors.ConfigurationError("wrong key")
except ConfigurationError as error:
    assert str(error) == str(before) == "wrong key"
    assert isinstance(before, ConfigurationError) and isinstance(error, ValueError)
"""


def test_code_that_catches_allennlps_error_catches_ours() -> None:
    with pytest.raises(AllenNLPConfigurationError, match="no/such/file"):
        BiLM.from_files("no/such/file", "weights.hdf5")


def test_also_where_allennlp_is_loaded_later() -> None:
    import elmo_plugin.errors

    command = [sys.executable, "-W", "ignore", "-c", LATER, str(elmo_plugin.errors.__file__)]
    subprocess.run(command, check=True, timeout=300)


def test_it_is_a_value_error_with_its_message() -> None:
    error = pickle.loads(pickle.dumps(ConfigurationError("wrong key")))
    assert isinstance(error, ValueError)
    assert str(error) == "wrong key"
    assert error.args == ("wrong key",)
