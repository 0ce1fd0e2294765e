"""Attack a mechanism: neighbours -> runs -> an event -> a lower bound on epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpeffects.auditing.audit_result import AuditResult, PairOutcome
from dpeffects.auditing.chunks import gather, misfit
from dpeffects.auditing.events import Runs, choose, foresee, lower_bound
from dpeffects.auditing.mechanisms import Mechanism, mechanism
from dpeffects.auditing.pairs import BOUNDS, Neighbours, neighbours, own_pairs
from dpeffects.errors import OptionError, checked_call
from dpeffects.estimators.option_checks import check_choice, check_whole, is_number
from dpeffects.privacy.budget import Budget
from dpeffects.progress import bar

_PILOT = 0.2
"""Part of the runs that look for the worst pair."""
_CHOOSE = 0.25
"""Part of the other runs that chooses the event; the rest counts it."""


@checked_call
def audit(
    method: str | Callable[[Any, Any], Any],
    *,
    epsilon: float,
    delta: float = 0.0,
    level: str | None = None,
    runs: int = 20_000,
    conf_level: float = 0.95,
    pairs: Sequence[tuple[Any, Any]] | None = None,
    library: bool = True,
    formula: str | None = None,
    bounds: Mapping[str, Any] | str | None = None,
    estimand: str = "ATE",
    variance: bool = True,
    shares: Mapping[str, float] | None = None,
    watch: str = "releases",
    noise: str = "seeded",
    workers: int = 1,
    seed: int | None = None,
    **options: Any,
) -> AuditResult:
    """Attack a method: run it many times on neighbours, and bound its true epsilon from below.

    The attacker knows both datasets and sees every release and everything in the result. A method
    with the guarantee it claims keeps the bound at most at epsilon; one that does not is found out
    where a pair of neighbours shows it.

    Parameters
    ----------
    method
        One of :func:`methods`, "r_learner" or "dr_learner" (conditional effects;
        "sample_aggregate" with ``estimand="CATE"``), or a function
        ``run(data, seed)`` that passes ``seed``, a source of noise that records, on to calls of
        this package and returns what it shows; that takes ``pairs``.
    epsilon, delta, level, estimand, variance, shares, **options
        As in :func:`dp_ate` or :func:`dp_cate`: what is promised, and how it is run. With
        ``unit="patient_id"`` neighbours differ in all rows of one patient; also ``max_rows``,
        ``cluster``, ``missing``, ``weights`` and ``subset`` have pairs of their own.
    runs
        How many runs on all pairs together. 20,000 can show about 0.93 of an epsilon of 1.
    conf_level
        Of the lower bound.
    pairs
        Neighbours of your own, ``[(frame, frame), ...]``, in the same order of rows.
    library
        Whether the library's neighbours are used too.
    formula, bounds
        For your own pairs. ``bounds="from_data"`` applies to the library too, and is found out.
    watch
        "releases" (the attacker sees all of them; every draw of a function of yours counts as
        one) or "returned" (only what a run returns).
    noise
        "seeded" (fast, from a generator of the audit's own) or "secure" (the package's own noise).
    workers
        Number of processes; more than one needs joblib (``pip install "dpeffects[study]"``).
    seed
        Makes the audit reproducible, whatever ``workers`` is.

    Returns
    -------
    AuditResult

    Examples
    --------
    >>> from dpeffects.auditing import audit
    >>> found = audit("diff_in_means", epsilon=1, level="label", variance=False, runs=2000, seed=1)
    >>> found.violated, 0.6 < found.lower < 1.0
    (False, True)

    In a shell::

        dpeffects audit private_psm --level sample --epsilon 1 --workers 2
        dpeffects audit diff_in_means --epsilon 1 --format json --seed 1
        # exit code: 0 the bound is at most epsilon, 1 VIOLATED, 2 it did not run
    """
    check_whole("runs", runs, 100)
    check_whole("workers", workers, 1)
    if not is_number(conf_level) or not 0.5 <= conf_level < 1.0:
        raise OptionError(f"conf_level must be at least 0.5 and below 1, got {conf_level!r}")
    check_choice("watch", watch, ("releases", "returned"))
    check_choice("noise", noise, ("seeded", "secure"))
    audited = mechanism(method, Budget(epsilon, delta), level, estimand, variance, shares, options)
    entropy = None if noise == "secure" else _entropy(seed)
    attack = _Attack(audited, float(delta), conf_level, watch == "releases", workers, entropy)
    evidence = attack.on(_all_pairs(audited, pairs, library, formula, bounds), runs)
    return AuditResult(
        method=audited.name,
        level=audited.level,
        estimand=audited.estimand,
        epsilon=float(epsilon),
        delta=float(delta),
        guarantee=audited.guarantee,
        conf_level=conf_level,
        noise=_SECURE if entropy is None else _SEEDED.format(entropy),
        seed=entropy,
        options=dict(options),
        unit=audited.unit,
        **evidence,
    )


_SECURE = "the package's own: OpenDP discrete noise, system entropy"
_SEEDED = "a seeded generator of the audit's own (seed {}), for speed"


@dataclass(frozen=True)
class _Attack:
    """How a mechanism is attacked: what is asked of the bound, where randomness comes from."""

    mechanism: Mechanism
    delta: float
    conf_level: float
    watched: bool
    workers: int
    entropy: int | None

    def on(self, pairs: Sequence[Neighbours], runs: int) -> dict[str, Any]:
        """Find the worst pair by a few runs on each, and give it the rest."""
        outcomes = [PairOutcome(p.name, p.about, skipped=misfit(self.mechanism, p)) for p in pairs]
        usable = [k for k, outcome in enumerate(outcomes) if not outcome.skipped]
        if not usable:
            raise OptionError(f"no pair of neighbours fits: {outcomes[0].skipped}")
        few = max(4, round(_PILOT * runs / (2 * len(usable)))) if len(usable) > 1 else 0
        pilots = {
            k: self._runs(pairs[k], (k, 0), few)
            for k in bar(usable if few else [], "looking for the worst pair")
        }
        rest = max(20, runs // 2 - few * len(pilots))
        worst = max(usable, key=lambda k: self._promise(pilots[k], rest)) if few else usable[0]
        last = self._runs(pairs[worst], (worst, 1), rest, "attacking it")
        for k in usable:
            parts = [pilots[k]] if few else []
            outcomes[k] = _outcome(pairs[k], [*parts, last] if k == worst else parts)
        return {
            **self._bound(last),
            "worst": pairs[worst].name,
            "pairs": tuple(outcomes),
            "runs": sum(outcome.runs for outcome in outcomes),
        }

    def _runs(self, pair: Neighbours, place: tuple[int, int], count: int, about: str = "") -> Runs:
        seed = None if self.entropy is None else (self.entropy, *place)
        return gather(self.mechanism, pair, count, seed, self.watched, self.workers, about)

    def _promise(self, runs: Runs, size: int) -> float:
        """How much a pair promises, by its losses or else by what was shown."""
        if runs.watched:
            return foresee(runs, size, self.delta, self.conf_level)[0]
        hits = choose(runs, size, self.delta, self.conf_level).hits(runs)
        return float(lower_bound(hits, runs.sizes, self.delta, 0.5))

    def _bound(self, runs: Runs) -> dict[str, Any]:
        """One part of the runs chooses an event, the other counts it."""
        counted = runs.part(_CHOOSE, 1.0)
        size = counted.sizes[0]
        event = choose(runs.part(0.0, _CHOOSE), size, self.delta, self.conf_level)
        hits, trials = event.hits(counted), (size, size)
        lower = float(lower_bound(hits, trials, self.delta, self.conf_level))
        return {"lower": lower, "event": str(event), "hits": hits, "trials": trials}


def _all_pairs(
    audited: Mechanism, pairs: Any, library: bool, formula: str | None, bounds: Any
) -> list[Neighbours]:
    """The user's own pairs and the library's, where they fit."""
    of_library = audited.formula is not None and formula is None
    own = own_pairs(
        () if pairs is None else pairs,
        formula,
        bounds or BOUNDS if of_library else bounds,
        audited.public,
        audited.sample.get("unit"),
    )
    listed = []
    if library and audited.formula is not None:
        listed = neighbours(audited.public, audited.sample)
    if bounds == "from_data":
        listed = [replace(pair, bounds=bounds) for pair in listed]
    if not own and not listed:
        raise OptionError("there is nothing to compare: give pairs=[(data, neighbour), ...]")
    return own + listed


def _entropy(seed: int | None) -> int:
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise OptionError(f"seed must be a non-negative integer, got {seed!r}")
    return int(seed)


def _outcome(pair: Neighbours, parts: Sequence[Runs]) -> PairOutcome:
    losses = np.concatenate([[*runs.loss[0], *-runs.loss[1]] for runs in parts])
    known = bool(losses.size) and not np.isnan(losses).any()
    return PairOutcome(
        pair.name,
        pair.about,
        runs=int(losses.size),
        average_loss=float(losses.mean()) if known else math.nan,
        largest_loss=float(losses.max()) if known else math.nan,
    )
