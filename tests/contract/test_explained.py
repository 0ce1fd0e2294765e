"""Every released result explains itself: its estimates, intervals, guarantee and warnings."""

from __future__ import annotations

import pytest

from dpeffects.summary import Pairs
from tests.calls import CALLS
from tests.contract.test_every_call import ONE, run
from tests.neighbours import frame
from tests.test_words import gone_in


def flat(text):
    return " ".join(str(text).split())


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", [name for name in ONE if "release" not in CALLS[name].function])
def test_it_says_all_that_the_short_summary_says(name):
    fit, _ = run(ONE[name], frame(ONE[name].n, 4))
    said, short = flat(fit.explain()), fit.summary("short")
    (pairs, *_) = (block for block in short.blocks if isinstance(block, Pairs))
    for _, text in pairs.rows:
        assert flat(text) in said, text
    assert fit.guarantee.short() in said
    for text in short.warnings:
        words = text.removeprefix("Warning: ")
        assert f"{flat(words)}. " in said, "each warning is followed by what can be done"
    assert not gone_in(said)


def test_a_result_without_an_interval_says_so():
    name = "diff_in_means, no variance"
    fit, _ = run(ONE[name], frame(ONE[name].n, 4))
    assert "no interval" in flat(fit.explain())
