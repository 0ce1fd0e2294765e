"""What answers a question: the result of the call, or what a site sends of it."""

from __future__ import annotations

from typing import Any

import dpeffects as dpe
from dpeffects.documents import Document
from dpeffects.services.protocols import Protocol
from dpeffects.services.sites import SiteRelease, StudyRelease, site_release
from dpeffects.services.sites.site_documents import begin_study


def released(
    formula: str,
    data: Any,
    *,
    call: str = "dp_ate",
    site: str = "",
    request: str = "",
    study: Protocol | None = None,
    asked: Protocol | None = None,
    **arguments: Any,
) -> Document:
    """Return the result of a call; where a ``site`` is named, what it sends of an average effect.

    A study is released as the site runs it, with the name of what was asked.
    """
    if study is not None and asked is not None:
        found = asked.named(begin_study(study, data, **arguments).result())
        return StudyRelease.from_result(found, site, request=request)
    if site and call == "dp_ate":
        return site_release(formula, data, site=site, request=request, **arguments)
    name = call
    if call == "dp_ate":
        name = f"dp_{arguments.pop('estimand', 'ATE').lower()}"
    result: Any = getattr(dpe, name)(formula, data, **arguments)
    if site and isinstance(result, dpe.Result):
        return SiteRelease.from_result(result, site, request=request)
    return result
