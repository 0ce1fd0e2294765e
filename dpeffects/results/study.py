"""StudyEffects: everything that a study releases, out of one budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from dpeffects.errors import OptionError
from dpeffects.inference.estimate import Estimate, Unavailable
from dpeffects.inference.interaction import interaction
from dpeffects.inference.intervals import check_conf_level
from dpeffects.inference.joint import JointSums, StudyColumn
from dpeffects.inference.table_one import arm_sizes, table_one
from dpeffects.results.average import Result
from dpeffects.results.covariate_balance import hidden, within_noise
from dpeffects.results.export import frame_of
from dpeffects.results.record import Record
from dpeffects.results.scaled import mean_rows
from dpeffects.results.several import AtOnce, Based, SubsetEffects
from dpeffects.summary import Summary, draw, tabulate

if TYPE_CHECKING:
    import pandas as pd

OVERALL = "overall"


@dataclass(frozen=True, repr=False, kw_only=True)
class StudyEffects(Based, AtOnce, words="about_study", pictures="plots.several_outcomes"):
    """Effects on several outcomes, in subgroups too, and the baseline variables by arm.

    All of it follows from one joint release. Intervals hold, and p-values are adjusted, for all
    outcomes at once (Bonferroni), unless ``simultaneous=False`` is asked for.

    Parameters
    ----------
    labels, effects
        Names of the outcomes (and of the arms compared, where there are more than two), and the
        estimates on all records.
    sums
        The released numbers. What else they give is post-processing: it costs nothing.
    subgroups
        The factors that make subgroups, as they were written.
    stands_on, warning
        What entitles differences to be called effects, and what nobody should overlook.
    """

    sums: JointSums
    subgroups: tuple[str, ...] = ()
    stands_on: str = ""
    warning: str = ""

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Names of the outcomes."""
        return tuple(column.name for column in self.sums.outcomes)

    @property
    def sizes(self) -> dict[str, float]:
        """Numbers of records by arm, with noise; they are not negative and add up."""
        return dict(zip(self.sums.arms, arm_sizes(self.sums)[0].tolist(), strict=True))

    def one(self, label: str) -> Result:
        """One of the effects as a `Result`, with an interval for it alone.

        So that, for example, ``fit.one("died").effect("ratio")`` is a risk ratio.
        """
        if label not in self.labels:
            return self._one(label, "one")
        column, pair = self._about(self.labels.index(label))
        arms = [self.sums.arms[arm] for arm in pair]
        compared = "" if len(self.sums.arms) == 2 else f" ({' - '.join(arms)})"
        return self._one(label, "one", outcome=column.name, treatment=f"{self.treatment}{compared}")

    def by(self, subgroup: str) -> SubsetEffects:
        """Effects on all outcomes within the levels of a factor, with intervals for all at once.

        Where this is several sites together, ``fit.by("site")`` has the effects at each.
        """
        labels, effects, levels = [], [], []
        if subgroup == "site" and self.sums.sites and subgroup not in self.subgroups:
            within = self.sums.effects_at_sites()
        else:
            within = self.sums.effects_by_level(self._group(subgroup))
        for level, found in within:
            labels += [f"{label} | {level}" for label in self.labels]
            effects += [self._based(effect) for effect in found]
            levels += [level] * len(found)
        about = {f.name: getattr(self, f.name) for f in fields(Record)}
        return SubsetEffects(
            **about,
            labels=tuple(labels),
            effects=tuple(effects),
            subsets=tuple(levels),
            disjoint=False,  # effects on two outcomes share their records
        )

    def interactions(
        self, conf_level: float = 0.95, *, simultaneous: bool = True, most: int | None = None
    ) -> pd.DataFrame:
        """Test for each outcome and factor whether the effect is the same at all levels.

        One row each: the two levels between which effects differ most clearly (``one``,
        ``other``), the difference with its interval, and the p-value of no difference at all. Both
        are adjusted for the number of pairs of levels, and unless told otherwise for that of
        outcomes and factors. ``most`` limits the effects that are tested, in the order of `labels`.
        """
        check_conf_level(conf_level)
        count = len(self.labels) * len(self.subgroups) if simultaneous else 1
        each = 1.0 - (1.0 - conf_level) / max(count, 1)
        rows = []
        for g, factor in enumerate(self.subgroups):
            found = list(self.sums.effects_apart(g))
            levels = [level for level, _ in found]
            for i, label in enumerate(self.labels[:most]):
                test = interaction(levels, [self._based(effects[i]) for _, effects in found])
                if test is None:
                    continue
                p, ends = test.p_value, test.conf_int(each)
                low, high = (math.nan, math.nan) if isinstance(ends, Unavailable) else ends
                rows.append(
                    {
                        "term": label,
                        "subgroup": factor,
                        "one": test.one,
                        "other": test.other,
                        "difference": test.difference.point,
                        "conf_low": low,
                        "conf_high": high,
                        "p_value": math.nan if isinstance(p, Unavailable) else min(1.0, count * p),
                        "noise_sd": math.sqrt(test.difference.noise_variance),
                    }
                )
        columns = ["term", "subgroup", "one", "other", "difference", "conf_low", "conf_high"]
        return frame_of(rows, [*columns, "p_value", "noise_sd"])

    def table1(self) -> pd.DataFrame:
        """Baseline variables by arm, with standardised differences and the noise in each number.

        One row for each variable, or level of a factor. For each arm, and overall: the number of
        records (``treated_n``), the mean or, where ``share`` is True, the share of those records
        in their arm (``treated_mean``), its standard deviation (``treated_sd``, NaN where that is
        mostly noise) and the noise in the mean (``treated_noise_sd``). Then ``smd``, treated less
        control over the root of the mean of both variances (of more than two arms, the largest
        between two of them), its noise, and whether it may be nothing but noise; the same after
        weighting, where records were weighted. What has a ``noise_ratio`` above 1 is mostly noise.
        Sampling error is not in noise. Numbers are possible ones: shares of a factor add up to 1.
        `tables` has it as it is printed.
        """
        rows = []
        for row in table_one(self.sums):
            made: dict[str, Any] = {"variable": row.variable, "level": row.level}
            made["share"] = row.share
            for k, arm in enumerate((*self.sums.arms, OVERALL)):
                made |= {
                    f"{arm}_n": float(row.count[k]),
                    f"{arm}_mean": float(row.mean[k]),
                    f"{arm}_sd": float(row.sd[k]),
                    f"{arm}_noise_sd": float(row.noise_sd[k]),
                    f"{arm}_noise_ratio": float(row.noise_ratio[k]),
                }
            for difference, name in ((row.before, "smd"), (row.after, "smd_weighted")):
                if difference is not None:
                    value, sd = difference.value, difference.noise_sd
                    made |= {name: value, f"{name}_noise_sd": sd}
                    made[f"{name}_within_noise"] = within_noise(value, sd)
                    made[f"{name}_noise_ratio"] = hidden(value, sd)
            rows.append(made)
        return frame_of(rows, list(rows[0]) if rows else ["variable", "level", "share"])

    def tables(self, conf_level: float = 0.95, *, simultaneous: bool = True) -> dict[str, Summary]:
        """The tables of a paper, one at a time, with all their rows.

        "table1", "results", "by sex" for each factor of subgroups, and "budget"; where there are
        more than two arms also "means". Each is printed, and has ``as_latex()``, ``as_html()``,
        ``as_markdown()`` and ``as_docx("table.docx")``.
        """
        return tabulate(self, conf_level=conf_level, simultaneous=simultaneous)

    def plot(
        self,
        conf_level: float = 0.95,
        *,
        simultaneous: bool | None = None,
        by: str | None = None,
        kind: str = "forest",
        standardised: bool | None = None,
        most: int | None = 30,
        ax: Any = None,
    ) -> Any:
        """Draw the effects with their intervals, or Table 1's differences; return the axes.

        Parameters
        ----------
        conf_level, simultaneous
            Of the intervals, and whether they hold for all effects at once, as by default.
        by
            A factor of subgroups: effects at its levels below those on all records.
        kind
            "forest" (effects) or "love" (standardised differences of baseline variables, sorted).
        standardised
            Whether effects are over the standard deviation of their outcome, as released; by
            default where outcomes have different ranges.
        most
            How many differences of Table 1 are drawn, the largest first; None draws all.
        ax
            Axes to draw on; by default those of a new figure.
        """
        given = {k: x for k, x in locals().items() if k != "self"}
        return draw(self, **given | {"simultaneous": self._at_once(simultaneous)})

    def _group(self, subgroup: str) -> int:
        """Index of a factor that makes subgroups."""
        if subgroup not in self.subgroups:
            known = ", ".join(self.subgroups) or "no subgroups"
            raise OptionError(f"this study has {known}, not {subgroup!r}")
        return self.subgroups.index(subgroup)

    def _about(self, i: int) -> tuple[StudyColumn, tuple[int, int]]:
        """The outcome of an effect, and the arms that it compares."""
        outcome, pair = divmod(i, len(self.sums.contrasts))
        return self.sums.outcomes[outcome], self.sums.contrasts[pair]

    def _mean_rows(self, conf_level: float) -> list[dict[str, Any]]:
        """Each outcome and arm once, in the order of the arms."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for i, effect in enumerate(self.effects):
            column, pair = self._about(i)
            one, other = (self.sums.arms[arm] for arm in pair)
            if effect.means is not None:
                for row in mean_rows(effect.means, conf_level, (one, other)):
                    found.setdefault((column.name, row["arm"]), {"term": column.name} | row)
        order = [(name, arm) for name in self.outcomes for arm in self.sums.arms]
        return [found[key] for key in order if key in found]

    def _frame(self, rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
        """Effects as a frame, each with its own outcome."""
        frame = super()._frame(rows)
        frame["outcome"] = [self._about(i)[0].name for i in range(len(rows))]
        return frame

    def _glance(self) -> dict[str, Any]:
        counts = {"outcomes": len(self.outcomes), "arms": len(self.sums.arms)}
        return super()._glance() | counts | {"subgroups": len(self.subgroups)}

    def _based(self, effect: Estimate) -> Estimate:
        return replace(effect, basis=self.stands_on)

    def __repr__(self) -> str:
        count = len(self.sums.outcomes)
        return self._head(f"on {count} outcome{'s' if count > 1 else ''}")
