"""
Register our classes with AllenNLP, in whichever order the two packages are imported.

AllenNLP finds classes by their names in `Registrable`. Importing all of ours takes seconds, so this waits
until a name is looked up: `Registrable.resolve_class_name` and `list_available` are wrapped to import the
plugin first. The first lookup restores them. The path of an archive is looked up before any name, and with
the plugin it can be the name of a model: that lookup is wrapped too.
"""

import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
import threading
from types import ModuleType
from typing import Any, Callable, Optional, Sequence

from elmo_plugin.errors import join_allennlp

_LOOKUPS = ("resolve_class_name", "list_available")
_lock = threading.RLock()


def register_on_first_lookup() -> None:
    """Register our classes when AllenNLP first looks up a name, now or once it is imported."""
    for name, attribute, wrap in (
        ("allennlp.common.registrable", "Registrable", _wrap_lookups),
        ("allennlp.models.archival", "cached_path", _wrap_lookup_of_archives),
    ):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, attribute):
            wrap(module)
        elif not any(
            isinstance(finder, _Finder) and finder.name == name for finder in sys.meta_path
        ):
            sys.meta_path.insert(0, _Finder(name, wrap))


def register() -> None:
    """Import all modules that register a name."""
    with _lock:
        importlib.import_module("elmo_plugin.plugin")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module of AllenNLP as Python does, and calls `wrap` with it once it is loaded."""

    def __init__(self, name: str, wrap: Callable[[Any], None]) -> None:
        self.name = name
        self._wrap = wrap

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_wrap(module: ModuleType) -> None:
                execute(module)
                self._wrap(module)

            spec.loader.exec_module = execute_and_wrap  # type: ignore[method-assign]
        return spec


def _wrap_lookups(module: Any) -> None:
    registrable = module.Registrable
    join_allennlp()
    originals = {name: registrable.__dict__[name] for name in _LOOKUPS}
    if any(hasattr(original.__func__, "__wrapped__") for original in originals.values()):
        return

    def wrap(lookup: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(lookup)
        def register_first(cls: Any, *arguments: Any, **keywords: Any) -> Any:
            with _lock:
                # First: importing the plugin looks up names too.
                for name, original in originals.items():
                    setattr(registrable, name, original)
                register()
            return lookup(cls, *arguments, **keywords)

        return register_first

    for name, original in originals.items():
        setattr(registrable, name, classmethod(wrap(original.__func__)))


def _wrap_lookup_of_archives(archival: Any) -> None:
    find = archival.cached_path

    @functools.wraps(find)
    def register_first(*arguments: Any, **keywords: Any) -> Any:
        with _lock:
            archival.cached_path = find
            register()  # replaces it
        return archival.cached_path(*arguments, **keywords)

    archival.cached_path = register_first
