"""Columns that bend: squares and products of the formula's columns, by a public rule.

Users write lines, and the world bends. So a method adds squares, then products, of standardised
columns while n, epsilon and delta carry them (`degree`), by declared columns alone. The formula's
own terms come first: a variable that is in several of its columns (powers, splines, interactions,
factors of more than two levels) is left as it is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import combinations

from dpeffects.estimators import constants as hand
from dpeffects.estimators.spec import PublicInfo
from dpeffects.formula.expression import columns
from dpeffects.results.wording import said

LINES, SQUARES, PRODUCTS = range(3)
"""How far columns may bend."""
ADDED = "terms added"
"""Which detail says how many squares and products are in the models."""

Bends = tuple[tuple[int, int], ...]
"""Pairs of encoded columns that are multiplied; a pair of the same is a square."""


@lru_cache(maxsize=256)
def bends(facts: PublicInfo, degree: int) -> Bends:
    """The squares, and then the products, of a degree."""
    plain = tuple(_plain(facts))
    squares = [(j, j) for j in plain if facts.values[j] != 2] if degree >= SQUARES else []
    products = combinations(plain, 2) if degree >= PRODUCTS else ()
    return (*squares, *products)


def _plain(facts: PublicInfo) -> Iterator[int]:
    """Columns that one variable makes, which is in no other column."""
    used = Counter(
        name for x in facts.encoded for part in x.parts for name in set(columns(part.factor))
    )
    for j, column in enumerate(facts.encoded):
        if facts.values[j] == 1 or len(column.parts) != 1:
            continue
        name, *more = columns(column.parts[0].factor)
        if not more and used[name] == 1:
            yield j


def degree(facts: PublicInfo) -> int:
    """How far columns bend by the public rule: as far as records times epsilon carry them.

    Noise of each entry of a matrix of k columns grows like k, and that of a slope like k sqrt(k).
    A product counts twice, as it stands in the matrix of all products: it costs what a square costs
    and confounds less often. Where covariates are public there is no noise, and records alone have
    to carry all: those of an arm of half the usual size.
    """
    each = hand.BENT_RECORDS_WITH_DELTA if facts.budget.delta else hand.BENT_RECORDS
    able: float = hand.MOST_POOLED if facts.budget.delta else hand.MOST_COLUMNS
    most, times = (facts.n * float(facts.budget.epsilon) / each) ** (2.0 / 3.0), 2
    if facts.level == "label":
        able = most = facts.n / (2.0 * facts.arms * hand.BASIS_RECORDS)
        times = 1
    squares, both = (facts.columns + len(bends(facts, k)) for k in (SQUARES, PRODUCTS))
    if both <= able and squares + times * (both - squares) <= most:
        return PRODUCTS
    return SQUARES if squares <= min(able, most) else LINES


def chosen(facts: PublicInfo, flexible: int | None) -> Bends:
    """What is added as asked for, or by the public rule."""
    return bends(facts, degree(facts) if flexible is None else flexible)


def bent(facts: PublicInfo, degree: int) -> PublicInfo:
    """The facts of a call in which columns of a degree are added: they are numbers, not codes."""
    more = (0,) * len(bends(facts, degree))
    return replace(facts, values=(*facts.values[:-1], *more, *facts.values[-1:]))


def left_out(facts: PublicInfo, degree: int) -> str:
    """What the first lines say that the public rule leaves out.

    Steps are left out everywhere but where covariates are public (`balancing`).
    """
    if len(bends(facts, PRODUCTS)) > len(bends(facts, degree)):
        start, what = "No interactions", "products"
        if degree < SQUARES:
            start, what = "Linear terms only", "squares and products"
        why = f"sample size and privacy budget are too small for {what} of the covariates"
        return f"{start}: {why}, so that confounding by them is not adjusted for"
    if facts.level == "label" or not bends(facts, SQUARES):
        return ""
    return str(said("one_step")["form"])


def added_words(facts: PublicInfo, degree: int) -> dict[str, str]:
    """How many columns were added, where any were."""
    pairs = bends(facts, degree)
    squares = sum(one == other for one, other in pairs)
    counts = {"square": squares, "product": len(pairs) - squares}
    words = ", ".join(f"{k} {name}{'s' * (k > 1)}" for name, k in counts.items() if k)
    return {ADDED: words} if words else {}
