"""The public names of sites and their places (see `dpeffects.lazy`)."""

from dpeffects.services.sites.combination import CombinedEffect, combine
from dpeffects.services.sites.multisite import dp_multisite
from dpeffects.services.sites.site_documents import (
    SiteRelease,
    StudyRelease,
    site_release,
    study_release,
)
from dpeffects.services.sites.table_releases import combine_moments, combine_studies, combine_tables

__all__ = [
    "CombinedEffect",
    "SiteRelease",
    "StudyRelease",
    "combine",
    "combine_moments",
    "combine_studies",
    "combine_tables",
    "dp_multisite",
    "site_release",
    "study_release",
]
