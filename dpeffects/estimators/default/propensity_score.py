"""The chance of each arm given the covariates, from linear models, and overlap weights.

Where covariates are normal in each arm, the chance of an arm is proportional to its share times
exp(x'slopes), slopes those of the log odds against one arm. Generalised overlap weights (Li and Li
2019), the harmonic mean of all chances over that of the own arm, never exceed 1: 1 - e for treated
and e for control records. All arms are weighted to the same records, those who could have been in
any of them. Averages over records are taken at typical ones, whose indices x'slopes are normal in
each arm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import ArmLookup
from dpeffects.estimators.default.moment_models import ArmModels
from dpeffects.estimators.default.standardisation import Standardiser
from dpeffects.estimators.row_functions import RowPartial, row
from dpeffects.privacy.charges import NoisyValue
from dpeffects.privacy.curator import SumQuery
from dpeffects.privacy.domains import Box
from dpeffects.privacy.rows import Block


@dataclass(frozen=True, eq=False)
class PropensityScore:
    """Chances of the arms, proportional to exp(constant + x'slopes), and none below ``least``.

    Of typical records, ``index`` has x'slopes, (arm of the record, record, arm of the slopes), and
    ``weights`` how many records each stands for. ``covariance`` is that of x within arms,
    ``centres`` are the indices of the centres of the arms. The arm ``reference`` has no slopes.
    """

    standard: Standardiser
    reference: int
    constants: FloatArray
    slopes: FloatArray
    least: float
    shares: FloatArray
    covariance: FloatArray
    centres: FloatArray
    index: FloatArray
    weights: FloatArray
    tilt: str = "overlap"
    """Whose average the weights give: that of an estimand, or of records that could be in any arm,
    whose weights are the smallest."""

    def of(self, rows: Block) -> FloatArray:
        """Chances of some rows to be in each arm, a column each."""
        return self.kept(_chances(self.logits(rows)))

    def logits(self, rows: Block) -> FloatArray:
        """Logarithms of chances of some rows, but for a constant."""
        out = np.empty((rows.size, len(self.slopes)), order="F")
        for k, (constant, slopes) in enumerate(zip(self.constants, self.slopes, strict=True)):
            out[:, k] = constant + (self.standard.index(rows, slopes) if slopes.any() else 0.0)
        return out

    @property
    def others(self) -> list[int]:
        """The arms that have slopes."""
        return [k for k in range(len(self.shares)) if k != self.reference]

    def kept(self, chances: FloatArray) -> FloatArray:
        """Chances within what is allowed."""
        return np.clip(chances, self.least, 1.0 - (len(self.shares) - 1) * self.least)

    @property
    def chances(self) -> FloatArray:
        """Chances of typical records."""
        return self.kept(_chances(self.index + self.constants))

    @property
    def overlap(self) -> float:
        """Mean of the harmonic mean of the chances, over their number: of e(1 - e) for two."""
        return float((self.weights * harmonic(self.chances)).sum())

    def tilted(self, chances: FloatArray) -> FloatArray:
        """How much a record counts in the average, by its chances."""
        if self.tilt == "overlap":
            return harmonic(chances)
        own = ESTIMANDS[self.tilt]
        if own.of_treated and own.of_control:
            return np.ones(chances.shape[:-1])
        return np.asarray(chances[..., 0 if own.of_treated else 1])

    @property
    def mass(self) -> float:
        """Mean over records of how much they count."""
        return float((self.weights * self.tilted(self.chances)).sum())

    @property
    def explained(self) -> float:
        """Part of who gets which arm that the score explains; of two arms, of the variance."""
        chances = np.maximum(_chances(self.index + self.constants), 1e-12)
        return 1.0 - float((self.weights * harmonic(chances)).sum() / harmonic(self.shares))

    @property
    def _inverse(self) -> FloatArray:
        """Weights of typical records before they are cut, (arm, record)."""
        return np.asarray(self.tilted(self.chances) / np.einsum("ara->ar", self.chances))

    @property
    def cut(self) -> float:
        """Part of all weight of records whose own chance is kept from falling further."""
        mass = self.weights * self._inverse
        return float(mass[np.einsum("ara->ar", self.chances) <= self.least].sum() / mass.sum())

    def sizes(self, n: int) -> FloatArray:
        """Records of equal weight that those of each arm are worth."""
        return np.asarray(n / (self.weights * (self._inverse / self.mass) ** 2).sum(axis=1))

    def sd_along(self, directions: FloatArray) -> FloatArray:
        """Standard deviations within arms along slopes (direction, covariate)."""
        variances = np.einsum("ij,jk,ik->i", directions, self.covariance, directions)
        return np.sqrt(np.maximum(variances, 0.0))

    @property
    def largest(self) -> FloatArray:
        """Largest weight of each arm that is not cut; two arms, in one sum, have one.

        It is that of a record far from the centre of its arm, where its chance falls most.
        """
        arms = len(self.shares)
        others = (self.slopes.sum(axis=0) - self.slopes) / (arms - 1)
        towards = self.slopes - others
        moves = towards @ self.covariance @ self.slopes.T
        steps = hand.CUT / np.maximum(self.sd_along(towards), 1e-12)
        chances = self.kept(_chances(self.constants + self.centres - steps[:, None] * moves))
        flat = self.tilted(self.shares) / self.shares
        found = np.maximum(self.tilted(chances) / np.diag(chances), flat)
        found = np.minimum(found, 1.0 - self.least if self.tilt == "overlap" else 1.0 / self.least)
        return np.full(2, found.max()) if arms == 2 else np.asarray(found)

    @property
    def relative(self) -> tuple[FloatArray, FloatArray]:
        """Weights of typical records over the largest of their arm, and their chances, by arm."""
        return np.minimum(self._inverse / self.largest[:, None], 1.0), self.weights

    def weight(self) -> RowPartial:
        """Weights over their mean, with a minus for the second of two arms."""
        signs = ArmLookup(
            np.array([1.0, -1.0]) if len(self.shares) == 2 else np.ones_like(self.shares)
        )
        return tilted_weight(self, ArmLookup(self.largest), signs, self.mass)


@row("covariates")
def tilted_weight(
    rows: Block, score: PropensityScore, largest: ArmLookup, signs: ArmLookup, mass: float
) -> FloatArray:
    """Weights of some rows, cut and signed."""
    chances = score.of(rows)
    own = np.take_along_axis(chances, signs.arm(rows)[:, None], axis=1)[:, 0]
    weight = np.minimum(score.tilted(chances) / own, largest(rows)) / mass
    return np.asarray(signs(rows) * weight)


def _chances(logits: FloatArray) -> FloatArray:
    """Chances from logarithms, the last axis that of the arms; sums one by one."""
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / _total(raised)[..., None])


def harmonic(chances: FloatArray) -> FloatArray:
    """1 over the sum of inverse chances: e (1 - e) for two arms."""
    return np.asarray(1.0 / _total(1.0 / chances))


def _total(values: FloatArray) -> FloatArray:
    """Sums over the last axis, one by one: a row's value is its own."""
    total = np.zeros(values.shape[:-1])
    for k in range(values.shape[-1]):
        total = total + values[..., k]
    return total


def score_of(models: ArmModels, slopes: FloatArray, reference: int, clip: float) -> PropensityScore:
    """Chances with these slopes whose means are the shares of the arms."""
    pi, arms, covariance = models.shares, len(models.shares), models.covariance
    shifts = slopes @ covariance
    centres = (models.mean + shifts - pi @ shifts) @ slopes.T
    values, vectors = np.linalg.eigh(slopes @ covariance @ slopes.T)
    root = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, 1:]
    points, chance = _normal(arms - 1)
    index = centres[:, None, :] + points @ root.T
    weights = pi[:, None] * chance
    constants = np.log(pi / pi[reference]) - (weights[..., None] * index).sum(axis=(0, 1))
    for _ in range(20):  # Newton steps for the log odds of the means, however rare an arm is
        chances = _chances(index + constants)
        means = (weights[..., None] * chances).sum(axis=(0, 1))
        own = (weights[..., None] * chances * (1.0 - chances)).sum(axis=(0, 1))
        with_reference = weights[..., None] * chances * chances[..., reference, None]
        slope = own / means + with_reference.sum(axis=(0, 1)) / means[reference]
        step = np.log(pi / pi[reference] * means[reference] / means) / np.maximum(slope, 0.1)
        constants = constants + step
    return PropensityScore(
        standard=models.standard,
        reference=reference,
        constants=constants,
        slopes=slopes,
        least=2.0 * clip / arms,
        shares=pi,
        covariance=covariance,
        centres=centres,
        index=index,
        weights=weights,
    )


def _normal(columns: int) -> tuple[FloatArray, FloatArray]:
    """Points that are spread like independent normal variables, and their weights."""
    if columns == 1:
        nodes, weights = np.polynomial.hermite_e.hermegauss(24)
        return nodes[:, None], weights / weights.sum()
    root = 2.0
    for _ in range(60):
        root = (1.0 + root) ** (1.0 / (columns + 1.0))
    steps = root ** -np.arange(1.0, columns + 1.0)
    uniform = (0.5 + np.arange(1.0, 257.0)[:, None] * steps) % 1.0
    points = np.vectorize(NormalDist().inv_cdf)(np.clip(uniform, 1e-4, 1.0 - 1e-4))
    points = (points - points.mean(axis=0)) / points.std(axis=0)
    return points, np.full(len(points), 1.0 / len(points))


# --- one private Newton step ----------------------------------------------------------------------


@row("covariates")
def newton_term(
    rows: Block, score: PropensityScore, arms: ArmLookup, cut: float
) -> tuple[FloatArray, ...]:
    """Gradient of the log likelihood along all indices, which are cut, and the constants.

    Along the indices it is within [-1, 1], the others are within [-1/2, 1/2].
    """
    arm, logits = arms.arm(rows), score.logits(rows)
    chances, along, constants = _chances(logits), np.zeros(rows.size), []
    for k in score.others:
        off = (arm == k) - chances[:, k]
        along = along + off * _cut_index(logits[:, k] - score.constants[k], cut, len(score.shares))
        constants.append(0.5 * off)
    return along, *constants


def _cut_index(index: FloatArray, cut: float, arms: int) -> FloatArray:
    """Indices over the cut, such that two of them, one of which may be 0, differ by 1 at most."""
    most = 1.0 if arms == 2 else 0.5
    return np.clip(most * index / cut, -most, most)


def _sd(score: PropensityScore) -> float:
    return float(score.sd_along(score.slopes).max())


def _cut(score: PropensityScore) -> float:
    return hand.CUT * max(_sd(score), hand.LEAST_SD)


def ask_calibration(score: PropensityScore) -> SumQuery:
    """Ask for the gradient of one Newton step, for the scale of all slopes and the constants."""
    ends = np.append(1.0, np.full(len(score.shares) - 1, 0.5))
    term = newton_term(score, ArmLookup(score.shares), _cut(score))
    return SumQuery(
        "calibration of the propensity score", term, Box(-ends, ends), None, "calibration"
    )


def calibrated(score: PropensityScore, n: int, noisy: NoisyValue) -> PropensityScore:
    """The score after the step."""
    arms = len(score.shares)
    if _sd(score) <= hand.LEAST_SD:  # nothing to scale; it is paid for all the same
        return score
    index, chances = score.index, _chances(score.index + score.constants)

    def covariance(one: FloatArray, other: FloatArray) -> float:
        """Mean over records of the covariance over arms, by their chances."""
        centred = other - (chances * other).sum(axis=-1, keepdims=True)
        return float((score.weights[..., None] * chances * one * centred).sum())

    units = [np.broadcast_to(np.eye(arms)[k], index.shape) for k in score.others]
    rows = (_cut_index(index, _cut(score), arms), *(0.5 * unit for unit in units))
    columns = (index, *units)
    curvature = n * np.array([[covariance(one, other) for other in columns] for one in rows])
    step = np.linalg.lstsq(curvature, noisy.value, rcond=None)[0]
    sd = noisy.sd / max(float(curvature[0, 0]), 1e-9)
    step = step * 0.04 / (0.04 + sd**2)
    factor = 1.0 + float(np.clip(step[0], -0.4, 0.6))
    constants = score.constants.copy()
    constants[score.others] += np.clip(step[1:], -0.3, 0.3)
    return replace(
        score,
        constants=constants,
        slopes=factor * score.slopes,
        centres=factor * score.centres,
        index=factor * index,
    )
