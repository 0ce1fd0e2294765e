"""StudyRelease: what a site sends of a study instead of its data, as a JSON document.

It holds released numbers only: sums by arm and level, their noise, the guarantee and the charges
behind them, and which protocol was run. Effects are not sent: the centre computes them from the
sums.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from dpeffects.errors import BoundsError, OptionError, ReleaseError, checked_call
from dpeffects.estimators import table_methods
from dpeffects.flow import Estimation
from dpeffects.inference.joint import JointSums, Margin
from dpeffects.ledgers import Address
from dpeffects.privacy.ledger import Account
from dpeffects.protocols import Protocol, read_protocol
from dpeffects.results import StudyEffects
from dpeffects.sites.document import BASIS, LIMITS, Sent, check_site
from dpeffects.sites.plausible import FAR, LEAST, charges_add_up
from dpeffects.sites.release import SiteRelease
from dpeffects.typed import FieldError, Types, array, at_least, flag, number, text_or_none

_SUMS = Types(
    {np.ndarray: array, str: text_or_none, float: number, int: at_least(-1), bool: flag},
    limits=LIMITS,
)


@dataclass(frozen=True, repr=False, kw_only=True)
class StudyRelease(Sent):
    """One site's private study, ready to be sent; made by `study_release` or `from_result`.

    Parameters
    ----------
    site, request, signature, ...
        As in `SiteRelease`.
    protocol
        Fingerprint of the protocol that was run; empty where there was none.
    sums
        The released numbers; all else follows from them.
    stands_on, warning, notes
        As in `StudyEffects`.
    """

    WHAT, MOST_BYTES = "study", 50_000_000

    sums: Annotated[JointSums, _SUMS.of(JointSums)]
    protocol: Annotated[str, text_or_none] = ""
    stands_on: Annotated[str, BASIS] = ""
    warning: Annotated[str, text_or_none] = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def from_result(cls, result: StudyEffects, site: str, *, request: str = "") -> StudyRelease:
        """Keep of a study what a centre needs."""
        if not isinstance(result, StudyEffects):
            raise ReleaseError(f"it is made of what dp_study gave, not {type(result).__name__}")
        if result.sums.sites:
            raise ReleaseError("these are several sites together: each sends its own release")
        own = {"site": site, "request": request, "protocol": result.details.get("protocol", "")}
        return cls.of(result, **own, notes=tuple(filter(None, result.notes)))

    def check(self) -> None:
        """Refuse numbers that do not fit together."""
        sums = self.sums
        arms, outcomes, baseline = map(len, (sums.arms, sums.outcomes, sums.baseline_columns))
        pairs = [arm for pair in sums.contrasts for arm in pair]
        columns = (*sums.outcomes, *sums.baseline_columns)
        there = [sums.whole, *sums.groups, *filter(None, (sums.unadjusted,))]
        of_baseline = [*filter(None, (sums.baseline, sums.weighted_baseline))]
        width = sums.whole.sums.shape[-1]  # outcomes, and columns that say where they are missing
        fits = (
            len(set(sums.arms)) == arms >= 2
            and outcomes > 0
            and bool(pairs)
            and all(0 <= arm < arms for arm in pairs)
            and all(column.low < column.high for column in columns)
            and all(column.missing < width for column in columns)
            and len(sums.unequal) in (0, arms)
            and len(sums.missed) in (0, outcomes)
            and all(0.0 <= missed <= 1.0 for missed in sums.missed)
            and width >= outcomes
            and all(_has_shape(margin, arms, width) for margin in there)
            and all(_has_shape(margin, arms, baseline) for margin in of_baseline)
            and bool(of_baseline) == bool(baseline)
            and len(sums.whole.levels) == 1
        )
        if not fits:
            raise FieldError("sums: arms, columns and levels do not fit together")

    @cached_property
    def study(self) -> StudyEffects:
        """The study that the document tells of; effects follow from its sums."""
        spec, sums = table_methods()["study"], self.sums
        with np.errstate(all="ignore"):
            effects = tuple(replace(effect, basis=self.stands_on) for effect in sums.effects())
        own = {f.name for f in fields(StudyEffects)} & {f.name for f in fields(self)}
        return StudyEffects(
            **{name: getattr(self, name) for name in own},
            method=spec.name,
            method_title=spec.title,
            outcome=" + ".join(column.name for column in sums.outcomes),
            labels=sums.labels,
            effects=effects,
            subgroups=tuple(margin.factor for margin in sums.groups),
            details={"protocol": self.protocol} if self.protocol else {},
        )

    def one(self, label: str) -> SiteRelease:
        """One of the effects as a release for `combine`, which has other rules."""
        return SiteRelease.from_result(self.study.one(label), self.site, request=self.request)

    def __repr__(self) -> str:
        return (
            f"<dpeffects study release {self.site!r}: {len(self.sums.outcomes)} outcomes, "
            f"n = {self.n}, {self.guarantee.line(self.n)}>"
        )


@checked_call
def study_release(
    protocol: Protocol | str | os.PathLike[str],
    data: Any,
    *,
    site: str,
    request: str = "",
    ledger: Account | Address | None = None,
    dataset: str | None = None,
    seed: int | None = None,
) -> StudyRelease:
    """Run a study's protocol at one site, and keep what can be sent to a centre.

    Parameters
    ----------
    protocol
        A `Protocol`, or the path of its TOML file. It declares bounds of all columns that need
        them: bounds that each site finds for itself would not be the same.
    site
        Name of the site, unique among those that are combined.
    request
        Identifier of the request that this answers.
    data, ledger, dataset, seed
        As in :func:`dp_ate`.

    Returns
    -------
    StudyRelease

    Examples
    --------
    >>> import dpeffects as dpe
    >>> protocol = dpe.Protocol(
    ...     "earnings_1978 + black ~ treatment", epsilon=1, design="randomised",
    ...     bounds={"earnings_1978": (0, 60_000), "black": (0, 1)},
    ... )
    >>> sent = dpe.study_release(protocol, dpe.load_data("lalonde"), site="North")
    >>> sent.site, sent.study.n, sent.protocol == protocol.fingerprint
    ('North', 445, True)
    """
    made = protocol if isinstance(protocol, Protocol) else read_protocol(protocol)
    check_site(site, request)
    if made.sites and site not in made.sites:
        raise OptionError(f"the protocol is for {', '.join(made.sites)}, not for {site!r}")
    who = {"ledger": ledger, "dataset": dataset, "seed": seed}
    study = made.result_of(begin_study(made, data, **who))
    return StudyRelease.from_result(study, site, request=request)


def begin_study(protocol: Protocol, data: Any, **more: Any) -> Estimation:
    """Check all that can be checked before the first charge of a site's study."""
    ready = protocol.begin(data, **more)
    if missing := list(ready.design.missing):
        ready.close()
        raise BoundsError(
            f"the protocol declares no bounds of {', '.join(missing)}: sites would find different "
            "ones, which cannot be combined"
        )
    bounds = ready.design.bounds
    levels = [x for name in bounds if bounds.is_levels(name) for x in bounds[name]]
    words = [protocol.formula, *protocol.subgroups, *bounds, *levels]
    if not all(str(word).isprintable() for word in words):
        ready.close()
        raise OptionError("a name or a level has characters that cannot be printed; rename it")
    return ready


def _has_shape(margin: Margin, arms: int, columns: int) -> bool:
    levels = len(margin.levels)
    return (
        margin.sizes.shape == (arms, levels)
        and margin.sums.shape == margin.squares.shape == (arms, levels, columns)
        and len(set(margin.levels)) == levels > 0
        and margin.noise.shape == (3, arms)
        and bool((margin.noise >= 0.0).all())
        and margin.opposite >= 0.0
    )


def why_not(release: StudyRelease) -> str:
    """Say why a release cannot be what it says, or return an empty text."""
    plain = release.sums.plain
    if reason := charges_add_up(release.spends, release.guarantee):
        return reason
    noise = np.sqrt(plain.noise)
    if noise[1].min() < LEAST / release.guarantee.epsilon:
        return "it claims less noise than its epsilon allows for"
    far = FAR * (1.0 + noise.max())
    if plain.sizes.sum() > release.n + far:
        return "it has more records than it says"
    if (np.abs(plain.sums) > np.abs(plain.sizes)[..., None] / 2.0 + far).any():
        return "its sums are far beyond the ranges of their columns and its noise"
    return ""
