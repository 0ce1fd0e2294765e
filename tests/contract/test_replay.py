"""Every public path, run on neighbours with its releases frozen.

A call is recorded on a dataset and repeated on a neighbour: every release returns what it returned
before. Then each true value may have moved by at most what its `Spend` declares, in the norm of its
noise, and everything that leaves the call, the result with all its texts and the warnings on the
way, must be the same.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import polars as pl
import pytest

import dpeffects as dpe
from dpeffects.audit.watch import Impossible, Watch, Watching
from dpeffects.methods import proved
from dpeffects.privacy.noise import SeededNoise

SPECS = proved()
BOUNDS = {"y": (0, 1), "x1": (0, 1), "x2": (-1, 1), "g": ["a", "b", "c"]}
PLAIN, STRATA = "y ~ t | x1 + x2 + g", "y ~ t | g + cut(x1, [0, 0.5, 1])"
SPLINE = "bs(x2, knots=[0], degree=2, lower_bound=-1, upper_bound=1)"
RICH = f"log(y + 1) ~ t | sqrt(x1) + I(x2**2) + g:x1 + {SPLINE}"
DELTA = {"delta": 1e-5}


@dataclass
class Moves:
    """What was under the noise, run by run."""

    first: list = field(default_factory=list)
    place: int = -1

    def next(self, value):
        """Keep a value on the first run; on the second return the one that was there."""
        if self.place < 0:
            self.first.append(value)
            return None
        self.place += 1
        return self.first[self.place - 1]


class Measuring(Watching):
    """Compares what is under the noise with what is declared."""

    def release(self, label, values, l1, unit, *, l2=None, **rest):
        before = self._noise.moves.next(values.astype(object))
        if before is not None and not self._noise.solving:
            move = np.abs(values.astype(object) - before).astype(np.float64)
            self._noise.hold(label, move.sum(), l1)
            if l2 is not None:
                self._noise.hold(label, math.sqrt((move**2).sum()), l2)
        self._noise.solving = False
        noisy = super().release(label, values, l1, unit, l2=l2, **rest)
        declared = l2 if noisy.gaussian else l1
        assert noisy.spend.sensitivity == (declared * unit,)
        assert noisy.scale == noisy.spend.scale[0]
        return noisy

    def smooth_laplace(self, label, private, lattice, smoothing, shown, **rest):
        value, smooth, _ = private
        before = self._noise.moves.next((value, smooth))
        if before is not None:
            self._noise.hold(label, abs(value - before[0]), min(smooth, before[1]))
            self._noise.hold(label, abs(math.log(smooth / before[1])), smoothing.beta)
        return super().smooth_laplace(label, private, lattice, smoothing, shown, **rest)

    def flip(self, label, bits, **rest):
        before = self._noise.moves.next(bits.copy())
        if before is not None:
            self._noise.hold(label, int((before != bits).sum()), 1)
        return super().flip(label, bits, **rest)

    def solved(self, problem, hidden):
        """Noise in an objective hides gradients: those at the released weights are compared."""
        weights = super().solved(problem, hidden)
        gradient = problem.gradient(weights)
        before = self._noise.moves.next(gradient)
        if before is not None:
            l1, l2 = problem.reach
            self._noise.hold("gradient", np.abs(gradient - before).sum(), 2 * l1)
            self._noise.hold("gradient", np.linalg.norm(gradient - before), 2 * l2)
        self._noise.solving = True
        return weights


class Frozen(Watch):
    """A watch that measures; ``worst`` is the largest move over what was declared."""

    releaser = Measuring

    def __init__(self, seed):
        super().__init__(SeededNoise(seed))
        self.moves, self.solving, self.worst = Moves(), False, 0.0

    def again(self):
        self.moves.place, self.solving = 0, False
        self.repeat()
        return self

    def hold(self, label, moved, declared):
        assert moved <= declared, f"{label}: moved by {moved}, declared {declared}"
        self.worst = max(self.worst, float(moved) / float(declared))


def frame(n, seed):
    rng = np.random.default_rng(seed)
    x1, x2 = rng.random(n), rng.uniform(-1, 1, n)
    t = rng.random(n) < 0.3 + 0.4 * x1
    y = np.clip(0.3 * x1 + 0.2 * t + 0.4 * rng.random(n), 0, 1)
    return pd.DataFrame({"y": y, "t": t, "x1": x1, "x2": x2, "g": rng.choice(list("abc"), n)})


def neighbours(rng, n, public):
    """A record with extreme values in every column that is private."""
    data = frame(n, int(rng.integers(1 << 30)))
    other, j = data.copy(), int(rng.integers(n))
    other.loc[j, "y"] = float(rng.choice([-1e9, 0.0, 1.0, 1e9]))
    if "covariates" not in public:
        other.loc[j, "x1"] = float(rng.choice([-50.0, 0.0, 1.0, 1e6]))
        other.loc[j, "x2"] = float(rng.choice([-1.0, 1.0]))
        other.loc[j, "g"] = str(rng.choice(list("abc")))
    if "treatment" not in public:
        other.loc[j, "t"] = not data.loc[j, "t"]
    return data, other


def path(method, function="dp_ate", formula=None, n=60, bounds=BOUNDS, **given):
    return method, function, formula, n, bounds, given


PATHS = {
    "diff_in_means": path("diff_in_means"),
    "diff_in_means, public arms": path("diff_in_means", arms="public"),
    "diff_in_means, label": path("diff_in_means", level="label"),
    "diff_in_means, no variance": path("diff_in_means", variance=False),
    "diff_in_means, shares": path("diff_in_means", shares={"counts": 0.6}),
    "diff_in_means, found bounds": path("diff_in_means", n=1500, bounds={}, epsilon=4.0),
    "private_psm": path("private_psm"),
    "private_psm, rich": path("private_psm", formula=RICH),
    "private_psm, one neighbour": path("private_psm", neighbors=1, match_limit=1),
    "private_psm, uneven limits": path("private_psm", match_limit=(1, 3), penalty=0.5),
    "private_psm, not debiased": path("private_psm", debias=False),
    "private_psm, label": path("private_psm", level="label"),
    "private_psm, label, exhausted": path("private_psm", level="label", match_limit=1),
    "private_psm, label, rich": path("private_psm", level="label", formula=RICH),
    "private_psm, label, public ranges": path("private_psm", level="label", bounds={"y": (0, 1)}),
    "private_ipw": path("private_ipw"),
    "private_ipw, rich": path("private_ipw", formula=RICH),
    "private_ipw, no variance": path("private_ipw", variance=False),
    "private_ipw, label": path("private_ipw", level="label"),
    "private_ipw, label, ATT": path("private_ipw", "dp_att", level="label"),
    "private_ipw, ATT": path("private_ipw", "dp_att"),
    "private_ipw, ATC": path("private_ipw", "dp_atc"),
    "private_ipw, split": path("private_ipw", split=True),
    "private_ipw, output": path("private_ipw", propensity="output", penalty=0.1),
    "private_ipw, output, Gaussian": path("private_ipw", propensity="output", **DELTA),
    "private_ipw, Gaussian": path("private_ipw", noise="gaussian", **DELTA),
    "private_ipw, Laplace": path("private_ipw", noise="laplace", **DELTA),
    "private_ipw, the paper's": path(
        "private_ipw", propensity="output", split=True, centre="none", noise="gaussian", **DELTA
    ),
    "private_ipw, middle": path("private_ipw", centre="middle", clip=0.3),
    "private_ipw, found bounds": path(
        "private_ipw", n=4000, bounds={"g": list("abc")}, epsilon=8.0
    ),
    "private_aipw": path("private_aipw"),
    "private_aipw, blocks": path("private_aipw", n=3000, adjust="all", blocks=3),
    "private_aipw, Gaussian": path("private_aipw", n=3000, adjust="all", blocks=3, **DELTA),
    "private_aipw, ATT": path("private_aipw", "dp_att", n=3000, adjust="all", blocks=5),
    "private_aipw, ATC": path("private_aipw", "dp_atc", n=3000, adjust="all", regression=True),
    "private_aipw, regression only": path("private_aipw", n=400, blocks=1, regression=True),
    "private_aipw, none": path("private_aipw", adjust="none"),
    "global_matching": path("global_matching"),
    "global_matching, round robin": path("global_matching", weights="round_robin"),
    "smooth_matching": path("smooth_matching", **DELTA),
    "smooth_matching, round robin": path("smooth_matching", weights="round_robin", **DELTA),
    "smooth_matching, the paper's": path("smooth_matching", paper_constants=True, **DELTA),
    "smooth_matching, smooth variance": path(
        "smooth_matching", variance_noise="smooth", n=300, **DELTA
    ),
    "smooth_matching, no variance": path("smooth_matching", variance=False, **DELTA),
    "sample_aggregate": path("sample_aggregate", blocks=3),
    "sample_aggregate, rich": path("sample_aggregate", formula=RICH, n=200),
    "sample_aggregate, ATT": path("sample_aggregate", "dp_att", estimator="ipw"),
    "sample_aggregate, ATC": path("sample_aggregate", "dp_atc", estimator="regression"),
    "model_folds": path("model_folds", folds=4),
    "model_folds, rich": path("model_folds", formula=RICH, n=200, effect_range=(-0.2, 0.3)),
    "model_folds, regression": path("model_folds", estimator="regression", **DELTA),
    "model_folds, the paper's": path(
        "model_folds", average="predictions", estimator="regression", folds=15
    ),
    "model_folds, the paper's IPW": path("model_folds", average="predictions", estimator="ipw"),
    "model_folds, no variance": path("model_folds", variance=False, estimator="ipw"),
    "sample_aggregate, Gaussian": path("sample_aggregate", effect_range=(-0.2, 0.2), **DELTA),
}


def test_every_method_level_and_estimand_has_a_path():
    wanted = {
        (name, level, estimand)
        for name, spec in SPECS.items()
        for level in spec.levels
        for estimand in spec.estimands
        if level == "sample" or estimand != "ATC"
    }
    have = {
        (method, given.get("level", "sample"), function.removeprefix("dp_").upper())
        for method, function, _, _, _, given in PATHS.values()
    }
    assert wanted <= have


def run(noise, data, method, function, formula, bounds, given):
    formula = formula or (STRATA if SPECS[method].needs_strata else PLAIN)
    call = getattr(dpe, function)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit = call(formula, data, method, **{"epsilon": 1.0, **given}, bounds=bounds, seed=noise)
    return fit.to_dict(), str(fit), repr(fit), [str(w.message) for w in caught]


@pytest.mark.parametrize(
    ("method", "function", "formula", "n", "bounds", "given"), PATHS.values(), ids=PATHS
)
def test_neighbours_move_no_release_by_more_than_declared(
    method, function, formula, n, bounds, given
):
    level = SPECS[method].check_level(given.get("level"))
    options = {k: v for k, v in given.items() if k == "arms"}
    public = SPECS[method].make_options(options).public(level)
    rng, worst = np.random.default_rng(7), 0.0
    for trial in range(8 if n <= 60 else 4):
        data, other = neighbours(rng, n, public)
        noise = Frozen(trial)
        first = run(noise, data, method, function, formula, bounds, given)
        second = run(noise.again(), other, method, function, formula, bounds, given)
        noise.finished()
        assert first == second
        worst = max(worst, noise.worst)
    assert 0.05 < worst <= 1.0


BALANCE = {
    "plain": {"adjusted": False},
    "ATE": {"adjusted": True},
    "ATT": {"adjusted": True, "estimand": "ATT", "bins": 10},
    "ATC, Gaussian": {"adjusted": True, "estimand": "ATC", **DELTA},
    "rich": {"formula": RICH},
    "found bounds": {"bounds": {"g": list("abc")}, "epsilon": 8.0, "n": 2000},
}


@pytest.mark.parametrize("given", BALANCE.values(), ids=BALANCE)
def test_balance_on_neighbours(given):
    """The outcome may differ too: it is not read."""
    given = {"formula": PLAIN, "bounds": BOUNDS, "epsilon": 1.0, "n": 60, **given}
    formula, n = given.pop("formula"), given.pop("n")
    rng, worst = np.random.default_rng(8), 0.0
    for trial in range(8 if n <= 60 else 4):
        noise, shown = Frozen(trial), []
        for k, data in enumerate(neighbours(rng, n, frozenset())):
            found = dpe.dp_balance(formula, data, seed=noise.again() if k else noise, **given)
            shown.append((found.to_json(), str(found), repr(found), found.overlap().to_dict()))
        noise.finished()
        assert shown[0] == shown[1]
        worst = max(worst, noise.worst)
    assert 0.05 < worst <= 1.0


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_two_calls_on_one_ledger(make):
    """Charges, order of columns and kind of frame: nothing but releases depends on the record."""
    rng = np.random.default_rng(3)
    noise, shown = Frozen(1), []
    for k, data in enumerate(neighbours(rng, 60, frozenset())):
        noise = noise.again() if k else noise
        ledger = dpe.Ledger(2.0)
        declared = dpe.declare(make(data.to_dict("list")), BOUNDS)
        for method in ("diff_in_means", "private_ipw"):
            fit = dpe.dp_ate(PLAIN, declared, method, epsilon=1, ledger=ledger, seed=noise)
            shown.append((fit.to_json(), fit.tidy().to_dict("list"), fit.glance().to_dict("list")))
        shown.append((repr(ledger), [s.to_dict() for s in ledger.spends]))
    noise.finished()
    assert shown[:3] == shown[3:]


def test_the_replay_has_teeth(monkeypatch):
    """A release that moves by more than declared, or that shows something else, is found."""
    from dpeffects.privacy.arms import ArmReleases
    from dpeffects.privacy.sums import Grid

    data, other = neighbours(np.random.default_rng(5), 60, frozenset())
    other["y"] = data["y"]
    other.loc[0, "y"], data.loc[0, "y"] = 0.0, 1.0
    given = ("diff_in_means", "dp_ate", "y ~ t", BOUNDS)
    span = Grid.span
    with monkeypatch.context() as patch:
        patch.setattr(Grid, "span", property(lambda self: span.fget(self) // 2))
        noise = Frozen(0)
        run(noise, data, *given, {})
        with pytest.raises(AssertionError, match="declared"):
            run(noise.again(), other, *given, {})
    right = ArmReleases.treated_count

    def told(self, share):
        return right(self, share if self._source.outcome[0] > 0.5 else "estimate")

    monkeypatch.setattr(ArmReleases, "treated_count", told)
    noise = Frozen(0)
    run(noise, data, *given, {"variance": False})
    with pytest.raises((Impossible, dpe.DPEffectsError)):
        run(noise.again(), other, *given, {"variance": False})
