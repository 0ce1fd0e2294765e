"""Balance: released overlap and standardised mean differences, each with the noise in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpeffects.errors import OptionError
from dpeffects.results.export import frame_of, plain
from dpeffects.results.numbers import number
from dpeffects.results.record import Record
from dpeffects.results.report import paragraph
from dpeffects.results.summary import Block, Notes, Pairs, Summary, Table, alert, budget, header

if TYPE_CHECKING:
    import pandas as pd

ARMS = ("treated", "control")
WITHIN = 1.96
"""A difference below this many standard deviations of its noise may be nothing but noise."""
_LOW, _HIGH = 0.1, 0.9
_UNUSABLE = "does not vary by more than the noise"
_SHOWN = 40


@dataclass(frozen=True, repr=False, kw_only=True)
class Balance(Record):
    """Overlap and balance of two arms; made by `dp_balance`.

    Parameters
    ----------
    terms
        Names of the encoded covariates.
    smd, noise_sd
        Standardised mean differences (treated less control) and the standard deviation of the
        noise in each; NaN for a covariate that does not vary by more than the noise.
    smd_adjusted, noise_sd_adjusted
        The same after weighting by inverse propensities; empty where it was not released.
    edges, counts, count_sd
        Histogram of the released propensity score: edges of its bins, noisy counts of treated and
        of control records, standard deviation of the noise in each count.
    treated
        Number of treated records, and the standard deviation of its noise.
    model_noise
        Expected share of noise in the slopes of the propensity model.
    estimand, method, ...
        The fields of `Record`.
    """

    terms: tuple[str, ...]
    smd: tuple[float, ...]
    noise_sd: tuple[float, ...]
    smd_adjusted: tuple[float, ...]
    noise_sd_adjusted: tuple[float, ...]
    edges: tuple[float, ...]
    counts: tuple[tuple[float, ...], ...]
    count_sd: float
    treated: tuple[float, float]
    model_noise: float

    def tidy(self) -> pd.DataFrame:
        """One row a covariate: differences before and after weighting, and the noise in them.

        ``within_noise`` says that a difference may be nothing but noise; what was not released, or
        is not usable, is NaN.
        """
        nothing = (math.nan,) * len(self.terms)
        after = self.smd_adjusted or nothing, self.noise_sd_adjusted or nothing
        rows = zip(self.terms, self.smd, self.noise_sd, *after, strict=True)
        return frame_of(
            [
                {
                    "term": term,
                    "smd": smd,
                    "noise_sd": sd,
                    "within_noise": _within(smd, sd),
                    "smd_adjusted": adjusted,
                    "noise_sd_adjusted": adjusted_sd,
                    "within_noise_adjusted": _within(adjusted, adjusted_sd),
                    "reason": _UNUSABLE if math.isnan(smd) else "",
                    "guarantee": self.guarantee.status,
                }
                for term, smd, sd, adjusted, adjusted_sd in rows
            ]
        )

    def overlap(self) -> pd.DataFrame:
        """One row for each arm and bin of the propensity score."""
        bins = list(zip(self.edges[:-1], self.edges[1:], strict=True))
        return frame_of(
            [
                {"arm": arm, "low": low, "high": high, "count": count, "noise_sd": self.count_sd}
                for arm, counts in zip(ARMS, self.counts, strict=True)
                for (low, high), count in zip(bins, counts, strict=True)
            ]
        )

    def glance(self) -> pd.DataFrame:
        """One row for the release: its size, guarantee and largest differences."""
        outside, sd = self._outside()
        row = {
            "n": self.n,
            "treated": self.treated[0],
            "treated_noise_sd": self.treated[1],
            "covariates": len(self.terms),
            "largest_smd": _largest(self.smd),
            "largest_smd_adjusted": _largest(self.smd_adjusted),
            "scores_outside": outside,
            "scores_outside_noise_sd": sd,
            "model_noise": self.model_noise,
            "epsilon": float(self.guarantee.epsilon),
            "delta": float(self.guarantee.delta),
            "guarantee": self.guarantee.status,
        }
        return frame_of([row])

    def _outside(self) -> tuple[float, float]:
        """Share of records with a score below 0.1 or above 0.9, and the noise in it."""
        bins = zip(self.edges[:-1], self.edges[1:], strict=True)
        far = [high <= _LOW + 1e-9 or low >= _HIGH - 1e-9 for low, high in bins]
        count = sum(c for arm in self.counts for c, out in zip(arm, far, strict=True) if out)
        return count / self.n, self.count_sd * math.sqrt(2 * sum(far)) / self.n

    @property
    def caution(self) -> str:
        """What nobody should overlook, in a few words; empty when all is well."""
        if self.model_noise < 0.5:
            return ""
        return "the propensity model is mostly noise: overlap and weighted balance say little"

    def summary(self) -> Summary:
        """Everything worth printing, as titled blocks."""
        blocks: list[Block] = [header(self), self._arms(), self._balance(), self._histogram()]
        if self.spends:
            blocks.append(budget(self))
        blocks.append(Notes((*self._says(), *self.notes)))
        return Summary("Private overlap and balance", alert(self), tuple(blocks))

    def _paragraph(self, conf_level: float) -> str:
        rows = zip(self.terms, self.smd, self.noise_sd, strict=True)
        usable = [row for row in rows if not math.isnan(row[1])]
        found = ["No covariate varies by more than the noise, so no difference is known."]
        if usable:
            term, smd, sd = max(usable, key=lambda row: abs(row[1]))
            found = [
                f"The largest standardised mean difference is {number(smd)}, of {term}; its "
                f"privacy noise has a standard deviation of {number(sd)}, and sampling error is "
                "not in that."
            ]
        subject = f"the balance of covariates between the arms of {self.treatment}"
        return paragraph(self, found, subject=subject)

    def _arms(self) -> Pairs:
        (treated, sd), (outside, outside_sd) = self.treated, self._outside()
        rows = (
            ("Treated", f"{treated:.0f} of {self.n} records (noise sd {sd:.3g})"),
            (
                "Overlap",
                f"{100 * outside:.1f} % of records have scores below {_LOW} or above {_HIGH} "
                f"(noise sd {100 * outside_sd:.2g} %)",
            ),
            ("Model", f"about {100 * self.model_noise:.0f} % of the score's slopes are noise"),
        )
        return Pairs(rows, "Arms")

    def _balance(self) -> Table:
        columns = ["covariate", "difference", "noise sd"]
        cells = [list(self.terms), *_cells(self.smd, self.noise_sd)]
        if self.smd_adjusted:
            columns += ["weighted", "noise sd"]
            cells += _cells(self.smd_adjusted, self.noise_sd_adjusted)
        rows = tuple(zip(*cells, strict=True))[:_SHOWN]
        title = "Standardised mean differences, treated less control"
        return Table(title, tuple(columns), rows, "l" + "r" * (len(columns) - 1))

    def _histogram(self) -> Table:
        digits = 2 if (len(self.edges) - 1) in (2, 4, 5, 10, 20, 25, 50) else 3
        rows = tuple(
            (f"{low:.{digits}f} to {high:.{digits}f}", f"{one:.0f}", f"{zero:.0f}")
            for low, high, one, zero in zip(
                self.edges[:-1], self.edges[1:], *self.counts, strict=True
            )
        )
        title = f"Records by propensity score (noise sd {number(float(f'{self.count_sd:.3g}'))})"
        return Table(title, ("score", *ARMS), rows[:_SHOWN], "lrr")

    def _says(self) -> list[str]:
        notes = [
            "A difference divides by the root of the arms' average variance, before weighting. In "
            f"brackets: below {WITHIN} standard deviations of its noise, so perhaps nothing but "
            "noise. Sampling error is not in noise sd.",
            "Scores come from a private model with a penalty, which pulls them together: overlap "
            "looks better than it is. A call of dp_ate fits a model of its own.",
        ]
        if not self.smd_adjusted:
            notes.append(
                "Balance after weighting was not released; adjusted=True asks for it, and None "
                "(default) where its noise is small."
            )
        if any(math.isnan(x) for x in self.smd):
            notes.append(f"n/a: the covariate {_UNUSABLE}.")
        if max(len(self.terms), len(self.edges) - 1) > _SHOWN:
            notes.append(f"The first {_SHOWN} rows; tidy() and overlap() have them all.")
        return notes

    def plot(self, kind: str = "love", *, ax: Any = None) -> Any:
        """Draw the differences ("love") or the histogram of scores ("overlap"); return the axes."""
        from dpeffects import plots

        if kind not in ("love", "overlap"):
            raise OptionError(f'kind must be "love" or "overlap", got {kind!r}')
        return plots.love(self, ax=ax) if kind == "love" else plots.overlap(self, ax=ax)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        out = {name: getattr(self, name) for name in self.__dataclass_fields__}
        out["guarantee"] = self.guarantee.to_dict() | {"sentence": self.guarantee.sentence()}
        out["spends"] = [spend.to_dict() for spend in self.spends]
        out["caution"] = self.caution
        out["bounds"] = [
            dict(zip(("name", "range", "source"), bound, strict=True)) for bound in self.bounds
        ]
        return {name: plain(value) for name, value in out.items()}

    def __repr__(self) -> str:
        return (
            f"<dpeffects balance of {len(self.terms)} covariates, largest "
            f"{number(_largest(self.smd))}, epsilon={number(self.guarantee.epsilon)}, "
            f"{self.guarantee.tag}>"
        )


def _within(value: float, sd: float) -> bool | None:
    return None if math.isnan(value) else abs(value) <= WITHIN * sd


def _largest(values: tuple[float, ...]) -> float:
    return max((abs(x) for x in values if not math.isnan(x)), default=math.nan)


def _cells(values: tuple[float, ...], sds: tuple[float, ...]) -> list[list[str]]:
    """Differences, in brackets where they are within their noise, and the noise."""
    pairs = list(zip(values, sds, strict=True))
    shown = [f"({x:.3f})" if _within(x, sd) else f"{x:.3f}" for x, sd in pairs]
    return [
        ["n/a" if math.isnan(x) else text for (x, _), text in zip(pairs, shown, strict=True)],
        ["n/a" if math.isnan(sd) else f"{sd:.3f}" for _, sd in pairs],
    ]
