"""The first stage: private models of treatment and outcome.

1. Noisy counts and sums by arm give the share of treated, the arm means and the average effect that
   everything else is shrunk towards; noisy squares tell how much of the outcome lies at the ends of
   its range, which sets the thresholds of Huber's loss.
2. A logistic propensity model with noise in its objective.
3. A function of the mean outcome (one for each arm for a DR-learner) on the kernel's features, by
   Huber's loss with noise in its objective.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dpeffects.cate import plan
from dpeffects.cate.options import CateOptions
from dpeffects.estimators._propensity import share_treated
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.erm import default_strength, least_strength
from dpeffects.privacy.kernel import Nuisance
from dpeffects.privacy.weighting import Propensity

SHARES = {"counts": 0.03, "arms": 0.09, "ends": 0.02, "propensity": 0.13, "outcome": 0.13}
_THRESHOLD = 0.2
"""Least threshold of Huber's loss for outcomes, as a share of their range."""
_SPREAD = 0.2
"""Standard deviation of mean outcomes that the penalty is planned for, as a share of the range."""


def first_stage(curator: Curator, options: CateOptions, *, by_arm: bool) -> Nuisance:
    """Release counts, arm means, a propensity model and an outcome function."""
    n, d = curator.n, curator.width
    lower, upper = curator.outcome_range
    count = curator.treated_count("counts")
    share = share_treated(curator, count)
    sums = curator.arm_sums("arms")
    half = (upper - lower) / 2.0
    means = lower + half + np.clip(sums.value / (n * np.array([share, 1.0 - share])), -half, half)
    squares = curator.arm_squares("ends")
    ends = min(max(float(np.sum(squares.value)) / n + 0.5, 0.0), 1.0)
    threshold = max(threshold_for(ends), _THRESHOLD)
    epsilon, delta = curator.epsilon("propensity"), curator.delta("propensity")
    offset = math.log(share / (1.0 - share))
    weights = curator.propensity_model(default_strength(n, d, epsilon, delta), offset, "propensity")
    base = Nuisance(
        propensity=Propensity.within(weights.value, offset, (options.clip, 1.0 - options.clip)),
        means=(float(means[0]), float(means[1])),
        outcome_range=curator.outcome_range,
        features=options.smooth(d),
        outcome=np.zeros(0),
        by_arm=by_arm,
        threshold=threshold * (upper - lower),
        ends=ends,
    )
    epsilon, delta = curator.epsilon("outcome"), curator.delta("outcome")
    size = base.features.size * (2 if by_arm else 1)
    reach = (math.sqrt(base.features.size), 1.0)  # a record has features of its own arm only
    noise = plan.gradient_noise(reach, epsilon, delta, size)
    strength, _ = plan.strength(
        base.features,
        d,
        information=n / (2.0 if by_arm else 1.0),
        noise=noise,
        spread=_SPREAD / threshold,
        least=least_strength(epsilon, 1.0),
    )
    return replace(base, outcome=curator.outcome_function(base, strength, "outcome").value)


def threshold_for(ends: float) -> float:
    """Threshold of Huber's loss, as a share of the outcome's range, for a mean square ``ends``.

    Outcomes scaled to [-1, 1] have a mean square of 1 if they are binary, which needs the whole
    range, near 1 if they crowd at one end, 1/3 if they spread evenly, and less for a bell.
    """
    return min(1.1 * ends**2, 1.0)
