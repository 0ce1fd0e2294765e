"""The release with which a site answers: of an effect, or of a study."""

from __future__ import annotations

from typing import Any

from dpeffects.services.protocols import Protocol
from dpeffects.services.sites import SiteRelease, StudyRelease, site_release
from dpeffects.services.sites.site_documents import begin_study


def released(
    formula: str,
    data: Any,
    *,
    site: str,
    request: str = "",
    study: Protocol | None = None,
    asked: Protocol | None = None,
    **arguments: Any,
) -> SiteRelease | StudyRelease:
    """Release an effect, or a study as the site runs it and with the name of what was asked."""
    if study is None or asked is None:
        return site_release(formula, data, site=site, request=request, **arguments)
    found = asked.named(begin_study(study, data, **arguments).result())
    return StudyRelease.from_result(found, site, request=request)
