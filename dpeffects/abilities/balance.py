"""`dp_balance`: overlap and balance of two arms, without a look at outcomes.

1. Numbers of records, sums and squares of the covariates by arm (share "balance"): the margin that
   Table 1 of a study is made of.
2. A propensity model with noise in its objective (share "propensity").
3. A histogram of its scores by arm (share "overlap").
4. The sums again, weighted by inverse propensities (share "adjusted").

Steps 2 to 4 are left out where public numbers say that noise would drown them, and their shares go
to step 1. If the releases of step 1 say nothing, nothing further is released; that depends on
released values, so the guarantee is that of the whole budget all the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Unpack

import numpy as np

from dpeffects.arrays import BoolArray, FloatArray, IntArray
from dpeffects.calls import OfSplits, OfUnits, public_call, released
from dpeffects.design.arms import ARMS
from dpeffects.design.features import logits
from dpeffects.errors import OptionError, refusal
from dpeffects.estimands import AVERAGES, ESTIMANDS
from dpeffects.estimators import constants as hand
from dpeffects.estimators.arm_tables import TableWeight
from dpeffects.estimators.default.standardisation import varying_columns
from dpeffects.estimators.margins import MarginQuery, cube, margins
from dpeffects.estimators.option_checks import check_clip, checked, flag, whole
from dpeffects.estimators.row_functions import row
from dpeffects.estimators.spec import MethodSpec, Options, PublicInfo
from dpeffects.estimators.weighting import inverse_weights
from dpeffects.guarantee import counted
from dpeffects.inference import table_one
from dpeffects.inference.joint import Margin, agreeing
from dpeffects.inference.noisy import COUNTED, RARE, noise_ratio
from dpeffects.inference.tables import not_negative
from dpeffects.lazy import pd
from dpeffects.privacy import COUNT, Block, Curator, GroupIndex, Split, entries
from dpeffects.privacy.losses import sigmoid, unit_norm
from dpeffects.privacy.private_minimisation import Coefs
from dpeffects.privacy.tight_domains import cube_noise_sd
from dpeffects.privacy.units import seen_as
from dpeffects.results import several, table_results, wording
from dpeffects.results.export import frame_of
from dpeffects.results.number_format import number, to_error
from dpeffects.summary import SHOWN, Pairs, Table, draw, printed
from dpeffects.summary import Block as ErrorPart

_SHARES = {"balance": 0.3, "propensity": 0.35, "overlap": 0.1, "adjusted": 0.25}
_SAID = wording.said("balance")
_NO_SPREAD, _ONE_VALUE, _FEW = _SAID["no_spread"], _SAID["one_value"], _SAID["few"]


# --- options ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BalanceOptions(Options):
    """``adjusted``: whether balance after weighting is released too, ``overlap``: whether a
    propensity model and the histogram of its scores are, None to choose; ``clip``: propensity
    scores are truncated to [clip, 1 - clip] in the weights; ``bins``: of the histogram.
    """

    adjusted: bool | None = flag(None)
    overlap: bool | None = flag(None)
    clip: float = checked(0.1, check_clip)
    bins: int = whole(20, 2, 200)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adjusted and self.overlap is False:
            raise OptionError(refusal("adjusted_true_needs"))

    def resolve(self, facts: PublicInfo) -> BalanceOptions:
        """Decide from public numbers what is worth its price; refuse where nothing is."""
        if not _varying(facts):
            raise OptionError("there is no balance to report: every covariate has one value only")
        asked = self
        if asked.adjusted is None:
            trial = BalanceForecast.of(replace(asked, adjusted=True, overlap=True), facts)
            asked = replace(
                asked, adjusted=asked.overlap is not False and trial.weighted < hand.APART
            )
        if asked.overlap is None:
            trial = BalanceForecast.of(replace(asked, overlap=True), facts)
            worth = trial.model < hand.SELECTION and trial.raw < hand.APART and trial.spread <= 1.0
            asked = replace(asked, overlap=asked.adjusted or worth)
        to_expect = BalanceForecast.of(asked, facts)
        for what, noise, spread in (
            ("differences", to_expect.raw, to_expect.spread),
            ("weighted differences", to_expect.weighted if asked.adjusted else 0.0, 0.0),
        ):
            if (more := max(noise / hand.HARDLY, spread)) > 1.0:
                raise OptionError(asked._refusal(what, more, facts))
        return asked

    def _refusal(self, what: str, more: float, facts: PublicInfo) -> str:
        """Say what would be needed: noise goes down with n epsilon."""
        records, epsilon = math.ceil(facts.n * more), facts.budget.epsilon * more
        less = "adjusted=False, " if self.adjusted else "overlap=False, " if self.overlap else ""
        now = facts.n, facts.budget.epsilon, _varying(facts)
        return str(_SAID["refusal"].format(*now, what, records, epsilon, less))


def _varying(facts: PublicInfo) -> int:
    """Columns that are not constant by declaration."""
    return facts.columns if facts.values else facts.width - 1


@dataclass(frozen=True)
class BalanceForecast:
    """Noise to expect by public numbers.

    In a difference; in a weighted one; in the log odds, as a variance; and in the variance of a
    column that is no indicator, against the largest that can be worked with.
    """

    raw: float
    weighted: float
    model: float
    spread: float

    @classmethod
    def of(cls, options: BalanceOptions, facts: PublicInfo) -> BalanceForecast:
        """Go through the steps with usual numbers in the place of released ones."""
        m, n = _varying(facts), facts.n
        split = Split.of(
            facts.budget, budget_split(facts.level, options), uses_delta(options, facts)
        )

        def noise(share: str, columns: int, width: float) -> float:
            if share in split.mu:
                return width * math.sqrt(columns) / split.mu[share]
            return cube_noise_sd(columns, width, split.shares[share].epsilon)

        def difference(share: str) -> float:
            return math.sqrt(8.0) * noise(share, m + 1, 2.0) / (n * hand.WIDE_SD)

        squares = m - facts.values[:-1].count(2)
        raw, by_sums, by_model, spread = difference("balance"), math.inf, math.inf, 0.0
        if squares:
            whole, part = noise("balance", squares, 4.0), 0.0
            if "balance" not in split.mu:  # with Gaussian noise they cost nothing
                part = _squares_part(whole / 4.0, n)
                whole /= 4.0 * part
            raw /= 1.0 - part
            each = 2.0 * math.hypot(whole, noise("balance", m + 1, 1.0)) ** 2 / n**2
            usual = np.full(squares, hand.WIDE_SD**2)
            _, unknown = table_one.pulled(usual, 0.0 * usual + each)
            spread = hand.SURE * math.sqrt(float(unknown[0])) / hand.WIDE_SD**2
        if "propensity" in split.shares:
            gradient = inverse_weights.gradient_noise(facts.width, *split.shares["propensity"])
            sd = hand.WIDE_SD / (2.0 * unit_norm(facts.width))
            by_model = gradient / (hand.TREATED_VARIANCE * n * sd)
        if "adjusted" in split.shares:
            by_sums = difference("adjusted") / hand.USUAL_WEIGHT
        return cls(raw, math.hypot(by_sums, by_model), m * by_model**2, spread)


def budget_split(level: str, options: BalanceOptions) -> dict[str, float]:
    """Split of the budget; what is left out leaves its share to the others."""
    out = set() if options.adjusted else {"adjusted"}
    if options.overlap is False:
        out |= {"propensity", "overlap"}
    return {name: part for name, part in _SHARES.items() if name not in out}


def uses_delta(options: BalanceOptions, facts: PublicInfo) -> dict[str, float | None]:
    """Which shares can use a delta, and in how many entries a record moves their releases."""
    own, by_arm = entries(cube(max(_varying(facts), 1) + 1)), entries(COUNT, cells=2)
    return {"balance": own, "propensity": None, "overlap": by_arm, "adjusted": own}


def _squares_part(noise: float, n: int) -> float:
    """Part of a share for squares; ``noise`` is that of a sum of them at the whole share."""
    return float(np.clip(noise / (n * hand.APART * hand.WIDE_SD**2), *hand.BALANCE_SQUARES))


# --- the release --------------------------------------------------------------------------------


@row("treated", "covariates")
def score_bin(rows: Block, weights: FloatArray, cuts: FloatArray) -> IntArray:
    """Arm of a record, and bin of its score by a released model: treated records first."""
    score = sigmoid(logits(rows.covariates, weights[1:], weights[0]))
    first = np.where(rows.treated, 0, len(cuts) + 1)
    return first + np.searchsorted(cuts, score)


def fit(curator: Curator, options: BalanceOptions, estimand: str) -> table_results.TableRelease:
    """Release what is worth it."""
    arms = Arms.released(curator)
    found: dict[str, Any] = {
        "reasons": arms.reasons,
        "treated": (arms.treated, arms.treated_sd),
        **arms.among_all("", arms.differences(arms.margin)),
    }
    if not (options.overlap and arms.usable.any()):
        return table_results.TableRelease(Balance, found, named=_terms)
    offset = arms.log_odds
    weights = inverse_weights.propensity_model(curator, None, offset, "propensity")
    edges = np.linspace(0.0, 1.0, options.bins + 1)
    records, fields = _scores(curator, weights.value, offset, edges)
    middles = (edges[:-1] + edges[1:]) / 2.0
    varies = max(float(records @ (middles * (1.0 - middles))) / curator.n, 0.02)
    noise, share = model_noise(weights, arms, varies)
    found |= fields | {"model_noise": share}
    if options.adjusted:
        limits = ESTIMANDS[estimand].clip_limits(options.clip)
        model = inverse_weights.PropensityFunction.within(weights.value, offset, limits)
        seen = seen_as(curator, TableWeight(model, estimand))
        label = "weighted covariates by arm"
        (weighted,) = margins([_asked(seen, label, arms.columns, "adjusted", Fraction())])
        within = (middles > limits[0]) & (middles < limits[1])
        inside = float(records @ within) / curator.n
        differences = [
            replace(x, noise_sd=math.hypot(x.noise_sd, inside * sd))
            for x, sd in zip(arms.differences(weighted), noise, strict=True)
        ]
        known = weighted.sizes.min() > table_one.SURE * math.sqrt(weighted.noise[0, 0])
        found |= arms.among_all("_adjusted", differences, known)
    return table_results.TableRelease(Balance, found, named=_terms)


def _terms(own: Mapping[str, Any], estimation: Any) -> dict[str, Any]:
    return {"terms": estimation.design.encoding.names[1:]}


def _asked(
    curator: Curator, label: str, columns: IntArray, share: str, squared: Fraction
) -> MarginQuery:
    return MarginQuery(curator, label, columns, ARMS, (2, 1), share, squared=squared)


@dataclass(frozen=True, eq=False)
class Arms:
    """The released margin of two arms, of columns that are places among those of a record.

    The first of ``width``, the intercept, is left out; ``numbers`` are no indicators.
    """

    n: int
    width: int
    columns: IntArray
    numbers: BoolArray
    margin: Margin
    spreads: table_one.Spreads

    @classmethod
    def released(cls, curator: Curator) -> Arms:
        """Release the margin; its sizes add up to n."""
        columns, n = varying_columns(curator), curator.n
        columns = columns[columns > 0]  # the first is the intercept
        numbers = np.array(curator.values)[columns] != 2
        part = Fraction()
        if numbers.any():
            noise = cube_noise_sd(int(numbers.sum()), 1.0, curator.epsilon("balance"))
            part = Fraction(_squares_part(noise, n)).limit_denominator(1000)
        asked = _asked(curator, "covariates by arm", columns, "balance", part)
        (margin,) = agreeing(margins([asked])[0], (), float(n))
        return cls(
            n, curator.width, columns, numbers, margin, table_one.Spreads.of(margin, numbers)
        )

    @property
    def treated(self) -> float:
        """Number of treated records."""
        return min(max(float(self.margin.sizes[0, 0]), 0.0), float(self.n))

    @property
    def treated_sd(self) -> float:
        """Standard deviation of the noise in it."""
        return math.sqrt(float(self.margin.noise[0, 0]))

    @property
    def both_there(self) -> bool:
        """Whether both arms have more records than noise could make."""
        return min(self.treated, self.n - self.treated) > table_one.SURE * self.treated_sd

    @property
    def usable(self) -> BoolArray:
        """Whether columns vary by more than noise."""
        known = self.spreads.squared > hand.SURE * np.sqrt(self.spreads.unknown)
        return np.asarray(known & self.both_there)

    @property
    def log_odds(self) -> float:
        """Log odds of treatment, kept away from the ends by the noise in the count."""
        least = min(max(self.treated_sd, 1.0) / self.n, 0.5)
        share = min(max(self.treated / self.n, least), 1.0 - least)
        return math.log(share / (1.0 - share))

    def differences(self, margin: Margin) -> list[table_one.Difference]:
        """Standardised differences of a margin, with weights or without."""
        return self.spreads.differences(margin, self.numbers, hand.SURE)

    def among_all(
        self, name: str, found: Sequence[table_one.Difference], known: bool = True
    ) -> dict[str, tuple[float, ...]]:
        """Differences and their noise among those of all columns; NaN where not usable."""
        whole = np.full((2, self.width - 1), math.nan)
        own = np.array([(x.value, x.noise_sd) for x in found]).T
        whole[:, self.columns - 1] = np.where(self.usable & known, own, math.nan)
        values, sds = map(tuple, whole.tolist())
        return {f"smd{name}": values, f"noise_sd{name}": sds}

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a column has no difference; empty where it has."""
        texts = [_ONE_VALUE] * (self.width - 1)
        for column, usable in zip(self.columns, self.usable, strict=True):
            texts[column - 1] = "" if usable else _NO_SPREAD if self.both_there else _FEW
        return tuple(texts)


def _scores(
    curator: Curator, model: FloatArray, offset: float, edges: FloatArray
) -> tuple[FloatArray, dict[str, Any]]:
    """Release the histogram of the scores of a released model, by arm.

    Records by bin, and fields of a `Balance`: the closest counts that are not negative and add up.
    """
    on_rows, n, bins = model / unit_norm(model.size), curator.n, edges.size - 1  # rows in [0, 1]
    on_rows = np.concatenate([[offset - 0.5 * on_rows[1:].sum()], on_rows])
    cells = GroupIndex(score_bin(on_rows, edges[1:-1]), 2 * bins)
    released = curator.sums("histogram of scores", None, COUNT, cells, share="overlap")
    counts, sd = released.value.reshape(2, -1), released.sd
    shown = not_negative(counts.reshape(-1), n).reshape(2, -1)
    far = (edges[1:] <= hand.RARE + 1e-9) | (edges[:-1] >= 1.0 - hand.RARE - 1e-9)
    outside = min(max(float(counts[:, far].sum()) / n, 0.0), 1.0)
    return shown.sum(axis=0), {
        "edges": tuple(edges.tolist()),
        "counts": tuple(tuple(arm) for arm in shown.tolist()),
        "count_sd": sd,
        "scores_outside": (outside, sd * math.sqrt(2.0 * far.sum()) / n),
    }


def model_noise(weights: Coefs, arms: Arms, varies: float) -> tuple[FloatArray, float]:
    """What noise in a propensity model does: standard deviations in standardised differences, and
    the expected share of noise in the log odds.

    Noise b in the gradient moves the weights by (n v C + strength)^-1 b, with C the covariance of
    the covariates and v the mean of e(1 - e), ``varies``, and a weighted difference of the
    covariates by C times that. Where the penalty is small, this is b / (n v), however columns are
    correlated.
    Records whose scores are clipped have no part in it. The share is 1 where noise alone gives log
    odds of that size in one of twenty cases.
    """
    squared = unit_norm(weights.value.size) ** 2
    variance = np.clip(arms.spreads.squared, 2.5e-4, 0.25) / squared
    information = arms.n * varies * variance
    noise = weights.noise_sd * np.sqrt(variance) / (information + weights.strength)
    m, total = noise.size, float(np.sum(noise**2))
    size = float(np.sum(variance * weights.value[arms.columns] ** 2))
    tail = 1.0 + 1.64 * math.sqrt(5.0 / m)  # squares of Laplace noise vary by sqrt(5)
    return noise, total / size if size > tail * total else 1.0


BALANCE = MethodSpec(
    name="dp_balance",
    estimands=AVERAGES,
    levels=("sample",),
    options=BalanceOptions,
    budget_split=budget_split,
    uses_delta=uses_delta,
    fit=fit,
    uses_outcome=False,
    may_stop=True,
    needs_intercept=True,  # the other columns are centred around it
    **_SAID["spec"],
)
"""It estimates no effect, so it is not among the methods that `methods` lists."""


# --- the result ---------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, kw_only=True)
class Balance(several.SeveralRows, picture="report.plots.diagnostics.of_balance"):
    """Overlap and balance of two arms; made by `dp_balance`.

    Parameters
    ----------
    terms
        Names of the encoded covariates.
    smd, noise_sd
        Standardised mean differences (treated minus control) and the standard deviation of the
        privacy noise in each; NaN for a covariate whose variance is mostly noise.
    reasons
        Why a difference is missing; empty texts where it is not.
    treated
        Number of treated records, and the standard deviation of its noise.
    smd_adjusted, noise_sd_adjusted
        The same after inverse probability weighting, with the noise of the propensity model;
        empty where it was not released.
    edges, counts, count_sd
        Histogram of the released propensity score: edges of its bins, noisy counts of treated and
        of control records, standard deviation of the noise in each count. Counts are the closest to
        the released ones that are not negative and add up to n. Empty where none was released.
    scores_outside
        Proportion of records with a score below 0.1 or above 0.9, and the standard deviation of
        the noise in it.
    model_noise
        Expected share of privacy noise in the variance of the log odds of the propensity model.
    clipped
        A warning where many values lay outside their declared ranges (``check_bounds=True``).
    estimand, method, ...
        The fields of `ResultBase`.
    """

    _computed = ("warnings",)
    _of_effects = False
    _titled = "Covariate balance and overlap, {0._private}"
    terms: tuple[str, ...]
    smd: tuple[float, ...]
    noise_sd: tuple[float, ...]
    reasons: tuple[str, ...]
    treated: tuple[float, float]
    smd_adjusted: tuple[float, ...] = ()
    noise_sd_adjusted: tuple[float, ...] = ()
    edges: tuple[float, ...] = ()
    counts: tuple[tuple[float, ...], ...] = ((), ())
    count_sd: float = math.nan
    scores_outside: tuple[float, float] = (math.nan, math.nan)
    model_noise: float = math.nan
    clipped: str = ""

    def tidy(self) -> pd.DataFrame:
        """One row for each covariate: differences before and after weighting, with their noise.

        ``within_noise`` says that a difference is within 1.96 standard deviations of its noise, a
        ``noise_ratio`` above 1 that it is mostly noise; NaN was not released or is not usable.
        """
        columns: dict[str, Any] = {"term": self.terms}
        for name, own in (
            ("", (self.smd, self.noise_sd)),
            ("_adjusted", (self.smd_adjusted, self.noise_sd_adjusted)),
        ):
            values, sds = own if own[0] else ((math.nan,) * len(self.terms),) * 2
            columns |= {f"smd{name}": values, f"noise_sd{name}": sds}
            columns[f"within_noise{name}"] = list(map(table_one.within_noise, values, sds))
            columns[f"noise_ratio{name}"] = list(map(table_one.hidden, values, sds))
        return frame_of(columns | {"reason": self.reasons, "guarantee": self.guarantee.status})

    def overlap(self) -> pd.DataFrame:
        """One row for each arm and bin of the propensity score."""
        bins = list(zip(self.edges[:-1], self.edges[1:], strict=True))
        return frame_of(
            [
                {"arm": arm, "low": low, "high": high, "count": count, "noise_sd": self.count_sd}
                for arm, counts in zip(table_results.ARMS, self.counts, strict=True)
                for (low, high), count in zip(bins, counts, strict=True)
            ]
        )

    def glance(self) -> pd.DataFrame:
        """One row for the release: its size, guarantee and largest differences."""
        outside, sd = self.scores_outside
        row = {
            "n": self.n,
            "treated": self.treated[0],
            "treated_noise_sd": self.treated[1],
            "covariates": len(self.terms),
            "largest_smd": _largest(self.smd),
            "largest_smd_adjusted": _largest(self.smd_adjusted),
            "scores_outside": outside,
            "scores_outside_noise_sd": sd,
            "model_noise": self.model_noise,
            "epsilon": float(self.guarantee.epsilon),
            "delta": float(self.guarantee.delta),
            "guarantee": self.guarantee.status,
        }
        return frame_of([row])

    @property
    def estimate_warnings(self) -> str:
        """Warnings about the estimates; empty where there are none."""
        noisy = _SAID["noisy_model"] if self.model_noise >= 0.5 else ""  # NaN without a model
        return "; ".join(filter(None, (noisy, self.clipped)))

    def plot(self, kind: str = "love", *, most: int | None = 30, ax: Any = None) -> Any:
        """Draw a love plot ("love") or the propensity score histogram ("overlap").

        ``most`` is how many differences are drawn, the largest first; None draws all. It returns
        the axes (matplotlib).
        """
        return draw(self, kind, most=most, ax=ax)

    def __repr__(self) -> str:
        largest = number(_largest(self.smd), 3)
        return self._line(f"balance of {len(self.terms)} covariates, largest SMD {largest}")

    # --- words ----------------------------------------------------------------------------------

    @property
    def _subject(self) -> str:
        return f"the balance of covariates between the arms of {self.treatment}"

    def _blocks(self, conf_level: float) -> Sequence[ErrorPart]:
        histogram = (self._histogram(),) if self.edges else ()
        return Pairs(tuple(self._arms()), "Arms"), self._differences(), *histogram

    def _headline(self, conf_level: float = 0.95, **asked: Any) -> wording.Lines:
        usable = self._usable()
        apart = sum(abs(smd) > hand.APART for _, smd, _ in usable)
        count = f"{len(self.terms)} covariate{'' if len(self.terms) == 1 else 's'}"
        shown = f"{apart} of the {len(usable)} SMDs that are not mostly noise"
        return [
            ("About", f"balance of {count} between the arms of {self.treatment}"),
            ("Largest SMD", self._largest() or "not known: no difference is usable"),
            ("Imbalanced", f"{shown} are beyond ±{hand.APART}" if usable else ""),
            *self._arms(),
        ]

    def _findings(self, conf_level: float) -> Sequence[str]:
        if largest := self._largest():
            what = f"The largest standardised mean difference is {largest}"
            return [f"{what}; this does not include sampling error."]
        if not all(math.isnan(smd) for smd in self.smd):
            return ["All standardised mean differences are mostly noise."]
        return [f"No difference is known: {next(filter(None, self.reasons), '')}."]

    def _usable(self) -> list[tuple[str, float, float]]:
        """Differences before weighting that are not mostly noise, with their noise."""
        rows = zip(self.terms, self.smd, self.noise_sd, strict=True)
        return [x for x in rows if not (math.isnan(x[1]) or table_one.hidden(*x[1:]) > 1.0)]

    def _largest(self) -> str:
        """The largest standardised difference, or nothing where none is known."""
        if not (usable := self._usable()):
            return ""
        term, smd, sd = max(usable, key=lambda row: abs(row[1]))
        value, noise = to_error((smd, sd), sd)
        return f"{value} ({term}; standard deviation of its privacy noise {noise})"

    def _arms(self) -> wording.Lines:
        (treated, sd), (outside, outside_sd) = self.treated, self.scores_outside
        who = counted(self.guarantee.unit)
        of = who if "size" in self.sample else f"of {self.n} {who}"
        rows = [("Treated", f"{_count(treated, sd)} {of} (noise SD {number(sd, 2)})")]
        if self.edges:
            part, noise = to_error((100 * outside, 100 * outside_sd), 100 * outside_sd)
            ratio = noise_ratio(outside_sd, 1.0, max(outside, RARE))
            scores = f"of {who} have a propensity score below {hand.RARE} or above "
            scores += f"{1.0 - hand.RARE} (noise SD {noise} percentage points)"
            about = f"about {100 * self.model_noise:.0f} % of the variance of its log odds is noise"
            rows += [
                ("Overlap", f"{printed(f'{part} %', ratio, _SAID['unknown_part'])} {scores}"),
                ("Propensity model", about),
            ]
        return rows

    def _differences(self) -> Table:
        columns, cells = ["covariate"], [list(self.terms)]
        for name, values, sds in (
            ("SMD", self.smd, self.noise_sd),
            ("weighted SMD", self.smd_adjusted, self.noise_sd_adjusted),
        ):
            if values:
                columns += [name, f"noise SD of the {name}"]
                pairs = map(wording.difference_cells, values, sds)
                cells += [list(own) for own in zip(*pairs, strict=True)]
        rows = tuple(zip(*cells, strict=True))[:SHOWN]
        title = "Standardised mean differences (SMD), treated minus control"
        return Table(title, tuple(columns), rows, "l" + "r" * (len(columns) - 1))

    def _histogram(self) -> Table:
        digits = 2 if (len(self.edges) - 1) in (2, 4, 5, 10, 20, 25, 50) else 3
        bins = zip(self.edges[:-1], self.edges[1:], *self.counts, strict=True)
        rows = tuple(
            (f"{low:.{digits}f} to {high:.{digits}f}", *(_count(x, self.count_sd) for x in counts))
            for low, high, *counts in bins
        )
        title = f"Records by propensity score (noise SD of each count {number(self.count_sd, 3)})"
        return Table(title, ("score", *table_results.ARMS), rows[:SHOWN], "lrr")

    def _noted(self, conf_level: float) -> Sequence[str]:
        """How to read the numbers, and what was not released."""
        stopped = "stopped" if self.options.get("overlap") else "no_model"
        notes = [_SAID["smd"], wording.DAGGER, _SAID["scores"] if self.edges else ""]
        notes.append(_SAID["weighted" if self.smd_adjusted else "raw" if self.edges else stopped])
        notes += [f"n/a: {reason}." for reason in dict.fromkeys(filter(None, self.reasons))]
        if max(len(self.terms), len(self.edges) - 1) > SHOWN:
            notes.append(f"Tables show the first {SHOWN} rows; tidy() and overlap() have all.")
        return [*notes, *self.notes]


def _largest(values: tuple[float, ...]) -> float:
    return max((abs(x) for x in values if not math.isnan(x)), default=math.nan)


def _count(value: float, sd: float) -> str:
    return printed(f"{value:.0f}", noise_ratio(sd, value=max(value, COUNTED)))


# --- the call -----------------------------------------------------------------------------------


class _OfBalance(OfUnits, OfSplits, total=False):
    estimand: str


@public_call(_OfBalance, options=False, conf_level=False, plot="draw the differences (love plot)")
def dp_balance(
    formula: str,
    data: Any,
    *,
    epsilon: float,
    adjusted: bool | None = None,
    overlap: bool | None = None,
    clip: float = 0.1,
    bins: int = 20,
    **more: Unpack[_OfBalance],
) -> Balance:
    r"""Check covariate balance and propensity score overlap, without reading the outcome.

    Parameters
    ----------
    formula
        As in :func:`dp_ate`. The outcome is not read: it may be missing from the data.
    {shared}
    estimand
        "ATE", "ATT" or "ATC": the estimand of the inverse probability weights.
    adjusted
        Whether balance after weighting is released too. None (default): where n, the number of
        covariates and epsilon let us expect noise with a standard deviation below 0.1 in it.
    overlap
        Whether a propensity model and the histogram of its scores are released. None (default):
        where n, the number of covariates and epsilon let us expect a model that is not mostly
        noise, and noise below 0.1 in the differences beside it. Otherwise all of epsilon goes to
        the differences.
    clip
        Propensity scores are truncated to [clip, 1 - clip] in the weights.
    bins
        Number of bins of the propensity score histogram.

    Returns
    -------
    Balance

    Notes
    -----
    Where n, the number of columns and epsilon imply noise with a standard deviation above 0.5 in a
    standardised difference, the call is refused before anything is charged.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("confounded", n=5000, seed=1)
    >>> found = dpe.dp_balance("outcome ~ treatment | x1 + x2", data, epsilon=2, seed=1)
    >>> found.tidy()["term"].tolist(), found.guarantee.status
    (['x1', 'x2'], 'void: seeded')

    In a shell::

        dpeffects balance "y ~ t | age + sex" data.csv --epsilon 1 \
            --bounds bounds.toml
        dpeffects balance "y ~ t | age + sex" data.csv --epsilon 1 \
            --bounds bounds.toml --ledger study.db --dataset nsw --plot love.png
    """
    return released(BALANCE, locals())
