"""What other installed packages add, by Python entry points."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any


def plugins(group: str, kind: type) -> Iterator[tuple[str, Any]]:
    """Go through the objects of a kind that installed packages offer under a group of entry points.

    What cannot be loaded, or is of another kind, is left out with a warning: a broken package must
    not take this one down.

    Examples
    --------
    >>> list(plugins("dpeffects.nothing", object))
    []
    """
    from importlib.metadata import entry_points

    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        try:
            plugin = point.load()
        except Exception as error:
            reason = f"cannot be loaded ({type(error).__name__}: {error})"
        else:
            if isinstance(plugin, kind):
                yield point.name, plugin
                continue
            reason = f"is a {type(plugin).__name__}, not a {kind.__name__}"
        warnings.warn(f"entry point {point.value!r} of {group} {reason}", stacklevel=2)
