"""StudyRelease: what a site sends of a study instead of its data, as a JSON document.

It holds released numbers only: sums by arm and level, their noise, the guarantee and the charges
behind them, and which protocol was run. Effects are not sent: the centre computes them from the
sums.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from dpeffects.errors import BoundsError, OptionError, ReleaseError, checked_call
from dpeffects.estimators import table_methods
from dpeffects.flow import Estimation
from dpeffects.inference.joint import JointSums, Margin
from dpeffects.ledgers import Address
from dpeffects.privacy.ledger import Account
from dpeffects.protocols import Protocol, read_protocol
from dpeffects.results import StudyEffects
from dpeffects.results.export import plain
from dpeffects.sites.document import Form, Sent, Signature, refused
from dpeffects.sites.plausible import FAR, LEAST, charges_add_up
from dpeffects.sites.release import SiteRelease
from dpeffects.sites.release_fields import FIELDS, OWN, about_document, check_site, one_line
from dpeffects.typed import FieldError, Types, array, at_least, flag, number, record, text_or_none

_OF_A_CENTRE = ("sites", "site_names", "target")
"""Fields of `JointSums` that a site's own do not have."""
_WORDS = ("formula", "sample", "bounds", "warning", "notes")
_SUMS = Types({np.ndarray: array, str: text_or_none, float: number, int: at_least(-1), bool: flag})
_FIELDS = FIELDS | {
    "protocol": text_or_none,
    "sums": record(JointSums, _SUMS.fields(JointSums, without=_OF_A_CENTRE)),
}
_NAMES = (
    *("site", "request", "protocol", "estimand", "formula", "treatment", "n", "basis", "sums"),
    *("sample", "guarantee", "spends", "bounds", "caution", "notes"),
)
_RELEASE = Form(
    "study",
    {name: _FIELDS[name] for name in _NAMES},
    tuple(name for name in _NAMES if name not in OWN),
    ("spends",),
)


@dataclass(frozen=True, repr=False)
class StudyRelease(Sent):
    """One site's private study, ready to be sent; made by `study_release` or `from_result`.

    Parameters
    ----------
    site
        Name of the site.
    study
        What was released, as a centre knows it.
    request
        Identifier of the request that the site answers; may be empty.
    signature
        See `dpeffects.sites.signing`.
    """

    FORMAT, MOST_BYTES = _RELEASE.format, 50_000_000

    site: str
    study: StudyEffects
    request: str = ""
    signature: Signature | None = None

    @classmethod
    def from_result(cls, result: StudyEffects, site: str, *, request: str = "") -> StudyRelease:
        """Keep of a study what a centre needs."""
        if not isinstance(result, StudyEffects):
            raise ReleaseError(f"it is made of what dp_study gave, not {type(result).__name__}")
        if result.sums.sites:
            raise ReleaseError("these are several sites together: each sends its own release")
        about = {
            k: one_line(getattr(result, k)) for k in ("formula", "sample", "bounds", "warning")
        }
        notes = tuple(one_line(note) for note in result.notes if note)
        release = cls(site, replace(result, notes=notes, **about), request)
        return cls.from_dict(release.to_dict())  # a release that cannot be read is not sent

    @property
    def protocol(self) -> str:
        """Fingerprint of the protocol that was run; empty where there was none."""
        return str(self.study.details.get("protocol", ""))

    def one(self, label: str) -> SiteRelease:
        """One of the effects as a release for `combine`, which has other rules."""
        return SiteRelease.from_result(self.study.one(label), self.site, request=self.request)

    def to_dict(self) -> dict[str, Any]:
        """Return the document as plain values."""
        study = self.study
        values: dict[str, Any] = about_document(study) | {
            "site": self.site,
            "request": self.request,
            "protocol": self.protocol,
            "basis": study.stands_on,
            "sums": {k: x for k, x in plain(study.sums).items() if k not in _OF_A_CENTRE},
            "caution": study.warning,
            "notes": list(study.notes),
        }
        return _RELEASE.finished(values, self.signature)

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Check a document and read it; anything wrong with it is a ReleaseError."""
        with refused():
            found = _RELEASE.read(values)
            _check_shapes(found["sums"])
        about = {name: found.pop(name, None) for name in ("site", "request", "signature")}
        return cls(**about, study=_study(**found))

    def __repr__(self) -> str:
        guarantee, outcomes = self.study.guarantee, len(self.study.outcomes)
        return (
            f"<dpeffects study release {self.site!r}: {outcomes} outcomes, n = {self.study.n}, "
            f"{guarantee.line(self.study.n)}>"
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


# --- reading ----------------------------------------------------------------------------------


def _study(sums: JointSums, basis: str, caution: str, protocol: str, **about: Any) -> StudyEffects:
    """The study that a document tells of; effects follow from its sums."""
    spec = table_methods()["study"]
    with np.errstate(all="ignore"):
        effects = tuple(replace(effect, basis=basis) for effect in sums.effects())
    return StudyEffects(
        method=spec.name,
        method_title=spec.title,
        outcome=" + ".join(column.name for column in sums.outcomes),
        labels=sums.labels,
        effects=effects,
        sums=sums,
        subgroups=tuple(margin.factor for margin in sums.groups),
        stands_on=basis,
        warning=caution,
        details={"protocol": protocol} if protocol else {},
        **about,
    )


def _check_shapes(sums: JointSums) -> None:
    """Refuse numbers that do not fit together."""
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
    study, plain = release.study, release.study.sums.plain
    if reason := charges_add_up(study.spends, study.guarantee):
        return reason
    noise = np.sqrt(plain.noise)
    if noise[1].min() < LEAST / study.guarantee.epsilon:
        return "it claims less noise than its epsilon allows for"
    far = FAR * (1.0 + noise.max())
    if plain.sizes.sum() > study.n + far:
        return "it has more records than it says"
    if (np.abs(plain.sums) > np.abs(plain.sizes)[..., None] / 2.0 + far).any():
        return "its sums are far beyond the ranges of their columns and its noise"
    return ""
