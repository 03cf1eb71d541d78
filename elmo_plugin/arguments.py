"""Command-line arguments from the fields of a dataclass, so that each option is written once."""

import argparse
import dataclasses
import json
from collections.abc import Sequence as AbstractSequence
from typing import (
    Any,
    Callable,
    Dict,
    List,
    Optional,
    Sequence,
    Tuple,
    Type,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import parse_json

Options = TypeVar("Options")

_ARGUMENT, _TITLE = "argument", "title"
_MAX_SHOWN = 100  # characters of invalid JSON in an error


@dataclasses.dataclass(frozen=True)
class _Argument:
    """The settings of an option, in the metadata of its field."""

    help: str
    short: Optional[str]
    positional: bool
    metavar: Optional[Union[str, Tuple[str, ...]]]
    choices: Optional[Sequence[Any]]
    parse: Optional[Callable[[str], Any]]
    repeat: bool


def option(
    help: str,
    default: Any = dataclasses.MISSING,
    *,
    short: Optional[str] = None,
    positional: bool = False,
    metavar: Optional[Union[str, Tuple[str, ...]]] = None,
    choices: Optional[Sequence[Any]] = None,
    parse: Optional[Callable[[str], Any]] = None,
    repeat: bool = False,
) -> Any:
    """
    Return a dataclass field that is also an argument of a command. Its flag is the name of the field.

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
    metavar, choices : optional
        As in `argparse`.
    parse : `Callable[[str], Any]`, optional (default = what follows from the type)
        Makes a value from a word of the command line.
    repeat : `bool`, optional (default = `False`)
        Whether the flag is repeated before each value of a sequence.
    """
    argument = _Argument(help, short, positional, metavar, choices, parse, repeat)
    return dataclasses.field(default=default, metadata={_ARGUMENT: argument})


def option_group(title: str, default: Any = dataclasses.MISSING) -> Any:
    """
    Return a field whose type is another dataclass of options: a group of arguments with a title in the help.

    # Parameters

    title : `str`
        Title of the group.
    default : `Any`, optional
        An instance of the other dataclass, which is frozen.
    """
    return dataclasses.field(default=default, metadata={_TITLE: title})


def add_options(parser: Any, options_class: Type[Any], title: Optional[str] = "arguments") -> None:
    """
    Declare an argument for each field made by `option`, and a group for each made by `option_group`. Other
    fields are left out: `options_from` reads them from arguments that the caller declares.

    # Parameters

    parser : `ArgumentParser`, or a group of one if there is no title
    options_class : `Type[Any]`
        The dataclass.
    title : `str`, optional (default = `"arguments"`)
        Title of the group, which may be there already.
    """
    types = get_type_hints(options_class)
    # In a group: AllenNLP's parser would repeat the defaults.
    group = parser if title is None else _group(parser, title)
    for field in dataclasses.fields(options_class):
        if _TITLE in field.metadata:
            add_options(parser, types[field.name], field.metadata[_TITLE])
        elif _ARGUMENT in field.metadata:
            _add_argument(group, field, types[field.name])


def options_from(options_class: Type[Options], args: argparse.Namespace) -> Options:
    """Build the dataclass from parsed arguments, including its groups."""
    types = get_type_hints(options_class)
    values: Dict[str, Any] = {}
    for field in dataclasses.fields(options_class):  # type: ignore[arg-type]
        if _TITLE in field.metadata:
            values[field.name] = options_from(types[field.name], args)
        elif hasattr(args, field.name):
            value = getattr(args, field.name)
            item_type = _item_type(types[field.name])
            if item_type is not None and value is not None:
                value = tuple(item_type(*item) if _is_record(item_type) else item for item in value)
            values[field.name] = value
    return options_class(**values)


def command_arguments(options: Any) -> List[str]:
    """Return the arguments that make these options again, positional ones first, without defaults."""
    positional: List[str] = []
    flagged: List[str] = []
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        argument: Optional[_Argument] = field.metadata.get(_ARGUMENT)
        if _TITLE in field.metadata:
            flagged += command_arguments(value)
        elif argument is not None and value != field.default:
            words = _words(value)
            if argument.positional:
                positional += words
            elif isinstance(value, bool):
                flagged.append(_flag(field.name) if value else f"--no-{_flag(field.name)[2:]}")
            elif argument.repeat or (value and _is_sequence(value) and _is_record(type(value[0]))):
                for item in value:
                    flagged += [_flag(field.name), *_words(item)]
            elif value is not None:
                flagged += [_flag(field.name), *words]
    return [*positional, *flagged]


def check_choices(options: Any) -> None:
    """
    Check fields that have `choices`. The command line does this too; this function is for calls from Python.

    # Raises

    `ConfigurationError` naming the field.
    """
    for field in dataclasses.fields(options):
        argument: Optional[_Argument] = field.metadata.get(_ARGUMENT)
        value = getattr(options, field.name)
        if argument is None or argument.choices is None or value == field.default:
            continue
        if value not in argument.choices:
            raise ConfigurationError(
                f"{field.name} is '{value}', expected one of {', '.join(argument.choices)}."
            )


def json_object(text: str) -> Dict[str, Any]:
    """Parse an argument that is a JSON object."""
    try:
        value = parse_json(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"found {text[:_MAX_SHOWN]}, which is not JSON ({error})"
        ) from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(
            f"found {text[:_MAX_SHOWN]}, expected a JSON object of keys and values"
        )
    return value


def _group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    groups = [group for group in parser._action_groups if group.title == title]
    return groups[0] if groups else parser.add_argument_group(title)


def _add_argument(
    group: argparse._ArgumentGroup, field: dataclasses.Field[Any], field_type: Any
) -> None:
    argument: _Argument = field.metadata[_ARGUMENT]
    field_type = _without_none(field_type)
    item_type = _item_type(field_type)
    is_required = field.default is dataclasses.MISSING
    settings: Dict[str, Any] = {}
    if argument.positional:
        names = [field.name]
        if not is_required:
            settings["nargs"] = "?"
    else:
        names = [*filter(None, [argument.short]), _flag(field.name)]
        settings.update(required=is_required, dest=field.name)
    if not is_required:
        settings["default"] = field.default
    if field_type is bool:
        settings["action"] = argparse.BooleanOptionalAction if field.default else "store_true"
    elif item_type is not None and (argument.repeat or _is_record(item_type)):
        settings["action"] = "append"
        if not is_required:
            settings["default"] = list(settings["default"])  # argparse appends to a copy of it
        if _is_record(item_type):
            words = tuple(name.upper() for name in item_type._fields)
            settings.update(nargs=len(words), metavar=words)
        else:
            settings["type"] = argument.parse or item_type
    elif item_type is not None:
        nargs = "*" if argument.positional and not is_required else "+"
        settings.update(nargs=nargs, type=argument.parse or item_type)
    else:
        is_object = get_origin(field_type) is dict
        settings["type"] = argument.parse or (json_object if is_object else field_type)
    for name in ("metavar", "choices"):
        if getattr(argument, name) is not None:
            settings[name] = getattr(argument, name)
    action = group.add_argument(*names, **settings)
    # Set later, because some versions of BooleanOptionalAction add the default themselves.
    action.help = _with_default(argument.help, field.default)


def _with_default(text: str, default: Any) -> str:
    if default is True:
        text += " (default: yes)"
    elif default not in (dataclasses.MISSING, None, "", ()) and default is not False:
        text += f" (default: {' '.join(_words(default))})"
    return text.replace("%", "%%")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _words(value: Any) -> List[str]:
    if isinstance(value, dict):
        return [json.dumps(value, ensure_ascii=False)]
    if _is_sequence(value):
        return [word for item in value for word in _words(item)]
    return [str(value)]


def _is_sequence(value: Any) -> bool:
    return isinstance(value, AbstractSequence) and not isinstance(value, str)


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
    if get_origin(field_type) in (list, tuple, AbstractSequence):
        return get_args(field_type)[0]
    return None
