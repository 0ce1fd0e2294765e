"""Penalised regressions on arrays, as sources of rows that the solvers take."""

import numpy as np

from dpeffects.privacy.features import on_grid
from dpeffects.privacy.huber import Huber
from dpeffects.privacy.rows import Rows


def held(rows, treated):
    """Covariates in [0, 1] and treatments, without outcomes."""
    return Rows(np.zeros(len(rows)), (0.0, 1.0), treated, lambda: rows, rows.shape[1])


def huber(rows, slopes, targets, strength, steepest=1.0):
    """A Huber regression on rows, which are rounded to the grid."""
    n, size = rows.shape
    given = np.column_stack([on_grid(np.array(rows)), slopes])
    source = Rows(targets, (-1.0, 1.0), np.ones(n, dtype=bool), lambda: given, size + 1)
    return Huber(source, _given, size, strength, steepest)


def _given(block):
    return block.covariates[:, :-1], block.covariates[:, -1], block.outcome
