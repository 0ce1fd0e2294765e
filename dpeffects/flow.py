"""The one way that every public function goes: formula, design, budget, curator, method, result.

An `Estimation` is made of a `Request`. Making it does everything before the first charge: it
checks the request, reserves its budget, reads and checks the data, and divides the budget. Its
`result` does the rest: it finds bounds that nobody declared, encodes the rows, hands the curator to
the method, settles the reservation, and says what was promised and paid.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from dpeffects import results
from dpeffects.arrays import FloatArray
from dpeffects.design import clipped
from dpeffects.design.bounds import MAGNITUDES, SOURCES, Bounds, bins_for, find_bounds
from dpeffects.design.clipped import Clipped, release_clipped
from dpeffects.design.columns import Design
from dpeffects.design.engines import memory
from dpeffects.design.sample import AnalysisSample
from dpeffects.design.table import MOST_STRATA, LazyRows, PrivateTable
from dpeffects.design.table_reader import queries, read
from dpeffects.errors import (
    BoundsError,
    BudgetError,
    EstimationError,
    LedgerError,
    OptionError,
    did_you_mean,
    listed,
    quoted,
    refusal,
)
from dpeffects.estimators import clusters as _clusters
from dpeffects.estimators import conditional_methods, find, registry
from dpeffects.estimators.default import arm_levels as _levels
from dpeffects.estimators.default.polynomial_terms import chosen
from dpeffects.estimators.spec import (
    CONTRASTS,
    STOOD_IN,
    Contrasts,
    MethodSpec,
    Options,
    PublicInfo,
)
from dpeffects.formula import Formula, parse
from dpeffects.formula.expression import Column, Ordered, Pair, Survival, source
from dpeffects.formula.expression import columns as columns_of
from dpeffects.guarantee import Guarantee, printed, rows_of
from dpeffects.inference.estimate import Effects, Estimate, Unavailable, with_another
from dpeffects.inference.range_ends import arms_warning
from dpeffects.privacy.budget import as_written
from dpeffects.privacy.curator import Curator
from dpeffects.privacy.ledger import CallLedger, Terms
from dpeffects.privacy.noise import NoiseSource
from dpeffects.privacy.release import Releaser, Split
from dpeffects.privacy.rows import GroupIndex, Rows
from dpeffects.privacy.units import release_size
from dpeffects.request import Request as Request
from dpeffects.request import account_of, checked, missing_policies, parsed, with_groups
from dpeffects.results.wording import said, shown_level
from dpeffects.seeded import noise_source

_BOUNDS_SHARE = 0.5
"""Proportion for finding bounds privately, beside the method's own shares, which sum to about 1."""
_MOST_POINTS = 10_000
_MOST_GROUPS = 1000
_UNREAD = "{} does not use covariates; those in the formula were not read."
_FOR_RESPONSE = "{} does not use covariates; those in the formula say who has an outcome."
_BY_OUTCOME = (
    "The subset is chosen by the outcome: what is estimated is no effect of the treatment on it."
)
LEVEL_OF_1 = " is 1 where it is "
"""In the note on an outcome with two levels."""
TREATED = "Treated records have "
"""In the note on a treatment with two levels that are not 0 and 1."""
_FROM_DATA = ("bounds read from data",)
_SIZE_SHARE = 0.06
"""Proportion for the number of records that count, at least."""
_LEAST_RECORDS = 10.0
_COUNTING = ("unit", "max_rows", "cluster", "missing", "weights", "subset")
_NOISE_OF_OTHERS = {"library": "drawn by the library", "none": "none"}


class Estimation:
    """An estimation in two steps; making one is the first: its budget is reserved, nothing charged.

    ``stood_in`` names the method that estimated, if not the chosen one,
    ``points`` are encoded rows to predict at, ``groups`` the columns that make groups,
    ``contrasts`` pairs of arms where there are more than two, ``size`` how many records count,
    where that was released, ``effective`` as many of equal weight, ``asked_size`` how many of them
    and of those without an outcome, ``response`` what is known of who has one.
    """

    table: PrivateTable
    stood_in: str = ""
    groups: Any = None
    points: FloatArray | None = None
    unread: bool = False
    contrasts: Contrasts = ()
    adds_means: bool = False
    size: float | None = None
    effective: float | None = None
    asked_size: int | None = None
    response: Any = None
    design: Design
    clipped: Clipped = Clipped()
    lost: str = ""
    bins: GroupIndex = MAGNITUDES
    _rows: Rows | LazyRows | None = None

    def __init__(self, request: Request) -> None:
        request = self.request = request.written_out()
        self.spec, self.options, self.formula = checked(request)
        self.level = self.spec.check_level(request.level)
        self.public = self.options.public(self.level)
        self.sample = self._sample()
        self.noise = noise_source(request.seed)
        self.notes: list[str] = []
        void = (*self.noise.void, *(_FROM_DATA if isinstance(request.bounds, str) else ()))
        terms = Terms(self.protects, tuple(sorted(self.public)), void)
        budget, account = request.budget, account_of(request.ledger, request.dataset)
        about = {"method": self.spec.name, "formula": self.formula.source}
        self.allotment = account.allotment_name if account else ""
        self._reservation = account.reserve(budget, terms, about) if account else None
        self.ledger = CallLedger(budget, self._reservation, terms)
        try:
            with np.errstate(all="ignore"):
                self._read()
        except BaseException:
            self.close()
            raise

    @property
    def protects(self) -> str:
        """What one of the two neighbours has in the place of another."""
        unit = self.request.made_of or self.sample.unit
        if unit is not None:
            return rows_of(unit)
        return "outcome" if self.level == "label" else "record"

    def of_bounds(self, released: Any) -> str:
        """Warn of values outside ranges, declared or found, as counted or by released means."""
        found = with_another(self.lost, self.clipped.warnings)
        outcome, estimates = self.design.formula.outcome, getattr(released, "estimates", [released])
        counted = any(clipped.OUTSIDE in charge.label for charge in self.ledger.charges)
        if counted or not {*columns_of(outcome)} <= {*self.design.declared}:
            return found
        ends = {arms_warning(source(outcome), getattr(x, "means", None)) for x in estimates}
        return with_another(found, *ends) if len(ends) == 1 else found

    def _sample(self) -> AnalysisSample:
        """Which rows count; refuses methods that do not add up rows, by public numbers."""
        request, spec = self.request, self.spec
        asked = {name: getattr(request, name) for name in _COUNTING}
        formula, read = (
            with_groups(x, request.by) for x in (parsed(request, spec, self.options), self.formula)
        )
        if spec.several:  # where an outcome is missing, the formula says
            policies = missing_policies(request, parse(request.formula))
            asked["missing"] = {k: x for k, x in policies.items() if x != "available"}
        sample = AnalysisSample.asked(formula, read.columns, **asked)
        wanted = [name for name in _COUNTING if getattr(request, name) not in (None, "error")]
        if not (sample.weighted or sample.cluster):
            return sample
        if not (spec.guarantee == "exact" and not spec.needs_strata and _adds_up(self.options)):
            if spec.needs_strata and request.weights in ("means", "round_robin"):
                raise OptionError(refusal("weights_column_weights", weights=request.weights))
            raise OptionError(
                refusal(
                    "single_records",
                    method=spec,
                    name=wanted[0],
                    others=listed(_additive(spec), 50),
                )
            )
        if self.public:
            what = f'level="{self.level}"' if self.level == "label" else 'arms="public"'
            raise OptionError(refusal("cannot_used_where", wanted=wanted[0], what=what))
        if sample.cluster is not None and (spec.conditional or spec.tabled):
            raise OptionError(refusal("cluster_average_effects"))
        if sample.observed and spec.tabled:
            raise OptionError('missing="weight" is only for average effects: write "complete"')
        return sample

    def _read(self) -> None:
        """Read and check the data, make every open choice, and divide the budget."""
        request, spec = self.request, self.spec
        self.table = self._columns(self.formula)
        self.design = self.table.design
        self.notes += _level_notes(self.design, self.formula)
        if self.design.columns.arm_count > 2:
            self.contrasts = self._contrasts()
        if self.table.on_engine:
            self._check_engine(self.table)
        if spec.needs_strata:
            self.design.strata()  # refuses covariates that are not discrete
        elif spec.uses_covariates and (spec.needs_covariates or self.formula.has_covariates):
            self.design.require_covariates()
        asked = parse(request.formula)
        self.unread = not spec.uses_covariates and asked.has_covariates
        if self.unread:
            note = _FOR_RESPONSE if self.sample.observed else _UNREAD
            self.notes.append(note.format(spec.name))
        subset = self.sample.subset
        outcomes = (asked if spec.several else self.formula).outcome_columns
        if subset is not None and set(columns_of(subset)) & set(outcomes):
            self.notes.append(_BY_OUTCOME)
        if request.by is not None:
            self.groups = self._read_groups(request.by)
        if request.at is not None:
            self.points = self._encode_points()
        counts, n = self.table.arm_counts, self.design.n
        self.options.check(n, min(counts) if "treatment" in self.public else None, len(counts))
        facts = self.facts = self._facts(asked)
        self.options = self.options.resolve(facts)
        self.spec = self.options.adapt(spec)
        self.adds_means = self._adds_means(facts)
        self.split = self._divide(facts)
        self._require_countable(n)

    def _require_countable(self, n: int) -> None:
        """Refuse a budget under which the number of records that count would be noise alone."""
        request, share = self.request, self.split.shares.get("size")
        if share is None:
            return
        mu = self.split.mu.get("size")
        sd = 1.0 / mu if mu else math.sqrt(2.0) / share.epsilon
        if n <= sd:
            raise BudgetError(
                refusal("uncountable", epsilon=float(request.budget.epsilon), n=n, sd=sd)
            )

    def _facts(self, asked: Formula) -> PublicInfo:
        """What is public before anything is released."""
        design, more = self.design, dict[str, Any]()
        if self.spec.several:
            design.check_widths()
            from dpeffects.estimators.margins import columns_missing

            own = columns_missing(design, asked)
            names = (self.formula.treatment_name, *map(str, (design.columns.arms or ())[1:]))
            more = {"outcomes": len(own), "missing": own, "treatment": names}
        return PublicInfo(
            n=design.n,
            width=design.width,
            budget=self.request.budget,
            level=self.level,
            points=0 if self.points is None else len(self.points),
            values=design.values,
            arms=design.columns.arm_count,
            tops=design.tops,
            indicator=not design.missing and design.indicator,
            groups=() if self.groups is None else self.groups.design.strata().sizes,
            encoded=design.encoding.columns,
            grouped=self.sample.grouped,
            means=self.request.means,
            **more,
        )

    def _adds_means(self, facts: PublicInfo) -> bool:
        """Whether a level is released beside what the method releases; refuses where it cannot."""
        spec = self.spec
        if not self.request.means or self.options.has_means(facts):
            return False
        if spec.guarantee != "exact" or spec.conditional or not spec.uses_outcome:
            raise OptionError(refusal("no_means", method=spec.name))
        if facts.arms > 2:
            raise OptionError(refusal("no_arm_means", method=spec.name))
        return True

    def _contrasts(self) -> Contrasts:
        """Pairs of more than two arms that are compared; refuses what compares two."""
        spec, how, columns = self.spec, self.request.contrasts, self.design.columns
        estimand = self.request.estimand
        if spec.fit_arms is None or how is None or estimand != "ATE":
            able = next(s.name for s in registry().values() if s.fit_arms)
            what = spec.name if spec.fit_arms is None else f"the {estimand}" if how else "this call"
            average = how and spec.name in registry() and estimand == "ATE"
            who = "write" if average else "use dp_ate with"
            more = "" if spec.tabled else f'{who} method="{able}", or '
            if how is None and spec.fit_arms and self.request.subset is not None:
                more = "leave out by, or "
            raise OptionError(refusal("two_arms", what=what, columns=columns, more=more))
        if len(set(map(str, columns.arms or ()))) < columns.arm_count:
            raise BoundsError(refusal("bounds_two_levels", treatment=columns.treatment))
        return CONTRASTS[how](columns.arm_count)

    def _columns(self, formula: Formula) -> PrivateTable:
        request, groups = self.request, "subgroups" if self.spec.several else "by"
        return read(
            request.data,
            formula,
            request.bounds,
            self.public,
            sample=self.sample,
            arguments={groups: request.by, **request.options},
        )

    def _check_engine(self, table: PrivateTable) -> None:
        """Refuse what needs all rows at once, where they are on an engine."""
        spec, n, advice = self.spec, table.design.n, "Collect the frame first, or use"
        arms, contrasts = table.design.columns.arm_count, len(self.contrasts)
        why = self.options.needs_memory()
        size, what = self.options.memory_per_row(arms, contrasts, self.level)
        if spec.needs_strata and table.design.strata().count > MOST_STRATA:
            why = f"more than {MOST_STRATA} strata are declared"
        needed, there = size * n / 2**30, memory() / 2**30
        if needed > there:
            why = f"{what}, take about {needed:.3g} GiB for {n} records, and this machine has "
            why, advice = f"{why}{there:.3g}", "Use"
        if why:
            kin = (conditional_methods() if spec.conditional else registry()).values()
            others = [s.name for s in kin if s.guarantee == "exact" and _adds_up(s.options())]
            facts = {"why": why, "advice": advice, "others": listed(others, 50)}
            raise OptionError(refusal("lazy_frame", method=spec, **facts))
        if size:
            self.notes.append(f"Collected from the engine, in its order: {what}.")

    def _read_groups(self, by: str) -> PrivateTable:
        """Read the columns that make groups."""
        groups = self._columns(with_groups(replace(self.formula, terms=(), intercept=True), by))
        self.table.require_same_kinds(groups)
        count = groups.design.strata().count
        if count > _MOST_GROUPS:
            raise OptionError(refusal("makes_groups_most", count=count, most=_MOST_GROUPS))
        return groups

    def _encode_points(self) -> FloatArray:
        """Encode the points to predict at, and note what was clipped."""
        design = self.design
        if design.missing:
            missing = ", ".join(design.missing)
            raise OptionError(f'release="points" needs declared bounds for {missing}')
        points, clipped = queries(self.request.at, design.formula, design.bounds, design.encoding)
        if not 1 <= len(points) <= _MOST_POINTS:
            raise OptionError(refusal("too_many_points", points=len(points), most=_MOST_POINTS))
        for name, count in clipped.items():
            values = f"{count} value{'s' if count > 1 else ''} of {name}"
            self.notes.append(f"{values} in `at` outside the declared range clipped to it.")
        return points

    def _divide(self, facts: PublicInfo) -> Split:
        """Divide the budget; raises where public numbers say that it does not suffice."""
        request, n, missing = self.request, self.design.n, self.design.missing
        proportions = dict(self.spec.budget_split(self.level, self.options))
        if not request.variance:
            dropped = self.spec.variance_shares
            proportions = {k: x for k, x in proportions.items() if k not in dropped}
        if missing:
            proportions["bounds"] = _BOUNDS_SHARE
        if self.adds_means:
            proportions[_levels.SHARE] = _levels.PROPORTION
        proportions |= self._counting_shares(proportions)
        if checked := len(self._to_check()):
            proportions[clipped.SHARE] = clipped.proportion(checked, bool(request.check_bounds))
        proportions = merge_split(proportions, request.budget_split)
        uses_delta = self.spec.uses_delta(self.options, facts)
        split = Split.of(request.budget, proportions, uses_delta)
        self.options.check_split(facts, split.shares)
        if checked and request.check_bounds:
            epsilon = float(split.shares[clipped.SHARE].epsilon)
            clipped.refuse_useless(checked, epsilon, n, self.sample.size_is_public)
        if missing:
            self.bins = bins_for(n, float(split.shares["bounds"].epsilon), missing)
        return split

    def _counting_shares(self, own: Mapping[str, float]) -> dict[str, float]:
        """What is released because rows do not count alike, beside the method's own shares.

        Where treated records are counted, controls are the rest of all: both need good counts.
        """
        found = {}
        if self.sample.observed:
            from dpeffects.estimators.weighting.missing_outcomes import SHARES

            found = dict(SHARES)
        if not self.sample.size_is_public:
            found["size"] = max(_SIZE_SHARE, own.get("counts", 0.0), own.get("count", 0.0))
        averaged = self.spec.uses_outcome and not (self.spec.conditional or self.spec.tabled)
        grouped = self.sample.grouped and averaged
        if grouped and self.request.variance:
            found[_clusters.SHARE] = _clusters.PROPORTIONS[self.sample.cluster is not None]
        return found

    def fit(self, noise: NoiseSource | None = None) -> Any:
        """Let the method release and estimate; an audit does so many times, with its own noise."""
        if noise is not None:
            self.noise, self.ledger = noise, CallLedger(self.request.budget)
        releaser = self.releaser = Releaser(self.split, self.ledger, self.noise)
        # Whatever the user has set: where numbers overflow depends on rows, and must not raise.
        with np.errstate(all="ignore"):
            missing = self.table.design.missing
            if missing or self._rows is None:
                n = self.design.n if self.sample.size_is_public else None
                columns = {x: self.table.column(x) for x in missing}
                found, self.lost = find_bounds(columns, releaser, n, self.bins)
                self.design = self.table.design.with_bounds(found)
                self._rows = replace(self.table, design=self.design).encode(self.groups)
            curator = self._counted(Curator(self._rows, releaser, self.public))
            if self.request.check_bounds is not False:
                total = self.asked_size or curator.n
                self.clipped = self._check_bounds(releaser, total)
            target = self.points if self.spec.conditional else self.request.estimand
            released: Any
            if self.contrasts and self.spec.fit_arms:
                released = self.spec.fit_arms(curator, self.options, target, self.contrasts)
            else:
                released = self.spec.fit(curator, self.options, target)
            if self.effective is not None and hasattr(released, "with_weights"):
                released = released.with_weights(curator.n / max(self.effective, 1.0))
            if self.adds_means:
                released = _levels.with_released_means(curator, released, self.request.estimand)
            if self.response is not None:
                released = self.response(released, curator.n)
            if curator.has(_clusters.SHARE):
                groups = self.sample.cluster is not None, self._cluster_count()
                if isinstance(released, Estimate):
                    released = _clusters.with_group_variance(curator, released, *groups)
                elif self.contrasts:
                    released = _clusters.with_group_variances(curator, released, *groups)
            return released

    def _to_check(self, public: bool = False) -> tuple[str, ...]:
        """Columns with declared ranges that `check_bounds` looks at: private ones, or public."""
        design, parts, asked = self.table.design, self.public, self.request.check_bounds
        if asked is False or (asked is None and not self._affords_a_check(public)):
            return ()
        known = dict.fromkeys(design.formula.outcome_columns, "outcome" in parts)
        known |= dict.fromkeys(design.formula.covariate_columns, "covariates" in parts)
        return tuple(n for n in design.declared if known[n] is public)

    def _affords_a_check(self, public: bool) -> bool:
        """Whether a check that nobody asked for is cheap by public numbers.

        It says nothing of a site that answers by itself: its records were made to fit.
        """
        noise = 1.0 if self.sample.size_is_public else 2.0
        cheap = clipped.affordable(self.design.n, self.request.budget.epsilon / noise)
        asked = getattr(self.request.data, "interactive", True) is not False
        return asked and self.spec.guarantee != "none" and (public or cheap)

    def _check_bounds(self, releaser: Releaser, n: int) -> Clipped:
        """Release how many values lay outside the declared ranges; public ones cost nothing."""
        found, public_size = Clipped(), self.sample.size_is_public
        for public in (False, True):
            if names := self._to_check(public):
                intervals = {name: self.design.bounds.interval(name) for name in names}
                part = frozenset({"covariates"}) if public else frozenset()
                curator = Curator(self.table.column(*names), releaser, part)
                asked = bool(self.request.check_bounds)
                found |= release_clipped(curator, intervals, n, public_size, asked)
        return found

    def _counted(self, curator: Curator) -> Curator:
        """The curator of the rows that count, and of how many these are."""
        if self.sample.observed:
            known, part = replace(self.sample, observed=()).size_is_public, 1.0
            if not known:
                part = 0.5
                release_size(curator, "observed", part)
            self.asked_size = curator.n
            from dpeffects.estimators.weighting.missing_outcomes import respond

            flexible = getattr(self.options, "flexible", None)
            curator, self.response = respond(curator, chosen(self.facts, flexible), part)
        if not self.sample.size_is_public:
            part = 0.75 if self.sample.unequal else 1.0
            most, size = curator.n, release_size(curator, "size", part)
            self.size = min(max(float(size.value[0]), 0.0), most)
            if self.sample.unequal:
                self.effective = _clusters.effective_size(curator, self.size, "size", 1.0 - part)
            if self.size < _LEAST_RECORDS + 2.0 * size.sd:
                raise EstimationError(refusal("too_small_sample", size=self.size, sd=size.sd))
        return curator

    def _cluster_count(self) -> int | None:
        """How many clusters are declared, by number or by their levels."""
        request, name = self.request, self.sample.cluster or ""
        own = getattr(request.data, "bounds", None)  # of declare(...)
        levels = request.bounds.get(name) if isinstance(request.bounds, Mapping) else None
        if levels is None and isinstance(own, Bounds) and name in own and own.is_levels(name):
            levels = list(own[name])
        if request.clusters is not None or not isinstance(levels, list):
            return request.clusters
        return len(levels) if len(levels) >= 2 else None

    def result(self) -> Any:
        """Release, settle the reservation, and say what was promised and paid."""
        try:
            released = self.fit()
        finally:
            self.close()
        if isinstance(released, Estimate | Effects):
            self.stood_in = released.details.get(STOOD_IN, "")
        clusters = str(getattr(released, "details", {}).get("clusters", ""))
        sample = self.table.sample.described(self.size, self.effective, clusters)
        about = facts_about(self) | {"sample": sample}
        notes = (*self.notes, *_bounds_notes(self.design), *self.clipped.notes)
        of_bounds = self.of_bounds(released)
        if hasattr(released, "with_warnings"):
            released = released.with_warnings(of_bounds)
        else:
            released = replace(released, warnings=with_another(released.warnings, of_bounds))
        several = "ArmEffects" if self.contrasts else "CateEffects"
        kinds = {"Estimate": "Result", "EffectFunction": "CateFunction", "Effects": several}
        if (kind := kinds.get(type(released).__name__)) is not None:  # only that one is loaded
            return getattr(results, kind)._made(released, self, about | {"notes": notes})
        return released.result(self, about, notes)

    def completed(self, released: Estimate) -> Estimate:
        """An estimate with what the request and the declared bounds say about it."""
        changes: dict[str, Any] = {}
        if self.effective is not None:  # what is called records by arm are sums of weights
            changes["details"] = {k: x for k, x in released.details.items() if "records" not in k}
        if not self.request.variance and not isinstance(released.sampling, Unavailable):
            none = Unavailable("variance=False was asked for")  # it may come at no price
            means = released.means and replace(released.means, sampling=none)
            changes |= {"sampling": none, "means": means}
        if released.possible is None:
            lower, upper = self.design.recipe.outcome_range
            changes["possible"] = (lower - upper, upper - lower)
        if self.unread and not released.identification:
            changes |= {"identification": "unadjusted", "warnings": self.of_bounds(released)}
        return replace(released, **changes)

    def close(self) -> None:
        """End the reservation (see `Account.settle`); failing that, say what is known of it."""
        try:
            if self._reservation is not None:
                self._reservation.settle()
        except LedgerError as failure:
            kept = "while its end is not in the ledger, the rest of its budget stays reserved"
            warnings.warn(f"{failure}; {kept}", stacklevel=3)


def _additive(like: MethodSpec) -> list[str]:
    """Methods that add up rows, for the same kind of effect."""
    kin = (conditional_methods() if like.conditional else registry()).values()
    exact = (s for s in kin if s.guarantee == "exact" and not s.needs_strata)
    return [s.name for s in exact if _adds_up(s.options())]


def _adds_up(options: Options) -> bool:
    """Whether a method never has more than a block of rows in memory."""
    return not options.needs_memory() and not options.memory_per_row(2, 1, "sample")[0]


def _level_notes(design: Design, asked: Formula) -> Iterator[str]:
    """Say what 0 and 1 stand for, where an outcome or a treatment has levels."""
    outcome, name = design.formula.outcome, asked.treatment_name
    if isinstance(outcome, Ordered) and not isinstance(asked.outcome, Ordered):
        zero, one = map(shown_level, design.outcome_levels)
        yield f"{outcome.column}{LEVEL_OF_1}{one}, and 0 where it is {zero}."
    levels = tuple(design.columns.arms or ())
    if len(levels) == 2 and levels != (0, 1):
        zero, one = map(shown_level, levels)
        yield f"{TREATED}{name} = {one}, control records {name} = {zero}."


def facts_about(estimation: Estimation) -> dict[str, Any]:
    """The fields that all results have."""
    request, spec, design = estimation.request, estimation.spec, estimation.design
    formula, by, asked = design.formula, estimation.stood_in, parse(request.formula)
    own = asked.treatment_name == formula.treatment_name  # and not an instrument in its place
    spec = (find(by) if by else None) or spec
    return {
        "estimand": request.estimand,
        "method": estimation.spec.name,
        "method_title": spec.title,
        "formula": formula.source,
        "outcome": source(formula.outcome) if spec.uses_outcome else "",
        "treatment": asked.treatment_name,
        "arms": tuple(map(str, design.columns.arms or ())) if own else (),
        "n": design.n,
        "guarantee": _guarantee(estimation, design.bounds),
        "charges": estimation.ledger.charges,
        "epsilon_requested": request.budget.epsilon,
        "level": estimation.level,
        "bounds": _bounds_shown(design, estimation.formula),
        "noise_source": _NOISE_OF_OTHERS.get(spec.guarantee, estimation.noise.description),
        "options": estimation.options.shown(),
        "citation": spec.citation,
        "allotment": estimation.allotment,
    }


def _guarantee(estimation: Estimation, bounds: Bounds) -> Guarantee:
    kind = estimation.spec.guarantee
    if kind == "none":
        return Guarantee(math.inf, unit="nothing", public=(), kind=kind)
    from_data = "data" in map(bounds.source, bounds)
    epsilon, delta = estimation.releaser.promised()
    # shares are rounded down, by less than anybody should read
    budget = estimation.request.budget
    asked = budget.epsilon
    if estimation.spec.may_stop:
        epsilon, delta = as_written(asked), as_written(budget.delta)
    return Guarantee(
        epsilon=asked if float(epsilon) > asked * (1 - 1e-9) else float(epsilon),
        delta=float(delta),
        unit=estimation.protects,
        public=("n", *sorted(estimation.public)),
        kind=kind,
        void=(*estimation.noise.void, *(_FROM_DATA if from_data else ())),
    )


def _bounds_shown(design: Design, asked: Formula) -> tuple[tuple[str, str, str], ...]:
    """Name, bound and source of each column; a transformed outcome as it is analysed."""
    formula, bounds = design.formula, design.bounds
    others = [n for n in formula.columns if n not in formula.outcome_columns]
    rows = _column_bounds(bounds, others)
    if not formula.outcome_columns:
        return tuple(rows)
    if isinstance(asked.outcome, Survival | Pair | Ordered):
        return (*_column_bounds(bounds, formula.outcome_columns), *rows)
    sources = [bounds.source(n) for n in formula.outcome_columns if n in bounds]
    of_outcome = max(sources, key=SOURCES.index, default="declared")
    lower, upper = design.recipe.outcome_range
    return ((source(formula.outcome), f"[{lower:.6g}, {upper:.6g}]", of_outcome), *rows)


def _column_bounds(bounds: Bounds, names: Sequence[str]) -> list[tuple[str, str, str]]:
    return [(name, bounds.describe(name), bounds.source(name)) for name in names if name in bounds]


def _bounds_notes(design: Design) -> tuple[str, ...]:
    """Say what a range of the outcome does that was found privately, or that may be two values."""
    bounds, outcome = design.bounds, design.formula.outcome
    name = outcome.name if isinstance(outcome, Column) and not design.values[-1] else ""
    if bounds.get(name) == (0.0, 1.0) and bounds.source(name) == "declared":
        return (said("flow")["risks"].format(printed(name)),)
    found = [name for name in design.formula.outcome_columns if name in design.bounds]
    if "private" not in map(design.bounds.source, found):
        return ()
    return (said("flow")["clipped"],)


def merge_split(defaults: Mapping[str, float], given: Mapping[str, Any] | None) -> dict[str, float]:
    """Check user-given proportions against the names a method has, and fill in the rest.

    Examples
    --------
    >>> merge_split({"estimate": 0.8, "variance": 0.2}, {"variance": 0.1})
    {'estimate': 0.8, 'variance': 0.1}
    """
    merged = dict(defaults)
    if given is not None and not isinstance(given, Mapping):
        raise OptionError(refusal("budget_split_map", got=quoted(given)))
    for name, value in (given or {}).items():
        if name not in defaults:
            hint = did_you_mean(name, defaults)
            raise OptionError(
                refusal("budget_split_no", name=name, known=listed(defaults, 20), hint=hint)
            )
        ok = isinstance(value, Real) and not isinstance(value, bool)
        if not ok or not math.isfinite(value) or value <= 0:
            raise OptionError(refusal("budget_split_positive", name=name, got=quoted(value)))
        merged[name] = float(value)
    return merged
