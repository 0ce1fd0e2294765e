"""Bugs planted in the kernel, to see that the hostile pairs find them."""

from __future__ import annotations

import inspect
import sys
import textwrap

from dpeffects.privacy import curator, domains, rows, tight_domains, units

BUGS = {
    "NaN is not replaced": (
        domains.BoxGrid,
        "project",
        "np.copyto(values, self.box.centre, where=~np.isfinite(values))",
        "pass",
    ),
    "a change of cell counts once": (
        domains.Reach,
        "sensitivity",
        "factor = 1 if cells == 1 else 2",
        "factor = 1",
    ),
    "no last clip": (
        domains.BoxGrid,
        "_round",
        "values.clip(*self.ends, out=values)",
        "pass",
    ),
    "a failing row spoils its block": (rows, "evaluate", "out[bad] = np.nan", "out[:] = np.nan"),
    "products differ by too little": (
        tight_domains.GramGrid,
        "reach",
        "single, 2, 2",
        "single, 1, 1",
    ),
    "matrices move by too little": (
        tight_domains.GramGrid,
        "reach",
        "single, 2, 2",
        "single, 2, 1",
    ),
    "half the matrix": (
        tight_domains.GramGrid,
        "shape",
        "_squared_radius, n",
        "_squared_radius // 2, n",
    ),
    "half the cube": (domains.BoxGrid, "shape", "2 * half", "half"),
    "the ball is not kept": (
        domains.BoxGrid,
        "_into_ball",
        "short / np.maximum(norm, 1e-300))[:, None]\n",
        "1.0)\n    return self._round(values)\n",
    ),
    "squares cost nothing": (
        tight_domains.BoxWithSquares,
        "_reach",
        "2 * top + 1, top // 4 + 1",
        "top, 0",
    ),
    "rows of a unit all count": (units, "row_weights", "if rows is not None:", "if False:"),
    "a weight of a unit above 1": (
        units,
        "row_weights",
        "posinf=1.0, neginf=0.0), 0.0, 1.0)",
        "posinf=1.0, neginf=0.0), 0.0, 9.0)",
    ),
    "a unit may be nothing": (
        domains.Reach,
        "weighted",
        "self.same, self.single",
        "self.same, self.same",
    ),
    "weights of a unit's products": (
        tight_domains.GramGrid,
        "_weighted",
        "root = np.sqrt(weight)",
        "root = weight = np.ones(len(values))",
    ),
}


def plant(monkeypatch, name):
    """Change one line of the kernel for a while."""
    plant_line(monkeypatch, *BUGS[name])


def plant_line(monkeypatch, owner, function, old, new):
    """Change one line of a function, a method or a property."""
    attribute = inspect.getattr_static(owner, function)
    code = getattr(attribute, "func", None) or getattr(attribute, "fget", None) or attribute
    source = textwrap.dedent(inspect.getsource(code))
    assert source.count(old) == 1, (function, old)
    module = owner if inspect.ismodule(owner) else sys.modules[owner.__module__]
    space = dict(vars(module))
    exec(compile(source.replace(old, new), function, "exec"), space)
    changed = space[function]
    if hasattr(changed, "__set_name__"):
        changed.__set_name__(owner, function)
    monkeypatch.setattr(owner, function, changed)
    for other in (curator, tight_domains, rows, domains, units):
        if getattr(other, function, None) is attribute:
            monkeypatch.setattr(other, function, changed)
