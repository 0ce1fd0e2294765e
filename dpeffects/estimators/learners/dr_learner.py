"""DR-learner with private nuisances: a regression on doubly robust pseudo-outcomes.

With propensity p(x) and mean outcomes m_1(x), m_0(x) of the arms it fits g(x) to
m_1 - m_0 + (a - p) (y - m_a) / (p (1 - p)). By group it is the mean effect. It has less error than
the R-learner where overlap is good.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dpeffects.estimators.learners import r_learner

SPEC = replace(
    r_learner.SPEC,
    name="dr_learner",
    title="DR-learner with private nuisances",
    about="a function of the covariates from pseudo-outcomes; less error where overlap is good",
    fit=partial(r_learner.fit, by_arm=True),
)
