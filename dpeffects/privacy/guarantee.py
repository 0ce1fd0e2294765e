"""What is promised (Guarantee), what was paid for it (Spend), what came out (Noisy)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Unit = str
"""Whose change is hidden: "record" (all columns of one row) or "outcome" (its outcome only)."""


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

    def alert(self) -> str:
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
        "no differential privacy, one record can show",
        "without any promise of",
        "",
        "accept_none",
    ),
}
"""Kinds of guarantees. Methods other than "exact" ones run only where their kind is accepted."""


def alarm(status: str) -> str:
    """Return what must stand out about a status as exports have it; empty where it is "exact".

    Examples
    --------
    >>> alarm("exact"), alarm("none"), alarm("void: seeded")
    ('', 'NO DIFFERENTIAL PRIVACY, ONE RECORD CAN SHOW', 'NOT PRIVATE: seeded')
    >>> alarm("void: seeded, library")
    "NOT PRIVATE: seeded; A LIBRARY'S GUARANTEE, NOT PROVED HERE"
    """
    if status in KINDS:
        return KINDS[status].words.upper()
    if not status.startswith("void"):
        return f"UNKNOWN GUARANTEE: {status}"
    reasons = status.removeprefix("void").lstrip(": ").split(", ")
    kind = KINDS[reasons.pop()].words.upper() if reasons[-1] in KINDS else ""
    return f"NOT PRIVATE: {', '.join(reasons)}" + (f"; {kind}" if kind else "")


@dataclass(frozen=True)
class Guarantee:
    """A differential privacy guarantee, in numbers and in words.

    Parameters
    ----------
    epsilon, delta
        What was spent in total; never more than what was asked for. Infinite for kind "none".
    unit
        "record" (everything in one row is protected), "outcome" (the outcome only) or "nothing".
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

    @property
    def holds(self) -> bool:
        """True when the promise is proved and nothing voids it."""
        return self.status == "exact"

    def sentence(self) -> str:
        """Say the guarantee in words."""
        if self.kind == "none":
            return KINDS["none"].words
        if self.delta:
            what = f"({self.epsilon:.6g}, {self.delta:.3g})-differential privacy"
        else:
            what = f"{self.epsilon:.6g}-differential privacy (pure)"
        whom = "everything in one record" if self.unit == "record" else "one record's outcome"
        other = "one record" if self.unit == "record" else "one record's outcome"
        if self.unit == "record" and "treatment" in self.public:
            whom += " but its treatment"
        known = ", ".join(self.public) if self.public else "nothing"
        text = (
            f"{what} for {whom}; neighbours are tables that differ in {other}, whatever the order "
            f"of their rows; public: {known}"
        )
        if self.kind != "exact":
            text = f"{KINDS[self.kind].words}: {text}"
        if self.void:
            return f"VOID ({', '.join(self.void)}): not private. Without that it would be {text}"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "delta": self.delta,
            "unit": self.unit,
            "neighbours": self.neighbours,
            "public": list(self.public),
            "kind": self.kind,
            "void": list(self.void),
            "status": self.status,
        }


@dataclass(frozen=True)
class Spend:
    """One charge: what was drawn, at what price, by which proved claim.

    ``sensitivity`` and ``scale`` have one entry for each noise scale used, in the units of the
    released value; ``claim`` is the number of the claim in PROOFS.md. ``alone`` is True where the
    charge is for one mechanism by itself, so that its noise can be composed with others'; a part
    of a larger price (claims 11, 22) counts by its price only. A release that other charges cover
    (claim 11) costs nothing here, and its label says what it would.
    """

    label: str
    share: str
    epsilon: float
    delta: float
    mechanism: str
    sensitivity: tuple[float, ...]
    scale: tuple[float, ...]
    claim: int
    alone: bool = False

    @property
    def covered(self) -> bool:
        """True for a release that other charges pay for (claim 11): no charge of its own."""
        return self.epsilon == 0.0 and self.delta == 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "label": self.label,
            "share": self.share,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "mechanism": self.mechanism,
            "sensitivity": list(self.sensitivity),
            "scale": list(self.scale),
            "claim": self.claim,
            "alone": self.alone,
        }


@dataclass(frozen=True)
class Noisy:
    """A released value: safe to look at, with the scale of the noise inside each entry.

    ``scale`` is that of Laplace noise, or the standard deviation of Gaussian noise.
    """

    value: npt.NDArray[np.float64]
    scale: float
    spend: Spend | None = None
    gaussian: bool = False

    def __float__(self) -> float:
        return float(self.value.reshape(-1)[0]) if self.value.size == 1 else math.nan

    @property
    def variance(self) -> float:
        """Variance of the noise in each entry (0 for a value that was public)."""
        return self.scale**2 * (1.0 if self.gaussian else 2.0)
