"""One file for each estimator. Adding a method is adding a file with a ``SPEC``.

Other packages add theirs by an entry point of the group "dpeffects.methods" that names a
`MethodSpec`, and so does `dpeffects.replication`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from dpeffects.errors import OptionError, advised, did_you_mean, quoted, refusal
from dpeffects.estimands import AVERAGES
from dpeffects.estimators.spec import MethodSpec
from dpeffects.plugins import plugins


@cache
def _files() -> dict[str, str]:
    """The modules below this folder, by the names of their files."""
    names = [module.name for module in pkgutil.walk_packages(__path__, f"{__name__}.")]
    return {name.rpartition(".")[2]: name for name in names}


def _found(conditional: bool) -> dict[str, MethodSpec]:
    """Methods by name: modules below this folder with a SPEC, then those of plugins."""
    specs: dict[str, MethodSpec] = {}
    own = [getattr(importlib.import_module(name), "SPEC", None) for name in _files().values()]
    for spec in [*own, *(spec for _, spec in plugins("dpeffects.methods", MethodSpec))]:
        if isinstance(spec, MethodSpec) and spec.conditional == conditional:
            specs.setdefault(spec.name, spec)
    return dict(sorted(specs.items()))


def find(name: str, conditional: bool = False) -> MethodSpec | None:
    """Return a method by name, if there is one; no other file is read where it has its own."""
    for file in (x for x in (name, f"{name}_cate") if x in _files()):
        spec = getattr(importlib.import_module(_files()[file]), "SPEC", None)
        if isinstance(spec, MethodSpec) and (spec.name, spec.conditional) == (name, conditional):
            return spec
    return (conditional_methods() if conditional else registry()).get(name)


@cache
def registry() -> dict[str, MethodSpec]:
    """Return the methods for average effects, by name."""
    return _found(conditional=False)


@cache
def conditional_methods() -> dict[str, MethodSpec]:
    """Return the methods for conditional effects, by name."""
    return _found(conditional=True)


@cache
def table_methods() -> dict[str, MethodSpec]:
    """Return the methods that have a public function of their own, as `dp_survival`, by name."""
    folder = importlib.import_module("dpeffects.abilities")
    names = [f"{folder.__name__}.{module.name}" for module in pkgutil.iter_modules(folder.__path__)]
    own = [getattr(importlib.import_module(name), "TABLE", None) for name in names]
    return {spec.name: spec for spec in own if isinstance(spec, MethodSpec)}


def proved() -> dict[str, MethodSpec]:
    """Return the methods for average effects that nobody has to opt in to: exact guarantees."""
    return {name: spec for name, spec in registry().items() if spec.guarantee == "exact"}


_LEARNERS = {"groups": "one_step"}
"""Methods that a release of conditional effects has by default, where it is not the R-learner: its
effects by group are overlap-weighted."""


def default_learner(release: str) -> str:
    """Return the method for a release of conditional effects where none is named."""
    return _LEARNERS.get(str(release), "r_learner")


def get(name: str, estimand: str = "ATE") -> MethodSpec:
    """Return a method by name; one that has both kinds of effects has a record for each."""
    conditional = estimand not in AVERAGES
    if isinstance(name, str) and (spec := find(name, conditional) or find(name, not conditional)):
        return spec
    if not isinstance(name, str):
        raise OptionError(f'method must be a name, such as "auto", got {quoted(name)}')
    first = conditional_methods() if conditional else registry()
    hint = (not conditional and advised("methods").get(name.casefold())) or did_you_mean(
        name, first
    ).strip()
    if name in table_methods():
        hint = f"{name} has a function of its own, as methods({name!r}) says."
    hint = hint or "Leave method out for the default."
    raise OptionError(refusal("unknown_method", name=name, hint=hint, known=", ".join(first)))
