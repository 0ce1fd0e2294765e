"""Many sites, one effect: what a site sends, and how a centre combines it."""

from dpeffects.sites.combination import Combined, combine
from dpeffects.sites.multisite import dp_multisite
from dpeffects.sites.release import SiteRelease, site_release
from dpeffects.sites.tables import combine_moments, combine_tables

__all__ = [
    "Combined",
    "SiteRelease",
    "combine",
    "combine_moments",
    "combine_tables",
    "dp_multisite",
    "site_release",
]
