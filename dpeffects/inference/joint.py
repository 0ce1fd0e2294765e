"""Sums of several columns by arm, released together, and the estimates that they give.

A column is an outcome or a baseline variable on the scale z = (x - low) / (high - low) - 1/2, from
-1/2 to 1/2. A `Margin` has the numbers of records, the sums of z and of z^2 by arm, or by arm and
level of a factor. Margins of the same records agree: least squares makes the levels of every factor
add up to the whole (`agreeing`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpeffects.arrays import FloatArray, OfArrays
from dpeffects.inference.estimate import (
    ArmMeans,
    ErrorPart,
    Estimate,
    MeansPart,
    MeansVariance,
    SamplingVariance,
)
from dpeffects.inference.tables import Confounding
from dpeffects.inference.weighted import weighted

LEFT = "residual confounding from the shrunken model"
ROOM = 1.3
"""Range of what is left of an outcome of two values after a prediction, over its own."""
_RATIO = 6.0
"""What squared relative noise of a size adds to the variance of a mean beyond its linear part: 3 in
a ratio, and as much because the size that is known is the noisy one."""
_UNLIKE = 0.5
"""How much the variance of a subgroup differs from that of its arm, over the latter, over studies:
a noisy one is pulled to that of the arm by it."""


@dataclass(frozen=True)
class StudyColumn:
    """A column of a study: its name, its range, and whether it has two values by declaration.

    A level of a factor has the name of its variable and its own; ``first`` is the level that has no
    column, because it is what the others leave. ``missing`` is the column that says where this one
    has no value, -1 where it always has one.
    """

    name: str
    low: float = 0.0
    high: float = 1.0
    two_valued: bool = False
    variable: str = ""
    level: str = ""
    first: str = ""
    missing: int = -1

    @property
    def width(self) -> float:
        """Length of the range."""
        return self.high - self.low


@dataclass(frozen=True, eq=False)
class Margin(OfArrays):
    """Released numbers by arm and level: ``sizes`` (arms, levels), ``sums`` and ``squares`` of z
    (arms, levels, columns), and the variances of the noise in an entry of the three (3, arms).

    The levels are those of ``factor``; without a factor there is one, the whole. Where records have
    weights, sizes are sums of these. Where the sizes of the arms add up to a known number, the
    noise in two of them has the covariance -``opposite``.
    """

    sizes: FloatArray
    sums: FloatArray
    squares: FloatArray
    noise: FloatArray
    factor: str = ""
    levels: tuple[str, ...] = ("",)
    opposite: float = 0.0

    def __post_init__(self) -> None:
        noise = np.asarray(self.noise, float).reshape(3, -1)
        object.__setattr__(self, "noise", np.broadcast_to(noise, (3, len(self.sizes))).copy())

    @property
    def records(self) -> FloatArray:
        """Sizes to divide by: at least one record."""
        return np.maximum(self.sizes, 1.0)

    def of_sizes(self, sizes: FloatArray) -> Margin:
        """The same where sizes are better known; squares were released less 1/8 each."""
        squares = self.squares + (sizes - self.sizes)[..., None] / 8.0
        return replace(self, sizes=sizes, squares=squares)

    def means(self) -> FloatArray:
        """Means of z, which are within the range."""
        return np.clip(self.sums / self.records[..., None], -0.5, 0.5)

    def mean_noise(self) -> tuple[FloatArray, FloatArray]:
        """Variances of the noise in the means by sums and by sizes."""
        size, total, _ = self.noise[:, :, None, None]
        records = self.records[..., None]
        ratio = (1.0 + _RATIO * size / records**2) / records**2
        return total * ratio + 0.0 * self.sums, size * ratio * self.means() ** 2

    def at(self, level: int, j: int, flag: int = -1) -> Margin:
        """One column at one level, over the records that have a value, as a ``flag`` says."""
        sizes, (size, total, square), opposite = self.sizes[:, [level]], self.noise, self.opposite
        if flag >= 0:  # z is 0 where it is missing
            there = 0.5 * sizes - self.sums[:, [level], flag]
            sizes, size = np.clip(there, 1.0, np.maximum(sizes, 1.0)), 0.25 * size + total
            opposite = 0.25 * opposite
        sums, squares = (x[:, [level], [j]][..., None] for x in (self.sums, self.squares))
        noise = np.array([size, total, square])
        return Margin(sizes, sums, squares, noise, opposite=opposite)

    def times(self, factor: FloatArray) -> Margin:
        """The same with all numbers of an arm so many times larger, and their noise."""
        sizes = self.sizes * factor[:, None]
        sums, squares = (x * factor[:, None, None] for x in (self.sums, self.squares))
        noise = self.noise * factor**2
        return replace(self, sizes=sizes, sums=sums, squares=squares, noise=noise)


def agreeing(whole: Margin, parts: Sequence[Margin], n: float | None) -> tuple[Margin, ...]:
    """The same margins with levels that add up to the whole, by least squares.

    All of them are about the same records. ``n`` is the number of records, where that is known: the
    sizes of the arms add up to it.

    Examples
    --------
    >>> one = Margin(np.array([[6.0], [4.0]]), *[np.zeros((2, 1, 0))] * 2, np.ones(3))
    >>> two = replace(one, sizes=np.array([[4.0, 4.0], [2.0, 2.0]]), levels=("a", "b"))
    >>> whole, by_level = agreeing(one, [two], None)
    >>> whole.sizes.ravel().round(2).tolist(), by_level.sizes.round(2).tolist()
    ([6.67, 4.0], [[3.33, 3.33], [2.0, 2.0]])
    """
    margins, opposite = [whole, *parts], 0.0
    made: list[dict[str, Any]] = [{"noise": []} for _ in margins]
    for k, name in enumerate(("sizes", "sums", "squares")):
        entries = [getattr(margin, name) for margin in margins]
        levels = [entry.shape[1] for entry in entries]
        price = [
            1.0 / np.maximum(x.noise[k] * m, 1e-300) for x, m in zip(margins, levels, strict=True)
        ]
        seen = [entry.sum(axis=1) for entry in entries]
        of_total = 1.0 / np.sum(price, axis=0)
        by_arm = (-1, *(1,) * (seen[0].ndim - 1))
        part = [(p * of_total).reshape(by_arm) for p in price]
        total = np.sum([p * x for p, x in zip(part, seen, strict=True)], axis=0)
        if name == "sizes" and n is not None:
            every = max(float(of_total.sum()), 1e-300)
            total = total + (n - total.sum()) * of_total / every
            opposite = float(of_total.min()) * (float(of_total.min()) / every)
            of_total = of_total * (1.0 - of_total / every)
        for own, margin, entry, x in zip(made, margins, entries, seen, strict=True):
            m = entry.shape[1]
            own[name] = entry + ((total - x) / m)[:, None]
            own["noise"].append(margin.noise[k] * (1.0 - 1.0 / m) + of_total / m**2)
    return tuple(
        replace(margin, **own, opposite=opposite / len(margin.levels) ** 2)
        for margin, own in zip(margins, made, strict=True)
    )


@dataclass(frozen=True, eq=False)
class JointSums(OfArrays):
    """What a study releases: margins of its outcomes, those of its baseline variables, and facts.

    ``arms`` are in the order of the first axis, ``contrasts`` pairs of them. ``noise`` in a sum is
    Laplace unless ``normal``: noise of several columns together is close to it. Where records count
    by weights, ``unequal`` is the mean of squared weights over the mean weight, by arm;
    ``confounding`` is what they leave of it, None where treatment was randomised, and
    ``unadjusted`` the whole without weights. Outcomes of weighted records are what predictions by
    baseline variables leave of them where ``missed`` says how much these miss of what they could
    explain, as mean squares by outcome: an indicator then has more room (`ROOM`). ``sites`` are
    what sites released by themselves, where this is all of them together,
    ``site_names`` their names, and ``target`` the arms whose records an effect is for.
    """

    arms: tuple[str, ...]
    contrasts: tuple[tuple[int, int], ...]
    outcomes: tuple[StudyColumn, ...]
    whole: Margin
    groups: tuple[Margin, ...] = ()
    baseline_columns: tuple[StudyColumn, ...] = ()
    baseline: Margin | None = None
    weighted_baseline: Margin | None = None
    normal: bool = True
    unequal: tuple[float, ...] = ()
    confounding: Confounding | None = None
    unadjusted: Margin | None = None
    missed: tuple[float, ...] = ()
    sites: tuple[JointSums, ...] = ()
    site_names: tuple[str, ...] = ()
    target: tuple[int, ...] = ()

    def with_weights(self, unequal: float) -> JointSums:
        """The same where records have weights, whose mean square is so many times their mean."""
        own = self.unequal or (1.0,) * len(self.whole.sizes)
        return replace(self, unequal=tuple(unequal * x for x in own))

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the outcomes, and which arms are compared where there are more than two."""
        names = [f": {self.arms[a]} - {self.arms[b]}" for a, b in self.contrasts]
        names = [""] if len(self.arms) == 2 else names
        return tuple(f"{column.name}{name}" for column in self.outcomes for name in names)

    def effects(self) -> tuple[Estimate, ...]:
        """Estimates on all records, in the order of `labels`."""
        if self.sites:
            return self._over_sites([site.effects() for site in self.sites])
        return tuple(self._effects(self.whole, 0))

    def spread(self, j: int) -> float:
        """Standard deviation of an outcome within arms, NaN where noise hides it."""
        whole = self._at(self.whole, 0, j)
        own, unknown = whole.room**2 * whole.variances, whole.room**2 * whole.scales
        mean, noise = float(own.mean()), float(np.hypot.reduce(unknown)) / len(unknown)
        return self.outcomes[j].width * math.sqrt(mean) if mean > 2.0 * noise else math.nan

    def effects_by_level(
        self, group: int, apart: bool = False
    ) -> Iterator[tuple[str, tuple[Estimate, ...]]]:
        """Levels of a factor, and the estimates within each.

        Levels that were made to add up to the whole have errors that are opposite. ``apart`` is for
        comparisons between them: noise as it was before is independent, and has the variance of
        their differences, or more where sizes are unequal.
        """
        if self.sites:
            sites = [site.effects_by_level(group, apart) for site in self.sites]
            for k, found in enumerate(zip(*sites, strict=True)):
                yield found[0][0], self._over_sites([effects for _, effects in found], group, k)
            return
        margin = self.groups[group]
        if apart:
            m = len(margin.levels)
            noise = np.maximum(margin.noise - self.whole.noise / m**2, 0.0)
            margin = replace(margin, noise=noise / (1.0 - 1.0 / max(m, 2)))
        for k, level in enumerate(margin.levels):
            yield level, tuple(self._effects(margin, k))

    def _over_sites(
        self, effects: Sequence[Sequence[Estimate]], group: int | None = None, level: int = 0
    ) -> tuple[Estimate, ...]:
        """Effects at the sites, each for its own records, or for those at a level of a factor."""
        own = [site._stands_for(self.target, group, level) for site in self.sites]
        records = np.array(own)
        shares = (records / records.sum()).tolist()
        return tuple(weighted(each, shares) for each in zip(*effects, strict=True))

    @property
    def plain(self) -> Margin:
        """The whole without weights."""
        return self.whole if self.unadjusted is None else self.unadjusted

    def _stands_for(self, arms: Sequence[int], group: int | None, level: int) -> float:
        """Records of some arms, or those of them that are at a level."""
        records = float(self.plain.records[list(arms)].sum())
        if group is None:
            return records
        sizes = self.groups[group].records[list(arms)].sum(axis=0)
        return records * float(sizes[level] / sizes.sum())

    def _effects(self, margin: Margin, level: int) -> Iterator[Estimate]:
        for j in range(len(self.outcomes)):
            whole = self._at(self.whole, 0, j)
            at = whole if margin is self.whole else self._at(margin, level, j, whole)
            for pair in self.contrasts:
                yield self._estimate(j, at, whole, list(pair))

    def _at(self, margin: Margin, level: int, j: int, whole: _Outcome | None = None) -> _Outcome:
        """An outcome at a level; its variances are pulled to those of the ``whole``."""
        column = self.outcomes[j]
        known = margin.at(level, j, column.missing)
        own, scales = _spread(known, column.two_valued and not self.missed)
        if whole is not None:
            # as far as noise explains that they differ
            prior = (_UNLIKE * np.clip(whole.variances, 1e-4, 0.25)) ** 2 + whole.scales**2
            kept = prior / (prior + scales**2)
            own = whole.variances + kept * (own - whole.variances)
            scales = np.sqrt(kept * scales**2)
        unequal = np.array(self.unequal or (1.0,) * len(self.arms))
        room = ROOM if self.missed and column.two_valued else 1.0
        return _Outcome(known, own, scales, unequal, room, column.two_valued)

    def _estimate(self, j: int, at: _Outcome, whole: _Outcome, pair: list[int]) -> Estimate:
        """The difference between two arms, with the distribution of its error."""
        column, records = self.outcomes[j], at.margin.records[pair, 0]
        width, most = at.room * column.width, column.width
        single = width * _noise_in_means(at.margin, pair)
        factor = width**2 * at.per_variance[pair]
        variances, scales = factor * at.variances[pair], factor * at.scales[pair] / math.sqrt(2.0)
        dist = (variances.tolist(), scales.tolist(), (width**2 / 4.0 / records).tolist())
        sampling = map(SamplingVariance, *dist)
        one, two = ((column.low + column.high) / 2.0 + width * at.means[pair]).tolist()
        left = most * np.sqrt(self._left(j, at, whole, pair))
        both = ArmMeans(
            one,
            two,
            (MeansVariance(next(sampling), 1.0, 0.0), MeansVariance(next(sampling), 0.0, 1.0)),
            laplace=() if self.normal else _pairs(single / math.sqrt(2.0)),
            gaussian=_pairs(single) if self.normal else (),
            parts=tuple(MeansPart(LEFT, *x) for x in np.diag(left).tolist() if any(x)),
            possible=(column.low, column.high),
            design=(*(at.unequal[pair] / records).tolist(), 0.0) if column.two_valued else None,
        )
        parts = (ErrorPart(LEFT, float(left @ left)),) if left.any() else ()
        made = both.combined(1.0, -1.0)
        return replace(made, means=both, parts=parts, possible=(-most, most))

    def _left(self, j: int, at: _Outcome, whole: _Outcome, pair: list[int]) -> FloatArray:
        """Variances of two means of z by confounding that weights leave.

        It moves each arm by as much as its weights had to. What they removed from all records says
        how strong it is. Within a subgroup it is taken to be as strong as that, or as strong as
        expected before anything was seen, whichever is more.
        """
        about = self.confounding
        if about is None:
            return np.zeros(2)
        if self.missed:  # what predictions explain is not confounded any more
            missed = self.missed[j]
            kept = 1.0 - (1.0 - about.kept) * math.sqrt(missed)
            about = replace(about, kept=kept, part=missed * about.part, moved=missed * about.moved)
        far = np.square(about.far)
        part = far / max(float(far.sum()), 1e-300)
        unit, of_all = (x.squared_deviations[pair] @ part for x in (at, whole))
        left = about.left(of_all, *self._removed(j, whole, pair))
        if at is not whole:
            left = np.maximum(unit * left / max(float(of_all), 1e-300), about.left(unit))
        return np.asarray(part * left)

    def _removed(
        self, j: int, whole: _Outcome, pair: list[int]
    ) -> tuple[FloatArray, FloatArray] | tuple[()]:
        """What weights took away from a difference, and the variance of the error in that."""
        if self.unadjusted is None:
            return ()
        plain, squared = self.unadjusted.at(0, j, self.outcomes[j].missing), whole.room**2
        noise = [np.sum(x.mean_noise(), axis=0)[pair, 0, 0].sum() for x in (whole.margin, plain)]
        removed = np.subtract(*(plain.means()[:, 0, 0] - whole.room * whole.means)[pair])
        sampling = np.maximum((whole.per_variance * whole.variances)[pair], 0.0).sum()
        return np.asarray(removed), np.asarray(squared * (noise[0] + sampling / 2.0) + noise[1])


@dataclass(frozen=True, eq=False)
class _Outcome:
    """An outcome at a level: a margin of one column, and the variances of z by arm.

    ``scales`` are the standard deviations of the noise in these, ``unequal`` is as in `JointSums`,
    and ``room`` the range of what is summed over that of the outcome.
    """

    margin: Margin
    variances: FloatArray
    scales: FloatArray
    unequal: FloatArray
    room: float
    two_valued: bool

    @property
    def means(self) -> FloatArray:
        """Means of z by arm."""
        return self.margin.means()[:, 0, 0]

    @property
    def per_variance(self) -> FloatArray:
        """Sampling variances of the means, for each unit of the variance of z."""
        return self.unequal / np.maximum(self.margin.records[:, 0] - 1.0, 1.0)

    @property
    def squared_deviations(self) -> FloatArray:
        """Squared mean deviations of z from its mean by arm, as large as noise lets them be."""
        variance = np.clip(self.room**2 * (self.variances + self.scales), 0.0, 0.25)
        return 4.0 * variance**2 if self.two_valued else 2.0 / math.pi * variance


def _noise_in_means(at: Margin, pair: list[int]) -> FloatArray:
    """What a standard deviation of each independent noise does to the means of two arms."""
    by_sums, by_sizes = (np.sqrt(x[pair, 0, 0]) for x in at.mean_noise())
    both = -at.means()[pair, 0, 0] / at.records[pair, 0] * math.sqrt(at.opposite) * [1.0, -1.0]
    own = np.sqrt(np.maximum(by_sizes**2 - both**2, 0.0))
    return np.vstack([np.diag(by_sums), np.diag(own), both])


def _pairs(single: FloatArray) -> tuple[tuple[float, float], ...]:
    return tuple((a, b) for a, b in single.tolist() if a or b)


def _spread(at: Margin, two_valued: bool = False) -> tuple[FloatArray, FloatArray]:
    """Variances of z by arm, and the standard deviations of the noise in them.

    That of an indicator follows from its mean.
    """
    sizes, means = at.records[:, 0], at.means()[:, 0, 0]
    by_sums, by_sizes = (x[:, 0, 0] for x in at.mean_noise())
    noise = by_sums + by_sizes  # the square of a noisy mean is too large by its variance
    if two_valued:
        return 0.25 - means**2 + noise, 2.0 * np.abs(means) * np.sqrt(noise)
    size, _, square = at.noise
    squares = at.squares[:, 0, 0] / sizes
    own = squares - means**2 + noise
    by_size = size * (squares / sizes) ** 2
    return own, np.sqrt(square / sizes**2 + by_size + 4.0 * means**2 * noise)
