"""Outcomes that are missing at random: records that have one stand for those that do not.

A logistic model of who has an outcome, given covariates and treatment, is released first. Then rows
without an outcome count as nothing, and the others by the inverse of their chance to have one, over
the largest such weight. Everything that follows is a sum over weighted rows like any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray
from dpeffects.design.arms import TREATED
from dpeffects.design.features import unit_rows
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import ArmLookup, counts_of
from dpeffects.estimators.default.polynomial_terms import Bends
from dpeffects.estimators.default.standardisation import Standardiser, unit_columns
from dpeffects.estimators.row_functions import RowPartial, row
from dpeffects.estimators.weighting.inverse_weights import PropensityFunction
from dpeffects.estimators.weighting.propensity import (
    Setting,
    WeightSpreads,
    fitted_model,
    standardised,
)
from dpeffects.inference.estimate import Effects, ErrorPart, Estimate, MeansPart, Unavailable
from dpeffects.inference.intervals import sampling_variance
from dpeffects.privacy import COUNT, Block, Curator, reads
from dpeffects.privacy.units import recoded, seen_as

OBSERVED = "outcomes observed (noisy)"
"""What the detail is called that says which part of them it is."""
SHARES = {"observed": 0.04, "response columns": 0.05, "response": 0.25}


@reads("observed")
def has_outcome(rows: Block) -> BoolArray:
    """Who has an outcome."""
    return rows.observed


@row("covariates")
def with_treatment(rows: Block, arm: ArmLookup) -> FloatArray:
    """Covariates, and beside them an indicator of each arm but the one with the number 0."""
    own = arm(rows)
    return np.column_stack([rows.covariates, *(own == k for k in range(1, len(arm.numbers)))])


@row("observed")
def represented(
    rows: Block, model: PropensityFunction, columns: RowPartial, standard: Standardiser
) -> FloatArray:
    """How many records a record with an outcome stands for, over the most that any does."""
    seen = Block(covariates=columns(rows))
    chance = model.scores(unit_rows(unit_columns(standard)(seen)))
    return np.where(rows.observed, model.low / chance, 0.0)


def completed(unknown: float, details: Mapping[str, str], released: Any, n: float) -> Any:
    """Estimates with what noise in the model leaves of the bias of complete records.

    ``unknown`` is the relative error of weights by noise in the model, as a standard deviation
    over records; ``details`` are released values worth showing.
    """
    if isinstance(released, Effects):
        made = tuple(completed(unknown, details, estimate, n) for estimate in released.estimates)
        return replace(released, estimates=made)
    if not isinstance(released, Estimate):
        return released
    own, means = sampling_variance(released), released.means
    spread = 0.0 if isinstance(own, Unavailable) else own * n
    part = ErrorPart(
        "the model of missing outcomes", (hand.ALIKE * unknown) ** 2 * spread, noise=True
    )
    if means is not None:
        sd = math.sqrt(part.variance / 2.0)
        more = (MeansPart(part.name, sd, 0.0, True), MeansPart(part.name, 0.0, sd, True))
        means = replace(means, parts=(*means.parts, *more))
    told = {**released.details, **details}
    return replace(released, parts=(*released.parts, part), details=told, means=means)


def respond(curator: Curator, added: Bends, part: float = 1.0) -> tuple[Curator, Any]:
    """Release the model, and return the curator of the rows with their weights.

    ``added`` are squares and products beside the columns of the formula. ``part`` of the share
    "observed" counts the records with an outcome; ``curator.n`` is how many count, with one or
    without.
    """
    arms = curator.arms
    columns = with_treatment(ArmLookup(np.eye(1, 2)[0] if arms == 2 else np.arange(float(arms))))
    names = tuple(f"arm {k}" for k in range(1, arms))
    described = (*curator.names, *names), (*curator.values[:-1], *(2,) * arms)
    response = seen_as(recoded(curator, columns, *described), treatment=has_outcome)
    response.n, response.size_sd = curator.n, curator.size_sd
    count = response.sums(
        "records with an outcome", None, COUNT, TREATED, share="observed", part=part
    )
    known = counts_of(response, replace(count, value=count.value[0])).shares()
    response, standard = standardised(response, "response columns", added)
    share, price = float(known[0][0]), response.epsilon("response")
    least = hand.USUAL_WEIGHT * share
    setting = Setting((response.n, response.n), response.width, least)
    model = fitted_model(response, setting, price, known, WeightSpreads.of(standard), "response")
    chances = model.within((least, 1.0))
    details = {
        OBSERVED: f"{100.0 * share:.0f} %",
        "probability of an observed outcome": f"from {chances.low:.2g} to {chances.high:.2g}",
    }
    log_odds = np.log(model.scores / (1.0 - model.scores))
    left = (1.0 - model.kept) / max(model.kept, 0.1) * float(log_odds.std())
    unknown = (1.0 - share) * math.hypot(left, math.sqrt(model.noise_variance))
    seen = seen_as(curator, represented(chances, columns, standard))
    return seen, partial(completed, unknown, details)
