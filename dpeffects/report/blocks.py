"""Blocks that the summaries of several kinds of results have in common."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from dpeffects.errors import FormulaError
from dpeffects.estimands import ESTIMANDS
from dpeffects.estimators import find, table_methods
from dpeffects.estimators.default.polynomial_terms import ADDED
from dpeffects.estimators.spec import NO_CONFOUNDER, STOOD_IN, MethodSpec
from dpeffects.formula import parse
from dpeffects.formula.expression import source as source_of
from dpeffects.guarantee import KINDS, column_of, counted, protected, void_words
from dpeffects.inference.estimate import UNADJUSTED
from dpeffects.inference.intervals import Interval
from dpeffects.report.layout import NO_BREAK
from dpeffects.results.number_format import joined, number, numbers, text_of
from dpeffects.results.result_base import Bound, ResultBase
from dpeffects.results.wording import asked_for, said
from dpeffects.summary import Block, Pairs, Table, noted, starred

_PRICE = re.compile(r"\([^ ,()]+, [^ ,()]+\)-")
"""(epsilon, delta), which stays on one line."""
_SAID = said("blocks")
RANDOMISED: str = _SAID["randomised"]
_NAMED = 6
"""Covariates that are named."""
_MOST_SPENDS = 40
"""Charges in a table."""
_MOST_NAMED = 9
"""Outcomes and treatment whose bounds are named."""
SOURCES: dict[str, str] = _SAID["sources"]


def level_words(result: ResultBase) -> str:
    """The level in words, and who is private at it."""
    if column_of(result.guarantee.unit) and result.level == "sample":
        return f"sample level ({result.guarantee.unit} are protected)"
    return str(_SAID["levels"].get(result.level, result.level))


def _protects(result: ResultBase) -> str:
    """What is protected, in words."""
    guarantee = result.guarantee
    if column_of(guarantee.unit):
        return protected(guarantee.unit)
    if guarantee.unit == "record" and "treatment" in guarantee.public:
        return "the whole record except treatment, which is taken as public"
    return str(_SAID["protected"].get(result.level, ""))


def size_words(result: ResultBase, always: bool = False) -> str:
    """n, and what it counts: records are named where that is ``always`` wanted."""
    if column_of(result.guarantee.unit):
        return f"{result.n:,} {counted(result.guarantee.unit)}, each with all of its rows"
    size, some = result.sample.get("size", ""), {"subset", "missing, complete"}
    if size.startswith("about") or some & result.sample.keys():
        return f"{result.n:,} records in the table (public){', ' * bool(size)}{size}"
    return f"{result.n:,} records" if always else f"{result.n:,}"


def starred_warnings(result: ResultBase) -> str:
    """The first lines: a guarantee that does not hold, and the warnings."""
    guarantee = result.guarantee
    void = void_words(guarantee.void) if guarantee.void else ""
    return starred((void, KINDS[guarantee.kind].words.upper(), result.warnings))


def closing(result: ResultBase, notes: Iterable[str]) -> tuple[Block, ...]:
    """Return what the summary of a record ends with: notes, how it was released, what to cite."""
    details = tuple((str(name), text_of(value, 4)) for name, value in result.details.items())
    settings = _settings(result)
    blocks = (
        noted((*_of_the_effect(result), *notes)),
        Pairs(settings, "How it was released") if settings else None,
        budget(result) if result.charges else None,
        Pairs(details, "Details") if details else None,
        Pairs((("Cite", result.citation),)) if result.citation else None,
    )
    return tuple(block for block in blocks if block)


def _of_the_effect(result: Any) -> tuple[str, ...]:
    """Say where the interval of the effect is, beside that of an association."""
    if not (result.associated and hasattr(result, "effect_conf_int")):
        return ()
    ends = getattr(result, "released", None) and result.effect_conf_int()
    told = f", {number(ends[0], 3)} to {number(ends[1], 3)}" if isinstance(ends, Interval) else ""
    return (_SAID["interval"].format(told),)


def header(result: ResultBase) -> Pairs:
    """What was estimated, how, from what, and under which promise."""
    rows = [
        ("Formula", formula_text(result.formula)),
        ("Estimand", asked_for(result) if result._of_effects else ""),
        ("Method", f"{result.method_title} ({_chosen(result)})"),
        ("Adjusted for", adjusted_for(result)),
        ("Assumes", assumed(result)),
        ("Protects", _protects(result)),
        sized(result),
        ("Analysis sample", analysed(result)),
        ("Multiplicity", result.sample.get("alone", "")),
        ("Guarantee", _PRICE.sub(lambda x: _unbroken(x[0]), result.guarantee.sentence())),
    ]
    return Pairs(tuple((name, text) for name, text in rows if text))


def _chosen(result: ResultBase) -> str:
    """The name of the method, who chose it, and what was used in its place."""
    chosen, by = result.options.get("chosen"), result.details.get(STOOD_IN)
    words = f"{chosen}, chosen by {result.method}" if chosen else result.method
    return f"{by}, used in place of {words}" if by else words


def adjusted_for(result: ResultBase) -> str:
    """Name the covariates, or say that nothing is adjusted for; empty where it is no effect."""
    if not result._of_effects:
        return ""
    if result.associated:
        return "nothing: this is an association, not an effect"
    try:
        terms = [":".join(map(source_of, term)) for term in parse(result.formula).terms]
    except FormulaError:  # a result that was read may hold any text
        return ""
    if not terms and result.assumes:  # such as parallel trends
        return ""
    if terms and result.options.get("adjust") is False:
        return "nothing (unadjusted; adjust=True would adjust for the covariates)"
    if not terms:
        return "nothing (no covariates in the formula)"
    spec, table = _methods(result)
    if UNADJUSTED in result.warnings or not getattr(spec or table, "uses_covariates", True):
        return "nothing (unadjusted)"
    more = [f"{len(terms) - _NAMED} more"] if len(terms) > _NAMED + 1 else []
    *first, last = [*terms[: _NAMED if more else len(terms)], *more]
    names = f"{', '.join(first)} and {last}" if first else last
    added = result.details.get(ADDED)
    return f"{names} (linear terms, {added})" if added else names


def analysed(result: ResultBase) -> str:
    """The analysis sample; its size only where `size_words` does not have it."""
    shown, left = size_words(result), {**result.sample, "alone": ""}
    return "; ".join(x for name, x in left.items() if x and (name != "size" or x not in shown))


def sized(result: ResultBase) -> tuple[str, str]:
    """How many there are of what is counted."""
    return "Units" if column_of(result.guarantee.unit) else "Records", size_words(result)


def _settings(result: ResultBase) -> tuple[tuple[str, str], ...]:
    """With what options and bounds a record was released, by which noise, and who paid."""
    rows = (
        ("Options", _options(result)),
        ("Bounds", bounds_text(result)),
        ("Range check", "" if result._range_checked else _SAID["unchecked"]),
        ("Noise", result.noise_source),
        ("Charged to", f"allotment {result.allotment} of the ledger" if result.allotment else ""),
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


def assumed(result: ResultBase) -> str:
    """What has to be true for the intervals to hold; an association is no effect in any case."""
    if result.associated:
        return ""
    # in studies noise hides effects on 1.4 to 4 standard deviations of a count: 29 to 83 % cover
    noise = [max(x.scale) for x in result.charges if x.label.endswith("residuals")]
    noise *= result.identification != "randomised" or result.level != "sample"
    few = _SAID["few"].format(round(4.0 * 2.0**0.5 * min(noise))) if noise else ""
    return "; ".join(filter(None, (_assumed(result), few, _SAID["missing"].get(result._missing))))


def _methods(result: ResultBase) -> tuple[MethodSpec | None, MethodSpec | None]:
    """The method of an effect, or that of a call of its own: it stands beside its results."""
    table = getattr(sys.modules[type(result).__module__], "TABLE", None)
    if table is None or table.name != result.method:
        conditional = result.estimand in ESTIMANDS and ESTIMANDS[result.estimand].conditional
        by = result.details.get(STOOD_IN) or result.options.get("chosen", result.method)
        if spec := find(str(by), conditional):
            return spec, None
        table = table_methods().get(result.method)
    return None, table


def _assumed(result: ResultBase) -> str:
    spec, table = _methods(result)
    if result.identification == "randomised":
        return f"{RANDOMISED}; {table.assumes}" if table and table.assumes else RANDOMISED
    if table and result.assumes:
        return result.assumes
    if table:
        return "; ".join(filter(None, (NO_CONFOUNDER * table.uses_covariates, table.assumes)))
    by_method = spec.assumes if spec else ""
    if not result.assumes:
        return by_method
    _, apart, models = by_method.partition(f"{NO_CONFOUNDER}; ")
    more = f"; {models}" if apart and result.identification == "adjusted" else ""
    return result.assumes + more


def bounds_text(result: ResultBase) -> str:
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


def budget(result: ResultBase) -> Table:
    """One row for each noisy query with its charge, and their sum."""
    charges, asked = result.charges, result.epsilon_requested
    columns = ["query", "mechanism", "sensitivity", "noise scale", "epsilon", "delta", "proof"]
    epsilons = numbers([*(s.epsilon for s in charges), sum(s.epsilon for s in charges)], 4)
    deltas = numbers([*(s.delta for s in charges), sum(s.delta for s in charges)], 3)
    rows = []
    for charge, epsilon, delta in zip(charges, epsilons[:-1], deltas[:-1], strict=True):
        if charge.covered:
            epsilon, delta = "covered", "covered"
        label = charge.label if charge.share in charge.label else f"{charge.share}: {charge.label}"
        sizes = (joined(charge.sensitivity), joined(charge.scale))
        rows.append([label, charge.mechanism, *sizes, epsilon, delta, str(charge.claim)])
    if left := len(rows[_MOST_SPENDS:]):
        rows[_MOST_SPENDS:] = [[f"and {left} more, see charges_frame()", *[""] * 6]]
    against = "" if asked is None else f"of {number(asked)} requested"
    rows.append(["total", against, "", "", epsilons[-1], deltas[-1], ""])
    if not any(charge.delta for charge in charges):
        for row in (columns, *rows):
            del row[5]
    align = "ll" + "r" * (len(columns) - 2)
    return Table(
        "Privacy budget (proof: number of the claim in dpeffects/privacy/PROOFS.md)",
        tuple(columns),
        tuple(map(tuple, rows)),
        align,
        total=True,
    )


def _options(result: ResultBase) -> str:
    """Options that are set; None stands for a choice that the method makes."""
    options = {name: x for name, x in result.options.items() if x is not None}
    return ", ".join(_unbroken(f"{name} = {text_of(x)}") for name, x in options.items())
