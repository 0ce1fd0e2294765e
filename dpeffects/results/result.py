"""Result: released values, what was promised about them, and what was paid. No data, no model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpeffects.inference import intervals as inference
from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.inference.intervals import Interval
from dpeffects.results.export import frame_of, or_nan, plain
from dpeffects.results.numbers import number
from dpeffects.results.record import Record
from dpeffects.results.release_record import Page
from dpeffects.results.report import about_effect
from dpeffects.results.summary import Summary, summarise

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False, kw_only=True)
class Result(Record):
    """A private treatment effect, ready to print, export or combine.

    Parameters
    ----------
    released
        What the method released: estimate, sampling variance, noise scales.
    estimand, method, ...
        The fields of `Record`.

    Examples
    --------
    >>> from dpeffects.inference.estimate import SamplingVariance
    >>> from dpeffects.privacy.guarantee import Guarantee
    >>> fit = Result.from_estimate(
    ...     Estimate(2.0, SamplingVariance(0.36, 0.0, 9.0), laplace=(0.4, 0.4)),
    ...     estimand="ATE", method="dp_means", method_title="difference in means",
    ...     formula="y ~ t", outcome="y", treatment="t", n=500, guarantee=Guarantee(1.0),
    ... )
    >>> fit
    <dpeffects ATE 2 (se 1), dp_means, epsilon=1, exact>
    >>> low, high = fit.conf_int()
    >>> round(low, 2), round(high, 2)
    (0.01, 3.99)
    """

    released: Estimate

    @classmethod
    def from_estimate(
        cls,
        estimate: Estimate,
        *,
        notes: Iterable[str] = (),
        details: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Result:
        """Build a Result from what a method released.

        ``notes`` and ``details`` are added to those of the estimate; the other keywords are the
        fields of `Result`.
        """
        return cls(
            released=estimate,
            notes=(*estimate.notes, *notes),
            details={**estimate.details, **(details or {})},
            **fields,
        )

    @property
    def estimate(self) -> float:
        """The released effect."""
        return self.released.value

    @property
    def caution(self) -> str:
        """What nobody should overlook, in a few words; empty when all is well."""
        return self.released.caution

    @property
    def sampling_variance(self) -> float | Unavailable:
        """Sampling variance that the noisy release leaves plausible, on average; never negative."""
        return inference.sampling_variance(self.released)

    @property
    def noise_variance(self) -> float:
        """Variance of the privacy noise in the estimate."""
        return self.released.noise_variance

    @property
    def std_error(self) -> float | Unavailable:
        """Total standard error: sampling and noise."""
        return inference.std_error(self.released)

    @property
    def noise_share(self) -> float | Unavailable:
        """Part of the total variance that is due to privacy, between 0 and 1."""
        total = inference.total_variance(self.released)
        if isinstance(total, Unavailable):
            return total
        return self.noise_variance / total if total > 0.0 else 0.0

    def conf_int(self, level: float = 0.95) -> Interval | Unavailable:
        """Confidence interval for the effect; ``low, high = fit.conf_int()``.

        Returns `Unavailable`, which prints its reason, when the method released no sampling
        variance.
        """
        return inference.interval(self.released, level)

    @property
    def p_value(self) -> float | Unavailable:
        """Two-sided p-value of the hypothesis that the effect is 0; same law as `conf_int`."""
        return inference.p_value(self.released)

    def summary(self, conf_level: float = 0.95) -> Summary:
        """Everything worth printing, as titled blocks."""
        return summarise(self, conf_level)

    def _paragraph(self, conf_level: float) -> str:
        return about_effect(self, conf_level)

    def _page(self, conf_level: float) -> Page:
        page = super()._page(conf_level)
        shown, kept = self.summary(conf_level), self.to_dict(conf_level)
        return dataclasses.replace(page, summary=shown, result=kept)

    def plot(self, conf_level: float = 0.95, *, ax: Any = None) -> Any:
        """Draw the estimate and both parts of its interval; return the axes (matplotlib)."""
        from dpeffects import plots

        return plots.estimate(self, conf_level=conf_level, ax=ax)

    def tidy(self, conf_level: float = 0.95) -> pd.DataFrame:
        """One row for the effect; rows of several results bind with ``pandas.concat``.

        What is not available is NaN.
        """
        interval = self.conf_int(conf_level)
        low, high = (math.nan, math.nan) if isinstance(interval, Unavailable) else interval
        error = or_nan(self.std_error)
        row = {
            "term": self.treatment,
            "outcome": self.outcome,
            "estimand": self.estimand,
            "estimate": float(self.estimate),
            "std_error": error,
            "statistic": self.estimate / error if error > 0.0 else math.nan,
            "p_value": or_nan(self.p_value),
            "conf_low": low,
            "conf_high": high,
            "method": self.method,
            "guarantee": self.guarantee.status,
        }
        return frame_of([row])

    def glance(self) -> pd.DataFrame:
        """One row for the release: its size, guarantee and sources of error."""
        row = {
            "n": self.n,
            "method": self.method,
            "level": self.level,
            "epsilon": float(self.guarantee.epsilon),
            "delta": float(self.guarantee.delta),
            "guarantee": self.guarantee.status,
            "caution": self.released.caution,
            "unit": self.guarantee.unit,
            "noise_variance": float(self.noise_variance),
            "sampling_variance": or_nan(self.sampling_variance),
            "noise_share": or_nan(self.noise_share),
        }
        return frame_of([row])

    def to_dict(self, conf_level: float = 0.95) -> dict[str, Any]:
        """Plain values for JSON.

        What is not available is ``{"unavailable": reason}``; a number that is not finite is that
        with ``"value": None`` beside it. The noise in the estimate is in ``released``: scales of
        its Laplace terms (variance 2 scale^2 each) and the variance of its Gaussian noise.
        """
        interval, sampling = self.conf_int(conf_level), self.released.sampling
        out = {
            name: getattr(self, name)
            for name in ("estimand", "estimate", "std_error", "sampling_variance")
        }
        out |= {
            "noise_variance": self.noise_variance,
            "noise_share": self.noise_share,
            "p_value": self.p_value,
            "caution": self.released.caution,
            "conf_int": interval,
            "released": {
                "value": self.estimate,
                "sampling": sampling,
                "laplace": self.released.laplace,
                "gaussian": self.released.gaussian,
            },
            "guarantee": self.guarantee.to_dict() | {"sentence": self.guarantee.sentence()},
            "spends": [spend.to_dict() for spend in self.spends],
        }
        rest = (f.name for f in dataclasses.fields(self) if f.name not in out)
        out |= {name: getattr(self, name) for name in rest}
        out["bounds"] = [
            dict(zip(("name", "range", "source"), bound, strict=True)) for bound in self.bounds
        ]
        return {name: plain(value) for name, value in out.items()}

    def __repr__(self) -> str:
        error = self.std_error
        shown = "not available" if isinstance(error, Unavailable) else number(error)
        return (
            f"<dpeffects {self.estimand} {number(self.estimate)} (se {shown}), {self.method}, "
            f"epsilon={number(self.guarantee.epsilon)}, "
            f"{self.guarantee.tag}>"
        )
