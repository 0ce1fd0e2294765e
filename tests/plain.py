"""Classic estimators without privacy (statsmodels, pandas), which private ones are held against.

None of this is in the package: `dpeffects.reference` runs the private call itself without noise,
and these say whether that is right.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
import statsmodels.api as sm

from dpeffects.design import table_reader as design
from dpeffects.design.frames import written_out
from dpeffects.estimands import ESTIMANDS
from dpeffects.formula import parse
from dpeffects.formula.expression import evaluate
from dpeffects.formula.ranges import middle
from dpeffects.replication.nearest import match, pairs
from dpeffects.replication.sample_aggregate import on_all


class Plain(NamedTuple):
    """An estimate and its standard error."""

    estimate: float
    std_error: float


def raw(table):
    """Outcome and covariates as they are; missing covariates are in the middle of their range."""
    made = table.design
    filled = {
        name: np.where(np.isnan(table.batch.numeric[name]), middle(made.bounds.interval(name)), x)
        for name, x in table.batch.numeric.items()
        if name in made.formula.flags
    }
    outcome = evaluate(made.formula.outcome, table.batch.numeric)
    return outcome, made.encoding.raw_matrix({**table.batch.numeric, **filled}, table.batch.codes)


def plain(formula, data, method="auto", *, estimand="ATE", bounds=None, **options):
    """The classic estimate that a method aims at, on outcomes clipped to declared bounds."""
    parsed = parse(written_out(formula, data, bounds))
    table = design.read(data, parsed, bounds, public=("outcome", "covariates", "treatment"))
    outcome, rows = raw(table)
    if not set(parsed.outcome_columns) & set(table.design.missing):
        outcome = np.clip(outcome, *table.design.recipe.outcome_range)
    return ESTIMATORS[method](outcome, table.batch.treated, rows, estimand=estimand, **options)


def means(outcome, treated, rows=None, **options):
    """A difference in means with its unequal-variance standard error."""
    model = sm.OLS(outcome, sm.add_constant(treated.astype(float))).fit(cov_type="HC2")
    return Plain(float(model.params[1]), float(model.bse[1]))


def by_arm(outcome, treated, rows, estimand="ATE", **options):
    """Least squares in each arm, predicted for the records of the estimand."""
    x = np.mean(rows[{"ATE": slice(None), "ATT": treated, "ATC": ~treated}[estimand]], axis=0)
    fits = [sm.OLS(outcome[arm], rows[arm]).fit(cov_type="HC2") for arm in (treated, ~treated)]
    one, other = (float(x @ fit.params) for fit in fits)
    return Plain(one - other, math.sqrt(sum(float(x @ fit.cov_params() @ x) for fit in fits)))


def aipw(outcome, treated, rows, estimand="ATE", **options):
    """Augmented inverse probability weighting."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # separation and redundant columns still give predictions
        logit = sm.GLM(treated.astype(float), rows, family=sm.families.Binomial())
        score = np.asarray(logit.fit().predict(rows))  # by a pseudo-inverse: any columns will do
        m1, m0 = (
            np.asarray(sm.OLS(outcome[arm], rows[arm]).fit().predict(rows))
            for arm in (treated, ~treated)
        )
    score = np.clip(score, 0.01, 0.99)
    if estimand == "ATE":
        effect = m1 - m0 + np.where(treated, (outcome - m1) / score, (m0 - outcome) / (1 - score))
        return Plain(float(effect.mean()), float(effect.std() / math.sqrt(outcome.size)))
    odds = score / (1 - score) if estimand == "ATT" else (1 - score) / score
    own = treated if estimand == "ATT" else ~treated
    other = m0 if estimand == "ATT" else m1
    part = np.where(own, outcome - other, -odds * (outcome - other)) / own.mean()
    value = float(part.mean()) * (1 if estimand == "ATT" else -1)
    return Plain(value, float(part.std() / math.sqrt(outcome.size)))


def matched(outcome, treated, rows, neighbors=5, estimand="ATE", **options):
    """Matching on a logistic propensity score, without limits."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # separation and flat likelihoods still give scores
        model = sm.Logit(treated.astype(float), rows).fit(disp=0, maxiter=200)
    scores = np.asarray(model.predict(rows))
    matches = match(scores, treated, neighbors)
    sign = np.where(treated, 1.0, -1.0)
    imputed = np.stack([outcome[matches.neighbours[:, k]] for k in range(neighbors)]).mean(axis=0)
    effects = sign * (outcome - imputed)
    partner = pairs(scores, treated)
    spread = np.where(partner >= 0, (outcome - outcome[partner]) ** 2 / 2.0, 0.0)
    own = ESTIMANDS[estimand].population(treated, ~treated)
    serves = ESTIMANDS[estimand].population(~treated, treated)
    extra = (own + serves * matches.weight) ** 2 - own - serves * matches.weight_sq
    effects = effects[own]
    variance = np.sum((effects - effects.mean()) ** 2) + np.sum(extra * spread)
    return Plain(float(effects.mean()), math.sqrt(variance / effects.size**2))


def weighted(outcome, treated, rows, *, estimand="ATE", clip=None, centre="arms", **options):
    """Inverse probability weighting by a logit, with the centres of the private one and a clip.

    The standard error takes the propensities as known, as the private one does.
    """
    logit = sm.Logit(treated.astype(float), rows).fit(disp=0, maxiter=200)
    e = np.clip(np.asarray(logit.predict(rows)), *ESTIMANDS[estimand].clip_limits(clip or 0.0))
    middle_of = (outcome.min() + outcome.max()) / 2.0 if centre == "middle" else 0.0
    arms = (outcome[treated].mean(), outcome[~treated].mean())
    one, zero = arms if centre == "arms" else (middle_of, middle_of)
    a, b = ESTIMANDS[estimand].weights(e)
    part = ESTIMANDS[estimand].population(1.0 * treated, 1.0 - treated)
    terms = np.where(treated, a * (outcome - one), -b * (outcome - zero))
    extra = terms.sum() / part.sum()
    variance = np.sum((terms - extra * part) ** 2) / part.sum() ** 2
    return Plain(float(one - zero + extra), math.sqrt(variance))


def stratified(outcome, treated, rows, **options):
    """Exact matching by differences in means within strata.

    The standard error is conditional on covariates and treatments; an arm of one record is given
    the average variance within arms.
    """
    assert np.isin(rows, (0.0, 1.0)).all(), "matching on strata needs discrete covariates"
    _, stratum = np.unique(rows, axis=0, return_inverse=True)
    frame = pd.DataFrame({"stratum": stratum.reshape(-1), "y": outcome})
    arms = [
        frame[arm].groupby("stratum")["y"].agg(["mean", "var", "size"])
        for arm in (treated, ~treated)
    ]
    both = arms[0].merge(arms[1], on="stratum", suffixes=("_t", "_c"))
    size = both["size_t"] + both["size_c"]
    known = both[["var_t", "var_c"]].to_numpy()
    known = known[np.isfinite(known)]  # an arm of one record has none
    typical = float(known.mean()) if known.size else 0.0
    spread = both["var_t"].fillna(typical) / both["size_t"]
    spread += both["var_c"].fillna(typical) / both["size_c"]
    effect = float((size * (both["mean_t"] - both["mean_c"])).sum()) / outcome.size
    return Plain(effect, math.sqrt(float((size**2 * spread).sum())) / outcome.size)


def learnt(outcome, treated, rows, *, estimand="ATE", **options):
    """The estimator of blocks and folds on all records at once."""
    return Plain(*on_all(outcome, treated, rows, estimand=estimand, **options))


ESTIMATORS = {
    **dict.fromkeys(("auto", "one_step"), aipw),
    **dict.fromkeys(("diff_in_means", "clipped_contrast"), means),
    **dict.fromkeys(("global_matching", "smooth_matching"), stratified),
    **dict.fromkeys(("dpci", "model_folds", "sample_aggregate", "synthetic", "dp_ebm"), learnt),
    "regression": by_arm,
    "private_ipw": weighted,
    "private_psm": matched,
}
