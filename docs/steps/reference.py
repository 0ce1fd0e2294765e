"""The pages of the reference: public names by area, documented from their docstrings."""

from __future__ import annotations

import inspect
from importlib.util import find_spec

import dpeffects

AREAS = {
    "effects": (
        "Average effects",
        "",
        ["dp_ate", "dp_att", "dp_atc", "ArmEffects", "SubsetEffects", "methods", "reference"],
    ),
    "conditional": (
        "Conditional effects",
        "",
        ["dp_cate", "load_cate", "CateFunction", "CateEffects", "pehe"],
    ),
    "sites": (
        "Many sites",
        "The document that a site sends is described in :doc:`/site_release`.",
        [
            *("site_release", "combine", "combine_tables", "dp_multisite", "SiteRelease"),
            *("CombinedEffect", "Protocol", "read_protocol", "study_release", "combine_studies"),
            "StudyRelease",
        ],
    ),
    "tables": (
        "Survival, quantiles, ordered levels, rates",
        "How to read them: :doc:`/generated/vignettes/survival`, "
        ":doc:`/generated/vignettes/reporting`.",
        [
            *("dp_survival", "SurvivalEffects", "dp_qte", "QuantileEffects"),
            *("dp_ordinal", "OrdinalEffects", "dp_rate", "RateEffects"),
        ],
    ),
    "studies": (
        "A whole study",
        "How to read it: :doc:`/generated/vignettes/whole_paper`.",
        [
            *("dp_study", "StudyEffects"),
            *("dp_moments", "Moments", "Regression", "combine_moments"),
        ],
    ),
    "designs": (
        "Instruments, before and after",
        "How to read them: :doc:`/generated/vignettes/whole_paper`.",
        ["dp_late", "LateEffect", "dp_did", "DidEffect", "EventStudy"],
    ),
    "tests": (
        "Tests",
        "Every average effect has a method ``test``, which costs no budget.",
        ["dp_randomisation_test", "RandomisationTest", "Test", "Tests"],
    ),
    "balance": ("Overlap and balance", "", ["dp_balance", "Balance"]),
    "budget": (
        "Bounds, budget and ledgers",
        "How to choose and read them: :doc:`/generated/vignettes/choosing_bounds`, "
        ":doc:`/generated/vignettes/reading_budget`.",
        [
            *("declare", "Bounds", "DeclaredFrame", "Guarantee", "Charge", "Ledger"),
            *("create_ledger", "open_ledger", "DurableLedger", "Allotment"),
        ],
    ),
    "office": (
        "Data of an office",
        "How to ask: :doc:`/guide/office`.",
        ["connect", "Office", "RemoteDataset"],
    ),
    "plan": (
        "Plans and simulation studies",
        "",
        [
            "plan",
            "Plan",
            "rehearse",
            "TermPlan",
            "plan_study",
            "StudyPlan",
            "simulate_study",
            "SimulationStudy",
        ],
    ),
    "bench": (
        "Leaderboard",
        "Results, the rule of the ranking and how to add an entry: :doc:`/leaderboard`.",
        ["bench", "Leaderboard"],
    ),
    "audit": ("Audit", "", ["audit", "AuditResult"]),
    "results": (
        "Results",
        "",
        [
            "Result",
            "ScaledEffect",
            "SensitivityAnalysis",
            "compare",
            "Comparison",
            "Summary",
            "DPEffectsError",
        ],
    ),
    "data": (
        "Data",
        "Sources, licences and declared bounds: :doc:`/generated/data`.",
        ["load_data", "simulate", "list_data", "data_info", "list_vignettes"],
    ),
    "theory": (
        "Formulas of the papers",
        "",
        [
            "matching_error_bound",
            "ipw_bound",
            "ipw_bias",
            "ipw_bias_bound",
            "ipw_noise_sd",
            "ipw_error_probability",
            "ipw_noise_range",
            "wrong_sign_probability",
        ],
    ),
}
_CALLS = ("effects", "conditional", "tables", "studies", "designs", "tests", "balance")
GROUPS = {  # what the index lists together: kinds of names in these areas
    "Calls": ("call", _CALLS),
    "Results": ("class", (*_CALLS, "results")),
    "Comparing and reporting results": ("call", ("results",)),
    "Planning": ("any", ("plan",)),
    "Bounds, budgets and ledgers": ("any", ("budget",)),
    "Data": ("any", ("data",)),
    "Many sites": ("any", ("sites",)),
    "Data of an office": ("any", ("office",)),
    "Evidence": ("any", ("bench", "audit", "theory")),
}
_INDEX = """Reference
=========

Every public name, with one line about it. All are at the top level: ``import dpeffects as dpe``.

"""
_PAGES = """.. toctree::
   :hidden:
   :maxdepth: 2

"""
_PLOTS = """Plots
=====

.. py:module:: dpeffects.plots

They are at ``dpe.plots``, and need ``pip install "dpeffects[plot]"``. Every function takes ``ax``
and returns the axes; results call them by ``plot()``. Each is shown in the
:doc:`gallery </generated/gallery/index>`.

.. currentmodule:: dpeffects.report.plots

"""


def texts() -> dict[str, str]:
    """Return the pages in reStructuredText, by their names in docs/generated."""
    pages = {}
    for area, (title, intro, names) in AREAS.items():
        entries = "".join(_entry(name) for name in names if name in dpeffects.__all__)
        if entries:
            head = f"{title}\n{'=' * len(title)}\n\n{intro}\n\n.. currentmodule:: dpeffects\n\n"
            pages[f"api/{area}.rst"] = head + entries
    if find_spec("dpeffects.report.plots"):
        from dpeffects import plots

        drawn = "".join(f".. autofunction:: {name}\n\n" for name in plots.__all__)
        pages["api/plots.rst"] = _PLOTS + drawn
    listed = "".join(f"   {page[4:-4]}\n" for page in pages)
    return {**pages, "api/index.rst": _INDEX + _index() + _PAGES + listed}


def _index() -> str:
    """Return a table for each group: names, and the first sentence about each."""
    parts = [".. currentmodule:: dpeffects\n\n"]
    for title, (kind, areas) in GROUPS.items():
        parts.append(f"{title}\n{'-' * len(title)}\n\n.. list-table::\n   :widths: 30 70\n\n")
        for name in sorted(
            (name for area in areas for name in AREAS[area][2]),
            key=lambda name: inspect.isclass(getattr(dpeffects, name)),
        ):
            value = getattr(dpeffects, name)
            if kind in ("any", "class" if inspect.isclass(value) else "call"):
                first = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
                parts.append(f"   * - :py:obj:`{name}`\n     - {first}\n")
        parts.append("\n")
    plots = "   * - :doc:`plots <plots>`\n     - Pictures of results, one function for each.\n\n"
    return "".join(parts)[:-1] + plots


def _entry(name: str) -> str:
    value = getattr(dpeffects, name)
    if not inspect.isclass(value):
        return f".. autofunction:: {name}\n\n"
    if issubclass(value, Exception):
        return f".. autoexception:: {name}\n\n"
    return f".. autoclass:: {name}\n   :members:\n   :inherited-members: Mapping\n\n"
