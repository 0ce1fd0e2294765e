"""One file for each ability: its call, options, release, result and words.

An ability ends in a function that `dpeffects.calls.public_call` declares. Its result, a subclass of
`TableEffects`, says what it has to say as plain tables, notes and sentences; formats are in
`report`. The mathematics is in `inference`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Any


@cache
def calls() -> dict[str, Any]:
    """Return the public calls of this folder by their names."""
    names = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)]
    return {
        name: call
        for module in map(importlib.import_module, names)
        for name, call in vars(module).items()
        if name.startswith("dp_") and call.__module__ == module.__name__
    }
