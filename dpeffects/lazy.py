"""Packages whose names are loaded when they are first asked for.

``import dpeffects`` then takes no longer than what is used of it. Beside such an ``__init__.py``
stands an ``__init__.pyi``, from which type checkers and this module read where each name is.
"""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

__all__ = ["lazy_names", "no_collection", "pd"]


class _Later:
    """A library that is loaded when something of it is first asked for."""

    def __init__(self, library: str) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._library), name)


if TYPE_CHECKING:
    import pandas as pd
else:
    pd = _Later("pandas")


@contextmanager
def no_collection() -> Iterator[None]:
    """Spare the search for cycles, among all that was made before, while many objects are made.

    Examples
    --------
    >>> import gc
    >>> with no_collection():
    ...     gc.isenabled()
    False
    """
    paused = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if paused:
            gc.enable()


def lazy_names(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return a package's ``__getattr__``, its ``__dir__`` and its ``__all__``.

    Modules of the package are loaded by their names too.

    Examples
    --------
    >>> import dpeffects
    >>> find, _, names = lazy_names("dpeffects", dpeffects.__file__)
    >>> find("dp_ate").__module__, "dp_ate" in names
    ('dpeffects.effects', True)
    """
    loader: Any = sys.modules[package].__loader__  # it reads from a zipped package too
    stub = ast.parse(loader.get_data(str(Path(file).with_suffix(".pyi"))))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    places = {alias.name: node.module for node in imports for alias in node.names}

    def find(name: str) -> Any:
        place = places.get(name)
        if place and place != package:
            with no_collection():
                found = getattr(import_module(place), name)
            setattr(sys.modules[package], name, found)
            return found
        if name.isidentifier() and name[0] != "_" and find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
        from dpeffects.errors import absent

        # programs that ask for private names need no hint at the name that was perhaps meant
        hint = "" if name.startswith("_") else absent(name, places)
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return find, names, sorted(places)
