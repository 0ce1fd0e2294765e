"""A plan: the accuracy to expect of each method, without touching data.

Each method runs on simulated records that fit the formula, the declared bounds and what is assumed
about the data (`synthetic_records`), with the noise it would use (`rehearsal`). So every method can
be planned, also those that choose from n and epsilon what to do. What a simulation cannot know (how
strongly covariates are associated with treatment and outcome, how much they vary) is an argument,
with a default that is typical of real data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpeffects.errors import OptionError, checked_call, instead_of
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators import conditional_methods, proved
from dpeffects.estimators.option_checks import check_between, check_choice, check_whole
from dpeffects.formula.expression import source
from dpeffects.inference.hypotheses import EQUIVALENCE, Hypothesis
from dpeffects.lazy import pd
from dpeffects.progress import bar
from dpeffects.results.export import frame_of
from dpeffects.results.wording import percent
from dpeffects.services.planning.plan_tables import Invertible, planned_table, weak
from dpeffects.services.planning.rehearsal import PlannedMethod, row, row_or_reason
from dpeffects.services.planning.setting import (
    PlanSetting,
    declared_bounds,
    explained,
    outcome_range,
    outcome_spread,
    read_formula,
    refuse_several,
)
from dpeffects.services.planning.synthetic_records import SyntheticRecords
from dpeffects.summary import Block, Table, draw, noted

_FIGURES = ("sampling_se", "noise_sd", "bias_sd", "std_error", "half_width", "mde", "power")
_READING = (
    "Sampling SE, privacy-noise SD and bias allowance add up to the total SE as squares, "
    "approximately. MDE: minimum detectable effect. All figures are medians over simulations."
)


@dataclass(frozen=True, repr=False)
class Plan(Invertible, picture="services.planning.planned_plot.half_width"):
    """The expected accuracy of each method: print it, plot it, or ask `required`.

    ``sampling_se`` is the standard error from sampling alone, ``noise_sd`` the standard deviation
    of the privacy noise, ``bias_sd`` that of the allowance for possible bias, and ``std_error``
    the root of their sum of squares (all are medians over simulations). ``half_width`` is half the
    width of the confidence interval, ``mde`` the minimum detectable effect at the wanted power:
    NaN where there is no test of an effect, because nothing is adjusted for, or where it is beyond
    the outcome's range. With another test than the two-sided one of 0 it is the effect at which
    the test rejects with that power, or the smallest margin of equivalence. ``power`` is the power
    of the test at ``effect``.
    """

    setting: PlanSetting
    rows: tuple[PlannedMethod, ...]
    _title = "Plan for the {0.setting.estimand}, from simulated records (no data were used)"
    _about = "method"

    def tidy(self) -> pd.DataFrame:
        """One row for each method; a NaN is not available, and the column reason says why.

        The column note says which method the default chooses, and whether it will not adjust.
        """
        names = ("method", *_FIGURES, "remark", "reason")
        rows = [{name: getattr(row, name) for name in names} for row in self.rows]
        return frame_of(rows).rename(columns={"remark": "note"})

    def budget_frame(self) -> pd.DataFrame:
        """Epsilon by method and share of the budget."""
        shares = [(row.method, *share) for row in self.rows for share in row.budget_split]
        return frame_of(shares, ["method", "share", "epsilon"])

    def _reasons(self) -> dict[str, str]:
        return {row.method: row.reason for row in self.rows}

    def _figures_at(self, of: str) -> Callable[[str, float], PlannedMethod]:
        """Figures of a method, as a plan for that epsilon or n has them."""
        made, here = SyntheticRecords(self.setting), {row.method: row for row in self.rows}

        def at(method: str, value: float) -> PlannedMethod:
            change: dict[str, Any] = {of: round(value) if of == "n" else value}
            there = replace(self.setting, **change)
            return here[method] if there == self.setting else row_or_reason(there, method, made)

        return at

    @property
    def outcome(self) -> str:
        """The outcome as the formula has it."""
        return source(self.setting.parsed.outcome)

    def across(self, epsilons: Sequence[float]) -> pd.DataFrame:
        """Noise and half-width of each usable method at several epsilons, one row each.

        They are those of a plan for that epsilon. The column ``note`` says where its guarantee is
        weak; ``assumed`` names the arguments that were not stated, so that a default was taken.
        """
        at, rows, stated = self._figures_at("epsilon"), [], self.setting.unstated
        cells = [(r.method, float(e)) for r in self.rows if not r.reason for e in epsilons]
        for method, epsilon in bar(cells, "simulating"):
            found = at(method, epsilon)
            figures = found.noise_sd, found.half_width
            rows.append((method, epsilon, *figures, weak(self.setting, epsilon), stated))
        return frame_of(rows, ["method", "epsilon", "noise_sd", "half_width", "note", "assumed"])

    def plot(self, epsilons: Sequence[float] | None = None, ax: Any = None) -> Any:
        """Draw the half-width against epsilon; return the axes (matplotlib)."""
        return draw(self, epsilons, ax=ax)

    def _blocks(self) -> Iterable[Block]:
        s, title = self.setting, "Expected accuracy ({} confidence intervals)"
        usable = sorted((r for r in self.rows if not r.reason), key=lambda r: r.half_width)
        shares = ((r.method, ", ".join(f"{k} {e:.3g}" for k, e in r.budget_split)) for r in usable)
        shown = _FIGURES[: -1 if s.assumed is None else None]
        shown = tuple(x for x in shown if any(getattr(r, x) == getattr(r, x) for r in usable))
        least = "equivalence margin" if s.asked.alternative == EQUIVALENCE else "MDE"
        yield s.header()
        yield planned_table(
            title.format(percent(s.conf_level)),
            usable,
            {"method": "method"},
            shown,
            mde=f"{least} ({percent(s.power)} power)",
        )
        yield Table("Budget split", ("method", "epsilon of each part"), tuple(shares), "ll")
        said = [f"{r.method}: {r.remark or r.reason}" for r in self.rows if r.remark or r.reason]
        said.append(_READING if usable else "")
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
    treated_share: float | None = None,
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
    r"""Predict the accuracy of each method by simulation, without touching data.

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
        Expected mean of the outcome; by default the middle of its range. If it is far from the
        middle, privacy noise in the arm sizes adds to the error. For a 0/1 outcome it is the risk.
    outcome_sd
        Expected standard deviation of the outcome within arms; by default a sixth of its range.
        An outcome whose bounds are the levels ``[0, 1]``, or the range (0, 1) where no standard
        deviation is given, is a 0/1 outcome, which the risk describes fully.
    treated_share
        Proportion of treated records; by default a half.
    r2
        Part of the outcome's variance within arms that covariates explain (R squared); by default
        0.2, and 0.05 for a 0/1 outcome, more with more than six columns: 0.14 with 50.
    confounding
        Standard deviation of the logit of the propensity score; by default 0.7, and more with more
        than six columns: 1.2 with 50. It is 0 in a trial. A value of 0.3 is a c-statistic of the
        propensity score of about 0.58, 0.7 one of 0.69, 1.5 one of 0.83. The linear predictors of
        treatment and outcome have a correlation of 0.5, so the crude difference between the arms
        is biased by about ``confounding`` x 0.5 x the root of ``r2`` standard deviations of the
        outcome.
    covariate_sd
        Standard deviation of numeric covariates as a fraction of their declared range; by default
        0.17; a mapping has it by name. A covariate with the range (0, 1) is taken for an indicator
        with a prevalence of one in five, which is 0.4, unless a mapping says otherwise; above 0.3
        a covariate takes only the two ends of its range.
    conf_level, power
        Level of the interval, and power for the minimum detectable effect (MDE).
    repeats
        Number of simulations of each method; by default 12 or, with many records or columns, fewer.
    effect
        An effect at which to compute the power; with a margin it is ``null`` by default.
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
    The summary tells which figures were stated, and which are defaults: "assumed, not stated".
    What ``auto`` would choose, and which methods will not adjust, is in the column note of
    ``tidy()`` and below the table. Power is the probability that the interval excludes 0, or that
    the requested test rejects, for simulated records with an effect. At most 200,000 records are
    simulated (20,000 for methods that fit models in blocks); with more, errors are taken to fall
    with the root of n, although noise falls faster. Simulated outcomes have a beta distribution on
    their declared range, with the given mean and standard deviation. How close plans are to real
    runs, with true figures in these arguments and with the defaults, is in
    ``benchmarks/results/plan.md``; with many columns a plan may be off by a fifth and more.

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
    refuse_several(epsilon, options, "write plan(..., epsilon=1).across([1, 3])")
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
    share = explained(two_valued, parsed, known) if r2 is None else r2
    check_between("r2", share, 0.0, 0.99)
    if method is None and not set(options) <= {"release", "at", "by"}:
        name = min(set(options) - {"release", "at", "by"})
        hint = instead_of(name, ()) or " An option of a method needs method=... too."
        raise OptionError(f"plan has no argument {name!r}.{hint}")
    name = source(parsed.outcome)
    for what, value in (("outcome_mean", outcome_mean), ("outcome_sd", outcome_sd)):
        given[what] = {} if value is None else {name: value}
    given |= {"null": asked.null, "margin": asked.margin}
    given["effect"] = None if effect is None else float(effect)
    sds = {} if two_valued else {name: sd}
    setting = PlanSetting.checked(parsed, known, **given)
    setting = replace(setting, outcome_mean={name: mean}, outcome_sd=sds, r2=float(share))
    if asked.alternative != "two-sided" and not setting.conf_level > 0.5:
        raise OptionError("a one-sided test needs a conf_level above 0.5")
    made = SyntheticRecords(setting)
    if method is not None:
        return Plan(setting, (row(setting, method, made),))
    kinds = conditional_methods() if ESTIMANDS[estimand].conditional else proved()
    names = [s.name for s in kinds.values() if estimand in s.estimands and s.guarantee == "exact"]
    rows: dict[str, PlannedMethod] = {}
    for name in bar(names, "planning"):
        twin = next((r for r in rows.values() if r.chosen == name and r.mde > 0), None)
        if twin and not setting.delta:  # the default made the same call
            rows[name] = replace(twin, method=name, chosen="")
        else:
            rows[name] = row_or_reason(setting, name, made)
    return Plan(setting, tuple(rows.values()))
