"""The former place of `elmo_plugin.arguments`."""

from elmo_plugin.arguments import (
    add_options,
    command_arguments,
    json_object,
    option,
    option_group,
    options_from,
)

__all__ = [
    "add_options",
    "command_arguments",
    "json_object",
    "option",
    "option_group",
    "options_from",
]
