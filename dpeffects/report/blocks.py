"""Blocks that the summaries of several kinds of results have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from dpeffects.errors import FormulaError
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators import find, table_methods
from dpeffects.estimators.spec import NO_CONFOUNDER, STOOD_IN
from dpeffects.formula import parse
from dpeffects.formula.expression import source as source_of
from dpeffects.guarantee import KINDS, column_of, counted
from dpeffects.inference.intervals import Interval
from dpeffects.report.layout import NO_BREAK
from dpeffects.results.numbers import joined, number, numbers, text_of
from dpeffects.results.record import Bound, Record
from dpeffects.results.words import asked_for
from dpeffects.summary import Block, Pairs, Table, noted, starred

_PRICE = re.compile(r"\([^ ,()]+, [^ ,()]+\)-")
"""(epsilon, delta), which stays on one line."""
LEVELS = {
    "sample": "sample level (records are private)",
    "label": "label level (only outcomes are private)",
    "none": "no level of privacy (nothing is protected)",
}
RANDOMISED = "treatment was randomised, as the call said: nothing is allowed for confounding"
_MOST_SPENDS = 40
"""Charges in a table."""
_MOST_NAMED = 9
"""Outcomes and treatment whose bounds are named."""
SOURCES = {
    "declared": "declared",
    "dtype": "from the column's type",
    "public": "public",
    "private": "found privately",
    "data": "READ FROM THE DATA (not private)",
}


def level_words(result: Record) -> str:
    """The level in words, and who is private at it."""
    if column_of(result.guarantee.unit) and result.level == "sample":
        return f"sample level ({result.guarantee.unit} are private)"
    return LEVELS.get(result.level, result.level)


def size_words(result: Record, always: bool = False) -> str:
    """n, and what it counts: records are named where that is ``always`` wanted."""
    if column_of(result.guarantee.unit):
        return f"{result.n} {counted(result.guarantee.unit)}, each with all of its rows"
    return f"{result.n} records" if always else f"{result.n}"


def alert(result: Record) -> str:
    """What must not be overlooked: a guarantee that does not hold, and cautions."""
    guarantee = result.guarantee
    void = f"NOT PRIVATE: {', '.join(guarantee.void)}" if guarantee.void else ""
    return starred((void, KINDS[guarantee.kind].words.upper(), result.caution))


def closing(result: Record, notes: Iterable[str]) -> tuple[Block, ...]:
    """Return what the summary of a record ends with: notes, how it was released, what to cite."""
    details = tuple((str(name), text_of(value, 4)) for name, value in result.details.items())
    settings = _settings(result)
    blocks = (
        noted((*_of_the_effect(result), *notes)),
        Pairs(settings, "How it was released") if settings else None,
        budget(result) if result.spends else None,
        Pairs(details, "Details") if details else None,
        Pairs((("Cite", result.citation),)) if result.citation else None,
    )
    return tuple(block for block in blocks if block)


def _of_the_effect(result: Any) -> tuple[str, ...]:
    """Say where the interval of the effect is, beside that of an association."""
    if not (result.associated and hasattr(result, "conf_int_of_effect")):
        return ()
    ends = getattr(result, "released", None) and result.conf_int_of_effect()
    told = f", {number(ends[0], 3)} to {number(ends[1], 3)}" if isinstance(ends, Interval) else ""
    return (
        "Intervals are those of the association. Interval for the effect, if confounding is as "
        f"strong as it usually is in studies, which is a guess: fit.conf_int_of_effect(){told}.",
    )


def header(result: Record) -> Pairs:
    """What was estimated, how, from what, and under which promise."""
    rows = [
        ("Formula", formula_text(result.formula)),
        ("Estimand", asked_for(result) if result._of_effects else ""),
        ("Method", f"{result.method}{_chosen(result)} at {level_words(result)}"),
        ("Assumes", assumed(result)),
        sized(result),
        ("Who counts", "; ".join(result.sample.values())),
        ("Guarantee", _PRICE.sub(lambda x: _unbroken(x[0]), result.guarantee.sentence())),
    ]
    return Pairs(tuple((name, text) for name, text in rows if text))


def _chosen(result: Record) -> str:
    chosen, by = result.options.get("chosen"), result.details.get(STOOD_IN)
    words = f", which chose {chosen}," if chosen else "," if by else ""
    return f"{words} for which {by} stood in," if by else words


def sized(result: Record) -> tuple[str, str]:
    """How many there are of what is counted."""
    return "Units" if column_of(result.guarantee.unit) else "Records", f"n = {size_words(result)}"


def _settings(result: Record) -> tuple[tuple[str, str], ...]:
    """With what options and bounds a record was released, by which noise, and who paid."""
    rows = (
        ("Options", _options(result)),
        ("Bounds", bounds_text(result)),
        ("Noise", result.noise_source),
        ("Paid by", f"allotment {result.allotment} of the ledger" if result.allotment else ""),
    )
    return tuple((name, text) for name, text in rows if text)


def formula_text(formula: str, most: int = 320) -> str:
    """Return a formula, shortened where outcomes or covariates would fill more than a few lines.

    Examples
    --------
    >>> formula_text("y ~ t | " + " + ".join(f"x{k}" for k in range(40)), 40)
    'y ~ t | x0 + ... + x39 (40 terms)'
    """
    if len(formula) <= most:
        return formula
    head, bar, right = formula.partition("|")
    try:
        parsed = parse(formula)
    except FormulaError:  # a result that was read may hold any text
        return formula
    terms = [":".join(map(source_of, term)) for term in parsed.terms]
    if len(parsed.outcomes) > 3 and len(head) > most // 2:
        names = _some([source_of(outcome) for outcome in parsed.outcomes], most // 2, "outcomes")
        head = f"{names} ~{head.partition('~')[2]}"
    if len(terms) < 3 or len(head) + len(bar) + len(right) <= most:
        return head + bar + right
    return f"{head}| {_some(terms, most - len(head), 'terms')}"


def _some(names: list[str], most: int, what: str) -> str:
    """The first names and the last one, in so many characters, and how many there are."""
    count = len(names)
    while sum(map(len, names)) + 3 * len(names) > most - 20 and len(names) > 2:
        names = [*names[:-2], names[-1]]
    return f"{' + '.join([*names[:-1], '...', names[-1]])} ({count} {what})"


def assumed(result: Record) -> str:
    """What has to be true for the intervals to hold; an association is no effect in any case."""
    if result.associated:
        return ""
    conditional = ESTIMANDS[result.estimand].conditional if result.estimand in ESTIMANDS else False
    by = result.details.get(STOOD_IN) or result.options.get("chosen", result.method)
    spec = find(str(by), conditional)
    table = None if spec else table_methods().get(result.method)
    if result.basis == "randomised":
        return f"{RANDOMISED}; {table.assumes}" if table and table.assumes else RANDOMISED
    if table and result.assumes:
        return result.assumes
    if table:
        first = NO_CONFOUNDER if table.uses_covariates else ""
        return "; ".join(filter(None, (first, table.assumes)))
    by_method = spec.assumes if spec else ""
    if not result.assumes:
        return by_method
    _, apart, models = by_method.partition(f"{NO_CONFOUNDER}; ")
    return f"{result.assumes}; {models}" if apart and result.basis == "adjusted" else result.assumes


def bounds_text(result: Record) -> str:
    """Outcome and treatment first, covariates counted by source, risky or found ones named."""
    bounds = [(name, _unbroken(text), source) for name, text, source in result.bounds]
    roles = dict.fromkeys([result.outcome, *result.outcome.split(", ")], "outcome")
    made_of = (name for name, *_ in bounds if re.search(rf"\b{re.escape(name)}\b", result.outcome))
    roles |= {name: name for name in made_of if name not in roles}  # Surv(time, event)
    own = set(roles) - {result.treatment}
    roles |= {result.treatment: "treatment"}
    known = [bound for role in roles for bound in bounds if bound[0] == role]
    first = [f"{roles[name]} {text} {SOURCES.get(source, source)}" for name, text, source in known]
    if len(known) > _MOST_NAMED:
        treatment = [text for (name, *_), text in zip(known, first, strict=True) if name not in own]
        first = [*_by_source([bound for bound in known if bound[0] in own], "outcome"), *treatment]
    rest = [bound for bound in bounds if bound[0] not in roles]
    return "; ".join([*first, *_by_source(rest, "covariate")])


def _by_source(bounds: list[Bound], what: str) -> Iterator[str]:
    """Columns counted by the source of their bounds; risky or found ones are named."""
    for source in dict.fromkeys(source for _, _, source in bounds):
        group = [(name, text) for name, text, where in bounds if where == source]
        line = f"{len(group)} {what}{'s' if len(group) > 1 else ''} {SOURCES.get(source, source)}"
        if source in ("private", "data"):
            line += ": " + ", ".join(_unbroken(f"{name} {text}") for name, text in group)
        yield line


def _unbroken(text: str) -> str:
    """Keep a range on one line; long lists of levels may break."""
    return text.replace(" ", NO_BREAK) if len(text) <= 40 else text


def budget(result: Record) -> Table:
    """One row a release with its charge, and their sum; what other charges cover says so."""
    spends, asked = result.spends, result.epsilon_asked
    columns = ["release", "mechanism", "sensitivity", "scale", "epsilon", "delta", "claim"]
    epsilons = numbers([*(s.epsilon for s in spends), sum(s.epsilon for s in spends)], 4)
    deltas = numbers([*(s.delta for s in spends), sum(s.delta for s in spends)], 3)
    rows = []
    for spend, epsilon, delta in zip(spends, epsilons[:-1], deltas[:-1], strict=True):
        if spend.covered:
            epsilon, delta = "covered", "covered"
        label = spend.label if spend.share in spend.label else f"{spend.share}: {spend.label}"
        sizes = (joined(spend.sensitivity), joined(spend.scale))
        rows.append([label, spend.mechanism, *sizes, epsilon, delta, str(spend.claim)])
    if left := len(rows[_MOST_SPENDS:]):
        rows[_MOST_SPENDS:] = [[f"and {left} more, see spends_frame()", *[""] * 6]]
    against = "" if asked is None else f"of {number(asked)} asked"
    rows.append(["total", against, "", "", epsilons[-1], deltas[-1], ""])
    if not any(spend.delta for spend in spends):
        for row in (columns, *rows):
            del row[5]
    align = "ll" + "r" * (len(columns) - 2)
    return Table(
        "Privacy budget (claim: number of the proof in dpeffects/privacy/PROOFS.md)",
        tuple(columns),
        tuple(map(tuple, rows)),
        align,
        total=True,
    )


def _options(result: Record) -> str:
    """Options that are set; None stands for a choice that the method makes."""
    options = {name: x for name, x in result.options.items() if x is not None}
    return ", ".join(_unbroken(f"{name} = {text_of(x)}") for name, x in options.items())
