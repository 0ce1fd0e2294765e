"""`dp_moments`: one noisy matrix of second moments, kept for regressions, effects and balance.

The matrix is the sum of zz' over records, z = (constant, treatment, outcomes and covariates,
products of treatment and subgroups). Each column is measured from a public centre and scaled by a
public size, such that no z is longer than the radius: no row is shortened, and regressions have no
bias. Indicators of a factor exclude each other, so that they are short together. Sizes make the
noise in products small against the spread that columns of each kind usually have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Unpack

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.calls import OfUnits, public_call, released
from dpeffects.design.columns import Design, intervals_of
from dpeffects.documents import refuse_twins
from dpeffects.errors import OptionError, ReleaseError, did_you_mean, refusal, spelled
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_sums import ArmLookup
from dpeffects.estimators.arm_tables import table_spec
from dpeffects.estimators.option_checks import choice
from dpeffects.estimators.row_functions import row
from dpeffects.estimators.spec import Contrasts, Options, PublicInfo
from dpeffects.formula import expression as ex
from dpeffects.formula import parse
from dpeffects.formula.discrete import joined
from dpeffects.guarantee import weakest
from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Estimate, Unavailable, with_another
from dpeffects.inference.moment_regression import (
    ARM,
    ASSUMED,
    INDICATOR,
    NUMBER,
    PRODUCT,
    SQUARE,
    LinearFit,
    MomentColumn,
    MomentMatrix,
    regress,
    z_of,
)
from dpeffects.inference.noisy import OWN, noise_ratio
from dpeffects.inference.range_ends import end_warning
from dpeffects.inference.table_one import Difference, hidden
from dpeffects.lazy import pd
from dpeffects.privacy import Box, Curator, entries
from dpeffects.privacy.rows import Block as RowBlock
from dpeffects.privacy.tight_domains import Gram
from dpeffects.results import average, export, several, table_results
from dpeffects.results.number_format import NOT_AVAILABLE, number, to_error
from dpeffects.results.result_base import ResultBase
from dpeffects.results.wording import Lines, effects_table, estimates, percent, said, with_limits
from dpeffects.summary import MOST_ROWS, SHOWN, Block, Pairs, Table, printed

_SHARE = "moments"
_SAID = said("moments")
_ONE_VARIANCE = _SAID["one_variance"]


# --- options, and the columns of z --------------------------------------------------------------


@dataclass(frozen=True)
class MomentsOptions(Options):
    """``design``: "observational", or "randomised" where treatment was randomised; ``factors``: the
    factors of ``subgroups``, for effects by level.
    """

    design: str = choice("observational", "randomised")
    factors: str | None = None
    plan: Layout = field(default=None, init=False, repr=False)  # type: ignore[assignment]
    """Columns of z, once the data are known."""

    def resolve(self, facts: PublicInfo) -> Options:
        """Lay out the columns of z."""
        made = replace(self)
        object.__setattr__(made, "plan", Layout.of(facts, self.factors))
        return made

    def shown(self) -> dict[str, Any]:
        """Options that print."""
        return {"design": self.design, "subgroups": self.factors}


def term_of(factors: Iterable[ex.Factor]) -> tuple[str, ...]:
    """Names of the factors of a term, in an order that does not depend on how it is written."""
    own = (ex.Column(x.column) if isinstance(x, ex.Categorical) else x for x in factors)
    return tuple(sorted({x.name if isinstance(x, ex.Column) else ex.source(x) for x in own}))


@dataclass(frozen=True)
class Layout:
    """Columns of z after the constant, and which of the encoded ones they read.

    ``read`` are places among the encoded columns of those that are numbers or indicators, in order.
    """

    columns: tuple[MomentColumn, ...]
    read: tuple[int, ...]
    constant: float
    arms: int

    @classmethod
    def of(cls, facts: PublicInfo, factors: str | None) -> Layout:
        """The layout for columns that are encoded like this."""
        treatment, *others = facts.treatment
        names = [f"{treatment}[T.{arm}]" for arm in others] or [treatment]
        arms = [MomentColumn(name, (treatment,), ARM, 1.0) for name in names]
        read = [j for j, k in enumerate(facts.values[:-1]) if k != 1]
        plain = [*arms, *(_column(facts, j) for j in read)]
        columns = [  # centres make indicators of one factor short
            x if x.kind == NUMBER else replace(x, centre=1.0 / max(_same(plain, x), 2))
            for x in plain
        ]
        columns += _products(columns, factors)
        if len(columns) > 99:
            raise OptionError(refusal("columns_too_many", columns=len(columns)))
        constant, columns = _sized(columns)
        return cls(tuple(columns), tuple(read), constant, len(arms) + 1)

    @property
    def width(self) -> int:
        """Columns of z."""
        return len(self.columns) + 1

    @property
    def set(self) -> Gram:
        """The set that products of z lie in."""
        one = np.ones(self.width)
        return Gram(Box(-one, one, centre=0.0, radius=1.0))


def _column(facts: PublicInfo, j: int) -> MomentColumn:
    """An encoded column; indicators of one term are one group."""
    encoded, factors = facts.encoded[j], [part.factor for part in facts.encoded[j].parts]
    number = MomentColumn(encoded.name, term_of(factors), NUMBER, 1.0, 0.5)
    made_of = [{part.factor for part in x.parts} for x in facts.encoded]
    if all(isinstance(factor, ex.Categorical | ex.Cut) for factor in factors):
        return replace(number, kind=INDICATOR, group=made_of.index(set(factors)))
    flags = all(
        isinstance(x, ex.Categorical | ex.Cut) or (not isinstance(x, ex.Spline) and ex.is_binary(x))
        for x in factors
    )
    # where there is an indicator of missing values, these may stand in the middle
    filled = any(ex.Missing(x) in set().union(*made_of) for x in ex.columns(factors[0]))
    if flags or (len(factors) == 1 and facts.values[j] == 2 and not filled):
        return replace(number, kind=INDICATOR, group=j)
    return number


def _same(columns: Sequence[MomentColumn], like: MomentColumn) -> int:
    """How many columns are of the same factor."""
    return sum((x.kind, x.group) == (like.kind, like.group) for x in columns)


def _terms(factors: str | None) -> list[tuple[str, ...]]:
    """Names of the factors by whose levels effects are wanted."""
    if factors is None:
        return []
    terms = parse(f"`an outcome` ~ `a treatment` | {factors}").terms
    return list(dict.fromkeys(map(term_of, terms)))


def _products(columns: Sequence[MomentColumn], factors: str | None) -> list[MomentColumn]:
    """Columns of arms times levels of factors."""
    found, arms = [], [x for x in columns if x.kind == ARM]
    for group, term in enumerate(_terms(factors)):
        own = [j for j, x in enumerate(columns, 1) if (x.term, x.kind) == (term, INDICATOR)]
        if not own or len(term) > 1:
            raise OptionError(refusal("not_a_factor", term=":".join(term)))
        for a, arm in enumerate(arms, 1):
            for j in own:
                name, both = f"{arm.name}:{columns[j - 1].name}", tuple(sorted((*arm.term, *term)))
                product = MomentColumn(name, both, PRODUCT, 1.0, group=group, parts=(a, j))
                found.append(product)
    return found


def _sized(columns: Sequence[MomentColumn]) -> tuple[float, list[MomentColumn]]:
    """The constant, and columns with sizes: squared lengths add up to no more than 1.

    A part of the length costs noise in all products. Where columns of a kind have the largest
    squared length r2 together, and m of them the variance v each, parts in proportion to
    sqrt(m r2 / v) have the least noise against the spread of the columns.
    """
    arms = sum(x.kind == ARM for x in columns)
    square, precision = [], []
    for column in columns:
        same = _same(columns, column)
        if column.kind == NUMBER:
            longest, variance, same = 0.25, hand.EIGHTH**2, 1
        elif column.kind == PRODUCT:
            longest, levels = _longest(arms), same // arms + 1
            variance = longest / arms / levels
        else:
            longest, variance = _longest(same), same / (same + 1.0) ** 2
        square.append(longest)
        precision.append(math.sqrt(longest / variance / same))
    room = (1.0 - math.sqrt(len(columns) + 1.0) / 2000.0) ** 2 / (hand.CONSTANT + sum(precision))
    counts = [1 if x.kind == NUMBER else _same(columns, x) for x in columns]
    sizes = [math.sqrt(room * w * m / s) for w, m, s in zip(precision, counts, square, strict=True)]
    sized = [replace(x, size=size) for x, size in zip(columns, sizes, strict=True)]
    return math.sqrt(room * hand.CONSTANT), sized


def _longest(indicators: int) -> float:
    """Largest squared length of indicators of one factor, from their common centre."""
    return 0.25 if indicators == 1 else 1.0 - 1.0 / indicators


@row("covariates")
def z_of_record(rows: RowBlock, layout: Layout, arm: ArmLookup) -> tuple[FloatArray, ...]:
    """z of a record; ``arm`` says which it is in, the reference being 0."""
    own = arm(rows)
    plain: list[FloatArray] = [(own == a).astype(np.float64) for a in range(1, layout.arms)]
    plain += [rows.covariates[:, j] for j in layout.read]
    return z_of(layout.columns, layout.constant, plain)


# --- the release --------------------------------------------------------------------------------


def _completed(options: MomentsOptions, own: Mapping[str, Any], estimation: Any) -> dict[str, Any]:
    """Columns with their ranges, and the names of terms, arms and levels."""
    design, matrix = estimation.design, own["matrix"]
    ranges = design.encoding.ranges(intervals_of(design.bounds))
    columns, first = list(matrix.columns), len(matrix.places(ARM))
    for j, k in enumerate(options.plan.read, first):
        low, high = ranges[k].tolist()
        columns[j] = replace(columns[j], low=low, high=high)
    matrix = replace(matrix, columns=tuple(columns))
    outcomes = [term_of([y]) for y in parse(estimation.request.formula).outcomes]
    there = list(dict.fromkeys(x.term for x in columns[first:] if x.kind != PRODUCT))
    return {
        "outcome": ", ".join(":".join(y) for y in outcomes),
        "matrix": matrix,
        "outcomes": tuple(":".join(y) for y in outcomes if y in there),
        "covariates": tuple(":".join(x) for x in there if x not in outcomes),
        "arms": tuple(map(str, design.columns.arms or ("0", "1"))),
        "levels": {":".join(x): _levels(design, matrix, x) for x in _terms(options.factors)},
    }


def _levels(design: Design, matrix: MomentMatrix, term: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the levels of a factor, the reference first."""
    (column, *_) = (x for x in matrix.columns if x.term == term)
    part = next(x.parts for x in design.encoding.columns if x.name == column.name)[0]
    if isinstance(part.factor, ex.Cut):
        return tuple(part.factor.labels)
    if isinstance(part.factor, ex.Categorical):
        return tuple(map(str, part.factor.levels or ()))
    return (f"{column.low:g}", f"{column.high:g}")


def fit(
    curator: Curator, options: MomentsOptions, estimand: str, contrasts: Contrasts = ()
) -> table_results.TableRelease:
    """Release the matrix."""
    layout = options.plan
    number = np.arange(float(layout.arms))  # of two arms, treated records come first
    z = z_of_record(layout, ArmLookup(number[::-1] if layout.arms == 2 else number))
    noisy = curator.sums("second moments", z, layout.set, share=_SHARE)
    matrix = MomentMatrix(
        columns=layout.columns,
        constant=layout.constant,
        entries=tuple(noisy.value.tolist()),
        variance=noisy.variance,
        n=float(curator.n),
        size_variance=curator.size_sd**2,
    )
    identification = "randomised" if options.design == "randomised" else ""
    own = {"matrix": matrix, "identification": identification}
    return table_results.TableRelease(Moments, own, named=partial(_completed, options))


TABLE = table_spec(
    name="moments",
    assumes=_ONE_VARIANCE,
    estimands=("ATE",),
    levels=("sample",),
    options=MomentsOptions,
    budget_split=lambda level, options: {_SHARE: 1.0},
    fit=fit,
    fit_arms=fit,
    uses_delta=lambda options, facts: {_SHARE: entries(options.plan.set)},
    needs_intercept=True,
    several=True,
    **_SAID["spec"],
)


# --- the results --------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, kw_only=True)
class Regression(table_results.TermResult):
    """A linear regression that released moments give; made by `Moments.regression`.

    Parameters
    ----------
    fit
        Coefficients in the units of the data, with the covariances of sampling error and noise.
    method_warnings
        Warnings of the moments.
    estimand, method, ...
        The fields of `ResultBase`.

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
    _titled = "Linear regression of {0.outcome}, {0._private}"
    assumes = _ONE_VARIANCE
    fit: LinearFit
    method_warnings: str = ""

    @property
    def estimate_warnings(self) -> str:
        """Warnings about the estimates; empty where there are none."""
        return "; ".join(filter(None, (_SAID["cut"] if self.fit.cut else "", self.method_warnings)))

    @property
    def residual_sd(self) -> float:
        """Residual standard deviation; NaN where noise made the variance negative."""
        variance = self.fit.residual_variance
        return math.sqrt(variance) if variance >= 0.0 else math.nan

    @property
    def r_squared(self) -> float:
        """Adjusted R squared."""
        return self.fit.explained

    def coefficient(self, name: str) -> Estimate:
        """One coefficient, with the parts of its error."""
        if name not in self.fit.names:
            known = ", ".join(self.fit.names)
            raise OptionError(f"this regression has no term {name!r}; it has {known}")
        return self.fit.coefficient(name)

    def terms(self) -> Sequence[table_results.Term]:
        """The coefficients."""
        return [table_results.Term(name, self.fit.coefficient(name)) for name in self.fit.names]

    def tidy(self, conf_level: float = 0.95) -> pd.DataFrame:
        """One row for each coefficient; ``sampling_se`` and ``noise_sd`` are parts of its error."""
        rows = []
        for term in self.terms():
            sampling = export.or_nan(inference.sampling_variance(term.released))
            own = {"sampling_se": sampling, "noise_sd": term.released.noise_variance}
            rows.append(term.row(conf_level) | {name: math.sqrt(x) for name, x in own.items()})
        return self._frame(rows).drop(columns="noise_ratio")

    @property
    def _estimand(self) -> str:
        return "coefficient"

    def _glance(self) -> dict[str, Any]:
        return super()._glance() | {"residual_sd": self.residual_sd, "r_squared": self.r_squared}

    def __repr__(self) -> str:
        return self._line(f"regression of {self.outcome}, {len(self.fit.names)} coefficients")

    @property
    def _subject(self) -> str:
        return f"a regression of {self.outcome}"

    def _blocks(self, conf_level: float) -> Sequence[Block]:
        """The regression table, the parts of its standard errors, and the goodness of fit."""
        rows = self.tidy(conf_level).to_dict("records")
        parts = tuple(
            (row["term"], *to_error((row["sampling_se"], row["noise_sd"]), row["std_error"]))
            for row in rows
        )
        heads = ("", "sampling error", "privacy noise")
        line = {"Residual SD": self.residual_sd, "R squared (adjusted)": self.r_squared}
        shown = {x: NOT_AVAILABLE if math.isnan(v) else number(v, 4) for x, v in line.items()}
        return (
            effects_table("Coefficients", rows, conf_level),
            Table("Parts of the standard errors", heads, parts, "lrr"),
            Pairs(tuple(shown.items()), "Goodness of fit"),
        )

    def _noted(self, conf_level: float) -> Sequence[str]:
        lost = [name for name, gone in zip(self.fit.names, self.fit.lost, strict=True) if gone]
        return (*((_SAID["lost"].format(", ".join(lost)),) if lost else ()), *self.notes)

    def _findings(self, conf_level: float) -> Sequence[str]:
        rows = self.tidy(conf_level).to_dict("records")
        found = "; ".join(f"{row['term']}: {with_limits(row)}" for row in rows)
        return [f"Coefficients, with {percent(conf_level)} confidence intervals: {found}."]

    def _headline(self, conf_level: float = 0.95, **asked: Any) -> Lines:
        return estimates(self.tidy(conf_level).to_dict("records"), self._subject, conf_level)


@dataclass(frozen=True, repr=False, kw_only=True)
class Moments(several.SeveralRows):
    """Second moments of all columns, released once; made by `dp_moments`.

    Linear regressions, adjusted effects, effects by the levels of a factor, and balance follow from
    them at no further cost in privacy budget. Moments of several sites add up, ``north + south``.

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
    identification
        "randomised" where the call declared it.
    method_warnings
        Warnings of the method.
    estimand, method, ...
        The fields of `ResultBase`.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("cate_1", n=20_000, seed=1)
    >>> kept = dpe.dp_moments("outcome ~ treatment | x1 + x2", data, epsilon=4, seed=1)
    >>> kept.effect("outcome ~ treatment | x1").identification
    'adjusted'
    >>> dpe.Moments.from_json(kept.to_json()) == kept
    True
    """

    _of_effects = False
    _titled = "Second moments for regressions, {0._private}"
    _verb = "released"
    assumes = _ONE_VARIANCE
    matrix: MomentMatrix
    outcomes: tuple[str, ...]
    covariates: tuple[str, ...] = ()
    arms: tuple[str, ...] = ("0", "1")
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    identification: str = ""
    method_warnings: str = ""

    def __post_init__(self) -> None:
        if len(self.matrix.places(ARM)) != len(self.arms) - 1:
            raise ValueError("moments have a column for each arm after the first")

    # --- what follows ---------------------------------------------------------------------------

    def regression(self, formula: str) -> Regression:
        """Linear regression of a column on others: ``"y ~ t + x1 + region"``, at no further cost.

        Any outcome or covariate may be on either side. Interactions of treatment, ``t:sex``, are
        available for the factors of ``subgroups=``; other interactions have to be in the formula of
        `dp_moments`. ``.`` means all covariates.
        """
        if "|" in str(formula):
            raise OptionError(refusal("regression_written_without"))
        if not isinstance(formula, str) or formula.count("~") != 1:
            raise OptionError('a regression must be text such as "y ~ t + x1"')
        left, _, right = formula.partition("~")  # the right side has no treatment of its own
        names = [name for name in self.covariates if ":" not in name]
        asked = parse(f"{left} ~ `no treatment` | {right}", names)
        if asked.more_outcomes:
            raise OptionError("a regression has one outcome; run one for each")
        places = [j for term in asked.terms for j in self._places(term_of(term))]
        if not asked.intercept:
            raise OptionError("a regression on released moments must have an intercept")
        return self._regression(formula, term_of([asked.outcome]), places)

    def effect(self, formula: str | None = None) -> average.Result | several.ArmEffects:
        """The regression-adjusted effect of the treatment: ``"y ~ t | x1 + x2"``.

        By default on the first outcome, adjusted for all covariates. It has no further cost.
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
            return average.Result.from_estimate(effects[0], **about | {"details": details})
        labels = tuple(f"{arm} - {self.arms[0]}" for arm in self.arms[1:])
        return several.ArmEffects(
            contrasts="reference", labels=labels, effects=tuple(effects), **about
        )

    def effects_by(self, factor: str, formula: str | None = None) -> several.SubsetEffects:
        """Effects at each level of a factor that was named in ``subgroups=``; ``"y ~ t | x1"``.

        Slopes of covariates are the same at all levels. The difference between two levels is the
        coefficient of a product: ``regression("y ~ t + sex + t:sex")``.
        """
        if (factor := spelled(factor, self.levels)) not in self.levels:
            known = ", ".join(self.levels) or "no factors: name them in subgroups="
            raise OptionError(refusal("these_moments_no_effects", factor=factor, known=known))
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
        names = tuple(labels)
        about = {**_about(found), "labels": names, "subsets": names, "effects": tuple(effects)}
        return several.SubsetEffects(**about, disjoint=False)

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
        return export.frame_of(rows)

    @property
    def precision(self) -> pd.DataFrame:
        """The precision to expect of regressions, from public numbers: n, the budget, the columns.

        One row for the treatment, and one for each kind of covariate: ``noise_to_sampling`` is the
        ratio of privacy noise to sampling error in its coefficient, as standard deviations, and
        ``n_for_half`` the number of records at which this ratio is one half. Numeric columns are
        assumed to have a standard deviation of an eighth of their range, levels to be equally
        frequent, and a fifth is added for correlated columns.
        """
        y = max((self._noisy(j) for x in self.outcomes for j in self._named(x)), default=1.0)
        rows = []
        for kind, words in ((ARM, "treatment"), (NUMBER, "number"), (INDICATOR, "indicator")):
            own = [
                j
                for j in self.matrix.places(kind)
                if kind == ARM or ":".join(self.matrix.columns[j - 1].term) in self.covariates
            ]
            if own:
                noise = math.sqrt(self.matrix.variance / max(self.matrix.n, 1.0))
                ratio = hand.CORRELATED * noise * y * max(map(self._noisy, own))
                needed = math.ceil(self.matrix.n * (2.0 * ratio) ** 2)
                rows.append({"column": words, "noise_to_sampling": ratio, "n_for_half": needed})
        return export.frame_of(rows)

    def tidy(self) -> pd.DataFrame:
        """One row for each released column: its mean and standard deviation, and their noise."""
        rows = []
        for j, column in enumerate(self.matrix.columns, 1):
            if column.kind != PRODUCT:
                fit = regress(self.matrix, j, [])
                mean, variance = fit.estimate([1.0]), fit.residual_variance
                sd, known = math.sqrt(mean.gaussian), OWN * variance > fit.residual_noise
                row = {"term": column.name, "mean": mean.value, "mean_noise_sd": sd}
                row |= {"sd": math.sqrt(variance) if known else math.nan}
                row |= {"noise_ratio": noise_ratio(sd, column.high - column.low)}
                rows.append(row | {"low": column.low, "high": column.high})
        return export.frame_of(rows)

    @property
    def estimate_warnings(self) -> str:
        """Warnings about the estimates; empty where there are none."""
        row = self.precision.to_dict("records")[0]
        noisy = _SAID["noisy"].format_map(row) if row["noise_to_sampling"] > 1.0 else ""
        rows = zip(self.matrix.columns, self.tidy().to_dict("records"), strict=False)
        own = (x for column, x in rows if column.kind == NUMBER and x["term"] in self.outcomes)
        names = ("term", "mean", "mean_noise_sd", "low", "high")
        ends = self._at_ends(end_warning(*(x[name] for name in names)) for x in own)
        return with_another(noisy, self.method_warnings, *ends)

    def __add__(self, other: Any) -> Moments:
        """The moments of the records of two sites."""
        return added([self, other]) if isinstance(other, Moments) else NotImplemented

    # --- columns --------------------------------------------------------------------------------

    @property
    def _arms(self) -> list[int]:
        return self.matrix.places(ARM)

    def _named(self, term: str) -> list[int]:
        return [j for j, x in enumerate(self.matrix.columns, 1) if ":".join(x.term) == term]

    def _noisy(self, j: int) -> float:
        """One over the standard deviation of a column of z that is as usual."""
        column = self.matrix.columns[j - 1]
        same = _same(self.matrix.columns, column)
        usual = hand.EIGHTH if column.kind == NUMBER else math.sqrt(same) / (same + 1.0)
        return 1.0 / (usual * column.size)

    def _asked(self, formula: str | None) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Outcome and covariates of an effect."""
        if formula is None:
            if not self.outcomes:
                raise OptionError(refusal("these_moments_no_outcome"))
            terms = {":".join(x.term): x.term for x in self.matrix.columns}
            return terms[self.outcomes[0]], [terms[x] for x in self.covariates]
        asked = parse(formula)
        if asked.treatment_name != self.treatment:
            raise OptionError(refusal("moments_treatment", own=self, asked=asked))
        if asked.more_outcomes:
            raise OptionError("an effect is for one outcome; ask for one at a time")
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
        raise OptionError(refusal("these_moments_no", name=name, known=", ".join(known), hint=hint))

    def _regression(
        self, formula: str, outcome: tuple[str, ...], places: Sequence[int]
    ) -> Regression:
        """The regression of a column on others."""
        own, name = self._places(outcome), ":".join(outcome)
        if len(own) > 1:
            raise OptionError(refusal("columns_but_regression", name=name, own=len(own)))
        if own[0] in places:
            raise OptionError(f"`{name}` is on both sides of the regression; remove one")
        places = list(dict.fromkeys(places))
        square = self._named(SQUARE.format(name))
        fit = regress(self.matrix, own[0], places, square[0] if square else None)
        about = _about(self) | {
            "formula": formula,
            "outcome": name,
            "method_title": "regression on released moments",
        }
        known = bool(square) or self.matrix.columns[own[0] - 1].kind != NUMBER
        notes = (_SAID["errors"] + ASSUMED[known].format(name), *self.notes)
        about |= {"notes": notes, "details": {}}
        return Regression(fit=fit, method_warnings=self.method_warnings, **about)

    def _effect(self, found: Regression, weights: Mapping[str, float], adjusted: bool) -> Estimate:
        """A sum of coefficients as an effect."""
        identification = self.identification or ("adjusted" if adjusted else "unadjusted")
        estimate = found.fit.estimate([weights.get(name, 0.0) for name in found.fit.names])
        width = 2.0 * math.sqrt(found.fit.largest)
        return replace(
            estimate,
            identification=identification,
            warnings=found.estimate_warnings,
            possible=(-width, width),
        )

    def __repr__(self) -> str:
        return self._line(f"moments of {len(self.matrix.columns)} columns, n = {self.n}")

    # --- words ----------------------------------------------------------------------------------

    @property
    def _subject(self) -> str:
        return f"the matrix of second moments of {len(self.matrix.columns)} columns"

    def _blocks(self, conf_level: float) -> Sequence[Block]:
        """How large the noise is, the columns, and the balance of the arms."""
        columns = ("coefficient of", "privacy noise / sampling error", "0.5 from n =")
        precision = tuple(
            (row["column"], f"{row['noise_to_sampling']:.2f}", str(row["n_for_half"]))
            for row in self.precision.to_dict("records")
        )
        title = "Expected precision of coefficients (from public numbers)"
        found = [
            Table(title, columns, precision, "lrr"),
            _table("Released columns", ("mean", "noise SD", "SD"), self.tidy(), "mean_noise_sd"),
        ]
        balance, (first, *others) = self.balance(), self.arms
        if len(balance):
            arm = others[0] if len(others) == 1 else "arm"
            heads = (first, arm, "SMD", "std. error of the SMD")
            title = f"Covariate balance: means by {self.treatment}"
            found.append(_table(title, heads, balance, "std_error"))
        return found

    def _noted(self, conf_level: float) -> Sequence[str]:
        by = " and by ".join(self.levels)
        alone = f"Effects by {by} are available (each factor by itself)." if by else ""
        return _SAID["compared"], _SAID["follows"], alone, *self.notes

    def _findings(self, conf_level: float) -> Sequence[str]:
        row = self.precision.to_dict("records")[0]
        ratio = number(row["noise_to_sampling"], 2)
        return [_SAID["findings"].format(self.treatment, ratio, row["n_for_half"])]

    def _headline(self, conf_level: float = 0.95, **asked: Any) -> Lines:
        rows = self.precision.to_dict("records")[:MOST_ROWS]
        times = "times the sampling error of its coefficient"
        return [
            ("Released", f"second moments of {len(self.matrix.columns)} columns, for regressions"),
            *(
                (f"Noise, {row['column']}", f"about {number(row['noise_to_sampling'], 2)} {times}")
                for row in rows
            ),
            ("Available", f"{_SAID['next']}, at no further cost in privacy budget"),
        ]


def _table(title: str, heads: tuple[str, ...], frame: pd.DataFrame, error: str) -> Table:
    """Columns of a frame, to two digits of an error that is one of them; the first rows."""
    rows, names = [], _COLUMNS[error]
    for own in frame[:SHOWN].to_dict("records"):
        cells = zip(names, to_error([own[name] for name in names], own[error]), strict=True)
        shown = (x if name == error else printed(x, own["noise_ratio"]) for name, x in cells)
        term = f"{own['term']}, {own['arm']}" if "arm" in own else own["term"]
        rows.append((term, *shown))
    if len(frame) > SHOWN:
        rows.append((f"and {len(frame) - SHOWN} more", *[""] * len(names)))
    return Table(title, ("", *heads), tuple(rows), "l" + "r" * len(names))


_COLUMNS = {
    "mean_noise_sd": ("mean", "mean_noise_sd", "sd"),
    "std_error": ("mean_reference", "mean", "smd", "std_error"),
}
"""Columns that are shown, by that which is an error."""


def added(moments: Sequence[Moments]) -> Moments:
    """The moments of all records of several sites, whose records are disjoint."""
    first, *others = moments
    matrix = first.matrix
    for other in others:
        for name in ("formula", "treatment", "arms", "levels", "identification"):
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
        charges=(),
        epsilon_requested=None,
        method_warnings="; ".join(
            dict.fromkeys(filter(None, (x.method_warnings for x in moments)))
        ),
        notes=(*dict.fromkeys(x for own in moments for x in own.notes), note),
    )


def _about(record: ResultBase) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(ResultBase)}


def _difference(fit: LinearFit, arm: str) -> dict[str, float]:
    """Means of two arms, and their standardised difference."""
    base, gap = fit.coefficient("(Intercept)"), fit.coefficient(arm)
    found = {"mean_reference": base.value, "mean": base.value + gap.value}
    variance, noise = fit.residual_variance, fit.residual_noise
    made = Difference.standardised(gap.value, gap.gaussian, variance, noise**2, sure=2.0)
    if math.isnan(made.value) or isinstance(gap.sampling, Unavailable):
        return found | dict.fromkeys(("smd", "std_error", "noise_sd", "noise_ratio"), math.nan)
    error = math.hypot(
        made.noise_sd, math.sqrt(export.or_nan(inference.sampling_variance(gap)) / variance)
    )
    found |= {"smd": made.value, "std_error": error, "noise_sd": made.noise_sd}
    return found | {"noise_ratio": hidden(made.value, made.noise_sd)}


# --- the call -----------------------------------------------------------------------------------


class _OfMoments(OfUnits, total=False):
    design: str


@public_call(_OfMoments, options=False)
def dp_moments(
    formula: str,
    data: Any,
    *,
    subgroups: str | Sequence[str] = (),
    epsilon: float,
    **more: Unpack[_OfMoments],
) -> Moments:
    r"""Release second moments once, for any number of linear regressions, effects and balance.

    Parameters
    ----------
    formula
        ``"y1 + y2 ~ treatment | x1 + x2 + region"``: all columns that analyses may use; each
        outcome and covariate may be on either side of a regression. Every column adds noise to all
        others. With the square of an outcome, ``y1 + I(y1**2) ~ ...``, residuals may be
        heteroscedastic.
    subgroups
        Factors with declared levels, ``["sex", "region"]``, for effects by the levels of each
        factor by itself.
    bounds
        As in :func:`dp_ate`. The noise in products is proportional to the ranges of both columns.
    unit, max_rows
        As in :func:`dp_ate`. Where units have several rows, each row has a part of the weight of
        its unit, and standard errors are those of as many units: conservative.
    {shared}

    Returns
    -------
    Moments
        ``regression("y1 ~ treatment + x1")``, ``effect("y1 ~ treatment | x1")``, ``effects_by`` and
        ``balance()`` follow from it at no further cost; ``precision`` compares noise with sampling
        error. It is saved as JSON, and moments of several sites add up.

    Notes
    -----
    The noise is one matrix for all products. With five covariates and epsilon 1 it is about as
    large as the sampling error of an effect at n = 100,000, and three times as large in slopes of
    numbers; ``precision`` has the figures for a call. For one effect :func:`dp_ate` is much better.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("cate_1", n=20_000, seed=1)
    >>> kept = dpe.dp_moments("outcome ~ treatment | x1 + x2", data, epsilon=4, seed=1)
    >>> kept.regression("outcome ~ treatment + x1").fit.names
    ('(Intercept)', 'treatment', 'x1')

    In a shell::

        dpeffects moments "cost + died ~ treated | age + sex + region" patients.csv \
            --subgroups sex --epsilon 1 --bounds bounds.toml --out moments.json
        dpeffects moments "y ~ treated | age" patients.csv --epsilon 1 --delta 1e-6 \
            --bounds bounds.toml --format html --out moments.html
    """
    given = dict(locals())
    factors = joined(given.pop("subgroups"), "subgroups", crossed=False) or None
    missing = more["missing"]
    if "available" in (missing.values() if isinstance(missing, Mapping) else [missing]):
        raise OptionError('missing="available" is only for dp_study: write "complete"')
    if factors is not None and isinstance(formula, str):
        given["formula"] += f"{' +' if '|' in formula else ' |'} {factors}"
    return released(TABLE, given | {"factors": factors})
