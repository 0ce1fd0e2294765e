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
class Guarantee:
    """A differential privacy guarantee, in numbers and in words.

    Parameters
    ----------
    epsilon, delta
        What was spent in total; never more than what was asked for.
    unit
        "record" (everything in one row is protected) or "outcome" (the outcome only).
    public
        What the guarantee takes as public knowledge, e.g. ``("n",)``.
    kind
        "exact" (proved for every dataset of this size) or "asymptotic" (a claim about large n).
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
        """ "exact", "asymptotic", or "void: ..." with the reasons."""
        if not self.void:
            return self.kind
        unproved = () if self.kind == "exact" else (self.kind,)
        return "void: " + ", ".join((*self.void, *unproved))

    @property
    def holds(self) -> bool:
        """True when the promise is proved and nothing voids it."""
        return self.status == "exact"

    def sentence(self) -> str:
        """Say the guarantee in words."""
        if self.delta:
            what = f"({self.epsilon:.6g}, {self.delta:.3g})-differential privacy"
        else:
            what = f"{self.epsilon:.6g}-differential privacy (pure)"
        whom = "everything in one record" if self.unit == "record" else "one record's outcome"
        if self.unit == "record" and "treatment" in self.public:
            whom += " but its treatment"
        known = ", ".join(self.public) if self.public else "nothing"
        text = f"{what} for {whom}; neighbours replace one record; public: {known}"
        if self.kind == "asymptotic":
            text = f"asymptotic claim, not a proven guarantee at this n: {text}"
        if self.void:
            return f"VOID ({', '.join(self.void)}): not private. Without that it would be {text}"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "epsilon": self.epsilon,
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
    of a larger price (claims 22, 26) counts by its price only.
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
