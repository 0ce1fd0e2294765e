"""Penalised regressions on arrays, and curators that hold them."""

import numpy as np

from dpeffects.evidence.auditing.recording import gradient
from dpeffects.privacy.budget import Budget, Share
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.ledger import CallLedger
from dpeffects.privacy.losses import (
    HUBER_GRID,
    LOGISTIC_GRID,
    Huber,
    Logistic,
    bounded_terms,
    on_grid,
    unit_norm,
    whole_rows,
)
from dpeffects.privacy.private_minimisation import Minimisation
from dpeffects.privacy.release import Releaser, Split
from dpeffects.privacy.rows import Block, Rows, reads
from dpeffects.seeded import SeededNoise


class Bare:
    """No noise: keeps what would have been noised, and its declared sensitivity or scale."""

    description, void = "none", ("no noise",)

    def __init__(self):
        self.drawn = []

    def laplace(self, values, scale, sensitivity, epsilon):
        assert sensitivity / scale <= epsilon
        self.drawn.append((values.copy(), sensitivity))
        return values

    def gaussian(self, values, scale):
        self.drawn.append((values.copy(), scale))
        return values

    def permutation(self, n):
        return np.arange(n)


def held(rows, treated, outcome=None):
    """Covariates in [0, 1] and treatments, without outcomes unless they are given."""
    outcome = np.zeros(len(rows)) if outcome is None else outcome
    return Rows(outcome, (0.0, 1.0), treated, lambda: rows, rows.shape[1])


PURE = Share(1.0)


def curator(source, share=PURE, noise=None, public=(), ledger=None, mu=None):
    """Rows with one share "a"; without noise unless told."""
    split = Split({"a": share}, mu or {})
    releaser = Releaser(split, ledger or CallLedger(Budget(1e9, 0.5)), noise or Bare())
    return Curator(source, releaser, frozenset(public))


class Case(Minimisation):
    """A problem on rows, and what audits and tests want to know of it."""

    def __init__(self, source, problem):
        super().__init__(curator(source, noise=SeededNoise(0)), problem, "a")

    def __getattr__(self, name):
        return getattr(self.problem, name)

    def solver_error(self, noise=0.0):
        return self.problem.solver_error(self.curator.n, noise)

    def largest_weights(self, noise=0.0):
        return self.problem.largest_weights(self.curator.n, noise)

    def gradient(self, weights):
        return gradient(self, weights)

    @property
    def treated(self):
        return self.curator._source.treated

    @property
    def terms(self):
        """Rows, slopes and targets of a Huber regression, within bounds."""
        source = self.curator._source
        block = Block(source.treated, source.outcome, source.covariates())
        whole, slopes, targets = bounded_terms(self.problem, block)
        return whole * 2.0**-HUBER_GRID, slopes, targets

    @property
    def rows(self):
        if isinstance(self.problem, Huber):
            return self.terms[0]
        whole = whole_rows(self.curator._source.covariates(), True)
        return whole / (2.0**LOGISTIC_GRID * unit_norm(self.problem.width))

    @property
    def slopes(self):
        return self.terms[1]

    @property
    def targets(self):
        return self.terms[2]


def logistic(treated, x, strength=1.0, offset=0.0):
    """A logistic regression on centred rows."""
    return Case(held(x, treated), Logistic(x.shape[1], strength, offset))


def fit_logistic(x, treated, penalty):
    """Weights of a logistic regression on rows in [0, 1]."""
    return Logistic(x.shape[1], penalty, centred=False).solve(held(x, treated))


def huber(rows, slopes, targets, strength, steepest=1.0):
    """A Huber regression on rows, which are rounded to the grid."""
    n, size = rows.shape
    matrix = np.column_stack([on_grid(np.array(rows)), slopes])
    source = Rows(targets, (-1.0, 1.0), np.ones(n, dtype=bool), lambda: matrix, size + 1)
    return Case(source, Huber(as_they_are, size, strength, steepest))


@reads("covariates", "outcome")
def as_they_are(block):
    """Covariates are features and a slope, outcomes are targets."""
    return (*block.covariates.T, block.outcome)
