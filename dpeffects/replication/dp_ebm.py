"""DP-EBM: effects from boosted additive models of the library interpret (Niu et al.).

Additive models with a curve for each covariate, boosted with Gaussian noise in every step. What is
released is a table of scores for each covariate, so that effects at any point, and their mean over
the released bins, cost nothing more.

- "s": one model of the outcome, the treatment a feature. Additive, so the effect is a constant.
- "t": a model for each arm. The library takes the number of records as public, and the size of an
  arm is not: so both models get all records, those of the other arm at a place of their own, and
  share the budget.
- "dr": propensity and outcome models, then a model of doubly robust pseudo-outcomes. All stages see
  all records and pay for it: no split can depend on values. (The notebook of the literature
  stratifies its split on the treatment: one record then moves others between the halves.)
- "r": propensity and a model of the outcome over both arms, then a model of the ratio of what both
  leave, weighted by what the propensity leaves, squared. The library would read the largest weight
  and the sum of weights off the data: records are thinned by a public sequence instead.

The library means datasets that differ in the presence of one record; replacing one is two such
steps, and half of epsilon is given (unproved/CLAIMS.md). Bounds and types are declared. It assumes
residuals within the range of the target but does not clip them, and noise can carry predictions
beyond that range: then a record weighs more than the library charges. The summary shows how far
that could have gone in the models that were released, and warns beyond 1.

The library's 300 steps of rate 0.01 leave effects somewhat shrunk, also without noise. There is no
interval: how noise in the steps adds up is not known.

Effects from additive models: S-, T-, DR- and R-learner, each stage on all records.

Which records a stage sees never depends on their values, and its number of records is n: the
library takes that number as public. In the model of an arm the records of the other arm are all at
the same place, left of every covariate, where they have one score and say nothing of the rest.

The R-learner needs weights, whose largest value and sum the library would read off the data. So
records are thinned instead: one of weight w stays where its position in a public sequence is below
w, and stands aside like those of the other arm where it is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, Interval
from dpeffects.errors import BudgetError
from dpeffects.estimators.option_checks import check_clip, checked, choice
from dpeffects.estimators.spec import NO_CONFOUNDER, MethodSpec, Options, PublicInfo
from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.privacy.curator import Curator
from dpeffects.replication.unproved import boosting
from dpeffects.replication.unproved.boosting import Additive, BoostingStage, RecordFunction, boosted
from dpeffects.replication.unproved.unproved_releases import varying

SHARES: dict[str, dict[str, float]] = {
    "s": {"outcome": 1.0},
    "t": {"treated": 0.5, "control": 0.5},
    "dr": {"propensity": 0.2, "treated": 0.2, "control": 0.2, "effect": 0.4},
    "r": {"propensity": 0.2, "outcome": 0.3, "effect": 0.5},
}
_EPSILONS = (0.01, 1000.0)
"""The library searches for its noise by bisection, with exponentials of epsilon, within limits that
smaller and larger budgets leave."""
_UNIT = (0.0, 1.0)
_GRID = (np.arange(62) + 0.5) / 62
"""Middles of the cells that the library's bins are made of."""


@dataclass(frozen=True)
class AdditiveEffect:
    """base + a curve for each covariate, on a grid; ``margins`` are the records' shares there.

    ``used`` are the encoded columns that vary. ``largest`` is the largest residual that was
    possible under a released model of outcomes or effects, in ranges of its target.
    """

    base: float
    used: list[int]
    curves: FloatArray
    margins: FloatArray
    largest: float

    def __call__(self, covariates: FloatArray) -> FloatArray:
        """Effects at encoded rows."""
        inside = covariates[:, self.used] * len(_GRID)
        cells = np.clip(inside.astype(np.int64), 0, len(_GRID) - 1)
        return np.asarray(self.base + self.curves[np.arange(len(self.used)), cells].sum(axis=1))

    @property
    def average(self) -> float:
        """Mean over the released margins."""
        return self.base + float((self.curves * self.margins).sum())


def released(curator: Curator, learner: str, clip: float) -> AdditiveEffect:
    """Release the stages of a learner."""
    least, most = _EPSILONS
    for share in SHARES[learner]:
        if not least <= curator.epsilon(share) <= most:
            raise BudgetError(
                f"dp_ebm: epsilon of the share {share!r} must be from {least:g} to {most:g}; the "
                "library finds no scale for its noise beyond"
            )
    return {"s": _s, "t": _t, "dr": _dr, "r": _r}[learner](curator, clip, varying(curator))


def _s(curator: Curator, clip: float, used: list[int]) -> AdditiveEffect:
    """One model with the treatment as a feature: a constant effect."""

    def features(x: FloatArray, t: BoolArray, y: FloatArray) -> FloatArray:
        return np.column_stack([t.astype(np.float64), x[:, used]])

    model = boosted(
        curator, BoostingStage("outcome model", features, _scaled(curator), _UNIT), "outcome"
    )
    none, one = model.term(0, np.array([0.0, 1.0]))
    nothing = np.zeros((len(used), len(_GRID)))
    return _effect(curator, float(one - none), nothing, nothing, _reach(model, _UNIT))


def _t(curator: Curator, clip: float, used: list[int]) -> AdditiveEffect:
    """A model for each arm."""
    one, none = (_arm(curator, arm, used) for arm in (True, False))
    at, every = _present(_GRID), range(len(used))
    curves = np.array([one.term(j, at) - none.term(j, at) for j in every])
    weights = np.array([one.density(j, at) + none.density(j, at) for j in every])
    largest = max(_reach(one, _UNIT), _reach(none, _UNIT))
    return _effect(curator, one.intercept - none.intercept, curves, weights, largest)


def _dr(curator: Curator, clip: float, used: list[int]) -> AdditiveEffect:
    """A model of doubly robust pseudo-outcomes."""
    chance = _chance(curator, clip, used)
    models = [_arm(curator, arm, used) for arm in (True, False)]
    scaled, covariates, end = _scaled(curator), _columns(used), 1.0 + 1.0 / clip

    def pseudo(x: FloatArray, t: BoolArray, y: FloatArray) -> FloatArray:
        e = chance(x, t, y)
        one, none = (np.clip(model(_present(x[:, used])), 0.0, 1.0) for model in models)
        rest = scaled(x, t, y) - np.where(t, one, none)
        return np.asarray(one - none + np.where(t, 1.0 / e, -1.0 / (1.0 - e)) * rest)

    model = boosted(
        curator, BoostingStage("effect model", covariates, pseudo, (-end, end)), "effect"
    )
    curves = np.array([model.term(j, _GRID) for j in range(len(used))])
    weights = np.array([model.density(j, _GRID) for j in range(len(used))])
    largest = max(_reach(model, (-end, end)), *(_reach(arm, _UNIT) for arm in models))
    return _effect(curator, model.intercept, curves, weights, largest)


def _r(curator: Curator, clip: float, used: list[int]) -> AdditiveEffect:
    """A model of residual outcome over residual treatment, weighted by the latter's square."""
    chance = _chance(curator, clip, used)
    scaled, covariates, end = _scaled(curator), _columns(used), 1.0 / clip
    mean = boosted(curator, BoostingStage("outcome model", covariates, scaled, _UNIT), "outcome")

    def stays(x: FloatArray, t: BoolArray, y: FloatArray) -> BoolArray:
        weights = ((t - chance(x, t, y)) / (1.0 - clip)) ** 2
        return np.asarray(spread(len(x)) < weights)

    def features(x: FloatArray, t: BoolArray, y: FloatArray) -> FloatArray:
        return np.where(stays(x, t, y)[:, None], _present(x[:, used]), 0.0)

    def ratio(x: FloatArray, t: BoolArray, y: FloatArray) -> FloatArray:
        rest = scaled(x, t, y) - np.clip(mean(x[:, used]), 0.0, 1.0)
        return np.where(stays(x, t, y), rest / (t - chance(x, t, y)), 0.0)

    model = boosted(curator, BoostingStage("effect model", features, ratio, (-end, end)), "effect")
    curves = np.array([model.term(j, _present(_GRID)) for j in range(len(used))])
    weights = np.array([mean.density(j, _GRID) for j in range(len(used))])  # of all records
    largest = max(_reach(model, (-end, end)), _reach(mean, _UNIT))
    return _effect(curator, model.intercept, curves, weights, largest)


def spread(size: int) -> FloatArray:
    """Public numbers in [0, 1), every stretch of which fills it evenly: i times the golden ratio.

    Examples
    --------
    >>> spread(5).round(2)
    array([0.  , 0.62, 0.24, 0.85, 0.47])
    """
    return np.asarray(np.arange(size) * ((np.sqrt(5.0) - 1.0) / 2.0) % 1.0)


def _chance(curator: Curator, clip: float, used: list[int]) -> RecordFunction:
    """Release a model of the treatment; its chances are within [clip, 1 - clip]."""

    def arms(x: FloatArray, t: BoolArray, y: FloatArray) -> FloatArray:
        return t.astype(np.float64)

    logits = boosted(
        curator, BoostingStage("propensity model", _columns(used), arms, None), "propensity"
    )

    def chance(x: FloatArray, t: BoolArray, y: FloatArray) -> FloatArray:
        within = np.clip(logits(x[:, used]), -30.0, 30.0)
        return np.clip(1.0 / (1.0 + np.exp(-within)), clip, 1.0 - clip)

    return chance


def _columns(used: list[int]) -> RecordFunction:
    return lambda x, t, y: x[:, used]


def _arm(curator: Curator, arm: bool, used: list[int]) -> Additive:
    """The outcome in one arm; records of the other are at 0, with the middle of the range."""
    scaled = _scaled(curator)

    def features(x: FloatArray, t: BoolArray, y: FloatArray) -> FloatArray:
        return np.where((t == arm)[:, None], _present(x[:, used]), 0.0)

    def target(x: FloatArray, t: BoolArray, y: FloatArray) -> FloatArray:
        return np.where(t == arm, scaled(x, t, y), 0.5)

    name = "treated" if arm else "control"
    return boosted(curator, BoostingStage(f"outcome model, {name}", features, target, _UNIT), name)


def _present(x: FloatArray) -> FloatArray:
    """Where records of the arm are: right of 0, so that the library's first bin ends between."""
    return 0.1 + 0.9 * x


def _effect(
    curator: Curator, base: float, curves: FloatArray, weights: FloatArray, largest: float
) -> AdditiveEffect:
    """In units of the outcome; weights become shares."""
    lower, upper = curator.outcome_range
    shares = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
    scale = upper - lower
    return AdditiveEffect(scale * base, varying(curator), scale * curves, shares, largest)


def _reach(model: Additive, interval: Interval) -> float:
    """The largest residual that is possible under a model, in ranges of the target."""
    (low, high), (lower, upper) = model.extremes(), interval
    return max(upper - low, high - lower) / (upper - lower)


def _scaled(curator: Curator) -> RecordFunction:
    """Outcomes in [0, 1]."""
    lower, upper = curator.outcome_range
    return lambda x, t, y: np.asarray((y - lower) / (upper - lower))


_NO_INTERVAL = Unavailable("the error of a boosted model is not known")


@dataclass(frozen=True)
class DPEBMOptions(Options):
    """Options of DP-EBM.

    ``learner``: "s" (default), "t", "dr" or "r". ``clip``: propensities are kept within
    [clip, 1 - clip]; the range of what "dr" and "r" regress on, and with it their noise, grows as
    1 / clip.
    """

    learner: str = choice(*SHARES)
    clip: float = checked(0.1, check_clip, 0.01)

    def needs_memory(self) -> str:
        """The library gets all rows."""
        return "the library gets all rows at once"

    def resolve(self, facts: PublicInfo) -> DPEBMOptions:
        """Refuse a missing library, and a delta that it cannot hold."""
        boosting.require(facts.budget)
        return self


def budget_split(level: str, options: DPEBMOptions) -> dict[str, float]:
    """Split of the budget among the stages."""
    return dict(SHARES[options.learner])


def fit(curator: Curator, options: DPEBMOptions, estimand: str) -> Estimate:
    """Release the models, and average the effect over the released bins."""
    effect = released(curator, options.learner, options.clip)
    lower, upper = curator.outcome_range
    return Estimate(
        value=float(np.clip(effect.average, lower - upper, upper - lower)),
        sampling=_NO_INTERVAL,
        gaussian=float("nan"),
        details={"largest residual, in ranges": round(effect.largest, 2)},
        warnings=method_warnings(effect),
    )


def method_warnings(effect: AdditiveEffect) -> str:
    """What to say where predictions can leave the range that the library counts on."""
    if effect.largest <= 1.0:
        return ""
    return "RESIDUALS BEYOND THE RANGE: more may have been spent than the library charges"


SPEC = MethodSpec(
    name="dp_ebm",
    title="DP-EBM",
    about="explainable boosting machines (interpret), outcome regression averaged over covariates",
    assumes=f"{NO_CONFOUNDER}; outcomes follow an additive model of its terms",
    estimands=("ATE",),
    levels=("sample",),
    options=DPEBMOptions,
    budget_split=budget_split,
    uses_delta=lambda options, facts: dict.fromkeys(budget_split(facts.level, options)),
    fit=fit,
    citation=(
        "Nori, Caruana, Bu, Shen and Kulkarni (2021), Accuracy, interpretability, and differential "
        "privacy via explainable boosting; Niu, Nori, Quistorff, Caruana, Ngwe and Kannan (2022), "
        "Differentially private estimation of heterogeneous causal effects."
    ),
    guarantee="library",
    needs_delta=True,
)
