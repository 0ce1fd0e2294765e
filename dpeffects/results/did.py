"""DidEffect: a difference in differences, which is an effect where trends are parallel."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

from dpeffects.results.average import Result

PARALLEL = (
    "parallel trends: without treatment, the mean outcome of the treated would have changed by as "
    "much as that of the controls"
)
"""What a difference in differences assumes."""


@dataclass(frozen=True, repr=False, kw_only=True)
class DidEffect(Result):
    """A private difference in differences: the effect on the change of the outcome.

    Parameters
    ----------
    after, before
        The two outcomes whose difference is the change, as the formula has them.
    adjusted
        Whether trends are taken as parallel for the same covariates only.
    estimand, method, ...
        The fields of `Result`.
    """

    after: str
    before: str
    adjusted: bool = False

    @classmethod
    def of(cls, fit: Result, **more: Any) -> Self:
        """Return a result as a difference in differences."""
        own = {f.name: getattr(fit, f.name) for f in fields(Result)}
        return cls(**own | more)

    @property
    def assumes(self) -> str:
        """What has to be true for this to be the effect of the treatment, in a sentence."""
        return f"{PARALLEL} with the same covariates" if self.adjusted else PARALLEL
