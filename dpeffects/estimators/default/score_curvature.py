"""Is the score curved where the formula has lines? What a released check says of it.

The residual of treatment from its score is multiplied with squares and steps of the columns, free
of a line, and with products of columns, and added up. A sum that noise does not explain says that
the log odds of treatment bend that way; if outcomes do too, an adjustment by lines leaves
confounding. Each sum is read through a spike and slab by the distribution of its noise: most
columns do not
bend, some do. What is likely to bend then goes to the interval, and what surely does is named.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from dpeffects.arrays import FloatArray, IntArray
from dpeffects.estimators import constants as hand
from dpeffects.estimators.default.moment_models import Models
from dpeffects.estimators.default.propensity_score import PropensityScore
from dpeffects.estimators.row_functions import row
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.curator import SumQuery
from dpeffects.privacy.domains import Cube
from dpeffects.privacy.rows import Block
from dpeffects.results.wording import said


def bent_terms(
    values: IntArray, columns: IntArray, known: Collection[tuple[int, int]] = ()
) -> IntArray:
    """Pairs of positions: squares, steps and products, by the columns' declared ``values`` alone.

    Columns that are not indicators have a square and a step each. The first columns of the formula
    have their products: no more of them than there are columns. A step, at the mean of its column,
    has -1 for a second one. ``known`` are pairs of columns whose product, or square, is among the
    terms of the models already.
    """
    bends = [j for j, k in enumerate(columns) if values[k] != 2]
    most = min(int(0.5 + math.sqrt(0.25 + 2 * columns.size)), columns.size)
    first = range(most if bends else 0)
    pairs = [(j, j) for j in bends] + [(j, k) for j in first for k in first if j < k]
    there = {frozenset(pair) for pair in known}
    left = [(j, k) for j, k in pairs if {int(columns[j]), int(columns[k])} not in there]
    return np.array(left + [(j, -1) for j in bends], dtype=np.int64).reshape(-1, 2)


@row("treated", "covariates")
def bent(rows: Block, terms: IntArray, models: Models, score: PropensityScore) -> FloatArray:
    """Residuals of treatment times bent terms of standardised columns, within [-1, 1]."""
    standard, off = models.standard, rows.treated - score.of(rows)[:, 0]
    out = np.empty((rows.size, len(terms)), order="F")

    def column(j: int) -> FloatArray:
        x = rows.covariates[:, standard.columns[j]] - standard.means[j]
        return np.asarray(np.clip(x / standard.sds[j], -hand.CUT, hand.CUT))

    for at, (j, k) in enumerate(terms):
        x = column(j)
        if k < 0:
            out[:, at] = off * (np.where(x > 0.0, 1.0, -1.0) - 2.0 / hand.CUT * x)
        elif k == j:
            out[:, at] = off * (2.0 * (x / hand.CUT) ** 2 - 1.0)
        else:
            out[:, at] = off * np.clip(x * column(k) / hand.CUT, -1.0, 1.0)
    return out


def variances(terms: IntArray) -> FloatArray:
    """Variances of bent terms of independent normal columns."""
    one, other = terms.T
    return np.select([other < 0, one == other], [0.356, 0.172], 0.125)


@dataclass(frozen=True)
class ScoreCurvature:
    """How likely each bent term is, the variance of the log odds by it, and columns to be named."""

    chances: FloatArray
    strengths: FloatArray
    bent: tuple[str, ...] = ()

    @classmethod
    def usual(cls, lines: float) -> ScoreCurvature:
        """Where nothing was checked: as strong as is usual beside the ``lines`` of the score."""
        return cls(np.zeros(1), np.array([hand.USUAL_CURVES * lines]))

    def left_variance(self, outcome_variance: float, explained: float) -> float:
        """Variance of the confounding by curves, where outcomes bend along the same terms.

        Outcomes bend by a part of what the covariates explain of them, where nobody saw a curve.
        Where one was seen, all of an outcome's variance may be along it: the confounding is
        anywhere up to that bound.
        """
        bends = self.chances / 3.0 + (1.0 - self.chances) * hand.BENT_OUTCOME * explained
        return float(self.strengths @ bends) * outcome_variance

    @property
    def warnings(self) -> str:
        """What to do about it."""
        if not self.bent:
            return ""
        named, first = ", ".join(self.bent[:5]), self.bent[0]
        more = " and others" if len(self.bent) > 5 else ""
        spline = f"bs({first}, knots=[...], lower_bound=..., upper_bound=...)"
        write = spline if first.isidentifier() else "more knots"
        chance = 100.0 * min(self.chances.max(), 0.99)
        return str(said("one_step")["curved"].format(f"{named}{more}", chance, write))


def density(off: FloatArray, sd: FloatArray, noise: NoisyValue) -> FloatArray:
    """Density of the error of a released sum: its noise, and normal error of this ``sd``.

    Noise of a cube is even on [-r, r] given r, which has a gamma distribution (claim 28); Laplace
    noise is that of a cube of one column.
    """
    if noise.gaussian:
        total = np.hypot(sd, noise.sd)
        return np.asarray(np.exp(-0.5 * (off / total) ** 2) / (math.sqrt(2.0 * math.pi) * total))
    shape = 2.0 if noise.unit_variance is None else noise.value.size + 1.0
    reach = shape * np.exp(np.linspace(-9.0, 6.0, 46)[1:] / math.sqrt(shape))
    weights = np.exp(shape * np.log(reach / shape) - reach + shape)
    up, down = (_ndtr((off[..., None] + x * noise.scale * reach) / sd[..., None]) for x in (1, -1))
    return np.asarray((up - down) @ (0.5 * weights / reach) / (noise.scale * weights.sum()))


def _ndtr(z: FloatArray) -> FloatArray:
    """Normal probabilities; far out they are 0 and 1 in floats."""
    out, near = np.asarray(z > 0.0, np.float64), np.abs(z) < 9.0
    out[near] = ndtr(z[near])
    return out


def spike_and_slab(
    noisy: NoisyValue, sd: FloatArray, slab: FloatArray, chance: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """How likely each sum is not 0, and its mean and mean square if so.

    A sum is 0 but for its error, or with this ``chance`` normal of standard deviation ``slab``.
    """
    seen, sd, slab = (x[:, None] for x in (noisy.value.ravel(), sd, slab))
    wide, close = slab * np.linspace(-6.0, 6.0, 121), np.linspace(-8.0, 8.0, 121)
    at = np.sort(np.hstack([wide, seen + np.hypot(sd, noisy.sd) * close]), axis=1)
    prior = np.exp(-0.5 * (at / slab) ** 2) / (math.sqrt(2.0 * math.pi) * slab)
    fits = prior * density(seen - at, np.broadcast_to(sd, at.shape), noisy)
    under, means, squares = (
        (0.5 * (x[:, 1:] + x[:, :-1]) * np.diff(at, axis=1)).sum(axis=1)
        for x in (fits, fits * at, fits * at**2)
    )
    most, spike = np.maximum(under, 1e-300), (1.0 - chance) * density(seen, sd, noisy)[:, 0]
    likely = chance * under / np.maximum(chance * under + spike, 1e-300)
    return likely, means / most, squares / most


@dataclass(frozen=True, eq=False)
class CurvatureQuery:
    """Bent terms whose sums are released, given the models, the score and the kinds of columns."""

    values: tuple[int, ...]
    models: Models
    score: PropensityScore

    @cached_property
    def terms(self) -> IntArray:
        """All bent terms but those whose pairs of columns the models have."""
        standard = self.models.standard
        return bent_terms(np.array(self.values), standard.columns, standard.bends)

    @property
    def asked(self) -> list[SumQuery]:
        """What the curator is asked for; nothing where nothing can bend."""
        if not len(self.terms):
            return []
        ends, sums = np.ones(len(self.terms)), bent(self.terms, self.models, self.score)
        return [
            SumQuery(
                "non-linear terms of the propensity score", sums, Cube(-ends, ends), None, "curves"
            )
        ]

    @property
    def _errors(self) -> FloatArray:
        """Standard deviations of the sums by chance, and by what is not known of the slopes.

        Bent terms of a skewed column go along with the column.
        """
        models, h = self.models, self.score.overlap
        _, vectors = np.linalg.eigh(models.covariance)
        slopes = vectors**2 @ models.slopes.treatment_variance
        slopes = slopes + (hand.WRONG_SCORE * models.treatment_slopes) ** 2
        own = np.mean(
            [slopes[x] for x in np.where(self.terms < 0, self.terms[:, :1], self.terms).T], 0
        )
        by_chance = h * variances(self.terms) / models.n
        return np.asarray(models.n * np.sqrt(by_chance + hand.SKEWED * h**2 * own))

    @property
    def _units(self) -> FloatArray:
        """Sums where a term moves the log odds by a standard deviation of 1."""
        return np.asarray(self.models.n * self.score.overlap * np.sqrt(variances(self.terms)))

    def read(self, names: tuple[str, ...], *answers: NoisyValue) -> ScoreCurvature:
        """What the sums say."""
        if not answers:
            return ScoreCurvature(np.zeros(0), np.zeros(0))
        slab = math.sqrt(hand.CURVE) * self._units
        usual = hand.USUAL_CURVES * max(self.models.slopes.selection, 1e-9)
        chance = min(usual / (hand.CURVE * len(self.terms)), 0.5)  # as strong together as is usual
        chances, _, squares = spike_and_slab(answers[0], self._errors, slab, chance)
        which = np.unique(self.terms[chances > 0.5])
        named = tuple(names[k] for k in self.models.standard.columns[which[which >= 0]])
        return ScoreCurvature(chances, chances * squares / self._units**2, named)
