"""Tables and studies of sites, whose records are disjoint, as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from dpeffects.arrays import FloatArray
from dpeffects.inference.joint import JointSums, Margin, StudyColumn
from dpeffects.inference.tables import ArmTable, Confounding


def tables(each: Sequence[ArmTable]) -> ArmTable:
    """Tables of disjoint groups of records, such as sites, as one.

    Within each group both arms count for all of its records, so that groups that differ in their
    outcomes and in how many are treated do not confound the two. An arm has as many in all as it
    has in the groups together.
    """
    sizes = np.array([table.sizes for table in each])
    total = sizes.sum(axis=1)
    factor = total[:, None] / sizes * (sizes.sum(axis=0) / total.sum())
    counts = sum(f[:, None] * table.counts for f, table in zip(factor, each, strict=True))
    noise = factor**2 * np.array([table.noise_variance for table in each])
    squares = factor**2 * sizes * np.array([table.unequal for table in each])
    one, other = noise.sum(axis=0).tolist()
    first, second = (squares.sum(axis=0) / (factor * sizes).sum(axis=0)).tolist()
    plain = [table.unadjusted for table in each if table.unadjusted is not None]
    return ArmTable(
        np.asarray(counts),
        (one, other),
        (first, second),
        all(table.gaussian for table in each),
        _worst(each),
        tables(plain) if len(plain) == len(each) else None,
    )


def studies(sites: Mapping[str, JointSums], estimand: str = "ATE") -> JointSums:
    """Studies of disjoint groups of records, such as sites, as one.

    Each site's effects stand for its own records, or for those that the estimand is about, so that
    sites that differ in their outcomes and in how many are treated do not confound the two.
    Baseline variables by arm are those of all records: sums add up. Where records have weights,
    both arms of a site count for the same records, as in `tables`.
    """
    everyone = tuple(sites.values())
    arms = np.array([x.plain.records[:, 0] for x in everyone])
    target = {"ATT": (0,), "ATC": (1,)}.get(estimand, tuple(range(arms.shape[1])))
    parts = arms[:, target].sum(axis=1)[:, None] * arms.sum(axis=0) / arms[:, target].sum()
    scaled = [_scaled(x, part) for x, part in zip(everyone, parts, strict=True)]
    return replace(
        everyone[0],
        outcomes=tuple(map(_one_column, zip(*(x.outcomes for x in everyone), strict=True))),
        baseline_columns=tuple(
            map(_one_column, zip(*(x.baseline_columns for x in everyone), strict=True))
        ),
        whole=_added([x.whole for x in scaled]),
        groups=tuple(map(_added, zip(*(x.groups for x in scaled), strict=True))),
        baseline=_all_added([x.baseline for x in scaled]),
        weighted_baseline=_all_added([x.weighted_baseline for x in scaled]),
        unadjusted=_all_added([x.unadjusted for x in scaled]),
        normal=all(x.normal for x in everyone),
        unequal=(),
        confounding=_worst(everyone),
        sites=everyone,
        site_names=tuple(sites),
        target=target,
    )


def _worst(each: Sequence[ArmTable] | Sequence[JointSums]) -> Confounding | None:
    """What weights leave may have the same sign everywhere: it does not average out."""
    left = [x.confounding for x in each if x.confounding is not None]
    return max(left, key=lambda x: x.part * x.prior + x.moved, default=None)


def _one_column(columns: Sequence[StudyColumn]) -> StudyColumn:
    """A column of all sites; it has two values where they all say so."""
    return replace(columns[0], two_valued=all(column.two_valued for column in columns))


def _scaled(site: JointSums, records: FloatArray) -> JointSums:
    """A site whose weights add up to so many records by arm; as it is where there are none."""
    if site.unadjusted is None:
        return site
    factor = records / site.whole.records[:, 0]
    return replace(
        site,
        whole=site.whole.times(factor),
        groups=tuple(margin.times(factor) for margin in site.groups),
        weighted_baseline=site.weighted_baseline and site.weighted_baseline.times(factor),
    )


def _all_added(margins: Sequence[Margin | None]) -> Margin | None:
    there = [margin for margin in margins if margin is not None]
    return _added(there) if len(there) == len(margins) else None


def _added(margins: Sequence[Margin]) -> Margin:
    """Margins of disjoint groups of records as one."""
    added = {
        name: np.sum([getattr(x, name) for x in margins], axis=0)
        for name in ("sizes", "sums", "squares", "noise")
    }
    return replace(margins[0], **added, opposite=sum(x.opposite for x in margins))
