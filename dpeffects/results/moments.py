"""Moments: second moments that were released once, and the regressions that follow from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.documents import refuse_twins
from dpeffects.errors import OptionError, ReleaseError, did_you_mean
from dpeffects.formula import Formula, parse
from dpeffects.formula.expression import Categorical, Column, Factor, source
from dpeffects.guarantee import weakest
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.inference.noisy import OWN, noise_ratio
from dpeffects.inference.regression import (
    ARM,
    INDICATOR,
    NUMBER,
    PRODUCT,
    LinearFit,
    MomentMatrix,
    regress,
)
from dpeffects.inference.table_one import Difference
from dpeffects.results.average import Result
from dpeffects.results.covariate_balance import hidden
from dpeffects.results.export import effect_row, frame_of, or_nan
from dpeffects.results.record import Record
from dpeffects.results.several import ArmEffects, SeveralRows, SubsetEffects

if TYPE_CHECKING:
    import pandas as pd

SPREAD = 1.0 / 8.0
"""Standard deviation of a number over its range, where nothing is known of it."""
_USUAL = 1.5
"""How much more noise there usually is: columns are correlated, and means not in the middle."""
HALF = 0.5
"""Noise of this part of the sampling error adds an eighth to intervals."""
TITLE = "regression on released moments"
_CUT = (
    "MOSTLY NOISE: the moments of these columns are no more than noise in some direction, and were "
    "moved to the nearest ones that a regression can use; what that moves has no interval"
)
_ASSUMED = {
    True: "The variance of residuals is taken to be linear in the columns.",
    False: "They are classical: residuals are taken to have one variance. Where they do not, as in "
    "a small arm with very unequal outcomes, the part for sampling error is wrong; with I({0}**2) "
    "among the columns of a release it need not be assumed.",
}
"""What is assumed of residuals, by whether the square of the outcome is known."""


def term_of(factors: Iterable[Factor]) -> tuple[str, ...]:
    """Names of the factors of a term, in an order that does not depend on how it is written."""
    own = (Column(x.column) if isinstance(x, Categorical) else x for x in factors)
    return tuple(sorted({x.name if isinstance(x, Column) else source(x) for x in own}))


@dataclass(frozen=True, repr=False, kw_only=True)
class Regression(SeveralRows, words="about_moments"):
    """A linear regression that released moments give; made by `Moments.regression`.

    Parameters
    ----------
    fit
        Coefficients in the units of the data, with the covariances of sampling error and noise.
    warning
        What nobody should overlook, of the moments.
    estimand, method, ...
        The fields of `Record`.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("cate_1", n=20_000, seed=1)
    >>> kept = dpe.dp_moments("outcome ~ treatment | x1 + x2", data, epsilon=4, seed=1)
    >>> table = kept.regression("outcome ~ treatment + x1")
    >>> table.tidy()["term"].tolist()
    ['(Intercept)', 'treatment', 'x1']
    """

    _of_effects = False
    fit: LinearFit
    warning: str = ""

    @property
    def doubts(self) -> str:
        """What nobody should overlook about the estimates; empty when all is well."""
        return "; ".join(filter(None, (_CUT if self.fit.cut else "", self.warning)))

    @property
    def residual_sd(self) -> float:
        """Standard deviation around the line; NaN where noise made the variance negative."""
        variance = self.fit.residual_variance
        return math.sqrt(variance) if variance >= 0.0 else math.nan

    @property
    def r_squared(self) -> float:
        """Part of the variance of the outcome that the line explains (adjusted R squared)."""
        return self.fit.explained

    def coefficient(self, name: str) -> Estimate:
        """One coefficient, with the parts of its error."""
        if name not in self.fit.names:
            known = ", ".join(self.fit.names)
            raise OptionError(f"this regression has {known}, not {name!r}")
        return self.fit.coefficient(name)

    def conf_int(self, conf_level: float = 0.95) -> FloatArray:
        """Intervals, one row for each coefficient; NaN where there is none."""
        found = [inference.interval(self.fit.coefficient(x), conf_level) for x in self.fit.names]
        none = (math.nan, math.nan)
        return np.array([none if isinstance(x, Unavailable) else tuple(x) for x in found])

    def tidy(self, conf_level: float = 0.95) -> pd.DataFrame:
        """One row for each coefficient; ``sampling_se`` and ``noise_sd`` are parts of its error."""
        rows = []
        for name in self.fit.names:
            own = self.fit.coefficient(name)
            error, p = inference.std_error(own), inference.p_value(own)
            row = effect_row(own.value, error, p, inference.interval(own, conf_level), term=name)
            sampling = or_nan(inference.sampling_variance(own))
            rows.append(
                row
                | {"sampling_se": math.sqrt(sampling), "noise_sd": math.sqrt(own.noise_variance)}
            )
        return self._frame(rows)

    @property
    def _estimand(self) -> str:
        return "coefficient"

    def _glance(self) -> dict[str, Any]:
        return super()._glance() | {"residual_sd": self.residual_sd, "r_squared": self.r_squared}

    def __repr__(self) -> str:
        return (
            f"<dpeffects regression of {self.outcome}, {len(self.fit.names)} coefficients, "
            f"{self.guarantee.line(self.n)}>"
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class Moments(SeveralRows, words="about_moments"):
    """Second moments of all columns, released once; made by `dp_moments`.

    Whatever follows from them costs nothing: regressions, adjusted effects, effects by the levels
    of a factor, balance. Moments of several sites add up, ``north + south``.

    Parameters
    ----------
    matrix
        The released matrix, and how its columns are scaled.
    outcomes, covariates
        Terms of the formula.
    arms
        Levels of the treatment, the reference first.
    levels
        Levels of the factors by which effects can be asked for.
    stands_on
        "randomised" where the call said so.
    warning
        What nobody should overlook, of the method's own.
    estimand, method, ...
        The fields of `Record`.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("cate_1", n=20_000, seed=1)
    >>> kept = dpe.dp_moments("outcome ~ treatment | x1 + x2", data, epsilon=4, seed=1)
    >>> kept.effect("outcome ~ treatment | x1").basis
    'adjusted'
    >>> dpe.Moments.from_json(kept.to_json()) == kept
    True
    """

    _of_effects = False
    matrix: MomentMatrix
    outcomes: tuple[str, ...]
    covariates: tuple[str, ...] = ()
    arms: tuple[str, ...] = ("0", "1")
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stands_on: str = ""
    warning: str = ""

    def __post_init__(self) -> None:
        if len(self.matrix.places(ARM)) != len(self.arms) - 1:
            raise ValueError("moments have a column for each arm after the first")

    # --- what follows ---------------------------------------------------------------------------

    def regression(self, formula: str) -> Regression:
        """Regress a column on others: ``"y ~ t + x1 + region"``. Nothing is spent.

        Any outcome or covariate may stand on either side. ``t:sex`` is there for the factors of
        ``subgroups=``; other products have to be in the formula of `dp_moments`. ``.`` stands for
        all covariates.
        """
        if "|" in str(formula):
            raise OptionError('a regression has no `|`: write "y ~ t + x1", or ask for effect()')
        if not isinstance(formula, str) or formula.count("~") != 1:
            raise OptionError('a regression is written "y ~ t + x1"')
        asked = self._read(formula)
        if asked.more_outcomes:
            raise OptionError("a regression has one outcome: ask for one at a time")
        places = [j for term in asked.terms for j in self._places(term_of(term))]
        if not asked.intercept:
            raise OptionError("a regression on moments has an intercept")
        return self._regression(formula, term_of([asked.outcome]), places)

    def effect(self, formula: str | None = None) -> Result | ArmEffects:
        """The regression-adjusted effect of the treatment: ``"y ~ t | x1 + x2"``.

        By default on the first outcome, adjusted for all covariates. Nothing is spent.
        """
        outcome, covariates = self._asked(formula)
        others = [j for term in covariates for j in self._places(term)]
        found = self._regression(formula or self.formula, outcome, [*self._arms, *others])
        effects = [
            self._effect(found, {self.matrix.columns[a - 1].name: 1.0}, bool(others))
            for a in self._arms
        ]
        about = _about(found)
        if len(effects) == 1:
            details = {"residual sd": found.residual_sd, "adjusted R squared": found.r_squared}
            details = {name: x for name, x in details.items() if not math.isnan(x)}
            return Result.from_estimate(effects[0], **about | {"details": details})
        labels = tuple(f"{arm} - {self.arms[0]}" for arm in self.arms[1:])
        return ArmEffects(
            arms=self.arms, contrasts="reference", labels=labels, effects=tuple(effects), **about
        )

    def effects_by(self, factor: str, formula: str | None = None) -> SubsetEffects:
        """Effects at each level of a factor that was named in ``subgroups=``; ``"y ~ t | x1"``.

        Slopes of covariates are the same at all levels. The difference between two levels is the
        coefficient of a product: ``regression("y ~ t + sex + t:sex")``.
        """
        if factor not in self.levels:
            known = ", ".join(self.levels) or "no factors: name them in subgroups="
            raise OptionError(f"these moments have effects by {known}; not by {factor!r}")
        outcome, covariates = self._asked(formula)
        (term, *_) = (x.term for x in self.matrix.columns if ":".join(x.term) == factor)
        products = self._places(tuple(sorted((self.treatment, *term))))
        levels = self._places(term)
        others = [j for x in covariates if x != term for j in self._places(x)]
        columns = [*self._arms, *levels, *products, *others]
        found = self._regression(formula or self.formula, outcome, columns)
        labels, effects = [], []
        for a in self._arms:
            contrast = f"{self.arms[a]} - {self.arms[0]}, " if len(self.arms) > 2 else ""
            for level, name in zip((0, *levels), self.levels[factor], strict=True):
                own = [j for j in products if self.matrix.columns[j - 1].parts == (a, level)]
                weights = {self.matrix.columns[j - 1].name: 1.0 for j in (a, *own)}
                labels.append(f"{contrast}{factor} = {name}")
                effects.append(self._effect(found, weights, bool(others)))
        about = _about(found)
        return SubsetEffects(
            labels=tuple(labels),
            effects=tuple(effects),
            subsets=tuple(labels),
            disjoint=False,
            **about,
        )

    def balance(self) -> pd.DataFrame:
        """Means of the covariates by arm, and standardised differences, one row a column.

        A difference, ``smd``, is that from the first arm over the standard deviation within arms;
        ``std_error`` has sampling error and noise, ``noise_sd`` is the noise alone.
        """
        rows = []
        for j, column in enumerate(self.matrix.columns, 1):
            if ":".join(column.term) in self.covariates and column.kind != PRODUCT:
                fit = regress(self.matrix, j, self._arms)
                for a, arm in zip(self._arms, self.arms[1:], strict=True):
                    about = {"term": column.name} | ({"arm": arm} if len(self.arms) > 2 else {})
                    rows.append(about | _difference(fit, self.matrix.columns[a - 1].name))
        return frame_of(rows)

    @property
    def worth(self) -> pd.DataFrame:
        """How large the noise is, from public numbers: n, the budget and the columns.

        One row for the treatment, and one for each kind of covariate: ``noise_to_sampling`` is the
        noise in its coefficient over the sampling error, and ``n_for_half`` the number of records
        at which that is a half. Numbers are taken to have a standard deviation of an eighth of
        their range, levels to be equally frequent, and half as much again is added for columns
        that are correlated and means that are not in the middle of their ranges.
        """
        y = max((self._noisy(j) for x in self.outcomes for j in self._named(x)), default=1.0)
        rows = []
        for kind, words in ((ARM, "treatment"), (NUMBER, "number"), (INDICATOR, "indicator")):
            own = [j for j, x in enumerate(self.matrix.columns, 1) if x.kind == kind]
            own = [j for j in own if kind == ARM or self._covariate(j)]
            if own:
                noise = math.sqrt(self.matrix.variance / max(self.matrix.n, 1.0))
                ratio = _USUAL * noise * y * max(map(self._noisy, own))
                needed = math.ceil(self.matrix.n * (ratio / HALF) ** 2)
                rows.append({"column": words, "noise_to_sampling": ratio, "n_for_half": needed})
        return frame_of(rows)

    def tidy(self) -> pd.DataFrame:
        """One row for each released column: its mean and standard deviation, and their noise."""
        rows = []
        for j, column in enumerate(self.matrix.columns, 1):
            if column.kind != PRODUCT:
                fit = regress(self.matrix, j, [])
                own = fit.estimate([1.0])
                row = {"term": column.name, "mean": own.value}
                row |= {"mean_noise_sd": math.sqrt(own.gaussian)}
                known = OWN * fit.residual_variance > fit.residual_noise
                row |= {"sd": math.sqrt(fit.residual_variance) if known else math.nan}
                row["noise_ratio"] = noise_ratio(row["mean_noise_sd"], column.high - column.low)
                rows.append(row | {"low": column.low, "high": column.high})
        return frame_of(rows)

    @property
    def doubts(self) -> str:
        """What nobody should overlook about the estimates; empty when all is well."""
        row = self.worth.to_dict("records")[0]
        ratio, needed = row["noise_to_sampling"], row["n_for_half"]
        noisy = (
            "MOSTLY NOISE: at this n and epsilon the noise in an effect is about "
            f"{ratio:.1f} times its sampling error; it would be a half at n = {needed}"
        )
        return "; ".join(filter(None, (noisy if ratio > 1.0 else "", self.warning)))

    def __add__(self, other: Any) -> Moments:
        """The moments of the records of two sites."""
        return added([self, other]) if isinstance(other, Moments) else NotImplemented

    # --- columns --------------------------------------------------------------------------------

    @property
    def _arms(self) -> list[int]:
        return self.matrix.places(ARM)

    def _covariate(self, j: int) -> bool:
        return ":".join(self.matrix.columns[j - 1].term) in self.covariates

    def _named(self, term: str) -> list[int]:
        return [j for j, x in enumerate(self.matrix.columns, 1) if ":".join(x.term) == term]

    def _noisy(self, j: int) -> float:
        """One over the standard deviation of a column of z that is as usual."""
        column = self.matrix.columns[j - 1]
        same = sum((x.kind, x.group) == (column.kind, column.group) for x in self.matrix.columns)
        usual = SPREAD if column.kind == NUMBER else math.sqrt(same) / (same + 1.0)
        return 1.0 / (usual * column.size)

    def _read(self, formula: str) -> Formula:
        """A formula ``y ~ x1 + x2``, whose right side has no treatment of its own."""
        left, _, right = str(formula).partition("~")
        names = [name for name in self.covariates if ":" not in name]
        return parse(f"{left} ~ `no treatment` | {right}", names)

    def _asked(self, formula: str | None) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Outcome and covariates of an effect."""
        if formula is None:
            if not self.outcomes:
                raise OptionError("these moments have no outcome that varies")
            terms = {":".join(x.term): x.term for x in self.matrix.columns}
            return terms[self.outcomes[0]], [terms[x] for x in self.covariates]
        asked = parse(formula)
        if asked.treatment_name != self.treatment:
            raise OptionError(f"the treatment is {self.treatment}, not {asked.treatment_name}")
        if asked.more_outcomes:
            raise OptionError("an effect is on one outcome: ask for one at a time")
        return term_of([asked.outcome]), [term_of(term) for term in asked.terms]

    def _places(self, term: tuple[str, ...]) -> list[int]:
        """Places of the columns of a term."""
        found = [j for j, x in enumerate(self.matrix.columns, 1) if x.term == term]
        if found:
            return found
        name = ":".join(term)
        known = list(dict.fromkeys(":".join(x.term) for x in self.matrix.columns))
        hint = did_you_mean(name, known)
        if len(term) > 1:
            hint = " Products of columns have to be declared before the release"
        raise OptionError(
            f"these moments have no column `{name}`; they have {', '.join(known)}.{hint}"
        )

    def _regression(
        self, formula: str, outcome: tuple[str, ...], places: Sequence[int]
    ) -> Regression:
        """The regression of a column on others."""
        own, name = self._places(outcome), ":".join(outcome)
        if len(own) > 1:
            raise OptionError(f"`{name}` has {len(own)} columns, and a regression has one outcome")
        if own[0] in places:
            raise OptionError(f"`{name}` stands on both sides")
        places = list(dict.fromkeys(places))
        square = self._named(f"I({name} ** 2)")
        fit = regress(self.matrix, own[0], places, square[0] if square else None)
        about = _about(self) | {"formula": formula, "outcome": name, "method_title": TITLE}
        known = bool(square) or self.matrix.columns[own[0] - 1].kind != NUMBER
        said = "Standard errors have sampling error and the noise in all moments. "
        notes = (said + _ASSUMED[known].format(name), *self.notes)
        about |= {"notes": notes, "details": {}}
        return Regression(fit=fit, warning=self.warning, **about)

    def _effect(self, found: Regression, weights: Mapping[str, float], adjusted: bool) -> Estimate:
        """A sum of coefficients as an effect."""
        basis = self.stands_on or ("adjusted" if adjusted else "association")
        estimate = found.fit.estimate([weights.get(name, 0.0) for name in found.fit.names])
        width = 2.0 * math.sqrt(found.fit.largest)
        return replace(estimate, basis=basis, caution=found.doubts, possible=(-width, width))

    def __repr__(self) -> str:
        return (
            f"<dpeffects moments of {len(self.matrix.columns)} columns, n = {self.n}, "
            f"{self.guarantee.line(self.n)}>"
        )


def added(moments: Sequence[Moments]) -> Moments:
    """The moments of all records of several sites, whose records are disjoint."""
    first, *others = moments
    matrix = first.matrix
    for other in others:
        for name in ("formula", "treatment", "arms", "levels", "stands_on"):
            if getattr(first, name) != getattr(other, name):
                raise ReleaseError(f"sites differ in {name}: their moments cannot be added")
        if other.matrix.columns != matrix.columns or other.matrix.constant != matrix.constant:
            raise ReleaseError("sites differ in columns or their bounds: moments cannot be added")
        if first.guarantee.unit != other.guarantee.unit:
            raise ReleaseError("sites protect different units")
        matrix = matrix.plus(other.matrix)
    refuse_twins({f"number {i}": x.matrix.entries for i, x in enumerate(moments, 1)})
    note = f"Moments of {len(moments)} sites were added; each protects its own records."
    return replace(
        first,
        matrix=matrix,
        n=sum(x.n for x in moments),
        guarantee=weakest([x.guarantee for x in moments]),
        spends=(),
        epsilon_asked=None,
        warning="; ".join(dict.fromkeys(filter(None, (x.warning for x in moments)))),
        notes=(*dict.fromkeys(x for own in moments for x in own.notes), note),
    )


def _about(record: Record) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(Record)}


def _difference(fit: LinearFit, arm: str) -> dict[str, float]:
    """Means of two arms, and their standardised difference."""
    base, gap = fit.coefficient("(Intercept)"), fit.coefficient(arm)
    found = {"mean_reference": base.value, "mean": base.value + gap.value}
    variance, noise = fit.residual_variance, fit.residual_noise
    made = Difference.standardised(gap.value, gap.gaussian, variance, noise**2, sure=2.0)
    if math.isnan(made.value) or isinstance(gap.sampling, Unavailable):
        return found | dict.fromkeys(("smd", "std_error", "noise_sd", "noise_ratio"), math.nan)
    error = math.hypot(
        made.noise_sd, math.sqrt(or_nan(inference.sampling_variance(gap)) / variance)
    )
    found |= {"smd": made.value, "std_error": error, "noise_sd": made.noise_sd}
    return found | {"noise_ratio": hidden(made.value, made.noise_sd)}
