"""Command-line arguments from the fields of a dataclass, so that each option is written once."""

import argparse
import dataclasses
import math
from collections.abc import Sequence as AbstractSequence
from numbers import Integral, Real
from typing import Any, Dict, Optional, Type, TypeVar, Union, get_args, get_origin, get_type_hints

from elmo_plugin.errors import ConfigurationError, check_choice
from elmo_plugin.files.text import parse_json

OptionsType = TypeVar("OptionsType")

_MAX_SHOWN = 100  # characters of invalid JSON in an error


class Options:
    """
    Base class of dataclasses whose fields are made by `option`. Calls from Python are checked as the command
    line is.

    # Raises

    `ConfigurationError` naming a field whose value, or an item of it, is not one of its `choices`, or not
    `positive`. The default is always valid.
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            choices = field.metadata.get("settings", {}).get("choices")
            value = getattr(self, field.name)
            if value == field.default:
                continue
            if choices is not None:
                for item in value if isinstance(value, (tuple, list)) else [value]:
                    check_choice(field.name, item, choices)
            if field.metadata.get("positive"):
                is_whole = not isinstance(field.default, float)
                is_number = isinstance(value, Integral if is_whole else Real)
                if not (is_number and 0 < value < math.inf):  # NaN fails too
                    expected = f"a positive {'whole ' if is_whole else ''}number"
                    raise ConfigurationError(f"{field.name} is {value!r}, expected {expected}.")


def option(
    help: str,
    default: Any = dataclasses.MISSING,
    *,
    short: Optional[str] = None,
    positional: bool = False,
    repeat: bool = False,
    positive: bool = False,
    **settings: Any,
) -> Any:
    """
    Return a dataclass field that is also an argument of a command. Its flag is the name of the field; an
    underscore at its end is left out (`from_`).

    The type of the field determines the values of the argument: `bool` is a switch, with a `--no-` form if
    the default is true; a sequence has one or more values; a sequence of `NamedTuple`s has the fields of one,
    and can be given several times; a `dict` is a JSON object. `Optional` changes nothing.

    # Parameters

    help : `str`
        One line. The default is added to it.
    default : `Any`, optional
        Immutable. Without one the argument is required.
    short : `str`, optional
        A second flag, such as `-s`.
    positional : `bool`, optional (default = `False`)
        Whether the argument has no flag.
    repeat : `bool`, optional (default = `False`)
        Whether the flag is repeated before each value of a sequence.
    positive : `bool`, optional (default = `False`)
        Whether `Options` accept positive numbers only, whole ones unless the default is a `float`.
    settings
        `metavar`, `choices` and `type`, as in `argparse`. By default `type` is that of the field.
    """
    metadata = {
        "help": help,
        "short": short,
        "positional": positional,
        "repeat": repeat,
        "positive": positive,
        "settings": settings,
    }
    return dataclasses.field(default=default, metadata=metadata)


def option_group(title: str, default: Any = dataclasses.MISSING) -> Any:
    """
    Return a field whose type is another, frozen dataclass of options: a group of arguments with a title in
    the help.
    """
    return dataclasses.field(default=default, metadata={"title": title})


def add_options(
    parser: argparse.ArgumentParser, options_class: Type[Any], title: str = "arguments"
) -> None:
    """
    Declare an argument for each field made by `option`, in a group of this title, and a further group for
    each made by `option_group`. Other fields are left out, and keep their defaults.
    """
    types = get_type_hints(options_class)
    # In a group: AllenNLP's parser would repeat the defaults.
    group = parser.add_argument_group(title)
    for field in dataclasses.fields(options_class):
        if "title" in field.metadata:
            add_options(parser, types[field.name], field.metadata["title"])
        elif "help" in field.metadata:
            _add_argument(group, field, types[field.name])


def options_from(options_class: Type[OptionsType], args: argparse.Namespace) -> OptionsType:
    """Build the dataclass from parsed arguments, including its groups."""
    types = get_type_hints(options_class)
    values: Dict[str, Any] = {}
    for field in dataclasses.fields(options_class):  # type: ignore[arg-type]
        if "title" in field.metadata:
            values[field.name] = options_from(types[field.name], args)
        elif "help" in field.metadata:
            value = getattr(args, field.name)
            item_type = _item_type(types[field.name])
            if item_type is not None and value is not None:
                value = tuple(item_type(*item) if _is_record(item_type) else item for item in value)
            values[field.name] = value
    return options_class(**values)


def _json_object(text: str) -> Dict[str, Any]:
    """Parse an argument that is a JSON object."""
    try:
        value = parse_json(text)
        reason = "" if isinstance(value, dict) else "expected a JSON object of keys and values"
    except ValueError as error:
        reason = f"which is not JSON ({error})"
    if reason:
        raise argparse.ArgumentTypeError(f"found {text[:_MAX_SHOWN]}, {reason}")
    return value


def _add_argument(
    group: argparse._ArgumentGroup, field: dataclasses.Field[Any], field_type: Any
) -> None:
    option = field.metadata
    settings = dict(option["settings"])
    is_required = field.default is dataclasses.MISSING
    if not is_required:
        settings["default"] = field.default
    if option["positional"]:
        names = [field.name]
    else:
        names = [*filter(None, [option["short"]]), "--" + field.name.rstrip("_").replace("_", "-")]
        settings.update(required=is_required, dest=field.name)

    field_type = _without_none(field_type)
    item_type = _item_type(field_type)
    if field_type is bool:
        settings["action"] = argparse.BooleanOptionalAction if field.default else "store_true"
    elif item_type is None:
        is_object = get_origin(field_type) is dict
        settings.setdefault("type", _json_object if is_object else field_type)
    elif _is_record(item_type):
        words = tuple(name.upper() for name in item_type._fields)
        settings.update(action="append", nargs=len(words), metavar=words)
    elif option["repeat"]:
        settings.update(action="append", type=item_type)
    else:
        is_optional = option["positional"] and not is_required
        settings.update(nargs="*" if is_optional else "+", type=item_type)
    if settings.get("action") == "append" and not is_required:
        settings["default"] = list(settings["default"])  # argparse appends to a copy of it
    action = group.add_argument(*names, **settings)
    # Set later, because some versions of BooleanOptionalAction add the default themselves.
    action.help = _with_default(option["help"], field.default)


def _with_default(text: str, default: Any) -> str:
    if default is True:
        text += " (default: yes)"
    elif default not in (dataclasses.MISSING, None, "", ()) and default is not False:
        words = default if isinstance(default, tuple) else [default]
        text += f" (default: {' '.join(map(str, words))})"
    return text.replace("%", "%%")


def _is_record(item_type: Any) -> bool:
    """Return whether a type is a `NamedTuple`."""
    return isinstance(item_type, type) and hasattr(item_type, "_fields")


def _without_none(field_type: Any) -> Any:
    if get_origin(field_type) is Union:
        (field_type,) = (kind for kind in get_args(field_type) if kind is not type(None))
    return field_type


def _item_type(field_type: Any) -> Any:
    """Return the type of the items of a sequence; `None` for other types."""
    field_type = _without_none(field_type)
    return get_args(field_type)[0] if get_origin(field_type) is AbstractSequence else None
