"""Checks of archives from untrusted sources: their configs can construct only known classes."""

import functools
import sys
from collections import deque
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Callable, Optional, Tuple

from elmo_plugin.errors import ConfigurationError
from elmo_plugin.files.text import FileName, byte_lines, read_json

_is_loading_archive = ContextVar("is_loading_archive", default=False)


def check_texts(folder: FileName, archive_file: FileName) -> None:
    """
    Raise `ConfigurationError` if the config of an archive, which is unpacked in a folder, is not JSON, or its
    vocabulary has lines of a megabyte. AllenNLP reads the config as Jsonnet, a programming language: a line
    can run forever, or read other files. It reads a line of the vocabulary in quadratic time.
    """
    try:
        read_json(Path(folder, "config.json"), "the config of an archive, as trainings write it")
        for path in sorted(Path(folder, "vocabulary").glob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    deque(byte_lines(file, path, "a word"), maxlen=0)
    except ConfigurationError as error:
        message = error.message.removeprefix(f"{folder}/")
        raise ConfigurationError(f"{archive_file}: {message}") from error


def known_classes_only(build: Callable[..., Any]) -> Callable[..., Any]:
    """
    Return a function that builds parts of an archive, for which `patch_class_names` holds. AllenNLP calls
    whatever a `type` of its config names, with the arguments in the config: also `subprocess.Popen`.
    """

    @functools.wraps(build)
    def build_known(*args: Any, **kwargs: Any) -> Any:
        token = _is_loading_archive.set(True)
        try:
            return build(*args, **kwargs)
        finally:
            _is_loading_archive.reset(token)

    return build_known


def patch_class_names() -> None:
    """
    Let configs of archives name classes by their registered names, and by `module.Class` where the module is
    imported and the class is of the kind that is expected.
    """
    from allennlp.common import Registrable

    resolve = Registrable.resolve_class_name.__func__

    @functools.wraps(resolve)
    def resolve_known(cls: Any, name: str) -> Tuple[Any, Optional[str]]:
        if not _is_loading_archive.get() or "." not in name or name in cls.list_available():
            return resolve(cls, name)
        module_name, _, class_name = name.rpartition(".")
        found = getattr(sys.modules.get(module_name), class_name, None)
        if not (isinstance(found, type) and issubclass(found, cls)):
            raise ConfigurationError(
                f"The config of the archive names {name}, expected a {cls.__name__}: a registered name, or a "
                "class of a module that is imported. If you trust the archive, import the module first "
                f"(--include-package {module_name})."
            )
        return found, None

    Registrable.resolve_class_name = classmethod(resolve_known)
