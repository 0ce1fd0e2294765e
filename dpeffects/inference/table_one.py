"""Table 1: baseline variables by arm from released sums, and how far the arms differ.

Numbers are possible ones whatever the noise was: numbers of records are not negative and add up,
shares lie between 0 and 1, and those of the levels of a factor add up to 1. The standardised
difference divides by the root of the mean of two arms' variances, before weighting; of more than
two arms it is the largest between two of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import NormalDist
from typing import Any

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray
from dpeffects.inference.joint import JointSums, Margin, StudyColumn
from dpeffects.inference.noisy import COUNTED, OWN, STANDARDISED, noise_ratio
from dpeffects.inference.tables import not_negative

SURE = 1.0 / OWN
"""A variance of fewer standard deviations of its noise is not used."""
WITHIN = 1.96
"""A difference below this many standard deviations of its noise may be nothing but noise."""
_KNOWN = 0.006
"""Noise in a variance of z up to which both arms count alike in it. Where it is more, that with few
records counts less, down to its part of the records."""
_UNLIKE, _COLUMNS = 0.6, 4
"""How much variances differ between columns, against their mean: worth so many of them."""
MISSING, OVERALL = "missing", "overall"


@dataclass(frozen=True)
class Difference:
    """A standardised difference, and the standard deviation of its noise, which may hide all."""

    value: float = math.nan
    noise_sd: float = math.inf

    @classmethod
    def standardised(
        cls, gap: float, noise: float, squared: float, unknown: float, sure: float = SURE
    ) -> Difference:
        """Divide a difference of means by the root of a variance.

        ``noise`` and ``unknown`` are the variances of the noise in both. A variance that is not
        ``sure``, by so many standard deviations of its noise, is not divided by.
        """
        if squared <= max(sure * math.sqrt(unknown), 1e-12):
            return cls()
        value = float(gap / math.sqrt(squared))
        return cls(value, math.sqrt(noise / squared + value**2 * unknown / squared**2 / 4.0))


def variable_name(variable: str, level: str) -> str:
    """A variable, or a level of it, as a row is called."""
    return f"{variable}{': ' if level == MISSING else ' '}{level}".strip()


def within_noise(value: float, sd: float) -> bool | None:
    """Tell whether a difference may be nothing but noise; None where there is none."""
    return None if math.isnan(value) else abs(value) <= WITHIN * sd


def hidden(value: float, sd: float) -> float:
    """Return the noise of a difference over the most that a printed one has."""
    return float(noise_ratio(sd, STANDARDISED, value, signed=True))


@dataclass(frozen=True, eq=False)
class _Moments:
    """Means and variances of z by arm, with the variances of the noise in each."""

    sizes: FloatArray
    size_noise: FloatArray
    means: FloatArray
    mean_noise: FloatArray
    variances: FloatArray
    variance_noise: FloatArray

    def with_all(self) -> _Moments:
        """The same, and for all arms together last: what arms have adds up."""
        part = self.sizes / self.sizes.sum()
        mean = float(part @ self.means)
        spread = min(float(part @ (self.variances + self.means**2)) - mean**2, 0.25)
        noises = (part**2 @ self.mean_noise, spread, part**2 @ self.variance_noise)
        last = (self.sizes.sum(), self.size_noise.sum(), mean, *noises)
        own = vars(self).values()
        return _Moments(*(np.append(x, y) for x, y in zip(own, last, strict=True)))

    def difference(self, own: _Moments) -> Difference:
        """How far means of the arms differ, in standard deviations that are ``own``."""
        found = [self._between(own, *pair) for pair in combinations(range(len(self.sizes)), 2)]
        largest = max(found, key=lambda x: -math.inf if math.isnan(x.value) else abs(x.value))
        return largest if len(self.sizes) == 2 else replace(largest, value=abs(largest.value))

    def _between(self, own: _Moments, a: int, b: int) -> Difference:
        return Difference.standardised(
            self.means[a] - self.means[b],
            self.mean_noise[a] + self.mean_noise[b],
            (own.variances[a] + own.variances[b]) / 2.0,
            (own.variance_noise[a] + own.variance_noise[b]) / 4.0,
        )


@dataclass(frozen=True, eq=False)
class Spreads:
    """Variances of z that differences between two arms are divided by, column by column.

    ``unknown`` are the variances of the noise in them. Those of ``numbers``, which are released,
    are pulled to the mean of all, as far as noise explains how they differ.
    """

    squared: FloatArray
    unknown: FloatArray

    @classmethod
    def of(cls, margin: Margin, numbers: BoolArray) -> Spreads:
        """The mean of both arms' variances, before weighting."""
        own = [_of_column(margin, not x, j) for j, x in enumerate(numbers)]
        variances, noise = (
            np.array([getattr(x, y) for x in own]) for y in ("variances", "variance_noise")
        )
        part, sizes = np.full(2, 0.5), own[0].sizes
        if numbers.any():
            few = int(np.argmin(sizes))
            least = _KNOWN / max(float(np.sqrt(noise[numbers, few].mean())), 1e-12)
            part[few] = min(max(least, sizes[few] / sizes.sum()), 0.5)
            part[1 - few] = 1.0 - part[few]
        made = cls(variances @ part, noise @ part**2)
        if numbers.any():
            made.squared[numbers], made.unknown[numbers] = pulled(
                made.squared[numbers], made.unknown[numbers]
            )
        return made

    def differences(self, margin: Margin, numbers: BoolArray, sure: float) -> list[Difference]:
        """Standardised differences of the means in a margin, with weights or without."""
        found = []
        for j, (squared, unknown) in enumerate(zip(self.squared, self.unknown, strict=True)):
            own = _of_column(margin, not numbers[j], j)
            gap, noise = own.means[0] - own.means[1], float(own.mean_noise.sum())
            found.append(Difference.standardised(gap, noise, squared, unknown, sure))
        return found


def pulled(seen: FloatArray, noise: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Variances of columns pulled to the mean of all, and the variances of what is not known."""
    k, mean = seen.size, max(float(seen.mean()), 0.0)
    between = max(float(np.sum((seen - mean) ** 2 - noise)), 0.0)
    between = (between + _COLUMNS * (_UNLIKE * mean) ** 2) / (k + _COLUMNS) + 1e-12
    kept = between / (between + noise)
    unknown = kept * noise + (1.0 - kept) ** 2 * float(noise.mean()) / k
    return mean + kept * (seen - mean), unknown


def unlike(rows: Sequence[dict[str, Any]], sizes: dict[str, float]) -> dict[str, Any] | None:
    """The row in which arms differ most, where chance and noise hardly ever make them differ so.

    By chance, as where each record was randomised, a standardised difference has the variance of
    one over the numbers of records.
    """
    far = NormalDist().inv_cdf(1.0 - 0.5e-6 / max(len(rows), 1))

    def beyond(row: dict[str, Any]) -> bool:
        known = sizes if row["share"] else {arm: row[f"{arm}_n"] for arm in sizes}
        chance = sum(1.0 / max(n, 1.0) for n in known.values())
        return abs(row["smd"]) > max(0.1, far * math.sqrt(chance + row["smd_noise_sd"] ** 2))

    return max(filter(beyond, rows), key=lambda row: abs(row["smd"]), default=None)


def arm_sizes(sums: JointSums) -> tuple[FloatArray, float]:
    """Numbers of records by arm, which are not negative and add up, and the sd of their noise."""
    sizes = sums.plain.sizes[:, 0]
    noise = math.sqrt(sums.plain.noise[0].max())
    return not_negative(sizes, max(float(sizes.sum()), 0.0)), noise


def table_one(sums: JointSums) -> Iterator[dict[str, Any]]:
    """Rows of Table 1: variables in the order of the formula, with all levels of a factor.

    ``share`` says that a row has two values: the mean is the share of the records that have the
    larger one, n their number. Other means are in units of the data, and n is the number of records
    that have a value. ``noise_sd`` is the noise in the mean, ``noise_ratio`` that over the most of
    what is printed; the sd is NaN where it is mostly noise.
    """
    known = (sums.baseline, sums.plain), (sums.weighted_baseline, sums.whole)
    margins = [
        replace(x, noise=np.vstack([sized.noise[:1], x.noise[1:]]))
        for x, sized in known
        if x is not None
    ]
    columns = sums.baseline_columns if margins else ()
    flags = {flag: j for j in range(len(columns)) if (flag := _flag(columns, j)) >= 0}
    for group in _grouped(columns, set(flags)):
        for row in _rows(columns, group, margins):
            yield _row((*sums.arms, OVERALL), *row)


def _grouped(columns: tuple[StudyColumn, ...], flags: set[int]) -> Iterator[list[int]]:
    """Columns of one variable: the levels of a factor, or a number and where it is missing."""
    levels: dict[tuple[str, str], list[int]] = {}
    for j, column in enumerate(columns):
        if _is_level(column):
            levels.setdefault((column.variable, column.first), []).append(j)
    for j, column in enumerate(columns):
        if _is_level(column):
            group = levels[column.variable, column.first]
            if group[0] == j:
                yield group
        elif j not in flags:
            flag = _flag(columns, j)
            yield [j, flag] if flag >= 0 else [j]


def _is_level(column: StudyColumn) -> bool:
    """Whether a column is a level among several; 0 and 1 are one variable with its own name."""
    return bool(column.level) and column.name != column.variable


def _flag(columns: tuple[StudyColumn, ...], j: int) -> int:
    """The column that says where another has no value, -1 where it always has one."""
    if columns[j].missing >= 0:
        return columns[j].missing
    names = [column.name for column in columns]
    name = f"is_na({columns[j].name})"
    return names.index(name) if name in names else -1


def _rows(
    columns: tuple[StudyColumn, ...], group: list[int], margins: Sequence[Margin]
) -> Iterator[tuple[StudyColumn, str, str, Sequence[_Moments]]]:
    """The rows of one variable: its column, name and level, and moments in each margin."""
    column = columns[group[0]]
    if _is_level(column):
        names = [columns[j].level for j in group]
        if column.first not in names:
            names = [column.first, *names]
        made = zip(*(_levels(margin, group, len(names)) for margin in margins), strict=True)
        for name, moments in zip(names, made, strict=True):
            level = MISSING if name == f"({MISSING})" else name
            yield StudyColumn(name, two_valued=True), column.variable, level, moments
        return
    variable, level = column.name, ""
    if column.two_valued and column.high != 1.0:
        level = f"{column.high:g}"
    if variable.startswith("is_na("):  # of an outcome
        variable, level = variable[6:-1], MISSING
    yield column, variable, level, [_of_column(x, column.two_valued, *group) for x in margins]
    for flag in group[1:]:
        own = [_of_column(x, columns[flag].two_valued, flag) for x in margins]
        yield columns[flag], variable, MISSING, own


def _row(
    arms: Sequence[str], column: StudyColumn, variable: str, level: str, found: Sequence[_Moments]
) -> dict[str, Any]:
    """A row in units of the data: figures by arm, then differences before and after weighting."""
    whole = found[0].with_all()
    means, counts, noise = whole.means + 0.5, whole.sizes, whole.size_noise
    scale = 1.0 if column.two_valued else column.width
    spread = whole.variances * whole.sizes / np.maximum(whole.sizes - 1.0, 1.0)
    ratios = noise_ratio(np.sqrt(whole.mean_noise), 1.0)
    if column.two_valued:
        noise = whole.mean_noise * counts**2 + noise * means**2
        counts, spread = means * counts, means * (1.0 - means)
        ratios.clip(noise_ratio(np.sqrt(noise), value=np.maximum(counts, COUNTED)), out=ratios)
    else:
        means = column.low + scale * means
        spread[spread < SURE * np.sqrt(whole.variance_noise)] = math.nan
    sds, noise_sds = scale * np.sqrt(np.maximum(spread, 0.0)), scale * np.sqrt(whole.mean_noise)
    figures = {"n": counts, "mean": means, "sd": sds, "noise_sd": noise_sds, "noise_ratio": ratios}
    made: dict[str, Any] = {"variable": variable, "level": level, "share": column.two_valued}
    for k, arm in enumerate(arms):
        made |= {f"{arm}_{name}": float(x[k]) for name, x in figures.items()}
    for name, moments in zip(("smd", "smd_weighted"), found, strict=False):
        apart = moments.difference(found[0])
        made |= {name: apart.value, f"{name}_noise_sd": apart.noise_sd}
        made[f"{name}_within_noise"] = within_noise(apart.value, apart.noise_sd)
        made[f"{name}_noise_ratio"] = hidden(apart.value, apart.noise_sd)
    return made


def _sizes(margin: Margin) -> FloatArray:
    """Numbers of records to divide by."""
    sizes = margin.sizes[:, 0]
    return np.maximum(not_negative(sizes, max(float(sizes.sum()), 0.0)), 1.0)


def _of_column(margin: Margin, two_valued: bool, j: int, flag: int = -1) -> _Moments:
    """Moments of one column; over records that have a value, where a flag says which have."""
    sizes, (size, total, square) = _sizes(margin), margin.noise
    if flag >= 0:  # z is 0 where it is missing
        there = 0.5 * sizes - margin.sums[:, 0, flag]
        sizes, size = np.clip(there, 1.0, sizes), 0.25 * size + total
    means = np.clip(margin.sums[:, 0, j] / sizes, -0.5, 0.5)
    noise = total / sizes**2 + size * (means / sizes) ** 2
    if two_valued:
        return _of_shares(sizes, size, means, noise)
    squares = np.clip(margin.squares[:, 0, j] / sizes, 0.0, 0.25)
    # the square of a noisy mean is too large by its noise
    variances = np.minimum(squares - means**2 + noise, 0.25)
    unknown = square / sizes**2 + size * ((squares - 0.125) / sizes) ** 2 + 4.0 * means**2 * noise
    return _Moments(sizes, 0.0 * sizes + size, means, noise, variances, unknown)


def _of_shares(sizes: FloatArray, size: float, means: FloatArray, noise: FloatArray) -> _Moments:
    variances = np.minimum(0.25 - means**2 + noise, 0.25)
    return _Moments(sizes, 0.0 * sizes + size, means, noise, variances, 4.0 * means**2 * noise)


def _levels(margin: Margin, group: list[int], count: int) -> Iterator[_Moments]:
    """Moments of the indicators of all levels; the first is what the others leave.

    The closest shares (least squares) that are not negative and add up to at most 1.
    """
    sizes, (size, total, _) = _sizes(margin), margin.noise
    shares = np.maximum(margin.sums[:, 0, group].T / sizes + 0.5, 0.0)
    for k in np.flatnonzero(shares.sum(axis=0) > 1.0):
        shares[:, k] = not_negative(shares[:, k], 1.0)
    if count > len(group):
        rest = shares.sum(axis=0).clip(0.0, 1.0)
        noise = len(group) * total + size * (rest - 0.5 * len(group)) ** 2
        yield _of_shares(sizes, size, 0.5 - rest, noise / sizes**2)
    for share in shares:
        noise = (total + size * (share - 0.5) ** 2) / sizes**2
        yield _of_shares(sizes, size, share - 0.5, noise)
