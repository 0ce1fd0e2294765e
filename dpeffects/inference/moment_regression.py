"""Linear regressions from released second moments, with the distribution of the noise in them.

What is released is the sum of zz' over records, z = (constant, columns), each column scaled and
measured from a public centre, so that no row is shortened. Its noise is symmetric, with entries
that are not correlated, twice the variance on the diagonal as off it (claims 6, 26).

Products of indicators of one factor are known from their sums, as nobody has two levels, and so
are those of arms and subgroups: the sums say how many records each cell has, and the products
follow. The noise in what is left enters a regression in first order through its normal equations,
in second order as a bias, which is removed, and as some more variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import eigh

from dpeffects.arrays import BoolArray, FloatArray, symmetric
from dpeffects.errors import refusal
from dpeffects.inference.estimate import Estimate, SamplingVariance, Unavailable

NUMBER, INDICATOR, ARM, PRODUCT = "number", "indicator", "arm", "product"
SQUARE = "I({} ** 2)"
"""The name of the square of a column."""
ASSUMED = {
    True: "The variance of residuals is taken to be linear in the columns.",
    False: "They are classical: residuals are taken to have one variance. Where they do not, as in "
    "a small arm with very unequal outcomes, the part for sampling error is wrong; with I({0}**2) "
    "among the columns of a release it need not be assumed.",
}
"""What is assumed of residuals, by whether the square of the outcome is known."""
_SURE = 3.0
"""Standard deviations of its noise by which the spread of a column has to exceed zero."""
_MOVED = 0.1
"""Part of the variance of a coefficient that may come from directions that were moved."""


@dataclass(frozen=True)
class MomentColumn:
    """A column of z: ``size`` times (x - ``centre``), where x is within [0, 1].

    ``term`` are the factors of its term in a formula. Indicators of one ``group`` exclude each
    other. A product is that of an arm, less its centre, and of an indicator: ``parts`` are their
    places in z. ``low`` and ``high`` are the range of the column in its own units.
    """

    name: str
    term: tuple[str, ...]
    kind: str
    size: float
    centre: float = 0.0
    group: int = -1
    parts: tuple[int, int] = (0, 0)
    low: float = 0.0
    high: float = 1.0

    @property
    def width(self) -> float:
        """Width of the range; 1 where it has none, and the column does not vary."""
        return (self.high - self.low) or 1.0


def z_of(
    columns: Sequence[MomentColumn], constant: float, plain: Sequence[FloatArray]
) -> tuple[FloatArray, ...]:
    """z of some records: the constant, and columns from their centres in their sizes.

    ``plain`` has the values of columns that are no products, which come last.
    """
    z = [np.full(len(plain[0]), constant)]
    for j, column in enumerate(columns):
        one, level = column.parts
        if column.kind == PRODUCT:
            value = (plain[one - 1] - columns[one - 1].centre) * plain[level - 1]
        else:
            value = plain[j] - column.centre
        z.append(column.size * value)
    return tuple(z)


@dataclass(frozen=True)
class MomentMatrix:
    """A released matrix of second moments.

    ``entries`` are those of the sum of zz' over all records, row by row from the diagonal on;
    ``constant`` is the first column of z. ``variance`` is that of the noise off the diagonal. ``n``
    is the number of records, with noise of the variance ``size_variance`` where that was released,
    and ``unequal`` how many times more sampling variance unequal weights give.
    """

    columns: tuple[MomentColumn, ...]
    constant: float
    entries: tuple[float, ...]
    variance: float
    n: float
    size_variance: float = 0.0
    unequal: float = 1.0

    def __post_init__(self) -> None:
        d = self.width
        if len(self.entries) != d * (d + 1) // 2:
            raise ValueError("a matrix of moments has an entry for each pair of columns")

    @property
    def width(self) -> int:
        """Columns of z."""
        return len(self.columns) + 1

    @property
    def effective(self) -> float:
        """As many records of equal weight."""
        return max(self.n / self.unequal, 1.0)

    def lost_degrees(self, coefficients: int) -> float:
        """What a mean square is multiplied by, for the degrees of freedom that a line takes."""
        return self.effective / max(self.effective - coefficients, 1.0)

    def places(self, kind: str) -> list[int]:
        """Places in z of the columns of a kind."""
        return [j for j, column in enumerate(self.columns, 1) if column.kind == kind]

    @cached_property
    def blocks(self) -> list[tuple[list[int], FloatArray]]:
        """Places of columns with few joint values, and these values: one row for each cell.

        The constant is the first place. There are as many cells as columns, so that sums say how
        many records are in each cell.
        """
        arms, found = self.places(ARM), []
        groups: dict[int, list[int]] = {}
        for j in self.places(INDICATOR):
            groups.setdefault(self.columns[j - 1].group, []).append(j)
        for levels in [*groups.values(), []]:
            products = [j for j in self.places(PRODUCT) if self.columns[j - 1].parts[1] in levels]
            treated = arms if products or not levels else []
            place = [0, *treated, *levels, *products]
            cells = [(a, g) for a in (0, *treated) for g in (0, *levels)]
            ones = np.zeros((self.width, len(cells)))
            ones[np.transpose(cells), range(len(cells))] = 1.0  # 0 stands for none of them
            z = np.array(z_of(self.columns, self.constant, [*ones[1:]]))
            found.append((place, z[place].T))
        return found

    def completed(self, matrix: FloatArray) -> FloatArray:
        """A matrix with those entries that its first row says; linear in the matrix."""
        done = matrix.copy()
        for place, cells in self.blocks:
            counts = np.linalg.solve(cells.T, matrix[0, place] / self.constant)
            done[np.ix_(place, place)] = (cells.T * counts) @ cells
        return done

    @cached_property
    def released(self) -> FloatArray:
        """The sum of zz', with what is known of it."""
        matrix = symmetric(np.array(self.entries), self.width)
        matrix[0, 0] = self.n * self.constant**2
        return self.completed(matrix)

    @cached_property
    def noise(self) -> EntryNoise:
        """The distribution of the noise in `released`."""
        d, free = self.width, np.ones((self.width, self.width))
        for place, _ in self.blocks:
            free[np.ix_(place, place)] = 0.0
        free[0] = free[:, 0] = 0.0
        images = np.zeros((d, d, d))
        for k in range(d):
            images[k, 0, k] = images[k, k, 0] = (
                math.sqrt(self.variance) if k else math.sqrt(self.size_variance) * self.constant**2
            )
            images[k] = self.completed(images[k])
        return EntryNoise(self.variance, free, images)

    @cached_property
    def to_units(self) -> FloatArray:
        """From z to (1, columns): indicators 0 or 1, numbers from their centre over their width."""
        found = np.diag([1.0 / self.constant, *(1.0 / column.size for column in self.columns)])
        for j, column in enumerate(self.columns, 1):
            if column.kind in (INDICATOR, ARM):
                found[j, 0] = column.centre / self.constant
        for j in self.places(PRODUCT):
            arm, level = self.columns[j - 1].parts
            found[j] += self.columns[arm - 1].centre * found[level]
        return found

    @cached_property
    def gram(self) -> FloatArray:
        """Means of products of (1, columns), in the units of `to_units`."""
        return self.to_units @ self.released @ self.to_units.T / max(self.n, 1.0)

    @cached_property
    def third(self) -> FloatArray:
        """Means of products of three columns, in the units of `to_units`.

        Two indicators of a block multiply to columns of that block, so that second moments say it
        where two of the three are such. Others are taken to have no third cumulant, as if normal.
        """
        g, mean = self.gram, self.gram[0]
        with_mean = np.einsum("i,jk->ijk", mean, g - np.outer(mean, mean))
        found = with_mean + with_mean.transpose(1, 0, 2) + with_mean.transpose(1, 2, 0)
        found += np.einsum("i,j,k->ijk", mean, mean, mean)
        for place, cells in self.blocks:
            ones = cells @ self.to_units[np.ix_(place, place)].T
            products = (ones[:, :, None] * ones[:, None, :]).reshape(len(ones), -1)
            known = np.linalg.solve(ones, products).T @ g[place]
            known = known.reshape(len(place), len(place), -1)
            rows = np.ix_(place, place)
            found[rows] = known
            found.transpose(0, 2, 1)[rows] = known
            found.transpose(2, 0, 1)[rows] = known
        return found

    def with_weights(self, unequal: float) -> MomentMatrix:
        """The same where records have weights, whose mean square is so many times their mean."""
        return replace(self, unequal=max(unequal, 1.0))

    def plus(self, other: MomentMatrix) -> MomentMatrix:
        """The moments of the records of both; columns are the same."""
        n = self.n + other.n
        records = self.n / self.effective * self.n + other.n / other.effective * other.n
        return replace(
            self,
            entries=tuple(a + b for a, b in zip(self.entries, other.entries, strict=True)),
            variance=self.variance + other.variance,
            n=n,
            size_variance=self.size_variance + other.size_variance,
            unequal=records / max(n, 1.0),
        )


@dataclass(frozen=True)
class EntryNoise:
    """Noise of a matrix: ``free`` entries on their own, and ``images`` of those of the first row.

    Free entries are 1 and have ``variance``, twice that on the diagonal; an image is what one
    standard deviation of the noise in an entry of the first row does to the whole matrix.
    """

    variance: float
    free: FloatArray
    images: FloatArray

    def within(self, place: Sequence[int]) -> EntryNoise:
        """The noise in some rows and columns."""
        own = np.ix_(place, place)
        images = self.images[:, own[0], own[1]]
        return EntryNoise(self.variance, self.free[own], images[np.any(images, axis=(1, 2))])

    def covariance(self, weights: FloatArray) -> FloatArray:
        """Covariance of the noise in sums of entries by symmetric weights, (m, d, d)."""
        own = (weights * self.free).reshape(len(weights), -1)
        shared = np.einsum("mij,kij->mk", weights, self.images)
        return 2.0 * self.variance * (own @ own.T) + shared @ shared.T

    def squared(self, between: FloatArray) -> FloatArray:
        """Mean of N C N for the noise N and a symmetric C ``between``."""
        own = np.diag(self.free @ np.diag(between)) + self.free * between
        return self.variance * own + np.einsum(
            "kab,bc,kcd->ad", self.images, between, self.images, optimize=True
        )


@dataclass(frozen=True)
class LinearFit:
    """A regression of a column on others, in their own units; the intercept comes first.

    ``noise`` is the covariance of the noise in the coefficients, and ``sampling`` that of their
    sampling error over the variance around the line, ``residual_variance``. The latter has noise
    of the standard deviation ``residual_noise``, and is at most ``largest``. Coefficients that are
    ``lost`` have no standard error. ``cut`` says that noise made the matrix of the regressors
    unusable, so that its lowest eigenvalues were raised. This pulls coefficients in their
    directions to 0, by nobody knows how much: these are lost.
    """

    names: tuple[str, ...]
    estimates: tuple[float, ...]
    sampling: tuple[tuple[float, ...], ...]
    noise: tuple[tuple[float, ...], ...]
    lost: tuple[bool, ...]
    residual_variance: float
    residual_noise: float
    total_variance: float
    largest: float
    n: float
    cut: bool = False

    @property
    def explained(self) -> float:
        """Adjusted R squared, from 0 to 1; NaN where noise made the variance negative."""
        if not self.total_variance > 0.0:
            return math.nan
        return min(max(1.0 - self.residual_variance / self.total_variance, 0.0), 1.0)

    def estimate(self, weights: Sequence[float]) -> Estimate:
        """A sum of coefficients by weights, as an estimate."""
        w = np.asarray(weights, np.float64)
        sampling: SamplingVariance | Unavailable
        if any(x and lost for x, lost in zip(w, self.lost, strict=True)):
            sampling = Unavailable(refusal("column_in_noise"))
        else:
            each = max(float(w @ np.array(self.sampling) @ w), 0.0)
            scale = each * self.residual_noise / math.sqrt(2.0)
            value, largest = each * self.residual_variance, each * self.largest
            sampling = SamplingVariance(value, scale, max(largest, 0.0))
        noise = max(float(w @ np.array(self.noise) @ w), 0.0)
        return Estimate(float(w @ np.array(self.estimates)), sampling, gaussian=noise)

    def coefficient(self, name: str) -> Estimate:
        """The coefficient of a column."""
        return self.estimate([float(x == name) for x in self.names])


def regress(
    moments: MomentMatrix, outcome: int, regressors: Sequence[int], square: int | None = None
) -> LinearFit:
    """Least squares of a column of z on others and an intercept.

    ``square`` is the place of the outcome's square, where that is a column.
    """
    place, n, gram = [0, *regressors], max(moments.n, 1.0), moments.gram
    used = np.flatnonzero(moments.to_units[[*place, outcome]].any(axis=0)).tolist()
    rows, own = moments.to_units[place][:, used], moments.to_units[outcome, used]
    a, cut, moved = _usable(gram[np.ix_(place, place)], rows, moments)
    inverse = np.asarray(np.linalg.inv(a), np.float64)
    slopes = inverse @ gram[place, outcome]
    solved, line = inverse @ rows, own - slopes @ rows
    dist = moments.noise.within(used)
    products = solved[:, :, None] * line  # weights of the entries of N in each of solved N line
    first = dist.covariance((products + products.transpose(0, 2, 1)) / 2.0) / n**2
    slopes = slopes + solved @ dist.squared(rows.T @ solved) @ line / n**2
    left = float(line @ moments.released[np.ix_(used, used)] @ line) / n
    residual = (left + float(np.trace(a @ first))) * moments.lost_degrees(len(place))
    spread = max(residual, 0.0) / moments.effective * inverse + first
    second = solved @ dist.squared(rows.T @ spread @ rows) @ solved.T / n**2
    of_squares, robust = None if cut else _square(moments, outcome, square), inverse
    if of_squares is not None:
        third = moments.third[np.ix_(place, place, place)]
        variance = gram[place] @ of_squares - np.einsum("ijk,i,j->k", third, slopes, slopes)
        robust = _sandwich(third, gram[np.ix_(place, place)], variance, inverse)
    y, others = moments.columns[outcome - 1], [moments.columns[j - 1] for j in regressors]
    width, shift = y.width, np.zeros(len(place))
    to_own, shift[0] = np.diag([width, *(width / x.width for x in others)]), _zero(y)
    to_own[0, 1:] = [-width * _zero(x) / x.width for x in others]
    varies = float(gram[outcome, outcome] - gram[outcome, 0] ** 2)
    return LinearFit(
        names=("(Intercept)", *(x.name for x in others)),
        estimates=tuple((to_own @ slopes + shift).tolist()),
        sampling=_rows(to_own @ robust @ to_own.T / (width**2 * moments.effective)),
        noise=_rows(to_own @ (first + second) @ to_own.T),
        lost=tuple(((to_own != 0.0) @ (moved | _lost(inverse, solved, dist, n)) > 0).tolist()),
        residual_variance=width**2 * residual,
        residual_noise=width**2 * math.sqrt(dist.covariance(np.outer(line, line)[None])[0, 0]) / n,
        total_variance=width**2 * moments.lost_degrees(1) * varies,
        largest=width**2 / 4.0,
        n=moments.n,
        cut=cut,
    )


def _rows(matrix: FloatArray) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, matrix.tolist()))


def _usable(
    matrix: FloatArray, rows: FloatArray, moments: MomentMatrix
) -> tuple[FloatArray, bool, BoolArray]:
    """The matrix of the regressors, no eigenvalue below what noise makes of zero.

    Also whether any was raised, and which columns have more than a tenth of their variance from
    there. Eigenvalues are those against the covariance of the noise, which is the same in all
    directions.
    """
    other = rows @ rows.T
    values, vectors = eigh(matrix, other)
    noise = math.sqrt(moments.variance * len(matrix)) / max(moments.n, 1.0)
    least = max(noise, 1e-11 * float(np.abs(values).max()))
    if values[0] >= least:
        return matrix, False, np.zeros(len(matrix), bool)
    back, raised = other @ vectors, np.maximum(values, least)
    parts = vectors**2 / raised
    moved = parts[:, values < least].sum(axis=1) > _MOVED * parts.sum(axis=1)
    return (back * raised) @ back.T, True, moved


def _lost(inverse: FloatArray, solved: FloatArray, dist: EntryNoise, n: float) -> BoolArray:
    """Which columns vary by no more than noise, given the others."""
    left = 1.0 / np.diag(inverse)
    own = solved * left[:, None]
    noise = np.sqrt(np.diag(dist.covariance(own[:, :, None] * own[:, None, :]))) / n
    return left < np.maximum(_SURE * noise, 1e-9)


def _square(moments: MomentMatrix, outcome: int, square: int | None) -> FloatArray | None:
    """Weights of all columns that give the square of one, in the units of `to_units`."""
    y, found = moments.columns[outcome - 1], np.zeros(moments.width)
    if y.kind != NUMBER:
        found[outcome] = 1.0  # 0 and 1 are their own squares
        return found
    if square is None:
        return None
    own, zero = moments.columns[square - 1], _zero(y)
    found[square] = own.width / y.width**2
    found[0] = (_zero(own) - zero**2) / y.width**2
    found[outcome] = -2.0 * zero / y.width
    return found


def _sandwich(
    third: FloatArray, matrix: FloatArray, variance: FloatArray, inverse: FloatArray
) -> FloatArray:
    """Sampling covariance of coefficients, over the mean variance of residuals and 1 / n.

    ``variance`` has the means of the columns times the variance of residuals, which is taken to be
    linear in the columns. No direction has less than a twentieth or more than twenty times of what
    one variance for all records would give.
    """
    if not variance[0] > 0.0:
        return inverse
    between = np.einsum("ijk,k->ij", third, inverse @ variance) / variance[0]
    values, vectors = eigh(between, matrix)
    return np.asarray((vectors * np.clip(values, 0.05, 20.0)) @ vectors.T)


def _zero(column: MomentColumn) -> float:
    """Where a column is zero in the units of `to_units`."""
    return column.low + (column.width * column.centre if column.kind == NUMBER else 0.0)
