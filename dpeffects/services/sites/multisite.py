"""dp_multisite: several sites on one machine, as if each had sent its release."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from dpeffects.design.bounds import DeclaredFrame
from dpeffects.design.frames import unpack
from dpeffects.errors import (
    DataError,
    DPEffectsError,
    EstimationError,
    OptionError,
    ReleaseError,
    checked_call,
    refusal,
)
from dpeffects.inference.intervals import check_conf_level
from dpeffects.lazy import pd
from dpeffects.ledgers.allotments import Allotment
from dpeffects.ledgers.memory import Ledger
from dpeffects.progress import bar
from dpeffects.services.sites.checks import check_rule
from dpeffects.services.sites.combination import CombinedEffect, combine
from dpeffects.services.sites.document import check_site
from dpeffects.services.sites.site_documents import SiteRelease, begin_release


@checked_call
def dp_multisite(
    formula: str,
    data: Any,
    *,
    site: str,
    epsilon: float | Mapping[Any, float],
    sites: Sequence[Any] | None = None,
    rule: str = "ivw",
    estimand: str = "ATE",
    conf_level: float = 0.95,
    seed: int | None = None,
    **arguments: Any,
) -> CombinedEffect:
    """Split data by site, release each site's effect, and combine the releases.

    Each site is a data set of its own: its records are protected by its own budget. Which site a
    record belongs to, and so the size of each site, is taken as public. The data of all sites is
    checked before the first site is charged; after that, no site is left out because of its
    records, only where its released values do not allow an estimate.

    Parameters
    ----------
    formula, data, **arguments
        As in :func:`dp_ate`; ``delta`` and ``ledger`` may be mappings from site to value too.
    site
        Column that holds the site.
    epsilon
        One number for every site, or a mapping from site to number.
    sites
        The sites; by default the keys of ``epsilon``. They are declared, never read from the data.
    rule, conf_level
        As in :func:`combine`.
    estimand
        "ATE", "ATT" or "ATC".
    seed
        Makes the noise of every site reproducible, and the result not private.

    Examples
    --------
    >>> import dpeffects as dpe
    >>> data = dpe.simulate("multisite", n=4000, seed=1).frame
    >>> data["hospital"] = ["North", "South"] * 2000
    >>> fit = dp_multisite(
    ...     "outcome ~ treatment", data, site="hospital", epsilon={"North": 1, "South": 2},
    ...     method="diff_in_means", bounds={"outcome": (0, 1)}, seed=1,
    ... )
    >>> fit.sites["site"].tolist(), fit.status
    (['North', 'South'], 'void: seeded')
    """
    check_rule(rule)
    check_conf_level(conf_level)
    names = _declared(epsilon, sites)
    calls = [_for_site(name, {"epsilon": epsilon, **arguments}, seed) for name in names]
    parts = _split(data, site, names)
    left_out = {}
    with ExitStack() as open_calls:
        ready = {}
        for site_name, part, call in zip(map(str, names), parts, calls, strict=True):
            if len(part):
                asked = {"site": site_name, "estimand": estimand, **call}
                try:
                    ready[site_name] = begin_release(formula, part, **asked)
                except DPEffectsError as error:
                    raise type(error)(f"site {site_name!r}: {error}") from None
                open_calls.callback(ready[site_name].close)
            else:
                left_out[site_name] = "it has no records"
        releases = []
        for name, prepared in bar(list(ready.items()), "sites"):
            try:
                releases.append(SiteRelease.from_result(prepared.result(), name))
            except (EstimationError, ReleaseError) as error:  # of released values: may be shown
                left_out[name] = f"{error} (its budget is spent)"
    return combine(releases, rule, conf_level=conf_level, left_out=left_out)


def _declared(epsilon: Any, sites: Sequence[Any] | None) -> list[Any]:
    if sites is None and not isinstance(epsilon, Mapping):
        raise OptionError(refusal("no_sites"))
    if sites is not None and (isinstance(sites, str) or not isinstance(sites, Sequence)):
        raise OptionError(f"sites must be a list of names, not {type(sites).__name__}")
    names = list(epsilon if sites is None else sites)
    if not all(isinstance(name, Hashable) for name in names):
        raise OptionError("the name of a site must be text or a number")
    if not names or len({str(name) for name in names}) < len(names):
        raise OptionError("sites must name at least one site, each once")
    for name in names:
        check_site(str(name))
    return names


def _split(data: Any, site: Any, names: list[Any]) -> list[Any]:
    """The records of each site, in their order; a site that nobody declared is an error."""
    import narwhals.stable.v2 as nw

    frame, bounds, _ = unpack(data, None)
    if not isinstance(frame, nw.DataFrame):
        raise DataError(f"data must be a frame in memory, not {type(data).__name__}")
    if site not in frame.columns:
        raise DataError(refusal("data_no_column", site=site))
    codes = pd.Index(names).get_indexer(pd.Index(frame[site].to_list()))
    if (codes < 0).any():
        raise DataError(f"column {site!r} contains a site that is not in sites=")
    if not len(frame):
        raise DataError("the data has no rows")
    parts = [frame.filter((codes == j).tolist()).to_native() for j in range(len(names))]
    return [DeclaredFrame(part, bounds) for part in parts]


def _for_site(name: Any, arguments: Mapping[str, Any], seed: int | None) -> dict[str, Any]:
    """Arguments of one site's call: mappings of budgets and ledgers give their entry."""
    own = dict(arguments)
    for key in ("epsilon", "delta", "ledger"):
        if isinstance(own.get(key), Mapping):
            if name not in own[key]:
                raise OptionError(f"{key} has no entry for the site {name!r}")
            own[key] = own[key][name]
        elif isinstance(own.get(key), Ledger | Allotment):
            raise OptionError(refusal("one_ledger", name=name))
    return own if seed is None else {**own, "seed": _site_seed(seed, name)}


def _site_seed(seed: Any, name: Any) -> int:
    """A seed of its own for each site: equal noise everywhere would not average out."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise OptionError(f"seed must be a non-negative integer, got {seed!r}")
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8], "big")
