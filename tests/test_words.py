"""Words that are gone: one idea has one name, and that name is the field's."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import dpeffects as dpe
from dpeffects.errors import texts

ROOT = Path(dpe.__file__).parents[1]
GONE = (
    r"nobody should overlook",
    r"as the call said",
    r"nothing is allowed for",
    r"to be shown",
    r"who counts",
    r"count as nothing",
    r"changes nobody's",
    r"what is worth showing",
    r"everything worth printing",
    r"that is not noise",
    r"HARDLY ADJUSTED",
    r"RARE ARM",
    r"NO STEPS",
    r"NO PRODUCTS",
    r"LINES ONLY",
    r"CUT WEIGHTS",
    r"WEAK PRIVACY",
    r"possible bias\)",
    r"final sum",
    r"records are private\)",
    r"of \d+ asked",
    r"stands_on",
    r"shares_frame",
    r"spends_frame",
    r"budget spends",
    r"share_treated",
    r"epsilon_asked",
    r"on_unadjusted=.caution",
    r"conf_int_of_effect",
)
"""Regular expressions of what no reader is to meet again."""
LATER = ("abilities", "services", "replication", "evidence", "design", "report", "cli")
"""Folders whose docstrings are not looked at."""
NOT_YET = ("README", "r.md", "site_release.md", "dp_ate")
"""Texts that still have such words."""


def gone_in(text):
    """Words that are gone, as far as a text has them."""
    return [words for words in GONE if re.search(words, text)]


def _docs():
    """Public docstrings of what a user meets, by name."""
    for name in dpe.__all__:
        one = getattr(dpe, name)
        where = getattr(one, "__module__", "").split(".")
        if len(where) > 1 and where[1] in LATER:
            continue
        yield name, inspect.getdoc(one) or ""
        if inspect.isclass(one):
            for part, of in vars(one).items():
                if not part.startswith("_"):
                    yield f"{name}.{part}", inspect.getdoc(of) or ""


def _said(told):
    """All texts of a .toml file, without their keys: old names are keys of advice on new ones."""
    if isinstance(told, dict | list):
        return "\n".join(map(_said, told.values() if isinstance(told, dict) else told))
    return str(told)


TEXTS = {
    "sentences": _said(texts("dpeffects.results", "sentences.toml")),
    "advice": _said(texts("dpeffects", "advice.toml")),
    **{path.name: path.read_text("utf-8") for path in (ROOT / "tests/golden").glob("ate*")},
    **{path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")},
    "README": (ROOT / "README.md").read_text(encoding="utf-8"),
    **dict(_docs()),
}


@pytest.mark.parametrize("name", [name for name in TEXTS if name not in NOT_YET])
def test_no_text_has_a_word_that_is_gone(name):
    assert not gone_in(TEXTS[name])


def test_words_that_are_gone_are_found():
    assert gone_in("What nobody should overlook, as the call said") == list(GONE[:2])


def test_advice_may_translate_words_that_are_gone_and_not_say_them():
    assert (
        _said({"results": {"stands_on basis": "fit.identification"}, "x": "y"})
        == "fit.identification\ny"
    )
