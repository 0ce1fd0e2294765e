"""A plan: what each method would give, without touching data.

It is a dress rehearsal: each method runs on made-up records that fit the formula, the declared
bounds and what is assumed about the data (`records`), with the noise it would use (`rehearsal`). So
every method can be planned, also those that choose from n and epsilon what to do. What a rehearsal
cannot know (how strongly covariates go with treatment and outcome, how they spread) is an argument,
with a default that is typical of real data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpeffects.errors import OptionError, checked_call
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators import conditional_methods, proved
from dpeffects.estimators.option_checks import check_between, check_choice, check_whole
from dpeffects.formula.expression import source
from dpeffects.inference.hypotheses import EQUIVALENCE, Hypothesis
from dpeffects.lazy import pd
from dpeffects.progress import bar
from dpeffects.results.export import frame_of
from dpeffects.results.words import percent
from dpeffects.services.planning.inverse import Invertible, planned_table
from dpeffects.services.planning.made_up import MadeUp
from dpeffects.services.planning.rehearsal import Planned, row, row_or_reason
from dpeffects.services.planning.setting import (
    PlanSetting,
    declared_bounds,
    explained,
    outcome_range,
    outcome_spread,
    read_formula,
    refuse_several,
)
from dpeffects.summary import Block, Table, draw, noted

_FIGURES = ("noise_sd", "std_error", "half_width", "detectable", "power")


@dataclass(frozen=True, repr=False)
class Plan(Invertible, picture="services.planning.planned_plot.half_width"):
    """The expected accuracy of each method; print it, plot it, or ask it for the inverse.

    ``noise_sd`` is the standard deviation of the privacy noise, ``half_width`` that of the interval
    around the estimate, ``detectable`` the smallest effect found with the wanted power: NaN where
    there is no test of an effect, because nothing is adjusted for, or none in the outcome's range.
    With another test than the two-sided one of 0 it is the effect that is shown with that power, or
    the smallest margin of equivalence. ``power`` is that of the test at an ``effect``.
    """

    setting: PlanSetting
    rows: tuple[Planned, ...]
    _title = "Plan for the {0.setting.estimand}: no data was touched"
    _about = "method"

    def tidy(self) -> pd.DataFrame:
        """One row a method; what is not available is NaN, and the column reason says why.

        The column note says what the method will do: which one the default chooses, and whether it
        will not adjust.
        """
        names = ("method", *_FIGURES, "remark", "reason")
        rows = [{name: getattr(row, name) for name in names} for row in self.rows]
        return frame_of(rows).rename(columns={"remark": "note"})

    def shares_frame(self) -> pd.DataFrame:
        """Epsilon by method and share of the budget."""
        shares = [(row.method, *share) for row in self.rows for share in row.shares]
        return frame_of(shares, ["method", "share", "epsilon"])

    def _reasons(self) -> dict[str, str]:
        return {row.method: row.reason for row in self.rows}

    def _figures_at(self, of: str) -> Callable[[str, float], Planned]:
        """Figures of a method, from a few rehearsals."""
        made = MadeUp(self.setting)

        def at(method: str, value: float) -> Planned:
            change: dict[str, Any] = {of: round(value) if of == "n" else value}
            return row_or_reason(replace(self.setting, **change), method, made, few=True)

        return at

    @property
    def outcome(self) -> str:
        """The outcome as the formula has it."""
        return source(self.setting.parsed.outcome)

    def against(self, epsilons: Sequence[float]) -> pd.DataFrame:
        """Noise and half-width of each usable method at several epsilons, one row each."""
        cells = [(r.method, float(e)) for r in self.rows if not r.reason for e in epsilons]
        rows, at = [], self._figures_at("epsilon")
        for method, epsilon in bar(cells, "rehearsing"):
            found = at(method, epsilon)
            rows.append((method, epsilon, found.noise_sd, found.half_width))
        return frame_of(rows, ["method", "epsilon", "noise_sd", "half_width"])

    def plot(self, epsilons: Sequence[float] | None = None, ax: Any = None) -> Any:
        """Draw the half-width against epsilon; return the axes (matplotlib)."""
        return draw(self, epsilons, ax=ax)

    def _blocks(self) -> Iterable[Block]:
        s, title = self.setting, "Expected accuracy ({} intervals, {} power)"
        usable = sorted((r for r in self.rows if not r.reason), key=lambda r: r.half_width)
        shares = ((r.method, ", ".join(f"{k} {e:.3g}" for k, e in r.shares)) for r in usable)
        shown = _FIGURES[: 4 if s.assumed is None else 5]
        margin = {"detectable": "margin"} if s.asked.alternative == EQUIVALENCE else {}
        yield s.header()
        yield planned_table(
            title.format(percent(s.conf_level), percent(s.power)),
            usable,
            {"method": "method"},
            shown,
            **margin,
        )
        yield Table("Epsilon by share of the budget", ("method", "shares"), tuple(shares), "ll")
        said = [f"{r.method}: {r.remark or r.reason}" for r in self.rows if r.remark or r.reason]
        if notes := noted(said):
            yield notes


@checked_call
def plan(
    formula: str,
    *,
    n: int,
    epsilon: float,
    delta: float = 0.0,
    bounds: Any = None,
    method: str | None = None,
    estimand: str = "ATE",
    design: str = "observational",
    outcome_mean: float | None = None,
    outcome_sd: float | None = None,
    share_treated: float = 0.5,
    r2: float | None = None,
    confounding: float | None = None,
    covariate_sd: float | Mapping[str, float] | None = None,
    conf_level: float = 0.95,
    power: float = 0.8,
    repeats: int | None = None,
    effect: float | None = None,
    null: float = 0.0,
    alternative: str = "two-sided",
    margin: float | None = None,
    **options: Any,
) -> Plan:
    r"""Predict what each method would give, without touching data.

    Parameters
    ----------
    formula, epsilon, delta, bounds
        As in :func:`dp_ate`; every column needs declared bounds.
    n
        Number of records.
    method
        One method, or None for all that can estimate the estimand.
    estimand
        "ATE", "ATT", "ATC", or "CATE": then figures are medians over groups, points, or the points
        along each covariate that a summary shows, as ``release``, ``at`` and ``by`` say.
    design
        "observational", or "randomised" for a trial. In a trial there is no confounding.
    outcome_mean
        A guess of the outcome's mean; by default the middle of its range. A mean far from the
        middle makes noise in the size of an arm count. Of an outcome with two values it is the
        risk.
    outcome_sd
        A guess of the outcome's standard deviation within arms; by default a sixth of its range.
        An outcome whose bounds are the levels ``[0, 1]``, or the range (0, 1) where no standard
        deviation is given, has the two values 0 and 1, which the risk says all about.
    share_treated
        Share of treated records.
    r2
        Part of the outcome's variance within arms that covariates explain; by default 0.2, and 0.05
        for an outcome with two values, more with more than six columns: 0.14 with 50.
    confounding
        Standard deviation of the log odds of treatment that covariates explain; by default 0.7, and
        more with more than six columns: 1.2 with 50. It is 0 in a trial; with 0.7 a propensity
        score tells treated from other records with a c-statistic of about 0.69, with 0.3 of 0.58,
        with 1.5 of 0.83. What covariates say about treatment and what they say about the outcome
        correlate by 0.5, so the crude difference between the arms is off by about 0.7 x 0.5 x the
        root of ``r2`` standard deviations of the outcome.
    covariate_sd
        Standard deviation of numeric covariates in parts of their declared range; by default 0.17.
        A mapping says it by name. A covariate with the range (0, 1) is taken for an indicator that
        one record in five has, which is 0.4, unless a mapping says otherwise; above 0.3 a
        covariate has the two ends of its range only.
    conf_level, power
        Of the interval, and for the smallest detectable effect.
    repeats
        Rehearsals of each method; by default 12 or, with many records or columns, fewer.
    effect
        An effect at which to tell the power of the test; with a margin it is ``null`` by default.
    null, alternative, margin
        The test, as in :meth:`Result.test`: ``alternative="greater"`` for a one-sided one,
        ``margin=0.1`` for equivalence, both for non-inferiority.
    **options
        Options of the method, when one is named.

    Returns
    -------
    Plan

    Notes
    -----
    What ``auto`` would choose, and which methods will not adjust, is in the column note of
    ``tidy()`` and below the table. Power is that of the interval to exclude 0, or of the test that
    is asked for, on rehearsed records with an effect. Of more than 200,000 records so many are
    rehearsed (20,000 by methods that fit models in blocks), and errors are taken to fall with the
    root of n, which is the least
    that noise does. How near plans come to real runs, with true figures in these arguments and
    with the defaults, is in ``benchmarks/results/plan.md``; with many columns, where a plan may be
    off by a fifth and more, in ``plan_columns.md`` beside it.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> study = dpe.plan("y ~ t", n=5000, epsilon=1, bounds={"y": (0, 10)}, method="diff_in_means")
    >>> study.rows[0].half_width < 0.2
    True

    In a shell::

        dpeffects plan "y ~ t | age + sex" --n 5000 --epsilon 1 --bounds bounds.toml
        dpeffects plan "y ~ t" --n 5000 --epsilon 1 --bounds bounds.toml \
            --method diff_in_means --half-width 0.02
        dpeffects plan "y ~ t" --n 5000 --epsilon 1 --bounds bounds.toml \
            --plot plan.png
    """
    given = dict(locals())
    for name in ("formula", "bounds", "method"):
        del given[name]
    refuse_several(epsilon, options, "write plan(..., epsilon=1).against([1, 3])")
    parsed, declared = read_formula(formula, bounds)
    known, two_valued = declared_bounds(parsed, declared)
    if repeats is not None:
        check_whole("repeats", repeats, 1)
    check_choice("estimand", estimand, tuple(ESTIMANDS))
    asked = Hypothesis.asked(null, alternative, margin=margin)
    ends = outcome_range(parsed.outcome, known)
    width = ends[1] - ends[0]
    for name, value in (("effect", effect), ("null", asked.null)):
        if value is not None:
            check_between(name, value, -width, width)
    mean, sd, two_valued = outcome_spread(*ends, outcome_mean, outcome_sd, two_valued)
    r2 = explained(two_valued, parsed, known) if r2 is None else r2
    check_between("r2", r2, 0.0, 0.99)
    if method is None and not set(options) <= {"release", "at", "by"}:
        raise OptionError("options belong to a method: name one with method=...")
    name = source(parsed.outcome)
    given |= {"outcome_mean": {name: mean}, "outcome_sd": {} if two_valued else {name: sd}}
    given |= {"r2": float(r2), "null": asked.null, "margin": asked.margin}
    given["effect"] = None if effect is None else float(effect)
    setting = PlanSetting.checked(parsed, known, **given)
    if asked.alternative != "two-sided" and not setting.conf_level > 0.5:
        raise OptionError("one-sided tests need a conf_level above 0.5")
    made = MadeUp(setting)
    if method is not None:
        return Plan(setting, (row(setting, method, made),))
    kinds = conditional_methods() if ESTIMANDS[estimand].conditional else proved()
    names = [s.name for s in kinds.values() if estimand in s.estimands and s.guarantee == "exact"]
    rows: dict[str, Planned] = {}
    for name in bar(names, "planning"):
        twin = next((r for r in rows.values() if r.chosen == name and r.detectable > 0), None)
        if twin and not setting.delta:  # the default made the same call
            rows[name] = replace(twin, method=name, chosen="")
        else:
            rows[name] = row_or_reason(setting, name, made)
    return Plan(setting, tuple(rows.values()))
