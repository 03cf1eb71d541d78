"""The error of wrong configs and data."""


class _Unattached(Exception):
    # Stands where AllenNLP's class stands once AllenNLP is loaded: Python exchanges only bases of one layout.
    pass


class ConfigurationError(_Unattached, ValueError):
    """
    Says which file or key is wrong, what was found, what was expected, and what to do.

    Where AllenNLP is loaded, it is one of AllenNLP's errors of this name too, so that code which catches
    those catches it.
    """

    def __init__(self, message: str) -> None:
        # Not `super()`, which becomes AllenNLP's.
        ValueError.__init__(self, message)
        self.message = message


def join_allennlp() -> None:
    """Make `ConfigurationError` a subclass of AllenNLP's. Called once AllenNLP is loaded."""
    from allennlp.common.checks import ConfigurationError as AllenNLPConfigurationError

    ConfigurationError.__bases__ = (AllenNLPConfigurationError, ValueError)
