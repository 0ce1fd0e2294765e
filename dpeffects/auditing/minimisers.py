"""What each record adds to a penalised regression, in plain floats, for audits of its minimiser."""

from __future__ import annotations

from functools import partial

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.privacy.losses import (
    HUBER_GRID,
    LOGISTIC_GRID,
    Huber,
    Logistic,
    bounded_terms,
    sigmoid,
    unit_norm,
    whole_rows,
)
from dpeffects.privacy.minimise import Fit
from dpeffects.privacy.rows import Block, Records


def by_record(fit: Fit, weights: FloatArray) -> Records:
    """Return rows, factors and curvatures at some weights, wherever the rows are.

    A row's gradient is its factor times the row, its Hessian the curvature times row row'; both
    are multiplied by what the row counts.
    """
    problem = fit.problem
    if isinstance(problem, Huber):
        reads = [part for part in problem.terms.reads if part != "treated"]
        function = partial(_huber, problem=problem, weights=weights)
        return fit.curator._source.gather(function, *reads)
    function = partial(_logistic, problem=problem, weights=weights)
    return fit.curator._source.gather(function, *problem.reads)


def gradient(fit: Fit, weights: FloatArray) -> FloatArray:
    """Sum of the gradients of the losses."""
    rows, factors, _ = by_record(fit, weights)
    return np.asarray(factors @ rows)


def log_volume(fit: Fit, weights: FloatArray) -> float:
    """Logarithm of the determinant of the objective's second derivatives."""
    rows, _, curvatures = by_record(fit, weights)
    matrix = (rows.T * curvatures) @ rows + fit.problem.strength * np.eye(weights.size)
    return float(np.linalg.slogdet(matrix)[1])


def _logistic(block: Block, problem: Logistic, weights: FloatArray) -> Records:
    rows = whole_rows(block.covariates, True) / (2.0**LOGISTIC_GRID * unit_norm(problem.width))
    chance = sigmoid(rows @ weights + problem.offset)
    return rows, *_counted(block, chance - problem.cases(block), chance * (1.0 - chance))


def _huber(block: Block, problem: Huber, weights: FloatArray) -> Records:
    whole, slopes, targets = bounded_terms(problem, block)
    rows = whole * 2.0**-HUBER_GRID
    if problem.by_arm:
        own = block.treated[:, None]
        rows = np.concatenate([rows * own, rows * ~own], axis=1)
    residual = targets - slopes * (rows @ weights)
    factors, curvatures = (
        -slopes * np.clip(residual, -1.0, 1.0),
        slopes**2 * (np.abs(residual) <= 1.0),
    )
    return rows, *_counted(block, factors, curvatures)


def _counted(block: Block, *values: FloatArray) -> Records:
    return tuple(x * block.weight for x in values) if block.weight.size else values
