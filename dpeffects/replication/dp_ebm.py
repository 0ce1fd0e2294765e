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
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpeffects.estimators.option_checks import check_choice, check_clip
from dpeffects.estimators.spec import NO_CONFOUNDER, Facts, MethodSpec, Options, with_own_delta
from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.privacy.curator import Curator
from dpeffects.replication.boosted_effects import SHARES, AdditiveEffect, released
from dpeffects.unproved import boosting

LEARNERS = tuple(SHARES)
_NO_INTERVAL = Unavailable("the error of a boosted model is not known")


@dataclass(frozen=True)
class DPEBMOptions(Options):
    """Options of DP-EBM.

    ``learner``: "s" (default), "t", "dr" or "r". ``clip``: propensities are kept within
    [clip, 1 - clip]; the range of what "dr" and "r" regress on, and with it their noise, grows as
    1 / clip.
    """

    learner: str = "s"
    clip: float = 0.1

    def needs_memory(self) -> str:
        """The library gets all rows."""
        return "the library gets all rows at once"

    def __post_init__(self) -> None:
        check_choice("learner", self.learner, LEARNERS)
        check_clip(self.clip, 0.01)

    def resolve(self, facts: Facts) -> DPEBMOptions:
        """Refuse a missing library, and a delta that it cannot hold."""
        boosting.require(facts.budget)
        return self


def shares(level: str, options: DPEBMOptions) -> dict[str, float]:
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
        caution=warning(effect),
    )


def warning(effect: AdditiveEffect) -> str:
    """What to say where predictions can leave the range that the library counts on."""
    if effect.largest <= 1.0:
        return ""
    return "RESIDUALS BEYOND THE RANGE: more may have been spent than the library charges"


SPEC = MethodSpec(
    name="dp_ebm",
    title="DP-EBM",
    about="boosted additive models (interpret), averaged over their released bins",
    assumes=f"{NO_CONFOUNDER}; outcomes are sums of curves of its columns",
    estimands=("ATE",),
    levels=("sample",),
    options=DPEBMOptions,
    shares=shares,
    uses_delta=with_own_delta(shares),
    fit=fit,
    citation=(
        "Nori, Caruana, Bu, Shen and Kulkarni (2021), Accuracy, interpretability, and differential "
        "privacy via explainable boosting; Niu, Nori, Quistorff, Caruana, Ngwe and Kannan (2022), "
        "Differentially private estimation of heterogeneous causal effects."
    ),
    guarantee="library",
    needs_delta=True,
)
