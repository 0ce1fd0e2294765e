"""How tests are run: loops tell every case that fails, and nothing is skipped without a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import skips
from tests.cases import each

CI = (Path(__file__).parents[1] / ".ci" / "run").read_text()


def test_what_may_be_skipped_is_what_could_not_be_installed(monkeypatch):
    named = {*re.findall(r"^want (\w+) ", CI, re.M), *re.findall(r'^MAY_SKIP="(\w+)"', CI, re.M)}
    assert named == skips.NEEDED.keys() - {"federation", "office"}  # which `make` installs
    said = "Skipped: could not import 'lifelines': No module named 'lifelines'"
    for missing, allowed in ((None, True), ("browser lifelines", True), ("browser", False)):
        monkeypatch.delenv("MAY_SKIP", raising=False)
        if missing is not None:
            monkeypatch.setenv("MAY_SKIP", missing)
        assert skips.may_be(said) == allowed
        assert skips.may_be("Skipped: cannot mount a small file system")
        assert not skips.may_be("Skipped: no time today")


def test_a_loop_tells_all_that_failed(request):
    seen = []

    @each("one", [1, 2, 3])
    @each(("two", "three"), [(1, 1), (2, 2)])
    def looped(one, two, three):
        seen.append((one, two))
        assert two == three
        assert one != 2
        if one == 3:
            pytest.fail("no three")

    with pytest.raises(BaseExceptionGroup, match="2 of 3 cases") as told:
        looped(request)
    assert seen == [(a, b) for a in (1, 2, 3) for b in (1, 2)]
    assert [len(group.exceptions) for group in told.value.exceptions] == [2, 2]
    assert told.value.exceptions[0].exceptions[1].__notes__ == ["with {'two': 2, 'three': 2}"]
