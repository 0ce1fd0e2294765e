"""Nothing that users could call has gone: names, arguments, attributes, methods, options, commands.

`public.json` has what version 1a614008 had, by `tests/same.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests import same

HERE = Path(__file__).parent
GONE = {
    "Bounds": {"categorical", "pairs"},
    "SiteRelease": {"FORMAT"},
    "StudyRelease": {"FORMAT"},
    "StudyEffects": {"tables"},  # table("table1") is one of them by its name
}
"""Attributes that were for the package's own use, or are replaced by a better one."""


def flat(found):
    """Names in it; a method that has average and conditional effects has options of both."""
    if isinstance(found, str):
        return {found}
    return set().union(*map(flat, found)) if found else set()


def test_whatever_could_be_called_still_can():
    before, now = json.loads((HERE / "public.json").read_text()), same.public()
    lost = {
        name: missing
        for name, had in before.items()
        if (missing := flat(had) - flat(now.get(name, [])) - GONE.get(name, set()))
    }
    assert lost == {}
    assert flat(before["dp_ate"]) >= {"formula", "data", "method", "epsilon"}
    assert {"dp_rate", "command rate", "method sample_aggregate"} <= before.keys()
