"""Effects in several subsets out of one budget: all checks come first, then all releases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

from dpeffects.design.frames import require_columns, unpack
from dpeffects.design.table_reader import strata_of
from dpeffects.errors import EstimationError, OptionError, refusal
from dpeffects.estimators.spec import STOOD_IN
from dpeffects.flow import Estimation, facts_about
from dpeffects.formula import parse
from dpeffects.formula.condition import by_level, exclude, read_condition
from dpeffects.formula.discrete import joined
from dpeffects.formula.expression import Number, columns, render, source
from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.privacy.budget import Budget, round_down
from dpeffects.privacy.charges import Charge
from dpeffects.request import Request, account_of
from dpeffects.results import wording
from dpeffects.results.several import SubsetEffects
from dpeffects.seeded import noise_source

By = str | Sequence[str] | Mapping[str, str]
MOST_SUBSETS = 50


def subset_effects(request: Request, by: By) -> SubsetEffects:
    """Estimate an effect in each of several subsets.

    The budget is divided among them. Of three or more, where no record can be in two of them, each
    has half of it (claim 31): by their conditions, and because a record counts in none but the
    first that it is in. The rows of a unit may be in all of them.
    """
    from dpeffects.ledgers.memory import OneCall  # ledgers are loaded by calls that have one

    request = replace(request.written_out(), contrasts=None)
    subsets, groups = _named(by, request)
    conditions = [read_condition(text) for text in subsets.values()]
    there = unpack(request.data, None)[0].collect_schema().names()
    for condition in conditions:
        require_columns(columns(condition), there, "by")
    disjoint = all(exclude(one, other) for one, other in combinations(conditions, 2))
    cheap = disjoint and request.unit is None and len(subsets) > 2
    parts = 2 if cheap else len(subsets)
    call = OneCall(account_of(request.ledger, request.dataset), request.budget, cheap)
    each = replace(
        request,
        budget=Budget(*(round_down(x / parts) for x in request.budget.exact)),
        ledger=call,
        dataset=None,
    )
    if request.seed is not None:  # one generator for all, or all would have the same noise
        each = replace(each, seed=noise_source(request.seed))  # type: ignore[arg-type]
    made: dict[str, Estimation] = {}
    texts = list(subsets.values())
    try:
        for k, name in enumerate(subsets):
            inside = _all((request.subset, texts[k]), texts[:k] if cheap else [])
            made[name] = Estimation(replace(each, subset=inside))
        results = {name: _estimated(estimation) for name, estimation in made.items()}
    finally:
        call.end()
    found = _result(request, subsets, made, results, call.price, disjoint)
    if not groups:
        return found
    every = "is_na" in " ".join(subsets.values())
    notes = () if every else ("Records without a value of what makes the groups are in none.",)
    details = {"groups": groups} | dict(found.details)
    return replace(found, details=details, notes=(*found.notes, *notes))


def _named(by: By, request: Request) -> tuple[dict[str, str], str]:
    """Conditions by name, and what makes the groups if they are those of discrete terms.

    A name or a term makes a group of each of its levels, and several are crossed. Conditions are a
    list, or stand in a mapping, where a column alone is a condition as in ``subset``.
    """
    if isinstance(by, list | tuple) and by and not any(map(_is_terms, by)):
        found = {str(text): text for text in by}
        if len(found) < len(by):
            raise OptionError("by contains the same condition twice")
    elif isinstance(by, Mapping):
        found = {str(name): text for name, text in by.items()}
    else:
        try:
            terms = joined(by, "by")
        except OptionError as error:
            raise OptionError(refusal("write_conditions_list", error=error)) from None
        return _groups(terms, request)
    if not 1 <= len(found) <= MOST_SUBSETS:
        raise OptionError(f"by has {len(found)} subsets; it must have from 1 to {MOST_SUBSETS}")
    return found, ""


def _is_terms(text: str) -> bool:
    """Whether a text is one that a formula can have after the bar, as no condition is."""
    try:
        joined(text, "by")
    except OptionError:
        return False
    return True


def _groups(by: str, request: Request) -> tuple[dict[str, str], str]:
    """A condition for each combination of levels, and what makes the groups."""
    own = parse(request.formula)
    formula = parse(f"{source(own.outcome)} ~ {source(own.treatment)} | {by}")
    strata = strata_of(request.data, replace(formula, outcome=Number(0.0)), request.bounds)
    if strata.count > MOST_SUBSETS:
        raise OptionError(refusal("makes_groups_most", count=strata.count, most=MOST_SUBSETS))
    choices = product(*(by_level(factor) for factor in strata.factors))
    texts = (" & ".join(render(x)[0] for x in choice) for choice in choices)
    return dict(zip(strata.labels(), texts, strict=True)), strata.words


def _all(inside: Any, outside: Sequence[str]) -> str:
    texts = [text for text in inside if text is not None]
    texts = texts if len(texts) == 1 else [f"({text})" for text in texts]
    return " & ".join((*texts, *(f"~({text})" for text in outside)))


def _estimated(estimation: Estimation) -> tuple[Estimate, tuple[str, ...]]:
    """Estimate and notes of a subset; one with too few records does not take the others along."""
    try:
        found = estimation.result()
    except EstimationError as error:
        return Estimate(math.nan, Unavailable(str(error))), ()
    return replace(found.released, details=dict(found.details)), found.notes


def _result(
    request: Request,
    subsets: Mapping[str, str],
    made: Mapping[str, Estimation],
    results: Mapping[str, tuple[Estimate, tuple[str, ...]]],
    price: Charge | None,
    disjoint: bool,
) -> SubsetEffects:
    first = max(made.values(), key=lambda x: x.stood_in)
    fields, budget = facts_about(first), request.budget
    titles = dict.fromkeys(facts_about(x)["method_title"] for x in made.values())
    sizes = {name: estimation.size for name, estimation in made.items()}
    sample = first.table.sample
    whole = replace(sample, subset=read_condition(request.subset) if request.subset else None)
    told = {name: notes for name, (_, notes) in results.items() if notes}
    delta = budget.delta if any(x.ledger.spent[1] for x in made.values()) else 0.0
    return SubsetEffects(
        **fields
        | {
            "method_title": "; ".join(titles),
            "guarantee": replace(fields["guarantee"], epsilon=budget.epsilon, delta=delta),
            "epsilon_requested": budget.epsilon,
            "charges": tuple(_spends(made, price)),
            "sample": whole.described(None),
        },
        labels=tuple(subsets),
        effects=tuple(effect for effect, _ in results.values()),
        subsets=tuple(subsets.values()),
        disjoint=disjoint,
        notes=tuple(wording.with_whose([*told], [*told.values()], "{1}: {0}", [*told])),
        details={
            f"records in {name} (noisy)": f"{size:.0f}"
            for name, size in sizes.items()
            if size is not None
        }
        | ({STOOD_IN: first.stood_in} if first.stood_in else {}),
    )


def _spends(made: Mapping[str, Estimation], price: Charge | None) -> list[Charge]:
    """All charges by subset; where one charge paid for all, they are covered by it."""
    found = [price] if price else []
    for name, estimation in made.items():
        for charge in estimation.ledger.charges:
            label = f"{name}: {charge.label}"
            if price:
                label = f"{label} ({charge.epsilon:.3g} covered by claim 31)"
                charge = replace(charge, epsilon=0.0, delta=0.0, alone=False)
            found.append(replace(charge, label=label))
    return found
