"""What is promised, in numbers and in words."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpeffects.errors import ReleaseError, refusal

Unit = str
"""Whose change is hidden: "record" (all columns of one row), "outcome" (its outcome only), or, for
example, "all rows of one patient_id" (`rows_of`)."""
_ROWS_OF = "all rows of one "
_LONGEST = 60


def rows_of(column: str) -> Unit:
    """Return the unit that has all rows with one value of a column, in words for a line of text.

    Examples
    --------
    >>> rows_of("patient_id"), rows_of("Patient number")
    ('all rows of one patient_id', 'all rows of one "Patient number"')
    """
    return _ROWS_OF + printed(column)


def printed(column: str) -> str:
    """Return the name of a column as a line of text can have it.

    Names other than plain words are quoted, without what cannot be printed; long ones are cut, with
    a few digits of their digest, so that two columns never look the same.

    Examples
    --------
    >>> printed("patient_id"), printed("Patient number")
    ('patient_id', '"Patient number"')
    """
    if column.isidentifier() and len(column) <= _LONGEST:
        return column
    quoted = json.dumps(column, ensure_ascii=False)
    text = escaped(quoted)
    if len(text) > _LONGEST:
        digest = hashlib.sha256(column.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        text = f'{text[: _LONGEST - 14]}..." ({digest})'
    return text


def escaped(text: str) -> str:
    """Return a text without what cannot be printed, for a line of text.

    Examples
    --------
    >>> escaped("a\\tb")
    'a\\\\u0009b'
    """
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def column_of(unit: Unit) -> str:
    """Return the column whose rows belong together, as `rows_of` writes it; "" for records.

    Examples
    --------
    >>> column_of("all rows of one patient_id"), column_of("record")
    ('patient_id', '')
    """
    return unit.removeprefix(_ROWS_OF) if unit.startswith(_ROWS_OF) else ""


def protected(unit: Unit) -> str:
    """Say what is protected, for the middle of a sentence.

    Examples
    --------
    >>> protected("record")
    'everything in one record'
    >>> protected("all rows of one patient_id")
    'everything about one patient_id, in however many rows'
    """
    if column := column_of(unit):
        return f"everything about one {column}, in however many rows"
    known = {"record": "everything in one record", "outcome": "one record's outcome"}
    return known.get(unit, unit)


def why_no_sum(held: str, new: str) -> str:
    """Say what the sum of charges that protect different things would be worth."""
    columns = [column for column in map(column_of, (held, new)) if column]
    if not columns:
        return "The two do not add up: give the call a ledger of its own"
    if len(columns) == 2:
        return refusal("two_units", one=columns[0], other=columns[1])
    finer = "an outcome" if "outcome" in (held, new) else "a record"
    return refusal("unit_and_record", one=columns[0], finer=finer)


def replaced(unit: Unit) -> str:
    """Say what neighbouring tables differ in."""
    return {"record": "one record", "outcome": "one record's outcome"}.get(unit, unit)


def counted(unit: Unit) -> str:
    """Say what n counts: records, or those whose rows belong together.

    Examples
    --------
    >>> counted("record"), counted("all rows of one patient_id")
    ('records', 'values of patient_id')
    """
    column = column_of(unit)
    return f"values of {column}" if column else "records"


@dataclass(frozen=True)
class Kind:
    """A kind of guarantee, in the words that every output uses.

    ``words`` say what it is and what it is not, ``under`` leads over to the promise, ``void`` is
    added where the promise does not hold anyway, ``accept`` is the argument that asks for it.
    """

    words: str = ""
    under: str = "under"
    void: str = ""
    accept: str = ""

    def warning(self) -> str:
        """Return the words in capitals, before the comma only: the rest is for reading."""
        head, comma, rest = self.words.partition(",")
        return head.upper() + comma + rest


KINDS = {
    "exact": Kind(),
    "asymptotic": Kind(
        "asymptotic claim, not a proven guarantee at this n",
        "under what is claimed to be",
        " and only claimed for large n",
        "accept_asymptotic",
    ),
    "library": Kind(
        "a library's guarantee, not proved here",
        "under what the authors of a library prove to be",
        " and only proved by the authors of a library",
        "accept_library",
    ),
    "none": Kind(
        "no differential privacy, one record can show", "without any promise of", "", "accept_none"
    ),
}
"""Kinds of guarantees. Methods other than "exact" ones run only where their kind is accepted."""


def status_warning(status: str) -> str:
    """Return what must stand out about a status as exports have it; empty where it is "exact".

    Examples
    --------
    >>> status_warning("exact"), status_warning("none"), status_warning("void: seeded")
    ('', 'NO DIFFERENTIAL PRIVACY, ONE RECORD CAN SHOW', 'NOT PRIVATE: a seed was set')
    >>> status_warning("void: seeded, library")
    "NOT PRIVATE: a seed was set; A LIBRARY'S GUARANTEE, NOT PROVED HERE"
    """
    if status in KINDS:
        return KINDS[status].words.upper()
    if not status.startswith("void"):
        return f"UNKNOWN GUARANTEE: {status}"
    reasons = status.removeprefix("void").lstrip(": ").split(", ")
    kind = KINDS[reasons.pop()].words.upper() if reasons[-1] in KINDS else ""
    return void_words(reasons) + (f"; {kind}" if kind else "")


def void_words(reasons: Sequence[str]) -> str:
    """Say in plain words that a guarantee does not hold, and why.

    Examples
    --------
    >>> void_words(["seeded"])
    'NOT PRIVATE: a seed was set'
    """
    known = {"seeded": "a seed was set", "bounds read from data": "bounds were read from the data"}
    return f"NOT PRIVATE: {', '.join(known.get(reason, reason) for reason in reasons)}"


_WEAK_EPSILON = 10.0
"""Above it protection is weak: Ponomareva et al. (2023), How to DP-fy ML, section 5.2."""
_WEAK_DELTA = 0.01


@dataclass(frozen=True)
class Guarantee:
    """A differential privacy guarantee, in numbers and in words.

    Parameters
    ----------
    epsilon, delta
        What was spent in total; never more than what was asked for. Infinite for kind "none".
    unit
        "record" (everything in one row is protected), "outcome" (the outcome only), for example
        "all rows of one patient_id" (everything about one patient, in however many rows), or
        "nothing".
    public
        What the guarantee takes as public knowledge, e.g. ``("n",)``.
    neighbours
        "replace-one": tables with the same number of records that differ in one of them, whatever
        the order of their rows.
    kind
        "exact" (proved here for every dataset of this size), "asymptotic" (a claim about large n),
        "library" (proved by the authors of the library that draws the noise) or "none".
    void
        Reasons why the guarantee does not hold; empty when it does.

    Examples
    --------
    >>> Guarantee(1.0).status
    'exact'
    >>> Guarantee(1.0, void=("seeded",)).status
    'void: seeded'
    """

    epsilon: float
    delta: float = 0.0
    unit: Unit = "record"
    public: tuple[str, ...] = ("n",)
    neighbours: str = "replace-one"
    kind: str = "exact"
    void: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """The kind, or "void: ..." with the reasons."""
        if not self.void:
            return self.kind
        unproved = () if self.kind == "exact" else (self.kind,)
        return "void: " + ", ".join((*self.void, *unproved))

    @property
    def tag(self) -> str:
        """The status for a line of text, which says where nothing is private."""
        return f"NOT PRIVATE, {self.status}" if self.void or self.kind == "none" else self.status

    def line(self, n: int) -> str:
        """Say in a few words what n records were promised, and where that is little or nothing.

        Examples
        --------
        >>> Guarantee(1.0).line(1000), Guarantee(20.0, 1e-6).line(1000)
        ('epsilon=1, exact', 'epsilon=20, delta=1e-06, exact, weak privacy')
        """
        delta = f", delta={self.delta:.3g}" if self.delta else ""
        weak = ", weak privacy" if self.warnings(n) else ""
        return f"epsilon={self.epsilon:.6g}{delta}, {self.tag}{weak}"

    @property
    def holds(self) -> bool:
        """True when the promise is proved and nothing voids it."""
        return self.status == "exact"

    def sentence(self) -> str:
        """Say the guarantee in words."""
        if self.kind == "none":
            return KINDS["none"].words
        known = ", ".join(self.public) if self.public else "nothing"
        text = (
            f"{self._promise()}; neighbours are tables that differ in {replaced(self.unit)}, "
            f"whatever the order of their rows; taken as public: {known}"
        )
        if not self.void:
            return text
        return f"{void_words(self.void)}. Otherwise the guarantee would be: {text}"

    def short(self) -> str:
        """Say in a line what is promised, and to whom, or that nothing is.

        Examples
        --------
        >>> Guarantee(1.0, 1e-6).short()
        '(1, 1e-06)-differential privacy for everything in one record'
        >>> Guarantee(1.0, void=("seeded",)).short()
        'NOT PRIVATE: a seed was set'
        """
        if self.kind == "none":
            return KINDS["none"].words
        return void_words(self.void) if self.void else self._promise()

    def _promise(self) -> str:
        """What is promised, for whom, and of what kind it is."""
        if self.delta:
            what = f"({self.epsilon:.6g}, {self.delta:.3g})-differential privacy"
        else:
            what = f"{self.epsilon:.6g}-differential privacy (pure)"
        whom = protected(self.unit)
        if self.unit == "record" and "treatment" in self.public:
            whom += " but its treatment"
        claimed = "" if self.kind == "exact" else f"{KINDS[self.kind].words}: "
        return f"{claimed}{what} for {whom}"

    def warnings(self, n: int) -> str:
        """Say where the protection of each of n records is weak; empty where it is not.

        A delta of 1/n allows a mechanism that publishes a record or two as they are: Dwork and Roth
        (2014), The algorithmic foundations of differential privacy, section 2.3.

        Examples
        --------
        >>> Guarantee(1.0, 1e-6).warnings(1000)
        ''
        >>> Guarantee(1.0, 0.001).warnings(1000)
        'Weak privacy: delta = 0.001 is not below 1/n: it allows a whole record to be published'
        """
        if self.kind == "none":
            return ""
        lines = []
        if self.epsilon > _WEAK_EPSILON:
            lines.append(
                f"epsilon = {self.epsilon:g}; already at {_WEAK_EPSILON:g} one record may "
                f"make a result {math.exp(_WEAK_EPSILON):,.0f} times as likely"
            )
        if self.delta >= min(_WEAK_DELTA, 1.0 / max(n, 1)) * (1 - 1e-9):  # shares round down
            lines.append(
                f"delta = {self.delta:g} is not below 1/n: it allows a whole record to be published"
            )
        return f"Weak privacy: {'; '.join(lines)}" if lines else ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        plain = {k: list(x) if isinstance(x, tuple) else x for k, x in vars(self).items()}
        epsilon = self.epsilon if math.isfinite(self.epsilon) else None
        return plain | {"epsilon": epsilon, "status": self.status}


def weakest(guarantees: Sequence[Guarantee]) -> Guarantee:
    """What holds for the records of every site."""
    if len({g.kind for g in guarantees}) > 1:
        raise ReleaseError("the sites have different kinds of guarantees and cannot be combined")
    return replace(
        guarantees[0],
        epsilon=max(g.epsilon for g in guarantees),
        delta=max(g.delta for g in guarantees),
        public=tuple(dict.fromkeys(x for g in guarantees for x in g.public)),
        void=tuple(dict.fromkeys(reason for g in guarantees for reason in g.void)),
    )
