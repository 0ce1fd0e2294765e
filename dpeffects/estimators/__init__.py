"""One file for each estimator. Adding a method is adding a file with a ``SPEC``.

Other packages add theirs by an entry point of the group "dpeffects.methods" that names a
`MethodSpec`.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from functools import cache

from dpeffects.errors import OptionError
from dpeffects.estimators.spec import MethodSpec
from dpeffects.plugins import plugins


@cache
def registry() -> dict[str, MethodSpec]:
    """Return all methods by name: modules of this folder with a SPEC, then those of plugins."""
    specs = {}
    for module in pkgutil.iter_modules(__path__):
        spec = getattr(importlib.import_module(f"{__name__}.{module.name}"), "SPEC", None)
        if isinstance(spec, MethodSpec):
            specs[spec.name] = spec
    for _, spec in plugins("dpeffects.methods", MethodSpec):
        specs.setdefault(spec.name, spec)
    return specs


def proved() -> dict[str, MethodSpec]:
    """Return the methods whose guarantee is exact: those that nobody has to opt in to."""
    return {name: spec for name, spec in registry().items() if spec.guarantee == "exact"}


def get(name: str) -> MethodSpec:
    """Return a method by name."""
    specs = registry()
    if not isinstance(name, str) or name not in specs:
        close = difflib.get_close_matches(str(name), list(specs), 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise OptionError(f"unknown method {name!r}; there are {', '.join(specs)}.{hint}")
    return specs[name]
