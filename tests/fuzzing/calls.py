"""Calls of the public functions, right but for an option or two."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

import dpeffects as dpe
from dpeffects.estimators import proved
from tests.fuzzing import formulas, frames

RIGHT: dict[str, tuple[Any, ...]] = {
    "level": ("sample", "label"),
    "variance": (True, False),
    "budget_split": (
        {"estimate": 2},
        {"variance": 1e-9},
        {"estimate": 1e-300, "variance": 1e300},
        {},
    ),
    "estimand": ("ATE", "ATT", "ATC"),
    "arms": ("private", "public"),
    "matching": ("means", "round_robin"),
    "average": ("estimates", "models"),
    "estimator": ("aipw", "ipw", "regression"),
    "effect_range": ((-1, 1), (0, 1e-9), (-1e300, 1e300)),
    "folds": (2, 3),
    "blocks": (2, 3, 5),
    "clip": (0.001, 0.05, 0.1, 0.4),
    "crossfit": (True, False),
    "propensity": ("objective", "output"),
    "split": (True, False),
    "centre": ("arms", "middle"),
    "penalty": (1e-12, 0.1, 1e6),
    "model_share": (0.01, 0.9),
    "noise": ("auto", "laplace", "gaussian", "objective", "kernel"),
    "paper_constants": (True, False),
    "variance_noise": ("capped", "smooth"),
    "adjust": ("auto", "all", "none"),
    "confounding": (0, 10.0),
    "regression": (True, False),
    "neighbors": (1, 5, 50),
    "match_limit": (1, (1, 2), 100),
    "error_coefficient": (1e-9, 0.5, 1e9),
    "debias": (True, False),
    "adjusted": (True, False),
    "bins": (2, 20, 200),
    "kernel": ("gaussian", "additive"),
    "bandwidth": (0.05, 10.0),
    "threshold": (0.005, 2.0),
    "n_features": (2, 50),
    "lipschitz": (1e-9, 0.3, 1e9),
    "rule": ("mvagg", "ivw", "all", "largest", "random"),
    "conf_level": (0.5, 1 - 1e-12),
    "sites": (["N", "S"], ["N"], ["N", "S", "W"]),
    "treated_share": (0.001, 0.999),
    "r2": (0, 0.99),
    "covariate_sd": (0.001, 0.5, {"x": 0.4}),
    "design": ("observational", "randomised"),
    "power": (1e-9, 0.999),
    "outcome_sd": (1e-12, 0.5),
    "outcome_mean": (0, 1),
    "n": (4, 10, 1000),
    "method": ("private_psm", "global_matching", None),
}
"""What an option may be, at the ends of what is sensible."""
COMMON = ("budget_split", "ledger", "seed", "dataset")


@dataclass
class Call:
    """A public function and what it is called with; data that must not be shown, and what is."""

    function: str
    arguments: dict[str, Any]
    data: Any = None
    shown: bool = False
    """Whether the call itself makes values of the data public."""
    ledgers: list[dpe.Ledger] = field(default_factory=list)
    positional: tuple[str, ...] = ()

    def __call__(self) -> Any:
        first = [self.arguments[name] for name in self.positional]
        others = {k: v for k, v in self.arguments.items() if k not in self.positional}
        return getattr(dpe, self.function)(*first, **others)

    def __str__(self) -> str:
        given = ", ".join(f"{k}={_brief(v)}" for k, v in self.arguments.items() if k != "data")
        return f"{self.function}({given})"


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"<{type(value).__name__}>"


def from_formula(number: int) -> Call:
    """A formula of the grammar, asked of well-formed data."""
    chance = random.Random(number)
    grammar, kind = formulas.Grammar(chance), chance.random()
    method = chance.choice([m for m in proved() if m not in _SLOW])
    strata = proved()[method].needs_strata and kind < 0.75
    made = Call("dp_ate", {"formula": grammar.strata() if strata else grammar.formula()})
    frame = formulas.frame(chance, chance.choice([24, 40]))
    made.data = made.arguments["data"] = frame
    made.arguments |= {"epsilon": 1, "delta": chance.choice([0, 1e-5]), "bounds": formulas.BOUNDS}
    if kind < 0.75:
        spec = proved()[method]
        made.function = f"dp_{chance.choice(spec.estimands).lower()}"
        made.arguments["method"] = method
        made.arguments["delta"] = 1e-5 if spec.needs_delta else made.arguments["delta"]
        if kind < 0.1:
            made.arguments["data"] = frames.in_library(chance, frame)
    elif kind < 0.85:
        made.function = "dp_balance"
    elif kind < 0.93:
        made.function = "dp_cate"
        made.arguments |= {"release": "groups", "by": grammar.groups()}
    elif kind < 0.96:
        made.function = "dp_cate"
        made.arguments |= {"second_stage": "linear"}
    else:
        names = [name for name in proved() if name not in _SLOW]
        made.function, made.data = "plan", None
        del made.arguments["data"]
        made.arguments |= {"n": 30, "repeats": 1, "method": chance.choice(names)}
    return _with_ledger(made)


_SLOW = ("synthetic", "dp_ebm")
FUNCTIONS = {
    "dp_ate": 40,
    "dp_att": 8,
    "dp_atc": 6,
    "dp_cate": 10,
    "dp_balance": 10,
    "plan": 6,
    "site_release": 6,
    "dp_multisite": 6,
    "combine": 5,
    "declare": 2,
    "audit": 1,
}


def from_frame(number: int) -> Call:
    """A frame and options, asked a usual question."""
    chance = random.Random(number)
    function = chance.choices(list(FUNCTIONS), list(FUNCTIONS.values()))[0]
    return _MAKERS.get(function, _effect)(chance, function)


def _effect(chance: random.Random, function: str) -> Call:
    """A call with up to three faults in its data, bounds, prices and options."""
    kinds = ["columns", "labels", "bounds", "prices", "options"]
    faults = chance.sample(kinds, chance.choice([0, 0, 0, 1, 1, 1, 2, 3]))
    frame = frames.pandas_frame(chance, chance.randint(1, 3) if "columns" in faults else 0)
    made = Call(function, {"formula": "y ~ t | x + g", "data": frame}, data=frame)
    if "labels" in faults:
        made.arguments["data"] = frames.mislabelled(chance, frame)
    elif chance.random() < 0.4:
        made.arguments["data"] = frames.in_library(chance, frame)
    odd_bounds = "bounds" in faults
    made.arguments["bounds"] = frames.bounds(chance) if odd_bounds else dict(frames.BOUNDS)
    prices = [(1, 1e-5), (1, 0), (10, 0), (1e-6, 1e-300), (1e6, 0.3), (1e-3, 1e-9)]
    made.arguments |= dict(zip(("epsilon", "delta"), chance.choice(prices), strict=True))
    names = _own_arguments(chance, made)
    _with_ledger(made)
    for name in chance.sample(names, min(chance.choice([0, 0, 1, 2]), len(names))):
        made.arguments[name] = chance.choice(RIGHT.get(name, frames.ODD))
    for _ in range(chance.choice([1, 1, 2]) if "options" in faults else 0):
        made.arguments[chance.choice([*names, *COMMON])] = chance.choice(frames.ODD)
    if "prices" in faults:
        made.arguments[chance.choice(["epsilon", "delta"])] = chance.choice(frames.ODD)
    given = made.arguments
    made.shown = isinstance(given["bounds"], str) or given.get("level") == "label"
    return made


def _own_arguments(chance: random.Random, made: Call) -> list[str]:
    """Add what the function needs; return the names of what else it takes."""
    given, function = made.arguments, made.function
    if function == "dp_balance":
        return ["estimand", "adjusted", "clip", "bins"]
    if function == "dp_cate":
        given |= _release(chance)
        names = ["kernel", "bandwidth", "second_stage", "noise", "clip", "threshold"]
        return [*names, "penalty", "n_features", "lipschitz"]
    if function == "dp_multisite":
        given |= {"site": "s", "epsilon": {"N": given["epsilon"], "S": 1}}
        given |= {"method": chance.choice(["diff_in_means", "auto"])}
        return ["sites", "rule", "estimand", "conf_level"]
    estimand = function[3:].upper() if function != "site_release" else "ATE"
    able = [s for s in proved().values() if estimand in s.estimands and s.name not in _SLOW]
    spec = chance.choice(able)
    given |= {"method": spec.name}
    given |= {"formula": "y ~ t | g"} if spec.needs_strata else {}
    given |= {"site": "North"} if function == "site_release" else {}
    return ["level", "variance", "budget_split", *(option.name for option in fields(spec.options))]


def _release(chance: random.Random) -> dict[str, Any]:
    kind = chance.random()
    if kind < 0.7:
        return {"release": "groups", "by": chance.choice(["g", "cut(x, [0, 0.5, 1])", "g + s"])}
    if kind < 0.85:
        return {"release": "function", "second_stage": chance.choice(["linear", "kernel"])}
    points = [{"x": [0.25, 0.75], "g": ["a", "b"]}, frames.pandas_frame(random.Random(1)), 5]
    return {"release": "points", "at": chance.choice(points)}


def _plan(chance: random.Random, function: str) -> Call:
    right: dict[str, Any] = {"formula": "y ~ t | x + g", "n": 30, "epsilon": 1}
    right |= {
        "bounds": chance.choice([frames.BOUNDS, frames.bounds(chance)]),
        "repeats": 1,
        "method": "diff_in_means",
    }
    names = ["n", "delta", "method", "estimand", "outcome_mean", "outcome_sd", "r2"]
    names += ["treated_share", "covariate_sd", "design"]
    names += ["confounding", "conf_level", "power", "repeats", "epsilon", "optoin"]
    for name in chance.sample(names, chance.choice([0, 1, 1, 2])):
        right[name] = chance.choice(chance.choice([RIGHT.get(name, frames.ODD), frames.ODD]))
    if isinstance(right["repeats"], int):
        right["repeats"] = min(right["repeats"], 2)
    return Call(function, right)


def _declare(chance: random.Random, function: str) -> Call:
    frame = frames.pandas_frame(chance, 2)
    odd = chance.choice([frames.mislabelled, frames.in_library])(chance, frame)
    given = {"data": odd, "bounds": frames.bounds(chance)}
    return Call(function, given, data=frame, shown=True, positional=tuple(given))


def _audit(chance: random.Random, function: str) -> Call:
    right: dict[str, Any] = {"method": "diff_in_means", "epsilon": 1, "runs": 100, "seed": 1}
    names = ["epsilon", "delta", "level", "conf_level", "watch", "noise", "workers", "seed"]
    names += [
        "pairs",
        "formula",
        "bounds",
        "estimand",
        "variance",
        "budget_split",
        "runs",
        "library",
    ]
    for name in chance.sample(names, 2):
        right[name] = chance.choice(chance.choice([RIGHT.get(name, frames.ODD), frames.ODD]))
    if isinstance(right["runs"], int) and right["runs"] > 1000:
        right["runs"] = 100
    if isinstance(right.get("workers"), int):
        right["workers"] = min(right["workers"], 1)
    return Call(function, right)


@cache
def _sent() -> list[dict[str, Any]]:
    frame = formulas.frame(random.Random(1), 40)
    given = {"method": "diff_in_means", "epsilon": 1, "bounds": formulas.BOUNDS}
    return [
        dpe.site_release("y ~ t", frame, site=site, seed=seed, **given).to_dict()
        for seed, site in enumerate(["North", "South", "West"])
    ]


def _combine(chance: random.Random, function: str) -> Call:
    """Releases, of which entries were taken away or replaced."""
    sent = copy.deepcopy(_sent())
    for _ in range(chance.choice([0, 1, 1, 2])):
        inside: Any = chance.choice(sent)
        while isinstance(inside, dict | list) and inside:
            keys = list(inside) if isinstance(inside, dict) else range(len(inside))
            key = chance.choice(list(keys))
            if isinstance(inside[key], dict | list) and inside[key] and chance.random() < 0.8:
                inside = inside[key]
                continue
            inside[key] = chance.choice(frames.ODD)
            break
    right: dict[str, Any] = {"releases": chance.choice([sent, sent, sent, sent[:1], [], None])}
    for name in chance.sample(["rule", "conf_level", "trust", "left_out"], chance.choice([0, 1])):
        right[name] = chance.choice(frames.ODD)
    return Call(function, right)


_MAKERS: dict[str, Callable[[random.Random, str], Call]] = {
    "plan": _plan,
    "declare": _declare,
    "audit": _audit,
    "combine": _combine,
}


def _with_ledger(made: Call) -> Call:
    """Give the call an account, one for each site where there are several."""
    if made.function == "plan":
        return made
    made.ledgers = [dpe.Ledger(1e9, 0.9), dpe.Ledger(1e9, 0.9)]
    many = made.function == "dp_multisite"
    made.arguments["ledger"] = (
        dict(zip("NS", made.ledgers, strict=True)) if many else made.ledgers[0]
    )
    made.arguments.setdefault("seed", 1)
    return made
