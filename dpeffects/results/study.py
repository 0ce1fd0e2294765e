"""StudyEffects: everything that a study releases, out of one budget."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from dpeffects.errors import OptionError
from dpeffects.inference.estimate import NO_EFFECT, Estimate
from dpeffects.inference.joint import JointSums
from dpeffects.results.average import Result
from dpeffects.results.record import Record
from dpeffects.results.several import AtOnce, SubsetEffects


@dataclass(frozen=True, repr=False, kw_only=True)
class StudyEffects(AtOnce):
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
    def basis(self) -> str:
        """What entitles these to be called effects: one of `BASES`, or empty."""
        return self.stands_on

    @property
    def associated(self) -> bool:
        """Whether these are associations: not adjusted for, and not declared to be randomised."""
        return self.stands_on == "association"

    @property
    def caution(self) -> str:
        """What nobody should overlook, in a few words; empty when all is well."""
        return "; ".join(filter(None, (NO_EFFECT if self.associated else "", self.warning)))

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Names of the outcomes."""
        return tuple(column.name for column in self.sums.outcomes)

    def one(self, label: str) -> Result:
        """One of the effects as a `Result`, with an interval for it alone."""
        column = next((c for c in self.outcomes if label.split(": ")[0] == c), "")
        return self._one(label, "one", outcome=column)

    def by(self, subgroup: str) -> SubsetEffects:
        """Effects on all outcomes within the levels of a factor, with intervals for all at once."""
        if subgroup not in self.subgroups:
            known = ", ".join(self.subgroups) or "no subgroups"
            raise OptionError(f"this study has {known}, not {subgroup!r}")
        labels, effects = [], []
        for level, found in self.sums.effects_by_level(self.subgroups.index(subgroup)):
            labels += [f"{label} | {level}" for label in self.labels]
            effects += [self._based(effect) for effect in found]
        about = {f.name: getattr(self, f.name) for f in fields(Record)}
        return SubsetEffects(
            **about,
            labels=tuple(labels),
            effects=tuple(effects),
            subsets=tuple(labels),
            disjoint=True,
        )

    def _based(self, effect: Estimate) -> Estimate:
        return replace(effect, basis=self.stands_on)

    def __repr__(self) -> str:
        return self._head(f"on {len(self.sums.outcomes)} outcomes")
